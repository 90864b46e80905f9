"""Prefetch: pages fetched ahead of the reader, up to a given number.

They are fetched one after the other.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from chainapi._api.source import ListSource
from chainapi._paging.walk import Answer, Fetched, PageToken, Walk

__all__ = ["Prefetcher"]


def _token_after(outcome: Answer) -> PageToken | None:
    return outcome.token if isinstance(outcome, Fetched) else None


class Prefetcher:
    """Prefetcher of up to `source.prefetch` pages for the stream `owner`.

    These pages are ready, or on their way. Each page is a task that ends by itself; all of them are cancelled
    when the owner is dropped. Nothing here holds on to the owner.
    """

    def __init__(self, owner: object, source: ListSource, walk: Walk) -> None:
        self._source = source
        self._walk = walk
        self._loop = asyncio.get_running_loop()
        self._tasks: deque[asyncio.Task[Answer]] = deque()
        self._token: PageToken | None = None  # of the page that the first of them fetches
        self._rows = 0.0  # wanted beyond the open page
        self._owner = weakref.ref(owner, self._dropped)

    def start(self, token: PageToken | None, *, rows: float) -> None:
        """Fetch the page of `token` and those after it until `rows` rows are ready."""
        self._rows = rows
        if self._tasks and self._token != token:
            self.cancel()  # the page before them could not be taken, and came again
        if not self._tasks:
            self._token = token
            self._spawn(token)
        elif (last := self._tasks[-1]).done():
            self._spawn_after(last)

    def holds(self, token: PageToken | None) -> bool:
        """Return whether the page of `token` is ready or on its way."""
        return token is not None and bool(self._tasks) and self._token == token

    async def take(self) -> Answer:
        """Wait for the first page, or the error in its place.

        A caller that is cancelled leaves it there. None if it was dropped meanwhile.
        """
        task = self._tasks[0]
        await asyncio.wait((task,))
        if not self._tasks or self._tasks[0] is not task:
            return None
        self._tasks.popleft()
        outcome = task.result()
        self._token = _token_after(outcome)
        return outcome

    def cancel(self) -> None:
        """Drop all pages; what is on its way is cancelled."""
        while self._tasks:
            self._tasks.pop().cancel()

    def _spawn(self, token: PageToken | None) -> None:
        outcomes = [task.result() for task in self._tasks]
        ready = sum(len(one.page.rows) for one in outcomes if isinstance(one, Fetched))
        if token is None or ready >= self._rows:
            return
        fetch = self._walk.fetch(token)
        if self._loop.time() >= fetch.not_after:
            return
        task = self._loop.create_task(self._source.fetch(fetch))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - its loop may be left
        self._tasks.append(task)
        task.add_done_callback(self._spawn_after)

    def _spawn_after(self, task: asyncio.Task[Answer]) -> None:
        """Fetch the page after the last one, while there is room for it."""
        if task.cancelled() or not self._tasks or self._tasks[-1] is not task:
            return
        if len(self._tasks) < self._source.prefetch:
            self._spawn(_token_after(task.result()))

    def _dropped(self, _: object) -> None:
        # The garbage collector may call this in any thread, and after the loop was closed.
        if self._tasks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.cancel)
