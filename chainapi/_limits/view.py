"""Limits as people set and see them: plans, snapshots of a quota, estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Annotated, Any

import msgspec
from attrs import asdict, evolve, field, frozen
from msgspec import Meta

from chainapi.core.arguments import boolean, whole_number
from chainapi.core.duration import DAY, HOUR, MINUTE
from chainapi.core.numbers import is_number
from chainapi.errors import ConfigurationError

__all__ = [
    "PLANS",
    "Estimate",
    "Limit",
    "QuotaSnapshot",
    "Spender",
    "estimate",
    "limits_of",
    "plan_limits",
    "seconds_left",
    "whole",
]

# Published plans: units a minute and a day of the Data API. The Metrics API has one limit for all of them.
PLANS: Mapping[str, tuple[float, float]] = {
    "unauthenticated": (6_000.0, 1_200_000.0),
    "free": (8_000.0, 2_000_000.0),
    "base": (10_000.0, 3_750_000.0),
    "growth": (14_000.0, 11_200_000.0),
    "pro": (20_000.0, 25_000_000.0),
}
METRICS = (8_000.0, 1_200_000.0)

MOST_ROWS = 10**15  # no list has more, and floats have all whole numbers up to it
_POLICIES = {1.0: "quota a second", MINUTE: "quota a minute", HOUR: "hourly quota", DAY: "daily quota"}

Amount = Annotated[float, Meta(ge=0)]
Number = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=1024)]


# --- limits that people set ---


@frozen
class Limit:
    """Limit of `amount` requests in any `per` seconds; with `units`, of quota units.

    Less than one request is a whole one in a longer time: 0.5 in 60 seconds is one in 120. A request
    counts as one whatever its route costs, also beside a service that announces units. A limit of a published
    `plan` holds until responses contradict the plan.

    Raises:
        ConfigurationError: if one of them is not a finite number above 0.

    """

    amount: float
    per: float = 60.0
    units: bool = field(default=False, kw_only=True)
    plan: str = field(default="", kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name, value in (("amount", self.amount), ("per", self.per)):
            if not is_number(value) or not 0 < value < inf:
                raise ConfigurationError(f"Limit {name}={value!r} must be a finite number above 0")
        boolean("Limit units", self.units)


def whole(limit: Limit) -> tuple[float, float]:
    """Return amount and seconds of a limit; a part of a request is a whole one later."""
    if limit.units or limit.amount >= 1:
        return limit.amount, limit.per
    return 1.0, limit.per / limit.amount


def limits_of(name: str, given: Any) -> tuple[Limit, ...]:
    """Return an argument that is a sequence of limits.

    Raises:
        ConfigurationError: it is something else.

    """
    if isinstance(given, Sequence) and all(isinstance(limit, Limit) for limit in given):
        return tuple(given)
    raise ConfigurationError(f"{name} must be a sequence of Limit")


def plan_limits(service: str, plan: str) -> tuple[Limit, ...]:
    """Return the limits of a published plan for "data" or "metrics"."""
    windows = zip(PLANS[plan] if service == "data" else METRICS, (MINUTE, DAY), strict=True)
    return tuple(Limit(amount, seconds, units=True, plan=plan) for amount, seconds in windows)


# --- what people see of a quota ---


@frozen
class Spender:
    """Requests and units of one process and tag, since the gate began.

    Attributes:
        process: name of the process, if several share the quota; else "".
        tag: the ``tag=`` of the call or of its session; "" without one.
        requests: requests that were sent and ended.
        units: units that the service charged for them, as far as their costs are known.
        refusals: those among the requests that the service refused with 429.
        in_flight: requests without a response.
        waiting: requests that wait for quota.

    """

    process: Text
    tag: Text
    requests: Number = 0
    units: Amount = 0.0
    refusals: Number = 0
    in_flight: Number = 0
    waiting: Number = 0


@frozen
class QuotaSnapshot:
    """Snapshot of a quota at `time`.

    Amounts are units, or requests if the service counts requests, or if a `Limit` counts them. Times
    are seconds on the event loop's clock.

    Attributes:
        time: time of the snapshot.
        limit: greatest amount in a window; None if unknown.
        remaining: amount that the last response reported, less what was spent since, and with what is
            predicted to be back at `time`; requests in flight count as left. None if unknown.
        window: length of the window in seconds; None if unknown.
        stopped_for: seconds until requests may leave again after a refusal; 0 without a stop.
        reset_in: predicted seconds until quota comes back; None while requests may leave, and if unknown.
        costs: amounts that a request costs, by route, as learned.
        waiting: number of requests that wait for quota.
        in_flight: number of requests without a response.
        unix_time: `time` as Unix time in seconds; None if unknown.
        spenders: who spent the quota: each process and tag since the gate began, those with the most units
            first.
        counts_requests: whether limit and remaining count requests, whatever these cost: while a `Limit` of
            the session holds requests back.
        plan: name of the published plan that counts; empty without one.

    """

    time: float = 0.0
    limit: Amount | None = None
    remaining: Amount | None = None
    window: Amount | None = None
    stopped_for: Amount = 0.0
    reset_in: Amount | None = None
    costs: Mapping[Text, Amount] = field(factory=dict[str, float])
    waiting: Number = 0
    in_flight: Number = 0
    unix_time: float | None = None
    spenders: tuple[Spender, ...] = ()
    counts_requests: bool = False
    plan: Text = ""

    @property
    def back_at(self) -> float | None:
        """Predicted Unix time when quota is back; None if it, or the time, is unknown."""
        return None if self.unix_time is None or self.reset_in is None else self.unix_time + self.reset_in

    @property
    def policy(self) -> str:
        """Policy in words, such as "daily quota"; "quota" if its window is unknown."""
        if self.window is None:
            return "quota"
        return _POLICIES.get(self.window, f"quota of {self.window:g} s")

    def at(self, time: float, unix_time: float) -> QuotaSnapshot:
        """Return the snapshot at a later time, if nothing happens until then."""
        passed = time - self.time
        reset = None if self.reset_in is None else max(0.0, self.reset_in - passed)
        stop = max(0.0, self.stopped_for - passed)
        return evolve(self, time=time, unix_time=unix_time, stopped_for=stop, reset_in=reset)

    def to_json(self) -> bytes:
        """Return the snapshot as a JSON object; its times are seconds from now."""
        state = asdict(self, recurse=False)
        del state["time"], state["unix_time"]
        return msgspec.json.encode(state)

    @classmethod
    def from_json(cls, text: bytes, time: float, unix_time: float | None = None) -> QuotaSnapshot:
        """Return the snapshot of a `to_json`; `time` is now on the reader's clock.

        Raises:
            ValueError: the text is not a snapshot.

        """
        try:
            return evolve(msgspec.json.decode(text, type=cls), time=time, unix_time=unix_time)
        except msgspec.DecodeError as error:
            raise ValueError(f"malformed snapshot of a quota: {error}") from None


# --- estimates ---


@frozen
class Estimate:
    """Estimate for a list.

    Attributes:
        requests: number of requests.
        units: their cost, in the units of the limits; None if the price of a request is unknown.
        minutes: least duration under the limits; 0 if they allow all requests at once. None without a limit,
            or if all limits are of units and the price of a request is unknown.
        day_share: share of what is allowed per day, 1 for all; None without a limit per day that tells it.

    """

    requests: int
    units: float | None
    minutes: float | None
    day_share: float | None = None


def estimate(rows: int, page_size: int, price: float | None, limits: Sequence[Limit] = ()) -> Estimate:
    """Estimate `rows` rows in pages of `page_size`, at `price` units a request.

    The `price` is None if it is unknown.

    Raises:
        ConfigurationError: a number is not whole, not above 0 or too large, or one request costs more than a
            limit.

    """
    for name, number in (("rows", rows), ("page_size", page_size)):
        whole_number(name, number, 1, MOST_ROWS)
    requests = ceil(rows / page_size)
    priced = [(limit, price if limit.units else 1.0) for limit in limits]
    known = [(limit, each) for limit, each in priced if each is not None]
    seconds = [_seconds(limit, requests, each) for limit, each in known]
    shares = [requests * each * limit.per / (limit.amount * DAY) for limit, each in known if limit.per >= DAY]
    return Estimate(
        requests,
        None if price is None else requests * price,
        max(seconds) / MINUTE if seconds else None,
        max(shares, default=None),
    )


def seconds_left(requests: float, price: float | None, quota: QuotaSnapshot) -> float:
    """Return the least seconds until the last of some requests may leave.

    They leave by a quota as it is known now; without a known quota or price only a stop counts.
    """
    price = 1.0 if quota.counts_requests else price
    stop = quota.stopped_for
    if price is None or quota.remaining is None or not quota.limit or not quota.window:
        return stop
    lacking = requests * price - quota.remaining
    if lacking <= 0:
        return stop
    back = quota.window if quota.reset_in is None else quota.reset_in
    return max(stop, back) + (ceil(lacking / quota.limit) - 1) * quota.window


def _seconds(limit: Limit, requests: int, price: float) -> float:
    """Return the least duration of the requests under a limit, with full windows."""
    if price <= 0:
        return 0.0
    amount, seconds = whole(limit)
    fitting = int(amount // price)
    if fitting < 1:
        raise ConfigurationError(
            f"a request costs {price:g} units: more than {limit.amount:g} in {limit.per:g} s; give limits in"
            " units, as the plan has them"
        )
    return float((ceil(requests / fitting) - 1) * seconds)
