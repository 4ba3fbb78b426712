"""The law of an answer's first tokens, enumerated over the likely prefixes; all else in pooled cells."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import numpy as np

OTHER = -1
"""In a cell's path: any token that has no cell of its own behind this prefix, and whatever follows it."""

Path = tuple[int, ...]
Laws = Callable[[list[Path]], list[np.ndarray]]
"""The law pi [v] of the next token behind each of some prefixes."""


class Cells(NamedTuple):
    """law: the cells' probabilities, which sum to one; inner: pi [v] behind each prefix that was followed."""

    law: dict[Path, float]
    inner: dict[Path, np.ndarray]

    def of(self, path: Path) -> Path:
        """The cell of a sampled path."""
        for i in range(1, len(path) + 1):
            if path[:i] in self.law:
                return path[:i]
            if path[:i] not in self.inner:
                return (*path[: i - 1], OTHER)
        raise ValueError(f"{path} ended before its cell: neither an end symbol nor {len(path)} tokens deep")

    def impossible(self, path: Path) -> bool:
        """Whether pi gives a token of the path no mass at all, where its prefix was followed."""
        behind = lambda i: self.inner.get(path[:i])
        return any(behind(i) is not None and behind(i)[token] == 0 for i, token in enumerate(path))


def enumerated(laws: Laws, depth: int, ends: Collection[int], likely: float) -> Cells:
    """The cells of the first `depth` tokens; a prefix of less mass than `likely` is not followed.

    ends: ids that end an answer before.
    """
    law: dict[Path, float] = {}
    inner: dict[Path, np.ndarray] = {}
    front: dict[Path, float] = {(): 1.0}
    for level in range(1, depth + 1):
        behind = laws(list(front)) if front else []
        further: dict[Path, float] = {}
        for (prefix, mass), pi in zip(front.items(), behind, strict=True):
            inner[prefix] = pi = np.asarray(pi, np.float64) / np.sum(pi, dtype=np.float64)
            apart = mass * pi >= likely
            for token in np.flatnonzero(apart).tolist():
                found = law if level == depth or token in ends else further
                found[(*prefix, token)] = mass * pi[token]
            law[(*prefix, OTHER)] = float(mass * pi[~apart].sum())
        front = further
    return Cells(law, inner)


def counts(cells: Cells, paths: Iterable[Path]) -> Counter[Path]:
    """How many sampled paths fell into each cell."""
    return Counter(map(cells.of, paths))
