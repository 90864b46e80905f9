"""Errors of msgspec and Python while decoding, as DecodeError with a JSON path."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import Any

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.unions import wire_name

__all__ = [
    "DECODING_ERRORS",
    "TOO_DEEP",
    "below",
    "fault_of_code",
    "finish_one",
    "guarded",
    "is_unknown_field",
    "missing_field",
    "to_decode_error",
]

# Errors while decoding: not JSON or another shape, not UTF-8, nested too deeply, a fault with its path.
DECODING_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError, DecodeError)

UNKNOWN_FIELD = "Object contains unknown field"
TOO_DEEP = "nested too deeply"
CODE_FAULT = "the code of the model raised"

_KEY = "key` in `"  # before the path of an object whose key has another type

# Faults of the types of numbers (`chainapi.models.schema.Int`).
_OF_NUMBERS = (
    (re.compile(r"`int \| float\b"), "`int"),
    (re.compile(r"`float \| str\b"), "`float"),
    (re.compile(r"`float` (<=|>=) -?1e\+308"), "`int`, got `float`"),
    (re.compile(r"`str` matching regex '\(\?!\)'"), "`float`, got `str`"),
)

_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


def to_decode_error(error: BaseException) -> DecodeError:
    """Convert one of `DECODING_ERRORS` to a DecodeError."""
    match error:
        case DecodeError():
            return error
        case msgspec.ValidationError():
            reason, path = _explained(error)
            return DecodeError(reason, path=path)
        case RecursionError():
            return DecodeError(TOO_DEEP)
        case _:
            # Before msgspec 0.23 it is a UnicodeError.
            text = isinstance(error, UnicodeError) or str(error).startswith("Invalid UTF-8")
            return DecodeError(f"no valid JSON: {'not UTF-8' if text else error}", malformed=True)


def guarded(decode: Callable[[Any], Any], given: Any) -> Any:
    """Call a decoder that runs the code of a model: validators, hooks, defaults.

    The decoder itself is one of msgspec or Pydantic, so that no error of this package is among those that
    become a DecodeError.

    Raises:
        MsgspecError, UnicodeError, RecursionError, DecodeError: as the decoder raises.
        DecodeError: the code of the model raised any other error.

    """
    try:
        return decode(given)
    except (*DECODING_ERRORS, MemoryError):
        raise
    except Exception as error:
        raise DecodeError(fault_of_code(error)) from error


def fault_of_code(error: Exception) -> str:
    """Return the fault of a row for an error of the code of its model, with its place."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    place = f"line {line} of {Path(frame.f_code.co_filename).name}"
    return f"{CODE_FAULT} {type(error).__name__}: {error} ({place})"


def is_unknown_field(error: BaseException) -> bool:
    """Check whether the fault is a field that no record names."""
    return isinstance(error, msgspec.ValidationError) and str(error).startswith(UNKNOWN_FIELD)


def below(place: str, path: str, fault: DecodeError) -> DecodeError:
    """Return the same fault at another JSON path: `path`, below `place`."""
    return fault.changed(path=place + path)


def finish_one(finish: Callable[[list[Any]], list[Any]], value: Any, place: str = "$") -> Any:
    """Make one row; the path of a fault begins with `place`."""
    try:
        return finish([value])[0]
    except DECODING_ERRORS as error:
        fault = to_decode_error(error)
        raise below(place, fault.path.removeprefix("$").removeprefix("[0]"), fault) from None


def missing_field(name: str) -> str:
    """Return the fault of a missing field.

    It suggests the name of the service for a name in Python's style.
    """
    wire = wire_name(name)
    if wire == name:
        return "missing"
    return f"missing (the service writes {wire!r}: give the field of the model that name, or that alias)"


def _explained(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the fault that msgspec found, and its JSON path."""
    reason, _, place = str(error).partition(" - at `")
    if place.startswith(_KEY):
        reason, place = f"{reason} as a key", place.removeprefix(_KEY)
    path = place.rstrip("`") or "$"
    if missing := _MISSING.fullmatch(reason):
        return missing_field(missing["field"]), f"{path}.{missing['field']}"
    for found, meant in _OF_NUMBERS:
        reason = found.sub(meant, reason)
    return reason, path
