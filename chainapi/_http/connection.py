"""Connection of one session: its event loop, its gates, and the calls under way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar
from weakref import WeakValueDictionary

from attrs import define, field
from msgspec.structs import replace

from chainapi._config import Unconfigured
from chainapi._http.call import CallRunner, Retries
from chainapi._http.options import Attempt, Call, CallOptions
from chainapi._http.service import Service
from chainapi._http.timeouts import Timeouts
from chainapi._http.transport import Transport
from chainapi._limits.gates import Gates
from chainapi._limits.queue import WaitingLimit
from chainapi.errors import ConfigurationError, SessionClosedError

if TYPE_CHECKING:
    from chainapi._http.reuse import ResponseReuse
    from chainapi._limits.view import QuotaSnapshot

__all__ = ["Connection"]

R = TypeVar("R")


@define(eq=False, repr=False)
class Connection:
    """Services, gates and calls of one session, in the event loop of its first use.

    Attributes:
        services: "metrics" and "data"; one without an address or a key is `Unconfigured`.
        transport: sends the requests.
        owned: whether the transport is closed with the session; a user's transport stays open.
        retries: budget and jitter of the retries of all calls.
        gates: source of the gates.
        on_expired: what a walk does when its page token has died.
        closed: whether the session is closed.

    """

    services: Mapping[str, Service | Unconfigured]
    transport: Transport
    owned: bool
    retries: Retries
    gates: Gates
    on_expired: Literal["restart", "raise"]
    closed: bool = field(default=False, init=False)
    _limits: WeakValueDictionary[Hashable, WaitingLimit] = field(
        factory=WeakValueDictionary[Hashable, WaitingLimit], init=False
    )
    _process: int = field(factory=lambda: os.getpid(), init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _timeouts: Timeouts | None = field(default=None, init=False)  # of the calls under way
    _reuse: ResponseReuse | None = field(default=None, init=False)  # made when it is used first

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Session cannot be pickled or copied: make one where it is used")

    @property
    def configured(self) -> list[Service]:
        """The services that have an address, and a key if they need one."""
        return [service for service in self.services.values() if isinstance(service, Service)]

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Event loop that the session belongs to; None before its first use."""
        return self._loop

    def describe(self) -> str:
        """Return the addresses of the services, and whether the session is closed."""
        addresses = ", ".join(f"{service.name}={service.endpoint.base_url}" for service in self.configured)
        return f"{addresses or 'without a service'}{' closed' if self.closed else ''}"

    def service(self, name: str) -> Service:
        """Return a service by its name.

        Raises:
            ConfigurationError: it is not configured; the message names the argument and the variable.

        """
        service = self.services[name]
        if isinstance(service, Unconfigured):
            raise ConfigurationError(service.reason)
        return service

    def snapshot(self, service: Service) -> QuotaSnapshot:
        """Return the state of the quota of a service; inside a running event loop.

        Raises:
            ConfigurationError: the session was made before a fork.

        """
        self._refuse_fork()
        if self._loop is None:
            self._join(asyncio.get_running_loop())
        return service.snapshot()

    def quotas(self) -> Iterator[tuple[str, str, QuotaSnapshot]]:
        """Yield name, origin and quota of each service, while the session is in use."""
        if self._loop is not None and not self.closed:
            for service in self.configured:
                yield service.name, service.endpoint.origin, service.snapshot()

    def expect(self, timeout: float) -> None:
        """Prepare for requests that may stay without a response for `timeout` seconds."""
        for service in self.configured:
            service.member.timeout = max(service.member.timeout, timeout)

    def counted(self, options: CallOptions, outer: WaitingLimit | None) -> CallOptions:
        """Return the options with the waiting limit of the equal views that are in use.

        A web backend makes a view for each request: their calls are counted together. `outer` is the limit of
        the view from which the view is made.
        """
        limit = options.waiting_limit
        if limit is None:
            return options
        identity = limit.most, outer, options.waits, options.tag, options.coalesce, options.cache
        return replace(options, waiting_limit=self._limits.setdefault(identity, limit))

    def clock(self) -> float:
        """Return the time of the running loop in seconds."""
        return asyncio.get_running_loop().time()

    def call(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float | None = None
    ) -> Coroutine[Any, Any, tuple[R, Attempt]]:
        """Return the response of a call: to its own request, or to one that it shares.

        It is decoded, with the attempt that it belongs to. The deadline of the call counts from `began`
        on, a time of the loop; None counts from now.

        Raises:
            SessionClosedError: the session is closed, or was closed meanwhile.
            ChainAPIError: any other of chainapi's errors.

        """
        began = self.clock() if began is None else began
        if not call.options.shares or call.query.method != "GET":
            return self._run(service, call, decode, began)
        self.enter()
        if self._reuse is None:
            from chainapi._http.reuse import ResponseReuse, name_of  # most sessions reuse no response

            through = name_of(self.transport)
            self._reuse = ResponseReuse(self._run, through)
        return self._reuse.call(service, call, decode, began)

    def _run(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float
    ) -> Coroutine[Any, Any, tuple[R, Attempt]]:
        """Send the request of a call, with its retries."""
        self.enter()
        assert self._timeouts is not None  # noqa: S101 - set with the loop
        runner = CallRunner(service, call, decode, self.retries, self._timeouts, began)
        return runner.run_observed() if service.events.emit else runner.run()

    def enter(self) -> asyncio.AbstractEventLoop:
        """Join the running event loop at the first use, and return it.

        Raises:
            SessionClosedError: the session is closed.
            ConfigurationError: the session belongs to another event loop, or was made before a fork.

        """
        loop = asyncio.get_running_loop()
        if loop is self._loop and not self.closed and os.getpid() == self._process:
            return loop  # as for nearly every call
        self._refuse_closed()
        self._refuse_fork()
        if self._loop is None:
            self._join(loop)
        elif self._loop is not loop:
            raise ConfigurationError(
                "this session belongs to another event loop: make a Session for each loop, and so for each"
                " asyncio.run()"
            )
        return loop

    async def aclose(self) -> None:
        """End the calls under way, leave the gates, and close the session's transport.

        A transport that the user passed stays open.

        Raises:
            ConfigurationError: the session belongs to another event loop, which still runs, or was made
                before a fork.

        """
        if self.closed:
            return
        loop = self.enter() if self._loop is None or not self._loop.is_closed() else None
        self.closed = True
        async with AsyncExitStack() as ends:  # each end comes also if the one before it was cancelled
            if self.owned:
                ends.push_async_callback(self.transport.aclose)
            if loop is None:
                return
            self._leave(loop, ends)
            if self._timeouts is not None:
                self._timeouts.close()
            if self._reuse is not None:
                await self._reuse.aclose()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise SessionClosedError("the session is closed: make a new one")

    def _refuse_fork(self) -> None:
        """Refuse a forked child: sockets and shared quotas belong to its parent.

        Raises:
            ConfigurationError: this process is not the one that made the session.

        """
        if os.getpid() != self._process:
            raise ConfigurationError(
                "this session was made before a fork, in the parent of this process: make a Session in each"
                " worker, such as in the lifespan of the application"
            )

    def _join(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to a loop, and use its gates."""
        self._loop, self._timeouts = loop, Timeouts(loop)
        for service in self.configured:
            service.join(self.gates.open(loop, service.endpoint))

    def _leave(self, loop: asyncio.AbstractEventLoop, ends: AsyncExitStack) -> None:
        """Leave the gates, and release them at the end.

        The gates of the loop keep what they learned.
        """
        for service in self.configured:
            ends.push_async_callback(self.gates.close, loop, service.endpoint, service.gate)
            service.leave()
