"""Machine whose reader takes tables and record batches in place of rows.

All else is as in `tests.paging.machine`: what happens, and what must hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from attrs import frozen

from tests.paging.machine import PagingMachine
from tests.paging.service import Label

__all__ = ["TableMachine"]


@frozen
class Row:
    """Row of a service, as a user would write it down."""

    timestamp: int
    value: float
    key: str | None = None


@frozen
class Entry:
    """Row of a table, with the attributes that the machine reads."""

    timestamp: int
    value: float


def entries(table: Any) -> list[Entry]:
    """Return the rows of a table or a record batch, times as Unix time in seconds."""
    numbers = table.column("timestamp").to_pylist()
    values = table.column("value").to_pylist()
    return [
        Entry(number if isinstance(number, int) else round(number.timestamp()), value)
        for number, value in zip(numbers, values, strict=True)
    ]


class TableMachine(PagingMachine):
    """Machine that reads record batches of one row, and whole tables."""

    model = Row

    def _label(self, row: Any) -> Label:
        return int(row.value), int(row.value % 1 * 8)

    def _number(self, row: Any) -> int:
        return int(row.timestamp)

    async def _each(self) -> AsyncIterator[Entry]:
        async for batch in self.pages.arrow_batches(size=1):
            (row,) = entries(batch)
            yield row

    async def _all(self, limit: int | None) -> Any:
        return await self.pages.to_arrow(limit)

    def _listed(self, result: Any) -> list[Any]:
        return [] if result is None else entries(result)
