"""Gemma 1, 2 and 3 (text): a decoder in blocks of any length against a per-row cache.

Gemma Team, arXiv 2403.08295, 2408.00118, 2503.19786. The parameter tree is the official one
(`layer_0/attn/q_einsum/w`), which `serving` flattens to 2-D kernels: a float32 step on a CPU is 2.4 times as
fast with them. The residual stream, norms, softmaxes and rotations are float32 whatever the weights are.
"""

from spec_cascades.models.gemma.blocks import forward
from spec_cascades.models.gemma.config import PRESETS, Config
from spec_cascades.models.gemma.decoding import Gemma
from spec_cascades.models.gemma.params import STACKED, init, serving, shapes_of, stack

__all__ = ["PRESETS", "STACKED", "Config", "Gemma", "forward", "init", "serving", "shapes_of", "stack"]
