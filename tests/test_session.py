"""Sessions end to end: walks of both services, in memory and in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import frozen

from chainapi import Checkpoint, Limit, MetricPage, MetricPoint, Provider, Session
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    CheckpointError,
    ConfigurationError,
    DecodeError,
    NotFoundError,
    PageTokenExpiredError,
    PaginationLoopError,
    PermissionDeniedError,
    QuotaWaitError,
    RateLimitedError,
    RedirectError,
    ServerError,
)
from chainapi.events import Event, PageReceived, RequestSent, Restarted, WaitBegan, WaitEnded
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.sessions import simulated

METRICS_URL = "https://metrics.test"
DATA_URL = "https://data.test"
KEY = "key-of-the-tests"


@frozen
class Scripted:
    """Transport that keeps requests and returns or raises the result of `answer`."""

    answer: Callable[[Request], Response]
    requests: list[Request]
    closed: list[bool]

    async def send(self, request: Request) -> Response:
        """Answer at once."""
        self.requests.append(request)
        return self.answer(request)

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed.append(True)


def scripted(answer: Callable[[Request], Response]) -> Scripted:
    """Return a scripted transport."""
    return Scripted(answer, [], [])


def reply(body: object, status: int = 200, **headers: str) -> Response:
    """Return a JSON response; an underscore in a header's name stands for a hyphen."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, encoded)


def session_of(transport: Scripted, **options: Any) -> Session:
    """Return a session with both services behind `transport`."""
    return Session(
        metrics_base_url=METRICS_URL, data_base_url=DATA_URL, api_key=KEY, transport=transport, **options
    )


def token_of(request: Request) -> str | None:
    """Return the page token that a request carries."""
    values = parse_qs(urlsplit(request.url).query).get("pageToken")
    return None if values is None else values[0]


# The walk


async def test_metrics_pages() -> None:
    """A walk of a metric yields typed pages, newest point first, to the last page."""
    async with simulated(Simulator(points=250)) as session:
        pages = [page async for page in session.metrics.avg_tps(43114)]
    assert [len(page) for page in pages] == [100, 100, 50]
    assert {type(page) for page in pages} == {MetricPage}
    assert all(page.status == 200 and page.last_run for page in pages)
    assert [page.next_page_token is None for page in pages] == [False, False, True]
    points = [point for page in pages for point in page]
    assert all(isinstance(point, MetricPoint) for point in points)
    stamps = [point.timestamp for point in points]
    assert stamps == sorted(set(stamps), reverse=True)


async def test_hundreds_of_pages_through_refusals_and_faults() -> None:
    """A walk of 500 pages yields each row once, in order, despite 429s and 5xx, and sends none in a stop."""
    faults = [Fault(at=17, status=500), Fault(at=200, status=502, body=b"<html>"), Fault(at=471, status=503)]
    simulator = Simulator(rows=5_000, limit=90, window=60.0, latency=0.05, faults=faults)
    async with simulated(simulator) as session:
        pages = session.data.list("/v1/chains/43114/blocks", page_size=10)
        numbers = [int(row["blockNumber"]) async for row in pages.items()]
    assert pages.exhausted
    assert pages.restarts == 0
    assert numbers == list(range(numbers[0], numbers[0] - 5_000, -1))
    stats = simulator.stats
    assert stats.sent_while_stopped == 0
    assert stats.answered[429] >= 1
    assert stats.answered[200] == 500
    assert {status: stats.answered[status] for status in (500, 502, 503)} == {500: 1, 502: 1, 503: 1}


@pytest.mark.parametrize(("age", "restarts"), [(24 * 3600.0, 1), (24 * 3600.0 - 1, 0)])
async def test_token_of_24_hours(age: float, restarts: int) -> None:
    """A token aged 24 h 0 s is not sent and the walk restarts; one of 23 h 59 min 59 s is sent."""
    simulator = Simulator(points=250, latency=0.5)
    sent: list[Request] = []
    inner = simulator.transport()

    class Recording:
        async def send(self, request: Request) -> Response:
            sent.append(request)
            return await inner.send(request)

        async def aclose(self) -> None:
            await inner.aclose()

    async with simulated(simulator, transport=Recording()) as session:
        pages = session.metrics.avg_tps(43114)
        loop = asyncio.get_running_loop()
        began = loop.time()  # the first request leaves now; its answer comes half a second later
        first = await anext(pages)
        await asyncio.sleep(began + age - loop.time())
        second = await anext(pages)
        await pages.collect()
    assert first.next_page_token is not None
    assert (token_of(sent[1]) is None) == bool(restarts)
    assert second.restarts == pages.restarts == restarts
    assert (second.items == first.items) == bool(restarts)
    assert simulator.stats.answered[400] == 0


async def test_rows_once_over_a_restart() -> None:
    """`items()` yields each row once across a restart, and new rows at the head."""
    simulator = Simulator(points=250)
    events: list[Event] = []
    async with simulated(simulator, on_event=events.append) as session:
        pages = session.metrics.avg_tps(43114)
        stamps = []
        async for point in pages.items():
            stamps.append(point.timestamp)
            if len(stamps) == 130:
                simulator.insert("/v1/avg_tps/43114", 2)
                await asyncio.sleep(24 * 3600)
    assert pages.restarts == 1
    assert len(stamps) == len(set(stamps)) == 252
    assert stamps[200:202] == [stamps[0] + 2 * 86_400, stamps[0] + 86_400]
    assert [event.reason for event in events if isinstance(event, Restarted)] == [
        "its page token has expired"
    ]


async def test_refused_token_restarts() -> None:
    """A token refused early restarts the walk without lost or repeated rows."""
    simulator = Simulator(points=450)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114)
        stamps = []
        async for point in pages.items():
            stamps.append(point.timestamp)
            if len(stamps) == 250:
                simulator.advance(24 * 3600)  # on the service's side only: here the token is young
    assert pages.restarts == 1
    assert stamps == sorted(set(stamps), reverse=True)
    assert len(stamps) == 450


async def test_expired_token_can_raise() -> None:
    """on_expired="raise" raises PageTokenExpiredError, whose checkpoint resumes."""
    simulator = Simulator(points=250)
    async with simulated(simulator, on_expired="raise") as session:
        pages = session.metrics.avg_tps(43114)
        stamps = [point.timestamp for point in await anext(pages)]
        await asyncio.sleep(24 * 3600)
        with pytest.raises(PageTokenExpiredError) as caught:
            await anext(pages)
        with pytest.raises(PageTokenExpiredError):
            await anext(pages)
    assert caught.value.checkpoint is not None
    async with simulated(simulator) as session:
        rest = session.metrics.avg_tps(43114, resume=caught.value.checkpoint)
        stamps += [point.timestamp async for point in rest.items()]
    assert len(stamps) == len(set(stamps)) == 250


async def test_token_that_never_lives() -> None:
    """A service that refuses every token ends the walk after one vain restart."""

    def answer(request: Request) -> Response:
        if token_of(request):
            return reply({"message": "expired", "error": "Bad Request", "statusCode": 400}, 400)
        return reply({"blocks": [{"n": 1}], "nextPageToken": "t"})

    transport = scripted(answer)
    async with session_of(transport) as session:
        pages = session.data.list("/v1/blocks")
        with pytest.raises(PageTokenExpiredError, match="same place"):
            await pages.collect()
    assert len(transport.requests) == 4
    assert pages.restarts == 1


async def test_repeated_page_is_a_loop() -> None:
    """A repeated token with the same rows raises PaginationLoopError."""
    transport = scripted(lambda _: reply({"blocks": [{"n": 1}], "nextPageToken": "t"}))
    async with session_of(transport) as session:
        pages = session.data.list("/v1/blocks")
        with pytest.raises(PaginationLoopError) as caught:
            await pages.collect()
        with pytest.raises(PaginationLoopError):
            await anext(pages)
    assert len(transport.requests) == 2
    assert caught.value.partial == [{"n": 1}]


async def test_resume_at_the_exact_row() -> None:
    """A checkpoint inside a page resumes at the next row, also as text elsewhere."""
    for descending_key in (True, False):
        simulator = Simulator(points=250, rows=250)

        def stream(
            session: Session, resume: Checkpoint | None = None, descending_key: bool = descending_key
        ) -> Any:
            if descending_key:
                return session.metrics.avg_tps(43114, resume=resume)
            return session.data.list("/v1/chains/43114/blocks", page_size=100, resume=resume)

        async with simulated(simulator) as session:
            whole = await stream(session).collect()
            pages = stream(session)
            begun = []
            async for row in pages.items():
                begun.append(row)
                if len(begun) == 130:
                    break
            text = pages.checkpoint.dumps()
        async with simulated(simulator) as session:
            rest = stream(session, Checkpoint.loads(text))
            page = await anext(rest)
            rows = [*begun, *page.items, *await rest.collect()]
        assert rows == whole
        assert rest.checkpoint.rows == 250
        assert rest.checkpoint.done


async def test_exhausted_checkpoint() -> None:
    """A resume from the end yields nothing and sends nothing."""
    simulator = Simulator(points=50)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114)
        await pages.collect()
        sent = simulator.stats.requests
        assert await session.metrics.avg_tps(43114, resume=pages.checkpoint).collect() == []
    assert simulator.stats.requests == sent


async def test_checkpoint_of_another_query() -> None:
    """A checkpoint is refused for another chain, page size or service, and the error says what may differ."""
    async with simulated(Simulator()) as session:
        pages, path = session.metrics.avg_tps(43114), "/v1/avg_tps/43114"
        await anext(pages)
        for said, other in (
            ("than this one .+43113", lambda: session.metrics.avg_tps(43113, resume=pages.checkpoint)),
            ("page size", lambda: session.metrics.list(path, page_size=5, resume=pages.checkpoint)),
            ("address of the service", lambda: session.data.list(path, resume=pages.checkpoint)),
        ):
            with pytest.raises(CheckpointError, match=rf"another query .+43114.+{said}"):
                other()
        with pytest.raises(ConfigurationError, match="resume"):
            session.metrics.avg_tps(43114, resume="text")  # type: ignore[arg-type]


async def test_collect_with_limit() -> None:
    """collect(limit) returns that many rows, and the stream continues there; bad limits are refused."""
    async with simulated(Simulator(points=250)) as session:
        pages = session.metrics.avg_tps(43114)
        head = await pages.collect(limit=130)
        assert not pages.exhausted
        tail = await pages.collect()
        assert (len(head), len(tail), pages.exhausted) == (130, 120, True)
        assert len({point.timestamp for point in head + tail}) == 250
        assert len(await session.metrics.avg_tps(43114).collect(limit=2**64)) == 250
        assert [len(rows) async for rows in session.metrics.avg_tps(43114).batches(2**64)] == [250]
        assert len([row async for row in session.metrics.avg_tps(43114).items(2**64)]) == 250
        for limit in (0, -1, True, 1.5):
            with pytest.raises(ConfigurationError, match="limit"):
                await session.metrics.avg_tps(43114).collect(limit=limit)  # type: ignore[arg-type]
        for progress in ("false", 1, None):
            with pytest.raises(ConfigurationError, match="progress"):
                await session.metrics.avg_tps(43114).collect(progress=progress)  # type: ignore[arg-type]


async def test_rest_of_a_page_begun_by_rows() -> None:
    """The next page after single rows is the rest of their page."""
    async with simulated(Simulator(points=250)) as session:
        pages = session.metrics.avg_tps(43114)
        head = await pages.collect(limit=30)
        rest = await anext(pages)
        assert (len(head), len(rest), len(await anext(pages))) == (30, 70, 100)


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


async def test_list_field() -> None:
    """The list field is the named or only one; otherwise the error lists the fields."""
    bodies = {
        "/v1/one": {"total": 2, "rows": [1], "nextPageToken": ""},
        "/v1/null": {"rows": None, "nextPageToken": None},
        "/v1/two": {"added": [1], "removed": [2, 3]},
        "/v1/none": {"total": 2},
    }
    transport = scripted(lambda request: reply(bodies[urlsplit(request.url).path]))
    async with session_of(transport) as session:
        assert len(await session.data.list("/v1/one").collect()) == 1
        assert await session.data.list("/v1/null").collect() == []
        assert len(await session.data.list("/v1/two", items="removed").collect()) == 2
        with pytest.raises(DecodeError, match="added, removed"):
            await session.data.list("/v1/two").collect()
        with pytest.raises(DecodeError, match="total"):
            await session.data.list("/v1/none").collect()


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
    """Status errors have a class each, with status, type and messages."""
    failures = []
    for status, kind in KINDS.items():
        for message, messages in (("one", ("one",)), (["one", "two"], ("one", "two")), (None, ())):
            body = {"message": message, "error": "What it is called", "statusCode": status}
            answering = scripted(lambda _, status=status, body=body: reply(body, status))  # type: ignore[misc]
            async with session_of(answering, max_attempts=2) as session:
                with pytest.raises(APIStatusError) as caught:
                    await session.data.list("/v1/blocks").collect()
            error = caught.value
            if type(error) is not kind or error.status != status or error.checkpoint is None or error.partial:
                failures.append(f"{status}: {error!r}")
            if status != 302 and (error.error, error.messages) != ("What it is called", messages):
                failures.append(f"{status}: {error.error}, {error.messages}")
    assert not failures


async def test_fault_is_retried_and_then_raised() -> None:
    """A 5xx is retried with growing waits; the error has the attempts and the time."""
    transport = scripted(lambda _: reply(b"<html>Bad gateway</html>", 502))
    async with session_of(transport, max_attempts=4) as session:
        with pytest.raises(ServerError, match="tried 4 times") as caught:
            await session.metrics.avg_tps(43114).collect()
    assert len(transport.requests) == caught.value.attempts == 4
    assert 0 < caught.value.elapsed <= 0.5 * (2 + 4 + 8)
    assert caught.value.messages == ("<html>Bad gateway</html>",)


async def test_faults_heal() -> None:
    """Faults heal by retry: a broken connection, a 503 and a body cut short."""
    script: list[Any] = [
        APIConnectionError("reset"),
        reply({}, 503, retry_after="7"),
        reply(b'{"results": ['),
        reply({"results": [{"timestamp": 1, "value": 2}], "status": 200}),
    ]

    def answer(_: Request) -> Response:
        step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, Response)
        return step

    async with session_of(scripted(answer)) as session:
        assert await session.metrics.avg_tps(43114).collect() == [MetricPoint(1, 2.0)]
        assert asyncio.get_running_loop().time() >= 7


async def test_timeout() -> None:
    """A request without an answer raises APITimeoutError after `timeout` per attempt."""

    class Silent:
        async def send(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

        async def aclose(self) -> None: ...

    async with Session(
        metrics_base_url=METRICS_URL, transport=Silent(), timeout=5.0, max_attempts=2
    ) as session:
        with pytest.raises(APITimeoutError, match="within 5 s") as caught:
            await session.metrics.avg_tps(43114).collect()
    assert isinstance(caught.value, TimeoutError)
    assert 10 <= caught.value.elapsed <= 12


async def test_wrong_body_keeps_what_was_fetched() -> None:
    """A wrong body raises DecodeError with path, rows before it and checkpoint."""

    def answer(request: Request) -> Response:
        if token_of(request):
            return reply({"results": [{"timestamp": 1, "value": 2}, {"timestamp": 0, "value": "x"}]})
        return reply({"results": [{"timestamp": 2, "value": 2.5}], "nextPageToken": "next"})

    transport = scripted(answer)
    async with session_of(transport) as session:
        with pytest.raises(DecodeError) as caught:
            await session.metrics.avg_tps(43114).collect()
    assert caught.value.path == "$.results[1].value"
    assert caught.value.partial == [MetricPoint(2, 2.5)]
    assert caught.value.checkpoint is not None
    assert caught.value.checkpoint.token == "next"
    assert len(transport.requests) == 2


# Limits


async def test_stop_is_shared() -> None:
    """A stop is shared: no task sends during a retry-after, and all are served later."""
    simulator = Simulator(limit=30, window=10.0, latency=0.05)
    events: list[Event] = []
    async with simulated(simulator, on_event=events.append) as session:
        bodies = await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(200)))
    assert len(bodies) == 200
    assert simulator.stats.answered[429] >= 1
    assert simulator.stats.sent_while_stopped == 0
    assert any(isinstance(event, WaitBegan) for event in events)
    assert any(isinstance(event, WaitEnded) for event in events)


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
        assert asyncio.get_running_loop().time() < 2
        refused.cancel()


async def test_max_wait() -> None:
    """max_wait raises QuotaWaitError at once for a longer wait, with its end."""
    transport = scripted(lambda _: reply({}, 429, retry_after="60"))
    async with session_of(transport, max_wait=5.0, now=lambda: 1_000_000.0) as session:
        with pytest.raises(QuotaWaitError):
            await session.data.get("/v1/chains")
        with pytest.raises(QuotaWaitError) as caught:
            await session.data.get("/v1/chains")
        assert asyncio.get_running_loop().time() < 1
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
        assert 3.9 <= asyncio.get_running_loop().time() <= 4.1
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
        assert asyncio.get_running_loop().time() < 2
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


async def test_second_reader() -> None:
    """A second reader of one stream gets a clear error and loses no row."""
    async with simulated(Simulator(points=150, latency=0.5)) as session:
        pages = session.metrics.avg_tps(43114)
        first = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0.1)
        with pytest.raises(Exception, match="only one reader"):
            await anext(pages)
        assert len(await first) == 100
        assert len(await anext(pages)) == 50

        pages = session.metrics.avg_tps(43114)
        rows = pages.items()
        await anext(rows)
        others = pages.items()
        await anext(others)
        with pytest.raises(Exception, match="another reader"):
            await anext(rows)
        assert len([row async for row in others]) == 148


async def test_closed_stream_is_over() -> None:
    """A closed stream ends quietly and keeps its checkpoint, also if closed twice."""
    async with simulated(Simulator(points=150)) as session:
        async with session.metrics.avg_tps(43114) as pages:
            rows = pages.items()
            await anext(rows)
        await pages.aclose()
        assert [row async for row in rows] == []
        assert [page async for page in pages] == []
        assert not pages.exhausted
        assert pages.checkpoint.offset == 1
        assert "closed" in repr(pages)
        rest = session.metrics.avg_tps(43114, resume=pages.checkpoint)
        assert len(await rest.collect()) == 149


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


async def test_unknown_keyword() -> None:
    """An unknown keyword of a named route is refused by its name."""
    async with session_of(scripted(lambda _: reply({}))) as session:
        with pytest.raises(ConfigurationError, match="page_size"):
            session.metrics.avg_tps(43114, page_size=3)  # type: ignore[call-arg]  # pyright: ignore
        with pytest.raises(ConfigurationError, match="limit"):
            session.data.chains(limit=3)  # type: ignore[call-arg]  # pyright: ignore


async def test_misspelt_keyword() -> None:
    """Misspelt keywords of list() and get() are not sent as query parameters."""
    async with session_of(scripted(lambda _: reply({"rows": []}))) as session:
        for misspelt in ("itmes", "pagesize", "page_sze", "page_tokn", "resum"):
            options: dict[str, Any] = {misspelt: "x"}
            with pytest.raises(ConfigurationError, match=misspelt):
                session.data.list("/v1/blocks", **options)
        with pytest.raises(ConfigurationError, match="page_size"):
            await session.data.get("/v1/blocks", page_size=5)
        with pytest.raises(ConfigurationError, match="resume"):
            await session.data.get("/v1/blocks", resume="x")
        assert (
            await session.data.list("/v1/blocks", startTimestamp=1, status="x", feature="y").collect() == []
        )


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


def test_usable_before_a_loop_runs() -> None:
    """Sessions and streams may be made before a loop runs; a second loop is an error."""
    simulator = Simulator(points=50)
    session = simulated(simulator)
    pages = session.metrics.avg_tps(43114)

    async def read() -> int:
        return len(await pages.collect())

    assert asyncio.run(read()) == 50
    pages = session.metrics.avg_tps(43114)
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(read())


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
