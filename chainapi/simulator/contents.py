"""Contents of both services: lists, resources and writes at their paths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from chainapi._api.routes import units_of
from chainapi.simulator.anomalies import Injector
from chainapi.simulator.handlers import serve
from chainapi.simulator.matching import Match, Segments, route_has
from chainapi.simulator.pages import Listing
from chainapi.simulator.rows import Row, View
from chainapi.simulator.state import Lookup, State, matched
from chainapi.simulator.validation import checked_query

__all__ = ["Contents", "units_at"]

KEPT = 1_000  # lists that are kept, the ones used last
PAGING = ("pageSize", "pageToken")  # parameters that choose a page, not rows


class Contents:
    """Contents of both services, which grow, and change with writes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept_view = lru_cache(KEPT)(self._view)
        self._injector = lru_cache(KEPT)(self._make_injector)

    def find(self, match: Match, given: Mapping[str, Any]) -> Listing | Row | None:
        """Return the part of a list that a request names, or the resource that it names or changes.

        `given` are parameters of the query, or the checked body of a write.

        Raises:
            HTTPError: it does not exist, or a value of the request is not one that the route takes.

        """
        if not match.endpoint.single:
            return self.listing(match, given)
        if not match.endpoint.reads:
            written: Row | None = serve(Lookup(match, given, self._state))
            return written
        row: Row = serve(Lookup(match, checked_query(match, given), self._state))
        injector = self._injector(match.segments)
        return row if injector is None else injector.resource(row)

    def listing(self, match: Match, query: Mapping[str, str]) -> Listing:
        """Return the part of a list that a query selects, or raise HTTPError."""
        # All pages of a list share a view, except for webhooks: writes change their lists.
        make = self._view if match.name.startswith("data.webhooks.") else self._kept_view
        chosen = frozenset((name, text) for name, text in query.items() if name not in PAGING)
        view = make(match.segments, chosen)
        return Listing(match, view, self._state.added(match), self._injector(match.segments))

    def _view(self, segments: Segments, query: frozenset[tuple[str, str]]) -> View:
        match = matched(*segments)
        view: View = serve(Lookup(match, checked_query(match, dict(query)), self._state))
        return view

    def _make_injector(self, segments: Segments) -> Injector | None:
        """Return the first anomalies whose route has the path, None for no anomalies."""
        settings = self._state.settings
        for one in settings.anomalies:
            if one.route is None or route_has(one.route, segments):
                return Injector(one, matched(*segments), settings.seed, settings.chains)
        return None


def units_at(match: Match | None) -> int:
    """Return the cost of a request in compute units, 1 for one without a known cost."""
    units = None if match is None else units_of(match.name, match.endpoint.record)
    return 1 if units is None else units
