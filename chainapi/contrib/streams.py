"""Streaming bodies of rows for any web framework: NDJSON and server-sent events.

A body fetches its first piece before the response begins, so that an error by then becomes a status. Later
errors become a record of the stream, which has the checkpoint to resume from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Self, TypeAlias

from attrs import evolve

from chainapi._background import end
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.follow import Follow
from chainapi._paging.pages import Pages
from chainapi.contrib.problems import Problem, problem_of, upstream_error
from chainapi.core.arguments import seconds_of, whole_number
from chainapi.errors import ChainAPIError, ConfigurationError, RateLimitedError
from chainapi.json import dumps

__all__ = ["HEARTBEAT", "Body", "NDJSONBody", "SSEBody"]

Rows: TypeAlias = tuple[list[Any], Checkpoint | None]  # that are ready, and the position after them

HEARTBEAT = 5.0  # seconds
_TICK = 1.0  # seconds after which a wait for quota is reported; a shorter one is over before it is read


class Body:
    """Body of a response that streams rows while pages arrive.

    ``async with`` fetches the first piece; its end closes the stream. Begin the response inside the block,
    with the pieces that iteration gives. A framework that takes an asynchronous iterable closes the stream by
    itself: await `begin`, and pass it the body.

    Args:
        stream: `Pages`, whose rows arrive page by page, each once; a followed list; or any asynchronous
            iterable of rows.
        place: the request of the client, for the log, such as ``GET /tps``.
        limit: rows at most; of `Pages` that were resumed, the rows before count too.

    Attributes:
        media_type: media type of the response.
        headers: further headers of the response.

    Raises:
        ConfigurationError: `stream` is no stream.
        ArgumentError: `limit` is not a whole number above 0.

    """

    media_type: ClassVar[str]
    headers: ClassVar[Mapping[str, str]] = {"cache-control": "no-store", "x-accel-buffering": "no"}

    def __init__(self, stream: AsyncIterable[Any], place: str = "", limit: int | None = None) -> None:
        self._stream = _checked(stream)
        self.place = place
        self._limit = None if limit is None else whole_number("limit", limit)
        self._pieces = self._guarded()
        self._first: bytes | None = None
        self._closing = asyncio.Lock()

    @property
    def rows_left(self) -> int | None:
        """Number of rows that may still be sent; None if it is unlimited."""
        if self._limit is None:
            return None
        return max(0, self._limit - (self._stream.checkpoint.rows if isinstance(self._stream, Pages) else 0))

    @property
    def quota_wait(self) -> float:
        """Seconds of the wait for quota under way; 0 without one."""
        return self._stream.quota_wait if isinstance(self._stream, Pages) else 0.0

    async def begin(self) -> None:
        """Fetch the first piece; close the stream if that fails.

        Raises:
            ChainAPIError: any of chainapi's errors; no byte was sent, so it can become a status.

        """
        try:
            self._first = await anext(self._pieces, b"")
        except BaseException:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            if self._first is None:
                await self.begin()
            if self._first:
                yield self._first
            async for piece in self._pieces:
                yield piece
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End the stream: cancel its requests, and send nothing more upstream."""
        async with self._closing:  # the loop closes the body's iterator too, if a reader left it
            await self._pieces.aclose()
            close = getattr(self._stream, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _guarded(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces; an error after the first becomes the last piece."""
        begun = False
        async with aclosing(self._encoded()) as pieces:
            try:
                async for piece in pieces:
                    yield piece
                    begun = True
            except Exception as fault:
                error = upstream_error(fault)
                if error is None or not begun:
                    raise
            else:
                return
        yield self._broken(self._problem(error))

    def _problem(self, error: ChainAPIError) -> Problem:
        """Return the problem details of a stream that broke, with its checkpoint."""
        problem = problem_of(error, place=self.place)
        wait = problem.retry_after
        if isinstance(error, RateLimitedError) and wait is None:
            wait = self.quota_wait or None
        checkpoint = None if error.checkpoint is None else error.checkpoint.dumps()
        return evolve(problem, retry_after=wait, checkpoint=checkpoint)

    async def _batches(self) -> AsyncGenerator[Rows, None]:
        """Yield lists of rows as they arrive, with the checkpoint after each."""
        stream, left = self._stream, self.rows_left
        if left == 0:
            return
        if isinstance(stream, Pages):
            async with aclosing(stream.batches(limit=left)) as batches:
                async for rows in batches:
                    yield rows, stream.checkpoint
            return
        async for row in stream:
            yield [row], self._position()
            if left and (left := left - 1) == 0:
                return

    def _position(self) -> Checkpoint | None:
        return self._stream.checkpoint if isinstance(self._stream, Pages | Follow) else None

    def _encoded(self) -> AsyncGenerator[bytes, None]:
        """Yield the rows as bytes."""
        raise NotImplementedError

    def _broken(self, problem: Problem) -> bytes:
        """Return the record of a stream that broke."""
        raise NotImplementedError


class NDJSONBody(Body):
    """Body with a row as JSON in each line.

    The last line of a stream that broke is ``{"error": {...}}``, with its problem details.
    """

    media_type = "application/x-ndjson"

    async def _encoded(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._batches()) as batches:
            async for rows, _ in batches:
                yield b"".join(dumps(row) + b"\n" for row in rows)

    def _broken(self, problem: Problem) -> bytes:
        return dumps({"error": problem.to_dict()}) + b"\n"


class SSEBody(Body):
    """Body of server-sent events.

    - ``rows``: a list of rows; the id of the event is the checkpoint after them
    - ``waiting``: ``{"seconds": 41.5}``, the rest of a wait for quota
    - ``problem``: problem details of an error, after which the stream ends
    - ``end``: ``{}``, the end of the list

    Args:
        stream: see `Body`.
        place: see `Body`.
        limit: see `Body`.
        heartbeat: seconds of silence after which a comment, or ``waiting`` again, is sent.

    Raises:
        ArgumentError: `limit` is not a whole number, or `heartbeat` not a number, above 0.

    """

    media_type = "text/event-stream"

    def __init__(
        self,
        stream: AsyncIterable[Any],
        place: str = "",
        limit: int | None = None,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        super().__init__(stream, place, limit)
        self._heartbeat = seconds_of("heartbeat", heartbeat)
        self._sent_at = 0.0  # time of the loop at which an event was sent
        self._reported = False  # whether that was a wait

    async def _encoded(self) -> AsyncGenerator[bytes, None]:
        self._sent()
        if isinstance(self._stream, Follow):  # its first row may be a day away
            yield b":\n\n"
        async with aclosing(self._batches()) as batches:
            tick = min(_TICK, self._heartbeat)
            async with aclosing(_with_ticks(batches, tick, self._beat)) as events:
                async for event in events:
                    if isinstance(event, bytes):
                        yield event
                    else:
                        rows, checkpoint = event
                        yield _event("rows", rows, checkpoint)
                        self._sent()
        yield _event("end", {}, self._position())

    def _broken(self, problem: Problem) -> bytes:
        # A browser connects again after these milliseconds.
        wait = b"" if problem.retry_after is None else b"retry: %d\n" % (problem.retry_after * 1_000)
        return wait + _event("problem", problem.to_dict())

    def _beat(self) -> bytes:
        """Return the event of a wait, or a comment; nothing after a short silence."""
        wait = self.quota_wait if self.quota_wait >= _TICK else 0.0
        silence = asyncio.get_running_loop().time() - self._sent_at
        if silence < self._heartbeat and (not wait or self._reported):
            return b""
        self._sent(reported=wait > 0)
        return _event("waiting", {"seconds": round(wait, 1)}) if wait else b":\n\n"

    def _sent(self, *, reported: bool = False) -> None:
        self._sent_at, self._reported = asyncio.get_running_loop().time(), reported


def _checked(stream: Any) -> AsyncIterable[Any]:
    given = type(stream).__name__
    if isinstance(stream, Coroutine):  # of collect(), without an await: no other warning is needed
        stream.close()
        given = "a coroutine"
    elif isinstance(stream, AsyncIterable):
        return stream
    raise ConfigurationError(
        f"a body takes a stream, not {given}: pass the stream itself, without .collect()"
    )


def _event(name: str, data: Any, checkpoint: Checkpoint | None = None) -> bytes:
    """Return an event; JSON, and so its data and its id, has no line end in it."""
    position = b"" if checkpoint is None else b"id: %s\n" % checkpoint.dumps().encode()
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), position, dumps(data))


async def _with_ticks(
    batches: AsyncGenerator[Rows, None], every: float, tick: Callable[[], bytes]
) -> AsyncGenerator[Rows | bytes, None]:
    """Yield batches, and the result of `tick` after each `every` seconds without one."""
    queue = asyncio.Queue[Rows | None]()

    async def read() -> None:  # in one task, each batch after the one before it was taken
        async for batch in batches:
            queue.put_nowait(batch)
            await queue.join()

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(every):
                    batch = await queue.get()
            except TimeoutError:
                if event := tick():
                    yield event
                continue
            if batch is None:
                await reader  # raises its error
                return
            yield batch
            queue.task_done()
    finally:
        await end(reader)
