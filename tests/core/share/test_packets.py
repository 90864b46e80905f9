"""Packets over a broker that others can write to, and the lock of a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.share.names import frame_key, quota_name
from chainapi.core.share.packets import (
    GapError,
    Incoming,
    Kind,
    Outgoing,
    Packet,
    link_keys,
    link_of,
    open_memory,
    open_packet,
    quota_key,
    seal,
    seal_memory,
)
from chainapi.share.redis.term import HostLock

pytestmark = pytest.mark.rule

LINK = bytes(range(16))
TERM = 1_700_000_000_000_000
KEY = quota_key(b"secret", "quota")

keys = st.sampled_from([b"", KEY])
payloads = st.binary(max_size=64)


@given(keys, st.lists(payloads, max_size=12), st.lists(st.integers(0, 11), max_size=40))
def test_a_receiver_gets_each_packet_once_and_in_order(
    key: bytes, sent: list[bytes], arrivals: list[int]
) -> None:
    """Whatever arrives, repeated, late or never: what is accepted is the beginning of what was sent."""
    out, into = Outgoing(key, TERM, LINK), Incoming(key, TERM, LINK)
    packets = [out.seal(Kind.FRAME, payload) for payload in sent]
    accepted: list[bytes] = []
    for place in (place for place in arrivals if place < len(packets)):
        if place > len(accepted):
            with pytest.raises(GapError):
                into.open(packets[place])
            break
        packet = into.open(packets[place])
        assert (packet is None) == (place < len(accepted))
        if packet is not None:
            accepted.append(packet.payload)
    assert accepted == sent[: len(accepted)]


@given(payloads, st.data())
def test_a_changed_packet_is_dropped(payload: bytes, data: st.DataObject) -> None:
    """One changed bit anywhere, or a cut, and the packet is not accepted."""
    sealed = Outgoing(KEY, TERM, LINK).seal(Kind.FRAME, payload)
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << bit % 8
    assert open_packet(KEY, bytes(changed)) is None
    assert open_packet(KEY, sealed[: data.draw(st.integers(0, len(sealed) - 1))]) is None


@given(keys, st.binary(max_size=80))
def test_any_bytes_are_no_packet_or_one(key: bytes, data: bytes) -> None:
    """Bytes of anybody raise nothing, and without their MAC they are not accepted."""
    packet = open_packet(key, data)
    assert packet is None or (not key and packet.link == link_of(data))
    assert Incoming(KEY, TERM, LINK).open(data) is None


@pytest.mark.parametrize(
    "packet",
    [
        Packet(Kind.FRAME, TERM - 1, LINK, 0, b""),
        Packet(Kind.FRAME, TERM + 1, LINK, 0, b""),
        Packet(Kind.FRAME, TERM, bytes(16), 0, b""),
        Packet(Kind.OPEN, TERM, LINK, 0, b""),
        Packet(Kind.ACCEPT, TERM, LINK, 0, b""),
        Packet(9, TERM, LINK, 0, b""),
    ],
)
def test_packets_of_other_terms_links_and_kinds_are_dropped(packet: Packet) -> None:
    """An authentic packet of another term or link, or one that opens links, is no packet of this link."""
    assert Incoming(KEY, TERM, LINK).open(seal(KEY, packet)) is None


def test_keys_differ() -> None:
    """Each secret, quota, term, link, answer and direction has a key of its own; no secret has none."""
    quota_keys = {quota_key(b"a", "x"), quota_key(b"b", "x"), quota_key(b"a", "y"), quota_key(b"a" * 65, "x")}
    links = [
        link_keys(KEY, TERM, LINK, b"1" * 16),
        link_keys(KEY, TERM, LINK, b"2" * 16),
        link_keys(KEY, TERM + 1, LINK, b"1" * 16),
        link_keys(KEY, TERM, bytes(16), b"1" * 16),
        link_keys(quota_key(b"other", "quota"), TERM, LINK, b"1" * 16),
    ]
    assert len(quota_keys) == 4
    assert len({key for pair in links for key in pair}) == 10
    assert quota_key(b"", "x") == b""
    assert link_keys(b"", TERM, LINK, b"") == (b"", b"")


@given(keys, payloads, st.data())
def test_memory_is_authentic(key: bytes, memory: bytes, data: st.DataObject) -> None:
    """Memory comes back as it was stored; with a secret, memory that was changed, or a packet, is empty."""
    stored = seal_memory(key, memory)
    assert open_memory(key, stored) == memory
    bit = data.draw(st.integers(0, max(0, len(stored) * 8 - 1)))
    changed = bytearray(stored)
    changed[bit // 8 : bit // 8 + 1] = bytes(byte ^ 1 << bit % 8 for byte in stored[bit // 8 : bit // 8 + 1])
    assert open_memory(KEY, bytes(changed)) == b""
    assert open_memory(KEY, Outgoing(KEY, TERM, LINK).seal(Kind.FRAME, memory)) == b""


@given(
    st.floats(0.1, 60),
    st.floats(0.95, 1.05),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), max_size=10),
    st.floats(0, 120),
)
def test_a_host_stops_before_its_lease_expires(
    ttl: float, rate: float, renewals: list[tuple[float, float]], wait: float
) -> None:
    """While the host may serve, the broker gives the lock to nobody else, if clocks run within 5 %.

    Requests take any time to the broker, whose clock runs at `rate`.
    """
    now = 0.0
    lock = HostLock(ttl, now)
    expires = ttl  # by the clock of the broker, which granted it at once
    for pause, way in renewals:
        sent = now + pause
        arrives = sent + way
        if arrives * rate >= expires:
            break
        expires = arrives * rate + ttl
        lock.renewed(sent)
        now = arrives
    assert not lock.holds(now + wait) or (now + wait) * rate < expires


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
