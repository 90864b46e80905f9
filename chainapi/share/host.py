"""Host of a shared quota: one gate, which serves the links of all processes.

The gate is the one that a process alone would use (`chainapi._limits.gate`); each session of each process
is a `Member` of it. So there is one copy of the rules. The host answers messages
(`chainapi.core.share.messages`) together: all that an iteration of the loop brings.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from math import inf
from typing import assert_never

from attrs import define, field
from msgspec.structs import replace

from chainapi._limits import verdict as verdicts
from chainapi._limits.gate import Ask, Gate, Member, Permit, RequestGroup, WaitingLimit
from chainapi._limits.headers import hold
from chainapi._limits.view import Limit
from chainapi.core.share.messages import (
    VERSION,
    Acquire,
    Answered,
    Cancel,
    Denied,
    FrameError,
    FromHost,
    FromParticipant,
    Granted,
    Hello,
    Holding,
    Join,
    Leave,
    Lost,
    PermitVerdict,
    PlanEnded,
    QuotaState,
    Rate,
    Refused,
    Stopped,
    Unsent,
    Waiting,
    Watch,
    Welcome,
    amount_of,
    frames_of,
    info_of,
    read_participant_frame,
)
from chainapi.errors import APITimeoutError, ConfigurationError, QueueFullError, QuotaWaitError
from chainapi.share.link import Link

__all__ = ["Host"]

OVERDUE = 5.0  # seconds after a request's timeout: then its permit is lost
SWEEP = 5.0  # seconds between two searches for overdue permits
REST = 0.25  # seconds without a request after which a process is not busy any more
REPORT = 0.5  # seconds between two reports of the state
LONGEST_WINDOW = 86_400.0  # seconds: what is known of a quota is of use for as long
PAUSED = 0.02  # seconds until the report of a stop or pause: one for all responses that arrive together

_log = logging.getLogger("chainapi.share")


class Host:
    """Gate of one quota for all processes that link to it.

    Args:
        memory: what an earlier host learned; empty for nothing.
        age: seconds since then.
        store: called with the memory of the quota, and the seconds for which it is of use: twice a second
            while requests are sent, and at each stop.

    """

    def __init__(
        self, memory: bytes = b"", age: float = 0.0, *, store: Callable[[bytes, float], None] | None = None
    ) -> None:
        self.gate: Gate = Gate()
        if memory:
            self.gate.restore(memory, age)
        self.origin = ""  # of the service, for observers
        self._store = store
        self._peers: dict[_Peer, None] = {}
        self._reporting: asyncio.TimerHandle | None = None
        self._paused = False  # as of the last end of a request
        self._changed_at = -inf  # when a pause began or ended last: if they are short, that matters little

    def serve(self, link: Link, first: bytes = b"") -> None:
        """Serve the process at the other end of a link until the link breaks.

        Its frame `first` has arrived.
        """
        peer = _Peer(self, link)
        self._peers[peer] = None
        link.start(peer.receive, peer.broken)
        if first:
            peer.receive(first)

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
        self._peers.pop(peer, None)
        if not self._peers and self._reporting is not None:
            self._reporting.cancel()
            self._reporting = None
        self.changed()

    def divide(self) -> None:
        """Divide the places in flight among the processes that have requests.

        Else a process with many tasks would spend a window before those with few come back for more. Those
        with a lower priority only take no place from those with a higher one.
        """
        peers = self._peers
        ranks = [float(-peer.highest) for peer in peers if peer.highest is not None]
        self.gate.divide([peer.group for peer in peers], ranks)

    def stopped(self) -> None:
        """Report a stop to every process at once."""
        seconds = self.stopped_for
        for peer in self._peers:
            peer.stopped(seconds)
        self._report_in(PAUSED)

    def ended(self) -> None:
        """Report the state sooner if the end of a request began or ended a pause."""
        now = asyncio.get_running_loop().time()
        paused, self._paused = self._paused, self.gate.paused
        if self._paused is not paused and now >= self._changed_at + REPORT:
            self._changed_at = now
            self._report_in(PAUSED)

    @property
    def stopped_for(self) -> float:
        """Seconds until the end of a stop, as a message can have them."""
        return amount_of(self.gate.stopped_for)

    def changed(self) -> None:
        """Report the state soon, if there is a process to report it to."""
        if self._peers and self._reporting is None:
            self._report_in(REPORT)

    def save(self) -> None:
        """Store the memory of the quota now, because the host ends."""
        self._keep(self.gate.memory())

    def _keep(self, memory: bytes) -> None:
        if self._store is not None:
            self._store(memory, max(LONGEST_WINDOW, self.stopped_for))

    def _report_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._reporting is not None:
            if self._reporting.when() <= loop.time() + seconds:
                return
            self._reporting.cancel()
        self._reporting = loop.call_later(seconds, self._report)

    def _report(self) -> None:
        self._reporting = None
        state = self.state()
        for peer in self._peers:
            if peer.welcome:
                peer.send(state)
        self._keep(self.gate.memory())

    def state(self) -> QuotaState:
        """Return the state of the quota."""
        snapshot = self.gate.snapshot()
        return QuotaState(snapshot.to_json(), self.stopped_for, self.processes, self.origin)


@define(eq=False, repr=False)
class _Session:
    """Session of a process, with its settings."""

    member: Member
    settings: Join


@define(eq=False, repr=False)
class _Held:
    """Permit of a process, and the time at which it is overdue."""

    permit: Permit
    overdue: float
    priority: int


@define(eq=False, repr=False)
class _Waiter:
    """Request of a process that waits, and the task that waits for it."""

    task: asyncio.Task[None]
    priority: int


@define(eq=False, repr=False)
class _Peer:
    """Process at the other end of a link: its sessions, permits and waiting requests."""

    host: Host
    link: Link
    welcome: bool = False
    _gone: bool = False  # the link broke, or was closed
    process: str = ""
    _sessions: dict[int, _Session] = field(factory=dict[int, _Session])
    group: RequestGroup = field(
        factory=RequestGroup
    )  # of the requests of sessions without limits of their own
    highest: int | None = None  # priority of its requests, now or a moment ago
    _priorities: Counter[int] = field(factory=Counter[int])  # of its requests that wait or have a permit
    _resting: asyncio.TimerHandle | None = None
    _permits: dict[int, _Held] = field(factory=dict[int, _Held])
    _waiting: dict[int, _Waiter] = field(factory=dict[int, "_Waiter"])
    _numbers: count[int] = field(factory=count)
    _outbox: list[FromHost] = field(factory=list[FromHost])
    _sweeping: asyncio.TimerHandle | None = None

    @property
    def shares(self) -> bool:
        """Whether a session of the process joined."""
        return bool(self._sessions)

    # --- the link ---------------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Answer the messages of a frame; a malformed one breaks the link."""
        if self._gone:
            return
        try:
            for message in read_participant_frame(frame):
                self._check_order(message)
                self._answer(message)
        except (FrameError, _ProtocolError) as error:
            _log.warning("a process was dropped from the shared quota: %s", error)
            self._drop(str(error))
        except BaseException:
            self._drop("the host failed at a message")  # else requests of the frame would wait for ever
            raise

    def _drop(self, reason: str) -> None:
        """End the link, for a reason in words."""
        self._outbox = [Denied(reason[:1024])]
        self._flush()
        self.link.close()
        self.broken()

    def broken(self) -> None:
        """End all that the process began: its permits are lost."""
        self._gone = True
        self.host.left(self)
        for waiter in self._waiting.values():
            waiter.task.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._rest()
        permits, self._permits = self._permits, {}
        for held in permits.values():
            held.permit.lost()
        for session in self._sessions.values():
            self.host.gate.leave(session.member)
        self.host.divide()

    def send(self, message: FromHost) -> None:
        """Send a message with all others of this iteration of the loop."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        if self._outbox:
            messages, self._outbox = self._outbox, []
            for frame in frames_of(messages):
                self.link.send(frame)

    # --- messages ---------------------------------------------------------------------------

    def _check_order(self, message: FromParticipant) -> None:
        if isinstance(message, Hello) is self.welcome:
            raise _ProtocolError("a second Hello" if self.welcome else "the first message has to be Hello")

    def _answer(self, message: FromParticipant) -> None:
        match message:
            case Hello():
                self._greet(message)
            case Join():
                self._join(message)
            case Leave():
                self._leave(message)
            case Acquire():
                self._acquire(message)
            case Cancel():
                self._end_wait(message.number)
            case Holding():
                self._adopt(message)
            case Answered():
                self._answered(message)
            case Lost() | Unsent():
                self._end_unanswered(message)
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
        self.send(Welcome(VERSION))
        self.host.changed()
        if message.stopped:
            self.host.gate.hold_back(min(message.stopped, LONGEST_WINDOW))
            self.host.stopped()

    def _adopt(self, message: Holding) -> None:
        """Hold the permit of a request that is under way."""
        session = self._session(message.session)
        if message.permit in self._permits:
            raise _ProtocolError(f"permit {message.permit} is held already")
        ask = Ask(message.route, message.cost, tag=message.tag)
        permit = self.host.gate.adopt(ask, session.member, message.elapsed)
        self._hold(message.permit, permit, session, 0)

    def _join(self, message: Join) -> None:
        known = self._sessions.get(message.session)
        if known is not None:
            if replace(message, timeout=known.settings.timeout) != known.settings:
                raise _ProtocolError(f"session {message.session} joined already, with other settings")
            known.settings = message
            return
        try:
            rate = None if message.rate is None else _limit(message.rate)
            limits = [_limit(rate) for rate in message.limits]
        except ConfigurationError as error:
            raise _ProtocolError(f"session {message.session} has an invalid limit: {error}") from None
        member = Member(
            rate=rate,
            max_in_flight=message.max_in_flight,
            limits=limits,
            probe=message.probe,
            max_stop=message.max_stop,
            on_wait=partial(self._on_wait, message.session),
            on_plan=partial(self._on_plan, message.session),
            process=self.process,
            tag=message.tag,
            group=self.group,
        )
        self._sessions[message.session] = _Session(member, message)
        self.host.gate.join(member)
        self.host.divide()

    def _leave(self, message: Leave) -> None:
        if (session := self._sessions.pop(message.session, None)) is not None:
            self.host.gate.leave(session.member)
            self.host.divide()

    def _session(self, number: int) -> _Session:
        session = self._sessions.get(number)
        if session is None:
            raise _ProtocolError(f"session {number} did not join")
        return session

    def _on_wait(self, session: int, *, reason: str, seconds: float, waiting: int) -> None:
        self.send(Waiting(session, reason, amount_of(seconds), waiting))

    def _on_plan(self, session: int, plan: str, limit: float | None, window: float | None) -> None:
        self.send(PlanEnded(session, plan, _capped(limit), _capped(window)))

    # --- permits ----------------------------------------------------------------------------

    def _acquire(self, message: Acquire) -> None:
        session = self._session(message.session)
        if message.number in self._waiting:
            raise _ProtocolError(f"request {message.number} waits already")
        self.host.changed()
        self._note(message.priority)
        loop = asyncio.get_running_loop()
        ask = _ask(message, loop.time())
        permit = self.host.gate.acquire_now(ask, session.member)
        if permit is not None:
            self._grant(message, permit, session)
            return
        task = loop.create_task(self._wait(message, ask, session))
        self._waiting[message.number] = _Waiter(task, message.priority)
        self._count(message.priority, 1)

    async def _wait(self, message: Acquire, ask: Ask, session: _Session) -> None:
        """Wait for the turn of a request, and send its permit."""
        try:
            permit = await self.host.gate.acquire(ask, session.member)
        except QuotaWaitError as error:
            full = isinstance(error, QueueFullError)
            self.send(Refused(message.number, amount_of(error.retry_after), full=full))
        except APITimeoutError as error:
            self.send(Refused(message.number, None, error.reason))
        else:
            self._grant(message, permit, session)
        finally:
            waiter = self._waiting.get(message.number)
            if waiter is not None and waiter.task is asyncio.current_task():
                self._end_wait(message.number, cancelled=False)

    def _end_wait(self, number: int, *, cancelled: bool = True) -> None:
        """Forget a request that waits, after it was withdrawn, or at the end of its task."""
        if (waiter := self._waiting.pop(number, None)) is not None:
            self._count(waiter.priority, -1)
            self.host.changed()
            if cancelled:
                waiter.task.cancel()

    def _grant(self, message: Acquire, permit: Permit, session: _Session) -> None:
        number = self._hold(next(self._numbers), permit, session, message.priority)
        self.send(Granted(message.number, number))

    def stopped(self, seconds: float) -> None:
        """Report that nothing may be sent for some seconds."""
        if self.welcome:
            self.send(Stopped(seconds))

    def _answered(self, message: Answered) -> None:
        permit = self._end(message.permit)
        if permit is None:
            self._answered_late(message)
            return
        verdict = permit.answered(message.status, info_of(message.limits))
        self.host.ended()
        if message.status == 429:
            self.send(PermitVerdict(message.permit, verdict))
            self.host.stopped()

    def _end_unanswered(self, message: Lost | Unsent) -> None:
        permit = self._end(message.permit)
        if permit is not None and isinstance(message, Lost):
            permit.lost()
        elif permit is not None:
            permit.unsent()

    def _answered_late(self, message: Answered) -> None:
        """Honor a refusal although its permit was overdue."""
        if message.status == 429:
            self.host.gate.hold_back(hold(429, info_of(message.limits)))
            self.send(PermitVerdict(message.permit, verdicts.Verdict.QUOTA))
            self.host.stopped()

    # --- busy or not ------------------------------------------------------------------------

    def _note(self, priority: int) -> None:
        """Have the places divided again if a request has the highest priority by now."""
        if self.highest is None or priority > self.highest:
            self.highest = priority
            self.host.divide()

    def _count(self, priority: int, number: int) -> None:
        """Count a request that waits or has a permit in or out."""
        self._priorities[priority] += number
        if not self._priorities[priority]:
            del self._priorities[priority]
        if number > 0:
            self._note(priority)
        else:
            self._watch_rest()

    def _watch_rest(self) -> None:
        """Have the places divided again if the process has no such requests for some time."""
        if self._resting or self.highest is None:
            return
        if max(self._priorities, default=None) != self.highest:
            self._resting = asyncio.get_running_loop().call_later(REST, self._rest)

    def _rest(self) -> None:
        """Note the highest priority of the requests that are left.

        None if there are no more, or if the process is gone.
        """
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        highest = None if self._gone else max(self._priorities, default=None)
        if highest != self.highest:
            self.highest = highest
            self.host.divide()

    # --- permits that are held --------------------------------------------------------------

    def _hold(self, number: int, permit: Permit, session: _Session, priority: int) -> int:
        loop = asyncio.get_running_loop()
        self._permits[number] = _Held(permit, loop.time() + session.settings.timeout + OVERDUE, priority)
        self._count(priority, 1)
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP, self._sweep)
        return number

    def _end(self, number: int) -> Permit | None:
        held = self._permits.pop(number, None)
        if held is None:
            return None
        self._count(held.priority, -1)
        self.host.changed()
        return held.permit

    def _sweep(self) -> None:
        """End overdue permits: the process hangs, or forgot them."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for number in [number for number, held in self._permits.items() if held.overdue <= now]:
            if (permit := self._end(number)) is not None:
                permit.lost()
        self._sweeping = loop.call_later(SWEEP, self._sweep) if self._permits else None


class _ProtocolError(Exception):
    """Message that does not fit to those before it."""


def _ask(message: Acquire, now: float) -> Ask:
    """Return what a request asks of the gate."""
    limit = None
    if message.limit is not None:
        limit = WaitingLimit(inf if message.most_waiting is None else message.most_waiting, message.limit)
    deadline = inf if message.left is None else now + message.left
    return Ask(
        message.route,
        message.cost,
        message.priority,
        message.tag,
        message.max_wait,
        deadline,
        again=message.again,
        limit=limit,
    )


def _capped(amount: float | None) -> float | None:
    return None if amount is None else amount_of(amount)


def _limit(rate: Rate) -> Limit:
    amount, seconds, units, plan = rate
    return Limit(amount, seconds, units=units, plan=plan)
