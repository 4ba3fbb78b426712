"""What a checkpoint format must know of a model family: one file a family, one line in `FAMILIES`."""

from spec_cascades.checkpoints.families import gemma, llama, t5
from spec_cascades.checkpoints.families.base import Family

FAMILIES: dict[str, Family] = {
    model_type: family
    for family in (t5.FAMILY, gemma.FAMILY, llama.FAMILY)
    for model_type in (family.model_type, *family.other_types)
}


def by_model_type(model_type: object) -> Family:
    """The family that config.json's `model_type` names; ValueError with the choices otherwise."""
    if model_type not in FAMILIES:
        raise ValueError(f"model_type {model_type!r} is not one of {sorted(FAMILIES)}")
    return FAMILIES[model_type]


def by_config(config: object) -> Family:
    """The family a Config belongs to; ValueError with the choices otherwise."""
    for family in FAMILIES.values():
        if isinstance(config, family.config):
            return family
    raise ValueError(f"{type(config).__name__} is no Config of {sorted(FAMILIES)}")
