"""The rate limiter that the laboratory measures; another one is measured by a change of this module."""

from __future__ import annotations

from chainapi._limits.headers import PolicyField, RateLimitInfo, read_limits
from chainapi.client.limiter import Gate
from chainapi.client.permit import Permit
from chainapi.core.limits.verdict import Verdict

__all__ = ["Gate", "Permit", "PolicyField", "RateLimitInfo", "Verdict", "read_limits"]
