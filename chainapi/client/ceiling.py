"""Ceiling of a session: a token bucket for its requests, besides the quota."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from chainapi._limits.view import Limit

__all__ = ["Ceiling", "is_rate"]

HALVINGS = 24  # of a bucket's size: the precision with which its tokens are found


class Ceiling:
    """Ceiling given as `rate`.

    It counts requests, or units if it is a `Limit` with ``units=True``.
    """

    def __init__(self, rate: Limit | AsyncLimiter) -> None:
        self._bucket = _bucket(rate)
        self._counts_units: bool = getattr(rate, "units", False)  # an AsyncLimiter counts requests

    def toll(self, units: float, requests: float = 1.0) -> float:
        """Return the tokens that requests with `units` units of the quota cost."""
        return units if self._counts_units else requests

    def ready(self, toll: float) -> bool:
        """Return whether it has the tokens now, or as many as it can have."""
        return self._bucket.has_capacity(min(toll, self._bucket.max_rate))

    def wait(self, toll: float) -> float:
        """Return the seconds until it has the tokens if nobody else takes any."""
        bucket = self._bucket
        if toll <= bucket.max_rate and bucket.has_capacity(toll):
            return 0.0
        return (toll - self._tokens()) * bucket.time_period / bucket.max_rate

    def _tokens(self) -> float:
        """Return the tokens that it has.

        An `AsyncLimiter` only says whether it has a number of them.
        """
        tokens = step = self._bucket.max_rate
        if self._bucket.has_capacity(tokens):
            return tokens
        tokens = 0.0
        for _ in range(HALVINGS):
            step /= 2.0
            if self._bucket.has_capacity(tokens + step):
                tokens += step
        return tokens

    async def pay(self, toll: float) -> None:
        """Wait for the tokens and take them, in parts if they are more than it holds."""
        while toll > 1e-9:
            part = min(toll, self._bucket.max_rate)
            await self._bucket.acquire(part)
            toll -= part


def is_rate(value: object) -> bool:
    """Return whether a value can be a gate's `rate`; does not import aiolimiter."""
    from chainapi._limits.view import Limit  # imported here, because most sessions have no ceiling

    if isinstance(value, Limit):
        return True
    aiolimiter = sys.modules.get("aiolimiter")
    return aiolimiter is not None and isinstance(value, aiolimiter.AsyncLimiter)


def _bucket(rate: Limit | AsyncLimiter) -> AsyncLimiter:
    from aiolimiter import AsyncLimiter  # imported here, likewise

    from chainapi._limits.view import whole

    if isinstance(rate, AsyncLimiter):
        return rate
    return AsyncLimiter(*whole(rate))  # a bucket must hold a whole request
