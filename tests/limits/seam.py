"""The rate limiter that the laboratory measures; another one is measured by a change of this module."""

from __future__ import annotations

from chainapi.client.limiter import Gate
from chainapi.client.permit import Permit
from chainapi.core.limits.headers import read_limits
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.verdict import Verdict

__all__ = ["Gate", "Permit", "PolicyField", "RateLimitInfo", "Verdict", "read_limits"]
