"""Rows of one page that an export adds, encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from chainapi.tables.values import Values

__all__ = ["PageRows"]


class PageRows(Struct, eq=False):
    """Rows of one page.

    Attributes:
        label: label of their source.
        count: their number.
        lines: the rows as JSON lines, with the label in front; empty if there are `values`.
        values: values of each column (`Codec.values`), for formats that take them; None otherwise.
        lowest: least number among the rows, of the number that orders their list; None if one has none.
        highest: greatest number among them.

    """

    label: str
    count: int
    lines: bytes = b""
    values: Sequence[Values] | None = None
    lowest: int | None = None
    highest: int | None = None

    def each(self) -> Iterator[PageRows]:
        """Yield each row of JSON lines alone."""
        for line in self.lines.split(b"\n")[:-1]:
            yield structs.replace(self, count=1, lines=line + b"\n")

    def chosen(self, places: Sequence[int]) -> PageRows:
        """Return the rows of JSON lines at some places."""
        lines = self.lines.split(b"\n")
        content = b"".join([lines[place] + b"\n" for place in places])
        return structs.replace(self, count=len(places), lines=content)
