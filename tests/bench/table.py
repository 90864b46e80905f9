"""Walks beside loops that people write: ``python -m tests.bench.table [--markdown | --tables] [WORD...]``.

Each line is one kind of work; with words, only the lines whose names have all of them. Figures are CPU
seconds of the client by those of a loop of aiohttp and msgspec Structs in the same round: median (least to
greatest) of the rounds. Rounds end after some seconds, and there are three at least. ``--markdown`` prints
the table of docs/speed.md, with a column for each client; ``--tables`` compares the ways to a table instead.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, get_type_hints

import aiohttp
import cattrs
import msgspec
import pyarrow as pa
import pydantic
from attrs import evolve, frozen
from pydantic.alias_generators import to_camel
from yarl import URL

from chainapi import MetricPoint, Pages, Session
from chainapi.models import EvmBlock
from tests.bench.figures import row, shown
from tests.bench.pages import BLOCKS, POINTS, canned_server

SECONDS, LEAST, MOST = 12.0, 3, 9  # of the rounds of a line, and their numbers


@frozen
class Work:
    """Walks to do: their number, which are at once, and their pages.

    `nulls` counts the rows from one with null to the next; 0 is without.
    """

    name: str
    path: str
    rows: int
    pages: int
    walks: int = 1
    nulls: int = 0

    @property
    def total(self) -> int:
        """Rows of all walks."""
        return self.rows * self.pages * self.walks


@frozen
class Contestant:
    """Client that walks: `opened` with a base address, then `walk` for each walk.

    `begin` fetches a first page, which is not measured: it loads certificates, and opens a connection. `walk`
    returns the number of rows.
    """

    name: str
    opened: Callable[[str], AbstractAsyncContextManager[Any]]
    begin: Callable[[Any, Work], Awaitable[object]]
    walk: Callable[[Any, Work], Awaitable[int]]

    async def run(self, base: str, work: Work) -> float:
        """Do the work, and return the CPU seconds that it took."""
        async with self.opened(base) as client:
            await self.begin(client, work)
            gc.collect()
            began = time.process_time()
            rows = sum(await asyncio.gather(*(self.walk(client, work) for _ in range(work.walks))))
            took = time.process_time() - began
        if rows != work.total:
            raise RuntimeError(f"{self.name}: {rows} rows of {work.total}")
        return took

    def cpu(self, base: str, work: Work) -> float:
        """Do the work in an event loop of its own, and return the CPU seconds that it took."""
        return asyncio.run(self.run(base, work))


# Rows as users write them down


@frozen
class Block:
    """A block."""

    block_number: int
    block_timestamp: int
    block_hash: str
    parent_hash: str
    tx_count: int
    base_fee: int
    gas_used: int
    gas_limit: int
    gas_cost: int
    fees_spent: int
    cumulative_transactions: int


@frozen
class Point:
    """A point of a metric."""

    timestamp: int
    value: float


NUMBERS = {"block_timestamp": int, "tx_count": int, "timestamp": int, "value": float}  # others are texts
FIELDS = {BLOCKS: "blocks", POINTS: "results"}
MODELS: dict[str, type[Any]] = {BLOCKS: Block, POINTS: Point}
OURS: dict[str, Any] = {BLOCKS: list[EvmBlock], POINTS: list[MetricPoint]}


@cache
def struct_of(path: str) -> Any:
    """Return the Struct of a page, with rows as they are on the wire."""
    fields = [(name, NUMBERS.get(name, str)) for name in get_type_hints(MODELS[path])]
    kind = msgspec.defstruct("Row", fields, rename="camel")
    return msgspec.defstruct("Body", [(FIELDS[path], list[kind]), ("nextPageToken", str | None, None)])  # type: ignore[valid-type]


@cache
def pydantic_of(path: str) -> Any:
    """Return the Pydantic model of a page."""
    fields: Any = {name: (kind, ...) for name, kind in get_type_hints(MODELS[path]).items()}
    kind: Any = pydantic.create_model("Row", __config__={"alias_generator": to_camel}, **fields)
    page: Any = {FIELDS[path]: (list[kind], ...), "nextPageToken": (str | None, None)}
    return pydantic.create_model("Page", **page)


CONVERTER = cattrs.Converter(detailed_validation=False)
_renamed: Any = {name: cattrs.gen.override(rename=to_camel(name)) for name in get_type_hints(Block)}
CONVERTER.register_structure_hook(Block, cattrs.gen.make_dict_structure_fn(Block, CONVERTER, **_renamed))


# Loops by hand: each reads a body and returns its rows and the next token.

Rows = Sequence[Any]
Read = Callable[[bytes], tuple[Rows, str | None]]


def _typed(path: str, decode: Callable[[bytes], Any], make: Callable[[Rows], Rows] | None = None) -> Read:
    name = FIELDS[path]

    def read(body: bytes) -> tuple[Rows, str | None]:
        page = decode(body)
        rows = getattr(page, name)
        return rows if make is None else make(rows), page.nextPageToken

    return read


def _untyped(path: str, make: Callable[[Rows], Rows] | None = None) -> Read:
    name = FIELDS[path]

    def read(body: bytes) -> tuple[Rows, str | None]:
        page = json.loads(body)
        rows = page[name]
        return rows if make is None else make(rows), page.get("nextPageToken")

    return read


def raw(path: str) -> Read:
    """Read nothing: a search in the bytes finds the token."""
    rows = range(100)

    def read(body: bytes) -> tuple[Rows, str | None]:
        found = re.search(rb'"nextPageToken":"([^"]+)"', body)
        return rows, found[1].decode() if found else None

    return read


def structs(path: str) -> Read:
    """Read Structs."""
    return _typed(path, msgspec.json.Decoder(struct_of(path)).decode)


def same_objects(path: str) -> Read:
    """Read the objects that chainapi makes."""

    def make(rows: Rows) -> Rows:
        made: Rows = msgspec.convert(rows, OURS[path], from_attributes=True, strict=False)
        return made

    return _typed(path, msgspec.json.Decoder(struct_of(path)).decode, make)


def dicts(path: str) -> Read:
    """Read dicts with the json module."""
    return _untyped(path)


def pydantic_models(path: str) -> Read:
    """Read models of Pydantic."""
    return _typed(path, pydantic_of(path).model_validate_json)


def plain_cattrs(path: str) -> Read:
    """Read attrs objects with json and cattrs."""
    kind: Any = MODELS[path]
    several: Any = list[kind]
    return _untyped(path, lambda rows: CONVERTER.structure(rows, several))


def by_hand(
    name: str, reader: Callable[[str], Read], made: Callable[[list[Any]], int] | None = None
) -> Contestant:
    """Return a loop over aiohttp; with `made` it keeps all rows, makes something of them, and counts that."""

    async def begin(client: tuple[aiohttp.ClientSession, str], work: Work) -> object:
        async with client[0].get(URL(f"{client[1]}{work.path}?pageSize={work.rows}", encoded=True)) as answer:
            return await answer.read()

    async def walk(client: tuple[aiohttp.ClientSession, str], work: Work) -> int:
        (http, base), read = client, reader(work.path)
        kept, rows, token = list[Any](), 0, ""
        while True:
            query = f"?pageSize={work.rows}" + (f"&pageToken={token}" if token else "")
            async with http.get(URL(base + work.path + query, encoded=True)) as answer:
                answer.raise_for_status()
                page, found = read(await answer.read())
            rows += len(page)
            if made is not None:
                kept += page
            if not found:
                return rows if made is None else made(kept)
            token = found

    return Contestant(name, _Http, begin, walk)


class _Http:
    """Client of aiohttp with its base address."""

    def __init__(self, base: str) -> None:
        self._base = base

    async def __aenter__(self) -> tuple[aiohttp.ClientSession, str]:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        return self._http, self._base

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()


# chainapi, with all that it does


def session(base: str) -> Session:
    """Return a session."""
    return Session(metrics_base_url=base, data_base_url=base, api_key="k")


def stream(client: Session, work: Work) -> Pages[Any]:
    """Return the stream of a walk."""
    if work.path == BLOCKS:
        return client.data.evm.blocks(43114, page_size=work.rows)
    return client.metrics.avg_tps(43114)


async def first_page(client: Session, work: Work) -> object:
    """Fetch a page."""
    return await anext(stream(client, work))


async def pages(client: Session, work: Work) -> int:
    """Walk page by page."""
    return sum([len(page) async for page in stream(client, work)])


async def items(client: Session, work: Work) -> int:
    """Walk row by row."""
    rows = 0
    async for _ in stream(client, work).items():
        rows += 1
    return rows


async def collect(client: Session, work: Work) -> int:
    """Collect all rows."""
    return len(await stream(client, work).collect())


async def to_arrow(client: Session, work: Work) -> int:
    """Read all rows as one table of Arrow."""
    return int((await stream(client, work).to_arrow()).num_rows)


async def arrow_batches(client: Session, work: Work) -> int:
    """Read a record batch a page."""
    return sum([batch.num_rows async for batch in stream(client, work).arrow_batches()])


async def table_of_objects(client: Session, work: Work) -> int:
    """Collect all rows, and make a table of their dicts."""
    rows = await stream(client, work).collect()
    return int(pa.Table.from_pylist([row.to_dict() for row in rows]).num_rows)


def columns(rows: list[Any]) -> int:
    """Make a table of Structs: a list for each column; numbers of blocks stay texts."""
    names = rows[0].__struct_fields__
    return int(pa.table({name: [getattr(row, name) for row in rows] for name in names}).num_rows)


STRUCT = by_hand("Struct", structs)
SAME = by_hand("same objects", same_objects)
PYDANTIC = by_hand("pydantic", pydantic_models)
PAGES = Contestant("pages", session, first_page, pages)
ITEMS = Contestant("items", session, first_page, items)
COLLECT = Contestant("collect", session, first_page, collect)
BY_HAND = (STRUCT, SAME, by_hand("json", dicts), PYDANTIC, by_hand("cattrs", plain_cattrs))
ARROW = Contestant("to_arrow", session, first_page, to_arrow)
ALL = (*BY_HAND, PAGES, ITEMS, COLLECT, ARROW)
TABLES = (
    STRUCT,
    by_hand("Structs as a table", structs, columns),
    ARROW,
    Contestant("arrow_batches", session, first_page, arrow_batches),
    PAGES,
    COLLECT,
    Contestant("table_of_objects", session, first_page, table_of_objects),
)
FEW = (STRUCT, SAME, PYDANTIC, PAGES, COLLECT)


LINES: tuple[tuple[Work, tuple[Contestant, ...]], ...] = (
    (Work("10 blocks, 1 walk", BLOCKS, 10, 400), ALL),
    (Work("10 blocks, 64 walks", BLOCKS, 10, 8, 64), ALL),
    (Work("10 blocks, 1,000 walks", BLOCKS, 10, 2, 1_000), FEW),
    (Work("100 blocks, 1 walk", BLOCKS, 100, 200), ALL),
    (Work("100 blocks, 64 walks", BLOCKS, 100, 4, 64), ALL),
    (Work("100 blocks, 1,000 walks", BLOCKS, 100, 2, 1_000), FEW),
    (Work("100 blocks, null in each 7th row", BLOCKS, 100, 200, nulls=7), FEW),
    (Work("2,160 points, 1 walk", POINTS, 2_160, 60), ALL),
    (Work("2,160 points, 64 walks", POINTS, 2_160, 2, 64), ALL),
)


def measure(
    work: Work, contestants: Sequence[Contestant], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Return the CPU of each contestant by that of the first, in each round."""
    points = work.rows if work.path == POINTS else 100
    blocks = work.rows if work.path == BLOCKS else 100
    ratios: dict[str, list[float]] = {one.name: [] for one in contestants}
    with canned_server(work.pages, points, rows=blocks, nulls=work.nulls) as base:
        for one in contestants:  # models and modules load
            one.cpu(base, evolve(work, walks=1))
        began, rounds = time.monotonic(), 0
        while rounds < LEAST or (rounds < MOST and time.monotonic() - began < seconds):
            took = [one.cpu(base, work) for one in contestants]
            for one, own in zip(contestants, took, strict=True):
                ratios[one.name].append(own / took[0])
            rounds += 1
    return ratios


def chosen(words: Sequence[str]) -> Iterator[tuple[Work, dict[str, list[float]]]]:
    """Measure the lines whose names have all words."""
    for work, contestants in LINES:
        if all(word in work.name for word in words):
            yield work, measure(work, contestants)


def main(words: Sequence[str] = ()) -> None:
    """Print the lines whose names have all words, each with its target."""
    for work, measured in chosen(words):
        ratios = ", ".join(f"{name} {shown(of)}" for name, of in list(measured.items())[1:])
        most = target(work) + ("; to_arrow <= 1.00" if "to_arrow" in measured else "")
        row(f"{work.name}, against Structs by hand", ratios, most)


def markdown(words: Sequence[str] = ()) -> None:
    """Print the table of the docs: lines by clients, as ratios to Structs by hand."""
    names = [one.name for one in ALL[1:]]
    row("", *names, head=True)
    for work, measured in chosen(words):
        row(work.name, *(shown(measured[name]) if name in measured else "" for name in names))


def tables() -> None:
    """Print the ways to a table, as ratios to Structs by hand that are dropped."""
    row("work", "client", "CPU, Structs by hand = 1", head=True)
    for work in (Work("100 blocks", BLOCKS, 100, 60), Work("2,160 points", POINTS, 2_160, 60)):
        for name, ratios in measure(work, TABLES).items():
            row(work.name, name, shown(ratios))


def target(work: Work) -> str:
    """Return the target of a line."""
    if work.path == POINTS:
        return "pages <= 1.20"
    most = 1.6 if work.rows == 10 or work.walks == 1_000 else 1.5
    return f"pages <= {most:.2f}, and <= 1.20 of the same objects"


if __name__ == "__main__":
    given = sys.argv[1:]
    if "--tables" in given:
        tables()
    elif "--markdown" in given:
        markdown([word for word in given if word != "--markdown"])
    else:
        main(given)
