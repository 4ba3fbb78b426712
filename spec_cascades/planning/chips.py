"""Stated peaks of the chips that a plan knows, each with where it is stated."""

from typing import NamedTuple

from spec_cascades.checks import ConfigError, nearest
from spec_cascades.reproduce import Chip as Peaks

GIB = 2**30


class Chip(NamedTuple):
    """One chip, in bytes, bytes per second and operations per second.

    flops: dense, in bfloat16; int8_ops: dense; ring: bytes per second that an all-reduce over a ring of chips
    moves out of each, both directions of one axis; either None where not stated; sources: what states the
    figures.
    """

    name: str
    flops: float
    int8_ops: float | None
    memory: float
    bandwidth: float
    ring: float | None
    sources: tuple[str, ...]
    note: str = ""


TPU = "https://docs.cloud.google.com/tpu/docs/"
RING = "ring: two links of one axis, of the bidirectional interconnect bandwidth of all axes"

CHIPS = {
    chip.name: chip
    for chip in (
        # 400 GB/s in both directions over two axes: 100 GB/s out of a chip along one of them.
        Chip("v5e", 197e12, 393e12, 16 * GIB, 819e9, 100e9, (TPU + "v5e",), RING),
        # 1,200 GB/s in both directions over three axes.
        Chip(
            *("v5p", 459e12, 459e12, 95 * GIB, 2765e9, 200e9),
            sources=(TPU + "v5p-training",),
            note=f"{RING}; no int8 peak is stated there: that of 8-bit floats is taken",
        ),
        # 800 GB/s in both directions over two axes.
        Chip("v6e", 918e12, 1836e12, 32e9, 1600e9, 200e9, (TPU + "v6e",), RING),
        Chip(
            *("h100", 989.4e12, 1978.9e12, 80e9, 3350e9, 450e9),
            sources=(
                "https://glennklockwood.com/garden/processors/h100",
                "https://archive-lib.hpctech.co.jp/gpuproduct/nvidia-h100.html",
            ),
            note="SXM; peaks without sparsity; ring: half of NVLink's 900 GB/s, which counts both directions",
        ),
        Chip(
            *("h200", 989.4e12, 1978.9e12, 141e9, 4800e9, 450e9),
            sources=(
                "https://raw.githubusercontent.com/mlcommons/inference_results_v4.1/main/closed/NVIDIA/"
                "systems/H200-SXM-141GBx8_TRT_MaxQ.json",
                "https://www.aiminingco.com/gpu/h200/specs",
                "https://glennklockwood.com/garden/processors/h100",
            ),
            note="SXM; H100's arithmetic, from the last source; ring as h100",
        ),
    )
}


def named(name: str) -> Chip:
    """The chip of a name. Raises ConfigError for an unknown one."""
    if name not in CHIPS:
        choices = (*CHIPS, "cpu")
        raise ConfigError(
            f"chip: {name!r} is no file and not one of {', '.join(choices)}{nearest(name, choices)}"
        )
    return CHIPS[name]


def stated(peaks: Peaks) -> Chip:
    """The chip of an experiment, which states neither int8 arithmetic nor an interconnect."""
    flops, bandwidth = peaks.tflops * 1e12, peaks.gb_per_second * 1e9
    sources = ("as the configuration states them",)
    return Chip(peaks.name, flops, None, peaks.memory_gb * 1e9, bandwidth, None, sources)
