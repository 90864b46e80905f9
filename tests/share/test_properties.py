"""The promises of a gate, held by a gate in the process and by one behind messages alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

import pytest
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Limit
from chainapi._limits.gate import Ask, Gate, Member, Permit
from chainapi._limits.verdict import Verdict
from chainapi.share.participant import SharedGate
from chainapi.share.permits import SharedPermit
from chainapi.testing import run as in_virtual_time
from tests.share.exchange import Exchange, ExchangeCarrier
from tests.share.responses import end as report
from tests.share.responses import headers

pytestmark = pytest.mark.rule

NAMES = "abcd"


def members() -> dict[str, Member]:
    """Return four sessions: one without limits of its own, and three with."""
    return {
        "a": Member(),
        "b": Member(max_in_flight=1),
        "c": Member(rate=Limit(5, per=1.0)),
        "d": Member(rate=Limit(3, per=1.0, units=True), max_in_flight=2),
    }


@define(eq=False)
class Gates:
    """A way to one gate for four sessions."""

    acquire: Callable[..., Awaitable[Permit | SharedPermit]]
    host: Callable[[], Gate]
    aclose: Callable[[], Awaitable[None]]


async def direct() -> Gates:
    """Return the gate itself."""
    gate, known = Gate(random=lambda: 0.5), members()
    for member in known.values():
        gate.join(member)

    async def acquire(name: str, priority: int) -> Permit:
        return await gate.acquire(Ask(f"/{name}", priority=priority), known[name])

    async def aclose() -> None:
        pass

    return Gates(acquire, lambda: gate, aclose)


async def through(number: int, delay: float) -> Gates:
    """Return a gate behind messages, for the sessions of some processes."""
    exchange, known = Exchange(delay), members()
    carriers: list[ExchangeCarrier] = [exchange.carrier() for _ in range(number)]
    gates = [SharedGate("quota", "https://data.test", carrier, "fail") for carrier in carriers]
    homes = {name: gates[place % number] for place, name in enumerate(known)}
    for name, member in known.items():
        homes[name].join(member)

    async def acquire(name: str, priority: int) -> SharedPermit | Permit:
        return await homes[name].acquire(Ask(f"/{name}", priority=priority), known[name])

    async def aclose() -> None:
        for name, member in known.items():
            homes[name].leave(member)
        for gate in gates:
            await gate.aclose()

    return Gates(acquire, lambda: exchange.gate("quota"), aclose)


WAYS: dict[str, Callable[[], Awaitable[Gates]]] = {
    "direct": direct,
    "one process": lambda: through(1, 0.0),
    "three processes": lambda: through(3, 0.002),
}

Step = tuple[str, int, float, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 1),
        st.floats(0.0, 0.4),
        st.sampled_from(("answer", "answer", "answer", "refuse", "lose", "cancel", "unsent")),
    ),
    min_size=1,
    max_size=50,
)

# A refusal comes between the grant of the first request of "b" and its departure; the second one waits.
GRANTED_BEFORE_A_STOP: list[Step] = [
    ("a", 0, 0.0, "lose"),
    ("a", 1, 0.0, "answer"),
    ("a", 1, 0.0, "refuse"),
    ("b", 1, 0.0, "answer"),
    ("b", 1, 0.0, "answer"),
]
# A request that pays a ceiling waits in a stop.
PAYING: list[Step] = [*[("a", 0, 0.0, "answer")] * 2, ("a", 1, 0.0, "refuse"), ("c", 1, 0.0, "answer")]
# The gate learns a price of 50 units for the requests of "d".
DEAR: list[Step] = [("a", 0, 0.0, "answer"), ("b", 0, 0.0, "refuse"), *[("d", 0, 0.0, "answer")] * 2]
# Requests of a session that pays a ceiling are cancelled while others wait behind them.
CANCELLED: list[list[Step]] = [
    [("a", 0, 0.0, "answer"), ("c", 0, 0.0, "cancel"), ("c", 0, 0.0, "answer"), ("c", 0, 0.0, "answer")],
    [
        *[
            ("a", 0, 0.0, "answer"),
            ("a", 0, 0.125, "answer"),
            ("c", 0, 0.0, "answer"),
            ("a", 0, 0.0, "cancel"),
        ],
        *[("c", 1, 0.0, "answer"), ("c", 1, 0.0, "answer")],
    ],
]


@define(eq=False)
class Play:
    """Random requests of four sessions: what became of them."""

    gates: Gates
    delay: float  # seconds after which a refusal is surely known everywhere
    order: dict[tuple[str, int], list[int]] = field(factory=dict)
    in_flight: dict[str, int] = field(factory=lambda: dict.fromkeys(NAMES, 0))
    stopped_until: float = -inf
    served: set[int] = field(factory=set)

    async def call(self, number: int, name: str, priority: int, end: str) -> None:
        """Send one request, which ends in some way."""
        now = asyncio.get_running_loop().time
        permit = await self.gates.acquire(name, priority)
        assert now() >= self.stopped_until
        self.order.setdefault((name, priority), []).append(number)
        self.in_flight[name] += 1
        assert self.in_flight["b"] <= 1
        assert self.in_flight["d"] <= 2
        try:
            await asyncio.sleep(0.1)
            if end == "lose":
                permit.lost()
            elif end == "unsent":
                permit.unsent()
            else:
                await self.answer(permit, 429 if end == "refuse" else 200)
            self.served.add(number)
        finally:
            self.in_flight[name] -= 1
            permit.lost()

    async def answer(self, permit: Permit | SharedPermit, status: int) -> None:
        """Report a response of a service with 100 units a minute."""
        now = asyncio.get_running_loop().time
        wait = 3.0 if status == 429 else None
        if status == 429 and self.delay:
            # Until the message of the stop arrives, other processes may send what was granted.
            asyncio.get_running_loop().call_later(self.delay, self.stop, now() + 3.0)
        elif status == 429:
            self.stop(now() + 3.0)
        verdict = await report(permit, status, headers(0.0 if wait else 50.0, wait))
        assert (verdict is Verdict.PASSED) == (status == 200)

    def stop(self, until: float) -> None:
        """Note that nothing may leave."""
        self.stopped_until = max(self.stopped_until, until)


@pytest.mark.parametrize(
    ("way", "delay"), [("direct", 0.0), ("one process", 1e-6), ("three processes", 0.005)]
)
@settings(max_examples=25)
@given(steps=STEPS)
@example(steps=GRANTED_BEFORE_A_STOP)
@example(steps=PAYING)
@example(steps=DEAR)
@example(steps=CANCELLED[0])
@example(steps=CANCELLED[1])
def test_every_way_to_a_gate_keeps_its_promises(way: str, delay: float, steps: list[Step]) -> None:
    """Random requests keep order, stops and limits; none is lost, and no permit or place stays behind."""

    async def run() -> None:
        play = Play(await WAYS[way](), delay)
        tasks = []
        for number, (name, priority, pause, end) in enumerate(steps):
            tasks.append(asyncio.create_task(play.call(number, name, priority, end)))
            await asyncio.sleep(pause)
            if end == "cancel":
                tasks[number // 2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one for one in results if isinstance(one, Exception)] == []
        assert play.served >= {number for number, task in enumerate(tasks) if not task.cancelled()}
        assert all(numbers == sorted(numbers) for numbers in play.order.values())
        await asyncio.sleep(1)
        state = play.gates.host().snapshot()
        assert (state.waiting, state.in_flight) == (0, 0)
        async with asyncio.timeout(200):  # all places are free again; "d" may pay 50 units, three a second
            for name in NAMES:
                await play.answer(await play.gates.acquire(name, 0), 200)
            for permit in [await play.gates.acquire("d", 0) for _ in range(2)]:
                permit.unsent()
        await play.gates.aclose()

    in_virtual_time(run())
