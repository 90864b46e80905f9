"""Gate of a session whose quota other processes share: a member's end of the protocol.

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
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attrs import define, evolve, frozen

from chainapi.client.limiter import Gate, Permit
from chainapi.client.member import Member
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.headers import RateLimitInfo
from chainapi.core.limits.limit import Limit
from chainapi.core.limits.scope import Verdict
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.share import messages
from chainapi.core.share.leases import Leases
from chainapi.core.share.messages import (
    HOLDING,
    VERSION,
    Acquire,
    Answered,
    Cancel,
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
    Waiting,
    Watch,
    limits_of,
)
from chainapi.errors import APITimeoutError, ConfigurationError, ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Carrier, Serve
from chainapi.share.uplink import Uplink

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["OnUnavailable", "SharedGate", "SharedPermit"]

OnUnavailable: TypeAlias = Literal["degrade", "fail"]
FIRST_STATE = 0.5  # seconds for which the first response waits for the state of the quota
IDLE_LEASE = 0.1  # seconds after which an unused lease goes back

_log = logging.getLogger("chainapi.share")


@define(eq=False, repr=False)
class SharedPermit:
    """Permit to send one request, from the host; exactly one of its methods ends it, as in `Permit`.

    Attributes:
        number: names it to its host.
        request: what it was granted for.
        leased: whether it was granted in advance.
        breaks: stops and broken links that the gate had met when it was granted.
        sent: time of the loop at which the request was sent.

    """

    number: int
    request: Acquire
    leased: bool
    breaks: int
    sent: float | None  # None: it did not leave the gate yet
    _gate: SharedGate | None

    def drop(self) -> None:
        """End the permit without a report: its host ended it."""
        self._gate = None

    async def answered(self, status: int, info: RateLimitInfo) -> Verdict:
        """Report a response with `status`, and `info` read from its headers; see `Permit.answered`."""
        if (gate := self._settle()) is None:
            return Verdict.PASSED
        return await gate.answered(self, status, info)

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (gate := self._settle()) is not None:
            gate.lost(self)

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if (gate := self._settle()) is not None:
            gate.unsent(self)

    def _settle(self) -> SharedGate | None:
        gate, self._gate = self._gate, None
        return gate


@frozen(eq=False, repr=False)
class _Joined:
    """Session that uses the gate, with its number and its settings as a message."""

    member: Member
    message: Join


@define(eq=False, repr=False)
class _Request:
    """Request that waits for its permit; None as the result repeats the request."""

    message: Acquire
    member: Member
    waits_until: float
    deadline: float
    max_wait: float
    future: asyncio.Future[SharedPermit | None]

    def acquire(self, now: float) -> Acquire:
        """Return the message, with the seconds that are left by now."""
        asked = self.message
        return Acquire(
            asked.number,
            asked.member,
            asked.route,
            asked.cost,
            asked.priority,
            None if self.waits_until == inf else max(0.0, self.waits_until - now),
            None if self.deadline == inf else max(0.0, self.deadline - now),
            asked.again,
            asked.tag,
        )


class SharedGate:
    """Gate of one quota in one event loop, shared with other processes.

    Args:
        name: name of the quota.
        origin: scheme, host and port of its service, for people.
        carrier: connects the processes.
        on_unavailable: "degrade" sends by the last known share of this process while there is no host, "fail"
            raises ShareUnavailableError.
        timeout: seconds after which the sessions give up a request.

    """

    def __init__(
        self, name: str, origin: str, carrier: Carrier, on_unavailable: OnUnavailable, timeout: float = 30.0
    ) -> None:
        self._origin = origin
        self._on_unavailable = on_unavailable
        self._timeout = timeout
        self._uplink = Uplink(name, carrier, self, self._make_host)
        self._store = partial(carrier.store, name)
        self._joined: dict[Member, _Joined] = {}
        self._numbers = count()
        self._requests: dict[int, _Request] = {}
        self._permits: dict[SharedPermit, None] = {}  # of requests under way
        self._unreported: list[tuple[SharedPermit, FromMember]] = []  # ended without a host
        self._verdicts: dict[int, asyncio.Future[Verdict]] = {}
        self._leases = Leases(IDLE_LEASE)
        self._lease_timer: asyncio.TimerHandle | None = None
        self._breaks = 0
        self._stopped_until = -inf
        self._shown = QuotaSnapshot(0.0)
        self._state_came = asyncio.Event()
        self._responded = False  # whether any response arrived
        self._processes = 1
        self._error: ShareUnavailableError | ConfigurationError | None = None
        self._fallback: Gate | None = None
        self._by_fallback: set[asyncio.Task[Permit]] = set()

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
    ) -> SharedPermit | Permit:
        """Wait for this request's turn, and return the permit to send it now; see `Gate.acquire`.

        Raises:
            QuotaWaitError, APITimeoutError: as `Gate.acquire` documents.
            ShareUnavailableError: there is no host, and the gate does not degrade.

        """
        loop = asyncio.get_running_loop()
        waits_until = inf if max_wait is None else loop.time() + max_wait
        number = self._joined[member].message.member
        while True:
            if self._error is not None:
                raise self._error
            if self._fallback is not None:
                permit = await self._acquire_alone(
                    self._fallback,
                    route,
                    cost=cost,
                    priority=priority,
                    max_wait=None if max_wait is None else max(0.0, waits_until - loop.time()),
                    deadline=deadline,
                    again=again,
                    member=member,
                    tag=tag,
                )
                if permit is not None:
                    return permit
                continue
            request = Acquire(next(self._numbers), number, route, cost, priority, max_wait, None, again, tag)
            shared = self._leased(request)
            if shared is None:
                future: asyncio.Future[SharedPermit | None] = loop.create_future()
                waiting = _Request(request, member, waits_until, deadline, max_wait or 0.0, future)
                shared = await self._wait(waiting)
            if shared is None:
                continue
            if shared.breaks == self._breaks:
                shared.sent = loop.time()
                return shared
            shared.unsent()  # a stop, or another host, came before the request could leave
            again = True

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        known = self._shown.costs.get(route)
        return Costs().price(route, prior) if known is None else known

    def snapshot(self, member: Member) -> QuotaSnapshot:
        """Return the state of the quota as the host last reported it."""
        if self._fallback is not None:
            return self._fallback.snapshot(member)
        now = asyncio.get_running_loop().time()
        return evolve(self._shown, time=now, unix_time=member.now())

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        if self._fallback is not None:
            self._fallback.join(member)
        number, settings = next(self._numbers), member.settings
        joined = self._joined[member] = _Joined(
            member,
            Join(
                number,
                tag=member.tag,
                rate=None if member.given is None else _rate(member.given),
                max_in_flight=member.most_in_flight,
                limits=tuple(_rate(limit) for limit in member.limits),
                probe=settings.probe,
                max_stop=None if settings.max_stop == inf else settings.max_stop,
                timeout=self._timeout,
            ),
        )
        self._uplink.send(joined.message)

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        if self._fallback is not None:
            self._fallback.leave(member)
        if (joined := self._joined.pop(member, None)) is not None:
            self._uplink.send(Leave(joined.message.member))

    async def aclose(self) -> None:
        """End this process's part if no session uses the gate any more."""
        if self._joined:
            return
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._return_leases()
        await self._uplink.aclose()

    # --- requests that wait -----------------------------------------------------------------

    def _leased(self, request: Acquire) -> SharedPermit | None:
        """Return a permit granted in advance, unless others of this process wait before this request."""
        if not self._leases or self._requests or request.again:
            return None
        now = asyncio.get_running_loop().time()
        number = self._leases.take(_kind(request), now)
        return None if number is None else self._permit(number, request, leased=True)

    def _permit(self, number: int, request: Acquire, *, leased: bool) -> SharedPermit:
        permit = SharedPermit(number, request, leased, self._breaks, None, self)
        self._permits[permit] = None
        return permit

    async def _wait(self, request: _Request) -> SharedPermit | None:
        """Wait until the host grants a request; None to repeat it."""
        number = request.message.number
        self._requests[number] = request
        if self._uplink.up:
            self._uplink.send(request.acquire(asyncio.get_running_loop().time()))
        else:
            self._uplink.open()
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._requests.pop(number, None) is not None:
                self._uplink.send(Cancel(number))
            elif request.future.done() and not request.future.cancelled():
                granted = request.future.result()
                if granted is not None:
                    granted.unsent()
            raise

    # --- ends of permits --------------------------------------------------------------------

    async def answered(self, permit: SharedPermit, status: int, info: RateLimitInfo) -> Verdict:
        """Record a response, and return its meaning for the quota."""
        loop = asyncio.get_running_loop()
        elapsed = loop.time() - permit.sent if permit.leased and permit.sent is not None else None
        message = Answered(permit.number, status, elapsed, limits_of(info))
        refused = status == 429
        if not self._end(permit, message, later=not refused and bool(self._leases)):
            return Verdict.QUOTA if refused else Verdict.PASSED
        if not refused:
            await self._first_state()
            return Verdict.PASSED
        verdict: asyncio.Future[Verdict] = loop.create_future()
        self._verdicts[permit.number] = verdict
        try:
            return await verdict
        finally:
            self._verdicts.pop(permit.number, None)

    async def _first_state(self) -> None:
        """Wait for the state after the first response: without it `snapshot` would be empty."""
        if self._responded:
            return
        self._responded = True
        self._state_came.clear()
        self._uplink.send(Watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_STATE):
                await self._state_came.wait()

    def lost(self, permit: SharedPermit) -> None:
        """Record that no response will arrive."""
        self._end(permit, Lost(permit.number))

    def unsent(self, permit: SharedPermit) -> None:
        """Take a grant back; without a host it ended already."""
        self._permits.pop(permit, None)
        self._uplink.send(Unsent((permit.number,)))

    def _end(self, permit: SharedPermit, message: FromMember, *, later: bool = False) -> bool:
        """Report the end of a permit; False without a host: then the next one gets the report."""
        self._permits.pop(permit, None)
        if not self._uplink.up:
            self._unreported.append((permit, message))
            return False
        (self._uplink.send_later if later else self._uplink.send)(message)
        return True

    # --- messages of the host ---------------------------------------------------------------

    def receive(self, message: FromHost) -> None:
        """Handle a message of the host."""
        match message:
            case Granted():
                self._granted(message)
            case Refused():
                self._refused(message)
            case messages.Verdict():
                verdict = self._verdicts.get(message.permit)
                if verdict is not None and not verdict.done():
                    verdict.set_result(Verdict(message.verdict))
            case Recall():
                self._recall(message)
            case Waiting():
                self._report_wait(message)
            case State():
                self._read_state(message)
            case _:
                raise FrameError(f"unexpected message {type(message).__name__}")

    def _granted(self, message: Granted) -> None:
        """Wake the request of a grant, and keep the lease behind it."""
        request = self._requests.pop(message.number, None)
        first, *others = message.permits
        if request is None or request.future.done():
            self._uplink.send(Unsent(message.permits))
            return
        request.future.set_result(self._permit(first, request.message, leased=False))
        if others:
            now = asyncio.get_running_loop().time()
            self._leases.add(_kind(request.message), others, now)
            self._watch_leases()

    def _refused(self, message: Refused) -> None:
        request = self._requests.pop(message.number, None)
        if request is None or request.future.done():
            return
        if message.seconds is None:
            request.future.set_exception(APITimeoutError(message.reason))
            return
        now = asyncio.get_running_loop().time()
        left = request.deadline - now if request.deadline < request.waits_until else None
        request.future.set_exception(request.member.too_long(message.seconds, request.max_wait, left))

    def _recall(self, message: Recall) -> None:
        self._return_leases()
        self._stop(message.stopped)

    def _stop(self, seconds: float) -> None:
        """Hold back what was granted and did not leave yet."""
        until = asyncio.get_running_loop().time() + seconds
        if seconds and until > self._stopped_until:
            self._stopped_until = until
            self._breaks += 1

    def _report_wait(self, message: Waiting) -> None:
        now = asyncio.get_running_loop().time()
        for joined in self._joined.values():
            if joined.message.member == message.member:
                joined.member.report_wait(message.reason, now, now + message.seconds, message.waiting)

    def _read_state(self, state: State) -> None:
        now = asyncio.get_running_loop().time()
        self._processes = max(1, state.processes)
        self._shown = QuotaSnapshot.from_json(state.shown, now)
        self._state_came.set()
        self._stop(state.stopped)

    # --- leases -----------------------------------------------------------------------------

    def _watch_leases(self) -> None:
        if self._lease_timer is None:
            self._lease_timer = asyncio.get_running_loop().call_later(IDLE_LEASE, self._return_idle)

    def _return_idle(self) -> None:
        self._lease_timer = None
        self._return_leases(asyncio.get_running_loop().time())
        if self._leases:
            self._watch_leases()

    def _return_leases(self, now: float = inf) -> None:
        if unused := self._leases.unused(now):
            self._uplink.send(Unsent(unused))

    # --- the host comes and goes ------------------------------------------------------------

    def _make_host(self, memory: bytes, age: float) -> Serve:
        return Host(store=self._store).serve

    def greeting(self) -> Sequence[FromMember]:
        """Return the first messages to a host: the sessions, what is under way, and what waits."""
        now = asyncio.get_running_loop().time()
        stopped = max(0.0, self._stopped_until - now)
        first: list[FromMember] = [Hello(VERSION, _process(), self._origin, b"", 0.0, stopped)]
        first += [joined.message for joined in self._joined.values()]
        known = {joined.message.member for joined in self._joined.values()}
        for number, permit in enumerate(self._permits, HOLDING):
            if permit.request.member in known and permit.sent is not None:
                permit.number = number
                first.append(_holding(permit, now))
        unreported, self._unreported = self._unreported, []
        for number, (permit, message) in enumerate(unreported, HOLDING + len(self._permits)):
            if permit.request.member in known:
                permit.number = number
                first += [_holding(permit, now), _renumbered(message, number)]
        return first + [request.acquire(now) for request in self._requests.values()]

    def connected(self) -> None:
        """Use the host from now on, instead of the fallback."""
        self._error = None
        if self._fallback is not None:
            _log.warning("the shared quota of %s is available again", self._origin)
            self._fallback = None
            for task in self._by_fallback:
                task.cancel()

    def broken(self) -> None:
        """Keep what is under way for the next host; the last one ended all permits as lost."""
        self._state_came.set()  # nobody waits for a host that ended
        self._breaks += 1
        self._leases.unused()
        for permit in [permit for permit in self._permits if permit.sent is None]:
            del self._permits[permit]
            permit.drop()
        for verdict in self._verdicts.values():
            if not verdict.done():
                verdict.set_result(Verdict.QUOTA)

    def unavailable(self, error: ShareUnavailableError | ConfigurationError) -> None:
        """Send by the last known share from now on, or fail all requests."""
        if self._on_unavailable == "degrade" and isinstance(error, ShareUnavailableError):
            self._degrade(error)
        else:
            self._error = error
        for request in self._requests.values():
            if not request.future.done():
                if self._error is not None:
                    request.future.set_exception(self._error)
                else:
                    request.future.set_result(None)
        self._requests.clear()

    def _degrade(self, error: ShareUnavailableError) -> None:
        _log.warning(
            "the shared quota of %s is unavailable, so this process sends by its last share: %s",
            self._origin,
            error,
        )
        self._fallback = Gate(limits=self._last_share())
        for joined in self._joined.values():
            self._fallback.join(joined.member)
        self._fallback.hold_back(max(0.0, self._stopped_until - asyncio.get_running_loop().time()))

    def _last_share(self) -> list[Limit]:
        """Return the limit that the service announced, divided by the processes that shared it."""
        shown = self._shown
        if shown.limit is None or shown.window is None:
            return []
        amount = max(1.0, shown.limit / self._processes)
        return [Limit(amount, shown.window, units=bool(shown.costs))]

    async def _acquire_alone(self, gate: Gate, route: str, **options: Any) -> Permit | None:
        """Wait for a permit of the fallback; None if a host came back first."""
        task = asyncio.get_running_loop().create_task(gate.acquire(route, **options))
        self._by_fallback.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._fallback is gate or not task.cancelled() or _cancelling():
                task.cancel()
                raise
            return None
        finally:
            self._by_fallback.discard(task)


def _process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _cancelling() -> bool:
    """Return whether somebody cancelled the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _rate(limit: Limit | AsyncLimiter) -> Rate:
    if not isinstance(limit, Limit):
        raise ConfigurationError(
            "rate= has to be a Limit beside share=: an AsyncLimiter belongs to one event loop of one process"
        )
    return limit.amount, limit.per, limit.units


def _kind(request: Acquire) -> tuple[int, str, float | None, str | None]:
    """Return what requests have in common that may use one lease."""
    return request.member, request.route, request.cost, request.tag


def _holding(permit: SharedPermit, now: float) -> Holding:
    request = permit.request
    elapsed = 0.0 if permit.sent is None else now - permit.sent
    return Holding(permit.number, request.member, request.route, request.cost, elapsed, request.tag)


def _renumbered(message: FromMember, number: int) -> FromMember:
    return (
        Answered(number, message.status, None, message.limits)
        if isinstance(message, Answered)
        else Lost(number)
    )
