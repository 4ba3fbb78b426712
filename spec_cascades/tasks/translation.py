"""Parallel text in a TSV (source<TAB>reference) as a seqio task that joins one to `join` pairs an example."""

from pathlib import Path
from typing import Any

import numpy as np


def read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """The pairs of a two-column TSV; ValueError names a line that has not two columns, or an empty file."""
    pairs = []
    text = Path(path).read_text(encoding="utf-8").removesuffix("\n")
    # Not splitlines(): sentences may hold characters that it takes for the end of a line.
    for number, line in enumerate(text.split("\n") if text else [], 1):
        columns = line.split("\t")
        if len(columns) != 2 or not all(columns):
            raise ValueError(
                f"{path}:{number}: {len(columns)} columns where 'source<TAB>reference' was expected"
            )
        pairs.append((columns[0], columns[1]))
    if not pairs:
        raise ValueError(f"{path}: no line 'source<TAB>reference'")
    return pairs


def join_pairs(pairs: list[tuple[str, str]], join: int, seed: int | None) -> list[tuple[str, str]]:
    """Each pair once, one to `join` (uniform) consecutive ones joined by a space, in `seed`'s order.

    Single sentences are too short for speculation to have something to do. seed None keeps the file's order
    and joins exactly `join` pairs, which is what an evaluation wants.
    """
    rng = np.random.default_rng(seed)
    order = np.arange(len(pairs)) if seed is None else rng.permutation(len(pairs))
    joined, at = [], 0
    while at < len(order):
        size = join if seed is None else int(rng.integers(1, join + 1))
        group = [pairs[i] for i in order[at : at + size]]
        joined.append((" ".join(s for s, _ in group), " ".join(t for _, t in group)))
        at += size
    return joined


def register(name: str, files: dict[str, str], vocabulary: str, join: int = 1) -> Any:
    """Adds the task `name` to seqio's TaskRegistry and returns it: features inputs and targets, EOS appended.

    files: split -> TSV; vocabulary: a SentencePiece model. The training split is shuffled and joined anew for
    every seed; other splits keep the file's order and single pairs. Needs the extra [data].
    """
    import seqio
    import tensorflow as tf

    def examples(split: str, shuffle_files: bool, seed: int | None = None) -> Any:
        pairs = read_pairs(files[split])
        chosen = join_pairs(pairs, join, seed or 0) if split == "train" and shuffle_files else pairs
        sources, references = zip(*chosen, strict=True)
        return tf.data.Dataset.from_tensor_slices({"inputs": list(sources), "targets": list(references)})

    vocab = seqio.SentencePieceVocabulary(vocabulary, extra_ids=0)
    feature = seqio.Feature(vocabulary=vocab, add_eos=True)
    seqio.TaskRegistry.remove(name) if name in seqio.TaskRegistry.names() else None
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(dataset_fn=examples, splits=tuple(files)),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[_bleu],
    )


def _bleu(targets: list[str], predictions: list[str]) -> dict[str, float]:
    import sacrebleu

    return {"bleu": sacrebleu.corpus_bleu(predictions, [targets]).score}
