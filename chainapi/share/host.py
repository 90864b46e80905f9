"""Host of a shared quota: one gate, which serves the links of all processes.

The gate is the one that a process alone would use (`chainapi.client.limiter`); each session of each process
is a `Member` of it. So there is one copy of the rules. The host answers messages
(`chainapi.core.share.messages`), one frame for all that an iteration of the loop brings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from typing import assert_never

from attrs import define, field

from chainapi.client.limiter import Gate, Permit
from chainapi.client.member import Member
from chainapi.core.limits import scope
from chainapi.core.limits.headers import hold
from chainapi.core.limits.limit import Limit
from chainapi.core.share.messages import (
    VERSION,
    Acquire,
    Answered,
    Cancel,
    Denied,
    FrameError,
    FromHost,
    FromMember,
    Granted,
    Hello,
    Holding,
    Join,
    Leave,
    Lost,
    Rate,
    Recall,
    Refused,
    State,
    Unsent,
    Verdict,
    Waiting,
    Watch,
    Welcome,
    encode,
    info_of,
    read_member_frame,
)
from chainapi.errors import APITimeoutError, QuotaWaitError
from chainapi.share.link import Link

__all__ = ["Host"]

LEASE = 8  # most permits at once for requests that a member did not ask for yet
PER_MEMBER = 4  # leases of this size for each process have to fit into what is left
OVERDUE = 5.0  # seconds after a request's timeout: then its permit is lost
SWEEP = 5.0  # seconds between two searches for overdue permits
TRANSIT = 0.03  # seconds that a report may take: a request must not look younger than it is
REPORT = 0.5  # seconds between two reports of the state

_log = logging.getLogger("chainapi.share")


class Host:
    """Gate of one quota for all processes that link to it.

    Args:
        store: called with the memory of the quota when it changed, at most twice a second.

    """

    def __init__(self, *, store: Callable[[bytes], None] | None = None) -> None:
        self.gate = Gate()
        self.origin = ""  # of the service, for observers
        self._store = store
        self._peers: set[_Peer] = set()
        self._reporting: asyncio.TimerHandle | None = None

    def serve(self, link: Link) -> None:
        """Serve the process at the other end of a link until the link breaks."""
        peer = _Peer(self, link)
        self._peers.add(peer)
        link.start(peer.receive, peer.broken)

    @property
    def processes(self) -> int:
        """Number of the processes with a session; observers have none."""
        return sum(peer.shares for peer in self._peers)

    def unique(self, process: str) -> str:
        """Return a name for a process that no other has: each takes turns of its own."""
        names = {peer.process for peer in self._peers}
        others = (f"{process}#{number}" for number in count(2))
        return next(name for name in chain((process,), others) if name not in names)

    def left(self, peer: _Peer) -> None:
        """Forget a process whose link broke."""
        self._peers.discard(peer)
        if not self._peers and self._reporting is not None:
            self._reporting.cancel()
            self._reporting = None

    def lease(self, route: str, cost: float | None) -> int:
        """Return how many permits a member may hold for requests to come."""
        share = self.gate.surplus(route, cost) / (PER_MEMBER * max(1, self.processes))
        return min(LEASE, int(share)) - 1 if share >= 2 else 0

    def recall(self) -> None:
        """Take all unused leases back."""
        for peer in self._peers:
            peer.recall()

    def stopped(self) -> None:
        """Report a stop to every process at once."""
        for peer in self._peers:
            peer.stopped(self.gate.stopped_for)

    def changed(self) -> None:
        """Report the state soon."""
        if self._reporting is None:
            self._reporting = asyncio.get_running_loop().call_later(REPORT, self._report)

    def _report(self) -> None:
        self._reporting = None
        state = self.state()
        for peer in self._peers:
            if peer.welcome:
                peer.send(state)
        if self._store is not None:
            self._store(state.memory)

    def state(self) -> State:
        """Return the state of the quota."""
        snapshot = self.gate.snapshot()
        return State(snapshot.to_json(), b"", self.gate.stopped_for, self.processes, self.origin)


@define(eq=False, repr=False)
class _Held:
    """Permit of a process, and the time at which it is overdue."""

    permit: Permit
    overdue: float


@define(eq=False, repr=False)
class _Peer:
    """Process at the other end of a link: its sessions, permits, and requests that wait."""

    host: Host
    link: Link
    welcome: bool = False
    process: str = ""
    _members: dict[int, Member] = field(factory=dict[int, Member])
    _timeouts: dict[int, float] = field(factory=dict[int, float])
    _permits: dict[int, _Held] = field(factory=dict[int, _Held])
    _waiting: dict[int, asyncio.Task[None]] = field(factory=dict[int, "asyncio.Task[None]"])
    _numbers: count[int] = field(factory=count)
    _leases: int = 0  # grants with a lease since the last recall
    _outbox: list[FromHost] = field(factory=list[FromHost])
    _sweeping: asyncio.TimerHandle | None = None

    @property
    def shares(self) -> bool:
        """Whether a session of the process joined."""
        return bool(self._members)

    # --- the link ---------------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Answer the messages of a frame; a malformed one breaks the link."""
        try:
            for message in read_member_frame(frame):
                self._answer(message)
        except (FrameError, _ProtocolError) as error:
            _log.warning("a process was dropped from the shared quota: %s", error)
            self.send(Denied(str(error)[:1024]))
            self._flush()
            self.link.close()
            self.broken()

    def broken(self) -> None:
        """End all that the process began: its permits are lost."""
        self.host.left(self)
        for task in self._waiting.values():
            task.cancel()
        self._waiting.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
        permits, self._permits = self._permits, {}
        for held in permits.values():
            held.permit.lost()
        for member in self._members.values():
            self.host.gate.leave(member)
        self._members.clear()

    def send(self, message: FromHost) -> None:
        """Send a message with all others of this iteration of the loop."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        if self._outbox:
            messages, self._outbox = self._outbox, []
            self.link.send(encode(messages))

    # --- messages ---------------------------------------------------------------------------

    def _answer(self, message: FromMember) -> None:
        if not self.welcome and not isinstance(message, Hello):
            raise _ProtocolError("the first message has to be Hello")
        match message:
            case Hello():
                self._greet(message)
            case Join() | Leave():
                self._change(message)
            case Acquire():
                self._acquire(message)
            case Cancel():
                if (task := self._waiting.pop(message.number, None)) is not None:
                    task.cancel()
            case Holding() | Answered() | Lost() | Unsent():
                self._account(message)
            case Watch():
                self.send(self.host.state())
            case _:
                assert_never(message)

    def _greet(self, message: Hello) -> None:
        if message.version != VERSION:
            raise _ProtocolError(
                f"version {message.version} of the protocol, and the host has {VERSION}: use one version of"
                " chainapi in all processes"
            )
        self.welcome, self.process = True, self.host.unique(message.process)
        self.host.origin = self.host.origin or message.origin
        if message.stopped:
            self.host.gate.hold_back(message.stopped)
        self.send(Welcome(VERSION))

    def _change(self, message: Join | Leave) -> None:
        """Let a session join or leave the gate."""
        if isinstance(message, Join):
            self._join(message)
        elif (member := self._members.pop(message.member, None)) is not None:
            self._timeouts.pop(message.member, None)
            self.host.gate.leave(member)

    def _account(self, message: Holding | Answered | Lost | Unsent) -> None:
        """Record the beginning or the end of a permit."""
        match message:
            case Answered():
                self._answered(message)
            case Unsent():
                for number in message.permits:
                    if (permit := self._end(number)) is not None:
                        permit.unsent()
            case Lost():
                if (permit := self._end(message.permit)) is not None:
                    permit.lost()
            case Holding():
                member = self._member(message.member)
                permit = self.host.gate.adopt(
                    message.route,
                    cost=message.cost,
                    member=member,
                    elapsed=message.elapsed,
                    tag=message.tag,
                )
                self._hold(message.permit, permit, message.member)
            case _:
                assert_never(message)

    def _join(self, message: Join) -> None:
        member = self._members[message.member] = Member(
            rate=None if message.rate is None else _limit(message.rate),
            max_in_flight=message.max_in_flight,
            limits=[_limit(rate) for rate in message.limits],
            probe=message.probe,
            max_stop=message.max_stop,
            on_wait=partial(self._on_wait, message.member),
            process=self.process,
            tag=message.tag,
        )
        self._timeouts[message.member] = message.timeout
        self.host.gate.join(member)

    def _member(self, number: int) -> Member:
        member = self._members.get(number)
        if member is None:
            raise _ProtocolError(f"session {number} did not join")
        return member

    def _on_wait(self, member: int, *, reason: str, seconds: float, waiting: int) -> None:
        self.send(Waiting(member, reason, seconds, waiting))

    # --- permits ----------------------------------------------------------------------------

    def _acquire(self, message: Acquire) -> None:
        member = self._member(message.member)
        self.host.changed()
        gate = self.host.gate
        permit = gate.acquire_now(message.route, cost=message.cost, member=member, tag=message.tag)
        if permit is not None:
            self._grant(message, permit, member)
            return
        self.host.recall()
        task = asyncio.get_running_loop().create_task(self._wait(message, member))
        self._waiting[message.number] = task

    async def _wait(self, message: Acquire, member: Member) -> None:
        """Wait for the turn of a request, and send its permit."""
        gate, now = self.host.gate, asyncio.get_running_loop().time()
        try:
            permit = await gate.acquire(
                message.route,
                cost=message.cost,
                priority=message.priority,
                max_wait=message.max_wait,
                deadline=float("inf") if message.left is None else now + message.left,
                again=message.again,
                member=member,
                tag=message.tag,
            )
        except QuotaWaitError as error:
            self.send(Refused(message.number, error.retry_after))
        except APITimeoutError as error:
            self.send(Refused(message.number, None, error.reason))
        else:
            if self._waiting.get(message.number) is asyncio.current_task():
                self._grant(message, permit, member)
            else:
                permit.unsent()
        finally:
            if self._waiting.get(message.number) is asyncio.current_task():
                del self._waiting[message.number]

    def _grant(self, message: Acquire, permit: Permit, member: Member) -> None:
        """Send a permit, and a lease while much of the quota is left."""
        numbers = [self._hold(next(self._numbers), permit, message.member)]
        if member.group is None and not message.again:
            numbers += self._lease(message, member)
        self.send(Granted(message.number, tuple(numbers)))

    def _lease(self, message: Acquire, member: Member) -> list[int]:
        gate, numbers = self.host.gate, list[int]()
        for _ in range(self.host.lease(message.route, message.cost)):
            permit = gate.acquire_now(message.route, cost=message.cost, member=member, tag=message.tag)
            if permit is None:
                break
            numbers.append(self._hold(next(self._numbers), permit, message.member))
        self._leases += bool(numbers)
        return numbers

    def recall(self) -> None:
        """Take the unused leases of the process back."""
        if self._leases:
            self._leases = 0
            self.send(Recall())

    def stopped(self, seconds: float) -> None:
        """Report that nothing may be sent for some seconds."""
        self._leases = 0
        if self.welcome:
            self.send(Recall(seconds))

    def _answered(self, message: Answered) -> None:
        permit = self._end(message.permit)
        if permit is None:
            self._answered_late(message)
            return
        elapsed = None if message.elapsed is None else message.elapsed + TRANSIT
        verdict = permit.answered(message.status, info_of(message.limits), elapsed=elapsed)
        self.host.changed()
        if message.status == 429:
            self.send(Verdict(message.permit, verdict.value))
            self.host.stopped()

    def _answered_late(self, message: Answered) -> None:
        """Honour a refusal although its permit was overdue."""
        if message.status == 429:
            self.host.gate.hold_back(hold(429, info_of(message.limits)))
            self.send(Verdict(message.permit, scope.Verdict.QUOTA.value))
            self.host.stopped()

    # --- permits that are held --------------------------------------------------------------

    def _hold(self, number: int, permit: Permit, member: int) -> int:
        loop = asyncio.get_running_loop()
        if number in self._permits:
            raise _ProtocolError(f"permit {number} is held already")
        timeout = self._timeouts.get(member, 0.0)  # without: the session left, and will cancel its requests
        self._permits[number] = _Held(permit, loop.time() + timeout + OVERDUE)
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP, self._sweep)
        return number

    def _end(self, number: int) -> Permit | None:
        held = self._permits.pop(number, None)
        return None if held is None else held.permit

    def _sweep(self) -> None:
        """End overdue permits: the process hangs, or forgot them."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SWEEP, self._sweep) if self._permits else None
        now = loop.time()
        for number in [number for number, held in self._permits.items() if held.overdue <= now]:
            self._permits.pop(number).permit.lost()


class _ProtocolError(Exception):
    """Message that does not fit to those before it."""


def _limit(rate: Rate) -> Limit:
    amount, seconds, units = rate
    return Limit(amount, seconds, units=units)
