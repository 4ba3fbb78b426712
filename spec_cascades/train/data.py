"""Packed batches of a seqio task, from any step on: a killed run sees the rows it would have seen."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from spec_cascades.models.t5 import Batch

FIELDS = {
    "inputs": "encoder_input_tokens",
    "targets": "decoder_target_tokens",
    "input_segments": "encoder_segment_ids",
    "target_segments": "decoder_segment_ids",
    "decoder_inputs": "decoder_input_tokens",
}


def epoch(task: Any, split: str, lengths: tuple[int, int], rows: int, seed: int | None) -> Iterator[Batch]:
    """One pass over a split as numpy batches of `rows` packed rows; shuffled iff a seed is given.

    lengths: tokens of a packed encoder and decoder row. An incomplete last batch is dropped from training and
    filled with padding otherwise, so that an evaluation counts every example.
    """
    import seqio
    import tensorflow as tf

    sequence = {"inputs": lengths[0], "targets": lengths[1]}
    shuffle = seed is not None
    with tf.device("cpu"):
        data = task.get_dataset(sequence, split=split, shuffle=shuffle, seed=seed, num_epochs=1)
        data = seqio.EncDecFeatureConverter(pack=True)(data, task_feature_lengths=sequence)
        data = data.batch(rows, drop_remainder=shuffle)
        for batch in data.prefetch(4).as_numpy_iterator():
            arrays = {ours: batch[theirs].astype(np.int32) for ours, theirs in FIELDS.items()}
            pad = lambda a: np.pad(a, ((0, rows - a.shape[0]), (0, 0)))
            yield Batch(**{name: pad(a) for name, a in arrays.items()})


def batches(task: Any, lengths: tuple[int, int], rows: int, seed: int, start: int) -> Iterator[Batch]:
    """Endless training batches from number `start` on; epoch e is drawn from (seed, e) alone.

    Raises ValueError where the split does not fill one batch.
    """
    number = passed = 0
    while True:
        seeds = np.random.SeedSequence([seed, number]).generate_state(1) >> 1
        before = passed
        for batch in epoch(task, "train", lengths, rows, int(seeds[0])):
            if passed >= start:
                yield batch
            passed += 1
        if passed == before:
            raise ValueError(
                f"data.train does not fill one batch of {rows} rows: give more pairs or fewer rows"
            )
        number += 1
