"""Benchmark of tables: `python -m tests.bench.tables`.

CPU time of this process a page, as ratios to a hand-written loop of aiohttp and msgspec Structs that drops
its rows. All walks of a line run side by side in each round; a figure is the median of the rounds.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pyarrow as pa

from chainapi import Session
from tests.bench import walks
from tests.bench.figures import shown
from tests.bench.pages import canned_server

PAGES = 60
ROUNDS = 9

Walk = Callable[[str], Awaitable[int]]


async def by_hand(base: str, path: str, body: type[Any], items: str) -> int:
    """Walk by hand into Structs, and make a table of them: a list for each column."""
    decoder, rows = msgspec.json.Decoder(body), list[Any]()
    async for content, box in walks.bodies(base, path):
        page = decoder.decode(content)
        rows += getattr(page, items)
        box[0] = page.nextPageToken
    names = rows[0].__struct_fields__
    table = pa.table({name: [getattr(row, name) for row in rows] for name in names})
    return int(table.num_rows)


async def dropped(base: str, path: str, body: type[Any], items: str) -> int:
    """Walk by hand into Structs, and drop them."""
    decoder, rows = msgspec.json.Decoder(body), 0
    async for content, box in walks.bodies(base, path):
        page = decoder.decode(content)
        rows, box[0] = rows + len(getattr(page, items)), page.nextPageToken
    return rows


async def dropped_blocks(base: str) -> int:
    """Walk blocks by hand."""
    return await dropped(base, walks.BLOCKS, walks.BlockBody, "blocks")


async def dropped_points(base: str) -> int:
    """Walk points by hand."""
    return await dropped(base, walks.POINTS, walks.PointBody, "results")


async def blocks_by_hand(base: str) -> int:
    """Make a table of blocks by hand; numbers stay texts."""
    return await by_hand(base, walks.BLOCKS, walks.BlockBody, "blocks")


async def points_by_hand(base: str) -> int:
    """Make a table of points by hand."""
    return await by_hand(base, walks.POINTS, walks.PointBody, "results")


def blocks(session: Session) -> Any:
    """Return a stream of blocks."""
    return session.data.evm.blocks(43114, page_size=100)


def points(session: Session) -> Any:
    """Return a stream of points."""
    return session.metrics.avg_tps(43114)


def reading(stream: Callable[[Session], Any], read: Callable[[Any], Awaitable[int]]) -> Walk:
    """Return a walk of chainapi, with a session of its own."""

    async def walk(base: str) -> int:
        async with Session(metrics_base_url=base, data_base_url=base, api_key="k") as session:
            return await read(stream(session))

    return walk


async def to_arrow(pages: Any) -> int:
    """Read all rows as one table."""
    return int((await pages.to_arrow()).num_rows)


async def arrow_batches(pages: Any) -> int:
    """Read a record batch a page."""
    rows = 0
    async for batch in pages.arrow_batches():
        rows += batch.num_rows
    return rows


async def collect(pages: Any) -> int:
    """Read all rows as objects."""
    return len(await pages.collect())


async def list_of_pages(pages: Any) -> int:
    """Read pages."""
    rows = 0
    async for page in pages:
        rows += len(page)
    return rows


async def table_of_objects(pages: Any) -> int:
    """Read all rows as objects, and make a table of their dicts."""
    rows = await pages.collect()
    return int(pa.Table.from_pylist([row.to_dict() for row in rows]).num_rows)


READS = (to_arrow, arrow_batches, list_of_pages, collect, table_of_objects)


async def once(walk: Walk, base: str) -> int:
    """Walk once."""
    return await walk(base)


def measured(base: str, contestants: dict[str, Walk]) -> dict[str, list[float]]:
    """Return the ratios of each contestant to the first one, by rounds."""
    took = dict.fromkeys(contestants, 0.0)
    ratios: dict[str, list[float]] = {name: [] for name in contestants}
    expected = None
    for number in range(ROUNDS + 1):
        for name, walk in contestants.items():
            gc.collect()
            began = time.process_time()
            rows = asyncio.run(once(walk, base))
            took[name] = time.process_time() - began
            expected = expected or rows
            assert rows == expected, name
        first = took[next(iter(took))]
        for name in contestants:
            if number:  # the first round loads modules
                ratios[name].append(took[name] / first)
    return ratios


def show(rows: int, stream: Callable[[Session], Any], loop: Walk, table: Walk) -> None:
    """Print the ratios of one kind of page."""
    contestants = {"Structs by hand, dropped": loop, "Structs by hand, as a table": table}
    contestants |= {read.__name__: reading(stream, read) for read in READS}
    with canned_server(PAGES, rows) as base:
        for name, ratios in measured(base, contestants).items():
            print(f"| {rows:,} {stream.__name__} | {name} | {shown(ratios)} |", flush=True)


def main() -> None:
    """Print all ratios."""
    print("| rows a page | walk | CPU, Structs by hand = 1 |\n|---|---|---|")
    show(100, blocks, dropped_blocks, blocks_by_hand)
    show(2_160, points, dropped_points, points_by_hand)


if __name__ == "__main__":
    main()
