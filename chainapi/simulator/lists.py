"""Lists of a service: their rows, and the sizes of their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field

from chainapi.simulator.injection import Injector
from chainapi.simulator.matching import Segments
from chainapi.simulator.rows import RowSource, View
from chainapi.simulator.validation import whole_number

__all__ = ["DEFAULT_PAGE_SIZE", "Listing", "page_size"]

DEFAULT_PAGE_SIZE = 10
MAX_PAGE_SIZE = 100


@define(eq=False)
class Listing:
    """List of a service.

    Attributes:
        name: name of the field that holds the rows of a page.
        source: source of its rows.
        select: returns the part of the list that a query selects, with its page fields, or raises HTTPError.
        page_size: rows of a page if the query names no size; None for all rows.
        grows: whether rows can be added at the head.
        fixed: whether the query may not choose the page size.
        sizes: least and greatest page size that a query may choose.
        place: its path.
        injector: anomalies of the list.
        cached: returns whether the part that a query selects stays the same.

    """

    name: str
    source: RowSource
    select: Callable[[Mapping[str, str]], View]
    page_size: int | None = DEFAULT_PAGE_SIZE
    grows: bool = True
    fixed: bool = False
    sizes: tuple[int, int] = (1, MAX_PAGE_SIZE)
    place: Segments = ()
    injector: Injector | None = None
    cached: Callable[[], bool] = lambda: True
    _latest: tuple[Mapping[str, str], View] | None = field(init=False, default=None)

    def view(self, query: Mapping[str, str]) -> View:
        """Return the part of the list that a query selects.

        Raises HTTPError for values that are not valid.
        """
        if not self.cached():
            return self.select(query)
        if self._latest is None or self._latest[0] != query:  # the pages of a walk share a query
            self._latest = dict(query), self.select(query)
        return self._latest[1]


def page_size(listing: Listing, query: Mapping[str, str]) -> int:
    """Return the greatest number of rows of a page.

    Raises HTTPError for a size out of bounds.
    """
    text = query.get("pageSize")
    default = listing.page_size or max(listing.source.size, 1)
    if text is None or listing.fixed:
        return default
    return whole_number("pageSize", text, *listing.sizes) or default
