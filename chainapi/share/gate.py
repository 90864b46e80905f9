"""Gate of a session whose quota is shared: a participant's end of the protocol.

It has the methods of `chainapi.client.limiter.Gate` that a session uses, and sends them as messages to the
host. When the link breaks, it reports the requests under way to the next host, and repeats what waits: no
request is sent without a permit, and none is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from attrs import define, evolve
from msgspec.structs import replace

from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.limit import Limit
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.limits.waiting import WaitingLimit
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
    Rate,
    Refused,
    State,
    Stopped,
    Unsent,
    Waiting,
    Welcome,
    amount_of,
)
from chainapi.errors import ConfigurationError, SessionClosedError, ShareUnavailableError
from chainapi.share.fallback import Fallback
from chainapi.share.link import Carrier
from chainapi.share.permits import Permits, SharedPermit
from chainapi.share.request import Request
from chainapi.share.uplink import Uplink

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["OnUnavailable", "SharedGate", "rate_of"]

OnUnavailable: TypeAlias = Literal["degrade", "fail"]
LONGEST = 1024  # characters of a route in a message
HIGHEST = 2**63 - 1  # of a whole number in a message
TRICKLE = Limit(1, per=0.5)  # of a process alone that knows no limit: one in flight, two a second at most

_log = logging.getLogger("chainapi.share")


@define(eq=False, repr=False)
class _Joined:
    """Session that uses the gate, with its number and its settings as a message."""

    member: Member
    message: Join
    timeout: float  # seconds, as last sent


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
        self._origin = origin
        self._on_unavailable = on_unavailable
        self._uplink = Uplink(name, carrier, self)
        self._remote = carrier.remote(name, secret)
        self._joined: dict[Member, _Joined] = {}
        self._numbers = count()
        self._requests: dict[int, Request] = {}  # sent to the host, or to be sent to the next one
        self._permits = Permits(self._uplink, self._stop_alone)
        self._breaks = 0  # stops, and broken links: what was granted before may not leave after
        self._stopped_until = -inf
        self._shown = QuotaSnapshot(0.0)
        self._processes = 1
        self._met_host = False  # ever
        self._error: ShareUnavailableError | ConfigurationError | None = None
        self._fallback: Fallback | None = None
        self._process = os.getpid()

    # --- what a session uses ----------------------------------------------------------------

    async def acquire(
        self,
        route: str = "",
        *,
        cost: float | None = None,
        priority: int = 0,
        max_wait: float | None = None,
        deadline: float = inf,
        again: bool = False,
        member: Member,
        tag: str | None = None,
        limit: WaitingLimit | None = None,
    ) -> SharedPermit:
        """Wait for a turn, and return the permit to send now; see `Gate.acquire`.

        Raises:
            QuotaWaitError, QueueFullError, APITimeoutError: as `Gate.acquire` documents.
            ShareUnavailableError: there is no host, and the gate does not degrade.

        """
        self._check_process()
        now = asyncio.get_running_loop().time()
        waits_until = inf if max_wait is None else now + max_wait
        message = Acquire(
            0,  # each attempt has a number of its own
            self._number(member),
            route[:LONGEST],
            None if cost is None else amount_of(cost),
            max(-HIGHEST, min(priority, HIGHEST)),
            again=again,
            tag=tag,
            limit=None if limit is None else limit.number,
            most_waiting=None if limit is None else min(int(limit.most), HIGHEST),
        )
        request = Request(message, member, waits_until, deadline, max_wait, limit)
        while True:
            self._number(member)
            if self._error is not None:
                raise type(self._error)(str(self._error))  # one for each call: a walk adds its position
            fallback = self._fallback
            permit = await (self._attempt(request) if fallback is None else self._alone(fallback, request))
            if permit is not None:
                return permit

    def acquire_now(self, route: str, *, cost: float | None, member: Member, tag: str | None = None) -> None:
        """Return None: another process grants the permits."""

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        known = self._shown.costs.get(route)
        return Costs().price(route, prior) if known is None else known

    def snapshot(self, member: Member) -> QuotaSnapshot:
        """Return the state of the quota as the host last reported it."""
        if self._fallback is not None:
            return self._fallback.gate.snapshot(member)
        now = asyncio.get_running_loop().time()
        return evolve(self._shown, time=now, unix_time=member.now())

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        number, settings = next(self._numbers), member.settings
        most = member.most_in_flight
        joined = self._joined[member] = _Joined(
            member,
            Join(
                number,
                tag=member.tag,
                rate=None if member.given is None else rate_of(member.given),
                max_in_flight=None if most is None else min(most, HIGHEST),
                limits=tuple(rate_of(limit) for limit in member.limits),
                probe=settings.probe,
                max_stop=None if settings.max_stop == inf else amount_of(settings.max_stop),
                timeout=amount_of(member.timeout),
            ),
            member.timeout,
        )
        if self._fallback is not None:
            self._fallback.gate.join(member)
        self._uplink.send(joined.message)

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        if self._fallback is not None:
            self._fallback.gate.leave(member)
        if (joined := self._joined.pop(member, None)) is not None:
            self._uplink.send(Leave(joined.message.session))

    @property
    def in_use(self) -> bool:
        """Whether a session uses the gate."""
        return bool(self._joined)

    async def aclose(self) -> None:
        """End this process's part in the quota, after its last session left."""
        await self._uplink.aclose()

    # --- requests ---------------------------------------------------------------------------

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ConfigurationError(
                "this session was opened before os.fork(), and the connection to the processes that share its"
                " quota belongs to the parent: make a Session in each process, after the fork"
            )

    def _number(self, member: Member) -> int:
        joined = self._joined.get(member)
        if joined is None:
            raise SessionClosedError("the session is closed: make a new one")
        if member.timeout > joined.timeout:  # of a view that was made since then
            self._join_again(joined)
        return joined.message.session

    def _join_again(self, joined: _Joined) -> None:
        """Report to the host that requests of a session may take longer."""
        joined.timeout = joined.member.timeout
        joined.message = replace(joined.message, timeout=amount_of(joined.timeout))
        self._uplink.send(joined.message)

    async def _attempt(self, request: Request) -> SharedPermit | None:
        """Return a permit of the host; None to repeat the request."""
        request.attempt(next(self._numbers))
        permit = await self._wait(request)
        if permit is None:
            return None
        if permit.breaks == self._breaks:
            permit.sent = asyncio.get_running_loop().time()
            return permit
        permit.unsent()  # a stop, or another host, came before the request could leave
        request.repeat_first()
        return None

    async def _alone(self, fallback: Fallback, request: Request) -> SharedPermit | None:
        """Return a permit of the gate of this process alone; None to repeat the request."""
        permit = await fallback.acquire(request)
        if permit is None:
            return None
        if fallback is self._fallback:
            return self._permits.add_alone(permit, request.message)
        permit.unsent()  # a host is back, and does not know of it
        return None

    async def _wait(self, request: Request) -> SharedPermit | None:
        """Wait until the host grants a request; None to repeat it."""
        self._requests[request.message.number] = request
        if self._uplink.up:
            self._uplink.send(request.acquire(asyncio.get_running_loop().time()))
        else:
            self._uplink.open()
        try:
            return await request.wait()
        except asyncio.CancelledError:
            self._cancelled(request)
            raise

    def _cancelled(self, request: Request) -> None:
        """Withdraw a cancelled request, or return the permit that it has."""
        number = request.message.number
        if self._requests.pop(number, None) is not None:
            self._uplink.send(Cancel(number))
        elif (permit := request.granted) is not None:
            permit.unsent()

    # --- messages of the host ---------------------------------------------------------------

    def receive(self, message: FromHost) -> None:
        """Handle a message of the host."""
        match message:
            case Granted():
                self._granted(message)
            case Refused():
                self._refused(message)
            case messages.Verdict():
                self._permits.verdict(message)
            case Stopped():
                self._stop(message.seconds)
            case Waiting():
                self._report_wait(message)
            case State():
                self._read_state(message)
            case Welcome() | Denied():  # for the uplink
                pass
            case _:
                assert_never(message)

    def _granted(self, message: Granted) -> None:
        """Wake the request of a grant."""
        request = self._requests.pop(message.number, None)
        if request is None or not request.waits:
            self._uplink.send(Unsent(message.permit))  # it was cancelled
        else:
            request.grant(self._permits.add(message.permit, request.message, self._breaks))

    def _refused(self, message: Refused) -> None:
        request = self._requests.pop(message.number, None)
        if request is not None:
            request.refuse(message, asyncio.get_running_loop().time())

    def _stop(self, seconds: float) -> None:
        """Hold back what was granted and did not leave yet."""
        until = asyncio.get_running_loop().time() + seconds
        if seconds and until > self._stopped_until:
            self._stopped_until = until
            self._breaks += 1

    def _stop_alone(self, seconds: float) -> None:
        """Stop although no host can be informed, which would bound the stop."""
        wanted = (joined.member.settings.max_stop for joined in self._joined.values())
        seconds = min(seconds, max(wanted, default=inf))
        self._stop(seconds)
        if self._fallback is not None:
            self._fallback.gate.hold_back(seconds)

    def _report_wait(self, message: Waiting) -> None:
        now = asyncio.get_running_loop().time()
        for joined in self._joined.values():
            if joined.message.session == message.session:
                joined.member.report_wait(message.reason, now, now + message.seconds, message.waiting)

    def _read_state(self, state: State) -> None:
        try:
            self._shown = QuotaSnapshot.from_json(state.shown, asyncio.get_running_loop().time())
        except ValueError as error:
            raise FrameError(str(error)) from None
        self._permits.informed()
        self._processes = max(1, state.processes)
        self._stop(state.stopped)

    # --- the host comes and goes ------------------------------------------------------------

    def greeting(self) -> Sequence[FromParticipant]:
        """Return the first messages to a host: sessions, permits, waiting requests."""
        now = asyncio.get_running_loop().time()
        if self._fallback is not None:
            self._stop(self._fallback.gate.stopped_for)
        stopped = max(0.0, self._stopped_until - now)
        first: list[FromParticipant] = [
            Hello(VERSION, _process(), self._origin, amount_of(stopped), self._uplink.name, self._remote)
        ]
        first += [joined.message for joined in self._joined.values()]
        known = {joined.message.session for joined in self._joined.values()}
        first += self._permits.greeting(known, now)
        waiting = [request for request in self._requests.values() if request.message.session in known]
        return first + [request.acquire(now) for request in waiting]

    def connected(self) -> None:
        """Use the host from now on, instead of the fallback."""
        self._error, self._met_host = None, True
        if self._fallback is not None:
            _log.warning("the shared quota of %s is available again", self._origin)
            self._fallback.end()
            self._fallback = None

    def broken(self) -> None:
        """Keep what is under way for the next host; the last one ended its permits."""
        self._breaks += 1
        self._permits.broken()

    def unavailable(self, error: ShareUnavailableError | ConfigurationError) -> None:
        """Send by the last known share from now on, or fail all requests.

        What never worked is a mistake in the settings, and would not end.
        """
        never = isinstance(error, ConfigurationError) and not self._met_host
        if self._on_unavailable == "fail" or never:
            self._error = error
        elif self._fallback is None:
            self._degrade(error)
        requests, self._requests = self._requests, {}
        for number, request in requests.items():
            self._uplink.send(Cancel(number))  # to a host that does not respond
            request.grant(None)

    def _degrade(self, error: ShareUnavailableError | ConfigurationError) -> None:
        share = self._last_share()
        _log.warning(
            "the shared quota of %s is unavailable, so this process sends %s: %s",
            self._origin,
            "one request at a time, and two a second at most" if share is TRICKLE else "by its last share",
            error,
        )
        gate = Gate(limits=[share])
        for joined in self._joined.values():
            gate.join(joined.member)
        gate.hold_back(max(0.0, self._stopped_until - asyncio.get_running_loop().time()))
        self._fallback = Fallback(gate)

    def _last_share(self) -> Limit:
        """Return the announced limit, divided by the processes that shared it.

        Without one, others may send as much as this process: then it is a trickle.
        """
        shown = self._shown
        if shown.limit is None or shown.window is None:
            return TRICKLE
        amount = max(1.0, shown.limit / self._processes)
        return Limit(amount, shown.window, units=not shown.requests)


def _process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def rate_of(limit: Limit | AsyncLimiter) -> Rate:
    """Return a limit of the user as messages have it.

    Raises:
        ConfigurationError: it is an AsyncLimiter, which processes cannot share.

    """
    if not isinstance(limit, Limit):
        raise ConfigurationError(
            "rate= must be a Limit beside share=: an AsyncLimiter belongs to one event loop of one process"
        )
    return amount_of(limit.amount), amount_of(limit.per), limit.units
