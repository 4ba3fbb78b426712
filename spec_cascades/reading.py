"""From a file and key=value overrides to plain data, and from plain data to a dataclass. Imports no jax."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from spec_cascades.checks import ConfigError, nearest

ALIASES = {name: "gamma" for name in ("num_speculative_tokens", "num_assistant_tokens", "draft_max")}

T = TypeVar("T")


def read(path: str | Path | None, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    """A YAML file as nested plain data, the overrides applied; without a file the overrides alone.

    Raises ConfigError for a file that is absent or no mapping, and for an override that cannot be applied.
    """
    raw = OmegaConf.create({}) if path is None else _read_yaml(Path(path))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"override {override!r} is not of the form key=value")
        try:
            short = key == "task" and not value.lstrip().startswith("{")
            OmegaConf.update(raw, "task.name" if short else canonical(key), _parse(value), merge=True)
        except (OmegaConfBaseException, yaml.YAMLError, TypeError) as error:
            raise ConfigError(f"override {override!r}: {_first_line(error)}") from None
    try:
        return OmegaConf.to_container(raw, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from None


def build(cls: type[T], raw: Any, where: str = "") -> T:
    """The dataclass `cls` from nested plain data, with types checked; `where` prefixes keys in errors."""
    raw = known(cls, raw, where)
    nested = {
        key: found for key, hint in get_type_hints(cls).items() if (found := _dataclass_of(hint, raw, key))
    }
    inner = {key: build(nested[key], raw[key], f"{where}{key}.") for key in raw if key in nested}
    leaves = {key: value for key, value in raw.items() if key not in inner}
    try:
        typed = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(cls), leaves))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or ""
        raise ConfigError(f"{where}{key}: {_first_line(error)}") from None
    try:
        return cls(**inner, **{key: typed[key] for key in leaves})
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _dataclass_of(hint: Any, raw: dict[str, Any], key: str) -> type | None:
    """The dataclass that the value of `key` fills: its type, or of `X | None` X unless null is given."""
    if is_dataclass(hint):
        return hint
    if raw.get(key) is None:
        return None
    return next((choice for choice in get_args(hint) if is_dataclass(choice)), None)


def known(cls: type, raw: Any, where: str) -> dict[str, Any]:
    """`raw`, once every key is known and every required one is there."""
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{where.rstrip('.') or 'the configuration'}: {raw!r} is not a mapping of keys to values"
        )
    names = tuple(f.name for f in fields(cls))
    for key in raw:
        if key not in names:
            raise ConfigError(
                f"unknown key {where + str(key)!r}{nearest(str(key), names)}; the keys: {', '.join(names)}"
            )
    defaults = OmegaConf.structured(cls)
    missing = [where + name for name in names if name not in raw and OmegaConf.is_missing(defaults, name)]
    if missing:
        raise ConfigError(f"missing: {', '.join(missing)}")
    return raw


def canonical(key: str) -> str:
    return ".".join(ALIASES.get(part, part) for part in key.split("."))


def renamed(raw: Any) -> Any:
    """`raw` with aliases replaced by the names they stand for, at every depth."""
    if isinstance(raw, list):
        return [renamed(value) for value in raw]
    if not isinstance(raw, dict):
        return raw
    names = [ALIASES.get(key, key) for key in raw]
    for key, name in zip(raw, names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{key!r} and another key of its mapping both mean {name!r}: give one of them")
    return {name: renamed(value) for name, value in zip(names, raw.values(), strict=True)}


def _read_yaml(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"no configuration file {str(path)!r}")
    try:
        raw = OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not OmegaConf.is_dict(raw):
        raise ConfigError(f"{path}: expected a mapping of keys to values at the top")
    if isinstance(raw.get("task"), str):
        raw.task = {"name": raw.task}
    return OmegaConf.create(renamed(OmegaConf.to_container(raw)))


def _parse(value: str) -> Any:
    return OmegaConf.from_dotlist([f"v={value}"]).v


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
