"""Merge of many streams: no row lost or repeated, fair turns, no leftovers."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, nullcontext, suppress
from typing import Any, Literal

import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import Failure, Pages, Session, merge
from chainapi.errors import (
    APIConnectionError,
    AuthenticationError,
    ChainAPIError,
    ConfigurationError,
    NotFoundError,
    PagingError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop, run
from chainapi.transport import Request, Response, Transport
from tests.client.services import alone, settle, time
from tests.sessions import reaching, simulated

Blocks = Pages[dict[str, Any]]
CHAINS = range(1, 7)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where a task or a generator leaves an unexpected error."""
    yield
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def blocks(session: Session, chain: int, *, page_size: int = 10, **options: Any) -> Blocks:
    """Return the blocks of a chain."""
    return session.data.list(f"/v1/chains/{chain}/blocks", items="blocks", page_size=page_size, **options)


def many(session: Session, chains: Iterable[int], **options: Any) -> Iterator[tuple[int, Blocks]]:
    """Open the blocks of chains one by one, as the merge takes them."""
    for chain in chains:
        yield chain, blocks(session, chain, **options)


def numbers(page: Any) -> list[int]:
    """Return the numbers of the blocks of a page."""
    return [int(block["blockNumber"]) for block in page]


async def drain(merged: AsyncGenerator[Any, None], into: list[Any] | None = None) -> None:
    """Read a merge to its end, however it ends; keep the pages and failures."""
    async for entry in merged:
        if into is not None:
            into.append(entry)


async def outcome(merged: AsyncGenerator[Any, None]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return the pages of a merge with their keys, and its errors with the notes or keys of their sources."""
    entries: list[Any] = []
    errors: list[tuple[str, Any]] = []
    try:
        await drain(merged, entries)
    except* ChainAPIError as group:
        for error in group.exceptions:
            assert error.__traceback__ is not None  # it shows where it was raised
            errors.append((error.__notes__[0], error))
    for key, one in entries:
        if isinstance(one, Failure):
            assert one.checkpoint == one.error.checkpoint
            errors.append((f"source: {key}", one.error))
    assert alone()
    return [(key, one) for key, one in entries if not isinstance(one, Failure)], errors


def slow(chain: int, seconds: float) -> Fault:
    """Return the fault that makes all responses of a chain late."""
    return Fault(route=f"/v1/chains/{chain}/blocks", slow=seconds)


@define
class Wire:
    """Simulator's transport, behind a function that may wait or raise at the path of a request."""

    inner: Transport
    before: Callable[[str], Awaitable[None]]

    async def send(self, request: Request) -> Response:
        """Send a request on after the function."""
        await self.before(request.url)
        return await self.inner.send(request)

    async def aclose(self) -> None:
        """Close the simulator's transport."""
        await self.inner.aclose()


# What it takes and gives


async def _asynchronously(entries: Iterable[Any]) -> AsyncGenerator[Any, None]:
    for entry in entries:
        yield entry
        await asyncio.sleep(0.01)


@define
class Later:
    """Asynchronous iterator that is no generator."""

    entries: Iterator[Any]

    def __aiter__(self) -> Later:
        return self

    async def __anext__(self) -> Any:
        """Return the next entry a little later."""
        await asyncio.sleep(0.01)
        for entry in self.entries:
            return entry
        raise StopAsyncIteration


FORMS: list[tuple[Callable[[Any], Any], int]] = [
    *((list, 1), (tuple, 3), (iter, 32), (dict, 3), (_asynchronously, 3)),
    (lambda entries: Later(iter(list(entries))), 32),
]


@pytest.mark.parametrize(("form", "concurrency"), FORMS)
async def test_each_page_once_in_order(form: Callable[[Any], Any], concurrency: int) -> None:
    """Pages of each source are yielded once and in order, from any kind of iterable or mapping."""
    simulator = Simulator(chains=range(1, 8), rows=45, latency=lambda draw: draw.uniform(0.01, 1.0))
    got: dict[int, list[int]] = defaultdict(list)
    async with simulated(simulator) as session:
        async for chain, page in merge(form(many(session, range(1, 8))), concurrency=concurrency):
            got[chain] += numbers(page)
        for chain in range(1, 8):
            straight = [row async for row in blocks(session, chain).items()]
            assert got.pop(chain) == numbers(straight)
    assert not got
    assert simulator.stats.answered == Counter({200: 7 * 5 * 2})
    assert [given async for given in merge(form([]))] == []
    assert alone()


async def test_without_keys_the_stream_is_the_source() -> None:
    """Without keys, each page is yielded with its stream, whose state can be read."""
    simulator = Simulator(points=250)
    async with simulated(simulator) as session:
        streams = [session.metrics.avg_tps(chain) for chain in (43114, 43113)]
        rows: Counter[Pages[Any]] = Counter()
        async for stream, page in merge(streams):
            assert stream.checkpoint.rows >= page.checkpoint.rows
            assert page.last_run is not None
            rows[stream] += len(page)
        assert all(stream.exhausted for stream in streams)
    assert rows == dict.fromkeys(streams, 250)


def test_arguments_are_checked_at_once() -> None:
    """An argument that cannot be used is refused by the call, outside of any loop."""
    cases: list[tuple[Any, dict[str, Any], str]] = [
        *(([], {"concurrency": value}, "concurrency=") for value in (0, -1, True, 2.0, "3", None)),
        *(([], {"on_error": value}, "on_error=") for value in ("ignore", None, True)),
        ([], {"stop": True}, "stop=True must be an asyncio.Event"),
        (None, {}, "not NoneType"),
        (7, {}, "not int"),
        (blocks(simulated(Simulator()), 43114), {}, "such as a list of them, not Pages"),
    ]
    for streams, options, wrong in cases:
        with pytest.raises(ConfigurationError, match=wrong):
            merge(streams, **options)


async def test_entries_are_checked() -> None:
    """An entry that is no stream ends the merge, after the pages fetched until then."""
    session = simulated(Simulator())
    for wrong, named in (
        (None, "NoneType$"),
        (7, "int$"),
        ("no", "str$"),
        ((1, 2), "a key and int$"),
        ((1, 2, 3), "tuple$"),
        (("key", None), "a key and NoneType$"),
        ((1, blocks(session, 1).items()), "a key and async_generator: pass the stream, without .items"),
        ((1, session.data.evm.blocks), "a key and method: call it"),
    ):
        async with simulated(Simulator(rows=30)) as session:
            got: list[Any] = []
            with pytest.raises(ConfigurationError, match=f"Pages, or pairs of a key and Pages, not {named}"):
                await drain(merge(_asynchronously([("a", blocks(session, 43114)), wrong])), got)
        assert {key for key, _ in got} == {"a"}
        assert alone()


async def test_nothing_happens_before_the_first_page_is_requested() -> None:
    """A merge that is never read takes no stream, starts no task, needs no closing."""
    taken = []

    def streams() -> Iterator[Blocks]:
        taken.append(1)
        yield from ()

    merged = merge(streams())
    await settle()
    assert not taken
    assert alone()
    await merged.aclose()
    assert [entry async for entry in merged] == []


# How many, how far ahead, in which turn


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_streams_are_opened_when_there_is_room(concurrency: int) -> None:
    """The next stream is taken as soon as fewer than `concurrency` are open, and not before."""
    simulator = Simulator(chains=range(1, 31), rows=25, latency=lambda draw: draw.uniform(0.01, 1.0))
    opened: list[Blocks] = []
    others = []

    def lazily(session: Session) -> Iterator[tuple[int, Blocks]]:
        for chain, stream in many(session, range(1, 31)):
            others.append(sum("closed" not in repr(other) for other in opened))
            opened.append(stream)
            yield chain, stream

    async with simulated(simulator) as session:
        async for _ in merge(lazily(session), concurrency=concurrency):
            pass
    assert max(others) == concurrency - 1
    assert all(stream.exhausted for stream in opened)


@pytest.mark.parametrize(("known", "concurrency"), [(True, 1), (True, 5), (False, 4)])
async def test_look_ahead_is_bounded(known: bool, concurrency: int) -> None:
    """At most one page, or failure, is fetched ahead for each open source, however slow the reader."""
    simulator = Simulator(chains=range(1, 21) if known else (43114,), rows=50)
    taken = 0
    async with simulated(simulator) as session:
        streams = many(session, range(1, 21))
        async for _, one in merge(streams, concurrency=concurrency, on_error="yield"):
            assert isinstance(one, Failure) != known
            taken += 1
            await asyncio.sleep(60)
            assert simulator.stats.requests <= taken + concurrency
            if known and taken <= 80 - concurrency:
                assert simulator.stats.requests == taken + concurrency
    assert taken == simulator.stats.requests == (100 if known else 20)


async def test_waiting_sources_take_turns() -> None:
    """Sources take turns for a slow reader: every ten pages are one of each of ten sources."""
    chains = range(1, 11)
    faults = [slow(chain, chain * 0.3) for chain in range(5, 11)]
    order = []
    async with simulated(Simulator(chains=chains, rows=100, faults=faults)) as session:
        async for chain, _ in merge(many(session, chains)):
            order.append(chain)
            await asyncio.sleep(5)
    assert Counter(order) == dict.fromkeys(chains, 10)
    rounds = [sorted(order[start : start + 10]) for start in range(1, 80)]  # the first page comes alone
    assert rounds == [list(chains)] * 79


async def test_slow_source_holds_up_nobody() -> None:
    """A slow source holds up nobody: all pages of the others are yielded meanwhile."""
    simulator = Simulator(chains=range(1, 6), rows=100, latency=0.1, faults=[slow(2, 20.0)])
    async with simulated(simulator) as session:
        order = [chain async for chain, _ in merge(many(session, range(1, 6)), concurrency=2)]
    assert order[:40].count(2) == 0
    assert order[40:] == [2] * 10


@pytest.mark.proof
async def test_quota_is_used_up() -> None:
    """500 chains of 4 pages take at most 1.05 times the time that the quota allows."""
    chains, limit, window = range(1, 501), 100, 10.0
    simulator = Simulator(chains=chains, rows=4, limit=limit, window=window, latency=0.05)
    given: Counter[int] = Counter()
    async with simulated(simulator) as session:
        async for chain, _ in merge(many(session, chains, page_size=1), concurrency=100):
            given[chain] += 1
    assert given == dict.fromkeys(chains, 4)
    # A window's requests are free at its beginning, so the last ones leave when the last window begins.
    assert time() <= 1.05 * (500 * 4 / limit - 1) * window
    assert simulator.stats.refused <= 5
    assert simulator.stats.sent_while_stopped == 0


# Memory


@define
class Plain:
    """Service of two pages for every caller, without a memory.

    `second` is its response to the token.
    """

    first: bytes
    second: Response

    async def send(self, request: Request) -> Response:
        """Return a body of its own, as a connection would."""
        await asyncio.sleep(0)
        if "pageToken" in request.url:
            return self.second
        return Response(200, {}, bytes(bytearray(self.first)))

    async def aclose(self) -> None:
        """Do nothing."""


POINTS = b",".join(b'{"timestamp": %d, "value": 1.5}' % (1_700_000_000 - number) for number in range(100))
FIRST = b'{"results": [' + POINTS + b'], "nextPageToken": "t"}'
SECOND = b'{"results": [' + POINTS.replace(b": 169", b": 159") + b"]}"


async def peak(sources: int, second: Response) -> int:
    """Return the peak of bytes that a merge of some sources held, beside those held before it."""
    transport = Plain(FIRST, second)
    async with reaching(transport, on_expired="raise") as session:
        streams = ((chain, session.metrics.avg_tps(chain + 1)) for chain in range(sources))
        gc.collect()
        tracemalloc.start()
        with suppress(ExceptionGroup):
            await drain(merge(streams, concurrency=8))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return used


@pytest.mark.proof
@pytest.mark.parametrize(
    ("second", "sources", "more"),
    [(Response(200, {}, SECOND), 600, 2**20), (Response(400, {}, b"{}"), 500, 400 * 8 * 1024)],
    ids=["whole", "failed"],
)
async def test_memory_is_flat(second: Response, sources: int, more: int) -> None:
    """Sources that ended, whose pages take 25 KiB, hold next to nothing; those that failed hold 8 KiB."""
    few = await peak(100, second)
    assert await peak(sources, second) < few + more


# Ends


Block = Callable[[AsyncGenerator[Any, None], Session], Any]


async def _thrown_in(merged: AsyncGenerator[Any, None], session: Session) -> None:
    await anext(merged)
    with pytest.raises(LookupError):
        await merged.athrow(LookupError())


async def _cancelled_at_once(merged: AsyncGenerator[Any, None], session: Session) -> None:
    task = asyncio.ensure_future(anext(merged))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _session_closed(merged: AsyncGenerator[Any, None], session: Session) -> None:
    async def read() -> None:
        async for _ in merged:
            await session.aclose()

    with pytest.raises(SessionClosedError):
        await read()


@pytest.mark.parametrize("block", [_thrown_in, _cancelled_at_once, _session_closed])
@pytest.mark.parametrize("form", [list, iter, _asynchronously])
async def test_nothing_outlives_the_block(block: Block, form: Callable[..., Any]) -> None:
    """No task, request or open stream of a merge outlives its block, however it ends."""
    simulator = Simulator(chains=range(1, 21), rows=30, latency=0.1, limit=12, window=3.0)
    opened: list[Blocks] = []

    def opening(session: Session) -> Iterator[tuple[int, Blocks]]:
        for chain, stream in many(session, range(1, 21), prefetch=1):
            opened.append(stream)
            yield chain, stream

    async with simulated(simulator) as session:
        await block(merge(form(opening(session)), concurrency=8), session)
        taken = 0 if block is _cancelled_at_once else 8
        if form is list:  # opened by the test; those that the merge did not take can be read
            opened, unread = opened[:taken], opened[taken:]
            assert not [stream for stream in unread if "closed" in repr(stream)]
        assert all("closed" in repr(stream) for stream in opened if block is not _session_closed)
        await left_alone(session)


async def left_alone(session: Session) -> None:
    """Assert that no task is left, and no request waits or is under way."""
    await asyncio.sleep(0)  # the streams' own pages ahead, which were cancelled
    assert alone()
    assert session.data.quota.in_flight == session.data.quota.waiting == 0


async def test_dropped_merge_ends_by_itself() -> None:
    """A merge left with `break` and dropped ends on the next turns of the loop."""
    simulator = Simulator(chains=range(1, 21), rows=30, latency=0.1)
    async with simulated(simulator) as session:
        async for _ in merge(many(session, range(1, 21))):
            break
        await settle()
        assert alone()
        sent = simulator.stats.requests
        await asyncio.sleep(60)
        assert simulator.stats.requests == sent


def test_loop_that_ends_meanwhile() -> None:
    """A program that returns in the middle of a merge ends without a warning."""
    complaints: list[Any] = []
    simulator = Simulator(chains=range(1, 21), rows=30, latency=0.1)
    merged = None

    async def main() -> None:
        nonlocal merged
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        session = simulated(simulator)
        merged = merge(many(session, range(1, 21)))
        await anext(merged)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert merged is not None
    assert complaints == []


async def test_cancelled_again_while_it_ends() -> None:
    """A merge waits for an iterable that takes time to end, even if cancelled again."""
    ended: list[float] = []

    async def streams(session: Session) -> AsyncGenerator[Blocks, None]:
        try:
            for chain in (43114, 43113):
                yield blocks(session, chain)
            await asyncio.sleep(100)
        finally:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                ended.append(time())

    async with simulated(Simulator(rows=10)) as session:
        merged = merge(streams(session))

        reader = asyncio.create_task(drain(merged))
        await asyncio.sleep(10)
        reader.cancel()
        await asyncio.sleep(10)
        assert not reader.done()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert ended == [pytest.approx(111)]
        assert alone()


@pytest.mark.parametrize("error", [None, ZeroDivisionError], ids=["left", "failed"])
async def test_transport_that_swallows_its_cancellation(error: type[Exception] | None) -> None:
    """A merge ends although a transport raises an error or returns a page in place of its cancellation."""

    async def stubborn(url: str) -> None:
        if "/chains/1/" not in url:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if "/chains/2/" in url:
                    raise APIConnectionError("cancelled") from None
        elif error is not None and "pageToken" in url:
            raise error

    simulator = Simulator(chains=CHAINS, rows=30, limit=1_000)
    wire = Wire(simulator.transport(), stubborn)
    async with simulated(simulator, transport=wire, max_attempts=1) as session:
        merged = merge(many(session, CHAINS), on_error="yield")
        assert (await anext(merged))[0] == 1
        await asyncio.sleep(1)
        with nullcontext() if error is None else pytest.raises(error):
            await (merged.aclose() if error is None else drain(merged))
        assert time() < 2
        assert simulator.stats.requests <= 2 + 4
        assert alone()


# Cancelled and stopped anywhere


@define
class Torn:
    """Record of a reader whose merge was torn apart, or ended."""

    rows: dict[int, list[int]] = field(factory=lambda: defaultdict[int, list[int]](list))
    checkpoints: dict[int, Any] = field(factory=dict[int, Any])
    streams: dict[int, Blocks] = field(factory=dict[int, Blocks])

    def open(self, session: Session, chains: Iterable[int], prefetch: int) -> Iterator[tuple[int, Blocks]]:
        """Open what is left of each chain."""
        for chain in chains:
            checkpoint = self.checkpoints.get(chain)
            self.streams[chain] = blocks(session, chain, resume=checkpoint, prefetch=prefetch)
            yield chain, self.streams[chain]

    async def read(self, merged: AsyncGenerator[Any, None], pause: float) -> None:
        """Take pages, each in one step with its checkpoint.

        A reader who saves them would do so.
        """
        async with aclosing(merged):
            async for chain, page in merged:
                self.rows[chain] += numbers(page)
                self.checkpoints[chain] = page.checkpoint
                if pause:
                    await asyncio.sleep(pause)


How = list[tuple[str, float]]


@example(7, [("cancel", 0.3), ("stop", 1.7), ("close", 0.05), ("stop", 2.5)], 3, 0.05, 0)
@example(7, [("stop", 0.0), ("close", 3.1), ("cancel", 2.0)], 8, 0.5, 1)
@example(7, [("cancel", 0.9), ("cancel", 1.1), ("stop", 0.4)], 1, 0.0, 1)
@given(
    seed=st.integers(0, 2**16),
    how=st.lists(st.tuples(st.sampled_from(["cancel", "stop", "close"]), st.floats(0, 4)), max_size=6),
    concurrency=st.integers(1, 8),
    pause=st.sampled_from([0, 0, 0.05, 0.5]),
    prefetch=st.integers(0, 1),
)
def test_torn_anywhere(seed: int, how: How, concurrency: int, pause: float, prefetch: int) -> None:
    """A merge torn at any moments sends nothing more, and resumed yields each row once, in order.

    After a stop, what was given is all that was fetched: the streams stand at the checkpoints of their pages.
    """

    async def main() -> None:
        simulator = Simulator(
            seed,
            chains=CHAINS,
            rows=45,
            limit=12,
            window=2.0,
            latency=lambda draw: draw.choice([0.0, 0.1, draw.random()]),
            faults=[Fault(every=7, status=502)],
        )
        torn = Torn()
        async with simulated(simulator) as session:
            for manner, seconds in how:
                torn.streams.clear()
                stop = asyncio.Event()
                merged = merge(torn.open(session, CHAINS, prefetch), concurrency=concurrency, stop=stop)
                reader = asyncio.create_task(torn.read(merged, pause))
                await asyncio.wait([reader], timeout=seconds)
                if manner == "stop":
                    stop.set()
                    began = time()
                    await reader
                    assert time() - began <= pause * (concurrency + 2) + 1e-3
                    for chain, stream in torn.streams.items():
                        assert stream.checkpoint == torn.checkpoints.get(chain, stream.checkpoint)
                        assert chain in torn.checkpoints or stream.checkpoint.rows == 0
                elif not reader.done():
                    reader.cancel()
                    await asyncio.wait([reader])
                assert all("closed" in repr(stream) or stream.exhausted for stream in torn.streams.values())
                await left_alone(session)
                sent = simulator.stats.requests
                await asyncio.sleep(seconds)
                assert simulator.stats.requests == sent
            await torn.read(merge(torn.open(session, CHAINS, prefetch), concurrency=concurrency), pause)
            for chain in CHAINS:
                assert torn.rows[chain] == sorted(set(torn.rows[chain]), reverse=True)
                assert len(torn.rows[chain]) == 45
        assert alone()

    run(main())


async def test_stop_before_the_first_page() -> None:
    """A merge that was stopped before it was read sends nothing, and opens no stream."""
    simulator = Simulator()
    async with simulated(simulator) as session:
        stop = asyncio.Event()
        stop.set()
        stream = blocks(session, 43114)
        await drain(merge([stream], stop=stop))
        assert simulator.stats.requests == 0
        assert len(await stream.collect(limit=3)) == 3


async def test_stop_inside_the_body_gives_what_was_fetched() -> None:
    """A stop inside the body yields the pages in hand, then raises the errors so far."""
    simulator = Simulator(chains=CHAINS, rows=100)
    async with simulated(simulator) as session:
        stop = asyncio.Event()
        got = []

        async def read() -> None:
            async for chain, _ in merge(many(session, [404, *CHAINS]), stop=stop):
                await asyncio.sleep(1)
                got.append(chain)
                if len(got) == 6:
                    stop.set()

        with pytest.raises(ExceptionGroup) as caught:
            await read()
        assert [type(error) for error in caught.value.exceptions] == [NotFoundError]
        assert got == [*CHAINS, *CHAINS]
        assert simulator.stats.requests == 13


@pytest.mark.parametrize("soon", [False, True], ids=["in the step", "in the next step"])
async def test_stop_as_a_stream_is_opened(soon: bool) -> None:
    """A stream that an iterable gives in the step of a stop, or just before it, sends nothing."""
    simulator = Simulator(rows=10)

    async def streams(session: Session, stop: asyncio.Event) -> AsyncGenerator[Blocks, None]:
        yield blocks(session, 43114)
        await asyncio.sleep(1)
        if soon:
            asyncio.get_running_loop().call_soon(stop.set)
        else:
            stop.set()
        yield blocks(session, 43113)

    async with simulated(simulator) as session:
        stop = asyncio.Event()
        got: list[Any] = []
        await drain(merge(streams(session, stop), stop=stop), got)
        assert (len(got), simulator.stats.requests) == (1, 1)
        assert alone()


@pytest.mark.parametrize("how", ["stopped", "cancelled", "closed"])
@pytest.mark.parametrize("ends", [False, True])
async def test_stream_that_comes_after_a_cancellation_is_not_opened(how: str, ends: bool) -> None:
    """An iterable that swallows its cancellation may end, or give a stream that the merge leaves alone."""
    simulator = Simulator(chains=CHAINS, rows=10, latency=0.1)
    late: list[Blocks] = []

    async def before(url: str) -> None:
        if "/2/" in url:
            await asyncio.sleep(1)
            raise asyncio.CancelledError

    async def streams(session: Session) -> AsyncGenerator[Blocks, None]:
        yield blocks(session, 2 if how == "cancelled" else 1)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1_000)
        if not ends:
            late.append(blocks(session, 3))
            yield late[0]

    wire = Wire(simulator.transport(), before)
    async with simulated(simulator, transport=wire) as session:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(5, stop.set)
        merged = merge(streams(session), stop=stop)
        if how == "closed":
            await anext(merged)
            await merged.aclose()
        else:
            cancelled = pytest.raises(asyncio.CancelledError, match="by somebody else")
            with cancelled if how == "cancelled" else nullcontext():
                await drain(merged)
        assert alone()
        assert time() < 6
        for stream in late:
            assert len(await stream.collect(limit=3)) == 3  # it was left alone
        assert len(late) == (not ends)


# Failures


Choice = Literal["yield", "raise"]
choice = pytest.mark.parametrize("on_error", ["yield", "raise"])


@choice
async def test_failures_stop_no_other_source(on_error: Choice) -> None:
    """Failures are yielded in their turn, or raised after the others ended, each with source and place."""
    async with simulated(Simulator(chains=CHAINS, rows=50)) as session:
        streams = many(session, [404, *CHAINS, 405])
        pages, errors = await outcome(merge(streams, concurrency=2, on_error=on_error))
    assert Counter(chain for chain, _ in pages) == dict.fromkeys(CHAINS, 5)
    assert [source for source, _ in errors] == ["source: 404", "source: 405"]
    for (_, error), chain in zip(errors, (404, 405), strict=True):
        assert isinstance(error, NotFoundError)
        assert error.checkpoint is not None
        assert error.checkpoint.path == f"/v1/chains/{chain}/blocks"


@choice
async def test_source_that_failed_goes_on_at_its_checkpoint(on_error: Choice) -> None:
    """A source that failed resumes at its checkpoint, after the last page yielded."""
    simulator = Simulator(rows=50, faults=[Fault(at=5, every=1, times=6, status=500)])
    async with simulated(simulator, max_attempts=2) as session:
        pages, [(_, error)] = await outcome(merge([(7, blocks(session, 43114))], on_error=on_error))
        rows = [number for _, page in pages for number in numbers(page)]
        assert len(rows) == 40
        simulator.faults = ()
        rows += numbers(await blocks(session, 43114, resume=error.checkpoint).collect())
    assert len(rows) == len(set(rows)) == 50


@choice
async def test_wrong_key_is_tried_by_few(on_error: Choice) -> None:
    """A key that is refused ends a merge of 2,000 sources after as many requests as may be open at once."""
    simulator = Simulator(chains=range(1, 2_001))
    async with simulated(simulator, api_key="wrong") as session:
        opened: list[int] = []

        def streams() -> Iterator[tuple[int, Blocks]]:
            for chain, stream in many(session, range(1, 2_001)):
                opened.append(chain)
                yield chain, stream

        with pytest.raises(AuthenticationError) as caught:
            await drain(merge(streams(), concurrency=8, on_error=on_error))
        assert "source: 1" in caught.value.__notes__
        assert caught.value.checkpoint is not None
    assert simulator.stats.requests <= 8
    assert len(opened) == 8
    assert alone()


@choice
async def test_pages_come_before_an_error_of_the_session(on_error: Choice) -> None:
    """A closed session yields the pages fetched, then raises SessionClosedError, with earlier failures."""
    simulator = Simulator(chains=CHAINS, rows=100)
    async with simulated(simulator) as session:
        got = []

        async def read() -> None:
            async for chain, _ in merge(many(session, [404, *CHAINS]), on_error=on_error):
                await asyncio.sleep(1)
                got.append(chain)
                await session.aclose()

        with pytest.raises(SessionClosedError) as caught:
            await read()
    group = caught.value.__context__
    told = [error.__notes__ for error in group.exceptions] if isinstance(group, ExceptionGroup) else []
    assert told == ([["source: 404"]] if on_error == "raise" else [])
    first = 1 if on_error == "raise" else 404
    assert sorted(got) == sorted([first, *CHAINS])
    assert simulator.stats.requests == (8 if on_error == "raise" else 7)


@choice
@pytest.mark.parametrize("where", ["stream", "iterable"])
@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), asyncio.CancelledError()], ids=repr)
async def test_bug_is_raised_as_it_is(on_error: Choice, where: str, error: BaseException) -> None:
    """A foreign exception or a cancellation under a source or of the iterable is raised unwrapped."""

    async def before(url: str) -> None:
        if where == "stream" and "/chains/3/" in url:
            raise error

    def streams(session: Session) -> Iterator[tuple[int, Blocks]]:
        yield from many(session, CHAINS)
        if where == "iterable":
            raise error

    simulator = Simulator(chains=CHAINS, rows=10, latency=0.1)
    got: list[Any] = []
    async with simulated(simulator, transport=Wire(simulator.transport(), before)) as session:
        with pytest.raises(type(error), match=r"a bug|by somebody else") as caught:
            await drain(merge(streams(session), concurrency=3, on_error=on_error), got)
        assert caught.value is error or isinstance(error, asyncio.CancelledError)
        assert alone()
    assert len(got) >= (4 if where == "iterable" else 0)  # the pages fetched so far


# Streams that are not fresh


@pytest.mark.parametrize("late", [False, True], ids=["at once", "at the end"])
async def test_stream_given_twice(late: bool) -> None:
    """A stream given twice is walked once, and is a failure the second time, also after its end."""
    async with simulated(Simulator(rows=50)) as session:
        stream = blocks(session, 43114)
        entries = [("first", stream), ("between", blocks(session, 43113)), ("again", stream)]
        pages, errors = await outcome(merge(entries, concurrency=1 if late else 3, on_error="yield"))
    assert Counter(key for key, _ in pages) == {"first": 5, "between": 5}
    [(source, error)] = errors
    assert isinstance(error, PagingError)
    assert (source, "passed twice" in str(error)) == ("source: again", True)
    assert stream.exhausted


async def test_stream_that_was_closed() -> None:
    """A stream closed before its end, before the merge or meanwhile, is a failure with its checkpoint."""
    async with simulated(Simulator(rows=50)) as session:
        closed, meanwhile = blocks(session, 43114), blocks(session, 43113)
        await closed.aclose()
        failures = {}
        async for key, one in merge({"closed": closed, "meanwhile": meanwhile}, on_error="yield"):
            if isinstance(one, Failure):
                failures[key] = one
            await meanwhile.aclose()
        assert sorted(failures) == ["closed", "meanwhile"]
        assert all("closed before its end" in str(failure.error) for failure in failures.values())
        checkpoint = failures["meanwhile"].checkpoint
        rest = await blocks(session, 43113, resume=checkpoint).collect()
        assert len(rest) == 50 - checkpoint.rows


async def test_stream_that_was_read_before() -> None:
    """A stream that was begun yields its rest; an exhausted one yields nothing."""
    async with simulated(Simulator(rows=50)) as session:
        begun, done = blocks(session, 43114), blocks(session, 43113)
        rows = numbers(await begun.collect(3))
        await done.collect()
        pages, _ = await outcome(merge({"begun": begun, "done": done}))
    assert {key for key, _ in pages} == {"begun"}
    rows += [number for _, page in pages for number in numbers(page)]
    assert len(rows) == len(set(rows)) == 50


async def test_stream_that_somebody_reads() -> None:
    """A stream whose page another reader waits for is a failure, and that reader gets its page."""
    async with simulated(Simulator(rows=50, latency=1)) as session:
        stream = blocks(session, 43114)
        other = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.5)
        got: list[Any] = []
        await drain(merge([("read", stream)], on_error="yield"), got)
        ((_, failure),) = got
        assert "being read already" in str(failure.error)
        assert len(await other) == 10
