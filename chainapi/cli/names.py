"""Routes by name: strings become arguments, and rows become plain JSON."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter as Option

from chainapi._api.catalogue import ROUTES, WRITES
from chainapi._api.options import is_misspelt
from chainapi._text import did_you_mean, quoted
from chainapi.cli.common import refuse
from chainapi.core.arguments import refuse_unknown
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import Invalid, Unknown
from chainapi.models.codec import decode_resource
from chainapi.models.records import Record
from chainapi.models.schema import fields_of, row_classes

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from chainapi._api.endpoint import Endpoint
    from chainapi._api.parameters import Parameter
    from chainapi.session import Session

__all__ = [
    "RouteName",
    "Value",
    "call_of",
    "field_types",
    "is_path",
    "method_of",
    "plain",
    "read_pairs",
    "read_value",
    "read_values",
    "resolve",
    "returns",
    "route_names",
    "usage",
]


def is_path(route: str) -> bool:
    """Return whether an argument is a path, not the name of a route."""
    return route.startswith("/")


def resolve(name: str) -> Endpoint:
    """Return the route of a dotted name, such as ``data.evm.blocks``.

    Raises:
        ConfigurationError: no route has it; the message suggests a similar name.

    """
    if name in ROUTES:
        return ROUTES[name]
    if name in WRITES:
        hint = f"it writes, and is called from Python only: session.{name}()"
        raise ConfigurationError(f"{name} is no route that a command reads: {hint}")
    if "/" in name:
        hint = "a path begins with '/'"
    else:
        same = next((known for known in ROUTES if known.endswith(f".{name}")), name)
        hint = did_you_mean(same, ROUTES, "`chainapi routes` shows all names")
    raise ConfigurationError(f"no route is named {quoted(name)}: {hint}")


def returns(endpoint: Endpoint) -> str:
    """Return the return annotation of a route: a model, or pages of one."""
    return str(endpoint.function.__annotations__["return"])


def field_types(endpoint: Endpoint) -> dict[str, dict[str, str]]:
    """Return the fields of a route's rows with their types, by the kinds of the rows."""
    return {
        kind.__name__: {field.key: str(field.type) for field in fields_of(kind)}
        for kind in row_classes(endpoint.route.model)
    }


def method_of(session: Session, name: str) -> Callable[..., Any]:
    """Return the method of a session by the name of its route."""
    method: Callable[..., Any] = operator.attrgetter(name)(session)
    return method


def call_of(
    route: str,
    words: Sequence[str],
    params: Sequence[str] | None,
    page_size: int | None,
    *,
    whole: bool = True,
    api: str | None,
    items: str | None,
) -> tuple[str, dict[str, Any]]:
    """Return the name of a session's method for a route or a path, and its arguments.

    The path itself is not among them. `whole` is as in `read_values`.

    Raises:
        ConfigurationError: a value is invalid or missing, or does not apply.

    """
    given = params or ()
    if not is_path(route):
        refuse(f"the route {route} sets it", api=api, items=items)
        size = () if page_size is None else (f"page_size={page_size}",)
        return route, read_values(route, words, (*given, *size), whole=whole)
    query = dict[str, list[str]]()
    for name, value in read_pairs(given):
        if is_misspelt(name):
            why = ": parameters of the services have no underscore" if "_" in name else ""
            raise ConfigurationError(f"--param {name}={value} is not a query parameter{why}, see --help")
        query.setdefault(name, []).append(value)
    sent = dict(sorted(query.items())) or None
    return f"{api or 'data'}.list", {"page_size": page_size, "items": items, "params": sent}


def read_values(
    name: str, words: Sequence[str] = (), params: Sequence[str] = (), *, whole: bool = True
) -> dict[str, Any]:
    """Return the values of a route's parameters, checked, by their names in Python.

    Args:
        name: the route.
        words: values of the parameters in the path, in their order.
        params: NAME=VALUE for any parameter; lists by repeating, or with commas.
        whole: whether a missing parameter is an error.

    Raises:
        ConfigurationError: a name is unknown, or a value is invalid or missing.

    """
    parameters = resolve(name).parameters
    segments = _segments(parameters)
    if len(words) > len(segments):
        raise ConfigurationError(f"{words[len(segments)]!r} is one value too many; usage: {usage(name)}")
    texts = {parameter.name: [word] for parameter, word in zip(segments, words, strict=False)}
    known = {key: parameter for parameter in parameters for key in (parameter.name, parameter.wire)}
    for key, value in read_pairs(params):
        if key not in known:
            refuse_unknown([key], [parameter.name for parameter in parameters], name)
        texts.setdefault(known[key].name, []).append(value)
    missing = [one.name for one in parameters if one.required and one.name not in texts]
    if whole and missing:
        raise ConfigurationError(f"missing {', '.join(missing)}; usage: {usage(name)}")
    return {one.name: _read(one, texts[one.name]) for one in parameters if one.name in texts}


def read_pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of NAME=VALUE.

    Raises:
        ConfigurationError: a string has another form.

    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--param {text!r} must be NAME=VALUE")
        yield name, value


def usage(name: str) -> str:
    """Return a route as words of a command line: name and required parameters."""
    parameters = resolve(name).parameters
    needed = [f"--param {one.name}=VALUE" for one in parameters if one.required and not one.in_path]
    return " ".join([name, *(one.name.upper() for one in _segments(parameters)), *needed])


def _segments(parameters: Sequence[Parameter]) -> list[Parameter]:
    return [parameter for parameter in parameters if parameter.in_path]


# From strings to values.


def _read(parameter: Parameter, texts: Sequence[str]) -> Any:
    if parameter.union is not None:
        return [_record(parameter, text) for text in texts]
    if parameter.many:
        return [read_value(parameter, entry) for text in texts for entry in text.split(",")]
    if len(texts) > 1:
        raise ConfigurationError(f"{parameter.name} takes one value, not {len(texts)}")
    return read_value(parameter, texts[0])


def _record(parameter: Parameter, text: str) -> Any:
    """Return a record of a request from its JSON."""
    try:
        return decode_resource(text.encode(), parameter.union)
    except DecodeError as error:
        where = f"{error.path}: {error.reason}"
        raise ConfigurationError(
            f"{parameter.name}={text[:80]!r} is not the JSON of one of its records: {where}"
        ) from None


def read_value(parameter: Parameter, text: str) -> Any:
    """Return a string as a value of the first type that accepts it, checked.

    Raises:
        ConfigurationError: the value is invalid.

    """
    if parameter.choices or str in parameter.kinds:
        return parameter.checked(text)
    readers = {kind: reader for kind, reader in _READERS.items() if kind in parameter.kinds}
    for read, _ in readers.values():
        with suppress(KeyError, ValueError):
            value = read(text)
            break
    else:
        if float in readers:
            del readers[int]
        wanted = " or ".join(wanted for _, wanted in readers.values())
        raise ConfigurationError(f"{parameter.name}={text[:80]!r} is invalid: it must be {wanted}")
    return parameter.checked(value)


def _datetime(text: str) -> datetime:
    """Return an ISO date or time, in UTC if it has no zone.

    The times of the services are in UTC too.
    """
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


_READERS: Mapping[type, tuple[Callable[[str], Any], str]] = {
    bool: ({"true": True, "false": False}.__getitem__, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    datetime: (_datetime, "an ISO date such as 2026-01-31"),
}


# From rows to plain JSON.


def plain(row: Any) -> Any:
    """Return a row as plain JSON, with the names of its columns in an export.

    Decimals and amounts are strings, because `jq` would round their digits.
    """
    match row:
        case Unknown() | Invalid():
            return row.raw
        case Decimal():
            return str(row)
        case list() | tuple():
            return [plain(entry) for entry in row]
        case dict():
            return {name: plain(value) for name, value in row.items()}
        case Record():
            amounts = {field.key for field in fields_of(type(row)) if field.amount}
            made = {
                name: str(value) if name in amounts and value is not None else plain(value)
                for name, value in row
            }
            return made | {"extra": row.extra} if row.extra else made
        case _:
            return row


# Completion by a shell.


def route_names(context: CompletionContext) -> dict[str, str]:
    """Return all names, each with what it returns; paths are not completed."""
    return {name: returns(endpoint) for name, endpoint in ROUTES.items()}


def _choices(context: CompletionContext) -> tuple[str, ...]:
    """Return the documented values of the parameter at the cursor."""
    endpoint = ROUTES.get(context["route"].raw or "")
    segments = _segments(endpoint.parameters) if endpoint else []
    return segments[context.index].choices if context.index < len(segments) else ()


RouteName = Annotated[str, Option(completer=route_names)]
Value = Annotated[str, Option(completer=_choices)]
