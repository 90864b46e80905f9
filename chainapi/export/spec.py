"""Specification of an export: method, sources, target, arguments."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Self, TypeAlias

from attrs import field, frozen

from chainapi._text import quoted
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.formats import Format
from chainapi.tables.columns import Column

__all__ = ["Arguments", "ExportSpec", "Sources", "checked_sources", "compare_settings"]

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
    def label(self) -> str:
        """Name of the source: its arguments joined with slashes, or ``all``."""
        return "/".join(str(value) for value in (*self.positional, *self.named.values())) or "all"


def checked_sources(name: str, given: Any) -> Sources:
    """Return the sources that were given as the argument `name`.

    Raises:
        ConfigurationError: they are one source, not a list of sources.

    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable | AsyncIterable):
        raise ConfigurationError(
            f"{name}= must be a list of sources, not {quoted(given)}: put brackets around a single source"
        )
    return given


def compare_settings(target: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to continue the export in `target` with other settings.

    Raises:
        ExportError: they differ; the message names each of them.

    """
    changes = [
        f"{name} was {old.get(name)}, is {new.get(name)}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if changes:
        raise ExportError(
            f"{target} holds another export: {'; '.join(changes)}. Use the same settings, or choose another"
            " target"
        )


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

    """

    walk: Callable[..., Pages[Any]]
    over: Sources
    target: str
    format: Format
    query: Mapping[str, Any]
    limit: int | None
    concurrency: int

    @property
    def total(self) -> int | None:
        """Number of sources; None where `over` has no length."""
        return len(self.over) if isinstance(self.over, Sized) else None

    async def arguments(self) -> AsyncIterator[Arguments]:
        """Yield the arguments of each source."""
        if isinstance(self.over, AsyncIterable):
            async for source in self.over:
                yield Arguments.of(source)
        else:
            for source in self.over:
                yield Arguments.of(source)

    def open(self, arguments: Arguments, **resume: Checkpoint) -> Pages[Any]:
        """Return the stream of a source.

        Raises:
            ConfigurationError: the method rejects the arguments, or does not return a list.

        """
        pages = self.walk(*arguments.positional, **self.query, **arguments.named, **resume)
        if not isinstance(pages, Pages):
            raise ConfigurationError(
                f"walk= must return Pages, not {type(pages).__name__}: only lists can be exported"
            )
        return pages

    def settings(self, pages: Pages[Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return the settings that must stay the same when the export is started again."""
        endpoint = getattr(self.walk, "endpoint", None)
        route = endpoint.route.path if endpoint is not None else getattr(self.walk, "__qualname__", "")
        # on_invalid is left out: a user changes it to get past an invalid row.
        query = {name: ascii(value) for name, value in self.query.items() if name != "on_invalid"}
        settings = {
            "route": route,
            "format": self.format.name,
            "columns": ", ".join(column.name for column in columns),
            "ordered": pages.walk.ordered,
            "limit": self.limit,
        }
        return {**settings, **query}
