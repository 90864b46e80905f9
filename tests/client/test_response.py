"""Raw responses: of pages, and by `get_response`."""

from __future__ import annotations

import re
import weakref
from typing import Any
from urllib.parse import quote

import pytest

from chainapi import Cache, MetricPage, Page, Session
from chainapi.errors import ConfigurationError, DecodeError, NotFoundError
from chainapi.models import SharedSecret
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.sessions import simulated

BLOCKS = "/v1/chains/43114/blocks"
KEY = "secret-key/of-the-caller"


class Echo:
    """A transport whose responses have headers, one of them with the key."""

    def __init__(self, body: bytes = b'{"a": 0.12345678901234567890}') -> None:
        self.body = body
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        """Return a response whose headers repeat those of the request."""
        self.requests.append(request)
        echoed = {
            "x-echo": str(request.headers),
            "link": f"<?key={quote(KEY, '')}>",
            "x-request-id": "id-7",
            "content-type": "text/plain",
        }
        return Response(200, echoed, self.body)

    async def aclose(self) -> None:
        """Do nothing."""


def echoing(transport: Echo) -> Session:
    """Return a session with a key that reaches the transport."""
    return Session(data_base_url="https://echo.test", api_key=KEY, transport=transport)


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
    transport = Echo()
    async with echoing(transport) as session:
        response = await session.data.get_response("/v1/chains/43114", level=3, tag="t")
    assert transport.requests[0].url == "https://echo.test/v1/chains/43114?level=3"
    assert (response.status, response.request_id, response.body) == (200, "id-7", transport.body)
    assert str(response.json()["a"]) == "0.12345678901234567890"
    assert repr(response) == "RawResponse(status=200, body=<29 bytes>, elapsed=0.000, age=0.000)"
    assert weakref.ref(response)() is response


async def test_the_key_is_masked_in_headers() -> None:
    """A key that the service repeats in a header of its response is masked there, and in no repr."""
    async with echoing(Echo(b'{"rows": []}')) as session:
        page = await anext(session.data.list("/v1/rows"))
        response = await session.data.get_response("/v1/rows")
    for headers in (page.response.headers, response.headers):
        assert "x-echo" in headers
        assert KEY not in str(headers)
        assert headers["link"] == "<?key=***>"
        assert headers["x-request-id"] == "id-7"
    assert KEY not in repr(page) + repr(response) + repr(page.response)


@pytest.mark.parametrize("sharing", [{}, {"coalesce": True}, {"cache": Cache(60.0)}])
async def test_a_body_that_is_not_json(sharing: dict[str, Any]) -> None:
    """`get_response` returns a body of any kind, coalesced and cached too, which `get` then refuses."""
    transport = Echo(b"a,b")
    async with echoing(transport) as session:
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
    removed = r"RemovedValidator\(tx_hash='\w{12}\.\.\.\w{5}', node_id='NodeID-\w{5}\.\.\.\w{5}', \.\.\.\)"
    assert re.fullmatch(removed, repr(validators.items[0]))
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
