"""Limits on the size of bodies: for decoding in steps, and for memory."""

from __future__ import annotations

from chainapi.errors import DecodeError

__all__ = ["LARGE", "refuse_dense", "refuse_many"]

# A body of more bytes is decoded in steps: a decoder holds the GIL, so a thread would not help.
LARGE = 262_144
# Bytes for each object, list and row that a large body has on average: each takes several hundred in memory.
DENSEST = 14


def refuse_dense(body: bytes) -> None:
    """Refuse a large body that would take many times its size in memory.

    Raises:
        DecodeError: it consists of little but objects and lists.

    """
    if len(body) > LARGE:
        refuse_many("objects and lists", body.count(b"{") + body.count(b"["), body)


def refuse_many(what: str, count: int, body: bytes) -> None:
    """Refuse a large body with less than 14 bytes for each object, list or row.

    Raises:
        DecodeError: they have.

    """
    if len(body) > LARGE and count * DENSEST > len(body):
        raise DecodeError(
            f"{count} {what} in {len(body)} bytes would take too much memory: in a response of more than "
            f"{LARGE} bytes each has at least {DENSEST}; request smaller pages"
        )
