"""Calls that need not wait: they skip the commands of the flow, with the same results."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from attrs import define, evolve, field, fields_dict, frozen
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import chainapi
from chainapi import Session
from chainapi.client.config import ServiceConfig
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.client.permit import AnyGate
from chainapi.core.call import Call, CallOptions, GivenUp
from chainapi.core.events import Event
from chainapi.core.idempotency import Idempotency
from chainapi.core.retry import RetryPolicy
from chainapi.core.url import Query
from chainapi.errors import APIConnectionError, ChainAPIError, ConnectError
from chainapi.models.codec import decode_resource
from chainapi.simulator import Simulator
from chainapi.testing import run
from chainapi.transport import Request, Response
from tests.sessions import simulated

PACKAGE = str(Path(chainapi.__file__).parent)


class Asking(Gate):
    """Gate at which every request waits for its turn, and the turn comes at once."""

    def acquire_now(self, route: str, *, cost: float | None, member: Member, tag: str | None = None) -> None:
        """Return None: the turn comes later."""


@frozen
class Gates:
    """Source of one gate."""

    gate: Gate

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """Return the gate."""
        return self.gate

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """Do nothing."""


Answer = tuple[float, Response | Exception]


@define
class Scripted:
    """Transport that answers each attempt of a call, known by its path, from the script of the call."""

    scripts: Sequence[Sequence[Answer]]
    sent: list[tuple[str, float]] = field(factory=list[tuple[str, float]])

    async def send(self, request: Request) -> Response:
        """Answer after some seconds."""
        self.sent.append((request.url, round(asyncio.get_running_loop().time(), 4)))
        script = self.scripts[int(request.url.rpartition("/")[2])]
        attempts = sum(url == request.url for url, _ in self.sent)
        seconds, answer = script[min(attempts, len(script)) - 1]
        await asyncio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Do nothing."""


@frozen
class Plan:
    """Call of a script, with its answers and options; `cancel` and `dead` count from its beginning."""

    begins: float
    answers: Sequence[Answer]
    options: CallOptions
    query: Query
    cancel: float | None
    dead: float
    needed: int


@define
class Seen:
    """Everything that callers, listeners and people see of the calls."""

    ends: list[object] = field(factory=list[object])
    events: dict[object, list[object]] = field(factory=dict[object, list[object]])
    sent: list[tuple[str, float]] = field(factory=list[tuple[str, float]])
    quota: object = None
    budget: float = 0.0

    def take(self, event: Event) -> None:
        """Take an event; those of one call keep their order."""
        self.events.setdefault(getattr(event, "where", ""), []).append(shown(event))


async def play(plans: Sequence[Plan], closes: float | None, gate: Gate) -> Seen:
    """Make the calls, and return what is seen of them."""
    seen, transport = Seen(), Scripted([plan.answers for plan in plans])
    session = Session(
        data_base_url="https://data.test",
        api_key="key",
        transport=transport,
        on_event=seen.take,
    )
    connection = session.connection
    connection.settings.jitter = lambda: 0.5
    connection.gates = Gates(gate)
    service = connection.service("data")
    loop = asyncio.get_running_loop()

    async def call(number: int, plan: Plan) -> object:
        left = iter(range(plan.needed))
        await asyncio.sleep(plan.begins)
        try:
            made = Call(
                replace(plan.query, path=f"/{number}"),
                not_after=loop.time() + plan.dead,
                needed=lambda: next(left, None) is not None,
                options=plan.options,
            )
            result, exchange = await connection.call(service, made, decode_resource)
        except (ChainAPIError, GivenUp) as error:
            cause = error.__cause__
            return type(error), str(error), type(cause), str(cause), round(loop.time(), 4)
        return result, exchange.verdict, exchange.limits, round(exchange.sent.at, 4), round(loop.time(), 4)

    async def cancelled(task: asyncio.Task[object]) -> object:
        try:
            return await task
        except asyncio.CancelledError:
            return "cancelled", round(loop.time(), 4)

    tasks = [loop.create_task(call(number, plan)) for number, plan in enumerate(plans)]
    for task, plan in zip(tasks, plans, strict=True):
        if plan.cancel is not None:
            loop.call_later(plan.begins + plan.cancel, task.cancel)
    if closes is not None:
        loop.call_later(closes, lambda: loop.create_task(session.aclose()))
    seen.ends = list(await asyncio.gather(*(cancelled(task) for task in tasks)))
    seen.quota = rounded(evolve(gate.snapshot(), unix_time=None))
    seen.sent, seen.budget = transport.sent, connection.settings.budget.level
    await session.aclose()
    return seen


def shown(event: Event) -> object:
    """Return an event without its number of a call, which differs."""
    values = rounded(event)
    values.pop("call", None)
    return type(event).__name__, values


def rounded(value: Any) -> dict[str, object]:
    """Return the attributes of an object, numbers rounded: each turn of the loop takes a little time."""
    values = {name: getattr(value, name) for name in fields_dict(type(value))}
    return {name: round(one, 4) if isinstance(one, float) else one for name, one in values.items()}


TOLD = {"ratelimit-policy": "8;w=30", "ratelimit-limit": "8"}
ANSWERS = st.sampled_from(
    (
        Response(200, {}, b"{}"),
        Response(200, {**TOLD, "ratelimit-remaining": "7"}, b"[1]"),
        Response(200, {**TOLD, "ratelimit-remaining": "1"}, b"{}"),
        Response(204, {}, b""),
        Response(200, {}, b" "),
        Response(200, {}, b"<html>"),
        Response(200, {}, b'{"a":'),
        Response(302, {"location": "/y"}, b""),
        Response(400, {}, b'{"message": "wrong"}'),
        Response(404, {}, b"{}"),
        Response(429, {**TOLD, "ratelimit-remaining": "0", "retry-after": "2"}, b"{}"),
        Response(429, {}, b"{}"),
        Response(500, {}, b"{}"),
        Response(503, {"retry-after": "3"}, b"{}"),
        APIConnectionError("broken"),
        ConnectError("cannot connect"),
        TimeoutError(),
    )
)
QUERIES = st.sampled_from(
    (
        Query("/", route="a", cost=2.0),
        Query("/", route="b"),
        Query("/", route="c", method="DELETE", idempotency=Idempotency.IDEMPOTENT, bodiless=True),
        Query("/", route="d", method="POST", body=b"{}", idempotency=Idempotency.NON_IDEMPOTENT),
    )
)
OPTIONS = st.builds(
    lambda timeout, attempts, max_wait, deadline: CallOptions(
        timeout, RetryPolicy(attempts), max_wait, deadline
    ),
    st.sampled_from((0.75, 30.0)),
    st.sampled_from((1, 3)),
    st.sampled_from((None, 0.0, 5.0)),
    st.sampled_from((None, 0.75, 1.13, 4.13)),
)
PLANS = st.builds(
    Plan,
    begins=st.sampled_from((0.0, 0.0, 0.53, 1.07)),
    answers=st.lists(st.tuples(st.sampled_from((0.0, 0.41, 0.97)), ANSWERS), min_size=1, max_size=3),
    options=OPTIONS,
    query=QUERIES,
    cancel=st.sampled_from((None, None, 0.0, 0.31, 2.33)),
    dead=st.sampled_from((1e9, 1e9, 0.0, 1.51)),
    needed=st.sampled_from((9, 9, 0, 1)),
)


@given(st.lists(PLANS, min_size=1, max_size=4), st.sampled_from((None, None, 0.19, 2.71)))
def test_calls_end_as_with_the_commands_of_the_flow(plans: list[Plan], closes: float | None) -> None:
    """Results, errors, events, requests, quota and times are the same with and without commands."""
    straight = run(play(plans, closes, Gate(random=lambda: 0.5)))
    assert straight == run(play(plans, closes, Asking(random=lambda: 0.5)))


@pytest.mark.untraced
def test_a_page_takes_few_calls() -> None:
    """A page of a walk that need not wait takes at most 145 calls of functions of the package."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        path = frame.f_code.co_filename
        counted += event == "call" and PACKAGE in path and "simulator" not in path and "testing" not in path

    async def calls(pages: int) -> int:
        nonlocal counted
        async with simulated(Simulator(rows=1_000)) as session:
            stream = session.data.evm.blocks(43114, page_size=10)
            await anext(stream)
            counted = 0
            sys.setprofile(count)
            try:
                for _ in range(pages):
                    await anext(stream)
            finally:
                sys.setprofile(None)
        return counted

    assert (run(calls(40)) - run(calls(20))) / 20 <= 145
