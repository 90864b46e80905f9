"""Sessions: the requests that they make, their errors and limits, and arguments that they refuse.

That a walk gives each row once is proved by `tests/paging`, and for every route in `tests/client`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest

from chainapi import Checkpoint, Limit, Provider, Session
from chainapi.errors import (
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    CheckpointError,
    ConfigurationError,
    DecodeError,
    NotFoundError,
    PageTokenExpiredError,
    PermissionDeniedError,
    QuotaWaitError,
    RateLimitedError,
    RedirectError,
    ServerError,
)
from chainapi.events import Event, PageReceived, RequestSent
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.client.services import Script, time
from tests.sessions import simulated

METRICS_URL = "https://metrics.test"
DATA_URL = "https://data.test"
KEY = "key-of-the-tests"


def scripted(answer: Callable[[Request], Response]) -> Script:
    """Return a transport whose responses a function makes."""
    return Script(answer)


def reply(body: object, status: int = 200, **headers: str) -> Response:
    """Return a JSON response; an underscore in a header's name stands for a hyphen."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, encoded)


def session_of(transport: Script, **options: Any) -> Session:
    """Return a session with both services behind `transport`."""
    return Session(
        metrics_base_url=METRICS_URL, data_base_url=DATA_URL, api_key=KEY, transport=transport, **options
    )


# Positions


@pytest.mark.parametrize(("age", "restarts"), [(24 * 3600.0, 1), (24 * 3600.0 - 1, 0)])
async def test_token_of_24_hours(age: float, restarts: int) -> None:
    """A token is not sent from 24 hours after its request left, half a second before it came: a restart."""
    simulator = Simulator(points=250, latency=0.5)
    async with simulated(simulator) as session:
        pages, began = session.metrics.avg_tps(43114), time()
        first = await anext(pages)
        await asyncio.sleep(began + age - time())
        second = await anext(pages)
    assert second.restarts == restarts
    assert (second.items == first.items) == bool(restarts)
    assert simulator.stats.answered[400] == 0


async def test_expired_token_can_raise() -> None:
    """on_expired="raise" raises PageTokenExpiredError at each try, whose checkpoint resumes."""
    simulator = Simulator(points=250)
    async with simulated(simulator, on_expired="raise") as session:
        pages = session.metrics.avg_tps(43114)
        points = [*await anext(pages)]
        await asyncio.sleep(24 * 3600)
        with pytest.raises(PageTokenExpiredError) as caught:
            await anext(pages)
        with pytest.raises(PageTokenExpiredError):
            await anext(pages)
    async with simulated(simulator) as session:
        points += await session.metrics.avg_tps(43114, resume=caught.value.checkpoint).collect()
    assert len({point.timestamp for point in points}) == len(points) == 250


async def test_checkpoint_of_another_query() -> None:
    """A checkpoint is refused for another chain, page size, service or order, and the error says which."""
    async with simulated(Simulator()) as session:
        pages, path = session.metrics.avg_tps(43114), "/v1/avg_tps/43114"
        await anext(pages)
        rows = session.data.list("/v1/chains/43114/blocks")
        await rows.first()
        another = r"another query .+43114.+"
        refused: list[tuple[str, Checkpoint, Callable[..., Any]]] = [
            (f"{another}than this one .+43113", pages.checkpoint, partial(session.metrics.avg_tps, 43113)),
            (f"{another}page size", pages.checkpoint, partial(session.metrics.list, path, page_size=5)),
            (f"{another}address of the service", pages.checkpoint, partial(session.data.list, path)),
            (
                "descending_key",
                rows.checkpoint,
                partial(session.data.list, "/v1/chains/43114/blocks", descending_key="blockNumber"),
            ),
        ]
        for said, checkpoint, method in refused:
            with pytest.raises(CheckpointError, match=said):
                method(resume=checkpoint)
        with pytest.raises(ConfigurationError, match="resume"):
            session.metrics.avg_tps(43114, resume="text")  # type: ignore[arg-type]


# Requests


async def test_what_requests_carry() -> None:
    """Data requests have the key in its header; Metrics requests have no key."""
    transport = scripted(lambda _: reply({"results": []}))
    provider = Provider(api_key_header="X-Other-Key")
    async with session_of(transport, provider=provider) as session:
        await session.metrics.avg_tps(43114).collect()
        await session.data.list(
            "/v1/blocks", page_size=5, chainId=43114, addresses=["a", "b"], unset=None
        ).collect()
    metrics, data = transport.requests
    assert metrics.url == f"{METRICS_URL}/v1/avg_tps/43114"
    assert data.url == f"{DATA_URL}/v1/blocks?pageSize=5&chainId=43114&addresses=a%2Cb"
    assert KEY not in str(metrics.headers)
    assert data.headers["x-other-key"] == KEY
    for request in transport.requests:
        assert request.method == "GET"
        assert request.headers["accept"] == request.headers["content-type"] == "application/json"
        assert request.headers["user-agent"].startswith("chainapi/")


# Errors


KINDS: dict[int, type[APIStatusError]] = {
    302: RedirectError,
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    418: APIStatusError,
    429: RateLimitedError,
    **dict.fromkeys((500, 501, 502, 503), ServerError),
}


async def test_status_errors() -> None:
    """Status errors have a class each, with status, type, messages, attempts and the checkpoint."""
    failures = []
    texts: tuple[tuple[Any, tuple[str, ...]], ...] = (
        ("one", ("one",)),
        (["one", "two"], ("one", "two")),
        (None, ()),
    )
    for (status, kind), (message, messages) in product(KINDS.items(), texts):
        answer = reply({"message": message, "error": "What it is called", "statusCode": status}, status)
        async with session_of(Script(answer), max_attempts=2) as session:
            with pytest.raises(APIStatusError) as caught:
                await session.data.list("/v1/blocks").collect()
        error = caught.value
        attempts = 6 if status == 429 else 2 if status in (500, 502, 503) else 1
        found = (type(error), error.status, error.attempts, error.checkpoint is None, error.partial)
        if found != (kind, status, attempts, False, []):
            failures.append(f"{status}: {error!r} after {error.attempts} attempts")
        if status != 302 and (error.error, error.messages) != ("What it is called", messages):
            failures.append(f"{status}: {error.error}, {error.messages}")
    assert not failures


async def test_timeout() -> None:
    """A request without an answer raises APITimeoutError after `timeout` per attempt."""
    async with session_of(Script(None), timeout=5.0, max_attempts=2) as session:
        with pytest.raises(APITimeoutError, match="within 5 s") as caught:
            await session.metrics.avg_tps(43114).collect()
    assert isinstance(caught.value, TimeoutError)
    assert 10 <= caught.value.elapsed <= 12


# Limits


async def test_services_do_not_slow_each_other() -> None:
    """A stop of the Data API does not hold back the Metrics API."""

    def answer(request: Request) -> Response:
        if request.url.startswith(DATA_URL):
            return reply({}, 429, retry_after="3600")
        return reply({"results": []})

    async with session_of(scripted(answer)) as session:
        refused = asyncio.ensure_future(session.data.get("/v1/chains"))
        await asyncio.sleep(1)
        await session.metrics.avg_tps(43114).collect()
        assert time() < 2
        refused.cancel()


async def test_max_wait() -> None:
    """max_wait raises QuotaWaitError at once for a longer wait, with its end."""
    transport = scripted(lambda _: reply({}, 429, retry_after="60"))
    async with session_of(transport, max_wait=5.0, now=lambda: 1_000_000.0) as session:
        with pytest.raises(QuotaWaitError):
            await session.data.get("/v1/chains")
        with pytest.raises(QuotaWaitError) as caught:
            await session.data.get("/v1/chains")
        assert time() < 1
    assert caught.value.retry_at == pytest.approx(1_000_060.0, abs=1)
    assert len(transport.requests) == 1


async def test_endless_refusals() -> None:
    """Endless refusals raise RateLimitedError with the last retry-after."""
    transport = scripted(lambda _: reply({}, 429, retry_after="0"))
    async with session_of(transport) as session:
        with pytest.raises(RateLimitedError) as caught:
            await session.data.get("/v1/chains")
    assert caught.value.retry_after == 0
    assert caught.value.attempts == len(transport.requests) <= 21
    assert caught.value.elapsed > 30


async def test_rate() -> None:
    """`rate` limits requests by a token bucket, and each request is an event."""
    transport = scripted(lambda _: reply({"results": []}))
    events: list[Event] = []
    async with session_of(transport, rate=Limit(2, per=1.0), on_event=events.append) as session:
        await asyncio.gather(*(session.metrics.avg_tps(chain).collect() for chain in range(10)))
        assert 3.9 <= time() <= 4.1
    assert sum(isinstance(event, RequestSent) for event in events) == 10
    assert sum(isinstance(event, PageReceived) for event in events) == 10


async def test_priority() -> None:
    """Requests of higher priority leave first if quota is short."""
    simulator = Simulator(limit=10, window=60.0, latency=0.05)
    async with simulated(simulator) as session:
        order: list[str] = []

        async def read(name: str, priority: int) -> None:
            await session.data.list("/v1/chains/43114/blocks", priority=priority).collect(limit=1)
            order.append(name)

        background = [asyncio.ensure_future(read("background", 0)) for _ in range(30)]
        await asyncio.sleep(5)
        urgent = [asyncio.ensure_future(read("urgent", 1)) for _ in range(5)]
        await asyncio.gather(*background, *urgent)
    assert order[:10] == ["background"] * 10
    assert order[10:20].count("urgent") == 5  # in the next window, and not behind the 20 that came before
    for priority in (1.5, True, "1"):
        with pytest.raises(ConfigurationError, match="priority"):
            session.metrics.avg_tps(43114, priority=priority)  # type: ignore[arg-type]


async def test_quota_snapshot() -> None:
    """session.quota has the limits from the headers of each service."""
    async with simulated(Simulator(limit=30)) as session:
        await session.data.get("/v1/chains/43114")
        assert session.quota["data"].limit == 30
        assert session.data.quota.remaining == 29
        assert session.quota["metrics"].limit is None


# Sharing and ending


async def test_two_sessions_share_nothing() -> None:
    """Two sessions with two keys in one loop share no quota and no key."""
    simulator = Simulator(limit=20, window=30.0, other_keys=("second-key",), log=True)
    slow, quick = simulated(simulator), simulated(simulator)
    other = Session(
        data_base_url=simulator.data_base_url, api_key="second-key", transport=simulator.transport()
    )
    async with slow, quick, other:
        busy = asyncio.gather(*(slow.data.get("/v1/chains/43114") for _ in range(60)))
        await asyncio.sleep(1)
        await asyncio.gather(*(other.data.get("/v1/chains/43114") for _ in range(20)))
        assert time() < 2
        await busy
    of_second = [request.status for request in simulator.requests if request.quota == "data, key 2"]
    assert of_second == [200] * 20


async def test_tasks_cancelled_at_random() -> None:
    """Random cancellation of 300 tasks on one session leaks and blocks nothing."""
    simulator = Simulator(limit=120, window=10.0, latency=lambda rng: rng.uniform(0.01, 0.5))
    rng = random.Random(5)
    async with simulated(simulator, max_in_flight=50) as session:

        async def read() -> int:
            return len(await session.data.list("/v1/chains/43114/blocks", page_size=50).collect(limit=100))

        tasks = [asyncio.ensure_future(read()) for _ in range(300)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(rng.uniform(0, 1))
            for task in rng.sample(tasks, 3):
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert session.quota["data"].in_flight == session.quota["data"].waiting == 0
        assert await read() == 100
    finished = [result for result in results if result == 100]
    assert len(finished) + sum(isinstance(result, asyncio.CancelledError) for result in results) == 300
    assert finished
    assert simulator.stats.sent_while_stopped == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Bad input


async def test_bad_chain_id() -> None:
    """A chain id that is no path segment, or a bad page size, is refused by name before any request."""
    transport = scripted(lambda _: reply({}))
    bad: tuple[Any, ...] = ("", "a/b", "a?b", "..", "a#b", "%2e", "a\nb", True, 1.5, None, -1, "x" * 2_000)
    sizes: tuple[Any, ...] = (0, -1, 10**9, 1.5, True, "10")
    async with session_of(transport) as session:
        for chain_id in bad:
            with pytest.raises(ConfigurationError, match="chain_id"):
                session.metrics.avg_tps(chain_id)
        for page_size in sizes:
            with pytest.raises(ConfigurationError, match="page_size"):
                session.data.list("/v1/blocks", page_size=page_size)
    assert transport.requests == []


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(({"timeout": value}, "timeout") for value in (0, None, float("inf"), 10**400)),
    *(({"max_attempts": value}, "max_attempts") for value in (0, 1.5)),
    ({"provider": Provider(page_token_lifetime=timedelta(0))}, "page_token_lifetime"),
    ({"page_token_lifetime": 24}, r"Session\(provider=Provider\(page_token_lifetime=\.\.\.\)\)"),
    ({"limits": {"other": []}}, "limits"),
    ({"limits": {"data": 3}}, "limits"),
    *(({"api_key": value}, "api_key") for value in ("a\nb", "")),
    ({"max_wait": -1}, "max_wait"),
    ({"max_in_flight": 0}, "max_in_flight"),
    ({"on_expired": "ignore"}, "on_expired"),
    ({"rate": 5}, "rate"),
    ({"limiter": 5}, r"limiter=5 must be a chainapi\.LimiterOptions"),
    *(({name: 1}, rf"Session\(transport=AiohttpTransport\({name}=") for name in ("max_body", "proxy")),
    ({"now": 5}, "now"),
    ({"on_event": 5}, "on_event"),
    ({"transport": 5}, r"^transport=5 must have the methods of a chainapi\.transport\.Transport$"),
    ({"data_base_url": "http://data.test"}, "data_base_url"),
    ({"metrics_base_url": ""}, "metrics_base_url"),
    ({"maxwait": 3}, "did you mean 'max_wait'"),
]


def test_bad_arguments() -> None:
    """Unusable arguments are refused at once by name, without the key."""
    given = {"metrics_base_url": METRICS_URL, "data_base_url": DATA_URL, "api_key": KEY}
    for options, named in BAD_OPTIONS:
        arguments: dict[str, Any] = {**given, **options}
        with pytest.raises(ConfigurationError, match=named) as caught:
            Session(**arguments)
        assert KEY not in str(caught.value)
    values: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), "a", True, None)
    for value in values:
        with pytest.raises(ConfigurationError, match="amount"):
            Limit(value)
        with pytest.raises(ConfigurationError, match="per"):
            Limit(1, per=value)


async def test_misspelt_keyword() -> None:
    """Misspelt keywords of list() and get() are not sent as query parameters."""
    async with session_of(scripted(lambda _: reply({"rows": []}))) as session:
        for misspelt in ("itmes", "pagesize", "page_sze", "page_tokn", "resum"):
            options: dict[str, Any] = {misspelt: "x"}
            with pytest.raises(ConfigurationError, match=misspelt):
                session.data.list("/v1/blocks", **options)
        for foreign in ("page_size", "resume"):
            options = {foreign: 5}
            with pytest.raises(ConfigurationError, match=foreign):
                await session.data.get("/v1/blocks", **options)
        pages = session.data.list("/v1/blocks", startTimestamp=1, status="x", feature="y")
        assert await pages.collect() == []


async def test_missing_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing address or key raises an error with the variable; the other API works."""
    for name in ("METRICS_BASE_URL", "DATA_BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"CHAINAPI_{name}", raising=False)
    transport = scripted(lambda _: reply({"results": []}))
    async with Session(metrics_base_url=METRICS_URL, transport=transport) as session:
        await session.metrics.avg_tps(43114).collect()
        with pytest.raises(ConfigurationError, match="CHAINAPI_DATA_BASE_URL"):
            session.data.chains()
    async with Session(data_base_url=DATA_URL, transport=transport) as session:
        with pytest.raises(ConfigurationError, match="CHAINAPI_API_KEY"):
            session.data.chains()
        with pytest.raises(ConfigurationError, match="CHAINAPI_METRICS_BASE_URL"):
            session.metrics.avg_tps(43114)


@pytest.mark.parametrize(
    ("status", "body", "said", "requests"),
    [
        (204, b"", "$: an answer without a body: 204 No Content in the response to GET /v1/x", 1),
        (205, b" ", "$: an answer without a body: 205 Reset Content in the response to GET /v1/x", 1),
        (200, b"", "$: an answer without a body: 200 OK in the response to GET /v1/x (tried 3 times", 3),
        (299, b"\r\n ", "$: an answer without a body: 299 in the response to GET /v1/x (tried 3 times", 3),
    ],
)
async def test_an_answer_without_a_body(status: int, body: bytes, said: str, requests: int) -> None:
    """A missing body raises DecodeError; a retry follows only if the status needs one."""
    transport = scripted(lambda _: reply(body, status))
    async with session_of(transport, max_attempts=3) as session:
        for call in (session.data.get("/v1/x"), anext(session.data.list("/v1/x"))):
            transport.requests.clear()
            with pytest.raises(DecodeError) as caught:
                await call
            assert str(caught.value).startswith(said)
            assert len(transport.requests) == requests
