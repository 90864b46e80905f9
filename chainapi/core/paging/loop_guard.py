"""Pages that came before, in constant memory."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from chainapi.core.private import Private

__all__ = ["LoopGuard"]


class LoopGuard(Private, Struct, eq=False, gc=False):
    """Finds pages that came before, in constant memory for a walk of any length.

    It keeps the last `LIMIT` pages, and a sample of those before: `LIMIT` of them, then those whose hash ends
    in ever more zeros. A short loop closes on a recent page, a longer one on a page of the sample.
    """

    LIMIT: ClassVar[int] = 1_024

    _mask: int = 0
    # Empty dicts take less memory than empty sets.
    _pages: dict[int, None] = {}
    _tokens: dict[int, None] = {}  # with their tokens, those that are not recent
    _recent: dict[int, None] = {}  # with their tokens, in order

    def loops(self, token: str, rows: int) -> bool:
        """Check whether this token came before with these rows; `rows` is a hash of them."""
        page = hash((token, rows))
        if page in self._recent or page in self._tokens:
            return True
        # After many pages the sample may have none of a loop of a few.
        self._recent[page] = None
        if len(self._recent) > self.LIMIT:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._keep(self._tokens, oldest)
        return False

    def is_new(self, rows: int) -> bool:
        """Check whether these rows are new; False as well for rows outside the sample."""
        if rows & self._mask or rows in self._pages:
            return False
        self._keep(self._pages, rows)
        return True

    def _keep(self, sample: dict[int, None], value: int) -> None:
        if value & self._mask:
            return
        sample[value] = None
        while len(sample) > self.LIMIT:
            self._mask = 2 * self._mask + 1
            for kept in (self._pages, self._tokens):
                for one in [one for one in kept if one & self._mask]:
                    del kept[one]
