"""How models, caches and rows lie on the devices of a mesh: a table a family, and what puts arrays there."""

from spec_cascades.sharding.layout import Layout, of

__all__ = ["Layout", "of"]
