"""Gate of a shared quota in one process, with its links to hosts.

It has the methods of `chainapi._limits.gate.Gate` that a session uses, and sends them as messages. One task
connects to a host, waits until the link breaks, and begins again. A new host gets all that it has to know:
the sessions, the requests under way, and those that wait. So messages without a host are dropped, no request
is sent without a permit, and none is sent twice.

Without a host for some time the process hosts the quota for itself, with its last share as the limit, until
another host accepts it. Or all calls fail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from attrs import define, field
from msgspec.structs import replace

from chainapi._limits.gate import Ask, Member, Wait
from chainapi._limits.view import Limit, QuotaSnapshot
from chainapi.core.share import messages
from chainapi.core.share.messages import (
    VERSION,
    Acquire,
    Cancel,
    Denied,
    FrameError,
    FromHost,
    FromParticipant,
    Granted,
    Hello,
    Join,
    Leave,
    PlanEnded,
    QuotaState,
    Rate,
    Refused,
    Stopped,
    Unsent,
    Waiting,
    Welcome,
    amount_of,
    encode,
    frames_of,
    read_host_frame,
)
from chainapi.errors import (
    APITimeoutError,
    ConfigurationError,
    QuotaWaitError,
    SessionClosedError,
    ShareUnavailableError,
)
from chainapi.share.link import Carrier, Link, linked_pair
from chainapi.share.permits import Permits, SharedPermit

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["OnUnavailable", "SharedGate", "rate_of"]

OnUnavailable: TypeAlias = Literal["degrade", "fail"]
LONGEST = 1024  # characters of a route in a message
HIGHEST = 2**63 - 1  # of a whole number in a message
RETRY = 0.25  # seconds between two attempts to reach a host
UNAVAILABLE = 2.0  # seconds for a host that refuses a process for now
SAME = 0.05  # seconds: two times of the end of one stop differ by less
TRICKLE = Limit(1, per=0.5)  # of a process alone that knows no limit: one in flight, two a second at most

_log = logging.getLogger("chainapi.share")


@define(eq=False, repr=False)
class _Request:
    """Request of a session that waits for a permit.

    Attributes:
        message: to the host, but for the number and the time that is left.
        ask: what it asks.
        member: the session.
        waits_until: latest time of its turn by `max_wait`, on the loop's clock.
        permit: the result.

    """

    message: Acquire
    ask: Ask
    member: Member
    waits_until: float
    permit: asyncio.Future[SharedPermit]

    def acquire(self, number: int, now: float) -> Acquire:
        """Return the message for a host.

        The next host has to let the request wait if this one does.
        """
        message = replace(
            self.message,
            number=number,
            max_wait=_left(self.waits_until, now),
            left=_left(self.ask.deadline, now),
        )
        if message.most_waiting is not None:
            self.message = replace(self.message, most_waiting=None)
        return message

    def error(self, message: Refused, now: float) -> QuotaWaitError | APITimeoutError:
        """Return the error of a refusal by the host."""
        if message.seconds is None:
            return APITimeoutError(message.reason)
        ask = self.ask
        if message.full and ask.limit is not None:
            return self.member.queue_full(message.seconds, ask.limit.most)
        left = ask.deadline - now if ask.deadline < self.waits_until else None
        return self.member.too_long(message.seconds, ask.max_wait or 0.0, left)


@define(eq=False, repr=False)
class _Uplink:
    """Link to a host that was greeted.

    Attributes:
        link: the link.
        stopped_until: end of the stop that the greeting named.
        own: whether this process hosts the quota for itself at the other end.
        failed: whether it ended before its time, as the next link may too.
        ended: set when the link is broken.

    """

    link: Link
    stopped_until: float
    own: bool
    failed: bool = True
    ended: asyncio.Event = field(factory=asyncio.Event)


class SharedGate:
    """Gate of one quota in one event loop, shared with other processes.

    Args:
        name: name of the quota.
        origin: scheme, host and port of its service, for people.
        carrier: connects the processes.
        on_unavailable: "degrade" sends by the last known share of this process while there is no host, and
            one request at a time while it knows none; "fail" raises ShareUnavailableError.
        secret: authenticates the frames of the quota on their way to other machines; see `frame_key`.

    """

    def __init__(
        self, name: str, origin: str, carrier: Carrier, on_unavailable: OnUnavailable, secret: bytes = b""
    ) -> None:
        self._name, self._origin, self._carrier = name, origin, carrier
        self._on_unavailable = on_unavailable
        self._remote = carrier.remote(name, secret)
        self._joined: dict[Member, Join] = {}
        self._numbers = count()
        self._requests: dict[int, _Request] = {}  # that wait for a permit, by number
        self._permits = Permits(self._send, self._stop_without_host)
        self._shown = QuotaSnapshot(0.0)
        self._share = TRICKLE  # of this process in the quota
        self._stopped_until = -inf
        self._task: asyncio.Task[None] | None = None  # connects
        self._uplink: _Uplink | None = None  # in use
        self._outbox: list[FromParticipant] = []
        self._met_host = False  # ever
        self._patience: asyncio.TimerHandle | None = None
        self._reason: ShareUnavailableError | ConfigurationError | None = None  # why there is no host
        self._error: ShareUnavailableError | ConfigurationError | None = None  # of all calls

    # --- what a session uses ----------------------------------------------------------------

    async def acquire(self, ask: Ask, member: Member) -> SharedPermit:
        """Wait for a turn, and return the permit to send now; see `Gate.acquire`.

        Raises:
            QuotaWaitError, QueueFullError, APITimeoutError: as `Gate.acquire` documents.
            ShareUnavailableError: there is no host, and the gate does not degrade.

        """
        loop = asyncio.get_running_loop()
        waits_until = inf if ask.max_wait is None else loop.time() + ask.max_wait
        message = Acquire(
            0,
            self._session(member),
            ask.route[:LONGEST],
            None if ask.cost is None else amount_of(ask.cost),
            max(-HIGHEST, min(ask.priority, HIGHEST)),
            again=ask.again,
            tag=ask.tag,
            limit=None if ask.limit is None else ask.limit.number,
            most_waiting=None if ask.limit is None else min(int(ask.limit.most), HIGHEST),
        )
        while True:
            permit = await self._ask(_Request(message, ask, member, waits_until, loop.create_future()))
            if permit.valid:
                permit.sent = loop.time()
                return permit
            # A stop, or another host, came before the request could leave.
            self._session(member)
            message = replace(message, again=True)

    def acquire_now(self, ask: Ask, member: Member) -> None:
        """Return None: another process grants the permits."""

    def price(self, route: str, prior: float | None) -> float | None:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        return self._shown.costs.get(route, prior)

    def snapshot(self, member: Member) -> QuotaSnapshot:
        """Return the state of the quota as the host last reported it."""
        return self._shown.at(asyncio.get_running_loop().time(), member.now())

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        message = self._joined[member] = _join(next(self._numbers), member)
        self._send(message)

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        if (joined := self._joined.pop(member, None)) is not None:
            self._send(Leave(joined.session))

    @property
    def in_use(self) -> bool:
        """Whether a session uses the gate."""
        return bool(self._joined)

    async def aclose(self) -> None:
        """End this process's part in the quota, after its last session left."""
        self._stop_patience()
        self._flush()
        if self._uplink is not None:
            self._uplink.link.close()
            self._uplink = None
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
        finally:  # also if the close is cancelled
            await self._carrier.aclose(self._name)

    # --- requests ---------------------------------------------------------------------------

    def _session(self, member: Member) -> int:
        """Return the number of a session that has not left."""
        joined = self._joined.get(member)
        if joined is None:
            raise SessionClosedError("the session is closed: make a new one")
        timeout = amount_of(member.timeout)
        if timeout > joined.timeout:  # of a view that was made since then: requests may take longer
            joined = self._joined[member] = replace(joined, timeout=timeout)
            self._send(joined)
        return joined.session

    async def _ask(self, request: _Request) -> SharedPermit:
        """Send a request to the host, now or when there is one, and return its permit."""
        if self._error is not None:
            raise _copy(self._error)
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        self._requests[number] = request
        if self._uplink is not None:
            self._send(request.acquire(number, loop.time()))
        elif self._task is None:
            self._task = loop.create_task(self._connect())
        try:
            return await request.permit
        except asyncio.CancelledError:
            if self._requests.pop(number, None) is not None:
                self._send(Cancel(number))
            elif not request.permit.cancelled() and request.permit.exception() is None:
                request.permit.result().unsent()
            raise

    # --- messages ---------------------------------------------------------------------------

    def _send(self, message: FromParticipant) -> bool:
        """Send a message with all others of this iteration; False without a host."""
        if self._uplink is None:
            return False
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)
        return True

    def _flush(self) -> None:
        if self._outbox and self._uplink is not None:
            outbox, self._outbox = self._outbox, []
            for frame in frames_of(outbox):
                self._uplink.link.send(frame)

    def _receive(self, uplink: _Uplink, frame: bytes) -> None:
        """Handle the messages of a frame; the link breaks if that fails."""
        try:
            for message in read_host_frame(frame):
                self._handle(uplink, message)
        except FrameError as error:
            _log.warning("the link to the host of the shared quota broke: %s", error)
            self._drop(uplink)
        except ShareUnavailableError as error:
            self._reason = error
            self._drop(uplink)
        except BaseException:
            self._drop(uplink)  # else requests of the frame would wait for ever
            raise

    def _handle(self, uplink: _Uplink, message: FromHost) -> None:
        match message:
            case Granted():
                self._grant(message)
            case Refused():
                self._refuse(message)
            case messages.PermitVerdict():
                self._permits.verdict(message)
            case Stopped():
                self._stop(message.seconds)
            case Waiting():
                self._report_wait(message)
            case PlanEnded():
                self._end_plan(message)
            case QuotaState():
                self._read_state(message, own=uplink.own)
            case Welcome():
                self._accepted(uplink)
            case Denied():
                self._expect(UNAVAILABLE if message.again else 0.0)
                raise ShareUnavailableError(message.reason)
            case _:
                assert_never(message)

    def _grant(self, message: Granted) -> None:
        """Wake the request of a grant."""
        request = self._requests.pop(message.number, None)
        if request is None or request.permit.done():
            self._send(Unsent(message.permit))  # it was cancelled
        else:
            request.permit.set_result(self._permits.add(message.permit, request.message))

    def _refuse(self, message: Refused) -> None:
        request = self._requests.pop(message.number, None)
        if request is not None and not request.permit.done():
            request.permit.set_exception(request.error(message, asyncio.get_running_loop().time()))

    def _report_wait(self, message: Waiting) -> None:
        now = asyncio.get_running_loop().time()
        for member, joined in self._joined.items():
            if joined.session == message.session:
                member.report_wait(Wait(now + message.seconds, message.reason), now, message.waiting)

    def _end_plan(self, message: PlanEnded) -> None:
        for member, joined in self._joined.items():
            if joined.session == message.session:
                member.end_plan(message.plan, message.amount, message.window)

    def _read_state(self, state: QuotaState, *, own: bool) -> None:
        try:
            self._shown = QuotaSnapshot.from_json(state.shown, asyncio.get_running_loop().time())
        except ValueError as error:
            raise FrameError(str(error)) from None
        self._permits.state_came.set()
        if not own:
            self._share = _share(self._shown, max(1, state.processes))
        self._stop(state.stopped)

    def _stop(self, seconds: float) -> None:
        """Hold back what was granted and did not leave yet."""
        until = asyncio.get_running_loop().time() + seconds
        if seconds and until > self._stopped_until:
            self._stopped_until = until
            self._permits.hold_back()

    def _stop_without_host(self, seconds: float) -> None:
        """Stop although no host can be informed, which would bound the stop."""
        self._stop(min(seconds, max((member.settings.max_stop for member in self._joined), default=inf)))

    # --- hosts come and go ------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect to a host, and to the next one when its link broke."""
        while True:
            self._expect(self._carrier.patience)
            try:
                link = await self._carrier.connect(self._name)
            except Exception as error:  # noqa: BLE001 - a carrier that a user wrote may raise anything
                self._unreachable(error)
                await asyncio.sleep(RETRY)
                continue
            uplink = self._greet(link)
            try:
                await uplink.ended.wait()
            finally:
                link.close()
            if uplink.failed:
                await asyncio.sleep(RETRY)

    def _greet(self, link: Link, *, own: bool = False) -> _Uplink:
        """Begin with a host; it is used when it has accepted this process."""
        uplink = _Uplink(link, self._stopped_until, own)
        link.start(partial(self._receive, uplink), partial(self._broken, uplink))
        stopped = amount_of(max(0.0, self._stopped_until - asyncio.get_running_loop().time()))
        process = f"{socket.gethostname()}:{os.getpid()}"
        link.send(encode([Hello(VERSION, process, self._origin, stopped, self._name, self._remote)]))
        return uplink

    def _accepted(self, uplink: _Uplink) -> None:
        """Use a host that has accepted this process."""
        if uplink is self._uplink:  # its own host, which is in use already
            return
        if self._stopped_until > uplink.stopped_until + SAME:
            self._drop(uplink)  # the greeting of the next link names the stop
            return
        self._stop_patience()
        self._met_host, self._reason, self._error = True, None, None
        uplink.failed = False
        if self._uplink is not None:
            _log.warning("the shared quota of %s is available again", self._origin)
            self._uplink.link.close()
            self._broken(self._uplink)
        self._use(uplink)

    def _use(self, uplink: _Uplink) -> None:
        """Send a host what it has to know, and from now on all messages."""
        self._uplink = uplink
        now = asyncio.get_running_loop().time()
        sessions = {joined.session for joined in self._joined.values()}
        first: list[FromParticipant] = [*self._joined.values(), *self._permits.greeting(sessions, now)]
        for number, request in self._requests.items():
            if request.message.session in sessions:
                first.append(request.acquire(number, now))
        for frame in frames_of(first):
            uplink.link.send(frame)

    def _drop(self, uplink: _Uplink) -> None:
        """Break a link."""
        uplink.link.close()
        uplink.failed = True
        self._broken(uplink)

    def _broken(self, uplink: _Uplink) -> None:
        """Keep what is under way for the next host; the last one ended its permits."""
        uplink.ended.set()
        if uplink is self._uplink:
            self._uplink = None
            self._outbox.clear()
            self._permits.broken()

    # --- without a host ---------------------------------------------------------------------

    def _expect(self, seconds: float) -> None:
        """Wait so long for a host, at most."""
        loop = asyncio.get_running_loop()
        if self._patience is None or self._patience.when() > loop.time() + seconds:
            self._stop_patience()
            self._patience = loop.call_later(seconds, self._give_up)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _unreachable(self, error: Exception) -> None:
        """Note why no host was reached; a mistake in the settings does not end by itself."""
        if not isinstance(error, ShareUnavailableError | ConfigurationError):
            error = ShareUnavailableError(f"the carrier failed: {type(error).__name__}: {error}")
        self._reason = error
        if isinstance(error, ConfigurationError):
            self._give_up()

    def _give_up(self) -> None:
        """Host the quota for this process, or fail all requests.

        The attempts to connect continue. What never worked is a mistake in the settings, and fails.
        """
        self._stop_patience()
        if self._uplink is not None:  # its own host
            return
        reason = self._reason or ShareUnavailableError(
            "no process hosts the shared quota: the attempts to reach or start a host did not end in time."
            " Try again in a moment"
        )
        never = isinstance(reason, ConfigurationError) and not self._met_host
        if self._on_unavailable == "degrade" and not never:
            self._error = None
            self._host_alone(reason)
            return
        self._error = reason
        requests, self._requests = self._requests, {}
        for request in requests.values():
            if not request.permit.done():
                request.permit.set_exception(_copy(reason))

    def _host_alone(self, reason: ShareUnavailableError | ConfigurationError) -> None:
        """Use a host of its own, which has the last share of this process as its limit."""
        _log.warning(
            "the shared quota of %s is unavailable, so this process sends %s: %s",
            self._origin,
            "one request at a time, and two a second at most"
            if self._share is TRICKLE
            else "by its last share",
            reason,
        )
        from chainapi.share.host import Host  # only now: a process beside a host needs no rules

        near, far = linked_pair()
        Host().serve(far)
        uplink = self._greet(near, own=True)
        limiting = next(self._numbers)  # session that brings the limit; it stays when the session leaves
        near.send(encode([Join(limiting, limits=(rate_of(self._share),)), Leave(limiting)]))
        self._use(uplink)


def _copy(error: ShareUnavailableError | ConfigurationError) -> ShareUnavailableError | ConfigurationError:
    """Return an error for one call: a walk adds its position."""
    return type(error)(str(error))


def _share(shown: QuotaSnapshot, processes: int) -> Limit:
    """Return the announced limit, divided by the processes that share it.

    Without one, others may send as much as this process: then it is a trickle.
    """
    if shown.limit is None or shown.window is None:
        return TRICKLE
    return Limit(max(1.0, shown.limit / processes), shown.window, units=not shown.counts_requests)


def _join(number: int, member: Member) -> Join:
    """Return the settings of a session as a message."""
    settings, most = member.settings, member.most_in_flight
    return Join(
        number,
        tag=member.tag,
        rate=None if member.given is None else rate_of(member.given),
        max_in_flight=None if most is None else min(most, HIGHEST),
        limits=tuple(rate_of(limit) for limit in member.limits),
        probe=settings.probe,
        max_stop=None if settings.max_stop == inf else amount_of(settings.max_stop),
        timeout=amount_of(member.timeout),
    )


def rate_of(limit: Limit | AsyncLimiter) -> Rate:
    """Return a limit of the user as messages have it.

    Raises:
        ConfigurationError: it is an AsyncLimiter, which processes cannot share.

    """
    if not isinstance(limit, Limit):
        raise ConfigurationError(
            "rate= must be a Limit beside share=: an AsyncLimiter belongs to one event loop of one process"
        )
    return amount_of(limit.amount), amount_of(limit.per), limit.units, limit.plan


def _left(until: float, now: float) -> float | None:
    return None if until == inf else amount_of(max(0.0, until - now))
