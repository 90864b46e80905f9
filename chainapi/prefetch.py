"""Pages fetched before they are asked for, one after the other, never more than a given number."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable

from attrs import frozen

from chainapi.calls import Sent
from chainapi.core.paging import PageToken
from chainapi.errors import ChainAPIError
from chainapi.models.decode import DecodedPage

__all__ = ["Ahead", "Fetched"]


@frozen(eq=False, repr=False)
class Fetched:
    """A page, and when its request was sent."""

    page: DecodedPage
    sent: Sent

    @property
    def token(self) -> PageToken | None:
        """The token to the page after this one."""
        value = self.page.next_page_token
        return None if value is None else PageToken(value, self.sent.at, self.sent.wall)


def _token_after(outcome: Fetched | ChainAPIError) -> PageToken | None:
    return outcome.token if isinstance(outcome, Fetched) else None


class Ahead:
    """Keeps up to `depth` pages ready, or on their way, for the stream `owner`.

    Each page is a task that ends by itself; all of them are cancelled when the owner is dropped. Nothing here
    holds on to the owner.
    """

    def __init__(
        self,
        owner: object,
        depth: int,
        fetch: Callable[[PageToken], Awaitable[tuple[DecodedPage, Sent]]],
        alive: Callable[[PageToken], bool],
    ) -> None:
        self._depth = depth
        self._fetch = fetch
        self._alive = alive
        self._loop = asyncio.get_running_loop()
        self._tasks: deque[asyncio.Task[Fetched | ChainAPIError]] = deque()
        self._token: PageToken | None = None  # of the page that the first of them fetches
        self._rows = 0.0  # wanted beyond the open page
        self._owner = weakref.ref(owner, self._dropped)

    def start(self, token: PageToken | None, *, rows: float) -> None:
        """Begin with the page of `token`, unless that is on its way; go on while less than `rows` came."""
        self._rows = rows
        if self._tasks and self._token != token:
            self.cancel()  # the page before them could not be taken, and came again
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

        None where all pages were dropped meanwhile.
        """
        task = self._tasks[0]
        await asyncio.wait((task,))
        if not self._tasks:
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
        if token is None or ready >= self._rows or not self._alive(token):
            return
        task = self._loop.create_task(self._fetched(token))
        self._tasks.append(task)
        task.add_done_callback(self._spawn_after)

    def _spawn_after(self, task: asyncio.Task[Fetched | ChainAPIError]) -> None:
        """Go on after the last page, while fewer are ready than may be."""
        if task.cancelled() or not self._tasks or self._tasks[-1] is not task:
            return
        if len(self._tasks) < self._depth:
            self._spawn(_token_after(task.result()))

    async def _fetched(self, token: PageToken) -> Fetched | ChainAPIError:
        try:
            return Fetched(*await self._fetch(token))
        except ChainAPIError as error:
            return error

    def _dropped(self, _: object) -> None:
        # The garbage collector may call this in any thread, and after the loop was closed.
        if self._tasks and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.cancel)
