"""Parameters of routes: their types for users, and their values in requests.

The annotation of a parameter has the bounds of a number, the values of a string, and a name in the request
that does not follow from the name in Python. Values are checked before a request is sent.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, TypeAlias

from msgspec import Struct

from chainapi._http.query import path_segment, query_params
from chainapi._text import did_you_mean, quoted
from chainapi.core.numbers import is_of
from chainapi.errors import ArgumentError, ConfigurationError
from chainapi.models.decode_errors import TOO_DEEP
from chainapi.models.plain import to_wire
from chainapi.models.schema import Type, type_of
from chainapi.models.unions import wire_name

__all__ = [
    "REPEATED",
    "WHOLE_BODY",
    "Bounds",
    "ChainId",
    "PageSize",
    "Parameter",
    "Texts",
    "Timestamp",
    "Wire",
    "wire_body",
    "wire_parameters",
]


class Bounds(Struct, frozen=True):
    """Bounds of a number: the least and the greatest value, both included."""

    least: float
    most: float | None = None

    def __str__(self) -> str:
        return f"from {self.least} on" if self.most is None else f"from {self.least} to {self.most}"

    def hold(self, number: float) -> bool:
        """Check whether a number lies within."""
        return self.least <= number and (self.most is None or number <= self.most)


class Wire(Struct, frozen=True):
    """Name in the request that does not follow from the name in Python."""

    name: str


REPEATED = (
    "repeated"  # note of a list whose entries are sent as parameters of their own; in a body, as a list
)
WHOLE_BODY = "whole body"  # note of a record that is the whole body of a request

MILLISECONDS = 300_000_000_000  # more than the seconds of the last datetime
_PLAIN = frozenset({bool, int, float, str})  # of nearly all values: they are sent as they are

ChainId: TypeAlias = int | str  # a number, or the name of a chain in the service
Timestamp: TypeAlias = Annotated[int | datetime, Bounds(0)]  # Unix seconds, or an aware datetime
Texts: TypeAlias = Sequence[str] | str  # sent with commas between them
PageSize: TypeAlias = Annotated[int, Bounds(1, 100)]


class Parameter(Struct, frozen=True):
    """Parameter of a route.

    Attributes:
        name: its name in Python.
        wire: its name in the request.
        kinds: classes of its values; a datetime is sent as Unix seconds.
        in_path: whether it is a segment of the path.
        in_body: whether it is a field of the body, or all of it.
        whole: whether it is all of the body.
        union: union of records that its values belong to; None for plain values.
        required: whether a call has to pass it.
        default: value that is sent by default; None if none is.
        bounds: of a number, or None.
        choices: values that the service lists; empty if it lists none.
        many: whether a list of such values is accepted.
        repeated: whether the entries of a list are sent one by one.

    """

    name: str
    wire: str
    kinds: tuple[type, ...]
    in_path: bool
    required: bool
    default: Any = None
    bounds: Bounds | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    repeated: bool = False
    in_body: bool = False
    whole: bool = False
    union: Any = None

    @classmethod
    def read(cls, declared: inspect.Parameter, hint: Any, path: str, body: Sequence[str] = ()) -> Parameter:
        """Read a parameter of a route from its declaration and its annotation.

        `body` has the names on the wire of the fields of the body.
        """
        parts = [*type_of(hint).parts()]
        notes = [note for part in parts for note in part.notes]
        named = (note.name for note in notes if isinstance(note, Wire))
        wire = next(named, wire_name(declared.name.removesuffix("_")))
        required = declared.default is declared.empty
        return cls(
            name=declared.name,
            wire=wire,
            kinds=tuple(dict.fromkeys(kind for part in parts for kind in _classes(part))),
            in_path=f"{{{wire}}}" in path,
            required=required,
            default=None if required else declared.default,
            bounds=next((note for note in notes if isinstance(note, Bounds)), None),
            choices=tuple(value for part in parts if part.kind == "literal" for value in part.choices),
            many=any(part.kind == "list" for part in parts),
            repeated=REPEATED in notes,
            in_body=wire in body or WHOLE_BODY in notes,
            whole=WHOLE_BODY in notes,
            union=next((part.hint for part in parts if part.tags), None),
        )

    def checked(self, value: Any) -> Any:
        """Return a value as it is sent.

        Raises:
            ArgumentError: the route does not accept it.

        """
        if self.many and isinstance(value, list | tuple | set | frozenset):
            entries = value if isinstance(value, list | tuple) else sorted(value)
            return [self._checked(entry) for entry in entries]
        return self._checked(value)

    def _checked(self, given: Any) -> Any:
        value = given if type(given) in _PLAIN else self._plain(given)
        if self.choices:
            self._check_choice(value)
        elif not is_of(value, self.kinds):
            wanted = " or ".join(kind.__name__ for kind in self.kinds)
            raise ArgumentError(f"{self.name} must be {wanted}, not {type(value).__name__}")
        if self.bounds is not None and not self.bounds.hold(value):
            raise ArgumentError(f"{self.name}={value!r} is not {self.bounds}")
        if datetime in self.kinds and isinstance(value, int) and value >= MILLISECONDS:
            seconds = value // 1000
            raise ArgumentError(f"{self.name}={value} looks like milliseconds: give Unix seconds, {seconds}")
        return value

    def _plain(self, value: Any) -> Any:
        """Return the value of a member of an enumeration, and the Unix time of a datetime."""
        if isinstance(value, datetime) and datetime in self.kinds:
            return self._seconds(value)
        return value.value if isinstance(value, Enum) else value

    def _check_choice(self, value: Any) -> None:
        if value in self.choices:
            return
        hint = did_you_mean(str(value), self.choices, f"it is one of {', '.join(map(repr, self.choices))}")
        raise ArgumentError(f"{self.name}={quoted(str(value))} is not known; {hint}")

    def _seconds(self, value: datetime) -> int:
        if value.tzinfo is None:
            raise ArgumentError(f"{self.name} is a datetime without a time zone")
        return int(value.replace(microsecond=0).timestamp())  # a float rounds the last microsecond up


def _classes(part: Type) -> tuple[type, ...]:
    """Return the classes of the values of one part of an annotation."""
    if part.kind in ("union", "list", "literal"):
        return ()
    return (float, int) if part.kind == "float" else (part.hint,)


def wire_parameters(
    parameters: Sequence[Parameter], given: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return segments of the path by their names on the wire, and query values.

    Raises:
        ArgumentError: a value cannot be sent.

    """
    path: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    starts = dict[str, Any]()
    for parameter in parameters:
        value = given[parameter.name]
        if (value is None and not parameter.required) or parameter.in_body:
            continue
        value = parameter.checked(value)
        _check_order(parameter.name, value, starts)
        if parameter.in_path:
            path[parameter.wire] = path_segment(parameter.name, value)
        elif parameter.wire == "pageSize":
            query.insert(0, (parameter.wire, str(value)))
        elif parameter.repeated and isinstance(value, list):
            query += [
                (parameter.wire, text) for entry in value for _, text in query_params({parameter.wire: entry})
            ]
        else:
            query += query_params({parameter.wire: value})
    return path, tuple(query)


def _check_order(name: str, value: Any, starts: dict[str, Any]) -> None:
    """Refuse an end before its start; a start is kept in `starts`."""
    bound, _, what = name.partition("_")
    if bound == "start":
        starts[what] = value
    elif bound == "end" and isinstance(start := starts.get(what), int) and value < start:
        raise ArgumentError(f"start_{what}={start} is after end_{what}={value}: the list would be empty")


def wire_body(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> bytes | None:
    """Return the body as JSON with sorted names; None without parameters in it.

    Raises:
        ConfigurationError: a value cannot be sent.

    """
    inside = [parameter for parameter in parameters if parameter.in_body]
    if not inside:
        return None
    if inside[0].whole:
        content: Any = _field(inside[0], given[inside[0].name])
    else:
        content = {
            one.wire: _field(one, given[one.name])
            for one in inside
            if one.required or given[one.name] is not None
        }
    try:
        return json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except RecursionError:
        raise ConfigurationError(f"the body cannot be sent as JSON: it is {TOO_DEEP}") from None
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the body cannot be sent as JSON: {error}") from None


def _field(parameter: Parameter, given: Any) -> Any:
    """Return the value of a field of a body as JSON."""
    value = parameter.checked(given)
    if parameter.repeated:
        value = value if isinstance(value, list) else [value]
    elif isinstance(value, list):
        value = ",".join(map(str, value))
    return to_wire(value)
