"""Links within one event loop: order, and who learns of a break."""

from __future__ import annotations

import asyncio

from chainapi.share.link import linked_pair


async def test_frames_from_before_the_start_come_first() -> None:
    """A frame that is under way when an end starts is delivered after those that had arrived before."""
    near, far = linked_pair()
    seen: list[object] = []
    near.send(b"1")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(far.start, seen.append, lambda: seen.append("broken"))
    near.send(b"2")
    near.close()
    await asyncio.sleep(0.1)
    assert seen == [b"1", b"2", "broken"]


async def test_an_end_that_starts_late_receives_all() -> None:
    """An end that starts after the break receives the frames from before, and then the break, once."""
    near, far = linked_pair()
    seen: list[object] = []
    near.send(b"1")
    near.close()
    near.send(b"never")
    await asyncio.sleep(0.1)
    far.start(seen.append, lambda: seen.append("broken"))
    assert seen == []  # never from within `start`
    await asyncio.sleep(0.1)
    assert seen == [b"1", "broken"]


async def test_a_failure_reaches_both_ends() -> None:
    """After `fail` both ends learn of the break, once; after `close` only the other one does."""
    near, far = linked_pair()
    seen: list[str] = []
    near.start(lambda _: None, lambda: seen.append("near"))
    far.start(lambda _: None, lambda: seen.append("far"))
    near.fail()
    near.fail()
    far.close()
    assert seen == []
    await asyncio.sleep(0.1)
    assert seen == ["near"]
    near, far = linked_pair()
    near.start(lambda _: None, lambda: seen.append("near"))
    far.start(lambda _: None, lambda: seen.append("far"))
    near.fail()
    await asyncio.sleep(0.1)
    assert sorted(seen) == ["far", "near", "near"]
