"""What every configuration says of a value it cannot take. Imports nothing of ours."""

import difflib
from typing import Any


class ConfigError(ValueError):
    """A configuration that cannot be run; the text names the key, the value and the choices."""


def choose(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ConfigError unless `value` is one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{key}: {value!r} is not one of {', '.join(choices)}{nearest(value, choices)}")


def require(key: str, value: Any, fits: bool, bounds: str) -> None:
    """Raises ConfigError "key: value must be `bounds`" unless it fits."""
    if not fits:
        raise ConfigError(f"{key}: {value!r} must be {bounds}")


def nearest(word: str, choices: tuple[str, ...]) -> str:
    """', did you mean ...?' when a choice is close to the word, else ''."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
