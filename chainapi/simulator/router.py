"""Router from a path to the list, or the resource, of its route."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chainapi._api.routes import units_of
from chainapi.simulator.account import Account
from chainapi.simulator.handlers import Lookup, serve
from chainapi.simulator.injection import Injector
from chainapi.simulator.lists import Listing
from chainapi.simulator.matching import Match, Segments, match_path, parse_pattern
from chainapi.simulator.rows import Row
from chainapi.simulator.settings import Settings
from chainapi.simulator.validation import HTTPError

__all__ = ["Router"]


class Router:
    """Router of paths.

    `added` returns the number of rows added to a list, `account` has what writes changed.

    A list is made once and kept, because rows are inserted into it and its page tokens refer to it.
    """

    def __init__(self, settings: Settings, added: Callable[[Listing], int], account: Account) -> None:
        self._settings = settings
        self._account = account
        self._added = added
        self._listings: dict[Segments, Listing] = {}
        self._injectors: dict[Segments, Injector | None] = {}

    def find(self, segments: Segments, query: Mapping[str, str]) -> Listing | Row:
        """Return the list at a path, or the resource.

        Raises:
            HTTPError: it does not exist, or a value of the request is not one that the route takes.

        """
        if segments in self._listings:
            return self._listings[segments]
        match = match_path(segments)
        if match is None:
            raise HTTPError(404, "Cannot GET /" + "/".join(segments[1:]))
        found = serve(Lookup(match, query, self._settings, self._added_at, self._account))
        injector = self._injector(match)
        if not isinstance(found, Listing):
            return found if injector is None else injector.resource(found)
        found.injector = injector
        self._listings[segments] = found
        return found

    def units(self, segments: Segments) -> int:
        """Return the cost of a request for a path, in compute units.

        It is 1 for a route without a known cost.
        """
        match = match_path(segments)
        units = units_of(match.name, match.endpoint.record) if match is not None and match.complete else None
        return 1 if units is None else units

    def _added_at(self, segments: Segments) -> int:
        listing = self.find(segments, {})
        return self._added(listing) if isinstance(listing, Listing) else 0

    def _injector(self, match: Match) -> Injector | None:
        """Return the first anomalies whose route has the path, None for no anomalies."""
        segments, settings = match.segments, self._settings
        if segments not in self._injectors:
            fitting = (
                Injector(anomalies, match, settings.seed, settings.chains)
                for anomalies in settings.anomalies
                if anomalies.route is None or parse_pattern(anomalies.route).matches(segments)
            )
            self._injectors[segments] = next(fitting, None)
        return self._injectors[segments]
