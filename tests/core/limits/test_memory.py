"""Memory of a quota: another gate continues from it as if nothing had happened."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import inf, nan
from typing import Literal, TypeAlias, get_args

import msgspec
import pytest
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Limit
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.client.permit import Permit
from chainapi.core.limits.info import PolicyField, RateLimitInfo, ServiceLimit
from chainapi.core.limits.memory import OLDEST, read
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.testing import VirtualLoop
from tests.core.limits.test_quota import walk
from tests.limits.servers import Bucket, Clocked, Counters, FromFirst, Gcra, Response, Server, SlidingLog

Heir: TypeAlias = Literal["same", "fresh", "memory"]
HEIRS: tuple[Heir, ...] = ("same", "fresh", "memory")
TRIP, WINDOW = 0.05, 5.0  # seconds
SERVERS: dict[str, Callable[[], Server]] = {
    "first": lambda: FromFirst(60.0, WINDOW),
    "clock": lambda: Clocked(60.0, WINDOW, phase=2.0),
    "log": lambda: SlidingLog(60.0, WINDOW),
    "counters": lambda: Counters(60.0, WINDOW),
    "bucket": lambda: Bucket(60.0, WINDOW),
    "small bucket": lambda: Gcra(60.0, WINDOW),
}


@define(eq=False)
class Flight:
    """Request under way."""

    permit: Permit
    sent: float


@define(eq=False)
class Run:
    """Job of 240 requests, whose gate is replaced by another one that has its memory.

    Attributes:
        ends: when a gate ends, in seconds.
        age: age of the memory at that time, in seconds.
        heir: the next gate: the "same", a "fresh" one, or one that has a "memory".
        pause: seconds between this job and another one, by the next gate.
        hidden: whether responses have no headers but retry-after.
        limits: limits of the user.

    """

    server: Server
    ends: Sequence[float] = ()
    age: float = 0.0
    heir: Heir = "memory"
    pause: float | None = None
    hidden: bool = False
    limits: tuple[Limit, ...] = ()
    gate: Gate = field(init=False)
    left: int = 240
    refusals: int = 0
    sent_in_stop: int = 0
    stopped_until: float = -inf
    seconds: float = 0.0
    member: Member = field(init=False)
    flights: set[Flight] = field(factory=set)
    waiting: set[asyncio.Task[Permit]] = field(factory=set)

    def play(self) -> Run:
        """Run the job in virtual time."""
        loop = VirtualLoop()
        try:
            loop.run_until_complete(self.job())
            self.seconds = loop.time()
        finally:
            loop.close()
        return self

    async def job(self) -> None:
        """Run eight tasks, and replace the gate meanwhile."""
        self.make()
        deaths = [asyncio.create_task(self.replace(at)) for at in self.ends]
        await asyncio.gather(*(self.work() for _ in range(8)))
        for death in deaths:
            death.cancel()
        if self.pause is not None:
            await self.again(self.pause)

    async def again(self, pause: float) -> None:
        """Run the job again after a pause."""
        memory, self.left = self.gate.memory(), 240
        await asyncio.sleep(pause)
        if self.heir != "same":
            self.make()
        if self.heir == "memory":
            self.gate.restore(memory, pause)
        await asyncio.gather(*(self.work() for _ in range(8)))

    def make(self) -> None:
        """Begin with a gate that knows nothing."""
        self.gate = Gate(random=lambda: 0.5)
        self.member = Member(limits=self.limits)
        self.gate.join(self.member)

    async def replace(self, at: float) -> None:
        """Continue with another gate, by a memory of `age` seconds."""
        await asyncio.sleep(at)
        memory = self.gate.memory()
        await asyncio.sleep(self.age)
        now = asyncio.get_running_loop().time()
        self.make()
        if self.heir == "memory":
            self.gate.restore(memory, self.age)
        self.gate.hold_back(max(0.0, self.stopped_until - now))  # as each process reports it
        for flight in self.flights:
            flight.permit = self.gate.adopt("/a", cost=1.0, member=self.member, elapsed=now - flight.sent)
        for task in self.waiting:
            task.cancel()

    async def permit(self) -> Permit:
        """Return a permit of the gate that lives."""
        while True:
            task = asyncio.create_task(self.gate.acquire("/a", cost=1.0, member=self.member))
            self.waiting.add(task)
            await asyncio.wait([task])
            self.waiting.discard(task)
            if not task.cancelled():
                return task.result()

    async def work(self) -> None:
        """Send requests one after the other."""
        now = asyncio.get_running_loop().time
        while self.left > 0:
            self.left -= 1
            flight = Flight(await self.permit(), now())
            self.flights.add(flight)
            self.sent_in_stop += now() < self.stopped_until
            await asyncio.sleep(TRIP / 2)
            response = self.server.answer(now(), 1.0)
            await asyncio.sleep(TRIP / 2)
            self.flights.discard(flight)
            info = RateLimitInfo(retry_after=response.info.retry_after) if self.hidden else response.info
            if response.status == 429:
                self.left, self.refusals = self.left + 1, self.refusals + 1
                self.stopped_until = max(self.stopped_until, now() + (info.retry_after or 0.0))
            flight.permit.answered(response.status, info)


@cache
def alone(name: str, *, hidden: bool = False) -> Run:
    """Return the run of one gate."""
    return Run(SERVERS[name](), hidden=hidden).play()


@pytest.mark.parametrize("name", SERVERS)
@settings(max_examples=20)
@given(end=st.floats(6.5, 13.0), age=st.floats(0.0, 0.5))
def test_gate_continues_from_a_memory(name: str, end: float, age: float) -> None:
    """A gate with the memory of another needs its time, and meets one more 429 at most, in no stop."""
    one, replaced = alone(name), Run(SERVERS[name](), [end], age).play()
    more = replaced.refusals - one.refusals
    assert more <= 1
    assert replaced.seconds <= one.seconds / 0.97 + 2 * TRIP + max(0, more)  # waits are whole seconds
    assert replaced.sent_in_stop == 0


@pytest.mark.parametrize("name", SERVERS)
@settings(max_examples=20)
@given(end=st.floats(0.5, 6.5), age=st.floats(0.0, 0.5))
def test_little_learned_costs_two_windows_at_most(name: str, end: float, age: float) -> None:
    """A memory from before the first return of units costs two windows and a 429 at most.

    Hosts make their first memory half a second after their first request.
    """
    one, replaced = alone(name), Run(SERVERS[name](), [end], age).play()
    assert replaced.refusals <= one.refusals + 1
    assert replaced.seconds <= one.seconds / 0.97 + 2 * WINDOW
    assert replaced.sent_in_stop == 0


@pytest.mark.parametrize("name", SERVERS)
def test_limits_without_headers_are_remembered(name: str) -> None:
    """A gate with a memory of discovered limits meets fewer refusals than one that has to find them."""
    ends = (6.0, 8.2, 9.9, 12.1)
    with_memory = [Run(SERVERS[name](), [end], 0.2, hidden=True).play() for end in ends]
    without = [Run(SERVERS[name](), [end], 0.2, heir="fresh", hidden=True).play() for end in ends]
    assert sum(run.refusals for run in with_memory) < sum(run.refusals for run in without)
    assert max(run.seconds for run in with_memory) <= alone(name, hidden=True).seconds / 0.97 + WINDOW


@pytest.mark.parametrize("end", [0.3, 0.7, 3.3])
def test_limits_of_the_user_are_remembered(end: float) -> None:
    """A limit that the user set holds across gates: not more leaves in its window than it allows."""
    run = Run(FromFirst(60.0, WINDOW), [end], 0.0, hidden=True, limits=(Limit(60, per=5.0),)).play()
    assert run.refusals == 0


@pytest.mark.parametrize("pause", [0.0, 3.0, 5.0, 17.0, 3_600.0, 1e5, 2 * OLDEST])
@pytest.mark.parametrize("name", SERVERS)
def test_old_memory_does_no_harm(name: str, pause: float) -> None:
    """A second job after any pause is as fast by a memory as by the gate of the first or a new one."""
    same, fresh, known = (Run(SERVERS[name](), pause=pause, heir=one).play() for one in HEIRS)
    assert known.refusals <= max(same.refusals, fresh.refusals)
    assert known.seconds - pause <= max(same.seconds - pause, fresh.seconds - pause) / 0.97
    assert known.sent_in_stop == 0


# --- bytes --------------------------------------------------------------------------------------


def learned(seed: int) -> tuple[Quota, float]:
    """Return a quota after a random walk, and the time."""
    quota, now = Quota(20, (Limit(30.0, 20.0),) if seed % 2 else (), probe=seed % 3 > 0), 0.0
    for time in walk(quota, seed, 300):
        now = time
    return quota, now


def same(one: object, two: object) -> bool:
    """Return whether two values are equal, except for the rounding of floats."""
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return one == pytest.approx(two, abs=1e-6)
    return one == two


@pytest.mark.parametrize("seed", range(20))
def test_memory_survives_a_round_trip(seed: int) -> None:
    """A quota restored from a memory makes the same memory."""
    quota, now = learned(seed)
    memory = quota.memory(now)
    other = Quota(20, quota._in_force.given)
    assert other.restore(memory, now + 1_000.0, 0.0)
    one, two = read(memory), read(other.memory(now + 1_000.0))
    assert one is not None
    assert two is not None
    assert same(msgspec.to_builtins(one.limits.announced), msgspec.to_builtins(two.limits.announced))
    assert same(msgspec.to_builtins(one.limits.counted), msgspec.to_builtins(two.limits.counted))
    assert same(msgspec.to_builtins(one.costs), msgspec.to_builtins(two.costs))
    assert same(msgspec.to_builtins(one.routes), msgspec.to_builtins(two.routes))
    assert same(msgspec.to_builtins(one.refusals), msgspec.to_builtins(two.refusals))
    assert one.doubtful == two.doubtful


def leaves(value: object, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Return the paths of all numbers in nested lists."""
    if isinstance(value, list):
        return [leaf for place, one in enumerate(value) for leaf in leaves(one, (*path, place))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


@given(
    st.integers(0, 7), st.integers(0, 10_000), st.sampled_from([nan, inf, -inf, 1e300, -1e300, "1", b"", {}])
)
def test_amount_out_of_range_is_ignored(seed: int, place: int, value: object) -> None:
    """A memory with one number that is no number, infinite, huge or text changes nothing."""
    quota, now = learned(seed)
    memory = msgspec.msgpack.decode(quota.memory(now))
    *path, last = leaves(memory)[place % len(leaves(memory))]
    inner = memory
    for step in path:
        inner = inner[step]
    inner[last] = value
    other = Quota()
    before = pickle.dumps(other)
    assert not other.restore(msgspec.msgpack.encode(memory), 5.0, 0.0)
    assert pickle.dumps(other) == before


Shown: TypeAlias = Literal["all", "numbers", "wait", "nothing", "nonsense"]
HIGHEST = 999_999_999_999_999.0  # number in a header


def shown(info: RateLimitInfo, what: Shown, rng: random.Random) -> RateLimitInfo:
    """Return the limit headers that a service sends of those that a server would send."""
    if what == "all":
        return info
    if what == "numbers":
        return msgspec.structs.replace(info, policies=())
    if what == "wait":
        return RateLimitInfo(retry_after=info.retry_after)
    if what == "nothing":
        return RateLimitInfo()
    limit, remaining, reset, wait, quota, window = rng.choices((None, 0.0, 1.0, 7.0, 1e3, 1e9, HIGHEST), k=6)
    policy = PolicyField(quota or 0.0, window or None, rng.choice((None, "a", "b")))
    return RateLimitInfo(limit, remaining, reset, wait, (policy,))


def answers(quota: Quota, server: Server, what: Shown, rng: random.Random) -> Iterator[float]:
    """Send requests as fast as a quota allows, and yield the time of each response."""
    flying, now = deque[tuple[float, Reservation, Response]](), 0.0
    for _ in range(1_000):
        route = rng.choice("ab")
        cost = quota.costs.price(route, None)
        decision = quota.decide(now, cost, route)
        if flying and flying[0][0] <= max(now, decision.when):
            at, reservation, response = flying.popleft()
            now = max(now, at)
            quota.answered(reservation, now, response.status, shown(response.info, what, rng), rng.random())
            yield now
        elif decision.when <= now:
            reservation = quota.send(decision, now, route, cost)
            flying.append((now + TRIP, reservation, server.answer(now, 1.0)))
            now += 0.001
        elif decision.when < 1e6:
            quota.wait(decision)
            now = decision.when
        else:
            return


@pytest.mark.parametrize("what", get_args(Shown))
@settings(max_examples=20)
@given(
    st.sampled_from([FromFirst, Clocked, SlidingLog, Counters, Bucket, Gcra]),
    st.sampled_from([1.0, 20.0, 1_000.0]),
    st.sampled_from([0.5, 1.3, 5.0, 60.0]),
    st.integers(0, 1_000),
)
@example(SlidingLog, 20.0, 5.0, 0)
@example(Gcra, 1_000.0, 60.0, 0)
def test_memory_can_be_read_whatever_a_service_answers(
    what: Shown, kind: Callable[[float, float], Server], limit: float, window: float, seed: int
) -> None:
    """After each response of any service, the memory of a quota can be made and restored."""
    quota, rng = Quota(30, (Limit(30.0, 20.0),) if seed % 4 == 3 else ()), random.Random(seed)
    for now in answers(quota, kind(limit, window), what, rng):
        assert Quota().restore(quota.memory(now), now, 0.0)


@pytest.mark.parametrize("memory", [b"", b"\xc0", b"\x90", b"no memory", bytes(100_000)])
def test_malformed_memory_is_ignored(memory: bytes) -> None:
    """Bytes that are no memory change nothing."""
    assert not Quota().restore(memory, 5.0, 0.0)


def test_memory_of_another_version_is_ignored() -> None:
    """A memory with another version, or with a field more or less, changes nothing."""
    memory = msgspec.msgpack.decode(Quota().memory(0.0))
    assert Quota().restore(msgspec.msgpack.encode(memory), 0.0, 0.0)
    for other in ([memory[0] + 1, *memory[1:]], [*memory, 1], memory[:-1]):
        assert not Quota().restore(msgspec.msgpack.encode(other), 0.0, 0.0)


@given(st.integers(0, 5), st.randoms(use_true_random=False))
def test_damaged_memory_does_not_stop_a_quota(seed: int, rng: random.Random) -> None:
    """After flipped bits a memory is ignored, or the quota works with it."""
    quota, now = learned(seed)
    memory = bytearray(quota.memory(now))
    for _ in range(rng.randint(1, 3)):
        memory[rng.randrange(len(memory))] ^= 1 << rng.randrange(8)
    other = Quota(20)
    other.restore(bytes(memory), 0.0, rng.choice([0.0, 100.0]))
    for time in walk(other, seed, 60):
        other.forecast(time, 1.0)
        other.snapshot(time, 0)
    assert read(other.memory(0.0)) is not None


def test_memory_is_small() -> None:
    """A memory has a few KiB, whatever the number of policies, routes and requests."""
    policies = tuple(PolicyField(10_000.0 + place, 60.0 + place, f"policy-{place}") for place in range(12))
    limits = tuple(ServiceLimit(one.name or "", 5_000.0, 9.0) for one in policies)
    quota, now = Quota(1_000), 0.0
    for number in range(3_000):
        route = f"/route/{number % 300}/" + "x" * (number % 200)
        decision = quota.decide(now, 1.0, route)
        if decision.when <= now:
            reservation = quota.send(decision, now, route, 1.0)
            info = RateLimitInfo(10_000.0, 10_000.0 - number, 60.0, None, policies, limits)
            status = 429 if number % 10 == 9 else 200
            quota.answered(reservation, now, status, info, 0.5)
        now += 0.05
    memory = quota.memory(now)
    assert read(memory) is not None
    assert len(memory) < 16_384


# --- the newest counts --------------------------------------------------------------------------


def stopped(seconds: float) -> bytes:
    """Return the memory of a quota that is stopped."""
    quota = Quota()
    quota.hold_back(seconds)
    return quota.memory(0.0)


async def test_older_memory_does_not_replace_a_newer_one() -> None:
    """Of several memories the newest counts, in whatever order they arrive."""
    gate = Gate()
    gate.restore(stopped(10.0), 5.0)
    gate.restore(stopped(90.0), 6.0)
    assert gate.stopped_for == pytest.approx(5.0)
    gate.restore(stopped(10.0), 2.0)
    assert gate.stopped_for == pytest.approx(8.0)


async def test_memory_does_not_replace_a_response() -> None:
    """A memory that arrives after a response counts no more."""
    gate = Gate()
    permit = await gate.acquire("/a")
    permit.answered(200, RateLimitInfo(100.0, 99.0, None, None, (PolicyField(100.0, 60.0),)))
    gate.restore(stopped(60.0), 0.0)
    assert gate.stopped_for == 0.0
    assert gate.snapshot().remaining == 99.0


async def test_memory_leads_to_one_probe() -> None:
    """After a memory one request leaves, and the others follow its response at once."""
    gate, info = Gate(), RateLimitInfo(100.0, 99.0, None, None, (PolicyField(100.0, 60.0),))
    for _ in range(3):
        (await gate.acquire("/a")).answered(200, info)
    other = Gate()
    other.restore(gate.memory(), 0.5)
    probe = await other.acquire("/a")
    waiting = [asyncio.create_task(other.acquire("/a")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    probe.answered(200, info)
    for permit in await asyncio.gather(*waiting):
        permit.unsent()
