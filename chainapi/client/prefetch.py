"""Pages fetched before they are asked for, one after the other, never more than a given number."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen

from chainapi.core.call import GivenUp, SentAt
from chainapi.core.paging.states import PageToken
from chainapi.errors import ChainAPIError
from chainapi.models.codec import DecodedPage

__all__ = ["Fetched", "Prefetcher"]


@frozen(eq=False, repr=False)
class Fetched:
    """A page, and when its request was sent."""

    page: DecodedPage
    sent: SentAt

    @property
    def token(self) -> PageToken | None:
        """The token to the page after this one."""
        value = self.page.next_page_token
        return None if value is None else PageToken(value, self.sent.at, self.sent.wall)


def _token_after(outcome: Fetched | ChainAPIError | None) -> PageToken | None:
    return outcome.token if isinstance(outcome, Fetched) else None


class Prefetcher:
    """Keeps up to `depth` pages ready, or on their way, for the stream `owner`.

    Each page is a task that ends by itself; all of them are cancelled when the owner is dropped. Once the
    reader was cancelled nothing more is sent until somebody reads again: what is on the wire is kept, what
    waits for quota or for another attempt is given up. Nothing here holds on to the owner.
    """

    def __init__(
        self,
        owner: object,
        depth: int,
        fetch: Callable[[PageToken, Callable[[], bool]], Awaitable[tuple[DecodedPage, SentAt]]],
        alive: Callable[[PageToken], bool],
    ) -> None:
        self._depth = depth
        self._fetch = fetch
        self._alive = alive
        self._loop = asyncio.get_running_loop()
        self._tasks: deque[asyncio.Task[Fetched | ChainAPIError | None]] = deque()
        self._token: PageToken | None = None  # of the page that the first of them fetches
        self._rows = 0.0  # wanted beyond the open page
        self._reader: weakref.ref[asyncio.Task[Any]] | None = None  # while a page is on its way
        self._cancels = 0  # how often it had been cancelled when it read last
        self._resting = False
        self._owner = weakref.ref(owner, self._dropped)

    def start(self, token: PageToken | None, *, rows: float) -> None:
        """Begin with the page of `token`, unless that is on its way; go on while less than `rows` came."""
        self._rows = rows
        if self._tasks and self._token != token:
            self.cancel()  # the page before them could not be taken, and came again
        self._read()
        if not self._tasks:
            self._token = token
            self._spawn(token)
        elif (last := self._tasks[-1]).done():
            self._spawn_after(last)

    def holds(self, token: PageToken | None) -> bool:
        """Tell whether the page of `token` is here or on its way."""
        return token is not None and bool(self._tasks) and self._token == token

    async def take(self) -> Fetched | ChainAPIError | None:
        """Wait for the first page, or the error in its place; a caller that is cancelled leaves it there.

        None where it was dropped or given up meanwhile.
        """
        self._read()
        task = self._tasks[0]
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            self.rest()
            raise
        if not self._tasks or self._tasks[0] is not task:
            return None
        self._tasks.popleft()
        outcome = task.result()
        self._token = _token_after(outcome)
        return outcome

    def rest(self) -> None:
        """Send nothing more until somebody reads again."""
        self._resting = True

    def cancel(self) -> None:
        """Drop all pages; what is on its way is cancelled."""
        while self._tasks:
            self._tasks.pop().cancel()
        self._watch(None)

    def _read(self) -> None:
        """Take note of the task that reads."""
        self._resting = False
        self._watch(asyncio.current_task())

    def _watch(self, reader: asyncio.Task[Any] | None) -> None:
        """Hear of the end of a task; its errors would hold on to the owner, so it is not held itself."""
        if self._reader is not None and (before := self._reader()) is not None:
            before.remove_done_callback(self._ended)
        self._reader = None
        if reader is not None:
            reader.add_done_callback(self._ended)
            self._reader, self._cancels = weakref.ref(reader), reader.cancelling()

    def _ended(self, reader: asyncio.Task[Any]) -> None:
        if reader.cancelled():
            self.rest()

    def _wanted(self) -> bool:
        """Tell whether the reader, as far as is known, will come for what is fetched."""
        reader = None if self._reader is None else self._reader()
        if reader is not None and reader.cancelling() > self._cancels:
            self.rest()
        return not self._resting

    def _spawn(self, token: PageToken | None) -> None:
        outcomes = [task.result() for task in self._tasks]
        ready = sum(len(one.page.rows) for one in outcomes if isinstance(one, Fetched))
        if token is None or ready >= self._rows or not self._alive(token) or not self._wanted():
            self._watch(None)
            return
        task = self._loop.create_task(self._fetched(token))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - its loop may be left
        self._tasks.append(task)
        task.add_done_callback(self._spawn_after)

    def _spawn_after(self, task: asyncio.Task[Fetched | ChainAPIError | None]) -> None:
        """Go on after the last page, while fewer are ready than may be."""
        if task.cancelled() or not self._tasks or self._tasks[-1] is not task:
            return
        if task.result() is None:
            self._tasks.pop()
        elif len(self._tasks) < self._depth:
            self._spawn(_token_after(task.result()))
            return
        self._watch(None)

    async def _fetched(self, token: PageToken) -> Fetched | ChainAPIError | None:
        """Return the page, or the error in its place; None where it was given up."""
        try:
            return Fetched(*await self._fetch(token, self._wanted))
        except ChainAPIError as error:
            return error
        except GivenUp:
            return None

    def _dropped(self, _: object) -> None:
        # The garbage collector may call this in any thread, and after the loop was closed.
        if self._tasks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.cancel)
