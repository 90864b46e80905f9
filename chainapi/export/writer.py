"""Group commit: while a thread commits some pages, the next ones gather, and are committed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from attrs import define, field

from chainapi.export.journal import State
from chainapi.export.records import Batch

__all__ = ["MOST_PENDING", "Commits"]

MOST_PENDING = 64  # pages that wait to be committed; beyond, whoever fetches them waits


@define(eq=False)
class Commits:
    """The way of pages into the state; nothing that was put in is lost when its caller is cancelled.

    Attributes:
        state: where they are kept.
        thread: the one thread that the state belongs to.
        committed: called with what was committed, and how many rows of it were new.
        failed: called when nothing can be committed any more.

    """

    state: State
    thread: Executor
    committed: Callable[[Sequence[Batch], int], None]
    failed: Callable[[], None]
    _pending: list[Batch] = field(factory=list[Batch], init=False)
    _running: asyncio.Future[int] | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def put(self, batch: Batch) -> None:
        """Take in what a page adds."""
        self._pending.append(batch)
        self._go_on()

    async def room(self) -> None:
        """Wait until not too many pages are pending. Raises what committing met."""
        await self._until(lambda: len(self._pending) < MOST_PENDING)

    async def flush(self) -> None:
        """Wait until all that was put in is committed. Raises what committing met."""
        await self._until(lambda: self._running is None)

    def _go_on(self) -> None:
        if self._running is not None or not self._pending or self._failure is not None:
            return
        batches, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self.thread, self.state.commit, batches)
        self._running.add_done_callback(lambda running: self._done(batches, running))

    def _done(self, batches: Sequence[Batch], running: asyncio.Future[int]) -> None:
        self._running = None
        self._changed.set()
        try:
            self.committed(batches, running.result())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            self._failure = error
            self.failed()
        else:
            self._go_on()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while self._failure is None and not holds():
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure
