"""Ends of links, of every carrier: order of frames, and who is informed of a break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import pytest
from attrs import define, field

from chainapi.core.share.packets import Incoming, Outgoing, link_keys
from chainapi.dask.links import _End
from chainapi.share.link import LinkEnd, linked_pair
from chainapi.share.redis.links import RedisLink
from chainapi.share.redis.wire import Wire
from tests.share.exchange import DelayedEnd

LOST = "broken"

Ends: TypeAlias = tuple[LinkEnd, LinkEnd]  # the near one first
Maker: TypeAlias = Callable[[], Ends]


def delayed() -> Ends:
    """Return the ends that tests use, whose frames take some time."""
    near, far = DelayedEnd(0.0), DelayedEnd(0.0)
    near.other, far.other = far, near
    return near, far


def dask() -> Ends:
    """Return the ends that a worker and the scheduler of a Dask cluster have."""

    def passes_to(other: str) -> Callable[[bytes | None], bool]:
        def pass_on(frame: bytes | None) -> bool:
            if frame is None:
                ends[other].snap()
            else:
                ends[other].deliver(frame)
            return True

        return pass_on

    ends = {"near": _End(passes_to("far"), lambda: None), "far": _End(passes_to("near"), lambda: None)}
    return ends["near"], ends["far"]


@define(eq=False)
class Channels:
    """Redis, as far as two ends of a link use it: it passes packets to the subscribers of a channel."""

    subscribers: dict[bytes, Any] = field(factory=dict)

    def call(self, answered: Callable[[Any], None], command: bytes, channel: bytes, packet: bytes) -> None:
        """Pass a packet on, with one subscriber."""
        assert command == b"PUBLISH"
        asyncio.get_running_loop().call_soon(self.subscribers[channel].receive, packet)
        answered(1)


def redis() -> Ends:
    """Return the ends of a link over Redis."""
    wire, name = Channels(), bytes(16)
    one, two = link_keys(bytes(32), 1, name, bytes(16))

    def end(channel: bytes, out: bytes, into: bytes) -> RedisLink:
        directions = Outgoing(out, 1, name), Incoming(into, 1, name)
        return RedisLink(cast("Wire", wire), name, channel, directions, 60.0)

    near, far = end(b"far", one, two), end(b"near", two, one)
    wire.subscribers |= {b"near": near, b"far": far}
    return near, far


every = pytest.mark.parametrize("ends", [linked_pair, delayed, dask, redis])


@every
async def test_frames_from_before_the_start_come_first(ends: Maker) -> None:
    """A frame that is under way when an end starts is delivered after those that had arrived before."""
    near, far = ends()
    seen: list[object] = []
    near.send(b"1")
    await asyncio.sleep(0.1)
    for _ in range(3):  # whatever a carrier takes: the end starts while some frames are under way
        near.send(b"2")
        await asyncio.sleep(0)
    near.send(b"2")
    asyncio.get_running_loop().call_soon(far.start, seen.append, lambda: seen.append(LOST))
    near.send(b"3")
    near.close()
    await asyncio.sleep(0.1)
    assert seen == [b"1", *[b"2"] * 4, b"3", LOST]


@every
async def test_an_end_that_starts_late_receives_all(ends: Maker) -> None:
    """An end that starts after the break receives the frames from before, and then the break, once."""
    near, far = ends()
    seen: list[object] = []
    near.send(b"1")
    near.send(b"2")
    near.close()
    near.send(b"never")
    await asyncio.sleep(0.1)
    far.start(seen.append, lambda: seen.append(LOST))
    assert seen == []  # never from within `start`
    far.send(b"never")
    await asyncio.sleep(0.1)
    assert seen == [b"1", b"2", LOST]


@every
async def test_an_end_that_closed_receives_nothing(ends: Maker) -> None:
    """Neither frames under way nor a break reach an end after `close`, even if the other end closed first."""
    near, far = ends()
    seen: list[object] = []
    far.start(seen.append, lambda: seen.append(LOST))
    await asyncio.sleep(0.1)
    near.send(b"1")
    near.close()
    far.close()
    await asyncio.sleep(0.1)
    assert seen == []


@every
async def test_an_end_closes_while_it_is_informed(ends: Maker) -> None:
    """An end that closes at its first early frame receives no other, and no break."""
    near, far = ends()
    seen: list[object] = []
    near.send(b"1")
    near.send(b"2")
    near.close()
    await asyncio.sleep(0.1)

    def close(frame: bytes) -> None:
        seen.append(frame)
        far.close()

    far.start(close, lambda: seen.append(LOST))
    await asyncio.sleep(0.1)
    assert seen == [b"1"]


@every
async def test_a_break_that_an_end_found_is_not_reported_after_close(ends: Maker) -> None:
    """An end that finds the other end gone, and closes before it is informed, is not informed any more."""
    _, far = ends()
    seen: list[object] = []
    far.start(seen.append, lambda: seen.append(LOST))
    far.snap()
    far.close()
    await asyncio.sleep(0.1)
    assert seen == []


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
