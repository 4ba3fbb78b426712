"""A key that is consumed twice is an error in every test of decoding."""

import jax
import pytest


@pytest.fixture(autouse=True)
def no_key_serves_twice():
    """Turns on jax's check of key reuse."""
    before = jax.config.jax_debug_key_reuse
    jax.config.update("jax_debug_key_reuse", True)
    yield
    jax.config.update("jax_debug_key_reuse", before)
