"""Routes by name on a command line: from a name and words to a call, and from its rows to plain JSON."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import attrs
from cyclopts import Parameter as Option

from chainapi._text import did_you_mean, quoted
from chainapi.api.catalogue import ROUTES
from chainapi.api.service import ServiceAPI
from chainapi.core.arguments import refuse_unknown
from chainapi.errors import ConfigurationError
from chainapi.models import Invalid, Unknown

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from chainapi.api.endpoint import Endpoint
    from chainapi.api.parameters import Parameter
    from chainapi.cli.terminal import Terminal
    from chainapi.session import Session

__all__ = [
    "RouteName",
    "Value",
    "as_it_is",
    "calling",
    "gives",
    "is_path",
    "method_of",
    "plain",
    "read_query",
    "read_value",
    "read_values",
    "resolve",
    "route_names",
    "usage",
]


def is_path(route: str) -> bool:
    """Tell a path from the name of a route."""
    return route.startswith("/")


def resolve(name: str) -> Endpoint:
    """Return the route of a dotted name, such as ``data.evm.blocks``.

    Raises:
        ConfigurationError: there is none; the message has the name that was probably meant.

    """
    if name in ROUTES:
        return ROUTES[name]
    if "/" in name:
        hint = "a path begins with '/'"
    else:
        same = next((known for known in ROUTES if known.endswith(f".{name}")), name)
        hint = did_you_mean(same, ROUTES, "`chainapi routes` shows all names")
    raise ConfigurationError(f"no route is named {quoted(name)}: {hint}")


def gives(declared: Endpoint) -> str:
    """Return what a route gives, as its signature says it: a model, or pages of one."""
    return str(declared.function.__annotations__["return"])


def method_of(session: Session, name: str) -> Callable[..., Any]:
    """Return the method of a session that a name stands for."""
    method: Callable[..., Any] = operator.attrgetter(name)(session)
    return method


def read_values(
    name: str, words: Sequence[str] = (), params: Sequence[str] = (), *, whole: bool = True
) -> dict[str, Any]:
    """Return the values of a route's parameters, checked, by their names in Python.

    Args:
        name: the route.
        words: values of the parameters in the path, in their order.
        params: NAME=VALUE for any parameter; lists by repeating, or with commas.
        whole: whether each parameter that is required has to be there.

    Raises:
        ConfigurationError: there is no such route or parameter, a value cannot be sent, or is missing.

    """
    parameters = resolve(name).parameters
    segments = _segments(parameters)
    if len(words) > len(segments):
        raise ConfigurationError(f"{words[len(segments)]!r} is one value too many: {usage(name)}")
    texts = {parameter.name: [word] for parameter, word in zip(segments, words, strict=False)}
    known = {key: parameter for parameter in parameters for key in (parameter.name, parameter.wire)}
    for key, value in read_pairs(params):
        if key not in known:
            refuse_unknown([key], [parameter.name for parameter in parameters], name)
        texts.setdefault(known[key].name, []).append(value)
    missing = [one.name for one in parameters if one.required and one.name not in texts]
    if whole and missing:
        raise ConfigurationError(f"missing {', '.join(missing)}: {usage(name)}")
    return {one.name: _read(one, texts[one.name]) for one in parameters if one.name in texts}


def read_pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Take NAME=VALUE apart.

    Raises:
        ConfigurationError: a text is no such pair.

    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--param {text!r} must be NAME=VALUE")
        yield name, value


def read_query(texts: Sequence[str], options: Collection[str] = ()) -> dict[str, Any]:
    """Return query parameters of a path, each with its values.

    Raises:
        ConfigurationError: a text is no pair, or a name is one of the `options` or an argument of ``list``.

    """
    query: dict[str, Any] = {}
    for name, value in read_pairs(texts):
        if name in _LIST_ARGUMENTS or name in options:
            raise ConfigurationError(f"--param {name}={value}: {name} is not for the query, see --help")
        query.setdefault(name, []).append(value)
    return query


_LIST_ARGUMENTS = frozenset(inspect.signature(ServiceAPI.list).parameters)


def usage(name: str) -> str:
    """Return how a route is written on a command line, with what it needs."""
    parameters = resolve(name).parameters
    needed = [f"--param {one.name}=VALUE" for one in parameters if one.required and not one.in_path]
    return " ".join([name, *(one.name.upper() for one in _segments(parameters)), *needed])


def _segments(parameters: Sequence[Parameter]) -> list[Parameter]:
    return [parameter for parameter in parameters if parameter.in_path]


# From texts to values.


def _read(parameter: Parameter, texts: Sequence[str]) -> Any:
    if parameter.many:
        entries = [entry for text in texts for entry in text.split(",")]
        return parameter.checked([_value(parameter, entry) for entry in entries])
    if len(texts) > 1:
        raise ConfigurationError(f"{parameter.name} is given {len(texts)} times, and takes one value")
    return read_value(parameter, texts[0])


def read_value(parameter: Parameter, text: str) -> Any:
    """Return one value of a parameter, checked.

    Raises:
        ConfigurationError: it cannot be sent.

    """
    return parameter.checked(_value(parameter, text))


def _value(parameter: Parameter, text: str) -> Any:
    """Read a value of the first kind that the text can be."""
    if parameter.choices or str in parameter.kinds:
        return text
    readers = {kind: reader for kind, reader in _READERS.items() if kind in parameter.kinds}
    for read, _ in readers.values():
        try:
            return read(text)
        except ValueError:
            pass
    if float in readers:
        readers.pop(int, None)
    wanted = " or ".join(wanted for _, wanted in readers.values())
    raise ConfigurationError(f"{parameter.name}={text[:80]!r} cannot be used: it takes {wanted}")


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _moment(text: str) -> datetime:
    """Read an ISO date or time; without a zone it is in UTC, as are the times of the services."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READERS: Mapping[type, tuple[Callable[[str], Any], str]] = {
    bool: (_truth, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    datetime: (_moment, "an ISO date such as 2026-01-31"),
}


# From rows to plain JSON.


def plain(row: Any) -> Any:
    """Return a row as JSON has it: fields by their names in Python, decimals as texts, all digits kept."""
    match row:
        case Unknown() | Invalid():
            return row.raw
        case Decimal():
            return str(row)
        case list() | tuple():
            return [plain(entry) for entry in row]
        case dict():
            return {name: plain(value) for name, value in row.items()}
        case _ if attrs.has(type(row)):
            return {field.name: plain(getattr(row, field.name)) for field in attrs.fields(type(row))}
        case _:
            return row


def as_it_is(row: Any) -> Any:
    """Return a row without a model, one that could not be read too."""
    return row.raw if isinstance(row, Invalid) else row


@contextmanager
def calling(terminal: Terminal, name: str) -> Iterator[None]:
    """Tell of a route that is deprecated as people read it, instead of as a warning of Python."""
    if is_path(name):
        yield
        return
    route = resolve(name).route
    if route.deprecated:
        terminal.complain(route.deprecation(name))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        yield


# What a shell completes.


def route_names(context: CompletionContext) -> dict[str, str]:
    """Offer all names, each with what it gives; a path is left to its writer."""
    return {name: gives(declared) for name, declared in ROUTES.items()}


def _choices(context: CompletionContext) -> tuple[str, ...]:
    """Offer the values that the service lists for the parameter at the cursor."""
    declared = ROUTES.get(context["route"].raw or "")
    segments = _segments(declared.parameters) if declared else []
    return segments[context.index].choices if context.index < len(segments) else ()


RouteName = Annotated[str, Option(completer=route_names)]
Value = Annotated[str, Option(completer=_choices)]
