"""Published plans: their windows and weights, what shows them, and answers that contradict them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chainapi import Limit, LimiterOptions, Session
from chainapi.errors import ConfigurationError
from chainapi.events import Event, PlanContradicted
from tests.limits.counting import Service, time
from tests.sessions import Answering, reaching

PLANS = "unauthenticated, free, base, growth, pro"
TOKEN = "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E"


def announcing(price: float, **headers: str) -> Service:
    """Return a service that announces a limit, and counts `price` units for each request."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Service(
        trip=0.0, odd=lambda number: (200, {**fields, "ratelimit-remaining": f"{8_000 - price * number:g}"})
    )


async def walked(service: Service, times: int, **options: Any) -> tuple[str, list[Event]]:
    """Return the plan that `quota` shows after some calls of 10 units each, and the events of plans."""
    events: list[Event] = []
    session = reaching(
        service, on_event=events.append, limiter=LimiterOptions(isolated=True), **{"plan": "free", **options}
    )
    async with session:
        for _ in range(times):
            await anext(session.data.evm.blocks(43114))
            await asyncio.sleep(0.1)
        shown = session.quota["data"].plan
    return shown, [event for event in events if isinstance(event, PlanContradicted)]


async def test_a_plan_sets_both_windows_and_the_weights() -> None:
    """Without any header units of a minute, and of a day, are never exceeded; each route has its weight."""
    async with reaching(Answering(b'{"addresses": []}'), plan="pro") as session:  # 1,000 units a request
        for count, seconds in ((8, 0), (1, 60), (1_191, 149 * 60), (1, 86_400)):
            for _ in range(count):
                await anext(session.metrics.chains.token_holders(43114, TOKEN, threshold="1"))
            assert time() == pytest.approx(seconds, abs=0.1, rel=0.001)


async def test_a_plan_is_shown() -> None:
    """`quota` has the plan and what is left of it; estimates count it."""
    async with reaching(Answering(b'{"blocks": []}'), plan="free") as session:
        estimate = session.data.evm.blocks(43114).estimate(rows=1_000_000)
        assert (estimate.units, estimate.minutes, estimate.day_share) == (100_000, 12, 0.05)
        await anext(session.data.evm.blocks(43114))
        quota = session.quota["data"]
        assert (quota.plan, quota.limit, quota.window, quota.remaining) == ("free", 8_000, 60, 7_990)
        assert session.quota["metrics"].plan == "free"


def test_plans_by_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may be one for both services or one for each, from the argument or CHAINAPI_PLAN."""

    def minutes(**options: Any) -> tuple[float | None, float | None]:
        session = reaching(Answering(), **options)
        metric = session.metrics.chains.metric(43114, "txCount").estimate(rows=8_100, page_size=1)
        return session.data.evm.blocks(43114).estimate(rows=400_100).minutes, metric.minutes

    assert minutes() == (None, None)
    assert minutes(plan="pro") == (2, 101)
    assert minutes(plan={"data": "unauthenticated"}) == (6, None)
    assert minutes(plan={"data": "growth", "metrics": "base"}) == (2, 101)
    assert minutes(plan="pro", limits={"data": [Limit(1, per=60.0)]}) == (4_000, 101), "both hold"
    monkeypatch.setenv("CHAINAPI_PLAN", "base")
    assert minutes() == (4, 101)
    assert minutes(plan={"data": "pro"}) == (2, None), "the argument comes first"


def test_an_unknown_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no plan has is refused when the session is made, with the names."""
    for plan in list[Any](["gold", "", 5, ["free"], {"data": "gold"}, {"data": None}, {"webhooks": "free"}]):
        with pytest.raises(ConfigurationError, match=f"^plan=.*{PLANS}"):
            Session(plan=plan)
    monkeypatch.setenv("CHAINAPI_PLAN", "gold")
    with pytest.raises(ConfigurationError, match=f"^CHAINAPI_PLAN='gold' .*{PLANS}"):
        Session()


MINUTE = {"ratelimit_policy": "8000;w=60", "ratelimit_limit": "8000"}  # that of the plan


@pytest.mark.parametrize(
    ("headers", "price", "contradicted"),
    [
        ({"ratelimit_policy": "20000;w=60", "ratelimit_limit": "20000"}, 10, (20_000, 60)),
        ({"ratelimit_policy": "100;w=1, 9000000;w=86400"}, 10, (9_000_000, 86_400)),
        ({"ratelimit_limit": "300"}, 10, (300, None)),
        ({"ratelimit": "limit=300, remaining=5, reset=9"}, 10, (300, None)),
        ({"ratelimit": '"a";r=5;t=9', "ratelimit_policy": '"a";q=90;w=60'}, 10, (90, 60)),
        (MINUTE, 1, (8_000, 60)),  # what remains falls by one a request: these are no units of the plan
        ({}, 10, None),
        (MINUTE, 10, None),
        ({"ratelimit_limit": "2000000"}, 10, None),
        ({"ratelimit_policy": "100;w=1, 8000;w=60"}, 10, None),
        ({"ratelimit_policy": '"free"'}, 10, None),
    ],
)
async def test_a_plan_that_a_limit_contradicts_is_dropped(
    headers: dict[str, str], price: float, contradicted: tuple[float, float | None] | None
) -> None:
    """Another amount for the same window, or for one without a length, ends the plan with one event.

    Its own limits, those of other windows and names contradict nothing.
    """
    shown, events = await walked(
        announcing(price, **headers), 30 if contradicted in (None, (8_000, 60)) else 5
    )
    assert shown == ("free" if contradicted is None else "")
    assert events == ([] if contradicted is None else [PlanContradicted("data", "free", *contradicted)])


async def test_what_was_announced_counts_after_a_plan() -> None:
    """A larger plan than the named one is used whole as soon as the first response shows it."""
    service = announcing(0, ratelimit_policy="1000000;w=60", ratelimit_limit="1000000")
    async with reaching(service, plan="free", limiter=LimiterOptions(isolated=True)) as session:
        for _ in range(1_000):  # 10,000 units
            await anext(session.data.evm.blocks(43114))
        assert time() < 30


async def test_other_plans_and_limits_stay() -> None:
    """Sessions of one gate may name several plans: each is judged by itself, and own limits hold on."""
    service = announcing(10, ratelimit_policy="20000;w=60")
    events: list[Event] = []
    options: dict[str, Any] = {"on_event": events.append, "limits": {"data": [Limit(2, per=10.0)]}}
    async with reaching(service, plan="free", **options) as one, reaching(service, plan="pro") as two:
        for _ in range(5):
            await anext(one.data.evm.blocks(43114))
        assert two.quota["data"].plan == "pro"
        assert time() == pytest.approx(20, abs=0.5)
    assert sum(isinstance(event, PlanContradicted) for event in events) == 1
