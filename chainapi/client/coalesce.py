"""Coalescer: identical requests in flight are one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from attrs import define, field

from chainapi.errors import ChainAPIError, DeadlineExceededError, QuotaWaitError

__all__ = ["Caller", "Coalescer"]

T = TypeVar("T")
Late: TypeAlias = DeadlineExceededError | QuotaWaitError


class Caller(Protocol):
    """Call that needs the response to a request."""

    @property
    def identity(self) -> Hashable:
        """Identity of the request."""
        ...

    @property
    def deadline(self) -> float:
        """Time of the loop at which the call must end; inf for none."""
        ...

    def may_succeed(self, error: Late) -> bool:
        """Return whether the call has more time than one that ended with the error."""
        ...

    def overdue(self) -> DeadlineExceededError:
        """Return the error of the call at its deadline."""
        ...


@define(eq=False, repr=False)
class _Shared(Generic[T]):
    """Request in flight, its deadline, and the number of its callers."""

    task: asyncio.Task[T]
    deadline: float
    callers: int = 0

    def seconds_for(self, deadline: float) -> float | None:
        """Return the seconds for which a call may wait; None if the request ends no later."""
        if deadline >= self.deadline:
            return None
        return max(0.0, deadline - asyncio.get_running_loop().time())


@define(eq=False, repr=False)
class Coalescer(Generic[T]):
    """Requests in flight by their identity, each sent once for all of its callers."""

    _shared: dict[Hashable, _Shared[T]] = field(factory=dict[Hashable, _Shared[T]], init=False)
    _tasks: set[asyncio.Task[T]] = field(factory=set["asyncio.Task[T]"], init=False)

    async def run(self, caller: Caller, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the identical request in flight; send it if needed.

        A caller that joined later has more time than the first one: if the request ends with the deadline or
        the `max_wait` of its first caller, the others send it again, those that may succeed. One that began
        earlier, and read a store meanwhile, ends at its own deadline. A cancelled caller leaves the request
        to the others; the last one cancels it.

        Raises:
            ChainAPIError: the error of the request; each caller has its own copy.

        """
        identity, deadline, lost = caller.identity, caller.deadline, False
        while True:
            shared, joined = self._join(identity, deadline, send)
            try:
                await asyncio.wait([shared.task], timeout=shared.seconds_for(deadline))
            finally:
                self._leave(identity, shared)
            if not shared.task.done():
                raise caller.overdue()
            if shared.task.cancelled() and not lost:
                lost = True  # by somebody else, such as the end of the session: once more, and not for ever
                continue
            error = shared.task.exception()
            if error is None:
                return shared.task.result()
            if not (joined and isinstance(error, Late) and caller.may_succeed(error)):
                raise _own(error) from error.__cause__

    def start(self, caller: Caller, send: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Send a request that nobody waits for, unless an identical one is in flight."""
        self._join(caller.identity, caller.deadline, send)

    async def aclose(self) -> None:
        """Wait until the requests have ended; the connection ended them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _join(
        self, identity: Hashable, deadline: float, send: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[_Shared[T], bool]:
        """Return the identical request in flight, and whether another caller began it."""
        shared = self._shared.get(identity)
        joined = shared is not None
        if shared is None:
            task = asyncio.get_running_loop().create_task(send())
            shared = self._shared[identity] = _Shared(task, deadline)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._end(identity, shared))
            task.add_done_callback(_retrieve)
        shared.callers += 1
        return shared, joined

    def _leave(self, identity: Hashable, shared: _Shared[T]) -> None:
        shared.callers -= 1
        if not shared.callers and not shared.task.done():
            self._end(identity, shared)
            shared.task.cancel()

    def _end(self, identity: Hashable, shared: _Shared[T]) -> None:
        """Let later callers send a new request."""
        if self._shared.get(identity) is shared:
            del self._shared[identity]


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a request for which no caller waits any more."""
    if not task.cancelled():
        task.exception()


def _own(error: BaseException) -> BaseException:
    """Return a copy of an error: a walk adds its position to its own."""
    return copy.copy(error) if isinstance(error, ChainAPIError) else error
