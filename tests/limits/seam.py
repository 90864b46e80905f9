"""The rate limiter that the laboratory measures; another one is measured by a change of this module."""

from __future__ import annotations

from chainapi._limits.gate import Ask, Gate, Permit
from chainapi._limits.headers import PolicyField, RateLimitInfo, read_limits
from chainapi._limits.verdict import Verdict

__all__ = ["Ask", "Gate", "Permit", "PolicyField", "RateLimitInfo", "Verdict", "read_limits"]
