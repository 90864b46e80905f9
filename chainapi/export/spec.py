"""Specification of an export: method, sources, target, arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
    Sized,
)
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from attrs import evolve, field, frozen

from chainapi._text import quoted
from chainapi.api.options import NOT_SENT
from chainapi.client.pages import Pages
from chainapi.core.url import query_params
from chainapi.errors import ConfigurationError
from chainapi.export.formats import Format, options_of
from chainapi.export.lookback import Lookback
from chainapi.export.partition import check_label
from chainapi.export.ranges import RangesOfSources
from chainapi.export.settings import COLUMNS, OPTIONS
from chainapi.tables.columns import Column, described
from chainapi.tables.types import Amounts

if TYPE_CHECKING:
    from chainapi.api.endpoint import Endpoint

__all__ = [
    "Arguments",
    "ExportSpec",
    "Sources",
    "checked_sources",
    "free_label",
    "sent_values",
]

CHECKED_AT_ONCE = 256  # sources, before other tasks have their turn

Sources: TypeAlias = Iterable[Any] | AsyncIterable[Any]


@frozen
class Arguments:
    """Arguments of the method that open one source."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(factory=dict[str, Any])

    @classmethod
    def of(cls, source: Any) -> Self:
        """Read a source: an argument, a tuple, or a mapping of named arguments."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls(named=source)
        return cls(source if isinstance(source, tuple) else (source,))

    @property
    def texts(self) -> tuple[object, ...]:
        """Arguments as texts: equal for sources that are surely the same list."""
        return (*map(_text, self.positional), *((name, _text(value)) for name, value in self.named.items()))

    @property
    def label(self) -> str:
        """Name of the source: its arguments joined with slashes, or ``all``."""
        return "/".join(map(_text, (*self.positional, *self.named.values()))) or "all"


def _text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # of an int: Python writes at most 4,300 digits, and the method refuses such a number
        return quoted(value)


def checked_sources(name: str, given: Any) -> Sources:
    """Return the sources that were given as the argument `name`.

    Raises:
        ConfigurationError: they are one source, not a list of sources.

    """
    if isinstance(given, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
        given, Iterable | AsyncIterable
    ):
        raise ConfigurationError(
            f"{name}= must be a list of sources, not {quoted(given)}: put brackets around a single source"
        )
    return given


def sent_values(endpoint: Endpoint | None, query: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of shared arguments as they are sent, by name.

    Arguments that change no row are left out, and so are those that are sent by default: with others of
    these an export can be continued.

    Args:
        endpoint: the declared endpoint; None for a method that is not declared.
        query: the arguments.

    """
    parameters = {} if endpoint is None else {one.name: one for one in endpoint.parameters}
    sent = dict[str, str]()
    for name, value in query.items():
        if value is None or name in (*NOT_SENT, "page_size"):
            continue
        parameter = parameters.get(name)
        if parameter is None and name == "model":  # the columns of its rows are compared, not its name
            continue
        if parameter is None or parameter.in_body:
            sent[name] = ascii(value)
        elif (checked := parameter.checked(value)) != parameter.default:
            sent[name] = ",".join(text for _, text in query_params({name: checked}))
    return sent


def free_label(label: str, fingerprint: str, taken: Callable[[str], bool]) -> str:
    """Return a label that no other source has.

    Labels that would be equal get the fingerprint of their query.
    """
    candidates = (label, f"{label}~{fingerprint[:8]}", f"{label}~{fingerprint}")
    return next(one for one in candidates if not taken(one))


def _no_method(given: str) -> ConfigurationError:
    return ConfigurationError(
        "walk= must be the method of a list, without parentheses, such as session.data.evm.blocks, not"
        f" {given}"
    )


def _refusal(refused: Sequence[tuple[Arguments, ConfigurationError]], sources: int) -> ConfigurationError:
    """Return the error for sources whose arguments the method refuses."""
    arguments, error = refused[0]
    if len(refused) == sources:  # the fault may be in an argument that they share
        return error
    more = f" and {len(refused) - 1:,} more" if len(refused) > 1 else ""
    refusal = ConfigurationError(f"source {quoted(arguments.label)}{more}: {error}")
    refusal.__cause__ = error
    return refusal


@frozen(eq=False)
class ExportSpec:
    """Specification of an export.

    Attributes:
        walk: method that returns the stream of a source.
        over: the sources.
        target: name of the file or the folder for the rows.
        format: format of the files.
        query: keyword arguments of `walk` that all sources share.
        limit: greatest number of rows of a source until it has ended for the first time; None for all.
        concurrency: sources that are open at once.
        amounts: type of amounts.
        fields: names of the columns in their order, without the first one, the source; None for all.
        partition: keys that divide the rows of a part into files.
        ranges: ranges of each source that has not begun; None to walk it as a whole.
        lookback: how far below its newest row a finished source is fetched again; None for no row.

    """

    walk: Callable[..., Pages[Any]]
    over: Sources
    target: str
    format: Format
    query: Mapping[str, Any]
    limit: int | None
    concurrency: int
    amounts: Amounts = "text"
    fields: tuple[str, ...] | None = None
    partition: tuple[str, ...] = ()
    ranges: RangesOfSources | None = None
    lookback: Lookback | None = None

    @property
    def total(self) -> int | None:
        """Number of sources; None where `over` has no length."""
        return len(self.over) if isinstance(self.over, Sized) else None

    async def check(self) -> None:
        """Check each source of a list before the first request.

        Sources of an iterator are checked when their turn comes.

        Raises:
            ConfigurationError: the method refuses sources; the message has the first of them.

        """
        if not isinstance(self.over, Collection):
            return
        refused = list[tuple[Arguments, ConfigurationError]]()
        for place, source in enumerate(self.over, 1):
            arguments = Arguments.of(source)
            try:
                self.open_first(arguments)
            except ConfigurationError as error:
                refused.append((arguments, error))
            if place % CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if refused:
            raise _refusal(refused, len(self.over))

    async def arguments(self) -> AsyncIterator[Arguments]:
        """Yield the arguments of each source."""
        if isinstance(self.over, AsyncIterable):
            async for source in self.over:
                yield Arguments.of(source)
        else:
            for source in self.over:
                yield Arguments.of(source)

    def open_first(self, arguments: Arguments) -> Pages[Any]:
        """Return the stream of a source, unread.

        Raises:
            ConfigurationError: the method rejects the arguments, or the list cannot be split into ranges.

        """
        pages = self.open(arguments)
        if self.ranges is not None:
            self.ranges.of(pages)
        return pages

    def open(self, arguments: Arguments, **more: Any) -> Pages[Any]:
        """Return the stream of a source.

        Args:
            arguments: arguments of the source.
            more: further arguments of the method, such as ``resume``.

        Raises:
            ConfigurationError: the method rejects the arguments, or does not return a list; or no file or
                folder can have the label of the source.

        """
        check_label(self.partition, arguments.label)
        if not callable(self.walk):
            raise _no_method(type(self.walk).__name__)
        try:
            pages = self.walk(*arguments.positional, **self.query, **arguments.named, **more)
        except TypeError as error:  # of arguments that are missing, or too many
            raise ConfigurationError(str(error)) from error
        if not isinstance(pages, Pages):
            if inspect.iscoroutine(pages):
                pages.close()  # it is a mistake of the caller, and no warning names it better than the error
            raise _no_method(f"one that returns a {type(pages).__name__}")
        if self.lookback is not None:
            self.lookback.check(pages.number_names)
        return pages

    def open_since(self, arguments: Arguments, wire: str, number: int, **more: Any) -> Pages[Any]:
        """Return the stream of the rows of a source from a number on.

        Args:
            arguments: arguments of the source.
            wire: name of the query parameter that bounds it from below; a greater value of the caller stays.
            number: the number.
            more: further arguments of the method, such as ``resume``.

        """
        endpoint: Endpoint = self.walk.endpoint  # type: ignore[attr-defined]
        parameter = next(one for one in endpoint.parameters if one.wire == wire)
        name = parameter.name
        given = {**self.query, **arguments.named}.get(name)
        least = number if given is None else max(number, parameter.checked(given))
        query = {key: value for key, value in self.query.items() if key != name}
        return evolve(self, query=query).open(
            evolve(arguments, named={**arguments.named, name: least}), **more
        )

    def settings(self, pages: Pages[Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return the settings that must stay the same when the export is started again.

        A parameter with the name of another setting has an equals sign after it.
        """
        endpoint: Endpoint | None = getattr(self.walk, "endpoint", None)
        route = endpoint.route.path if endpoint is not None else getattr(self.walk, "__qualname__", "")
        settings = {
            "address": pages.address,
            "route": route,
            "format": self.format.name,
            COLUMNS: described(columns),
            OPTIONS: options_of(self.format),
            "amounts": self.amounts,
            "limit": self.limit,
            "fields": None if self.fields is None else [*self.fields],
            "partition": [*self.partition] or None,
        }
        sent = sent_values(endpoint, self.query)
        return {**settings, **{f"{name}=" if name in settings else name: sent[name] for name in sent}}
