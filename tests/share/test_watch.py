"""Observers of a shared quota: its state by messages, and errors of the host."""

from __future__ import annotations

import asyncio

import pytest

from chainapi.core.share.messages import VERSION, Acquire, Denied, Hello, Join, QuotaState, encode
from chainapi.errors import ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Link, linked_pair
from chainapi.share.watch import PATIENCE, Observer
from tests.share.test_peers import Peer, response

pytestmark = pytest.mark.rule

ORIGIN = "https://data.test"


async def busy_host() -> Host:
    """Return a host with two processes: one sent two requests, the other was refused and waits."""
    host = Host()
    web = Peer(host, Hello(VERSION, "web:1", ORIGIN), Join(1, tag="api"))
    job = Peer(host, Hello(VERSION, "job:2", ORIGIN), Join(1))
    for permit, left in ((0, 99.0), (1, 98.0)):
        await web.after(Acquire(permit, 1, "route"))
        await web.after(response(permit, left=left, wait=60.0))
    await job.after(Acquire(0, 1, "route", tag="night"))
    await job.after(response(0, 429, left=0.0, wait=60.0))
    await job.after(Acquire(1, 1, "route"))
    return host


def observed(host: Host) -> Observer:
    """Return an observer of a host."""
    near, far = linked_pair()
    host.serve(far)
    return Observer(near, "observer", lambda: 1000.0)


async def test_observer_reads_the_state() -> None:
    """An observer reads what is left, who waits and who spent it, and is no participant itself."""
    observer = observed(await busy_host())
    snapshot = await observer.snapshot()
    assert (snapshot.limit, snapshot.waiting, snapshot.in_flight) == (100.0, 1, 0)
    assert 59 <= snapshot.stopped_for <= 60
    assert snapshot.unix_time == 1000.0
    assert (observer.processes, observer.origin) == (2, ORIGIN)
    spent = [(one.process, one.tag, one.requests, one.refusals, one.waiting) for one in snapshot.spenders]
    assert spent == [("web:1", "api", 2, 0, 0), ("job:2", "night", 1, 1, 0), ("job:2", "", 0, 0, 1)]
    await asyncio.sleep(10)
    later = await observer.snapshot()
    assert 49 <= later.stopped_for <= 50
    observer.close()


async def test_observer_of_a_host_that_ends() -> None:
    """When the host ends, or refuses the observer, the observer raises the reason."""
    near, far = linked_pair()
    observer = Observer(near, "observer", lambda: 0.0)
    asked = asyncio.create_task(observer.snapshot())
    await asyncio.sleep(0)
    far.close()
    with pytest.raises(ShareUnavailableError, match="the shared quota ended"):
        await asked
    with pytest.raises(ShareUnavailableError, match="the shared quota ended"):
        await observer.snapshot()


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (encode([Denied("version 9 of the protocol")]), "refused this one: version 9 of the protocol"),
        (encode([QuotaState(b"no snapshot")]), "something else than its state: malformed snapshot"),
        (b"\xc1", "something else than its state: malformed frame"),
    ],
)
async def test_observer_of_another_service(frame: bytes, reason: str) -> None:
    """A message that is no state raises an error with the reason."""
    near, far = linked_pair()
    observer = Observer(near, "observer", lambda: 0.0)
    far.send(frame)
    with pytest.raises(ShareUnavailableError, match=reason):
        await observer.snapshot()


async def test_observer_of_a_silent_host() -> None:
    """A host that hangs is reported after some seconds."""
    link: Link = linked_pair()[0]
    with pytest.raises(ShareUnavailableError, match=f"did not answer for {PATIENCE:g} s"):
        await Observer(link, "observer", lambda: 0.0).snapshot()
