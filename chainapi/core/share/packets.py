"""Packets between two machines over a broker that others can read and write.

Redis delivers what any client publishes, and forgets what nobody receives. So a packet has the link, a number
of its own, and a message authentication code (MAC) over both and the payload. A receiver drops packets that
are forged, replayed or of another link, and breaks the link if one is missing.
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
    "Kind",
    "Packet",
    "PacketLink",
    "quota_key",
    "seal",
    "seal_memory",
    "unseal",
    "unseal_memory",
]

NONCE = 16  # bytes at random of each end, which name a link together
_MAC = 16  # bytes
_HEADER = Struct(f">B{2 * NONCE}sQ")  # kind, link, number


class Kind(IntEnum):
    """Kinds of packets, one for each direction: nobody accepts what it has sent."""

    OPEN = 1  # from a guest: its id; the second half of the link is zero
    TO_GUEST = 2  # the first one accepts the link
    TO_HOST = 3


class GapError(Exception):
    """A packet is missing before the one that arrived."""


class Packet(NamedTuple):
    """An authentic packet."""

    kind: Kind
    link: bytes
    number: int
    payload: bytes


def quota_key(secret: bytes, name: str) -> bytes:
    """Return the key for the packets of a quota.

    Without a secret everybody can derive it.
    """
    key = blake2b(secret, digest_size=32, person=b"chainapi secret").digest()
    return blake2b(name.encode(), key=key, digest_size=32, person=b"chainapi redis").digest()


def seal(key: bytes, packet: Packet) -> bytes:
    """Return a packet as bytes, with its MAC in front."""
    kind, link, number, payload = packet
    data = _HEADER.pack(kind, link, number) + payload
    return _mac(key, data) + data


def unseal(key: bytes, data: bytes) -> Packet | None:
    """Return a packet from bytes; None if it is too short, or its MAC is wrong."""
    mac, data = data[:_MAC], data[_MAC:]
    if len(data) < _HEADER.size or not hmac.compare_digest(mac, _mac(key, data)):
        return None
    kind, link, number = _HEADER.unpack_from(data)
    return Packet(Kind(kind), link, number, data[_HEADER.size :])


def seal_memory(key: bytes, memory: bytes) -> bytes:
    """Return the memory of a quota with its MAC in front."""
    return _mac(key, memory, b"chainapi memory") + memory


def unseal_memory(key: bytes, stored: bytes) -> bytes:
    """Return the memory of a quota as it was stored; empty if its MAC is wrong."""
    mac, memory = stored[:_MAC], stored[_MAC:]
    return memory if hmac.compare_digest(mac, _mac(key, memory, b"chainapi memory")) else b""


class PacketLink:
    """One end of a link, which accepts each packet once, in order.

    Args:
        key: of the quota; see `quota_key`.
        name: of the link: the random bytes of its guest and of its host.
        hosts: whether this is the end of the host.

    """

    __slots__ = ("_accepts", "_expected", "_key", "_sends", "_sent", "name")

    def __init__(self, key: bytes, name: bytes, *, hosts: bool) -> None:
        self.name: bytes = name
        self._key = key
        self._sends, self._accepts = Kind.TO_HOST, Kind.TO_GUEST
        if hosts:
            self._sends, self._accepts = self._accepts, self._sends
        self._sent = self._expected = 0

    def seal(self, payload: bytes) -> bytes:
        """Return the next packet as bytes."""
        self._sent += 1
        return seal(self._key, Packet(self._sends, self.name, self._sent, payload))

    def accept(self, packet: Packet) -> bool:
        """Return whether an authentic packet is the next of this link.

        Others are to be dropped.

        Raises:
            GapError: packets are missing before it.

        """
        if (packet.link, packet.kind) != (self.name, self._accepts) or packet.number <= self._expected:
            return False
        self._expected += 1
        if packet.number > self._expected:
            raise GapError
        return True


def _mac(key: bytes, data: bytes, person: bytes = b"chainapi packet") -> bytes:
    return blake2b(data, key=key, digest_size=_MAC, person=person).digest()
