"""Responses of a service with 100 units a minute, and their reports to a shared gate."""

from __future__ import annotations

from chainapi._limits.gate import Permit
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.verdict import Verdict
from chainapi.share.permits import SharedPermit

MINUTE = (PolicyField(100.0, 60.0),)


def headers(remaining: float, retry_after: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a response."""
    return RateLimitInfo(100.0, remaining, None, retry_after, MINUTE)


async def end(permit: SharedPermit | Permit, status: int, info: RateLimitInfo) -> Verdict:
    """Report a response."""
    verdict = permit.answered(status, info)
    return verdict if isinstance(verdict, Verdict) else await verdict
