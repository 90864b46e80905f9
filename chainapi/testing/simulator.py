"""Simulator of a test: sessions in memory, and assertions about their requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import define, field

from chainapi.core.numbers import is_whole
from chainapi.errors import ArgumentError
from chainapi.models.codec import PageDecoder
from chainapi.models.records import Record
from chainapi.simulator import Exchange, MemoryTransport, Simulator
from chainapi.simulator.matching import route_has

if TYPE_CHECKING:
    from chainapi.session import Session

__all__ = ["CheckedSimulator"]

SHOWN = 60  # requests in the message of an assertion, from the first and the last ones
ROWS_SHOWN = 3  # rows in the message of an assertion

_encode = msgspec.json.Encoder(decimal_format="number").encode


@define(eq=False, repr=False)
class CheckedSimulator(Simulator):
    """Simulator with a log of requests, sessions in memory, and assertions.

    `requests` has each request with its time, page and answer. All sessions of `session` and `arguments` use
    one transport, so that they share one quota as the sessions of a program do. Every assertion raises
    AssertionError with the requests, or the rows, that break the promise.
    """

    log: bool = field(default=True, init=False)
    _memory: MemoryTransport | None = field(default=None, init=False, repr=False)

    def __repr__(self) -> str:
        return f"<CheckedSimulator with seed {self.seed}, {len(self.requests)} requests so far>"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a session that uses this simulator in memory.

        They are the same each time: all sessions use one transport.
        """
        arguments = super().arguments()
        if self._memory is None:
            self._memory = arguments["transport"]
        return {**arguments, "transport": self._memory, "share": False}

    def session(self, **arguments: Any) -> Session:
        """Return a session on this simulator; `arguments` go to `Session`."""
        from chainapi.session import Session

        return Session(**{**self.arguments(), **arguments})

    def select(
        self, route: str | None = None, *, status: int | None = None, page: int | None = None
    ) -> Sequence[Exchange]:
        """Return the requests to a route, with a status, for a page; None for any.

        `route` is a name, a pattern of names such as ``data.evm.*``, or a path in which ``*`` and ``{...}``
        match any one segment.
        """
        return [
            request
            for request in self.requests
            if (route is None or route_has(route, request.segments))
            and status in (None, request.status)
            and page in (None, request.page)
        ]

    def count(self, route: str | None = None, *, status: int | None = None, page: int | None = None) -> int:
        """Return the number of requests, chosen as in `select`."""
        return len(self.select(route, status=status, page=page))

    def timeline(self) -> str:
        """Return the requests as lines: time in seconds, method, path, page, answer."""
        return _lines(self.requests)

    def assert_requests(self, number: int, route: str | None = None) -> None:
        """Assert the number of requests, retries and pages included, to a route or to all."""
        __tracebackhide__ = True
        if not is_whole(number):
            raise ArgumentError(f"number={number!r} must be a whole number: it comes before the route")
        found = self.select(route)
        if len(found) != number:
            place = "" if route is None else f" to {route}"
            raise AssertionError(f"{len(found)} requests{place}, not {number}; sent were:\n{self.timeline()}")

    def assert_nothing_sent_in_stops(self) -> None:
        """Assert that nothing was sent in a stop.

        A stop lasts from the arrival of a 429 until its retry-after is over.
        """
        __tracebackhide__ = True
        early = [request for request in self.requests if request.stopped]
        if early:
            raise AssertionError(
                f"{len(early)} of {len(self.requests)} requests were sent inside a stop, before the"
                f" retry-after of a 429 was over:\n{_lines(early)}\nall requests:\n{self.timeline()}"
            )

    def assert_refused_at_most(self, most: int = 1) -> None:
        """Assert that at most `most` requests of each quota got status 429.

        A quota is one service and one key.
        """
        __tracebackhide__ = True
        refused = Counter(request.quota for request in self.requests if request.status == 429)
        if over := {quota: count for quota, count in refused.items() if count > most}:
            counts = ", ".join(f"{count} of {quota}" for quota, count in over.items())
            raise AssertionError(
                f"more than {most} requests got status 429: {counts}:\n"
                f"{_lines([one for one in self.requests if one.status == 429])}\n"
                f"all requests:\n{self.timeline()}"
            )

    def assert_every_row_once(self, rows: Iterable[Any], path: str, **query: object) -> None:
        """Assert that `rows` are the rows of a list, each exactly once, in any order.

        `path` leads to the list, such as ``/v1/chains/43114/blocks``, with POST before it if that is the
        method, and `query` has parameters by their names on the wire. The rows are typed rows, JSON values,
        or instances of a model of your own. Raises ValueError for a path without a list.
        """
        __tracebackhide__ = True
        given = [row.to_wire() if isinstance(row, Record) else row for row in rows]
        expected = _as_rows(self.rows_of(path, **query), given)
        # By their texts: rows may hold lists, which no Counter can count.
        wanted, got = Counter(map(repr, expected)), Counter(map(repr, given))
        if wanted != got:
            raise AssertionError(
                f"{len(given)} rows, and {path} has {len(expected)}:"
                f"{_some('missing', wanted - got)}{_some('too many', got - wanted)}"
            )


def _as_rows(wire: list[dict[str, Any]], given: list[Any]) -> list[Any]:
    """Return rows of the services as rows of the model of the given ones."""
    model = type(given[0]) if given and not isinstance(given[0], dict | str) else None
    return [*PageDecoder(model, "rows")(_encode({"rows": wire})).rows]


def _some(what: str, rows: Counter[str]) -> str:
    if not rows:
        return ""
    lines = [f"  {count} x {text:.200}" for text, count in [*rows.items()][:ROWS_SHOWN]]
    more = ["  ..."] if len(rows) > ROWS_SHOWN else []
    return "\n".join([f"\n{rows.total()} {what}:", *lines, *more])


def _lines(requests: Sequence[Exchange]) -> str:
    lines = [str(request) for request in requests]
    if len(lines) > SHOWN:
        half = SHOWN // 2
        lines[half:-half] = [f"... {len(lines) - SHOWN} more ..."]
    return "\n".join(lines) or "  none"
