"""Handshake of a link: mutual proof of a secret that neither end sends.

Both ends begin with a greeting and a random challenge. Then the host sends a proof, and the
participant checks it and sends its own. A proof is an HMAC over both challenges and the role, so that no
recorded or reflected proof is valid again.

Each side is a generator: it yields the bytes to send with the number of bytes that it needs next, and returns
the last bytes to send.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Generator
from typing import TypeAlias

__all__ = ["GREETING", "Handshake", "HandshakeError", "VersionError", "host_side", "participant_side"]

GREETING = b"chainap\x01"  # the last byte is the version of links over streams
_CHALLENGE = 16  # bytes
_PROOF = 32  # bytes

Side: TypeAlias = Generator[tuple[bytes, int], bytes, bytes]


class HandshakeError(Exception):
    """The other end does not speak this protocol, or does not have the secret."""


class VersionError(HandshakeError):
    """The other end speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the process that hosts the quota uses version {version} of the link between processes, and this"
            f" one uses version {GREETING[-1]}. Use the same version of chainapi in all processes of the key"
        )


class Handshake:
    """Handshake of one end, from bytes that arrive in pieces of any size."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._buffer = b""
        self._reply, self._needed = next(side)

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return the bytes to send, and those after the handshake: None before its end.

        Raises:
            HandshakeError: the other end failed.

        """
        self._buffer += data
        reply, self._reply = self._reply, b""
        while len(self._buffer) >= self._needed:
            message, self._buffer = self._buffer[: self._needed], self._buffer[self._needed :]
            try:
                more, self._needed = self._side.send(message)
            except StopIteration as end:
                return reply + end.value, self._buffer
            reply += more
        return reply, None


def participant_side(secret: bytes) -> Side:
    """Run the participant's side.

    Raises:
        HandshakeError: the other end is not the host.

    """
    own = secrets.token_bytes(_CHALLENGE)
    challenge = _greeted((yield GREETING + own, len(GREETING) + _CHALLENGE))
    _check((yield b"", _PROOF), _proof(secret, b"host", own, challenge))
    return _proof(secret, b"participant", own, challenge)


def host_side(secret: bytes) -> Side:
    """Run the host's side.

    Raises:
        HandshakeError: the other end is no participant.

    """
    own = secrets.token_bytes(_CHALLENGE)
    challenge = _greeted((yield GREETING + own, len(GREETING) + _CHALLENGE))
    proof = yield _proof(secret, b"host", challenge, own), _PROOF
    _check(proof, _proof(secret, b"participant", challenge, own))
    return b""


def _greeted(message: bytes) -> bytes:
    """Check the greeting at the start of a message; return the challenge after it."""
    greeting = message[: len(GREETING)]
    if greeting[:-1] != GREETING[:-1]:
        raise HandshakeError("the other end does not speak this protocol")
    if greeting != GREETING:
        raise VersionError(greeting[-1])
    return message[len(GREETING) :]


def _proof(secret: bytes, role: bytes, of_member: bytes, of_host: bytes) -> bytes:
    return hmac.digest(secret, role + of_member + of_host, "sha256")


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise HandshakeError("the other end does not have the secret")
