"""Keys of neighboring rows: which rows of a page the pages before it had."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

from msgspec import Struct

from chainapi.core.paging.rows import Content, PageRows

__all__ = ["KeyWindow"]

NEIGHBOURS = 128  # rows, in whole pages, among which a key that comes again is a repeated row


class _Neighbour(Struct, eq=False):
    """Keys and numbers of a page of this pass, and its content if that matters."""

    keys: Sequence[Hashable]
    numbers: Sequence[int | None] | None
    size: int
    content: Content | None
    contents: Sequence[bytes] | None = None  # made when a row is compared


class KeyWindow:
    """Window of the keys of the last rows of this pass.

    `unique`: the descending number of a row is its key.
    """

    def __init__(self, *, unique: bool) -> None:
        self._unique = unique
        self._neighbours: list[_Neighbour] = []
        self._size = 0  # rows of the neighbors

    def clear(self) -> None:
        """Forget all rows: another pass begins, or the key is given up."""
        self._neighbours.clear()
        self._size = 0

    def add(self, page: PageRows, *, all_new: bool) -> bool:
        """Find the rows that neighboring pages had; False if the key fails.

        The key fails where the page shows that it identifies no row. `all_new`: the order of the list proves
        that no row of the page is repeated.
        """
        descends = self._unique and page.run is not None
        if not descends and _repeats(page):
            return False
        if not all_new and self._meets(page):
            known, repeated = self._known(), set[int]()
            for index, key in enumerate(page.keys):
                if key is not None and key in known:
                    if self._is_other(page, index, *known[key]):
                        return False
                    repeated.add(index)
            page.repeated = repeated
        self._remember(page)
        return True

    def _meets(self, page: PageRows) -> bool:
        """Check for a key that a neighbor has too."""
        keys = set(page.keys)
        return not keys.isdisjoint(chain.from_iterable([other.keys for other in self._neighbours]))

    def _known(self) -> dict[Hashable, tuple[_Neighbour, int]]:
        """Return the keys of the last rows of this pass, and the place of each."""
        places = [(page, index) for page in self._neighbours for index in range(len(page.keys))]
        return {page.keys[index]: (page, index) for page, index in places[-NEIGHBOURS:]}

    def _remember(self, page: PageRows) -> None:
        if not page.size:
            return
        neighbours = self._neighbours
        content = page.content if self._unique else None
        neighbours.append(_Neighbour(page.keys, page.numbers, page.size, content))
        self._size += page.size
        while self._size - neighbours[0].size >= NEIGHBOURS:
            self._size -= neighbours.pop(0).size

    def _is_other(self, page: PageRows, index: int, known: _Neighbour, place: int) -> bool:
        """Check whether a row differs from a row with the same key.

        A row keeps its number, while its other fields may change. Only where the number is the key, the row
        consists of them.
        """
        if self._unique:
            if known.contents is None:
                known.contents = () if known.content is None else known.content.canonical_rows()
            return not known.contents or page.contents[index] != known.contents[place]
        return (
            page.numbers is not None
            and known.numbers is not None
            and page.numbers[index] != known.numbers[place]
        )


def _repeats(page: PageRows) -> bool:
    """Check whether two rows share a key; a row without a key shares none."""
    distinct = len(page.distinct)
    if None not in page.distinct:
        return distinct < page.size
    given = [key for key in page.keys if key is not None]
    return distinct - 1 < len(given)
