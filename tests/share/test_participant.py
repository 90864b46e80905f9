"""The gate of one process in a shared quota, message by message: the tests play the host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import pytest
from aiolimiter import AsyncLimiter

from chainapi import Limit
from chainapi.client.member import Member
from chainapi.core.limits import verdict as verdicts
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.share.messages import (
    HOLDING,
    MAX_FRAME,
    MOST,
    VERSION,
    Acquire,
    Answered,
    Cancel,
    Denied,
    FromHost,
    FromParticipant,
    Granted,
    Hello,
    Holding,
    Join,
    Leave,
    Lost,
    Recall,
    Refused,
    State,
    Unsent,
    Verdict,
    Waiting,
    Welcome,
    encode,
    limits_of,
    read_participant_frame,
)
from chainapi.errors import (
    APITimeoutError,
    ConfigurationError,
    QuotaWaitError,
    SessionClosedError,
    ShareUnavailableError,
)
from chainapi.share.gate import OnUnavailable, SharedGate
from chainapi.share.link import Link, PairedLink, Serve, linked_pair
from chainapi.share.permits import SharedPermit

M = TypeVar("M", bound=FromParticipant)
MINUTE = (PolicyField(100.0, 60.0),)
OK = RateLimitInfo(100.0, 99.0, None, None, MINUTE)
STOP = RateLimitInfo(100.0, 0.0, 30.0, 30.0, MINUTE)


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def about(seconds: float, margin: float = 0.01) -> Any:
    """Return what equals a time in seconds but for a margin."""
    return pytest.approx(seconds, abs=margin)


async def settle() -> None:
    """Let all messages arrive."""
    await asyncio.sleep(0.001)


def timers() -> int:
    """Return the number of timers that are set in the loop."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not timer.cancelled() for timer in scheduled)


class PlayedHost:
    """Carrier of one process, and the host at the other end of its links, which the test plays."""

    def __init__(self) -> None:
        self.error: Exception | None = None  # of connect
        self.greets = True  # whether a new link gets Welcome
        self.hangs = False  # whether connect does not end
        self.connections = 0
        self.closed = 0
        self.stored: list[tuple[str, bytes]] = []
        self.link: PairedLink | None = None
        self.frames: list[list[FromParticipant]] = []
        self.broken = 0

    async def connect(self, name: str, make_host: Callable[[bytes, float], Serve]) -> Link:
        """Return a link to the host."""
        assert name == "quota"
        self.connections += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        near, self.link = linked_pair()
        self.frames.clear()
        self.link.start(lambda frame: self.frames.append(read_participant_frame(frame)), self._break)
        if self.greets:
            self.send(Welcome(VERSION))
        return near

    def store(self, name: str, memory: bytes) -> None:
        """Store a memory."""
        self.stored.append((name, memory))

    async def aclose(self, name: str) -> None:
        """End."""
        assert name == "quota"
        self.closed += 1

    def _break(self) -> None:
        self.broken += 1

    def send(self, *messages: FromHost) -> None:
        """Send some messages in one frame."""
        assert self.link is not None
        self.link.send(encode(messages))

    def fail(self) -> None:
        """Break the link."""
        assert self.link is not None
        self.link.fail()

    @property
    def received(self) -> list[FromParticipant]:
        """Messages of the process on the present link."""
        return [one for frame in self.frames for one in frame]

    def all(self, kind: type[M]) -> list[M]:
        """Return the messages of a kind."""
        return [one for one in self.received if isinstance(one, kind)]

    def take(self) -> list[FromParticipant]:
        """Return the messages that arrived since the last call."""
        received = self.received
        self.frames.clear()
        return received


class Process:
    """Process with one session, and its host."""

    def __init__(self, on_unavailable: OnUnavailable = "degrade", member: Member | None = None) -> None:
        self.host = PlayedHost()
        self.member = member or Member()
        self.gate = SharedGate("quota", "https://data.test", self.host, on_unavailable)
        self.gate._permits._responded = True  # the first response requests the state: see test_shared_gate
        self.gate.join(self.member)

    def call(self, route: str = "/a", **options: Any) -> asyncio.Task[SharedPermit]:
        """Begin to acquire a permit."""
        acquired = self.gate.acquire(route, member=self.member, **options)
        return asyncio.create_task(acquired)

    async def requested(self, **options: Any) -> tuple[asyncio.Task[SharedPermit], int]:
        """Begin to acquire a permit; return the number of the request too."""
        task = self.call(**options)
        await settle()
        return task, self.host.all(Acquire)[-1].number

    async def granted(self, *permits: int, **options: Any) -> SharedPermit:
        """Return a permit that the host granted, with others in advance."""
        task, number = await self.requested(**options)
        self.host.send(Granted(number, permits))
        permit = await task
        await settle()
        self.host.take()
        return permit


async def answer(*permits: SharedPermit) -> None:
    """Report a success for each permit."""
    for permit in permits:
        assert await permit.answered(200, OK) is verdicts.Verdict.PASSED


async def ended(task: asyncio.Task[SharedPermit]) -> BaseException | None:
    """Return the error of a task, which ends now; None for a result."""
    await settle()
    assert task.done()
    return None if task.cancelled() else task.exception()


# --- greeting ---------------------------------------------------------------------------------


async def test_first_request_connects_and_greets() -> None:
    """A gate connects when it is used; its greeting has the sessions, then the requests."""
    process = Process(member=Member(timeout=20.0))
    await settle()
    assert process.host.connections == 0
    task = process.call("/a", cost=2.0, priority=3, tag="t", again=True)
    await settle()
    (frame,) = process.host.frames
    hello, join, acquire = frame
    assert isinstance(hello, Hello)
    assert (hello.version, hello.origin, hello.stopped) == (VERSION, "https://data.test", 0.0)
    assert hello.process.endswith(f":{os.getpid()}")
    assert join == Join(0, timeout=20.0)
    assert acquire == Acquire(1, 0, "/a", 2.0, 3, None, None, True, "t")
    process.host.send(Granted(1, (7,)))
    permit = await task
    assert (permit.number, permit.leased, permit.sent) == (7, False, about(time()))


async def test_settings_of_a_session_are_those_of_the_message() -> None:
    """All settings of a session reach the host, within the range of messages."""
    member = Member(
        rate=Limit(5, per=2.0, units=True),
        max_in_flight=3,
        limits=[Limit(7, per=60.0)],
        probe=False,
        max_stop=1e300,
        tag="night",
        timeout=1e300,
    )
    process = Process(member=member)
    process.call()
    await settle()
    (join,) = process.host.all(Join)
    assert join == Join(0, "night", (5.0, 2.0, True), 3, ((7.0, 60.0, False),), False, MOST, MOST)
    other = Member(max_in_flight=2**70)
    process.gate.join(other)
    await settle()
    assert process.host.all(Join)[1].max_in_flight == 2**63 - 1
    assert process.host.all(Join)[1].max_stop is None


async def test_a_longer_timeout_of_a_view_is_reported_once() -> None:
    """The settings are sent again before the first request that may take longer than they say."""
    process = Process(member=Member(timeout=20.0))
    process.call()
    await settle()
    process.member.timeout = 200.0
    process.call()
    process.call()
    await settle()
    assert [(join.session, join.timeout) for join in process.host.all(Join)] == [(0, 20.0), (0, 200.0)]
    kinds = [type(message) for frame in process.host.frames for message in frame]
    assert kinds == [Hello, Join, Acquire, Join, Acquire, Acquire]


async def test_times_left_are_those_of_the_sending() -> None:
    """The host gets the seconds that are left when the message is sent, not those of the call."""
    process = Process()
    process.host.error = ShareUnavailableError("away")
    process.call(max_wait=10.0, deadline=time() + 20.0)
    process.call(max_wait=0.0, deadline=time() - 5.0)
    process.call(max_wait=inf, deadline=1e300, cost=1e300, priority=2**70, route="x" * 2000)
    await asyncio.sleep(1.1)
    process.host.error = None
    await asyncio.sleep(0.3)
    first, second, third = process.host.all(Acquire)
    assert (first.max_wait, first.left) == (about(8.7, 0.1), about(18.7, 0.1))
    assert (second.max_wait, second.left) == (0.0, 0.0)
    assert (third.max_wait, third.left, third.cost, third.priority) == (None, MOST, MOST, 2**63 - 1)
    assert third.route == "x" * 1024


async def test_bucket_of_one_loop_is_refused() -> None:
    """rate= has to be a Limit beside share=; the session does not join."""
    process = Process()
    with pytest.raises(ConfigurationError, match="belongs to one event loop"):
        process.gate.join(Member(rate=AsyncLimiter(5)))
    process.call()
    await settle()
    assert len(process.host.all(Join)) == 1


async def test_sessions_come_and_leave() -> None:
    """A session that joins or leaves later is a message of its own; a second leave sends nothing."""
    process = Process()
    await process.granted(1)
    other = Member()
    process.gate.join(other)
    await settle()
    (join,) = process.host.take()
    assert isinstance(join, Join)
    assert join.session > 1
    process.gate.leave(other)
    process.gate.leave(other)
    await settle()
    assert process.host.take() == [Leave(join.session)]
    with pytest.raises(SessionClosedError, match="closed"):
        await process.gate.acquire("/a", member=other)


# --- grants -----------------------------------------------------------------------------------


async def test_grant_wakes_its_request_only() -> None:
    """Each grant is for the request of its number."""
    process = Process()
    (one, first), (two, second) = await process.requested(), await process.requested()
    process.host.send(Granted(second, (5,)))
    await settle()
    assert (one.done(), two.done()) == (False, True)
    process.host.send(Granted(first, (6,)))
    numbers = [permit.number for permit in (await one, await two)]
    assert numbers == [6, 5]


async def test_grant_without_a_request_goes_back() -> None:
    """Permits for a request that does not wait any more are returned, with those in advance."""
    process = Process()
    await process.granted(1)
    process.host.send(Granted(99, (2, 3, 4)))
    await settle()
    assert process.host.take() == [Unsent((2, 3, 4))]
    again, number = await process.requested()
    assert not again.done()
    assert number > 0


async def test_cancelled_request_is_withdrawn() -> None:
    """A request cancelled while it waits sends Cancel; its late grant goes back."""
    process = Process()
    task, number = await process.requested()
    task.cancel()
    await settle()
    assert process.host.take()[-1:] == [Cancel(number)]
    process.host.send(Granted(number, (5, 6)))
    await settle()
    assert process.host.take() == [Unsent((5, 6))]


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_grant_and_cancellation_in_one_iteration(cancel_first: bool) -> None:
    """A permit granted when its task is cancelled goes back, whichever came first."""
    process = Process()
    task, number = await process.requested()
    process.host.take()
    if cancel_first:
        task.cancel()
        process.gate.receive(Granted(number, (5, 6)))
    else:
        process.gate.receive(Granted(number, (5,)))
        task.cancel()
    await asyncio.wait([task])
    await settle()
    assert task.cancelled()
    assert process.host.take() == [Unsent((5, 6) if cancel_first else (5,))]


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_refusal_and_cancellation_in_one_iteration(cancel_first: bool) -> None:
    """A cancelled task stays cancelled although the host refused its request, and nothing is sent."""
    process = Process()
    task, number = await process.requested()
    process.host.take()
    if cancel_first:
        task.cancel()
        process.gate.receive(Refused(number, 9.0))
    else:
        process.gate.receive(Refused(number, 9.0))
        task.cancel()
    await asyncio.wait([task])
    await settle()
    assert task.cancelled()
    assert process.host.take() == []


async def test_refusal_is_the_error_of_a_gate() -> None:
    """The error has the wait, and the limit that it exceeds: max_wait, or the time until the deadline."""
    process = Process()
    (one, first) = await process.requested(max_wait=5.0)
    (two, second) = await process.requested(deadline=time() + 3.0)
    (three, third) = await process.requested(max_wait=2.0, deadline=time() + 9.0)
    (four, fourth) = await process.requested()
    process.host.send(Refused(first, 60.0), Refused(second, 60.0), Refused(third, 60.0), Refused(77, 1.0))
    process.host.send(Refused(fourth, None, "no answer to any request for 9 s"))
    errors = [await ended(task) for task in (one, two, three, four)]
    waits = [error for error in errors if isinstance(error, QuotaWaitError)]
    assert [error.retry_after for error in waits] == [60.0] * 3
    assert [(error.max_wait, error.deadline) for error in waits] == [
        (5.0, None),
        (None, about(3.0, 0.1)),
        (2.0, None),
    ]
    assert isinstance(errors[3], APITimeoutError)
    assert errors[3].reason == "no answer to any request for 9 s"
    process.host.send(Granted(first, (1,)))
    await settle()
    assert process.host.all(Unsent) == [Unsent((1,))]


# --- ends of permits --------------------------------------------------------------------------


async def test_ends_are_messages() -> None:
    """Each end of a permit is one message with its number; a second end sends nothing."""
    process = Process()
    permits = [await process.granted(number) for number in (1, 2, 3)]
    assert await permits[0].answered(200, OK) is verdicts.Verdict.PASSED
    permits[1].lost()
    permits[2].unsent()
    await settle()
    assert process.host.take() == [Answered(1, 200, None, limits_of(OK)), Lost(2), Unsent((3,))]
    for permit in permits:
        permit.lost()
        permit.unsent()
        assert await permit.answered(429, STOP) is verdicts.Verdict.PASSED
    await settle()
    assert process.host.take() == []
    process.host.fail()
    await settle()
    assert process.host.all(Holding) == []


async def test_refusal_waits_for_its_verdict() -> None:
    """The meaning of a 429 is that of the host; other permits' verdicts do not count."""
    process = Process()
    one, two = await process.granted(1), await process.granted(2)
    first, second = (
        asyncio.create_task(one.answered(429, STOP)),
        asyncio.create_task(two.answered(429, STOP)),
    )
    await settle()
    assert [message.status for message in process.host.all(Answered)] == [429, 429]
    process.host.send(Verdict(2, verdicts.Verdict.ROUTE), Verdict(9, verdicts.Verdict.QUOTA))
    await settle()
    assert not first.done()
    assert await second is verdicts.Verdict.ROUTE
    process.host.send(Verdict(1, verdicts.Verdict.TOO_EXPENSIVE))
    assert await first is verdicts.Verdict.TOO_EXPENSIVE


async def test_cancelled_wait_for_a_verdict() -> None:
    """A verdict that nobody waits for any more is ignored, in the same iteration too."""
    process = Process()
    permits = [await process.granted(number) for number in (1, 2)]
    tasks = [asyncio.create_task(permit.answered(429, STOP)) for permit in permits]
    await settle()
    tasks[0].cancel()
    await settle()
    process.host.send(Verdict(1, verdicts.Verdict.QUOTA))
    await settle()
    tasks[1].cancel()
    process.gate.receive(Verdict(2, verdicts.Verdict.QUOTA))
    await settle()
    assert all(task.cancelled() for task in tasks)
    assert process.host.connections == 1
    process.host.fail()
    await settle()
    assert process.host.all(Holding) == []


# --- leases -----------------------------------------------------------------------------------


async def test_lease_serves_the_next_requests_of_its_kind() -> None:
    """Requests of the same session, route, cost and tag leave at once, without a message."""
    process = Process()
    await process.granted(1, 2, 3)
    other = Member()
    process.gate.join(other)
    await settle()
    process.host.take()
    permit = await process.gate.acquire("/a", member=process.member)
    assert (permit.number, permit.leased, permit.sent) == (2, True, time())
    await settle()
    assert process.host.take() == []
    for options in ({"route": "/b"}, {"cost": 2.0}, {"tag": "t"}, {"again": True}):
        task, _ = await process.requested(**options)
        assert not task.done()
        task.cancel()
        await settle()
    waiting = asyncio.create_task(process.gate.acquire("/a", member=other))
    await settle()
    assert not waiting.done()


async def test_lease_is_not_used_while_others_wait() -> None:
    """A request does not overtake one of this process that waits at the host."""
    process = Process()
    await process.granted(1, 2)
    waiting, _ = await process.requested(route="/b")
    task, _ = await process.requested()
    assert not task.done()
    waiting.cancel()
    await settle()
    third = process.call()
    await settle()
    assert not third.done()  # the second one waits still


async def test_idle_lease_goes_back() -> None:
    """Permits that nothing uses for a tenth of a second are returned within another tenth."""
    process = Process()
    await process.granted(1, 2, 3, 4)
    await asyncio.sleep(0.06)
    used = await process.call()
    assert used.number == 2
    await asyncio.sleep(0.07)
    assert process.host.take() == []
    await asyncio.sleep(0.11)
    assert process.host.take() == [Unsent((3, 4))]
    assert timers() == 0
    before = timers()
    await process.granted(5, 6)
    await process.granted(7, 8, cost=2.0)
    assert timers() == before + 1
    await asyncio.sleep(0.21)
    assert sorted(number for one in process.host.all(Unsent) for number in one.permits) == [6, 8]


async def test_recall_returns_what_is_unused() -> None:
    """A recall takes the unused permits back, and not those in use."""
    process = Process()
    await process.granted(1, 2, 3)
    used = await process.call()
    process.host.send(Recall())
    await settle()
    assert process.host.take() == [Unsent((3,))]
    process.host.send(Recall())
    await settle()
    assert process.host.take() == []
    used.lost()
    await settle()
    assert process.host.take() == [Lost(2)]


async def test_responses_share_a_frame_while_a_lease_lasts() -> None:
    """Responses wait for each other, eight at most and 20 ms at most; their times count from the sending."""
    process = Process()
    first = await process.granted(*range(1, 20))
    permits = [await process.call() for _ in range(11)]
    await asyncio.sleep(0.01)
    await answer(first, permits[0])
    await settle()
    assert process.host.take() == []
    await asyncio.sleep(0.021)
    (frame,) = process.host.frames
    one, two = frame
    assert isinstance(one, Answered)
    assert isinstance(two, Answered)
    assert (one.permit, one.elapsed) == (1, None)
    assert (two.permit, two.elapsed) == (2, about(0.01, 0.003))
    process.host.take()
    await answer(*permits[1:8])
    await settle()
    assert process.host.take() == []
    await answer(permits[8])
    await settle()
    assert [len(frame) for frame in process.host.frames] == [8]
    process.host.take()
    await answer(permits[9])
    lost = permits[10]
    lost.lost()
    await settle()
    assert [len(frame) for frame in process.host.frames] == [2]


async def test_responses_without_a_lease_are_sent_at_once() -> None:
    """The host gets a response at once when other requests may wait for it."""
    process = Process()
    one, two = await process.granted(1), await process.granted(2)
    await answer(one, two)
    await settle()
    assert [len(frame) for frame in process.host.frames] == [2]
    three = await process.granted(3, 4)
    asyncio.create_task(three.answered(429, STOP))  # noqa: RUF006 - it waits for its verdict
    await settle()
    assert [message.status for message in process.host.all(Answered)] == [429]


# --- stops ------------------------------------------------------------------------------------


async def test_grant_before_a_stop_does_not_leave_in_it() -> None:
    """A permit whose task did not run when a stop arrived goes back; the request goes first then."""
    process = Process()
    task, number = await process.requested()
    process.host.take()
    process.host.send(Granted(number, (1, 2)), Recall(30.0))
    await settle()
    assert not task.done()
    again = process.host.all(Acquire)
    assert [(one.again, one.number > number) for one in again] == [(True, True)]
    assert sorted(number for one in process.host.all(Unsent) for number in one.permits) == [1, 2]
    process.host.send(Granted(again[0].number, (3,)))
    permit = await task
    assert permit.number == 3


async def test_recall_without_a_stop_holds_nothing_back() -> None:
    """A permit granted before a recall leaves; so does one granted after a stop that was known before."""
    process = Process()
    task, number = await process.requested()
    process.host.send(Granted(number, (1, 2)), Recall())
    permit = await task
    assert permit.number == 1
    process.host.send(Recall(10.0))
    task, number = await process.requested()
    process.host.send(Granted(number, (3,)), Recall(5.0))
    await settle()
    assert task.done()


async def test_stop_of_a_state_takes_leases_back() -> None:
    """A stop holds for permits in advance, whichever message brings it; the next host hears of it."""
    process = Process()
    await process.granted(1, 2)
    process.host.send(State(QuotaSnapshot(0.0).to_json(), b"", 30.0, 2))
    await settle()
    assert process.host.take() == [Unsent((2,))]
    await asyncio.sleep(10)
    process.host.fail()
    await settle()
    assert process.host.all(Hello)[0].stopped == about(20.0, 0.1)


# --- the state, and events --------------------------------------------------------------------


async def test_snapshot_is_the_one_of_the_host() -> None:
    """A session shows what the host reported last, on its own clocks, and the known costs."""
    process = Process(member=Member(now=lambda: 5000.0))
    assert process.gate.snapshot(process.member).limit is None
    assert process.gate.price("/a", None) == 1.0
    assert process.gate.price("/a", 7.0) == 7.0
    await process.granted(1)
    shown = QuotaSnapshot(0.0, 100.0, 40.0, 60.0, reset_at=20.0, costs={"/a": 3.0})
    process.host.send(State(shown.to_json(), processes=4))
    await settle()
    await asyncio.sleep(5)
    snapshot = process.gate.snapshot(process.member)
    assert (snapshot.limit, snapshot.remaining, snapshot.time, snapshot.unix_time) == (
        100.0,
        40.0,
        time(),
        5000.0,
    )
    assert snapshot.reset_in == about(15.0, 0.1)
    assert process.gate.price("/a", 7.0) == 3.0


async def test_wait_is_an_event_of_its_session() -> None:
    """The listener of the session that waits is called, and no other."""
    events: list[tuple[str, str, float, int]] = []

    def listener(name: str) -> Callable[..., None]:
        return lambda reason, seconds, waiting: events.append((name, reason, seconds, waiting))

    process = Process(member=Member(on_wait=listener("one")))
    other = Member(on_wait=listener("two"))
    await process.granted(1)
    process.gate.join(other)
    await settle()
    (join,) = process.host.all(Join)
    process.host.send(Waiting(join.session, "stop", 30.0, 4), Waiting(999, "quota", 60.0, 1))
    await settle()
    assert events == [("two", "stop", about(30.0), 4)]
    process.host.send(Waiting(0, "quota", 12.0, 1))
    await settle()
    assert events[1:] == [("one", "quota", about(12.0), 1)]


# --- links that break -------------------------------------------------------------------------


async def test_broken_link_is_replaced_and_the_next_host_greeted() -> None:
    """The next host gets the sessions, the requests under way, and those that wait; and no others."""
    process = Process()
    under_way = await process.granted(1, cost=2.0, tag="t")
    over = await process.granted(2)
    over.lost()
    left = Member()
    process.gate.join(left)
    leaving = asyncio.create_task(process.gate.acquire("/left", member=left))
    await settle()
    process.host.send(Granted(process.host.all(Acquire)[-1].number, (3, 4)))
    stays = await leaving
    process.gate.leave(left)
    task, number = await process.requested(route="/b", max_wait=9.0)
    await asyncio.sleep(2)
    process.host.fail()
    await settle()
    assert process.host.connections == 2
    (frame,) = process.host.frames
    assert isinstance(frame[0], Hello)
    assert frame[1:] == [
        Join(0),
        Holding(HOLDING, 0, "/a", 2.0, about(2.0, 0.01), "t"),
        Acquire(number, 0, "/b", None, 0, about(7.0, 0.01)),
    ]
    assert not task.done()
    stays.lost()  # its number may belong to another request now
    under_way.lost()
    await settle()
    assert process.host.frames[1:] == [[Lost(HOLDING)]]


async def test_thousands_of_requests_are_several_frames() -> None:
    """However many requests begin at once, or wait when the link breaks, no frame is too long for a link."""
    process = Process()
    calls = [process.call("/é" * 512) for _ in range(800)]
    for _ in range(2):
        await settle()
        assert len(process.host.all(Acquire)) == 800
        assert all(len(encode(frame)) <= MAX_FRAME for frame in process.host.frames)
        process.host.fail()
    for call in calls:
        call.cancel()


async def test_leases_and_grants_of_a_broken_link_are_void() -> None:
    """Permits in advance, and one whose task did not run yet, ended with the link."""
    process = Process()
    await process.granted(1, 2)
    task, number = await process.requested(route="/b")
    link = process.host.link
    process.gate.receive(Granted(number, (3, 4)))
    process.gate._uplink._broken()
    await settle()
    assert link is not process.host.link
    assert process.host.all(Unsent) == []
    assert [(one.route, one.again) for one in process.host.all(Acquire)] == [("/b", True)]
    fresh, _ = await process.requested()
    assert not fresh.done()
    assert not task.done()
    assert [holding.route for holding in process.host.all(Holding)] == ["/a"]


async def test_lease_ends_with_its_link() -> None:
    """A permit in advance of the last host is not used at the next, and not returned to it."""
    process = Process()
    await process.granted(1, 2)
    process.host.fail()
    await settle()
    task = process.call()
    await asyncio.sleep(0.3)
    assert not task.done()
    assert process.host.all(Unsent) == []


async def test_ends_without_a_host_are_reported_to_the_next() -> None:
    """The next host learns of responses that arrived meanwhile, and of those that did not."""
    process = Process()
    one, two, three, four = [await process.granted(number) for number in (1, 2, 3, 4)]
    left = Member()
    process.gate.join(left)
    process.host.error = ShareUnavailableError("away")
    process.host.fail()
    await settle()
    assert await one.answered(200, OK) is verdicts.Verdict.PASSED
    assert await two.answered(429, STOP) is verdicts.Verdict.QUOTA
    three.lost()
    four.unsent()
    process.host.error = None
    await asyncio.sleep(1)
    (frame,) = process.host.frames
    assert isinstance(frame[0], Hello)
    assert frame[0].stopped == about(30.0, 0.5)
    elapsed = about(0.25, 0.05)
    assert frame[3:] == [
        Holding(HOLDING, 0, "/a", None, elapsed),
        Answered(HOLDING, 200, None, limits_of(OK)),
        Holding(HOLDING + 1, 0, "/a", None, elapsed),
        Answered(HOLDING + 1, 429, None, limits_of(STOP)),
        Holding(HOLDING + 2, 0, "/a", None, elapsed),
        Lost(HOLDING + 2),
    ]
    process.host.fail()
    await settle()
    assert process.host.all(Holding) == []


async def test_old_and_foreign_ends_teach_the_next_host_nothing() -> None:
    """A response older than five seconds counts as lost; one of a session that left is dropped."""
    process = Process("fail")
    left = Member()
    process.gate.join(left)
    permit = await process.granted(1)
    task = asyncio.create_task(process.gate.acquire("/left", member=left))
    await settle()
    process.host.send(Granted(process.host.all(Acquire)[-1].number, (2,)))
    foreign = await task
    process.host.error = ShareUnavailableError("away")
    process.host.fail()
    await settle()
    await answer(permit, foreign)
    process.gate.leave(left)
    await asyncio.sleep(6)
    process.host.error = None
    await asyncio.sleep(1)
    assert [type(one) for one in process.host.frames[0]] == [Hello, Join, Holding, Lost]


async def test_refusal_whose_host_dies_is_reported_again() -> None:
    """A 429 without a verdict stops this process, and the next host gets its headers."""
    process = Process()
    permit = await process.granted(1)
    task = asyncio.create_task(permit.answered(429, STOP))
    await settle()
    process.host.fail()
    assert await task is verdicts.Verdict.QUOTA
    await settle()
    assert process.host.all(Hello)[0].stopped == about(30.0, 0.1)
    assert process.host.all(Answered) == [Answered(HOLDING, 429, None, limits_of(STOP))]


async def test_refusal_without_a_host_stops_for_max_stop_at_most() -> None:
    """A stop that no host has bounded is no longer than the `max_stop` of this process."""
    process = Process(member=Member(max_stop=20.0))
    permit = await process.granted(1)
    process.host.fail()
    assert await permit.answered(429, STOP) is verdicts.Verdict.QUOTA
    await settle()
    process.call()
    await settle()
    assert process.host.all(Hello)[-1].stopped == about(20.0, 0.1)


async def test_request_cancelled_without_a_host_is_not_sent() -> None:
    """The next host gets no request that was cancelled meanwhile."""
    process = Process()
    process.host.error = ShareUnavailableError("away")
    task, other = process.call(), process.call("/b")
    await settle()
    task.cancel()
    await settle()
    process.host.error = None
    await asyncio.sleep(1)
    assert [one.route for one in process.host.all(Acquire)] == ["/b"]
    assert process.host.all(Cancel) == []
    assert not other.done()


async def test_request_of_a_session_that_left_is_not_repeated() -> None:
    """A request that still waits when its session leaves does not end the link to the next host."""
    process = Process()
    task, _ = await process.requested()
    process.gate.leave(process.member)
    process.host.fail()
    await settle()
    assert [type(one) for one in process.host.received] == [Hello]
    task.cancel()


BROKEN: dict[str, bytes] = {
    "malformed": b"\xc1",
    "no UTF-8": b"\x91\x92\x21\xa2\xff\xfe",
    "state": encode([State(b"no snapshot")]),
    "verdict": b"\x91\x93\x24\x01\xa1x",
    "no permit": b"\x91\x93\x22\x01\x90",
}


@pytest.mark.parametrize("frame", BROKEN.values(), ids=BROKEN.keys())
async def test_malformed_frame_breaks_the_link(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """After bytes that are no message the process connects again, with a pause, and warns."""
    process = Process()
    await process.granted(1)
    assert process.host.link is not None
    process.host.link.send(frame)
    process.host.send(Granted(99, (5,)))
    await asyncio.sleep(0.2)
    assert (process.host.connections, process.host.broken) == (1, 1)
    assert process.host.take() == []
    await asyncio.sleep(0.1)
    assert process.host.connections == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the link to the host of the shared quota broke: malformed" in caplog.messages[0]


async def test_failing_listener_breaks_the_link_and_is_not_hidden() -> None:
    """An error in the handling of a frame is raised; requests of the frame are repeated on another link."""

    def listener(**_: object) -> None:
        raise ZeroDivisionError

    errors: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    process = Process(member=Member(on_wait=listener))
    task, number = await process.requested()
    process.host.send(Waiting(0, "stop", 30.0, 1), Granted(number, (1,)))
    await asyncio.sleep(0.3)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert process.host.connections == 2
    assert len(process.host.all(Acquire)) == 1
    task.cancel()


# --- hosts that cannot be reached -------------------------------------------------------------


async def test_link_that_breaks_before_its_welcome_is_replaced_after_a_pause() -> None:
    """A host that ends each link is tried four times a second, and given up after two seconds."""
    process = Process("fail")
    process.host.greets = False
    task = process.call()
    for _ in range(7):
        await settle()
        process.host.fail()
        await asyncio.sleep(0.26)
    assert process.host.connections == 8
    assert not task.done()
    await asyncio.sleep(0.3)
    error = await ended(task)
    assert isinstance(error, ShareUnavailableError)
    assert "for 2 s" in str(error)


async def test_denied_process_gets_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal by the host ends the link; the reason is in the error, until a host welcomes the process."""
    process = Process("fail")
    process.host.greets = False
    task = process.call()
    for _ in range(8):
        await settle()
        process.host.send(Denied("version 9 of the protocol"), Granted(1, (1,)))
        await asyncio.sleep(0.26)
    error = await ended(task)
    assert str(error) == "the host refused this process: version 9 of the protocol"
    assert process.host.connections == 9
    assert caplog.messages == []
    process.host.send(Welcome(VERSION))
    await settle()
    task, _ = await process.requested()
    assert not task.done()
    process.host.hangs = True
    process.host.fail()
    await asyncio.sleep(2.1)
    error = await ended(task)
    assert "refused" not in str(error)


async def test_denial_after_the_welcome_pauses_too() -> None:
    """A process whose messages a host refuses does not connect in a tight loop."""
    process = Process()
    task = process.call()
    await settle()
    process.host.send(Denied("session 9 did not join"))
    await asyncio.sleep(0.2)
    assert (process.host.connections, process.host.broken) == (1, 1)
    await asyncio.sleep(0.1)
    assert process.host.connections == 2
    task.cancel()


async def test_without_a_host_calls_fail_each_with_its_own_error() -> None:
    """on_unavailable="fail" raises after two seconds, at once from then on, and recovers by itself."""
    process = Process("fail")
    process.host.error = ShareUnavailableError("nobody there")
    one, two = process.call(), process.call()
    await asyncio.sleep(1.9)
    assert not one.done()
    await asyncio.sleep(0.2)
    errors = [await ended(one), await ended(two), await ended(process.call())]
    assert [str(error) for error in errors] == ["nobody there"] * 3
    assert len({id(error) for error in errors}) == 3
    assert all(type(error) is ShareUnavailableError for error in errors)
    await asyncio.sleep(5)
    assert 24 <= process.host.connections <= 32
    process.host.error = None
    await asyncio.sleep(0.3)
    assert (await process.granted(1)).alone is None


@pytest.mark.parametrize("on_unavailable", ["fail", "degrade"])
async def test_wrong_configuration_fails_at_once(on_unavailable: OnUnavailable) -> None:
    """A carrier that cannot work raises at once, and does not degrade."""
    process = Process(on_unavailable)
    process.host.error = ConfigurationError("install the extra")
    error = await ended(process.call())
    assert type(error) is ConfigurationError
    assert str(error) == "install the extra"
    error = await ended(process.call())
    assert str(error) == "install the extra"


async def test_carrier_that_fails_is_tried_again() -> None:
    """An unexpected error of a carrier does not leave the process without a host for ever."""
    process = Process("fail")
    process.host.error = ZeroDivisionError("oops")
    error = await asyncio.gather(process.call(), return_exceptions=True)
    assert str(error[0]) == "the carrier failed: ZeroDivisionError: oops"
    process.host.error = None
    await asyncio.sleep(0.3)
    await process.granted(1)


async def test_silent_host_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """A host that accepts the link and does not respond is no host; what it grants late goes back."""
    process = Process()
    process.host.greets = False
    task, number = await process.requested()
    await asyncio.sleep(2.1)
    permit = await task
    assert permit.alone is not None
    assert process.host.all(Cancel) == [Cancel(number)]
    process.host.send(Granted(number, (1, 2)))
    await settle()
    assert process.host.all(Unsent) == [Unsent((1, 2))]
    process.host.send(Welcome(VERSION))
    await settle()
    await process.granted(3)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "two a second at most: no process hosted the shared quota" in caplog.messages[0]
    assert "is available again" in caplog.messages[1]


# --- alone ------------------------------------------------------------------------------------


async def degraded(process: Process) -> None:
    """Let a process lose its host, and give it up."""
    process.host.error = ShareUnavailableError("away")
    if process.host.link is not None:
        process.host.fail()
    else:
        process.call().add_done_callback(lambda task: task.result().unsent())
    await asyncio.sleep(2.1)


async def test_last_share_is_the_limit_by_the_processes() -> None:
    """Alone, a process sends its part of the limit, by requests of all of its sessions."""
    process = Process()
    await process.granted(1)
    process.host.send(State(QuotaSnapshot(0.0, 100.0, 90.0, 60.0).to_json(), processes=25))
    await settle()
    await degraded(process)
    late = Member()
    process.gate.join(late)
    began = time()
    for member in (process.member, late, late, process.member, late):
        permit = await process.gate.acquire("/a", member=member)
        assert permit.alone is not None
        await permit.answered(200, RateLimitInfo())
    assert 15.0 <= time() - began <= 61.0
    assert process.gate._last_share() == Limit(4.0, 60.0, units=True)
    assert process.gate.snapshot(late).time == time()
    process.gate.leave(late)


async def test_sessions_come_and_leave_alone_too() -> None:
    """The gate of one process alone has the settings of the open sessions, and shows its own state."""
    process = Process()
    await process.granted(1)
    await degraded(process)
    late = Member(max_in_flight=300, probe=False)
    process.gate.join(late)
    fallback = process.gate._fallback
    assert fallback is not None
    quota = fallback.gate._quota
    assert (quota.max_in_flight, quota.probe) == (300, False)
    process.gate.leave(late)
    assert (quota.max_in_flight, quota.probe) == (100, True)
    await process.call()
    assert process.gate.snapshot(process.member).in_flight == 1


async def test_share_is_at_least_one_request() -> None:
    """With more processes than requests, and with none known, each still sends."""
    process = Process()
    await process.granted(1)
    process.host.send(State(QuotaSnapshot(0.0, 5.0, 5.0, 60.0, costs={"/a": 2.0}).to_json(), processes=0))
    process.host.send(State(QuotaSnapshot(0.0, 5.0, 5.0, 60.0, costs={"/a": 2.0}).to_json(), processes=9))
    await settle()
    await degraded(process)
    assert process.gate._last_share() == Limit(1.0, 60.0, units=True)
    assert (await process.call()).alone is not None


async def test_stop_holds_without_a_host_too() -> None:
    """Alone, nothing is sent in a stop that was known before, or that a late response brings."""
    process = Process()
    permit = await process.granted(1)
    process.host.send(Recall(20.0))
    await settle()
    stopped = time()
    await degraded(process)
    alone = await process.call()
    assert time() - stopped == about(20.0, 0.3)
    alone.lost()
    assert await permit.answered(429, STOP) is verdicts.Verdict.QUOTA
    stopped = time()
    await process.call()
    assert time() - stopped == about(30.0, 0.3)


async def test_lasting_absence_is_one_absence(caplog: pytest.LogCaptureFixture) -> None:
    """However often hosts come and end without a welcome, the process degrades and warns once."""
    process = Process()
    await degraded(process)
    fallback = process.gate._fallback
    assert fallback is not None
    process.host.error, process.host.greets = None, False
    for _ in range(12):
        await asyncio.sleep(0.26)
        process.host.fail()
    await asyncio.sleep(2.1)
    assert process.gate._fallback is fallback
    assert len(caplog.records) == 1


async def test_requests_that_wait_alone_go_to_the_host_that_is_back() -> None:
    """They are granted by the host then, with what is left of their time."""
    process = Process()
    await degraded(process)
    probe = await process.call(tag="t")
    assert probe.alone is not None
    waiting = process.call("/b", max_wait=60.0, cost=1.0, priority=2, tag="t")
    await settle()
    process.host.error = None
    await asyncio.sleep(0.5)
    (acquire,) = process.host.all(Acquire)
    assert (acquire.route, acquire.cost, acquire.priority, acquire.tag) == ("/b", 1.0, 2, "t")
    assert acquire.max_wait == about(59.7, 0.3)
    process.host.send(Granted(acquire.number, (1,)))
    assert (await waiting).alone is None


async def test_host_that_is_back_learns_what_happened_alone() -> None:
    """It gets the stop that was met alone, the requests under way, and their ends."""
    process = Process()
    (await process.granted(1)).unsent()
    process.host.send(State(QuotaSnapshot(0.0, 100.0, 90.0, 60.0).to_json()))
    await settle()
    await degraded(process)
    for remaining in range(99, 94, -1):
        await (await process.call()).answered(200, RateLimitInfo(100.0, remaining, None, None, MINUTE))
    first, second, third, unused = [await process.call(tag=tag) for tag in "abcd"]
    assert await first.answered(429, STOP) is verdicts.Verdict.QUOTA
    unused.unsent()
    process.host.error = None
    await asyncio.sleep(1)
    hello, *_ = process.host.received
    holdings = process.host.all(Holding)
    process.host.take()
    assert isinstance(hello, Hello)
    assert hello.stopped == about(30.0, 1.0)
    assert [one.tag for one in holdings] == ["b", "c"]
    assert await second.answered(429, STOP) is verdicts.Verdict.QUOTA
    await settle()
    assert process.host.take() == [Answered(holdings[0].permit, 429, None, limits_of(STOP))]
    process.host.fail()
    assert await third.answered(429, RateLimitInfo(100.0, 0.0, 60.0, 60.0, MINUTE)) is verdicts.Verdict.QUOTA
    await settle()
    (hello,) = process.host.all(Hello)
    assert hello.stopped == about(60.0, 1.0)


async def test_permit_of_a_host_that_came_back_in_its_iteration_is_not_used() -> None:
    """A request that is permitted in the iteration in which the host is back is repeated there."""
    process = Process()
    await degraded(process)
    probe, waiting = await process.call(), process.call()
    process.host.error, process.host.greets = None, False
    await asyncio.sleep(0.3)
    probe.unsent()  # which permits the other one; its caller did not run when the Welcome is read
    process.host.send(Welcome(VERSION))
    await settle()
    assert process.gate._fallback is None
    process.host.send(Granted(process.host.all(Acquire)[-1].number, (1,)))
    assert (await waiting).alone is None


async def test_cancelled_request_alone_leaves_no_trace() -> None:
    """A request cancelled while it waits alone, or in the iteration of its grant, gives its turn back."""
    process = Process()
    await degraded(process)
    probe = await process.call()
    waiting = process.call()
    await settle()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    again = process.call()
    await settle()
    probe.unsent()
    await asyncio.sleep(0)  # the fallback's task has its permit, and the caller did not run yet
    again.cancel()
    await settle()
    assert again.cancelled()
    fallback = process.gate._fallback
    assert fallback is not None
    assert (fallback.gate.snapshot().waiting, fallback.gate.snapshot().in_flight) == (0, 0)
    (await process.call()).unsent()


@pytest.mark.parametrize("options", [{"max_wait": 5.0}, {"deadline": 10.0}])
async def test_errors_alone_are_those_of_a_gate(options: dict[str, Any]) -> None:
    """A wait that is too long is refused at once, also by the share of one process."""
    process = Process()
    await process.granted(1)
    process.host.send(Recall(30.0))
    await settle()
    await degraded(process)
    with pytest.raises(QuotaWaitError):
        await process.call(**options)


# --- the end ----------------------------------------------------------------------------------


async def test_close_sends_what_is_left_and_leaves_no_timer() -> None:
    """The last session returns its permits in advance, ends its link and its carrier."""
    process = Process()
    before = timers()
    permit = await process.granted(1, 2, 3)
    await answer(permit)
    process.gate.leave(process.member)
    await process.gate.aclose()
    assert process.host.closed == 1
    await settle()
    assert process.host.received == [Answered(1, 200, None, limits_of(OK)), Leave(0), Unsent((2, 3))]
    assert process.host.broken == 1
    assert timers() == before
    await asyncio.sleep(5)
    assert process.host.connections == 1


async def test_close_waits_for_the_last_session() -> None:
    """While another session of the process uses the gate, its link stays."""
    process = Process()
    other = Member()
    process.gate.join(other)
    await process.granted(1)
    process.gate.leave(other)
    await process.gate.aclose()
    assert process.host.closed == 0
    permit = await process.granted(2)
    permit.lost()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_close_while_it_connects(cancelled: bool) -> None:
    """An attempt to connect ends with the gate, and nothing connects after; also if it is cancelled."""
    process = Process()
    process.host.hangs = True
    before = timers()
    task = process.call()
    await settle()
    task.cancel()
    process.gate.leave(process.member)
    closing = asyncio.create_task(process.gate.aclose())
    await asyncio.sleep(0)
    if cancelled:
        closing.cancel()
    await asyncio.wait([closing])
    process.host.hangs = False
    await asyncio.sleep(5)
    assert (process.host.connections, process.host.closed, timers()) == (1, 1, before)


async def test_close_in_the_iteration_of_a_break() -> None:
    """A link that breaks while the gate closes is not replaced."""
    process = Process()
    await process.granted(1)
    process.gate.leave(process.member)
    process.host.fail()
    await process.gate.aclose()
    await asyncio.sleep(5)
    assert process.host.connections == 1
    process.gate._uplink.open()
    await asyncio.sleep(1)
    assert process.host.connections == 1


async def test_forked_process_gets_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate of the parent refuses the requests of a child, and closes nothing of the parent."""
    process = Process()
    await process.granted(1)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ConfigurationError, match=r"opened before os\.fork.*after the fork"):
        await process.gate.acquire("/a", member=process.member)
    process.gate.leave(process.member)
    await process.gate.aclose()
    assert process.host.closed == 0


async def test_memory_of_a_host_is_stored_by_the_carrier() -> None:
    """A process that becomes the host stores what it learns under the name of the quota."""
    process = Process()
    serve = process.gate._make_host(b"", 0.0)
    near, far = linked_pair()
    serve(far)
    near.start(lambda _: None, lambda: None)
    near.send(encode([Hello(VERSION, "x"), Join(1), Acquire(1, 1, "/a")]))
    await asyncio.sleep(1)
    assert [name for name, _ in process.host.stored] == ["quota"]
    near.close()
    await settle()


async def test_request_that_is_repeated_after_its_session_left() -> None:
    """A request is not repeated for a session that left meanwhile: the host would end the link."""
    process = Process()
    process.host.error = ShareUnavailableError("away")
    task = process.call()
    await settle()
    process.gate.leave(process.member)
    await asyncio.sleep(2.1)
    assert isinstance(await ended(task), SessionClosedError)


@pytest.mark.parametrize("shown", [QuotaSnapshot(0.0, limit=9.0), QuotaSnapshot(0.0, window=60.0)], ids=repr)
async def test_share_of_an_unknown_limit_is_a_trickle(shown: QuotaSnapshot) -> None:
    """Without the limit and its window a process alone has one request in flight, and two a second."""
    process = Process()
    await process.granted(1)
    process.host.send(State(shown.to_json()))
    await settle()
    await degraded(process)
    began = time()
    for _ in range(4):
        permit, waiting = await process.call(), process.call()
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await permit.answered(200, RateLimitInfo())
        (await waiting).unsent()
    assert time() - began == about(2.4, 0.1)
