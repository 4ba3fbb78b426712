"""A task a tiny model can learn: the target repeats the source. Settings, files, batches."""

import numpy as np

from spec_cascades.models import t5
from spec_cascades.train.settings import Data, Model, Train

WORDS = ("ba", "be", "da", "de", "ka", "ke", "ma", "me", "na", "ne")
PIECES = 20
LENGTH = 24
MODEL = Model(d_model=16, d_kv=8, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)


def sentences(n, seed):
    """n distinct sentences of two to four words."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < n:
        found[" ".join(rng.choice(WORDS, rng.integers(2, 5)))] = None
    return list(found)


def write_tsv(path, n, seed):
    """A TSV of n pairs whose two columns are equal."""
    path.write_text("".join(f"{s}\t{s}\n" for s in sentences(n, seed)), encoding="utf-8")
    return path


def settings(out, data=None, **changes):
    """A `Train` of seconds; `data` is needed only where files are read."""
    data = data or Data("train.tsv", "dev.tsv", "spiece.model", PIECES, 2, LENGTH, LENGTH)
    small = dict(steps=60, rows=4, warmup=5, peak_lr=1e-2, eval_every=10, save_every=20)
    return Train(str(out), data, MODEL, **small | changes)


def config(**changes):
    """The T5 of MODEL over PIECES ids."""
    return t5.Config(**dict(vocab=PIECES, embeddings=PIECES, **vars(MODEL)) | changes)


def copies(rows, length, seed):
    """A packed batch of random ids, two examples a row and two columns of padding."""
    half = (length - 2) // 2
    tokens = np.random.default_rng(seed).integers(3, PIECES, (rows, 2 * half), dtype=np.int32)
    tokens[:, [half - 1, -1]] = 1
    segments = np.repeat(np.array([[1, 2]], np.int32), half, axis=1).repeat(rows, axis=0)
    shifted = np.roll(tokens, 1, axis=1)
    shifted[:, [0, half]] = 0
    pad = lambda a: np.pad(a, ((0, 0), (0, length - 2 * half)))
    return t5.Batch(pad(tokens), pad(tokens), pad(segments), pad(segments), pad(shifted))
