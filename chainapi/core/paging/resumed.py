"""Page inside which a walk was resumed: its rows given before the resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from chainapi.core.paging.rows import PageRows

__all__ = ["ResumedPage"]

NEIGHBOURS = 128  # rows after the last one that was given before


class ResumedPage:
    """Marks of rows that were given of a page before a resume inside it."""

    def __init__(self, marks: Collection[str] = ()) -> None:
        self.marks = Counter(marks)
        self._by_part: dict[str, set[str]] = {}
        for mark in self.marks:
            for part in _parts(mark):
                self._by_part.setdefault(part, set()).add(mark)
        self._behind: int | None = None  # rows after the last one given before; None above the first

    def match(self, page: PageRows, indices: Iterable[int]) -> set[int]:
        """Return the indices of rows that have a mark; each mark matches one row."""
        if not self.marks:
            return set()
        return {index for index in indices if self._matches(page.marks(index))}

    def pass_by(self, page: PageRows, again: Collection[int]) -> None:
        """Drop the marks once enough rows follow the last row that has one.

        `again` holds the indices of the rows of this page that were given before. The list may have grown by
        any number of rows above the first of them. After the last one, a row equal to one of them is a
        different row.
        """
        if again:
            self._behind = page.size - 1 - max(again)
        elif self._behind is not None:
            self._behind += page.size
        if self._behind is not None and self._behind >= NEIGHBOURS:
            self.marks.clear()

    def _matches(self, own: str) -> bool:
        for part in _parts(own):
            for mark in self._by_part.get(part, ()):
                if self.marks[mark] and _same(mark, own):
                    self.marks -= Counter((mark,))
                    return True
        return False


def _parts(mark: str) -> tuple[str, ...]:
    """Return the mark of the key, where there is one, and that of the content."""
    return (mark[16:], mark[:16]) if len(mark) > 16 else (mark,)


def _same(mark: str, own: str) -> bool:
    """Compare the marks of a row: by key where both have one, else by content."""
    part = 0 if len(mark) > 16 and len(own) > 16 else -1
    return _parts(mark)[part] == _parts(own)[part]
