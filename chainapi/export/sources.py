"""The walk of one source: what makes it, and what each of its pages adds to an export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import field, frozen

from chainapi.client.page import Page
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.export.records import Batch, SourceState

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
        self._counted = pages.restarts > 0 and not pages.ordered
        self._passed = 0  # rows of this pass
        self._edge = list(state.edge or ())  # marks of rows that the target has, and this pass has not met
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Fetch a page, and return what of it is wanted."""
        if self._done:
            raise StopAsyncIteration
        page = await anext(self._pages)
        return self._wanted(page)

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

    def _wanted(self, page: Page[Any]) -> Batch:
        """Return the rows of a page that the target may not have, and those that it is known to have."""
        pages, counted = self._pages, page.restarts > 0 and not self._pages.ordered
        if page.restarts > self._restarts:
            self._passed = 0
        if counted and (page.restarts > self._restarts or not self._counted):
            self._taken = self._passed  # this pass has all rows again; the state counts them
        self._restarts, self._counted = page.restarts, counted
        self._passed += len(page.items) - len(pages.repeated)
        # A reader of pages has no counts: what a later pass repeats in a list without order, the state knows.
        stale = pages.repeated if counted else pages.stale
        fresh, ends = self._above_floor(
            [index for index in range(len(page.items)) if index not in stale], keyless=page.checkpoint.keyless
        )
        if self._limit is not None:
            fresh = fresh if counted else fresh[: self._limit - self._taken]
            self._taken += len(fresh)
            ends = ends or self._taken >= self._limit
        self._done = ends or page.checkpoint.done
        numbers = [number for index in fresh if (number := pages.number(index)) is not None]
        known = [index for index in stale if index not in pages.repeated] if page.restarts else []
        return Batch(
            source=self.state,
            rows=[page.items[index] for index in fresh],
            digests=[pages.digest(index) for index in fresh],
            known=[pages.digest(index) for index in known],
            newest=max(numbers, default=None),
            counted=counted,
            encode=self._encode,
            checkpoint=page.checkpoint,
            taken=self._taken,
            done=self._done,
        )

    def _above_floor(self, indices: Sequence[int], *, keyless: bool) -> tuple[Sequence[int], bool]:
        """Return the indices of rows that the target does not have, and whether only such are left behind."""
        floor = self.state.floor
        if floor is None:
            return indices, False
        kept: list[int] = []
        for index in indices:
            number = self._pages.number(index)
            if number is None or number > floor:
                kept.append(index)
            elif number < floor and self._pages.ordered:
                return kept, True
            elif number == floor and not self._on_edge(index, keyless=keyless):
                kept.append(index)
        return kept, False

    def _on_edge(self, index: int, *, keyless: bool) -> bool:
        """Check whether the target has a row whose number is the floor: as many as there are marks."""
        if self.state.edge is None:
            return not keyless  # numbers are unique
        mark = self._pages.mark(index)
        if mark not in self._edge:
            return False
        self._edge.remove(mark)
        return True
