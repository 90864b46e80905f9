"""Stream of one source: the rows that each of its pages adds to an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from chainapi.client.page import Page
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.export.records import Batch, SourceRecord

__all__ = ["SourceStream"]


class SourceStream:
    """Stream of the batches of one source.

    It ends at the limit, and at the first row that the target has.

    Attributes:
        source: record of the source.

    """

    def __init__(
        self,
        source: SourceRecord,
        pages: Pages[Any],
        encode: Callable[[Sequence[Any]], bytes],
        limit: int | None,
    ) -> None:
        self.source = source
        self._pages = pages
        self._walk = pages.walk
        self._encode = encode
        self._limit = limit
        self._taken = source.taken  # until the journal matches rows
        self._newest = source.newest
        self._restarts = pages.restarts
        self._rows_of_pass = 0
        self._ties = list(source.exported_ties or ())  # marks of the target's rows that this pass has not met
        self._done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Fetch a page and return the rows that it adds."""
        if self.exhausted:
            raise StopAsyncIteration
        return self._batch(await anext(self._pages))

    @property
    def exhausted(self) -> bool:
        """Check whether the journal will have all rows after the last batch."""
        return self._done or self.source.limited

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the walk."""
        return self._pages.checkpoint

    async def aclose(self) -> None:
        """Close the stream."""
        await self._pages.aclose()

    def _batch(self, page: Page[Any]) -> Batch:
        """Return the rows of a page that the target may lack."""
        walk, matched = self._walk, self._begin_page(page)
        new = self._new_rows(page, matched=matched)
        repeats = [index for index in walk.stale if index not in walk.repeated]
        numbers = [walk.number(index) for index in new]
        newest, ties = self._newest_of(new, numbers)
        return Batch(
            source=self.source,
            rows=[page.items[index] for index in new],
            digests=[walk.digest(index) for index in new],
            encode=self._encode,
            checkpoint=page.checkpoint,
            done=self._done,
            repeats=[walk.digest(index) for index in repeats] if page.restarts and not matched else (),
            newest=newest,
            oldest=min((number for number in numbers if number is not None), default=None),
            ties=ties,
            matched=matched,
            limit=self._limit,
            seen=self._rows_of_pass,
        )

    def _newest_of(
        self, indices: Sequence[int], numbers: Sequence[int | None]
    ) -> tuple[int | None, tuple[str, ...]]:
        """Return the greatest number of rows, and the marks of those that have it.

        Only the newest number of the source has marks.
        """
        newest = max((number for number in numbers if number is not None), default=None)
        if newest is None or (self._newest is not None and newest < self._newest):
            return newest, ()
        self._newest = newest
        return newest, tuple(
            self._walk.mark(index) for index, number in zip(indices, numbers, strict=True) if number == newest
        )

    def _begin_page(self, page: Page[Any]) -> bool:
        """Count the rows of this pass; return whether the journal must match the page."""
        matched = page.restarts > 0 and not self._walk.ordered
        if page.restarts > self._restarts:
            self._rows_of_pass = 0
        self._restarts = page.restarts
        self._rows_of_pass += len(page.items) - len(self._walk.repeated)
        return matched

    def _new_rows(self, page: Page[Any], *, matched: bool) -> Sequence[int]:
        """Return the rows that the target may lack; end the stream behind the last."""
        # A stream of pages does not count rows, but the journal does: it matches a later pass without order.
        stale = self._walk.repeated if matched else self._walk.stale
        new, ends = self._not_exported(
            [index for index in range(len(page.items)) if index not in stale], keyless=page.checkpoint.keyless
        )
        if self._limit is not None and not matched:  # else the journal holds the limit
            new = self._limited(new, self._limit, restarted=page.restarts > 0)
            ends = ends or self._taken >= self._limit
        self._done = ends or page.checkpoint.done
        return new

    def _limited(self, new: Sequence[int], limit: int, *, restarted: bool) -> Sequence[int]:
        """Return as many rows as the limit allows.

        The limit is about the list as it was at first: what a later pass brings above its rows is left
        to the next run, because a limit inside of it would leave a gap.
        """
        if restarted and self._newest is not None:
            new = [index for index in new if not self._is_above(index, self._newest)]
        new = new[: limit - self._taken]
        self._taken += len(new)
        return new

    def _is_above(self, index: int, newest: int) -> bool:
        number = self._walk.number(index)
        return number is not None and number > newest

    def _not_exported(self, indices: Sequence[int], *, keyless: bool) -> tuple[Sequence[int], bool]:
        """Return the rows that the target lacks, and whether it has all rows behind."""
        exported = self.source.exported
        if exported is None:
            return indices, False
        new: list[int] = []
        for index in indices:
            number = self._walk.number(index)
            if number is None or number > exported:
                new.append(index)
            elif number < exported and self._walk.ordered:
                return new, True
            elif number == exported and not self._is_tie(index, keyless=keyless):
                new.append(index)
        return new, False

    def _is_tie(self, index: int, *, keyless: bool) -> bool:
        """Return whether the target has this row of its newest number; use up its mark."""
        if self.source.exported_ties is None:
            return not keyless  # numbers are unique
        mark = self._walk.mark(index)
        if mark not in self._ties:
            return False
        self._ties.remove(mark)
        return True
