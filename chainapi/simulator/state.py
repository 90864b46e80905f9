"""State of both services: time, added rows, and the account that writes change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from attrs import define, field, frozen

from chainapi.simulator.matching import Match, Segments, match_path
from chainapi.simulator.quota import TOLERANCE
from chainapi.simulator.rows import Draw, Row
from chainapi.simulator.settings import Settings

__all__ = ["Lookup", "State", "matched"]

# Lists to which no rows are added.
GROWS_NOT = frozenset(
    {
        "data.chains",
        "data.evm.block_transactions",
        "metrics.chains.list",
        "metrics.looking_glass.composite_query",
        "metrics.looking_glass.composite_query_v1",
    }
)


@define(eq=False)
class State:
    """State of both services, with the one account that all keys share.

    Attributes:
        settings: settings of the simulator.
        secret: the shared secret since its rotation; None before the first one.
        webhooks: webhooks that writes created, and the changed fields of others, by their identifiers.
        created: identifiers of those that writes created, oldest first.
        watched: addresses of the webhooks whose addresses writes changed, oldest first.
        operations: exports that writes began, as they were then.
        reindexed: times of the requests to reindex a token, of the last hour.

    """

    settings: Settings
    secret: str | None = None
    webhooks: dict[str, Row] = field(factory=dict[str, Row])
    created: list[str] = field(factory=list[str])
    watched: dict[str, list[str]] = field(factory=dict[str, list[str]])
    operations: dict[str, Row] = field(factory=dict[str, Row])
    reindexed: dict[Segments, int] = field(factory=dict[Segments, int])
    _inserted: Counter[Segments] = field(factory=Counter[Segments], init=False)
    _begun: float | None = field(default=None, init=False)
    _now: float = field(default=0.0, init=False)
    _drawn: int = field(default=0, init=False)

    def begin(self, now: float) -> None:
        """Set the time; the first call sets the time of the beginning, too."""
        if self._begun is None:
            self._begun = now
        self._now = now

    @property
    def elapsed(self) -> float:
        """Seconds from the beginning to the latest request."""
        return 0.0 if self._begun is None else self._now - self._begun

    @property
    def time(self) -> int:
        """Unix time in seconds of the latest request."""
        return self.settings.epoch + int(self.elapsed)

    def insert(self, match: Match, count: int) -> None:
        """Add rows at the head of a list; raise ValueError for one that does not grow."""
        if match.name in GROWS_NOT or count < 0:
            path = "/" + "/".join(match.segments[1:])
            raise ValueError(
                f"cannot insert {count} rows at {path!r}: give a list that grows, 0 rows or more"
            )
        self._inserted[match.segments] += count

    def added(self, match: Match) -> int:
        """Return how many rows were added to a list since the beginning."""
        if match.name in GROWS_NOT:
            return 0
        every = self.settings.grow_every
        grown = 0 if every is None else max(int(self.elapsed / every + TOLERANCE), 0)
        return self._inserted[match.segments] + grown

    def draw(self) -> bytes:
        """Return 64 random bytes, others at each call."""
        self._drawn += 1
        return Draw(self.settings.seed, "account")(self._drawn)

    def identifier(self) -> str:
        """Return a new identifier."""
        return str(UUID(bytes=self.draw()[:16], version=4))


@frozen
class Lookup:
    """Request for a list or a resource, or to change one.

    Attributes:
        match: route and path.
        values: checked parameters of the query, or fields of the body.
        state: state of the services.

    """

    match: Match
    values: Mapping[str, Any]
    state: State

    @property
    def settings(self) -> Settings:
        """Settings of the simulator."""
        return self.state.settings

    @property
    def chain(self) -> int:
        """Chain that the path names."""
        return int(self.match.values["chainId"])

    @property
    def ascending(self) -> bool:
        """Whether the oldest row comes first."""
        return self.values.get("sortOrder") == "asc"

    def draw(self, *names: object) -> Draw:
        """Return random bytes that follow from the seed and the names."""
        return Draw(self.settings.seed, *names)

    def at(self, *segments: str) -> Lookup:
        """Return a request for another path, without parameters."""
        return Lookup(matched(*segments), {}, self.state)


def matched(*segments: str) -> Match:
    """Return the route of a path that has one."""
    match = match_path(segments)
    assert match is not None  # noqa: S101 - the path is one of a route
    return match
