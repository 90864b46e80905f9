"""Walks of every list route, over a service with all anomalies.

The rows are those that the service holds.
"""

from __future__ import annotations

import operator
from collections import Counter
from functools import reduce
from itertools import cycle
from typing import Any

import msgspec
import pytest

from chainapi import ROUTES, Pages, Session
from chainapi.events import Event, KeyNotUnique, OrderBroken, Restarted
from chainapi.models import Invalid
from chainapi.models.codec import PageDecoder
from chainapi.simulator import Anomalies, Simulator
from tests.simulator.test_routes import CHAINS, LISTS, arguments, needed_by, place_of

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")

ROWS = 30
ODD = {"malformed": 0.1, "unknown_fields": 0.2, "unknown_values": 0.2}
ORDERS = ["descending", "swapped", "shuffled", "ascending"]
# Each list in one of the orders; of two lists of one kind one is in its own order.
IN_ORDERS = list(zip(LISTS, cycle(["descending", *ORDERS]), strict=False))


def simulated(**anomalies: Any) -> Simulator:
    """Return a simulator whose lists all have these anomalies."""
    settings: dict[str, Any] = {"rows": ROWS, "points": ROWS, "metrics_page_size": 7, "chains": CHAINS}
    return Simulator(seed=3, forbidden=(), anomalies=Anomalies(**anomalies), **settings)


def session_of(simulator: Simulator, heard: list[Event]) -> Session:
    """Return a session that reaches the simulator in memory."""
    return Session(
        **simulator.arguments(),
        on_event=heard.append,
    )


def walk_of(session: Session, name: str) -> Pages[Any]:
    """Return a walk of a route, in pages of seven rows where it has a page size."""
    declared = ROUTES[name]
    given = arguments(declared)
    if declared.page_size is not None:
        given["page_size"] = 7
    method = reduce(getattr, name.split("."), session)
    return method(**given, on_invalid="raw")  # type: ignore[operator,no-any-return]


def rows_held(simulator: Simulator, name: str) -> list[Any]:
    """Return the rows of a route as its service holds them, as records of the route."""
    declared = ROUTES[name]
    rows = simulator.rows_of(place_of(name), **needed_by(name))
    items = declared.route.items or "chains"
    decoder = PageDecoder(declared.route.model, items, shown=lambda fault: fault)
    body = msgspec.json.Encoder(decimal_format="number").encode({items: rows})
    return decoder.decode(body).rows


def key_of(name: str) -> tuple[str, ...]:
    """Return the attributes that identify a row of a route with these arguments."""
    declared = ROUTES[name]
    return declared.route.for_call({one.name: None for one in declared.parameters} | arguments(declared)).key


def everything(name: str, order: str) -> dict[str, Any]:
    """Return all oddities of a list at one moment.

    Rows with one key are never equal ones.
    """
    keyed = bool(key_of(name) or ROUTES[name].route.kind_keys)
    return {"ties": 3, "equal": 1 if keyed else 4, "replays": 2, "order": order, **ODD}


def counted(rows: list[Any]) -> Counter[str]:
    """Count rows by all their content."""
    return Counter(repr(row.raw if isinstance(row, Invalid) else row) for row in rows)


async def rows_with_dead_tokens(
    simulator: Simulator, name: str, *deaths: int
) -> tuple[list[Any], list[Event]]:
    """Walk a route while its token dies after each of these numbers of rows.

    Returns the rows, and the events of the session.
    """
    rows: list[Any] = []
    heard: list[Event] = []
    async with session_of(simulator, heard) as session:
        async for row in walk_of(session, name).items():
            rows.append(row)
            if len(rows) in deaths:
                simulator.advance(24 * 3600)
    return rows, heard


async def test_one_pass_gives_the_list() -> None:
    """One pass gives each row of any list in its place, with any oddity and order, and without a restart."""
    failures = []
    for name, order in IN_ORDERS:
        simulator = simulated(**everything(name, order))
        heard: list[Event] = []
        async with session_of(simulator, heard) as session:
            rows = await walk_of(session, name).collect()
        if rows != rows_held(simulator, name):
            failures.append(f"{name}, {order}: {len(rows)} rows are not those of the list")
        failures += [f"{name}: {event}" for event in heard if isinstance(event, Restarted)]
    assert not failures


async def test_a_dead_token_loses_and_repeats_nothing() -> None:
    """After dead tokens any list gives each row as often as it holds it, or says that rows come again."""
    failures = []
    for name, order in IN_ORDERS:
        simulator = simulated(**everything(name, order))
        rows, heard = await rows_with_dead_tokens(simulator, name, 9, 20)
        given, held = counted(rows), counted(rows_held(simulator, name))
        exact = all(event.exact for event in heard if isinstance(event, Restarted))
        if exact and given != held:
            failures.append(f"{name}, {order}: {given - held} repeated, {held - given} lost")
        # A key that was given up in mid-walk: rows known by it alone come again.
        if not exact and not (held <= given and any(isinstance(event, KeyNotUnique) for event in heard)):
            failures.append(f"{name}, {order}: {held - given} lost in a restart that is not exact")
    assert not failures


async def test_rows_that_change_or_move_come_once_by_their_key() -> None:
    """Rows with a key that change or move between passes are given once; others as they are in each pass."""
    failures = []
    for name in LISTS:
        simulator = simulated(changing="pass", moved=0.2, unknown_fields=0.2)
        rows, heard = await rows_with_dead_tokens(simulator, name, 15)
        held, key = rows_held(simulator, name), key_of(name)
        told = [event for event in heard if isinstance(event, KeyNotUnique | OrderBroken)]
        if key:
            identity = operator.attrgetter(*key)
            lost = {identity(row) for row in held} - {identity(row) for row in rows}
            failures += [f"{name}: lost {lost}"] if lost else []
        if len(rows) < len(held) or (key and not told and len(rows) != len(held)):
            failures.append(f"{name}: {len(rows)} rows of {len(held)}")
    assert not failures
