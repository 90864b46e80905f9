"""Handshake of a link over a stream: mutual proof of a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.share.local.handshake import (
    GREETING,
    Handshake,
    HandshakeError,
    VersionError,
    host_side,
    participant_side,
)

pytestmark = pytest.mark.rule

SECRET, OTHER = b"s" * 32, b"o" * 32


def fed(end: Handshake, data: bytes, size: int) -> tuple[bytes, bytes | None]:
    """Feed an end with pieces of `size` bytes; return its replies, and the bytes behind the handshake."""
    replies, rest = b"", None
    while data:
        reply, rest = end.feed(data[:size])
        replies, data = replies + reply, data[size:]
        if rest is not None:
            return replies, rest + data
    return replies, rest


@given(size=st.integers(1, 200), later=st.binary(max_size=50))
def test_both_ends_agree(size: int, later: bytes) -> None:
    """Ends with one secret agree, however the bytes are cut, send no secret and keep the bytes behind."""
    participant, host = Handshake(participant_side(SECRET)), Handshake(host_side(SECRET))
    opening, _ = participant.feed(b"")
    answer, rest = fed(host, opening, size)
    assert rest is None
    proof, behind = fed(participant, answer + later, size)
    assert behind == later
    assert fed(host, proof + later, size) == (b"", later)
    assert SECRET not in opening + answer + proof
    assert opening.startswith(GREETING)
    assert answer.startswith(GREETING)


def test_a_host_without_the_secret_is_refused() -> None:
    """A participant refuses a host with another secret, and sends it no proof."""
    participant, host = Handshake(participant_side(SECRET)), Handshake(host_side(OTHER))
    answer, _ = host.feed(participant.feed(b"")[0])
    with pytest.raises(HandshakeError, match="does not have the secret"):
        participant.feed(answer)


@pytest.mark.parametrize("forged", ["of another secret", "of the host", "of another handshake"])
def test_a_participant_without_the_secret_is_refused(forged: str) -> None:
    """A host refuses the proof of another secret, its own proof, and a recorded one."""
    host = Handshake(host_side(SECRET))
    participant = Handshake(participant_side(SECRET))
    opening, _ = participant.feed(b"")
    answer, _ = host.feed(opening)
    recorded, _ = participant.feed(answer)
    again = Handshake(host_side(SECRET))
    answer, _ = again.feed(opening)
    proofs = {"of another secret": bytes(32), "of the host": answer[-32:], "of another handshake": recorded}
    with pytest.raises(HandshakeError, match="does not have the secret"):
        again.feed(proofs[forged])


def test_another_protocol_is_refused() -> None:
    """Both ends refuse what does not begin with the greeting."""
    for side in (participant_side, host_side):
        with pytest.raises(HandshakeError, match="does not speak this protocol"):
            Handshake(side(SECRET)).feed(b"HTTP/1.1 400 Bad Request\r\n" * 4)


def test_another_version_is_named() -> None:
    """An end of another version is refused with both versions."""
    newer = GREETING[:-1] + b"\x09" + bytes(16)
    for side in (participant_side, host_side):
        with pytest.raises(VersionError, match=r"uses version 9 of .* uses version 1"):
            Handshake(side(SECRET)).feed(newer)


def test_both_ends_name_their_version_first() -> None:
    """Each end greets before it receives anything, so that an end of another version learns why."""
    for side in (participant_side, host_side):
        opening, rest = Handshake(side(SECRET)).feed(b"")
        assert opening.startswith(GREETING)
        assert rest is None
