"""Connection of one session: its event loop, its gates, and the calls under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from attrs import define, field

from chainapi.client.call import Call, Dispatcher, SentAt, Service
from chainapi.client.config import Unconfigured
from chainapi.client.emitter import Listener
from chainapi.client.gates import gate_of, used
from chainapi.client.limiter import Gate
from chainapi.client.transport import Transport
from chainapi.core.limits.quota import QuotaSnapshot
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.states import StateMachine
from chainapi.errors import APIConnectionError, ConfigurationError, SessionClosedError

__all__ = ["Connection"]

R = TypeVar("R")


@define(eq=False, repr=False)
class Connection:
    """Services, gates and calls of one session, in the event loop where it is first used.

    Attributes:
        services: "metrics" and "data"; one without an address or a key is `Unconfigured`.
        dispatcher: sends the requests.
        walk: returns a walk that begins at a checkpoint.
        transport: the user's transport, which stays open; None for one that is closed with the session.
        isolated: whether the session has gates of its own.

    """

    services: Mapping[str, Service | Unconfigured]
    dispatcher: Dispatcher
    walk: Callable[[Checkpoint], StateMachine]
    transport: Transport | None
    isolated: bool
    closed: bool = field(default=False, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _calls: set[asyncio.Timeout] = field(factory=set[asyncio.Timeout], init=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Session cannot be pickled or copied: make one where it is used")

    @property
    def emit(self) -> Listener:
        """The listener of events."""
        return self.dispatcher.emit

    @property
    def now(self) -> Callable[[], float]:
        """The wall clock, in Unix seconds."""
        return self.dispatcher.now

    @property
    def configured(self) -> list[Service]:
        """The services that have an address, and a key if they need one."""
        return [service for service in self.services.values() if isinstance(service, Service)]

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
        """Return the present quota of a service; inside a running event loop."""
        if self._loop is None:
            self._join(asyncio.get_running_loop())
        return service.share.snapshot()

    def clock(self) -> float:
        """Return the time of the running loop in seconds."""
        return asyncio.get_running_loop().time()

    async def call(self, ask: Call, decode: Callable[[bytes], R]) -> tuple[R, SentAt]:
        """Send one request, with all its retries, and return its decoded answer and when it was sent.

        Raises:
            SessionClosedError: the session is closed, or was closed meanwhile.
            ChainAPIError: any other of chainapi's errors.

        """
        self.enter()
        deadline = asyncio.timeout(None)  # no deadline but the closing of the session
        self._calls.add(deadline)
        try:
            async with deadline:
                return await self.dispatcher.call(ask, decode)
        except (TimeoutError, APIConnectionError):
            if not self.closed:
                raise
        finally:
            self._calls.discard(deadline)
        raise SessionClosedError(f"the session was closed during {ask.query.where}")

    def enter(self) -> None:
        """Join the running event loop at the first use.

        Raises:
            SessionClosedError: the session is closed.
            ConfigurationError: the session belongs to another event loop.

        """
        if self.closed:
            raise SessionClosedError("the session is closed: make a new one")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._join(loop)
        elif self._loop is not loop:
            raise ConfigurationError(
                "this session belongs to another event loop: make a Session for each loop, and so for each"
                " asyncio.run()"
            )

    async def aclose(self) -> None:
        """End the calls under way, leave the gates, and close a transport of the session's own.

        Raises:
            ConfigurationError: the session belongs to another event loop, which still runs.

        """
        if self.closed:
            return
        if self._loop is None or not self._loop.is_closed():
            self.enter()
            for deadline in tuple(self._calls):
                if not deadline.expired():
                    deadline.reschedule(self.clock())
            self._leave()
        self.closed = True
        if self.transport is None:
            await self.dispatcher.transport.aclose()

    def _join(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to a loop, and use its gates."""
        self._loop = loop
        alone = self.isolated or self.closed
        for service in self.configured:
            service.share.join(Gate() if alone else gate_of(loop, service.endpoint, self.transport))

    def _leave(self) -> None:
        """Release the gates; those of the loop keep what they learned."""
        for service in self.configured:
            service.share.leave()
            if not self.isolated and self._loop is not None:
                used(self._loop, service.endpoint, self.transport, service.share.gate)
