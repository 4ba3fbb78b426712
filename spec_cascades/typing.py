"""The axis alphabet of every signature in the package.

b rows, s prompt, t tokens in one call, g drafts of a block, v vocabulary, l cache capacity,
n layers, h key/value heads, d head dimension. A width of g+1 is written w.
"""

from typing import Any

from jax import Array
from jaxtyping import Bool, Float, Int, Num, PRNGKeyArray, UInt32

Params = Any

__all__ = ["Array", "Bool", "Float", "Int", "Num", "PRNGKeyArray", "Params", "UInt32"]
