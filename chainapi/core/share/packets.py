"""Packets between two processes over a broker that others can read and write.

Redis delivers what any client publishes, and forgets what nobody receives. So a packet has the term of the
host, the link, a number of its own, and a message authentication code (MAC) over all of them and the payload.
A receiver drops packets that are forged, replayed or of another term, and breaks the link if one is missing.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

__all__ = [
    "NONCE",
    "GapError",
    "Incoming",
    "Kind",
    "Outgoing",
    "Packet",
    "link_keys",
    "link_of",
    "open_memory",
    "open_packet",
    "quota_key",
    "seal",
    "seal_memory",
]

NONCE = 16  # bytes of the random number of a link, and of the answer to it
_MAC = 16  # bytes
_OF_MEMORY = b"chainapi memory"
_HEADER = Struct(f">BQ{NONCE}sQ")  # kind, term, link, number


class Kind(IntEnum):
    """Kinds of packets."""

    OPEN = 1  # from a participant: its inbox; the number is 0
    ACCEPT = 2  # from the host, to an OPEN: a random number; the number is 0
    FRAME = 3
    BEAT = 4  # keep-alive: the sender had nothing to send
    CLOSE = 5


class GapError(Exception):
    """A packet is missing before the one that arrived."""


class Packet(NamedTuple):
    """An authentic packet."""

    kind: int
    term: int
    link: bytes
    number: int
    payload: bytes


def quota_key(secret: bytes, name: str) -> bytes:
    """Return the key for packets that open links of a quota; empty without a secret."""
    if not secret:
        return b""
    key = blake2b(secret, digest_size=32, person=b"chainapi secret").digest()
    return blake2b(name.encode(), key=key, digest_size=32, person=b"chainapi redis").digest()


def link_keys(key: bytes, term: int, link: bytes, answer: bytes) -> tuple[bytes, bytes]:
    """Return the keys of one link: to the host, and to the participant.

    They are empty for an empty key.

    Both sides choose one of `link` and `answer` at random, so neither can be made to accept packets of an
    earlier link.
    """
    if not key:
        return b"", b""
    data = term.to_bytes(8, "big") + link + answer
    digest = blake2b(data, key=key, digest_size=64, person=b"chainapi link").digest()
    return digest[:32], digest[32:]


def seal(key: bytes, packet: Packet) -> bytes:
    """Return a packet as bytes, with its MAC unless the key is empty."""
    kind, term, link, number, payload = packet
    data = _HEADER.pack(kind, term, link, number) + payload
    return data + _mac(key, data) if key else data


def link_of(data: bytes) -> bytes:
    """Return the link that a packet names, authentic or not; empty if it is too short."""
    return data[9 : 9 + NONCE] if len(data) >= _HEADER.size else b""


def open_packet(key: bytes, data: bytes) -> Packet | None:
    """Return a packet from bytes.

    None if it is too short, of no known kind, or its MAC is wrong.
    """
    if key:
        data, mac = data[:-_MAC], data[-_MAC:]
        if not hmac.compare_digest(mac, _mac(key, data)):
            return None
    if len(data) < _HEADER.size or data[0] not in _KINDS:
        return None
    kind, term, link, number = _HEADER.unpack_from(data)
    return Packet(kind, term, link, number, data[_HEADER.size :])


def seal_memory(key: bytes, memory: bytes) -> bytes:
    """Return the memory of a quota with its MAC, unless the key is empty."""
    return _mac(key, memory, _OF_MEMORY) + memory if key else memory


def open_memory(key: bytes, stored: bytes) -> bytes:
    """Return the memory of a quota as it was stored; empty if its MAC is wrong."""
    if not key:
        return stored
    memory = stored[_MAC:]
    return memory if hmac.compare_digest(stored[:_MAC], _mac(key, memory, _OF_MEMORY)) else b""


class Outgoing:
    """One direction of a link at its sender: numbers its packets from 0."""

    __slots__ = ("_key", "_link", "_number", "_term")

    def __init__(self, key: bytes, term: int, link: bytes) -> None:
        self._key, self._term, self._link = key, term, link
        self._number = 0

    def seal(self, kind: Kind, payload: bytes = b"") -> bytes:
        """Return the next packet as bytes."""
        packet = Packet(kind, self._term, self._link, self._number, payload)
        self._number += 1
        return seal(self._key, packet)


class Incoming:
    """One direction of a link at its receiver: accepts each number once, in order."""

    __slots__ = ("_key", "_link", "_number", "_term")

    def __init__(self, key: bytes, term: int, link: bytes) -> None:
        self._key, self._term, self._link = key, term, link
        self._number = 0

    def open(self, data: bytes) -> Packet | None:
        """Return the next packet; None for a packet to drop.

        Those are forged, replayed, or of another term or link.

        Raises:
            GapError: packets are missing before this one.

        """
        packet = open_packet(self._key, data)
        if packet is None or packet.kind not in _IN_LINKS:
            return None
        if (packet.term, packet.link) != (self._term, self._link) or packet.number < self._number:
            return None
        if packet.number > self._number:
            raise GapError
        self._number += 1
        return packet


_KINDS = frozenset(map(int, Kind))
_IN_LINKS = frozenset(map(int, (Kind.FRAME, Kind.BEAT, Kind.CLOSE)))


def _mac(key: bytes, data: bytes, person: bytes = b"chainapi packet") -> bytes:
    return blake2b(data, key=key, digest_size=_MAC, person=person).digest()
