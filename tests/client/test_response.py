"""Raw responses, of pages and by `get_response`, and large bodies."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
import weakref
from itertools import chain
from typing import Any
from urllib.parse import quote

import pytest

from chainapi import Cache, Invalid, MetricPage, MetricPoint, Page, Session
from chainapi.errors import ConfigurationError, DecodeError, NotFoundError
from chainapi.models import ChainInfo, EvmBlock, SharedSecret
from chainapi.models.codec import PART, PageDecoder, decode_resource
from chainapi.models.error_body import decode_error
from chainapi.models.sizes import LARGE
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.answers import refused, rows_of
from tests.client.services import Script
from tests.documents import Maker
from tests.sessions import Answering, reaching, simulated

BLOCKS = "/v1/chains/43114/blocks"
KEY = "secret-key/of-the-caller"


def echoing(body: bytes = b'{"a": 0.12345678901234567890}') -> tuple[Session, Script]:
    """Return a session with a key, and its transport, whose responses repeat the headers of the request."""

    def echo(request: Request) -> Response:
        told = {"link": f"<?key={quote(KEY, '')}>", "x-request-id": "id-7", "content-type": "text/plain"}
        return Response(200, {"x-echo": str(request.headers), **told}, body)

    transport = Script(echo)
    return reaching(transport, api_key=KEY), transport


async def test_pages_have_their_responses() -> None:
    """`page.response` has status, headers, seconds and the body of the attempt that returned the page."""
    simulator = Simulator(rows=30, latency=0.25, faults=[Fault(at=1, status=503)])
    async with simulated(simulator) as session:
        pages = session.data.list(BLOCKS, page_size=20, prefetch=1)
        seen = [page async for page in pages]
    assert [page.response.status for page in seen] == [200, 200]
    assert [page.response.elapsed for page in seen] == [pytest.approx(0.25)] * 2
    for page in seen:
        assert page.response.headers["content-type"] == "application/json; charset=utf-8"
        assert page.response.body is page.body
        assert page.response.json() == page.raw
        assert page.response.request_id is None


async def test_a_response_by_path() -> None:
    """`get_response` returns the body as it was sent, and the id of the request."""
    session, transport = echoing()
    async with session:
        response = await session.data.get_response("/v1/chains/43114", level=3, tag="t")
    assert transport.requests[0].url == "https://data.test/v1/chains/43114?level=3"
    assert (response.status, response.request_id, len(response.body)) == (200, "id-7", 29)
    assert str(response.json()["a"]) == "0.12345678901234567890"
    assert repr(response) == "RawResponse(status=200, body=<29 bytes>, elapsed=0.000, age=0.000)"
    assert weakref.ref(response)() is response


async def test_the_key_is_masked_in_headers() -> None:
    """A key that the service repeats in a header of its response is masked there, and in no repr."""
    async with echoing(b'{"rows": []}')[0] as session:
        page = await anext(session.data.list("/v1/rows"))
        response = await session.data.get_response("/v1/rows")
    for headers in (page.response.headers, response.headers):
        assert "x-echo" in headers
        assert KEY not in str(headers)
        assert (headers["link"], headers["x-request-id"]) == ("<?key=***>", "id-7")
    assert KEY not in repr(page) + repr(response) + repr(page.response)


@pytest.mark.parametrize("sharing", [{}, {"coalesce": True}, {"cache": Cache(60.0)}])
async def test_a_body_that_is_not_json(sharing: dict[str, Any]) -> None:
    """`get_response` returns a body of any kind, coalesced and cached too, which `get` then refuses."""
    session, transport = echoing(b"a,b")
    async with session:
        view = session.with_options(max_attempts=2, **sharing)
        for _ in range(2):
            assert (await view.data.get_response("/v1/page")).body == b"a,b"
        assert len(transport.requests) == (1 if "cache" in sharing else 2)
        transport.requests.clear()
        with pytest.raises(DecodeError):
            await view.data.get("/v1/page")
        assert len(transport.requests) == 2


async def test_errors_and_arguments_are_those_of_get() -> None:
    """An error status raises, and a misspelt or foreign argument is refused."""
    async with simulated(Simulator()) as session:
        with pytest.raises(NotFoundError):
            await session.data.get_response("/v1/nowhere")
        examples: list[dict[str, Any]] = [{"model": dict}, {"priorty": 1}, {"page_size": 3}]
        for wrong in examples:
            with pytest.raises(ConfigurationError):
                await session.data.get_response(BLOCKS, **wrong)


# Reprs


async def test_reprs_fit_into_a_line() -> None:
    """A page, its rows and its response show counts, ends and the token in 110 characters, and no secret."""
    simulator = Simulator(rows=250, points=5)
    async with simulated(simulator, metrics_base_url=simulator.metrics_base_url) as session:
        blocks = await anext(session.data.evm.blocks(43114))
        points = await anext(session.metrics.avg_tps(43114))
        plain = await anext(session.data.list(BLOCKS, page_size=1))
        chains = await anext(session.data.chains())
        transactions = await anext(session.data.evm.transactions(43114))
        validators = await anext(session.data.primary_network.validators("mainnet"))
    pages: list[Page[Any]] = [blocks, points, plain, chains, transactions, validators]
    assert repr(blocks) == (
        "<Page: 100 EvmBlock rows, 2026-01-01 00:00:00 to 2025-12-31 23:56:42, page token>"
    )
    assert repr(points) == (
        "<MetricPage: 5 MetricPoint rows, 2026-01-01 00:00:00 to 2025-12-28 00:00:00, no page token>"
    )
    assert repr(plain) == "<Page: 1 row, 2026-01-01 00:00:00, page token>"
    assert repr(chains).startswith("<Page: 6 ChainInfo rows, 43114 to ")
    for page in pages:
        assert page.next_page_token is None or page.next_page_token not in repr(page)
        for text in map(repr, [page, *(row for row in page if not isinstance(row, dict))]):
            assert len(text) <= 110
    assert repr(points.items[0]).startswith("MetricPoint(timestamp=1767225600, value=")
    shown = r"\w+Validator\(tx_hash='\w{12}\.\.\.\w{5}', node_id='NodeID-\w{5}\.\.\.\w{5}', \.\.\.\)"
    assert re.fullmatch(shown, repr(validators.items[0]))
    assert repr(SharedSecret(secret="hidden")) == "SharedSecret()"


def test_reprs_of_odd_rows() -> None:
    """Rows without a time or a key, of any class, have a repr too."""
    block = {"blockTimestamp": 10**30, "none": None}
    checkpoint: Any = None
    examples: list[tuple[list[Any], str]] = [
        ([], "0 rows"),
        ([block], "1 row, " + str(10**30)),
        ([{}], "1 row, {}"),
        (["0x" + "ab" * 40], "1 row, 0xababababab...babab"),
        ([3, 4], "2 int rows, 3 to 4"),
        ([None], "1 NoneType row, None"),
        ([{"a": [1, 2]}, {"a": {"b": 1}}], "2 rows, <2 entries> to <1 entry>"),
    ]
    for rows, text in examples:
        assert repr(Page(rows, None, checkpoint, 0)) == f"<Page: {text}, no page token>"
    assert repr(MetricPage([], "t", checkpoint, 0)) == "<MetricPage: 0 rows, page token>"


# Large bodies: decoded step by step, in memory that is bounded


MOST = 32  # times its size that a body may take while it is decoded, rows and all
MOST_ODD = 80  # the same where all rows of a page are odd ones


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
    rows, turns = blocks(3_000), 0
    assert list(PageDecoder(EvmBlock, "blocks").steps(page_of(rows[:500]))) == []
    async with reaching(Answering(page_of(rows))) as session:
        reading = asyncio.ensure_future(anext(session.data.evm.blocks(1)))
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
    assert len(reading.result()) == 3_000
    assert turns > 3_000 // PART


def test_an_error_in_a_large_page_names_its_row() -> None:
    """An error in a large page has the path and the number of its row."""
    rows = blocks(2_000)
    rows[1_234]["gasUsed"] = rows[1_500]["gasUsed"] = "much"
    error = refused(rows_of, page_of(rows), EvmBlock, "blocks")
    assert (error.path, error.row) == ("$.blocks[1234].gasUsed", 1_234)
    found = rows_of(page_of(rows), EvmBlock, "blocks", on_invalid="raw")
    assert [place for place, row in enumerate(found) if isinstance(row, Invalid)] == [1_234, 1_500]


@pytest.mark.parametrize("items", [True, False])
@pytest.mark.parametrize("cancelled_after", [None, 1, 3])
async def test_rows_of_a_huge_page_are_counted_in_a_thread(items: bool, cancelled_after: int | None) -> None:
    """A reader that is cancelled meanwhile loses no row."""
    rows = [{"number": place, "text": "x" * 300} for place in range(4_000)]
    body = page_of(rows, "rows")
    assert len(body) > 2**20
    async with reaching(Answering(body)) as session:
        pages = session.data.list("/v1/rows", items="rows", key="number")
        reading = asyncio.ensure_future(anext(pages.items()) if items else anext(pages))
        if cancelled_after is not None:
            for _ in range(4_000 // PART + cancelled_after):
                await asyncio.sleep(0)
            reading.cancel()
        await asyncio.wait([reading])
        begun: Any = [] if reading.cancelled() else [reading.result()] if items else reading.result()
        rest = await pages.collect()
    assert [*begun, *rest] == rows


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
