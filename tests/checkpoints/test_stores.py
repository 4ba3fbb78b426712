"""Stored arrays: parts that do not end where chunks do, and chunks that many leaves share."""

import numpy as np
import pytest
import tensorstore as ts

from spec_cascades.checkpoints import stores
from spec_cascades.checkpoints.placing import whole


def written(folder, value, chunk):
    """A zarr array as `Stores` opens it."""
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    layout = ts.ChunkLayout(chunk_shape=chunk)
    made = dict(create=True, dtype=value.dtype, shape=value.shape, chunk_layout=layout)
    ts.open(spec, **made).result().write(value).result()
    return stores.Array("a", value.shape, str(value.dtype), spec)


def filled(leaf, index):
    out = np.full([own.stop - own.start for own in index], np.nan, np.float32)
    leaf.fill(out, index)
    return out


@pytest.mark.parametrize("turned", [False, True])
def test_parts_need_not_end_where_chunks_do(tmp_path, monkeypatch, turned):
    monkeypatch.setattr(stores, "CHUNK", 16)
    value = np.arange(3 * 7 * 10, dtype=np.float32).reshape(3, 7, 10)
    leaf = stores.Stores().leaf(written(tmp_path, value, (2, 3, 4)), turned=turned)
    expected = value.swapaxes(1, 2) if turned else value
    assert leaf.shape == expected.shape
    for index in [whole(leaf.shape), (slice(1, 3), slice(2, 6), slice(3, 7)), (slice(2, 3),) * 3]:
        np.testing.assert_array_equal(filled(leaf, index), expected[index])


@pytest.mark.parametrize("chunks", [1, 2])
def test_layers_in_one_chunk_are_read_with_it(tmp_path, monkeypatch, chunks):
    """The file is gone after the first layer: the others of its chunk are there, and only those."""
    monkeypatch.setattr(stores, "CHUNK", 16)
    value = np.arange(1, 4 * 5 * 6 + 1, dtype=np.float32).reshape(4, 5, 6)
    array, store = written(tmp_path, value, (4 // chunks, 5, 6)), stores.Stores()
    layers = [store.leaf(array, layer=i) for i in range(4)]
    got = [filled(layers[0], whole((5, 6)))]
    for file in tmp_path.glob("[0-9]*"):
        file.unlink()
    got += [filled(layer, whole((5, 6))) for layer in layers[1:]]
    kept = 4 // chunks
    np.testing.assert_array_equal(got[:kept], value[:kept])
    assert not np.any(got[kept:])


def test_one_array_is_kept_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHUNK", 16)
    store, (a, b) = stores.Stores(), (np.full((3, 4), i, np.float32) for i in (1, 2))
    first, second = (store.leaf(written(tmp_path / str(i), v, (3, 4))) for i, v in enumerate((a, b)))
    for leaf, value in ((first, a), (second, b), (first, a)):
        np.testing.assert_array_equal(filled(leaf, whole((3, 4))), value)
    for file in (tmp_path / "0").glob("[0-9]*"):
        file.unlink()
    assert np.all(filled(first, whole((3, 4))) == 1)
    filled(second, whole((3, 4)))
    assert not np.any(filled(first, whole((3, 4)))), "what was read before stayed"
