"""Specification of an export: method, sources, options, settings.

What chooses rows (route, parameters, limit) has to be given again in later runs: left out, it means all rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
    Sized,
)
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from attrs import evolve, field, frozen

from chainapi._api.options import Options
from chainapi._http.query import query_params
from chainapi._paging.pages import Pages
from chainapi._paging.split import Split
from chainapi._tables.columns import changes
from chainapi._text import quoted
from chainapi.core.arguments import boolean, seconds_of, whole_number, whole_numbers
from chainapi.core.duration import DAY
from chainapi.errors import (
    ArgumentError,
    ChainAPIError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
)
from chainapi.export.layout import COLUMNS, OPTIONS, SETTINGS, Layout
from chainapi.export.partition import check_label
from chainapi.export.window import Lookback, LookbackGiven

if TYPE_CHECKING:
    from chainapi._api.endpoint import Endpoint

__all__ = [
    "Arguments",
    "ExportSpec",
    "Sources",
    "checked_sources",
    "compare_settings",
    "free_label",
    "incomplete",
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
            f"{name}= must be a list of sources, not {quoted(given)}: put brackets around a single source;"
            " the sources come before the path"
        )
    return given


def sent_values(endpoint: Endpoint | None, query: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of shared arguments as they are sent, by name.

    Arguments that change no row, and arguments with their default values, are left out: an export can be
    continued with other values of these.

    Args:
        endpoint: the declared endpoint; None for a method that is not declared.
        query: the arguments.

    """
    parameters = {} if endpoint is None else {one.name: one for one in endpoint.parameters}
    sent = dict[str, str]()
    for name, value in query.items():
        if value is None or name in (*Options.__struct_fields__, "page_size"):
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
        "walk= must be the method of a list, without parentheses, such as session.data.evm.blocks, not "
        f"{given}"
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


def split_arguments(given: int | str) -> dict[str, Any]:
    """Return the argument `ranges` of an export as arguments of `Pages.split`.

    The width of ranges is written like the distance of a lookback.

    Raises:
        ArgumentError: it is neither a number of ranges nor the width of each.

    """
    try:
        found = Lookback.of(given)
    except ConfigurationError:
        raise ArgumentError(
            f"ranges={quoted(given)} must be a number of ranges, such as 8, or the width of each in whole"
            " units, such as '100000 blocks', '36 hours' or '7 days'"
        ) from None
    match found.unit:
        case "seconds":
            return {"days": found.size / DAY}
        case "blocks":
            return {"blocks": found.size}
    return {"ranges": found.size}


def _lookback(given: LookbackGiven | Lookback | None) -> Lookback | None:
    return given if given is None or isinstance(given, Lookback) else Lookback.of(given)


@frozen(eq=False)
class ExportSpec:
    """Specification of an export: the checked arguments of `chainapi.export.export`.

    Attributes:
        walk: method that returns the stream of a source.
        over: the sources.
        query: keyword arguments of `walk` that all sources share.
        layout: layout of the files.
        limit: greatest number of rows of a source until it has ended for the first time; None for all.
        concurrency: sources that are open at once.
        ranges: ranges of each source that has not begun; None to walk it as a whole.
        lookback: how far below its newest row a finished source is fetched again; None for no row.
        commit_seconds: greatest number of seconds between two commits; None for the default.
        compact: whether small parts are merged.

    Raises:
        ConfigurationError: an argument is invalid.

    """

    walk: Callable[..., Pages[Any]]
    over: Sources
    query: Mapping[str, Any]
    layout: Layout
    limit: int | None = None
    concurrency: int = 32
    ranges: int | str | None = None
    lookback: Lookback | None = field(default=None, converter=_lookback)
    commit_seconds: float | None = None
    compact: bool = True

    def __attrs_post_init__(self) -> None:
        checked_sources("over", self.over)
        if "resume" in self.query:
            raise ConfigurationError(
                "export() does not take resume=: call it again with the same target to continue an export"
            )
        whole_numbers(limit=self.limit)
        whole_number("concurrency", self.concurrency)
        if self.ranges is not None:
            split_arguments(self.ranges)
            if self.limit is not None:
                raise ConfigurationError(
                    "ranges= does not apply with a limit: its rows are the first ones of the list, which one "
                    "walk fetches; leave one of them out"
                )
        if self.commit_seconds is not None:
            seconds_of("commit_seconds", self.commit_seconds, zero=True)
        boolean("compact", self.compact)

    @property
    def total(self) -> int | None:
        """Number of sources; None if `over` has no length."""
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
            self.split(pages, self.ranges)
        return pages

    def split(self, pages: Pages[Any], ranges: int | str) -> Split[Pages[Any]]:
        """Return the ranges of an unread list; nothing is sent.

        Raises:
            ConfigurationError: the list cannot be split.

        """
        try:
            return pages.split(**split_arguments(ranges))
        except ConfigurationError as error:  # it names arguments of split(), or none
            raise type(error)(f"ranges= does not apply: {error}") from None

    def open(self, arguments: Arguments, **more: Any) -> Pages[Any]:
        """Return the stream of a source.

        Args:
            arguments: arguments of the source.
            more: further arguments of the method, such as ``resume``.

        Raises:
            ConfigurationError: the method rejects the arguments, or does not return a list; or no file or
                folder can have the label of the source.

        """
        check_label(self.layout.partition or (), arguments.label)
        if not callable(self.walk):
            raise _no_method(type(self.walk).__name__)
        try:
            pages = self.walk(*arguments.positional, **self.query, **arguments.named, **more)
        except TypeError as error:  # of arguments that are missing, or too many
            raise ConfigurationError(str(error)) from error
        if not isinstance(pages, Pages):
            kind = type(pages).__name__
            if isinstance(pages, Coroutine):
                pages.close()  # it is a mistake of the caller, and no warning names it better than the error
                kind = "coroutine"
            raise _no_method(f"one that returns a {kind}")
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

    def settings(self, pages: Pages[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that must stay the same when the export is started again.

        A parameter with the name of another setting has an equals sign after it.

        Args:
            pages: stream of any source.
            columns: columns of the files, as `described` returns them.

        """
        endpoint: Endpoint | None = getattr(self.walk, "endpoint", None)
        route = endpoint.route.path if endpoint is not None else getattr(self.walk, "__qualname__", "")
        own = {"address": pages.address, "route": route, "limit": self.limit, COLUMNS: columns}
        settings = {**own, **self.layout.settings}
        sent = sent_values(endpoint, self.query)
        return {**settings, **{f"{name}=" if name in settings else name: sent[name] for name in sent}}


def incomplete(failures: Mapping[str, ChainAPIError], sources: int, target: str) -> IncompleteExportError:
    """Return the error of an export with sources that failed."""
    label, error = next(iter(failures.items()))
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    others = f"; the others are in {target}" if len(failures) < sources else ""
    return IncompleteExportError(
        f"{len(failures)} of {sources} sources failed: {label} ({error}){more}{others}. Start the same"
        " export again to fetch the failed ones",
        failures,
    )


def compare_settings(target: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to continue the export in `target` with other settings.

    A new target has none.

    Raises:
        ExportError: they differ; the message names each of them.

    """
    if not old:
        return
    differences = [
        f"{_argument(name)} was {_value(old.get(name))}, is {_value(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if name not in (COLUMNS, OPTIONS) and old.get(name) != new.get(name)
    ]
    # A column that the rows gained is no other export.
    differences = differences or changes(old.get(COLUMNS, {}), new.get(COLUMNS, {}))
    if differences:
        raise ExportError(
            f"{target} holds another export: {'; '.join(differences)}. Use the same settings, or choose "
            "another target, or delete this one and its log"
        )


def _argument(setting: str) -> str:
    """Return a setting as an argument of `export`; one without an argument as it is."""
    return f"{setting}=" if setting in (*SETTINGS, "limit") else setting


def _value(value: object) -> str:
    if value is None:
        return "left out"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
