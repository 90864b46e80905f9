"""Responses: bodies up to a cap, decompressed; names of headers in lower case."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDictProxy

from chainapi._http.message import Response
from chainapi._http.transport.faults import TransportFault
from chainapi.errors import ResponseTooLargeError

__all__ = ["Responses"]

_GZIP = b"\x1f\x8b"  # how each gzip stream begins, and no JSON does


class Responses:
    """Responses of what aiohttp parsed, with bodies up to a cap.

    A few bytes can decompress to gigabytes.

    Args:
        max_body: bytes that a body may have, decompressed.

    """

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._watched = WeakSet[object]()  # protocols of connections

    async def read(
        self,
        status: int,
        headers: CIMultiDictProxy[str],
        content: aiohttp.StreamReader,
        connection: Connection | None,
    ) -> Response:
        """Return the response when its body has arrived, as most have.

        The caller closes the connection after an error. `connection` is None once aiohttp has released it.
        """
        arrived = content.is_eof() and content.total_bytes <= self._max_body
        body = content.read_nowait() if arrived else await self._read_pieces(content, connection)
        return Response(status, _folded(headers), self._unpacked(body) if body.startswith(_GZIP) else body)

    async def _read_pieces(self, content: aiohttp.StreamReader, connection: Connection | None) -> bytes:
        """Read a body as it arrives, up to the cap."""
        pieces: list[bytes] = []
        size = 0
        with self._watch(content, connection) as lost:
            while piece := await _next_piece(content, lost):
                pieces.append(piece)
                size += len(piece)
                if size > self._max_body:
                    raise self._too_large()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @contextmanager
    def _watch(
        self, content: aiohttp.StreamReader, connection: Connection | None
    ) -> Iterator[asyncio.Future[None] | None]:
        """End the body when its connection is lost; yield the future of that loss.

        After a bad chunk aiohttp closes the connection and never ends the body: the read would never return.
        """
        protocol = None if connection is None else connection.protocol
        if protocol is None or content.is_eof():  # the body has arrived
            yield None
            return

        def end(_: object) -> None:
            if not content.is_eof() and content.exception() is None:
                content.set_exception(aiohttp.ClientPayloadError())

        lost = protocol.closed
        if lost is None:  # the connection was lost before
            end(None)
            yield None
            return
        if protocol not in self._watched:
            self._watched.add(protocol)
            lost.add_done_callback(_retrieve)
        lost.add_done_callback(end)
        try:
            yield lost
        finally:
            lost.remove_done_callback(end)

    def _unpacked(self, body: bytes) -> bytes:
        """Decompress a body that begins as gzip although no header names that encoding."""
        stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            unpacked = stream.decompress(body, self._max_body + 1)
        except zlib.error:
            return body  # the decoder raises the error
        if len(unpacked) > self._max_body:
            raise self._too_large()
        if not stream.eof or stream.unused_data.startswith(_GZIP):  # more was sent, or is still to come
            raise aiohttp.ClientPayloadError
        return unpacked

    def _too_large(self) -> TransportFault:
        return TransportFault(
            ResponseTooLargeError(
                f"the body is larger than max_body={self._max_body} bytes, decompressed: request smaller"
                " pages, or give a larger max_body= to AiohttpTransport"
            )
        )


async def _next_piece(content: aiohttp.StreamReader, lost: asyncio.Future[None] | None) -> bytes:
    """Return the bytes of a body that have arrived; empty at its end."""
    try:
        return await content.readany()
    except RuntimeError:  # the connection is closing: the body ends when that is done
        if lost is None:
            raise aiohttp.ClientPayloadError from None
    await asyncio.wait((lost,))
    return await content.readany()


def _retrieve(lost: asyncio.Future[None]) -> None:
    """Retrieve the exception of a lost connection, so that asyncio does not log it."""
    if not lost.cancelled():
        lost.exception()


def _folded(headers: CIMultiDictProxy[str]) -> Mapping[str, str]:
    """Return the headers with lower-case names; repeated ones are joined."""
    # Of a repeated name, multidict lists each value, but not in all versions each key.
    folded = dict(zip(map(str.lower, headers.keys()), headers.values(), strict=False))
    if len(folded) == len(headers):
        return folded
    return {name: ", ".join(headers.getall(name)) for name in folded}
