"""Router from a path to the list, or the resource, of its route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

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


KEPT = 1_000  # lists that are kept, the ones used last


class Router:
    """Router of paths.

    `added` returns the number of rows added to a list at a path, `account` has what writes changed.
    """

    def __init__(self, settings: Settings, added: Callable[[Segments], int], account: Account) -> None:
        self._settings = settings
        self._account = account
        self._added = added
        self._listing = lru_cache(KEPT)(self._make_listing)
        self._injector = lru_cache(KEPT)(self._make_injector)

    def find(self, segments: Segments, query: Mapping[str, str]) -> Listing | Row:
        """Return the list at a path, or the resource.

        Raises:
            HTTPError: it does not exist, or a value of the request is not one that the route takes.

        """
        match = match_path(segments)
        if match is None:
            raise HTTPError(404, "Cannot GET /" + "/".join(segments[1:]))
        if not match.endpoint.single:
            return self._listing(segments)
        found = self._serve(match, query)
        injector = self._injector(segments)
        return found if injector is None or isinstance(found, Listing) else injector.resource(found)

    def units(self, segments: Segments) -> int:
        """Return the cost of a request for a path, in compute units.

        It is 1 for a route without a known cost.
        """
        match = match_path(segments)
        units = units_of(match.name, match.endpoint.record) if match is not None and match.complete else None
        return 1 if units is None else units

    def _serve(self, match: Match, query: Mapping[str, str]) -> Listing | Row:
        return serve(Lookup(match, query, self._settings, self._added, self._account))

    def _make_listing(self, segments: Segments) -> Listing:
        match = match_path(segments)
        assert match is not None  # noqa: S101 - `find` has checked it
        found = self._serve(match, {})
        assert isinstance(found, Listing)  # noqa: S101 - the route has rows
        found.place, found.injector = segments, self._injector(segments)
        return found

    def _make_injector(self, segments: Segments) -> Injector | None:
        """Return the first anomalies whose route has the path, None for no anomalies."""
        match = match_path(segments)
        assert match is not None  # noqa: S101 - `find` has checked it
        settings = self._settings
        fitting = (
            Injector(anomalies, match, settings.seed, settings.chains)
            for anomalies in settings.anomalies
            if anomalies.route is None or parse_pattern(anomalies.route).matches(segments)
        )
        return next(fitting, None)
