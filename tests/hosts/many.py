"""Several processes of a run as threads of this one: who is who, and the collective by which they speak."""

import threading

import numpy as np
import pytest
from jax.experimental import multihost_utils

from spec_cascades.hosts import gathering


class Many:
    """`n` of them; `all` runs a function in each and returns what each returned or raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.n, self._mine = n, threading.local()
        self._barrier, self._said = threading.Barrier(n), [None] * n
        monkeypatch.setattr(gathering, "place", lambda: (self._mine.index, n))
        monkeypatch.setattr(multihost_utils, "process_allgather", self._allgather)

    def all(self, work) -> list:
        """work(i) in each; one that raises SystemExit is gone, and the others' collectives fail."""
        found = [None] * self.n

        def one(i: int) -> None:
            self._mine.index = i
            try:
                found[i] = work(i)
            except Exception as error:
                found[i] = error
            except SystemExit as left:
                found[i] = left
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(i,)) for i in range(self.n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._barrier.reset()
        return found

    def _allgather(self, array):
        self._said[self._mine.index] = array
        self._barrier.wait()
        found = np.stack(self._said)
        self._barrier.wait()
        return found
