"""Counts of requests and answers."""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, field

__all__ = ["Stats", "Tally"]


@define(eq=False)
class Tally:
    """Counts of requests and answers.

    Attributes:
        requests: requests that arrived.
        answered: answers by status, without those that broke off.
        sent_while_stopped: requests sent after a 429 had been delivered and before its retry-after was over.

    """

    requests: int = 0
    answered: Counter[int] = field(factory=Counter[int])
    sent_while_stopped: int = 0

    @property
    def refused(self) -> int:
        """Number of answers with status 429."""
        return self.answered[429]


@define(eq=False)
class Stats(Tally):
    """Counts of all requests, and of those by service ("metrics", "data") and by key.

    Attributes:
        tokens_minted: page tokens that were issued.
        tokens_expired: requests with an expired token.
        broken: answers that broke off or were never sent.

    """

    tokens_minted: int = 0
    tokens_expired: int = 0
    broken: int = 0
    services: dict[str, Tally] = Factory(lambda: {"metrics": Tally(), "data": Tally()})
    keys: dict[str, Tally] = field(factory=dict[str, Tally], repr=False)
