"""What a simulator counts."""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, field

__all__ = ["Stats", "Tally"]


@define(eq=False)
class Tally:
    """What was counted.

    Attributes:
        requests: requests that arrived.
        answered: answers by status; one that was broken off is not among them.
        sent_while_stopped: requests sent after a 429 had been delivered and before its retry-after was over.

    """

    requests: int = 0
    answered: Counter[int] = field(factory=Counter[int])
    sent_while_stopped: int = 0

    @property
    def refused(self) -> int:
        """How many answers were a 429."""
        return self.answered[429]


@define(eq=False)
class Stats(Tally):
    """What was counted in all, by service ("metrics", "data"), and by key.

    Attributes:
        tokens_minted: page tokens given out.
        tokens_expired: requests that came with a token that was too old.
        broken: answers that were broken off or never sent.

    """

    tokens_minted: int = 0
    tokens_expired: int = 0
    broken: int = 0
    services: dict[str, Tally] = Factory(lambda: {"metrics": Tally(), "data": Tally()})
    keys: dict[str, Tally] = field(factory=dict[str, Tally], repr=False)
