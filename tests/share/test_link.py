"""Links within one event loop keep the contract of all links."""

from __future__ import annotations

import asyncio

from chainapi.share.link import linked_pair


async def test_frames_arrive_in_order_also_those_sent_before_the_start() -> None:
    """Nothing is delivered from within a call, and nothing is lost before the start."""
    near, far = linked_pair()
    near.send(b"1")
    await asyncio.sleep(0)
    near.send(b"2")
    await asyncio.sleep(0)
    frames: list[bytes] = []
    far.start(frames.append, lambda: None)
    near.send(b"3")
    assert frames == []
    await asyncio.sleep(0)
    assert frames == [b"1", b"2", b"3"]


async def test_closed_link_delivers_what_was_sent_and_breaks_the_other_end_once() -> None:
    """The end that closes gets no call; the other one gets the frames, then the break."""
    near, far = linked_pair()
    calls: list[object] = []
    near.start(calls.append, lambda: calls.append("near"))
    far.start(calls.append, lambda: calls.append("far"))
    near.send(b"last")
    far.send(b"too late")
    near.close()
    near.close()
    near.send(b"closed")
    far.close()
    await asyncio.sleep(0.01)
    assert calls == []
    near, far = linked_pair()
    far.start(calls.append, lambda: calls.append("far"))
    near.send(b"last")
    near.close()
    near.fail()
    await asyncio.sleep(0.01)
    assert calls == [b"last", "far"]


async def test_link_that_broke_before_the_start_reports_it() -> None:
    """An end that starts late gets what arrived, and then the break."""
    near, far = linked_pair()
    near.send(b"1")
    near.close()
    await asyncio.sleep(0.01)
    far.send(b"nobody")
    calls: list[object] = []
    far.start(calls.append, lambda: calls.append("broken"))
    assert calls == []
    await asyncio.sleep(0.01)
    assert calls == [b"1", "broken"]
