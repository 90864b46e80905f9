"""Idempotency of requests: which of them may be sent again after which fault."""

from __future__ import annotations

from enum import Enum

__all__ = ["Idempotency"]


class Idempotency(Enum):
    """Effect of sending a request twice (RFC 9110, section 9.2).

    A request that certainly had no effect is sent again in any case: the server refused it with a 429, or no
    connection was made. The members differ in what follows a fault after which the request may have been
    carried out: a lost response, a timeout, a 5xx.
    """

    SAFE = "safe"
    """Reads only, with any method: sent again."""

    IDEMPOTENT = "idempotent"
    """Twice has the effect of once (PUT, DELETE): sent again. A 404 for the repeated DELETE means success."""

    NON_IDEMPOTENT = "non-idempotent"
    """Twice may be two effects (POST, PATCH): not sent again, `OutcomeUnknownError` is raised."""

    @classmethod
    def of_method(cls, method: str) -> Idempotency:
        """Return what RFC 9110 promises of a method."""
        if method in ("GET", "HEAD", "OPTIONS"):
            return cls.SAFE
        return cls.IDEMPOTENT if method in ("PUT", "DELETE") else cls.NON_IDEMPOTENT
