"""Contents of both services: lists, resources and writes at their paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from random import Random

from chainapi._api.routes import units_of
from chainapi.simulator.anomalies import Injector
from chainapi.simulator.calls import WebhookCall, calls_of
from chainapi.simulator.handlers import GROWS_NOT, Lookup, serve
from chainapi.simulator.matching import Match, Segments, match_path, route_has
from chainapi.simulator.pages import Listing
from chainapi.simulator.quota import TOLERANCE
from chainapi.simulator.rows import Row, View
from chainapi.simulator.settings import Settings
from chainapi.simulator.validation import check_path
from chainapi.simulator.writes import Account, Write, write

__all__ = ["Contents", "units_at"]

KEPT = 1_000  # lists that are kept, the ones used last
PAGING = ("pageSize", "pageToken")  # parameters that choose a page, not rows


class Contents:
    """Contents of both services, which grow, and change with writes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._account = Account(settings.seed, settings.epoch)
        self._inserted: Counter[Segments] = Counter()
        self._begun: float | None = None
        self._now = 0.0
        self._kept_view = lru_cache(KEPT)(self._view)
        self._injector = lru_cache(KEPT)(self._make_injector)

    def begin(self, now: float) -> None:
        """Set the time; the first call sets the time of the beginning, too."""
        if self._begun is None:
            self._begun = now
        self._now = now
        self._account.time = self._settings.epoch + int(now - self._begun)

    def find(self, match: Match, query: Mapping[str, str]) -> Listing | Row:
        """Return the part of a list that a request names, or the resource.

        Raises:
            HTTPError: it does not exist, or a value of the request is not one that the route takes.

        """
        if not match.endpoint.single:
            return self.listing(match, query)
        found, injector = self.resource(match, query), self._injector(match.segments)
        return found if injector is None else injector.resource(found)

    def listing(self, match: Match, query: Mapping[str, str]) -> Listing:
        """Return the part of a list that a query selects, or raise HTTPError."""
        # All pages of a list share a view, except for webhooks: writes change their lists.
        make = self._view if match.name.startswith("data.webhooks.") else self._kept_view
        chosen = frozenset((name, text) for name, text in query.items() if name not in PAGING)
        view = make(match.segments, chosen)
        added = 0 if match.name in GROWS_NOT else self._added(match.segments)
        return Listing(match, view, added, self._injector(match.segments))

    def resource(self, match: Match, query: Mapping[str, str]) -> Row:
        """Return a resource without anomalies, or raise HTTPError."""
        found = serve(self._lookup(match, query))
        assert not isinstance(found, View)  # noqa: S101 - the route has one resource
        return found

    def insert(self, match: Match, count: int) -> None:
        """Add rows at the head of a list."""
        self._inserted[match.segments] += count

    def write(self, match: Match, body: Row) -> Row | None:
        """Carry out a write, and return the body of its answer, or raise HTTPError."""
        check_path(match, self._settings.chains)
        return write(Write(match, body, self._account, self._webhook, self._addresses))

    def webhook_calls(self, name: str, *, events: int, doubled: float, late: float) -> list[WebhookCall]:
        """Return new calls of a webhook; raise ValueError for one that gets none."""
        secret = self.resource(_matched("data", "v1", "webhooks:getSharedSecret"), {})["secret"]
        random = Random(self._account.draw())  # noqa: S311 - a simulation is to be repeatable, not secret
        webhook, time = self._webhook(name), self._account.time
        return calls_of(webhook, secret, random, time, events=events, doubled=doubled, late=late)

    def _webhook(self, name: str) -> Row:
        return self.resource(_matched("data", "v1", "webhooks", name), {})

    def _addresses(self, name: str) -> list[str]:
        view = self._view(("data", "v1", "webhooks", name, "addresses"), frozenset())
        return view.source.rows(view.low, view.end(0))

    def _lookup(self, match: Match, query: Mapping[str, str]) -> Lookup:
        return Lookup(match, query, self._settings, self._added, self._account)

    def _view(self, segments: Segments, query: frozenset[tuple[str, str]]) -> View:
        found = serve(self._lookup(_matched(*segments), dict(query)))
        assert isinstance(found, View)  # noqa: S101 - the route has a list
        return found

    def _added(self, segments: Segments) -> int:
        """Return how many rows were added to the list at a path since the beginning."""
        inserted, every = self._inserted[segments], self._settings.grow_every
        if every is None or self._begun is None:
            return inserted
        return inserted + max(int((self._now - self._begun) / every + TOLERANCE), 0)

    def _make_injector(self, segments: Segments) -> Injector | None:
        """Return the first anomalies whose route has the path, None for no anomalies."""
        settings = self._settings
        for one in settings.anomalies:
            if one.route is None or route_has(one.route, segments):
                return Injector(one, _matched(*segments), settings.seed, settings.chains)
        return None


def _matched(*segments: str) -> Match:
    match = match_path(segments)
    assert match is not None  # noqa: S101 - the path is one of a route
    return match


def units_at(match: Match | None) -> int:
    """Return the cost of a request in compute units, 1 for one without a known cost."""
    units = None if match is None else units_of(match.name, match.endpoint.record)
    return 1 if units is None else units
