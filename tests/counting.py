"""A Markov pair whose text is known beforehand: the target counts, x then x + 1."""

import jax.numpy as jnp
import numpy as np

from spec_cascades.models.markov import Markov

V = 40
COUNT = Markov(V)


def counting(wrong=(), sure=lambda x: 50):
    """The drafter goes astray where the next would be in `wrong`; sure(x): its logit for what follows x."""
    tables = np.zeros((2, 3, V, V), np.float32)
    for x in range(V):
        tables[0, 0, x, (x + 1) % V] = 50
        tables[1, 0, x, (x + 1 + 20 * ((x + 1) % V in wrong)) % V] = sure(x)
    return {"target": jnp.asarray(tables[0]), "drafter": jnp.asarray(tables[1])}
