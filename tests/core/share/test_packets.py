"""Packets over a broker that others can write to, and names of quotas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.share.names import frame_key, quota_name
from chainapi.core.share.packets import (
    GapError,
    Kind,
    Packet,
    PacketLink,
    quota_key,
    seal,
    seal_memory,
    unseal,
    unseal_memory,
)

pytestmark = pytest.mark.rule

LINK = bytes(range(32))
KEY = quota_key(b"secret", "quota")

payloads = st.binary(max_size=64)


@given(st.lists(payloads, max_size=12), st.lists(st.integers(0, 11), max_size=40))
def test_a_receiver_gets_each_packet_once_and_in_order(sent: list[bytes], arrivals: list[int]) -> None:
    """Whatever arrives, repeated, late or never: what is accepted is the beginning of what was sent."""
    guest, host = PacketLink(KEY, LINK, hosts=False), PacketLink(KEY, LINK, hosts=True)
    packets = [unseal(KEY, guest.seal(payload)) for payload in sent]
    accepted: list[bytes] = []
    for place in (place for place in arrivals if place < len(packets)):
        packet = packets[place]
        assert packet is not None
        if place > len(accepted):
            with pytest.raises(GapError):
                host.accept(packet)
            break
        if host.accept(packet):
            accepted.append(packet.payload)
        else:
            assert place < len(accepted)
    assert accepted == sent[: len(accepted)]


@given(payloads, st.data())
def test_a_changed_packet_is_dropped(payload: bytes, data: st.DataObject) -> None:
    """One changed bit anywhere, or a cut, and the packet is not authentic."""
    sealed = PacketLink(KEY, LINK, hosts=False).seal(payload)
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << bit % 8
    assert unseal(KEY, bytes(changed)) is None
    assert unseal(KEY, sealed[: data.draw(st.integers(0, len(sealed) - 1))]) is None


@given(st.binary(max_size=80))
def test_bytes_of_anybody_are_no_packet(data: bytes) -> None:
    """Bytes without their MAC raise nothing, and are no packet."""
    assert unseal(KEY, data) is None


@pytest.mark.parametrize(
    "packet",
    [
        Packet(Kind.TO_HOST, bytes(32), 1, b""),
        Packet(Kind.TO_GUEST, LINK, 1, b""),
        Packet(Kind.OPEN, LINK, 1, b""),
        Packet(Kind.TO_HOST, LINK, 0, b""),
    ],
)
def test_packets_of_other_links_and_kinds_are_dropped(packet: Packet) -> None:
    """A packet of another link, of this end itself, or a request is no packet for the host of a link."""
    host = PacketLink(KEY, LINK, hosts=True)
    assert not host.accept(packet)
    assert host.accept(Packet(Kind.TO_HOST, LINK, 1, b""))


def test_keys_differ() -> None:
    """Each secret and quota has a key of its own."""
    pairs = [(b"a", "x"), (b"b", "x"), (b"a", "y"), (b"a" * 65, "x"), (b"", "x")]
    keys = [quota_key(secret, name) for secret, name in pairs]
    assert len(set(keys)) == len(pairs)
    assert unseal(keys[0], seal(keys[1], Packet(Kind.OPEN, LINK, 0, b""))) is None


@given(payloads, st.data())
def test_memory_is_authentic(memory: bytes, data: st.DataObject) -> None:
    """Memory comes back as it was stored; memory that was changed, or a packet, is empty."""
    stored = seal_memory(KEY, memory)
    assert unseal_memory(KEY, stored) == memory
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    changed = bytearray(stored)
    changed[bit // 8] ^= 1 << bit % 8
    assert unseal_memory(KEY, bytes(changed)) == b""
    assert unseal_memory(KEY, seal(KEY, Packet(Kind.OPEN, LINK, 0, memory))) == b""


@pytest.mark.parametrize("make", [quota_name, frame_key])
def test_names_and_keys_are_digests_of_origin_and_key(make: type) -> None:
    """Another key, origin or use gives another digest, and none shows the key."""
    digests = {
        make("https://a.test", "secret"),
        make("https://b.test", "secret"),
        make("https://a.test", "other"),
        make("https://a.test", None),
    }
    assert len(digests) == 4
    assert make("https://a.test", None) == make("https://a.test", "")
    assert "secret" not in str(digests)
    assert quota_name("https://a.test", "k" * 200) != frame_key("https://a.test", "k" * 200).hex()
    assert (len(quota_name("", "")), len(frame_key("", ""))) == (32, 32)
