"""Large bodies: decoded step by step, in memory that is bounded."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from itertools import chain
from typing import Any

import pytest

from chainapi import Invalid, MetricPoint
from chainapi.errors import DecodeError
from chainapi.models import ChainInfo, EvmBlock
from chainapi.models.codec import PART, PageDecoder, decode_resource
from chainapi.models.error_body import decode_error
from chainapi.models.sizes import LARGE
from tests.documents import Maker
from tests.sessions import Answering, reaching

MOST = 32  # times its size that a body may take while it is decoded, rows and all
MOST_ODD = 80  # the same where all rows of a page are odd ones


class Ticks:
    """Counter of the turns that another task gets."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the other task."""
        self._task.cancel()
        await asyncio.wait([self._task])


def page_of(rows: list[Any], items: str = "blocks") -> bytes:
    """Return a page of these rows."""
    return json.dumps({items: rows, "status": 200}).encode()


def blocks(count: int) -> list[dict[str, Any]]:
    """Return blocks from a number down."""
    block = Maker(seed=1, whole=True).record(EvmBlock)
    return [
        {**block, "blockNumber": count - place, "blockHash": f"0x{place}", "blockTimestamp": 10**9 - place}
        for place in range(count)
    ]


# Steps


@pytest.mark.rule
@pytest.mark.parametrize("model", [None, EvmBlock, MetricPoint])
async def test_a_large_page_is_what_its_parts_are(model: Any) -> None:
    """Rows of a large page equal those of small pages."""
    maker = Maker(seed=4)
    kind = EvmBlock if model is None else model
    rows = [maker.value(kind) for _ in range(900 if model is not MetricPoint else 7_000)]
    for place in range(5, len(rows), 301):
        rows[place] = {**rows[place], "news": place}
    body = page_of(rows)
    assert len(body) > LARGE
    decoder = PageDecoder(model, "blocks", [("status", int)])
    page = decoder.decode(body)
    small = [decoder.decode(page_of(rows[at : at + 100])).rows for at in range(0, len(rows), 100)]
    assert page.rows == [*chain(*small)]
    assert page.extra == (200,)
    if model is not None:
        extras = [place for place, row in enumerate(page.rows) if "news" in row.extra]
        assert extras == [*range(5, len(rows), 301)]
        assert all(page.rows[place].extra["news"] == place for place in extras)


async def test_other_tasks_go_on_while_a_large_page_is_decoded() -> None:
    """Between two steps another task runs; an ordinary page takes no step."""
    rows = blocks(3_000)
    assert list(PageDecoder(EvmBlock, "blocks").steps(page_of(rows[:500]))) == []
    async with reaching(Answering(page_of(rows))) as session:
        ticks = Ticks()
        pages = session.data.evm.blocks(1)
        page = await anext(pages)
        await ticks.stop()
    assert len(page) == 3_000
    assert ticks.count > 3_000 // PART


@pytest.mark.rule
def test_an_error_in_a_large_page_names_its_row() -> None:
    """An error in a large page has the path and the number of its row."""
    rows = blocks(2_000)
    rows[1_234]["gasUsed"] = rows[1_500]["gasUsed"] = "much"
    with pytest.raises(DecodeError) as caught:
        PageDecoder(EvmBlock, "blocks").decode(page_of(rows))
    assert (caught.value.path, caught.value.row) == ("$.blocks[1234].gasUsed", 1_234)
    page = PageDecoder(EvmBlock, "blocks", shown=lambda fault: fault).decode(page_of(rows))
    odd = [place for place, row in enumerate(page.rows) if isinstance(row, Invalid)]
    assert odd == [1_234, 1_500]


@pytest.mark.parametrize("items", [True, False])
@pytest.mark.parametrize("cancelled_after", [None, 1, 3])
async def test_rows_of_a_huge_page_are_counted_in_a_thread(items: bool, cancelled_after: int | None) -> None:
    """A reader that is cancelled meanwhile loses no row."""
    rows = [{"number": place, "text": "x" * 300} for place in range(4_000)]
    body = page_of(rows, "rows")
    assert len(body) > 2**20
    async with reaching(Answering(body)) as session:
        pages = session.data.list("/v1/rows", items="rows", key="number")
        reading = asyncio.create_task(first(pages, items=items))
        if cancelled_after is not None:
            for _ in range(4_000 // PART + cancelled_after):
                await asyncio.sleep(0)
            reading.cancel()
        await asyncio.wait([reading])
        begun = [] if reading.cancelled() else reading.result()
        rest = await pages.collect()
    assert [*begun, *rest] == rows


async def first(pages: Any, *, items: bool) -> list[Any]:
    """Return the first row, or the first page."""
    if items:
        async for row in pages.items():
            return [row]
    return [*await anext(pages)]


# Memory

BOMBS = {
    "lists": b"[]",
    "objects": b"{}",
    "one field": b'{"a":1}',
    "texts": b'"a"',
    "longer texts": b'"abcdefghij"',
    "floats": b"1.5",
    "decimals": b"1e999",
    "numbers": b"300",
    "null": b"null",
    "sparse lists": b"[123456789]",
    "sparse objects": b'{"a":"1234"}',
    "nested": b'{"a":{"a":"123456789"}}',
    "news": b'{"a":1,"abcdefghijk":[300]}',
}
SIZE = LARGE + 50_000


def bomb(row: bytes, shape: str) -> bytes:
    """Return a body of small values: as rows of a page, or within one row."""
    inner = b",".join([row] * (SIZE // (len(row) + 1)))
    return {"rows": b'{"rows":[%b]}', "row": b'{"rows":[[%b]]}', "field": b'{"rows":[{"x":[%b]}]}'}[
        shape
    ] % inner


def peak(work: Any, *arguments: Any) -> int:
    """Return the peak of bytes that a piece of work takes, its result included."""
    tracemalloc.start()
    try:
        result = work(*arguments)
        return tracemalloc.get_traced_memory()[1]
    except DecodeError:
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        result = None
        del result


@pytest.mark.proof
@pytest.mark.parametrize("shape", ["rows", "row", "field"])
@pytest.mark.parametrize("name", BOMBS)
def test_memory_is_a_multiple_of_the_body(name: str, shape: str) -> None:
    """Decoding takes at most 32 times the size of any body."""
    body = bomb(BOMBS[name], shape)
    for model in (None, ChainInfo):
        assert peak(PageDecoder(model, "rows").decode, body) <= MOST * len(body)
        assert peak(decode_resource, body, model) <= MOST * len(body)
    assert peak(PageDecoder().decode, body) <= MOST * len(body)
    assert peak(decode_error, body) <= MOST * len(body)
    tolerant = PageDecoder(ChainInfo, "rows", shown=lambda fault: fault)
    assert peak(tolerant.decode, body) <= MOST_ODD * len(body)


@pytest.mark.parametrize("row", [b"[]", b'"a"'])
async def test_the_refusal_names_the_remedy(row: bytes) -> None:
    """A body of very many small values is refused without another attempt."""
    transport = Answering(bomb(row, "rows"))
    async with reaching(transport) as session:
        with pytest.raises(DecodeError, match=r"would take too much memory: .* request smaller pages"):
            await anext(session.data.list("/v1/rows", items="rows"))
    assert len(transport.requests) == 1


async def test_small_bodies_may_be_dense() -> None:
    """A body of up to 256 KiB is not refused for its density."""
    body = b'{"rows":[%b]}' % b",".join([b"[]"] * 50_000)
    assert len(body) <= LARGE
    async with reaching(Answering(body)) as session:
        assert len(await session.data.list("/v1/rows", items="rows").collect()) == 50_000
