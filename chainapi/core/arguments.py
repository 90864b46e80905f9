"""Checks of arguments: numbers, seconds, choices, names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

from chainapi._text import did_you_mean, quoted
from chainapi.core.numbers import is_number, is_whole
from chainapi.errors import ArgumentError, ConfigurationError

__all__ = [
    "boolean",
    "function",
    "mapping_of",
    "one_of",
    "refuse_unknown",
    "seconds_of",
    "tag_of",
    "whole_number",
    "whole_numbers",
]

T = TypeVar("T")

LONGEST_TAG = 64  # characters
_LONGEST = 1e9  # seconds, some thirty years: more is a mistake, and no timer takes it


def whole_number(name: str, value: object, least: int | None = 1, most: int | None = None) -> int:
    """Return an argument that is a whole number within bounds, both included.

    Raises:
        ArgumentError: it is not.

    """
    if (
        (type(value) is int or is_whole(value))
        and (least is None or least <= value)
        and (most is None or value <= most)
    ):
        return value
    bounds = "" if least is None else f", {least} or more" if most is None else f" from {least} to {most}"
    raise ArgumentError(f"{name}={quoted(value)} must be a whole number{bounds}")


def whole_numbers(**given: object) -> None:
    """Check arguments that are whole numbers above 0, or None.

    Raises:
        ArgumentError: one is not.

    """
    for name, value in given.items():
        if value is not None:
            whole_number(name, value)


def seconds_of(name: str, value: object, *, zero: bool = False) -> float:
    """Return an argument that is a number of seconds.

    Raises:
        ArgumentError: it is not a finite number, or it is negative, or 0 where `zero` is not allowed.

    """
    if not is_number(value) or not (0 <= value <= _LONGEST) or (value == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise ArgumentError(f"{name}={quoted(value)} must be a finite number of seconds, {least}")
    return float(value)


def tag_of(value: object) -> str:
    """Return the argument ``tag=``.

    Raises:
        ArgumentError: it is not a string of at most 64 printable characters.

    """
    if not isinstance(value, str) or len(value) > LONGEST_TAG or not value.isprintable():
        raise ArgumentError(
            f"tag={quoted(value)} must be a string of at most {LONGEST_TAG} printable characters"
        )
    return value


def boolean(name: str, value: object) -> bool:
    """Return an argument that is True or False.

    Raises:
        ArgumentError: it is something else, such as 1.

    """
    if type(value) is not bool:
        raise ArgumentError(f"{name}={quoted(value)} must be True or False")
    return value


def one_of(name: str, value: T, choices: Iterable[T]) -> T:
    """Return an argument that is one of several values.

    Raises:
        ArgumentError: it is not.

    """
    choices = tuple(choices)
    if value not in choices:
        raise ArgumentError(f"{name}={quoted(value)} must be {' or '.join(map(repr, choices))}")
    return value


def function(name: str, value: T) -> T:
    """Return an argument that can be called.

    Raises:
        ArgumentError: it cannot.

    """
    if not callable(value):
        raise ArgumentError(f"{name}={quoted(value)} must be callable")
    return value


def mapping_of(name: str, value: Mapping[str, T] | None) -> Mapping[str, T]:
    """Return an argument that is a mapping with strings as keys.

    None is an empty one.

    Raises:
        ArgumentError: it is not; its content, which may be a secret, is in no message.

    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentError(f"{name}= must be a mapping, such as a dict, not {type(value).__name__!r}")
    if not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"{name}= must have strings as keys")
    return value


def refuse_unknown(
    unknown: Iterable[str],
    known: Iterable[str],
    what: str,
    given: MutableMapping[str, Any] | None = None,
    advice: Mapping[str, str] | None = None,
) -> None:
    """Refuse keyword arguments that do not exist, and suggest the right name.

    `advice` says what to do about some names, instead of the name that is most like them.

    `given` is emptied first: it has their values, and a misspelt ``api_kye=`` would leave the key among the
    variables that a traceback shows.

    Raises:
        ConfigurationError: there is one.

    """
    names = sorted(known)
    for name in tuple(unknown):
        if given is not None:
            given.clear()
        hint = (advice or {}).get(name) or did_you_mean(name, names, f"it takes {', '.join(names)}")
        raise ConfigurationError(f"{what} got an unknown argument {name!r}; {hint}")
