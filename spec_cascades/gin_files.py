"""Gin files in the schema of the dataclasses: bindings, macros and includes; nothing in them is executed.

The parser is gin-config's own; its registry of functions is not used. A binding names a dataclass and a field
(`Sweep.repeats = 3`), and a dataclass inside another goes by its own name (`Decoding.gamma = 5` is a sweep's
`base.gamma`). Macros are looked up when all is read: a file may set anew what one it includes has set.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, get_args, get_type_hints

from spec_cascades.checks import ConfigError, nearest
from spec_cascades.reading import ALIASES, PART


class Macro(NamedTuple):
    """%NAME, not yet looked up."""

    name: str


class Reference(NamedTuple):
    """@NAME or @NAME()."""

    name: str


def read(path: Path, cls: type) -> dict[str, Any]:
    """What a gin file binds, as the nested plain data that fill `cls`.

    Raises ConfigError, naming file and line: no gin at all, unknown names, macros without a value or made of
    themselves, a scope, an import, a reference to anything but a dataclass in its own place.
    """
    bound, macros = _bound(path, places(cls), ())
    found: dict[str, Any] = {}
    for (*above, key), value in bound.items():
        inside = found
        for name in above:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                raise ConfigError(f"{path}: {name} is {inside!r} as a whole, and {key} is bound inside it")
        inside[key] = _filled(value, macros, ())
    return found


def places(cls: type, where: tuple[str, ...] = ()) -> dict[str, tuple[type, tuple[str, ...]]]:
    """The dataclasses that `cls` is made of, itself included, by name: each with the keys that lead to it."""
    found = {cls.__name__: (cls, where)}
    hints = get_type_hints(cls)
    for field in fields(cls):
        choices = (field.metadata.get(PART), hints[field.name], *get_args(hints[field.name]))
        inner = next((c for c in choices if is_dataclass(c)), None)
        if inner is not None:
            found |= places(inner, (*where, field.name))
    return found


def _bound(path: Path, known: dict[str, Any], above: tuple[Path, ...]) -> tuple[dict, dict]:
    """(keys that lead to a field -> value, macro -> value) of a file and those it includes, in order."""
    if path.resolve() in above:
        raise ConfigError(f"{path}: includes itself")
    bound, macros = {}, {}
    for statement in _statements(path):
        where, kind = f"{path}:{statement.location.line_num}", type(statement).__name__
        if kind == "IncludeStatement":
            inner = _bound(_included(statement.filename, path, where), known, (*above, path.resolve()))
            bound, macros = bound | inner[0], macros | inner[1]
        elif kind == "ImportStatement":
            raise ConfigError(f"{where}: nothing is imported here; bind {', '.join(known)} or a macro")
        elif statement.scope:
            raise ConfigError(f"{where}: the scope {statement.scope!r} has no meaning here; leave it out")
        elif kind == "BlockDeclaration":
            _class(statement.selector, known, where)
        elif statement.arg_name:
            keys = _keys(statement.selector, statement.arg_name, known, where)
            _place(bound, keys, statement.value, known, where)
        else:
            macros[statement.selector] = statement.value
    return bound, macros


def _place(bound: dict, keys: tuple[str, ...], value: Any, known: dict[str, Any], where: str) -> None:
    """`Sweep.task = @Task()` says what is so anyway; any other value is put in its place."""
    if isinstance(value, Reference):
        if known.get(value.name, (None, None))[1] != keys:
            raise ConfigError(f"{where}: @{value.name} is none of the dataclasses in its own place")
        return
    bound.pop(keys, None)  # the order is that of the last word
    bound[keys] = value


def _keys(name: str, key: str, known: dict[str, Any], where: str) -> tuple[str, ...]:
    cls, above = _class(name, known, where)
    names = tuple(f.name for f in fields(cls))
    if ALIASES.get(key, key) not in names:
        raise ConfigError(
            f"{where}: unknown key {name + '.' + key!r}{nearest(key, names)}; the keys: {', '.join(names)}"
        )
    return (*above, ALIASES.get(key, key))


def _class(name: str, known: dict[str, Any], where: str) -> tuple[type, tuple[str, ...]]:
    if name not in known:
        names = tuple(known)
        raise ConfigError(f"{where}: unknown name {name!r}{nearest(name, names)}; one of {', '.join(names)}")
    return known[name]


def _included(name: str, path: Path, where: str) -> Path:
    """Relative to the file that includes it."""
    found = path.parent / name
    if not found.is_file():
        raise ConfigError(f"{where}: no file {str(found)!r} to include")
    return found


def _filled(value: Any, macros: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """The value with every macro, at any depth, replaced by what it stands for; tuples become lists."""
    if isinstance(value, Macro):
        if value.name not in macros:
            raise ConfigError(f"macro %{value.name} has no value{nearest(value.name, tuple(macros))}")
        if value.name in inside:
            raise ConfigError(f"macro %{value.name} is made of itself")
        return _filled(macros[value.name], macros, (*inside, value.name))
    if isinstance(value, Reference):
        raise ConfigError(f"@{value.name}: a reference is no value here; bind {value.name}'s own keys")
    if isinstance(value, dict):
        return {_filled(k, macros, inside): _filled(v, macros, inside) for k, v in value.items()}
    return [_filled(v, macros, inside) for v in value] if isinstance(value, list | tuple) else value


def _statements(path: Path) -> Iterator[Any]:
    """gin's own statements of a file."""
    try:
        from gin.config_parser import ConfigParser, ParserDelegate
    except ModuleNotFoundError:
        raise ConfigError(f"{path}: a gin file needs gin-config (pip install 'spec-cascades[gin]')") from None

    class Marks(ParserDelegate):
        def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
            return Reference(scoped_configurable_name)

        def macro(self, macro_name: str) -> Macro:
            return Macro(macro_name)

    try:
        yield from ConfigParser(path.read_text(encoding="utf-8"), Marks())
    except (SyntaxError, TokenError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not gin: {_told(error)}") from None


def _told(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    text = str(error.args[0] if error.args else error).splitlines()[0]
    return text + (f" (line {line})" if line else "")
