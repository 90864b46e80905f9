"""Gate of one process alone, for as long as no process hosts the shared quota."""

from __future__ import annotations

import asyncio
from math import inf

from attrs import define, field

from chainapi.client.limiter import Gate
from chainapi.client.permit import Permit
from chainapi.share.request import Request, limit_of

__all__ = ["Fallback"]


@define(eq=False, repr=False)
class Fallback:
    """Gate that has the last share of this process as its limit.

    Its requests wait in tasks of their own, so that `end` can send them to a host that is back.
    """

    gate: Gate
    _tasks: set[asyncio.Task[Permit]] = field(factory=set["asyncio.Task[Permit]"], init=False)

    async def acquire(self, request: Request) -> Permit | None:
        """Wait for the turn of a request, and return its permit; None if `end` came first.

        Raises:
            QuotaWaitError, APITimeoutError: as `Gate.acquire` documents.

        """
        loop, message = asyncio.get_running_loop(), request.message
        max_wait = None if request.waits_until == inf else max(0.0, request.waits_until - loop.time())
        task = loop.create_task(
            self.gate.acquire(
                message.route,
                cost=message.cost,
                priority=message.priority,
                max_wait=max_wait,
                deadline=request.deadline,
                again=message.again,
                member=request.member,
                tag=message.tag,
                limit=limit_of(message),
            )
        )
        self._tasks.add(task)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            task.add_done_callback(_give_back)
            raise
        finally:
            self._tasks.discard(task)
        return None if task.cancelled() else task.result()

    def end(self) -> None:
        """Let the requests that wait return without a permit."""
        for task in self._tasks:
            task.cancel()


def _give_back(task: asyncio.Task[Permit]) -> None:
    """Return the permit of a request that was cancelled when it had one."""
    if not task.cancelled() and task.exception() is None:
        task.result().unsent()
