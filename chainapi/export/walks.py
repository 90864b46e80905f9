"""The walk of one source: what makes it, and what each of its pages adds to an export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import field, frozen

from chainapi.core.checkpoint import Checkpoint
from chainapi.export.state import Batch, SourceState
from chainapi.pages import Page, Pages

__all__ = ["Arguments", "Walk"]


@frozen
class Arguments:
    """What makes one source of a walk: arguments of the method."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(factory=dict[str, Any])

    @classmethod
    def of(cls, source: Any) -> Self:
        """Read a source as it is given: the first argument, a tuple of them, or a mapping of named ones."""
        if isinstance(source, Mapping):
            return cls(named=source)
        return cls(source if isinstance(source, tuple) else (source,))

    @property
    def label(self) -> str:
        """Names the source: its arguments with slashes between them, or ``all`` for a list without any."""
        return "/".join(str(value) for value in (*self.positional, *self.named.values())) or "all"


class Walk:
    """The walk of one source: gives what each page adds, and ends where no more is wanted."""

    def __init__(
        self, state: SourceState, pages: Pages[Any], encode: Callable[[Any], bytes], limit: int | None
    ) -> None:
        self.state = state
        self._pages = pages
        self._encode = encode
        self._limit = limit
        self._taken = state.taken
        self._restarts = pages.restarts
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Fetch a page, and return what of it is wanted."""
        if self._done:
            raise StopAsyncIteration
        before = self._pages.checkpoint.rows
        page = await anext(self._pages)
        return self._wanted(page, page.checkpoint.rows - before)

    @property
    def exhausted(self) -> bool:
        """Whether all that is wanted was given."""
        return self._done

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the walk stands."""
        return self._pages.checkpoint

    async def aclose(self) -> None:
        """End the walk."""
        await self._pages.aclose()

    def _wanted(self, page: Page[Any], fresh: int) -> Batch:
        """Return what a page adds, of which `fresh` rows were not given before."""
        if page.restarts > self._restarts and not self._pages.ordered:
            self._taken = 0  # the new pass has all rows again, and they are told when they are kept
        self._restarts = page.restarts
        rows, ends = self._above_floor(page.items)
        if self._limit is not None:
            # A page with rows given before is taken whole: only the state tells which they are.
            rows = rows[: self._limit - self._taken] if fresh == len(page.items) else rows
            self._taken += min(fresh, len(rows))
            ends = ends or self._taken >= self._limit
        self._done = ends or page.checkpoint.done
        return Batch(
            source=self.state,
            rows=rows,
            identity=self._pages.identity,
            encode=self._encode,
            checkpoint=page.checkpoint,
            taken=self._taken,
            done=self._done,
        )

    def _above_floor(self, rows: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return the rows that the target does not have, and whether the others begin."""
        floor = self.state.floor
        if floor is None:
            return rows, False
        for index, row in enumerate(rows):
            number = self._pages.identity(row)
            if isinstance(number, int) and number <= floor:
                return rows[:index], True
        return rows, False
