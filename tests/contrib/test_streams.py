"""Streaming bodies: rows while pages arrive, errors, resumes, waits for quota, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from chainapi import Checkpoint, MetricPoint
from chainapi.contrib.streams import Body, NDJSONBody, SSEBody
from chainapi.errors import ArgumentError, ConfigurationError, NotFoundError, ServerError
from chainapi.simulator import Fault, Simulator
from tests.contrib.asgi import events, lines
from tests.sessions import simulated

CHAIN = 43114
Make = Callable[[Any], Body]
Limited = type[NDJSONBody] | type[SSEBody]
EACH = pytest.mark.parametrize("make", [NDJSONBody, SSEBody])


async def whole(body: Body) -> bytes:
    """Return all pieces of a body, and close it."""
    async with body:
        return b"".join([piece async for piece in body])


def rows_of(body: bytes, make: Make) -> list[Any]:
    """Return the rows of a body of either kind."""
    if make is NDJSONBody:
        return [line for line in lines(body) if "error" not in line]
    return [row for name, data, _ in events(body) if name == "rows" for row in data]


def problem_in(body: bytes, make: Make) -> dict[str, Any]:
    """Return the error record of a body of either kind: its last record."""
    if make is NDJSONBody:
        last: dict[str, Any] = lines(body)[-1]["error"]
        return last
    name, data, _ = events(body)[-1]
    assert name == "problem"
    return dict(data)


def points(simulator: Simulator) -> list[dict[str, Any]]:
    """Return the rows of the list as the services have them."""
    return simulator.rows_of(f"/v1/avg_tps/{CHAIN}")


@EACH
async def test_rows_are_those_of_the_list(make: Make) -> None:
    """A body has each row of the list once, in its order, and says that it is not to be stored."""
    simulator = Simulator(points=350)
    async with simulated(simulator) as session:
        body = make(session.metrics.avg_tps(CHAIN))
        assert rows_of(await whole(body), make) == points(simulator)
    assert body.headers["cache-control"] == "no-store"
    assert body.headers["x-accel-buffering"] == "no"


@EACH
@pytest.mark.parametrize("limit", [1, 130, 999])
async def test_limit_is_a_number_of_rows_of_the_list(make: Limited, limit: int) -> None:
    """A body ends after `limit` rows and requests no page more; a resume does not begin the count again."""
    simulator = Simulator(points=350)
    async with simulated(simulator) as session:
        body = make(session.metrics.avg_tps(CHAIN), limit=limit)
        assert rows_of(await whole(body), make) == points(simulator)[:limit]
        assert simulator.stats.requests == min(-(-limit // 100), 4)

        pages = session.metrics.avg_tps(CHAIN)
        await pages.first()
        body = make(session.metrics.avg_tps(CHAIN, resume=pages.checkpoint), limit=limit)
        assert rows_of(await whole(body), make) == points(simulator)[1:limit]


@EACH
async def test_limit_of_other_iterables(make: Limited) -> None:
    """The rows of an asynchronous iterable are limited too, and it is closed."""
    closed: list[bool] = []

    async def own() -> AsyncGenerator[list[int], None]:
        try:
            for number in range(9):
                yield [number]
        finally:
            closed.append(True)

    assert rows_of(await whole(make(own(), limit=3)), make) == [[0], [1], [2]]
    assert closed == [True]


@EACH
async def test_wrong_limit_is_refused(make: Limited) -> None:
    """A limit that is no whole number above 0 is an error of the argument."""
    async with simulated(Simulator()) as session:
        with pytest.raises(ArgumentError, match="limit=0"):
            make(session.metrics.avg_tps(CHAIN), limit=0)


@EACH
async def test_rows_are_no_stream(make: Limited) -> None:
    """Collected rows, awaited or not, name the stream as what to pass."""
    async with simulated(Simulator()) as session:
        collected: list[Any] = [[], session.metrics.avg_tps(CHAIN).collect()]
        for rows in collected:
            with pytest.raises(ConfigurationError, match=r"pass the stream itself, without \.collect\(\)"):
                make(rows)


@EACH
async def test_rows_are_sent_when_their_page_arrives(make: Make) -> None:
    """The first piece is the first page, and no further page is fetched before it was taken."""
    simulator = Simulator(points=350)
    async with simulated(simulator) as session, make(session.metrics.avg_tps(CHAIN)) as body:
        pieces = aiter(body)
        for page in range(1, 4):
            assert len(rows_of(await anext(pieces), make)) == 100
            await asyncio.sleep(10)
            assert simulator.stats.requests == page


@EACH
async def test_restart_repeats_no_row(make: Make) -> None:
    """A page token that expires amid the list costs no row and repeats none."""
    simulator = Simulator(points=350, token_lifetime=100)
    async with simulated(simulator) as session, make(session.metrics.avg_tps(CHAIN)) as body:
        text = b""
        async for piece in body:
            text += piece
            if len(text) == len(piece):
                simulator.advance(200)
    assert rows_of(text, make) == points(simulator)


@EACH
async def test_error_before_the_first_piece_is_raised(make: Make) -> None:
    """An error of the first page is raised when the body begins, so that it can become a status."""
    async with simulated(Simulator()) as session:
        pages = session.metrics.avg_tps(999)
        with pytest.raises(NotFoundError):
            async with make(pages):
                pass
        assert await anext(pages, None) is None, "the stream is closed"


@EACH
@pytest.mark.parametrize("page", [1, 3])
async def test_broken_walk_resumes_from_its_record(make: Make, page: int) -> None:
    """An error after the first rows is a record; a resume from its checkpoint gives exactly the rest."""
    simulator = Simulator(points=350, faults=(Fault(after_page=page, status=500, times=1),))
    async with simulated(simulator, max_attempts=1) as session:
        first = await whole(make(session.metrics.avg_tps(CHAIN)))
        problem = problem_in(first, make)
        assert (problem["status"], problem["type"]) == (502, "urn:chainapi:upstream")
        resume = Checkpoint.loads(problem["checkpoint"])
        rest = await whole(make(session.metrics.avg_tps(CHAIN, resume=resume)))
    assert len(rows_of(first, make)) == 100 * page
    assert rows_of(first, make) + rows_of(rest, make) == points(simulator)


async def test_each_event_of_rows_has_the_checkpoint_behind_it() -> None:
    """A resume from the id of any event gives the rows behind that event; a limit is counted in; one ends."""
    simulator = Simulator(points=350)
    async with simulated(simulator) as session:
        *every, end = events(await whole(SSEBody(session.metrics.avg_tps(CHAIN))))
        for taken, (_, _, position) in enumerate(every, 1):
            resume = Checkpoint.loads(position or "")
            rest = await whole(SSEBody(session.metrics.avg_tps(CHAIN, resume=resume)))
            assert rows_of(rest, SSEBody) == points(simulator)[100 * taken :]
        limited = events(await whole(SSEBody(session.metrics.avg_tps(CHAIN), limit=130)))
    assert (end[:2], Checkpoint.loads(end[2] or "").done) == (("end", {}), True)
    assert [(name, Checkpoint.loads(at or "").rows) for name, _, at in limited] == [
        ("rows", 100),
        ("rows", 130),
        ("end", 130),
    ]


async def test_a_followed_list_has_the_checkpoint_behind_each_new_row() -> None:
    """A stream of new rows is resumed from the id of any event, like a list."""
    simulator = Simulator(points=50)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(CHAIN)
        await pages.collect()
        simulator.insert(f"/v1/avg_tps/{CHAIN}", 3)
        first = await whole(SSEBody(pages.follow(every=60), limit=1))
        [(name, rows, position), end] = events(first)
        resumed = session.metrics.avg_tps(CHAIN, resume=Checkpoint.loads(position or ""))
        rest = await whole(SSEBody(resumed.follow(every=60), limit=2))
    assert (name, end) == ("rows", ("end", {}, position))
    assert [*rows, *rows_of(rest, SSEBody)] == points(simulator)[2::-1]


async def test_a_followed_list_begins_its_response_at_once() -> None:
    """A browser knows that it is connected before the first new row comes."""
    simulator = Simulator(points=50)
    async with simulated(simulator) as session:
        async with SSEBody(session.metrics.avg_tps(CHAIN).follow(every=60)) as body:
            assert await anext(aiter(body)) == b":\n\n"
        assert asyncio.get_running_loop().time() < 1
    assert simulator.stats.requests == 0


async def test_broken_walk_sets_the_time_of_the_next_connection() -> None:
    """After an error that names a wait, a browser connects again when it is over."""
    simulator = Simulator(points=350, metrics_limit=1, metrics_window=600)
    async with simulated(simulator, max_wait=60) as session:
        text = await whole(SSEBody(session.metrics.avg_tps(CHAIN)))
        problem = problem_in(text, SSEBody)
        assert (problem["status"], problem["type"]) == (503, "urn:chainapi:quota")
        retry = next(line for line in text.splitlines() if line.startswith(b"retry: "))
        assert int(retry[7:]) == int(problem["retry_after"] * 1_000)


@EACH
async def test_429_amid_a_walk_names_the_wait_of_the_quota(make: Make) -> None:
    """After a 429 without Retry-After the record has the time of the next attempt."""
    simulator = Simulator(points=350, faults=(Fault(after_page=1, status=429),))
    async with simulated(simulator, max_attempts=1) as session:
        problem = problem_in(await whole(make(session.metrics.avg_tps(CHAIN))), make)
    assert problem["status"] == 503
    assert problem["retry_after"] > 0


async def test_wait_for_quota_is_an_event() -> None:
    """A wait for quota is reported soon, again with each heartbeat, and ends with rows."""
    simulator = Simulator(rows=350, limit=2, window=60)
    seen: list[tuple[float, str, Any]] = []
    clock = asyncio.get_running_loop().time
    async with simulated(simulator) as session:
        pages = session.data.list("/v1/chains/43114/blocks", page_size=100)
        async with SSEBody(pages, heartbeat=20) as body:
            async for piece in body:
                seen += [(round(clock()), name, data) for name, data, _ in events(piece)]
    waits = [(at, data["seconds"]) for at, name, data in seen if name == "waiting"]
    ends = {round(at + seconds) for at, seconds in waits}
    assert [at for at, _ in waits] == [2, 22, 42]
    assert ends == {60}, "each report names the same end"
    assert [(at, name) for at, name, _ in seen if name != "waiting"] == [
        (0, "rows"),
        (0, "rows"),
        (60, "rows"),
        (60, "rows"),
        (60, "end"),
    ]


async def test_response_begins_before_a_wait_is_over() -> None:
    """A wait before the first page is reported too: the response does not begin with silence."""
    simulator = Simulator(limit=1, window=60)
    async with simulated(simulator) as session:
        await session.data.get("/v1/chains")
        async with SSEBody(session.data.evm.blocks(CHAIN)) as body:
            [(name, _, _)] = events(await anext(aiter(body)))
    assert name == "waiting"


async def test_silence_without_a_wait_is_a_comment() -> None:
    """While a slow service answers, a comment keeps the connection open."""
    simulator = Simulator(points=50, latency=12.0)
    async with simulated(simulator) as session, SSEBody(session.metrics.avg_tps(CHAIN), heartbeat=5) as body:
        pieces = [piece async for piece in body]
    assert pieces[:2] == [b":\n\n", b":\n\n"]
    assert [name for piece in pieces[2:] for name, _, _ in events(piece)] == ["rows", "end"]


@pytest.mark.parametrize("heartbeat", [0, -1.0, float("nan"), "5"])
def test_heartbeat_is_checked(heartbeat: Any) -> None:
    """A heartbeat that is no number of seconds is refused."""
    with pytest.raises(ArgumentError, match="heartbeat"):
        SSEBody(numbers(1), heartbeat=heartbeat)


async def numbers(count: int, fault: Exception | None = None) -> AsyncGenerator[Any, None]:
    """Give rows of a user's own iterable; then raise."""
    for number in range(count):
        yield {"number": number}
    if fault is not None:
        raise fault


@EACH
async def test_any_iterable_is_a_stream(make: Make) -> None:
    """Rows of any asynchronous iterable are sent one by one: records, and texts with line ends."""

    async def mixed() -> AsyncIterator[Any]:
        yield {"number": 0}
        yield MetricPoint(1, 2.5)
        yield {"text": "a\nb\r\n\nevent: end"}

    text = await whole(make(mixed()))
    assert rows_of(text, make) == [
        {"number": 0},
        {"timestamp": 1, "value": 2.5},
        {"text": "a\nb\r\n\nevent: end"},
    ]


@EACH
async def test_rows_have_the_forms_of_the_service(make: Make) -> None:
    """Rows of the Data API have the names of the service, and amounts of any length are exact."""
    simulator = Simulator(rows=30)
    async with simulated(simulator) as session:
        rows = rows_of(await whole(make(session.data.evm.transactions(CHAIN))), make)
    assert rows == simulator.rows_of(f"/v1/chains/{CHAIN}/transactions")


@EACH
async def test_error_of_an_iterable_is_a_record(make: Make) -> None:
    """An error of chainapi in a user's iterable is a record, alone or in a group; it has no checkpoint."""
    for fault in (ServerError(500), ExceptionGroup("tasks", [ServerError(500)])):
        problem = problem_in(await whole(make(numbers(2, fault))), make)
        assert problem["status"] == 502
        assert "checkpoint" not in problem


@EACH
async def test_other_errors_stay_errors(make: Make) -> None:
    """A fault of the user's own code is raised: the server logs it and cuts the response short."""
    with pytest.raises(OSError, match="disk"):
        await whole(make(numbers(2, OSError("disk"))))


@EACH
@pytest.mark.parametrize("read", [0, 1])
async def test_closing_ends_the_iterable(make: Make, read: int) -> None:
    """A body that is closed ends a user's generator too, wherever it is."""
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield {}
        finally:
            ended.set()

    async with make(endless()) as body:
        for _ in range(read):
            await anext(aiter(body))
    assert ended.is_set()


async def test_one_task_reads_a_whole_iterable() -> None:
    """A generator runs in one task between heartbeats, so that its timeouts and task groups work."""
    tasks = set[object]()

    async def timed() -> AsyncGenerator[Any, None]:
        async with asyncio.timeout(1_000):
            for number in range(3):
                await asyncio.sleep(7)
                tasks.add(asyncio.current_task())
                yield number

    assert rows_of(await whole(SSEBody(timed(), heartbeat=2)), SSEBody) == [0, 1, 2]
    assert len(tasks) == 1


@EACH
@pytest.mark.parametrize("prefetch", [0, 2])
async def test_nothing_is_sent_after_the_end(make: Make, prefetch: int) -> None:
    """A body that is closed amid a wait for quota leaves no request behind."""
    simulator = Simulator(points=1_000, metrics_limit=3, metrics_window=60)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(CHAIN, prefetch=prefetch)
        async with make(pages) as body:
            pieces = aiter(body)
            await anext(pieces)
            reading = asyncio.ensure_future(anext(pieces))
            await asyncio.sleep(5)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        sent = simulator.stats.requests
        await asyncio.sleep(1_000)
        assert simulator.stats.requests == sent
        assert session.quota["metrics"].waiting == 0


async def test_quota_wait_counts_down_and_ends_with_a_request() -> None:
    """`Pages.quota_wait` is the rest of a wait for quota; 0 before it and after it."""
    simulator = Simulator(limit=1, window=60)
    async with simulated(simulator) as session:
        pages = session.data.evm.blocks(CHAIN)
        assert pages.quota_wait == 0
        await anext(pages)
        reading = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(10)
        assert pages.quota_wait == pytest.approx(50, abs=1)
        await asyncio.sleep(10)
        assert pages.quota_wait == pytest.approx(40, abs=1)
        await reading
        assert pages.quota_wait == 0
