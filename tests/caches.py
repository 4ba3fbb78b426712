"""What two caches of one text must have in common."""

import numpy as np

from spec_cascades.models.rings import Ring


def same(got, whole, window=4, atol=2e-5):
    """Every row's entries up to its length, in a ring those that a query to come may see."""
    for a, b in zip(got.layers, whole.layers, strict=True):
        for x, y in zip(*(pair if isinstance(pair, tuple) else (pair,) for pair in (a, b)), strict=True):
            for row, n in enumerate(np.asarray(got.length)):
                at = np.arange(max(0, n - window + 1) if isinstance(a, Ring) else 0, n)
                slots = at % x.shape[2] if isinstance(a, Ring) else at
                np.testing.assert_allclose(x[row][:, slots], y[row][:, at], atol=atol)
