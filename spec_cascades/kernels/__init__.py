"""Pallas kernels for TPUs, each beside a plain reference that it equals."""
