"""Quota information of a response, as its headers give it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["PolicyField", "RateLimitInfo", "ServiceLimit", "hold"]


class PolicyField(Struct, frozen=True):
    """Announced rate-limit policy: `quota` units in `window` seconds.

    A quota of 0 stays as sent; a window of 0, or a malformed one, is None as if it were absent.
    """

    quota: float
    window: float | None = None
    name: str | None = None


class ServiceLimit(Struct, frozen=True):
    """State of a named policy: `remaining` units, `reset` seconds from the arrival."""

    name: str
    remaining: float | None = None
    reset: float | None = None


class RateLimitInfo(Struct, frozen=True):
    """Quota information of one response; None for a value that it does not have.

    `limit` and `remaining` are quota units, `reset` and `retry_after` seconds from the response's arrival. No
    number is negative, infinite or NaN, and none is capped.

    If a response announces several limits, `limit`, `remaining` and `reset` are those of one of them, never
    mixed: the one with the smallest remainder, and of equals the one with the longest reset. Limits without a
    remainder count only if no limit has one. `policies` and `service_limits` hold them all.
    """

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    retry_after: float | None = None
    policies: tuple[PolicyField, ...] = ()
    service_limits: tuple[ServiceLimit, ...] = ()


def hold(status: int, info: RateLimitInfo) -> float:
    """Return the seconds without requests that a response with this status demands.

    Retry-After wins over the reset. The reset counts if nothing remains, with any status, and on a refusal
    (429 or 503) even if something remains.
    """
    if info.retry_after is not None:
        return info.retry_after
    if info.reset is not None and (info.remaining == 0 or status in (429, 503)):
        return info.reset
    return 0.0
