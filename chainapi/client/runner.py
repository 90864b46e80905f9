"""Runner: performs the commands of a walk, with a session's requests and events."""

from __future__ import annotations

from typing import assert_never

from chainapi.client.prefetch import Prefetcher
from chainapi.client.source import Source
from chainapi.client.threads import finish_in_thread
from chainapi.core.paging.walk import (
    Answer,
    Deliver,
    Discard,
    Fetch,
    Fetched,
    Offload,
    Report,
    Steps,
    Walk,
)
from chainapi.errors import ChainAPIError, PageTokenExpiredError, PagingError

__all__ = ["Runner"]


class Runner:
    """Runs a walk page by page, for one caller at a time."""

    def __init__(self, walk: Walk, source: Source) -> None:
        self._walk = walk
        self._source = source
        self._running = False
        self._ahead: Prefetcher | None = None
        self.closed = False

    async def advance(self) -> bool:
        """Open the next page; False at the end of the list, or after `close`.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        walk, source = self._walk, self._source
        if self.closed or walk.fetched_all:
            return False
        if self._running:
            raise self.refusal("this stream is being read already: only one reader at a time")
        self._running = True
        try:
            return await self._run(walk.advance(source.clock(), source.now(), reports=bool(source.emit)))
        except ChainAPIError as error:
            error.checkpoint = walk.checkpoint
            if walk.failed:
                self._discard()
            raise
        finally:
            self._running = False

    def rest(self) -> None:
        """Send nothing ahead until the next `advance`."""
        if self._ahead is not None:
            self._ahead.rest()

    def close(self) -> None:
        """Send nothing more, and cancel the requests for further pages."""
        self.closed = True
        self._discard()

    def refusal(self, message: str) -> PagingError:
        """Return an error with the checkpoint of the walk."""
        error = PagingError(message)
        error.checkpoint = self._walk.checkpoint
        return error

    async def _run(self, steps: Steps) -> bool:
        """Perform commands until a page is open; False if the runner is closed meanwhile."""
        answer: Answer = None
        cancelled = None
        while not self.closed:
            command = steps.send(answer)
            answer = None
            match command:
                case Fetch():
                    answer = await self._fetch(command)
                case Deliver():
                    self._fetch_ahead()
                    break
                case Offload(work=work):
                    # The work counts the rows of the page, so that it has to be opened in any case.
                    cancelled = await finish_in_thread(work)
                case Report(event=event):
                    self._source.emit(event)
                case Discard():
                    self._discard()
                case _:
                    assert_never(command)
        if cancelled is not None:
            raise cancelled
        return not self.closed

    async def _fetch(self, fetch: Fetch) -> Answer:
        """Return the page that was fetched ahead, or fetch it now; an error in its place."""
        ahead, source = self._ahead, self._source
        if ahead is not None and ahead.holds(fetch.token):
            return await ahead.take()
        if source.clock() >= fetch.not_after:
            return PageTokenExpiredError("the page token has reached its lifetime")
        try:
            page, sent = await source.fetch(fetch)
        except ChainAPIError as error:
            return error
        return Fetched(page, sent)

    def _fetch_ahead(self) -> None:
        """Prefetch the next pages unless the row limit will stop the reader first."""
        source, walk = self._source, self._walk
        if source.prefetch:
            if self._ahead is None:
                self._ahead = Prefetcher(self, source, walk)
            self._ahead.start(walk.token, rows=walk.rows_wanted)

    def _discard(self) -> None:
        """Cancel the requests for further pages."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
