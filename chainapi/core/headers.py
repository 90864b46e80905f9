"""What an answer says about limits: the RateLimit fields in all their forms, and Retry-After."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

__all__ = ["LimitNews", "Policy", "read_limits"]


@frozen
class Policy:
    """One rate-limit policy as the service announces it: `quota` units in `window` seconds."""

    quota: float
    window: float | None = None
    name: str | None = None


@frozen
class LimitNews:
    """What one answer says about the quota; None means that it does not say.

    `limit` and `remaining` are quota units, `reset` and `retry_after` seconds from the answer's arrival.
    """

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    retry_after: float | None = None
    policies: tuple[Policy, ...] = ()


def read_limits(headers: Mapping[str, str], now: float) -> LimitNews:
    """Read the limit headers of one answer; a malformed field is as if absent, nothing raises.

    `now` is Unix time in seconds, used for dates where the answer has no Date header.
    """
    raise NotImplementedError
