"""The host of a shared quota, message by message: the tests play the processes."""

from __future__ import annotations

import asyncio
import re
from typing import Any, TypeVar

import pytest

from chainapi.core.limits import verdict as verdicts
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.share.messages import (
    HOLDING,
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
    Watch,
    Welcome,
    encode,
    limits_of,
    read_host_frame,
)
from chainapi.share.host import Host
from chainapi.share.link import linked_pair

M = TypeVar("M", bound=FromHost)
MINUTE = (PolicyField(100.0, 60.0),)


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def about(seconds: float, margin: float = 0.01) -> Any:
    """Return what equals a time in seconds but for a margin."""
    return pytest.approx(seconds, abs=margin)


async def settle() -> None:
    """Let all messages arrive."""
    await asyncio.sleep(0.001)


class Process:
    """Process at the other end of a link to a host; `Join` of its session 1 is sent with `joins`."""

    def __init__(self, host: Host, *joins: Join, name: str = "web:1", stopped: float = 0.0) -> None:
        self.link, far = linked_pair()
        host.serve(far)
        self.frames: list[list[FromHost]] = []
        self.broken = False
        self.link.start(lambda frame: self.frames.append(read_host_frame(frame)), self._break)
        self.send(Hello(VERSION, name, stopped=stopped), *joins)

    def _break(self) -> None:
        self.broken = True

    def send(self, *messages: FromParticipant) -> None:
        """Send some messages in one frame."""
        self.link.send(encode(messages))

    async def after(self, *messages: FromParticipant) -> list[FromHost]:
        """Return what arrives after some messages, besides reports of the state."""
        await settle()
        self.frames.clear()
        self.send(*messages)
        await settle()
        return self.received

    @property
    def received(self) -> list[FromHost]:
        """Messages that arrived, besides reports of the state."""
        return [one for frame in self.frames for one in frame if not isinstance(one, State)]

    def all(self, kind: type[M]) -> list[M]:
        """Return the messages of a kind that arrived."""
        return [one for frame in self.frames for one in frame if isinstance(one, kind)]


def answer(permit: int, left: float = 99.0, status: int = 200, wait: float | None = None) -> Answered:
    """Return the report of a response of a service with 100 requests a minute."""
    reset = wait or max(0.0, 60.0 - time())
    return Answered(permit, status, None, limits_of(RateLimitInfo(100.0, left, reset, wait, MINUTE)))


JOIN = Join(1, max_in_flight=100)  # with a cap of its own a session gets no permits in advance
LEASING = Join(1)


async def known(*joins: Join, left: float = 99.0) -> tuple[Host, Process]:
    """Return a host that learned its quota from the first request of a process; permit 0 is used."""
    host = Host()
    process = Process(host, *(joins or (JOIN,)))
    await process.after(Acquire(0, 1, "/a"))
    await process.after(answer(0, left))
    process.frames.clear()
    return host, process


async def plenty(left: float = 90.0, *joins: Join) -> tuple[Host, Process]:
    """Return a host that also learned what a request costs; the next permit is 10."""
    host, process = await known(*(joins or (LEASING,)), left=left + 9)
    for number in range(1, 10):
        await process.after(Acquire(number, 1, "/a", again=True))
        await process.after(answer(number, left + 9 - number))
    process.frames.clear()
    return host, process


def state(host: Host) -> tuple[int, int]:
    """Return the numbers of requests that wait and that are under way."""
    snapshot = host.gate.snapshot()
    return snapshot.waiting, snapshot.in_flight


def timers() -> int:
    """Return the number of timers that are set in the loop."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not timer.cancelled() for timer in scheduled)


# --- greeting, and what ends a link -----------------------------------------------------------


async def test_greeting_is_answered_with_welcome() -> None:
    """A process that says Hello is welcome, and shares the quota once a session joined."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    host = Host()
    process = Process(host)
    await settle()
    assert process.frames == [[Welcome(VERSION)]]
    assert host.processes == 0
    await process.after(JOIN)
    assert host.processes == 1
    await process.after(Acquire(1, 1, "/a"))
    await asyncio.sleep(1)
    assert len(process.all(State)) == 1
    assert not process.broken
    assert errors == []


MISFITS: dict[str, tuple[tuple[FromParticipant, ...], str]] = {
    "second Hello": ((Hello(VERSION, "x"),), "a second Hello"),
    "unknown session": ((Acquire(1, 9, "/a"),), "session 9 did not join"),
    "holding of an unknown session": ((Holding(HOLDING, 9, "/a"),), "session 9 did not join"),
    "session of one that left": ((Leave(1), Acquire(1, 1, "/a")), "session 1 did not join"),
    "joined already": ((Join(1, tag="new"),), "session 1 joined already, with other settings"),
    "invalid rate": ((Join(2, rate=(0.0, 1.0, False)),), "session 2 has an invalid limit: .*must be"),
    "invalid limit": ((Join(2, limits=((1.0, 0.0, False),)),), "session 2 has an invalid limit: .*must be"),
    "waits already": ((Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(2, 1, "/a")), "request 2 waits"),
    "held already": (
        (Holding(HOLDING, 1, "/a"), Holding(HOLDING, 1, "/a")),
        f"permit {HOLDING} is held already",
    ),
}


@pytest.mark.parametrize(("messages", "reason"), MISFITS.values(), ids=MISFITS.keys())
async def test_messages_that_do_not_fit_end_the_link(
    messages: tuple[FromParticipant, ...], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The process gets the reason, loses all that it had, and no other process is affected."""
    host = Host()
    process, other = Process(host, JOIN), Process(host, JOIN)
    await process.after(*messages)
    (denied,) = process.received
    assert isinstance(denied, Denied)
    assert re.match(reason, denied.reason)
    assert process.broken
    assert state(host) == (0, 0)
    assert host.processes == 1
    assert caplog.messages == [f"a process was dropped from the shared quota: {denied.reason}"]
    assert await other.after(Acquire(1, 1, "/a")) == [Granted(1, (0,))]


async def test_first_message_has_to_be_hello() -> None:
    """Without a greeting nothing is answered."""
    host = Host()
    near, far = linked_pair()
    host.serve(far)
    frames: list[bytes] = []
    near.start(frames.append, lambda: None)
    near.send(encode([JOIN, Hello(VERSION, "x")]))
    await settle()
    assert [read_host_frame(frame) for frame in frames] == [[Denied("the first message has to be Hello")]]
    assert host.processes == 0


async def test_other_version_is_denied_with_both_versions() -> None:
    """A process with another version of chainapi learns that, and is not welcome."""
    host = Host()
    near, far = linked_pair()
    host.serve(far)
    frames: list[bytes] = []
    near.start(frames.append, lambda: None)
    near.send(encode([Hello(VERSION + 1, "x"), JOIN]))
    await settle()
    ((denied,),) = [read_host_frame(frame) for frame in frames]
    assert isinstance(denied, Denied)
    assert f"version {VERSION + 1} of the protocol, and the host has {VERSION}" in denied.reason
    assert host.processes == 0


async def test_malformed_frame_ends_the_link_and_what_began() -> None:
    """Permits of the process are lost, its requests do not wait any more, and later frames are ignored."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    assert state(host) == (1, 1)
    process.link.send(b"\xc1")
    process.send(Acquire(3, 1, "/a"))
    await settle()
    assert isinstance(process.received[-1], Denied)
    assert state(host) == (0, 0)


async def test_failure_of_the_host_ends_the_link() -> None:
    """An unexpected error is not swallowed, and the process may connect again instead of waiting for ever."""

    class Failing(Host):
        def lease(self, route: str, cost: float | None) -> int:
            raise ZeroDivisionError

    errors: list[BaseException] = []
    host = Failing()
    process = Process(host, LEASING)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    await process.after(Acquire(1, 1, "/a"))
    assert process.received == [Denied("the host failed at a message")]
    assert process.broken
    assert [type(error) for error in errors] == [ZeroDivisionError]


async def test_broken_link_ends_all_and_leaves_no_timer() -> None:
    """Permits are lost, waits end, sessions leave; then no timer of the host is left."""
    host = Host()
    before = timers()
    process, other = Process(host, Join(1, max_in_flight=300)), Process(host, JOIN)
    assert await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/b")) == [Granted(1, (0,))]
    await other.after(Acquire(1, 1, "/a"))
    assert host.gate._quota.max_in_flight == 300
    process.link.fail()
    await settle()
    assert host.gate._quota.max_in_flight == 100
    assert host.processes == 1
    assert other.all(Granted) == [Granted(1, (0,))]
    other.link.close()
    await settle()
    assert host.processes == 0
    assert state(host) == (0, 0)
    assert timers() == before


async def test_response_counts_from_its_sending() -> None:
    """A permit in advance counts as sent when its request was, but never later: its report took a while."""
    host, process = await plenty()
    await process.after(Acquire(1, 1, "/a"))
    (peer,) = host._peers
    reservations = [held.permit._reservation for held in peer._permits.values()]
    granted = time()
    await asyncio.sleep(2)
    limits = limits_of(RateLimitInfo(100.0, 80.0, 50.0, None, MINUTE))
    await process.after(Answered(10, 200, 0.5, limits), Answered(11, 200, 9.0, limits), Answered(12, 200))
    sent = [reservation.sent for reservation in reservations[:3] if reservation is not None]
    assert sent == [about(time() - 0.53, 0.004), about(granted), about(granted)]


async def test_frames_after_the_end_are_ignored() -> None:
    """A carrier that delivers a frame late begins nothing for a process that is gone."""
    host, _ = await known()
    process = Process(host, JOIN)
    await settle()
    peer = list(host._peers)[1]
    process.link.fail()
    await settle()
    peer.receive(encode([Acquire(1, 1, "/a"), Holding(HOLDING, 1, "/a")]))
    await settle()
    assert state(host) == (0, 0)


async def test_link_that_breaks_with_its_last_messages() -> None:
    """Messages, the break, and a grant in one iteration leave nothing behind."""
    host, other = await known()
    process = Process(host, JOIN)
    await settle()
    process.send(Acquire(1, 1, "/a"))
    process.link.fail()
    await settle()
    assert state(host) == (0, 0)
    await other.after(answer(0, 0.0, 429, 30.0))
    assert process.received == [Welcome(VERSION)]


# --- permits ----------------------------------------------------------------------------------


async def test_permits_are_granted_and_ended_once() -> None:
    """A permit ends with its first report; a second one, and one of no permit, changes nothing."""
    host, process = await known()
    assert await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(3, 1, "/a")) == [
        Granted(1, (1,)),
        Granted(2, (2,)),
        Granted(3, (3,)),
    ]
    assert state(host) == (0, 3)
    assert await process.after(Unsent((1,)), Lost(2), answer(3, 97.0)) == []
    assert state(host) == (0, 0)
    spent = host.gate.snapshot().spenders[0].requests
    assert await process.after(Unsent((1, 9)), Lost(2), Lost(9), answer(3, 97.0), answer(9)) == []
    assert state(host) == (0, 0)
    assert host.gate.snapshot().spenders[0].requests == spent == 3


async def test_permits_that_come_back_are_for_the_next() -> None:
    """An unused probe lets the next request leave at once."""
    host = Host()
    process = Process(host, JOIN)
    assert await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a")) == [Granted(1, (0,))]
    assert await process.after(Unsent((0,))) == [Granted(2, (1,))]
    assert state(host) == (0, 1)


async def test_messages_of_one_iteration_are_one_frame() -> None:
    """A frame with many requests has one frame of answers."""
    _, process = await known()
    await process.after(*(Acquire(number, 1, "/a") for number in range(1, 9)))
    assert [len(frame) for frame in process.frames] == [8]


async def test_cancelled_request_gets_no_permit() -> None:
    """A request that waits can be cancelled, once; others and unknown ones are not affected."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(3, 1, "/a"))
    assert await process.after(Cancel(2), Cancel(2), Cancel(9)) == []
    assert state(host) == (1, 1)
    assert await process.after(answer(0)) == [Granted(3, (1,))]
    assert await process.after(Cancel(3)) == []  # it crosses the grant: the process returns the permit
    assert state(host) == (0, 1)


async def test_request_cancelled_in_the_frame_of_its_grant() -> None:
    """A grant, and the cancellation before its task ran, give the permit to the next."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(3, 1, "/a"))
    assert await process.after(Unsent((0,)), Cancel(2)) == [Granted(3, (1,))]
    assert state(host) == (0, 1)


async def test_number_of_a_cancelled_request_is_free() -> None:
    """A request may have the number of one that was cancelled in the same frame."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    await process.after(Cancel(2), Acquire(2, 1, "/b"))
    await process.after(Cancel(2))
    assert state(host) == (0, 1)


async def test_order_is_by_refusal_priority_and_arrival() -> None:
    """Refused requests go first, then those with a higher priority."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(
        Acquire(0, 1, "/a"),
        Acquire(1, 1, "/a"),
        Acquire(2, 1, "/a", priority=5),
        Acquire(3, 1, "/a", again=True),
    )
    await process.after(answer(0))
    assert [granted.number for granted in process.all(Granted)] == [3, 2, 1]


async def test_tags_and_processes_are_accounted() -> None:
    """The state names who spent the quota: the process, and the tag of the request or its session."""
    host = Host()
    process = Process(host, Join(1, tag="night", max_in_flight=9), name="job:2")
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a", tag="own"))
    await process.after(answer(0))
    await process.after(
        answer(1, 98.0), Acquire(3, 1, "/a", tag="own"), Holding(HOLDING, 1, "/a", tag="held")
    )
    spent = {(one.process, one.tag): one.requests for one in host.gate.snapshot().spenders}
    assert spent == {("job:2", "night"): 1, ("job:2", "own"): 1, ("job:2", "held"): 0}
    flying = {one.tag: one.in_flight for one in host.gate.snapshot().spenders}
    assert flying == {"night": 0, "own": 1, "held": 1}


# --- refusals ---------------------------------------------------------------------------------


async def test_refusal_stops_every_process_at_once() -> None:
    """The process that was refused gets the meaning, then every process the stop, in one frame each."""
    host, process = await known()
    other, observer = Process(host, JOIN), Process(host)
    await process.after(Acquire(1, 1, "/a"))
    assert await process.after(answer(1, 0.0, 429, 30.0)) == [
        Verdict(1, verdicts.Verdict.QUOTA),
        Recall(about(30.0)),
    ]
    assert len(process.frames) == 1
    for each in (other, observer):
        assert each.all(Recall) == [Recall(about(30.0))]
    assert await other.after(Acquire(1, 1, "/a", max_wait=5.0)) == [Refused(1, about(30.0, 0.1))]
    assert await other.after(Acquire(2, 1, "/a", left=5.0)) == [Refused(2, about(30.0, 0.1))]
    assert await other.after(Acquire(3, 1, "/a", left=35.0, max_wait=35.0)) == [
        Waiting(1, "stop", about(30.0, 0.1), 1)
    ]
    await asyncio.sleep(30)
    assert other.all(Granted) == [Granted(3, (0,))]


async def test_stop_is_not_reported_before_the_greeting() -> None:
    """A process that did not say Hello yet gets no message of a stop."""
    host, process = await known()
    near, far = linked_pair()
    host.serve(far)
    frames: list[bytes] = []
    near.start(frames.append, lambda: None)
    await process.after(Acquire(1, 1, "/a"))
    await process.after(answer(1, 0.0, 429, 30.0))
    await asyncio.sleep(1)
    assert frames == []


async def test_success_has_no_verdict() -> None:
    """Only a 429 has a verdict; another status, and a success, stop nobody."""
    _, process = await known()
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    assert await process.after(answer(1, 98.0), answer(2, 97.0, 500)) == []


async def test_service_that_does_not_respond_is_an_error_in_words() -> None:
    """A request that waits while nothing is answered gets the reason, without a time."""
    host, process = await known(Join(1, max_in_flight=1))
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a", max_wait=6.0))
    await asyncio.sleep(8)
    (refused,) = process.all(Refused)
    assert (refused.number, refused.seconds) == (2, None)
    assert "no answer to any request for" in refused.reason
    assert await process.after(Cancel(2), Acquire(2, 1, "/a")) == []  # its number is free
    assert state(host) == (1, 1)


async def test_endless_times_are_cut_to_the_range_of_messages() -> None:
    """A stop of a billion years does not break the links of all processes."""
    host = Host()
    process = Process(host, Join(1, max_in_flight=9))
    await process.after(Acquire(1, 1, "/a"))
    await process.after(Answered(0, 429, None, limits_of(RateLimitInfo(None, None, None, 1e300))))
    assert not process.broken
    await process.after(Acquire(2, 1, "/a", max_wait=1.0), Watch())
    assert process.all(Refused)
    assert process.all(State)


async def test_stop_of_a_greeting_holds_for_all() -> None:
    """A process that knows of a stop brings it along; all others get it at once."""
    host, other = await known()
    process = Process(host, JOIN, stopped=20.0)
    await settle()
    assert process.frames[0] == [Welcome(VERSION), Recall(20.0)]
    assert other.all(Recall) == [Recall(20.0)]
    other.frames.clear()
    await other.after(Acquire(1, 1, "/a"))
    await asyncio.sleep(19.9)
    assert other.all(Granted) == []
    await asyncio.sleep(0.2)
    assert other.all(Granted) == [Granted(1, (1,))]


# --- leases -----------------------------------------------------------------------------------


async def test_plenty_of_quota_is_granted_in_advance() -> None:
    """While a quarter of what is left for each process has room, a request gets seven permits more."""
    host, process = await plenty()
    assert await process.after(Acquire(1, 1, "/a")) == [Granted(1, tuple(range(10, 18)))]
    assert state(host) == (0, 8)
    others = [Process(host, LEASING) for _ in range(2)]
    await settle()
    # 81 left beside the request itself, and 3 processes: 81 / 12 is 6 permits in all.
    assert await others[0].after(Acquire(1, 1, "/a")) == [Granted(1, tuple(range(6)))]
    Process(host)  # an observer has no share
    await settle()
    assert await others[1].after(Acquire(1, 1, "/a")) == [Granted(1, tuple(range(6)))]


@pytest.mark.parametrize(("left", "size"), [(9.0, 2), (8.0, 1), (8.99, 1), (13.0, 3)])
async def test_lease_ends_with_the_plenty(left: float, size: int) -> None:
    """A lease needs room for two permits in a quarter of what is left beside the request itself."""
    _, process = await plenty(left)
    (granted,) = await process.after(Acquire(1, 1, "/a"))
    assert isinstance(granted, Granted)
    assert len(granted.permits) == size


@pytest.mark.parametrize("join", [JOIN, Join(1, rate=(50.0, 1.0, False))], ids=["cap", "rate"])
async def test_sessions_with_a_ceiling_have_no_lease(join: Join) -> None:
    """A ceiling of a session counts each request, so none is granted in advance."""
    host, process = await plenty(90.0, join)
    assert await process.after(Acquire(1, 1, "/a")) == [Granted(1, (10,))]
    assert state(host) == (0, 1)


async def test_refused_request_has_no_lease() -> None:
    """A request that is sent again shows that the quota is scarce."""
    _, process = await plenty()
    assert await process.after(Acquire(1, 1, "/a", again=True)) == [Granted(1, (10,))]


async def test_leases_are_recalled_once_a_request_waits() -> None:
    """Processes with leases get a recall, once, when a request of any process has to wait."""
    host, process = await plenty()
    waiting, idle = Process(host, Join(1, max_in_flight=1)), Process(host, LEASING)
    await process.after(Acquire(1, 1, "/a"))
    await waiting.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(3, 1, "/a"))
    await settle()
    assert process.all(Recall) == [Recall(0.0)]
    assert waiting.all(Recall) == idle.all(Recall) == []
    await process.after(Unsent(tuple(range(11, 18))))
    assert state(host) == (2, 2)


async def test_stop_recalls_leases_once() -> None:
    """After the recall of a stop a request that waits recalls nothing more."""
    host, process = await plenty()
    await process.after(Acquire(1, 1, "/a"))
    await process.after(answer(10, 0.0, 429, 30.0))
    assert process.all(Recall) == [Recall(about(30.0))]
    assert Recall(0.0) not in await process.after(Acquire(2, 1, "/a"))
    assert state(host) == (1, 7)


# --- sessions ---------------------------------------------------------------------------------


async def test_settings_of_a_session_hold() -> None:
    """Ceilings, limits that the service does not announce, and probing are those of the sessions."""
    host = Host()
    process = Process(host, Join(1, max_in_flight=1, max_stop=7.0, probe=False, limits=((3.0, 60.0, False),)))
    await settle()
    quota = host.gate._quota
    assert (quota.max_in_flight, quota.max_stop, quota.probe) == (1, 7.0, False)
    process.send(Join(2, max_in_flight=9), Join(3, max_in_flight=300))
    await settle()
    assert (quota.max_in_flight, quota.probe) == (300, False)
    process.send(Leave(3), Leave(1), Leave(4))
    await settle()
    assert (quota.max_in_flight, quota.probe) == (9, True)
    for number in range(3):
        (granted,) = await process.after(Acquire(number, 2, "/a"))
        assert isinstance(granted, Granted)
        await process.after(Answered(granted.permits[0], 200))
    await process.after(Acquire(3, 2, "/a"))
    assert state(host) == (1, 0)


async def test_rate_of_a_session_spaces_its_requests() -> None:
    """A session with a ceiling waits for it, and gets the event; another session does neither."""
    _, process = await known(Join(1, rate=(1.0, 10.0, False)), Join(2))
    await process.after(Acquire(1, 1, "/a"))
    assert process.received == [Waiting(1, "rate", about(10.0, 0.1), 1)]
    assert len(await process.after(Acquire(2, 2, "/a"))) == 1
    process.frames.clear()
    await asyncio.sleep(10)
    assert [granted.number for granted in process.all(Granted)] == [1]


async def test_left_session_keeps_what_it_has() -> None:
    """Requests that wait and permits under way of a session that left end as usual."""
    host = Host()
    process = Process(host, JOIN, Join(2))
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Leave(1))
    assert host.processes == 1
    assert await process.after(answer(0)) == [Granted(2, (1,))]
    assert await process.after(answer(1, 98.0)) == []
    assert state(host) == (0, 0)
    assert not process.broken
    await process.after(Leave(2))
    assert host.processes == 0


async def test_last_session_may_leave_while_its_request_waits() -> None:
    """A permit for the only session is granted after it left, and none in advance."""
    host = Host()
    process = Process(host, LEASING)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Leave(1))
    assert await process.after(answer(0)) == [Granted(2, (1,))]
    assert not process.broken


async def test_wait_is_reported_to_its_session_only() -> None:
    """The listener of a session that does not wait gets nothing."""
    host, process = await known(JOIN, Join(2, max_in_flight=50))
    other = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"))
    await process.after(answer(1, 0.0, 429, 30.0))
    other.frames.clear()
    assert await process.after(Acquire(2, 2, "/a")) == [Waiting(2, "stop", about(30.0, 0.1), 1)]
    assert other.received == []


# --- requests of an earlier host ----------------------------------------------------------------


async def test_requests_under_way_are_adopted() -> None:
    """A request of an earlier host counts as one under way, and its response teaches this one."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Holding(HOLDING, 1, "/a"))
    assert state(host) == (0, 1)
    assert await process.after(Acquire(1, 1, "/a")) == []  # the adopted request is the probe
    assert await process.after(answer(HOLDING)) == [Granted(1, (0,))]
    assert state(host) == (0, 1)


async def test_adopted_request_counts_from_its_sending() -> None:
    """The time under way counts: the oldest request shows that the service does not respond."""
    host = Host()
    process = Process(host, JOIN)
    await process.after(Holding(HOLDING, 1, "/a", 5.0, elapsed=30.0))
    (peer,) = host._peers
    (held,) = peer._permits.values()
    reservation = held.permit._reservation
    assert reservation is not None
    assert reservation.sent == about(time() - 30.0)
    assert reservation.prior == 5.0


# --- processes that hang ------------------------------------------------------------------------


async def test_permits_of_a_hung_process_end_after_its_timeout() -> None:
    """A permit is lost 5 s after the timeout of its session, and at most 5 s later."""
    host = Host()
    process = Process(host, Join(1, timeout=19.0), Join(2, timeout=21.0))
    await process.after(Acquire(1, 1, "/a"), Holding(HOLDING, 2, "/a"))
    await asyncio.sleep(24)
    assert state(host) == (0, 2)
    assert timers() == 1
    await asyncio.sleep(1.5)
    assert state(host) == (0, 1)
    await asyncio.sleep(4)
    assert state(host) == (0, 1)
    await asyncio.sleep(1)
    assert state(host) == (0, 0)
    await asyncio.sleep(10)
    assert timers() == 0
    assert await process.after(Acquire(2, 1, "/a")) == [Granted(2, (1,))]
    await asyncio.sleep(31)
    assert state(host) == (0, 0)  # the search began again


async def test_a_session_may_raise_its_timeout() -> None:
    """Join with a longer timeout holds for later requests; other changes break the link."""
    host = Host()
    process = Process(host, Join(1, tag="t", timeout=19.0))
    await process.after(Acquire(1, 1, "/a"), Join(1, tag="t", timeout=100.0), answer(1, 98.0))
    await process.after(Acquire(2, 1, "/a"))
    await asyncio.sleep(99)
    assert state(host) == (0, 1)
    await process.after(Join(1, tag="other", timeout=100.0))
    assert process.broken


async def test_late_refusal_of_a_hung_process_still_stops_all() -> None:
    """A 429 counts although its permit was overdue; a late success does not."""
    host, process = await known(Join(1, timeout=1.0, max_in_flight=9))
    other = Process(host, JOIN)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    await asyncio.sleep(12)
    assert state(host) == (0, 0)
    assert await process.after(answer(1, 98.0)) == []
    assert await process.after(answer(2, 0.0, 429, 30.0)) == [
        Verdict(2, verdicts.Verdict.QUOTA),
        Recall(about(30.0)),
    ]
    assert other.all(Recall) == [Recall(about(30.0))]
    assert host.gate.stopped_for == about(30.0, 0.01)


async def test_late_refusal_stops_for_max_stop_at_most() -> None:
    """A 429 whose permit was overdue stops all for the longest `max_stop` of a session at most."""
    host, process = await known(Join(1, timeout=1.0, max_in_flight=9, max_stop=20.0))
    await process.after(Acquire(1, 1, "/a"))
    await asyncio.sleep(12)
    await process.after(answer(1, 0.0, 429, 30.0))
    assert host.gate.stopped_for == about(20.0)


# --- busy processes -----------------------------------------------------------------------------

ROOM = PolicyField(1_000.0, 60.0)


def roomy(permit: int, wait: float | None = None) -> Answered:
    """Return the report of a response of a service with 1,000 requests a minute; a refusal has a wait."""
    left, reset = (999.0, max(0.0, 60.0 - time())) if wait is None else (0.0, wait)
    limits = limits_of(RateLimitInfo(1_000.0, left, reset, wait, (ROOM,)))
    return Answered(permit, 200 if wait is None else 429, None, limits)


async def shared(*joins: Join) -> tuple[Host, Process, Process]:
    """Return a host with room for 100 requests in flight, and two processes that are not busy."""
    host = Host()
    one, other = Process(host, *(joins or (LEASING,))), Process(host, *(joins or (LEASING,)))
    await one.after(Acquire(0, 1, "/a", again=True))
    await one.after(roomy(0))
    await asyncio.sleep(1)
    return host, one, other


async def at_once(process: Process) -> int:
    """Return how many of 120 requests of a process may be in flight at once."""
    await process.after(*(Acquire(number, 1, "/a", again=True) for number in range(100, 220)))
    return sum(len(granted.permits) for granted in process.all(Granted))


async def test_busy_processes_divide_the_places_in_flight() -> None:
    """Of 100 places each of two busy processes has half; a process alone has them all."""
    _, one, other = await shared()
    await other.after(Acquire(1, 1, "/a", again=True))
    assert await at_once(one) == 50
    await other.after(roomy(0))
    one.frames.clear()
    await asyncio.sleep(1)
    assert sum(len(granted.permits) for granted in one.all(Granted)) == 50


async def test_process_whose_last_request_was_refused_is_not_busy() -> None:
    """A refusal outside of any frame gives the places of the process to the others."""
    _, one, other = await shared()
    await one.after(Acquire(1, 1, "/a", again=True), Acquire(2, 1, "/a", again=True))
    await one.after(roomy(1, 3.0))
    await other.after(Acquire(1, 1, "/a", max_wait=5.0))
    await one.after(roomy(2, 70.0))  # now its turn comes too late
    assert other.all(Refused)
    await asyncio.sleep(71)
    await one.after(Acquire(3, 1, "/a", again=True))
    await one.after(roomy(3))
    assert await at_once(one) == 100


async def test_process_whose_last_permits_were_overdue_is_not_busy() -> None:
    """A process that hangs loses its permits, and its places."""
    _, one, other = await shared()
    await other.after(Acquire(1, 1, "/a", again=True))
    await asyncio.sleep(50)
    assert await at_once(one) == 100


async def test_process_whose_requests_were_adopted_is_busy() -> None:
    """Requests that an earlier host permitted take places as all others do."""
    _, one, other = await shared()
    await other.after(Holding(HOLDING, 1, "/a"))
    assert await at_once(one) == 50


async def test_places_are_divided_again_when_a_session_changes_their_number() -> None:
    """A session with more places in flight than the others have gives each busy process its part of them."""
    _, one, other = await shared()
    await other.after(Acquire(1, 1, "/a", again=True))
    await one.after(Acquire(1, 1, "/a", again=True))
    await other.after(Join(2, max_in_flight=160))
    assert await at_once(one) == 79


async def test_places_are_divided_again_when_a_process_leaves_that_changed_their_number() -> None:
    """A process at rest takes the places that its session added with it when its link breaks."""
    host, one, other = await shared()
    third = Process(host, Join(1, max_in_flight=160))
    await other.after(Acquire(1, 1, "/a", again=True))
    await one.after(Acquire(1, 1, "/a", again=True))
    third.link.fail()
    assert await at_once(one) == 49


# --- the state ----------------------------------------------------------------------------------


async def test_state_is_reported_on_request() -> None:
    """Watch is answered at once, with the number of processes and the stop."""
    host, process = await known()
    Process(host, JOIN, stopped=9.0)
    await settle()
    await process.after(Watch())
    (report,) = process.all(State)
    shown = QuotaSnapshot.from_json(report.shown, time())
    assert (shown.limit, report.processes) == (100.0, 2)
    assert report.stopped == about(9.0, 0.1)


async def test_state_is_reported_while_requests_are_sent() -> None:
    """Half a second after a request, grant or response the welcome processes and the store get the state."""
    stored: list[bytes] = []
    host = Host(store=stored.append)
    process, other = Process(host, JOIN), Process(host)
    await settle()
    near, far = linked_pair()
    host.serve(far)
    silent: list[bytes] = []
    near.start(silent.append, lambda: None)
    process.send(Acquire(1, 1, "/a"))
    await asyncio.sleep(0.3)
    process.send(Acquire(2, 1, "/a"))
    await asyncio.sleep(0.15)
    assert (process.all(State), stored) == ([], [])
    await asyncio.sleep(0.1)
    assert [len(process.all(State)), len(other.all(State)), len(silent), len(stored)] == [1, 1, 0, 1]
    await asyncio.sleep(5)
    assert len(process.all(State)) == 2  # the second request had its turn
    process.send(answer(0))
    await asyncio.sleep(0.6)
    assert len(process.all(State)) == 3


def shown(process: Process) -> tuple[int, int]:
    """Return the numbers of requests that wait and that are under way, as the host last reported them."""
    snapshot = QuotaSnapshot.from_json(process.all(State)[-1].shown, time())
    return snapshot.waiting, snapshot.in_flight


@pytest.mark.parametrize("end", [Cancel(2), Unsent((1,)), Lost(1)], ids=lambda end: type(end).__name__)
async def test_end_of_a_request_is_reported_although_nothing_is_sent(end: FromParticipant) -> None:
    """Half a second after a request ended, by whichever message, other processes get the state without it."""
    host, process = await known(left=1.0)
    other = Process(host)
    await process.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    await asyncio.sleep(5)
    assert shown(other) == (1, 1)
    process.send(end)
    await asyncio.sleep(0.6)
    assert shown(other) == state(host) != (1, 1)


async def test_requests_whose_time_is_over_are_reported() -> None:
    """Half a second after a wait became too long, or a permit overdue, processes get the state without it."""
    host, process = await known(Join(1, timeout=1.0, max_in_flight=1), left=50.0)
    other = Process(host)
    process.send(Acquire(1, 1, "/a"), Acquire(2, 1, "/a", max_wait=8.0))
    await asyncio.sleep(7)
    assert shown(other) == (1, 1)
    await asyncio.sleep(1.6)
    assert shown(other) == (0, 1)
    await asyncio.sleep(2)
    assert shown(other) == (0, 0)


async def test_requests_of_a_process_that_died_are_reported() -> None:
    """Half a second after a link broke the other processes get the state without its requests."""
    host, process = await known(left=1.0)
    other = Process(host, JOIN)
    process.send(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    await asyncio.sleep(5)
    assert (shown(other), other.all(State)[-1].processes) == ((1, 1), 2)
    process.link.fail()
    await asyncio.sleep(0.6)
    assert (shown(other), other.all(State)[-1].processes) == ((0, 0), 1)


async def test_state_is_reported_after_a_greeting() -> None:
    """A process that is back has the state of its new host, although it sends nothing there."""
    host = Host()
    process = Process(host, JOIN)
    process.send(Holding(HOLDING, 1, "/a"))
    await asyncio.sleep(0.6)
    assert shown(process) == (0, 1)


async def test_host_without_processes_has_nothing_to_report() -> None:
    """A report that was due when the last process left is not made."""
    stored: list[bytes] = []
    host = Host(store=stored.append)
    one, two = Process(host, JOIN), Process(host, JOIN)
    await one.after(Acquire(1, 1, "/a"))
    one.link.close()
    await asyncio.sleep(0.6)
    assert len(stored) == 1
    await two.after(Acquire(1, 1, "/a"))
    two.link.close()
    await asyncio.sleep(0.6)
    assert len(stored) == 1
    three = Process(host, JOIN)
    await three.after(Acquire(1, 1, "/a"))
    await asyncio.sleep(0.6)
    assert len(stored) == 2
