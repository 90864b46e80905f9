"""A gate that serves several processes and spenders: shares of the quota, and who spent it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from chainapi import Limit, Session
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.spenders import Spender
from chainapi.errors import ConfigurationError, QuotaWaitError
from chainapi.simulator import Simulator

SECOND = (PolicyField(20.0, 1.0),)


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


class Server:
    """A service that allows 20 units a second, in windows."""

    def __init__(self) -> None:
        self.window, self.left = 0, 20.0

    def answer(self, cost: float) -> tuple[int, RateLimitInfo]:
        """Charge a request, and return status and limit headers."""
        if int(time()) > self.window:
            self.window, self.left = int(time()), 20.0
        wait = self.window + 1 - time()
        if self.left < cost:
            return 429, RateLimitInfo(20.0, self.left, None, wait, SECOND)
        self.left -= cost
        return 200, RateLimitInfo(20.0, self.left, wait, None, SECOND)


async def work(
    gate: Gate, server: Server, member: Member, tasks: int, units: Counter[str], *, route: str, cost: float
) -> None:
    """Send requests from several tasks until cancelled."""

    async def task() -> None:
        again = False
        while True:
            permit = await gate.acquire(route, cost=cost, member=member, again=again)
            try:
                await asyncio.sleep(0.05)
                status, info = server.answer(cost)
                permit.answered(status, info)
                again = status == 429
                units[member.process] += 0 if again else int(cost)
            finally:
                permit.lost()

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(task())


async def shares(*works: tuple[int, float]) -> Counter[str]:
    """Return the units that processes got in 60 s, for (tasks, cost of a request) of each."""
    gate, server, units = Gate(max_in_flight=10), Server(), Counter[str]()
    running = []
    for place, (tasks, cost) in enumerate(works):
        member = Member(process=f"p{place}", max_in_flight=None)
        gate.join(member)
        coroutine = work(gate, server, member, tasks, units, route=f"route{cost:g}", cost=cost)
        running.append(asyncio.create_task(coroutine))
    gate._quota.max_in_flight = 10
    await asyncio.sleep(60)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return units


async def test_process_with_many_tasks_leaves_others_their_share() -> None:
    """A process with 300 tasks and one with 12 get about the same."""
    units = await shares((300, 1.0), (12, 1.0))
    assert units["p1"] >= 0.45 * units.total()
    assert units.total() >= 0.9 * 60 * 20


async def test_expensive_requests_earn_no_larger_share() -> None:
    """Shares are units: a process with requests of 5 units sends a fifth of the requests."""
    units = await shares((40, 1.0), (40, 5.0))
    assert 0.4 * units.total() <= units["p1"] <= 0.6 * units.total()


async def test_quiet_process_is_not_refused_for_the_waiters_of_another() -> None:
    """A call of a quiet process waits for its turn, not for a thousand requests of another one."""
    gate, busy, quiet = Gate(limits=[Limit(10, per=1.0)]), Member(process="busy"), Member(process="quiet")
    for _ in range(10):
        (await gate.acquire(member=busy)).answered(200, RateLimitInfo())
    crowd = [asyncio.create_task(gate.acquire(member=busy)) for _ in range(1000)]
    await asyncio.sleep(0)
    with pytest.raises(QuotaWaitError) as refused:
        await gate.acquire(member=busy, max_wait=2.0)
    assert refused.value.retry_after >= 99
    began = time()
    permit = await gate.acquire(member=quiet, max_wait=2.0)
    assert time() - began <= 1.5
    permit.unsent()
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_spenders_of_a_session() -> None:
    """The snapshot has what each tag spent; the tag of a call comes before that of its session."""
    simulator = Simulator(seed=1)
    async with Session(
        data_base_url="https://simulator.test/data",
        api_key="simulated-key",
        tag="web",
        transport=simulator.transport(),
    ) as session:
        await session.data.list("/v1/chains/43114/blocks", page_size=10).collect(limit=20)
        await session.data.evm.blocks(43114, tag="job").collect(limit=1)
        await session.data.chain(43114, tag="job")
        await session.data.get("/v1/chains/43114", tag="")
        costs = {one.tag: one for one in session.quota["data"].spenders}
    assert {tag: (one.process, one.requests) for tag, one in costs.items()} == {
        "web": ("", 2),
        "job": ("", 2),
        "": ("", 1),
    }
    assert all(one.units >= one.requests for one in costs.values())


async def test_spenders_count_every_end_of_a_request() -> None:
    """Sent requests count, also lost ones; refused ones cost nothing, and unsent ones do not count."""
    gate, member = Gate(), Member(process="p", tag="t")
    gate.join(member)
    info = RateLimitInfo(100.0, 90.0, 60.0, None, (PolicyField(100.0, 60.0),))
    first = await gate.acquire("r", cost=5.0, member=member)
    waits = asyncio.create_task(gate.acquire("r", member=member))
    await asyncio.sleep(0)
    assert gate.snapshot().spenders == (Spender("p", "t", 0, 0.0, 0, 1, 1),)
    first.answered(200, info)
    (await waits).lost()
    (await gate.acquire("r", member=member)).unsent()
    third = await gate.acquire("r", member=member, tag="other tag")
    third.answered(429, RateLimitInfo(100.0, 0.0, 60.0, 60.0, (PolicyField(100.0, 60.0),)))
    third.lost()
    late = asyncio.create_task(gate.acquire("r", member=member))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.sleep(0.1)
    mine, other = sorted(gate.snapshot().spenders, key=lambda one: -one.requests)
    assert (mine.tag, mine.requests, mine.refusals, mine.in_flight, mine.waiting) == ("t", 2, 0, 0, 0)
    assert other == Spender("p", "other tag", 1, 0.0, 1)


async def test_spenders_are_charged_what_a_response_shows() -> None:
    """The units of a request are those of its cost as its own response shows it."""
    gate, member = Gate(), Member(tag="t")
    gate.join(member)
    for route, left in (("cheap", 99.0), ("expensive", 96.0)):
        permit = await gate.acquire(route, member=member)
        permit.answered(200, RateLimitInfo(100.0, left, None, None, (PolicyField(100.0, 60.0),)))
    assert gate.snapshot().spenders == (Spender("", "t", 2, 1.0 + 3.0),)


@pytest.mark.parametrize("tag", [7, b"job", "a" * 65, "line\nend", "\x1b[31m", ["job"]])
def test_tags_are_checked(tag: object) -> None:
    """A tag is a string of at most 64 printable characters."""
    with pytest.raises(ConfigurationError, match=r"tag=.* must be a string of at most 64 printable"):
        Session(tag=tag)  # type: ignore[arg-type]
    session = Session(
        data_base_url="https://data.test", api_key="key", transport=Simulator(seed=1).transport()
    )
    with pytest.raises(ConfigurationError, match="tag="):
        session.data.evm.blocks(43114, tag=tag)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="tag="):
        session.data.list("/v1/chains", tag=tag)  # type: ignore[call-overload]
