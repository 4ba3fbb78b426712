"""From a file and key=value overrides to plain data, and from plain data to a dataclass. Imports no jax."""

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from spec_cascades.checks import ConfigError, nearest

ALIASES = {name: "gamma" for name in ("num_speculative_tokens", "num_assistant_tokens", "draft_max")}
PLAIN = (int, float, str, bool, type(None))
PART = "part"
"""Key of a field's metadata: the dataclass of which its plain data fill some keys."""

T = TypeVar("T")


def read(path: str | Path | None, overrides: list[str] | tuple[str, ...], cls: type) -> dict[str, Any]:
    """A YAML or gin file as nested plain data that fill `cls`, the overrides applied; or these alone.

    Raises ConfigError for a file that is absent or no mapping, and for an override that cannot be applied.
    """
    raw = OmegaConf.create({} if path is None else _file(Path(path), cls))
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
        return _with_mesh(OmegaConf.to_container(raw, resolve=True), cls)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from None


def _with_mesh(raw: dict[str, Any], cls: type) -> dict[str, Any]:
    """`mesh` at the top as what it is short for, where `cls` has models and no mesh of its own."""
    names = {f.name for f in fields(cls)}
    if "mesh" not in raw or "mesh" in names or "models" not in names:
        return raw
    rest = {key: value for key, value in raw.items() if key != "mesh"}
    return over(rest, {"models": {"mesh": raw["mesh"]}})


def build(cls: type[T], raw: Any, where: str = "") -> T:
    """The dataclass `cls` from nested plain data, with types checked; `where` prefixes keys in errors."""
    raw, hints = known(cls, raw, where), _hints(cls)
    nested = {key: found for key, hint in hints.items() if (found := _dataclass_of(hint, raw, key))}
    inner = {key: build(nested[key], raw[key], f"{where}{key}.") for key in raw if key in nested}
    leaves = {key: value for key, value in raw.items() if key not in inner}
    exact = {key for key, value in leaves.items() if _exact(hints[key], value)}
    typed = leaves | _typed(cls, {key: leaves[key] for key in leaves.keys() - exact}, where)
    try:
        return cls(**inner, **typed)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _typed(cls: type, leaves: dict[str, Any], where: str) -> dict[str, Any]:
    """Values as their fields' types want them: 1 as 1.0, "inf" as a number. Raises ConfigError."""
    if not leaves:
        return {}
    try:
        merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(cls), leaves))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or ""
        raise ConfigError(f"{where}{key}: {_first_line(error)}") from None
    return {key: merged[key] for key in leaves}


_hints = cache(get_type_hints)


def _exact(hint: Any, value: Any) -> bool:
    """Whether a value is of its field's type already, as nearly all are: a sweep has many points."""
    if isinstance(value, dict):
        return get_origin(hint) is dict and not value
    if isinstance(value, list):
        return get_origin(hint) is list and all(type(x) is get_args(hint)[0] for x in value)
    choices = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return type(value) in PLAIN and type(value) in choices


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
    required = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    missing = [where + name for name in required if name not in raw]
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


def _file(path: Path, cls: type) -> dict[str, Any]:
    """A file's own data: aliases replaced, and a task's name made a mapping."""
    if not path.is_file():
        raise ConfigError(f"no configuration file {str(path)!r}")
    if path.suffix == ".gin":
        from spec_cascades import gin_files

        return _plain(gin_files.read(path, cls))
    return _yaml(path, ())


def _yaml(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A YAML file over the one that its key `include` names, relative to it; lists replace lists."""
    try:
        raw = OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not OmegaConf.is_dict(raw):
        raise ConfigError(f"{path}: expected a mapping of keys to values at the top")
    own = _plain(OmegaConf.to_container(raw))
    if "include" not in own:
        return own
    base = path.parent / str(own.pop("include"))
    if not base.is_file() or base.resolve() in (*above, path.resolve()):
        raise ConfigError(f"{path}: include: {str(base)!r} is no file, or includes this one")
    return over(_yaml(base, (*above, path.resolve())), own)


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one: the second's values where both have one, mappings joined."""
    joined = {
        key: over(below[key], value)
        if isinstance(value, dict) and isinstance(below.get(key), dict)
        else value
        for key, value in above.items()
    }
    return below | joined


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    if isinstance(raw.get("task"), str):
        raw = raw | {"task": {"name": raw["task"]}}
    return renamed(raw)


def _parse(value: str) -> Any:
    return OmegaConf.from_dotlist([f"v={value}"]).v


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
