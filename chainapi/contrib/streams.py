"""Streaming bodies of rows for any web framework: NDJSON and server-sent events.

A body fetches its first piece before the response begins, so that an error by then becomes a status. Later
errors become a record of the stream, which has the checkpoint to resume from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Self, TypeAlias

from attrs import evolve

from chainapi.client.pages import Pages
from chainapi.contrib.problems import Problem, problem_of
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError
from chainapi.models.exact_json import encode_json

__all__ = ["Body", "NDJSONBody", "SSEBody"]

Batch: TypeAlias = tuple[list[Any], Checkpoint | None]
Rows: TypeAlias = AsyncIterable[Any]

HEARTBEAT = 5.0  # seconds


class Body:
    """Body of a response that streams rows while pages arrive.

    Await `begin` before the response, iterate the body, and await `aclose` in any case: then nothing more is
    sent upstream.

    Args:
        stream: `Pages`, whose rows arrive page by page, each once; or any asynchronous iterable of rows.
        place: the request of the client, for the log.

    """

    media_type: ClassVar[str]
    headers: ClassVar[Mapping[str, str]] = {"cache-control": "no-store", "x-accel-buffering": "no"}

    def __init__(self, stream: Rows, place: str = "") -> None:
        self.place = place
        self._stream = stream
        self._chunks = self._guarded()
        self._first: bytes | None = None

    async def begin(self) -> Self:
        """Fetch the first piece.

        Raises:
            ChainAPIError: any of chainapi's errors; no byte was sent, so it can become a status.

        """
        self._first = await anext(self._chunks, b"")
        return self

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if self._first is None:
            await self.begin()
        if self._first:
            yield self._first
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        """End the stream: its requests under way are cancelled, and nothing more is sent."""
        await self._chunks.aclose()
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()

    async def _guarded(self) -> AsyncGenerator[bytes, None]:
        """Give the pieces; an error after the first becomes a record."""
        begun = False
        async with aclosing(self._pieces()) as pieces:
            try:
                async for piece in pieces:
                    yield piece
                    begun = True
            except ChainAPIError as error:
                if not begun:
                    raise
                problem = evolve(problem_of(error, place=self.place), checkpoint=_position(error))
            else:
                return
        yield self._broken(problem)

    async def _batches(self) -> AsyncGenerator[Batch, None]:
        """Give lists of rows as they arrive, with the checkpoint behind each."""
        stream = self._stream
        if isinstance(stream, Pages):
            async with aclosing(stream.batches()) as batches:
                async for rows in batches:
                    yield rows, stream.checkpoint
        else:
            async for row in stream:
                yield [row], None

    def _pieces(self) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    def _broken(self, problem: Problem) -> bytes:
        raise NotImplementedError


class NDJSONBody(Body):
    """Body with a row as JSON in each line; the last line of a broken walk has the only field ``error``."""

    media_type = "application/x-ndjson"

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._batches()) as batches:
            async for rows, _ in batches:
                yield b"".join(encode_json(row) + b"\n" for row in rows)

    def _broken(self, problem: Problem) -> bytes:
        return encode_json({"error": problem.to_dict()}) + b"\n"


class SSEBody(Body):
    """Body of server-sent events.

    - ``rows``: a list of rows; its id is the checkpoint behind them
    - ``waiting``: the seconds of a wait for quota
    - ``problem``: the problem details of an error, after which the stream ends
    - ``end``: the list has ended

    Args:
        stream: see `Body`.
        place: see `Body`.
        heartbeat: seconds of silence after which a comment or a ``waiting`` event is sent.

    """

    media_type = "text/event-stream"

    def __init__(self, stream: Rows, place: str = "", heartbeat: float = HEARTBEAT) -> None:
        super().__init__(stream, place)
        self._heartbeat = heartbeat

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(_with_beats(self._batches(), self._heartbeat, self._beat)) as batches:
            async for batch in batches:
                if isinstance(batch, bytes):
                    yield batch
                else:
                    rows, checkpoint = batch
                    yield _event("rows", rows, checkpoint)
        stream = self._stream
        yield _event("end", {}, stream.checkpoint if isinstance(stream, Pages) else None)

    def _beat(self) -> bytes:
        stream = self._stream
        wait = stream.quota_wait if isinstance(stream, Pages) else 0.0
        return _event("waiting", {"seconds": round(wait, 1)}) if wait else b": waiting\n\n"

    def _broken(self, problem: Problem) -> bytes:
        wait = problem.retry_after
        retry = b"" if wait is None else b"retry: %d\n" % int(wait * 1_000)
        return retry + _event("problem", problem.to_dict())


def _position(error: ChainAPIError) -> str | None:
    return None if error.checkpoint is None else error.checkpoint.dumps()


def _event(name: str, data: Any, checkpoint: Checkpoint | None = None) -> bytes:
    """Return a server-sent event with JSON data, which has no line end in it."""
    position = b"" if checkpoint is None else b"id: %s\n" % checkpoint.dumps().encode()
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), position, encode_json(data))


async def _with_beats(
    batches: AsyncGenerator[Batch, None], every: float, beat: Callable[[], bytes]
) -> AsyncGenerator[Batch | bytes, None]:
    """Give batches, and the result of `beat` after each `every` seconds without one.

    One task reads all batches. It reads none before the one before it was taken.
    """
    handover: asyncio.Queue[Batch] = asyncio.Queue(1)
    pump = asyncio.create_task(_pump(batches, handover))
    try:
        while True:
            ready = asyncio.create_task(handover.get())
            try:
                while not (await asyncio.wait((ready, pump), timeout=every, return_when="FIRST_COMPLETED"))[
                    0
                ]:
                    yield beat()
                if not ready.done() and handover.empty():
                    await pump  # it has ended, perhaps with an error
                    return
                yield await ready
            finally:
                ready.cancel()
            handover.task_done()
    finally:
        pump.cancel()
        await asyncio.wait((pump,))
        if not pump.cancelled():
            pump.exception()  # nobody else may have looked at it
        await batches.aclose()


async def _pump(batches: AsyncGenerator[Batch, None], handover: asyncio.Queue[Batch]) -> None:
    async for batch in batches:
        await handover.put(batch)
        await handover.join()
