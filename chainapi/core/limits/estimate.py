"""Estimate of requests, units and time for some rows; sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from attrs import frozen

from chainapi.core.arguments import whole_number
from chainapi.core.duration import DAY, MINUTE
from chainapi.core.limits.limit import Limit, whole
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.errors import ConfigurationError

__all__ = ["Estimate", "estimate", "seconds_left"]

MOST = 10**15  # rows; no list has more, and floats have all whole numbers up to it


@frozen
class Estimate:
    """Estimate of a walk.

    Attributes:
        requests: number of requests.
        units: their cost, in the units of the limits.
        minutes: least duration under the limits; 0 if they allow all requests at once.
        day_share: share of what is allowed per day, 1 for all; None without a limit per day.

    """

    requests: int
    units: float
    minutes: float
    day_share: float | None = None


def estimate(rows: int, page_size: int, price: float, limits: Sequence[Limit] = ()) -> Estimate:
    """Estimate `rows` rows in pages of `page_size`, at `price` units a request.

    Raises:
        ConfigurationError: a number is not whole, not above 0 or too large, or one request costs more than a
            limit.

    """
    for name, number in (("rows", rows), ("page_size", page_size)):
        whole_number(name, number, 1, MOST)
    requests = ceil(rows / page_size)
    units = requests * price
    seconds = max((_seconds(limit, requests, price) for limit in limits), default=0.0)
    shares = [
        (units if limit.units else requests) * limit.per / (limit.amount * DAY)
        for limit in limits
        if limit.per >= DAY
    ]
    return Estimate(requests, units, seconds / MINUTE, max(shares, default=None))


def seconds_left(requests: float, price: float, quota: QuotaSnapshot) -> float:
    """Return the least seconds until the last of some requests may leave.

    They leave by a quota as it is known now; without a known quota only a stop counts.
    """
    price = 1.0 if quota.requests else price
    stop = quota.stopped_for
    if quota.remaining is None or not quota.limit or not quota.window:
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
    fitting = int(amount // price if limit.units else amount)
    if fitting < 1:
        raise ConfigurationError(
            f"a request costs {price:g} units: more than {limit.amount:g} in {limit.per:g} s; give limits in"
            " units, as the plan has them"
        )
    return float((ceil(requests / fitting) - 1) * seconds)
