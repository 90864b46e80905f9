"""Leases: permits in advance, by the kind of request."""

from __future__ import annotations

import pytest

from chainapi.core.share.leases import Leases
from chainapi.core.share.names import frame_key, quota_name


def test_permits_are_used_in_order_and_once() -> None:
    """Each permit serves one request of its kind, the oldest first."""
    leases = Leases(1.0)
    assert not leases
    leases.add("a", (1, 2), 0.0)
    leases.add("a", (3,), 0.0)
    leases.add("b", (4,), 0.0)
    assert leases
    assert leases.take("c", 0.0) is None
    assert [leases.take("a", 0.0) for _ in range(4)] == [1, 2, 3, None]
    assert leases.take("b", 0.0) == 4
    assert not leases


def test_unused_permits_go_back_after_a_time_without_use() -> None:
    """A use, and a grant, keep the permits of their kind for another while, and no others."""
    leases = Leases(1.0)
    leases.add("a", (1, 2), 0.0)
    leases.add("b", (3, 4), 0.0)
    leases.add("c", (5,), 0.0)
    assert leases.take("a", 0.5) == 1
    leases.add("c", (6,), 0.5)
    assert leases.unused(0.999) == ()
    assert leases.unused(1.0) == (3, 4)
    assert leases.unused(1.4) == ()
    assert sorted(leases.unused(1.5)) == [2, 5, 6]
    assert not leases
    assert leases.take("b", 1.5) is None


def test_all_permits_go_back_at_once() -> None:
    """Without a time everything goes back, used a moment ago or not."""
    leases = Leases(1.0)
    leases.add("a", (1,), 5.0)
    leases.add("b", (2,), 9.0)
    assert leases.unused() == (1, 2)
    assert leases.unused() == ()
    assert not leases


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
