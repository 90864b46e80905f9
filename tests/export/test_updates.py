"""Updates of finished exports: each list that shows its new rows gains them, each once."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any, cast

import pytest

from chainapi import ROUTES, Session
from chainapi.export import ExportResult, export
from chainapi.simulator import Anomalies, Simulator
from tests.ledger import ADDRESS, Ledger, block, point, transfer
from tests.sessions import reaching, simulated
from tests.simulator.test_routes import CHAINS, LISTS, arguments, place_of

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")

ROWS = 24
NATIVE = "data.evm.native_transactions"


def descends(name: str, given: dict[str, Any]) -> bool:
    """Return whether a list declares a number by which it descends."""
    declared = ROUTES[name]
    every = {one.name: one.default for one in declared.parameters} | given
    return declared.record.for_call(every).descending_key is not None


CURSORS = [name for name in LISTS if ROUTES[name].record.numbers and not descends(name, {})]
OTHERS = [name for name in LISTS if not ROUTES[name].record.numbers and not descends(name, {})]


def simulator_of(**anomalies: Any) -> Simulator:
    """Return a simulator whose lists have these anomalies."""
    sizes: dict[str, Any] = {"rows": ROWS, "points": ROWS, "metrics_page_size": 7}
    return Simulator(seed=5, forbidden=(), chains=CHAINS, anomalies=Anomalies(**anomalies), **sizes)


async def exported(session: Session, name: str, path: Path, **options: Any) -> ExportResult:
    """Export the list of a route with the arguments of the tests, in pages of seven rows."""
    declared = ROUTES[name]
    if declared.page_size is not None:
        options["page_size"] = 7
    method: Any = reduce(getattr, name.split("."), session)
    return await export(method, [arguments(declared)], path, **options)


def lines(path: Path) -> Counter[str]:
    """Count the lines of a file."""
    return Counter(path.read_text().splitlines())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if place % 12 == 0 else [pytest.mark.proof])
        for place, name in enumerate(CURSORS)
    ],
)
async def test_a_list_with_a_cursor_gains_its_new_rows(name: str, tmp_path: Path) -> None:
    """An update of a list that grew has the rows of a new export, and sends few requests."""
    ties = 1 if "message" in name else 3  # kinds of messages have different times
    simulator, path = simulator_of(ties=ties), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        first = await exported(session, name, path)
        assert first.rows > 0
        for growth in (1, 9, 0):
            simulator.insert(place_of(name), growth)
            requests = simulator.stats.requests
            update = await exported(session, name, path)
            assert (update.rows, update.closed) == (growth, 0)
            assert simulator.stats.requests - requests <= 2 + (growth + 2 * ties) // 7
        fresh = await exported(session, name, tmp_path / "fresh.jsonl")
    assert fresh.rows == first.rows + 10
    assert lines(path) == lines(tmp_path / "fresh.jsonl")


async def test_messages_whose_times_are_out_of_order_are_not_asked_again(tmp_path: Path) -> None:
    """Messages of several kinds may break the order of their times; then an update leaves them alone."""
    simulator, path = simulator_of(ties=3), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        await exported(session, "data.icm.messages", path)
        simulator.insert(place_of("data.icm.messages"), 5)
        assert (await exported(session, "data.icm.messages", path)).skipped == 1


@pytest.mark.parametrize(
    "given",
    [
        "shared",
        pytest.param("left out", marks=pytest.mark.proof),
        pytest.param("of the source", marks=pytest.mark.proof),
    ],
)
async def test_a_lower_bound_that_needs_another_argument(given: str, tmp_path: Path) -> None:
    """The lower bound is sent with the argument that the service wants beside it, in place of a caller's."""
    simulator, path = simulator_of(ties=3), tmp_path / "rows.jsonl"
    options: dict[str, Any] = {"addresses": ["avax1a"], "page_size": 7}
    source: dict[str, Any] = {"network": "mainnet", "blockchain_id": "p-chain"}
    if given != "left out":
        (options if given == "shared" else source)["start_timestamp"] = 1
    place = "/v1/networks/mainnet/blockchains/p-chain/transactions"
    async with simulated(simulator) as session:
        walk = session.data.primary_network.transactions
        assert (await export(walk, [source], path, **options)).rows == ROWS
        simulator.insert(place, 5)
        assert (await export(walk, [source], path, **options)).rows == 5
        fresh = await export(walk, [source], tmp_path / "fresh.jsonl", **options)
    assert fresh.rows == ROWS + 5
    assert lines(path) == lines(tmp_path / "fresh.jsonl")


@pytest.mark.parametrize(
    "day", [1, pytest.param(0, marks=pytest.mark.proof), pytest.param(3, marks=pytest.mark.proof)]
)
@pytest.mark.parametrize("same_number", [True, False])
@pytest.mark.parametrize("kind", ["blocks", "points", "transfers"])
async def test_rows_that_share_a_key(kind: str, same_number: bool, day: int, tmp_path: Path) -> None:
    """Updates add each row once, also if two rows of a page have the key that should identify one."""
    make: Any = {"blocks": block, "points": point, "transfers": transfer}[kind]
    items = {"blocks": "blocks", "points": "results", "transfers": "transactions"}[kind]
    ledger, path = Ledger([*range(30)], make, items), tmp_path / "rows.jsonl"
    async with reaching(ledger) as session:
        walk, source = {
            "blocks": (session.data.evm.blocks, (1,)),
            "points": (session.metrics.chains.metric, (1, "txCount")),
            "transfers": (session.data.evm.erc20_transactions, (1, ADDRESS)),
        }[kind]
        for today in range(6):
            if today == day:
                newest, serial = ledger.numbers[-1], len(ledger.numbers)
                shared: Any = {"blocks": {"blockHash": f"0x{serial - 1}"}, "points": {"timestamp": newest}}
                transfer_of = {"txHash": f"0x{serial - 1}", "logIndex": serial - 1, "value": "42"}
                ledger.changed[serial] = shared.get(kind, transfer_of)
                ledger.numbers.append(newest if same_number else newest + 1)
            elif today:
                ledger.numbers.append(ledger.numbers[-1] + 1)
            await export(cast("Any", walk), [source], path)
            assert len(lines(path)) == lines(path).total() == len(ledger.numbers)


async def test_equal_rows_of_the_newest_number(tmp_path: Path) -> None:
    """An update adds each row that the list has more often than the file, also if the file has equal ones."""
    ledger = Ledger([1, 2, 2], lambda number, _: block(number, number), "blocks")
    path, options = tmp_path / "rows.jsonl", dict[str, Any](descending_key="blockTimestamp")
    async with reaching(ledger) as session:
        for growth in (0, 2, 0, 1):
            ledger.numbers += [2] * growth
            await export(session.data.list, ["/v1/chains/1/blocks"], path, **options)
            assert lines(path).total() == len(ledger.numbers)


@pytest.mark.parametrize("name", OTHERS[::4])
async def test_other_lists_are_not_asked_again(name: str, tmp_path: Path) -> None:
    """A finished list without a number is not fetched again, and the result counts it."""
    simulator, path = simulator_of(), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        first = await exported(session, name, path)
        requests = simulator.stats.requests
        again = await exported(session, name, path)
    assert (first.skipped, first.closed) == (0, 1)
    assert (again.skipped, again.closed) == (1, 1)
    assert simulator.stats.requests == requests


@pytest.mark.parametrize("order", ["swapped", "shuffled"])
async def test_a_list_that_breaks_its_order_is_not_asked_again(order: str, tmp_path: Path) -> None:
    """Rows without an order do not show which are new: the list is complete once, and left alone."""
    simulator, path = simulator_of(order=order), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        first = await exported(session, NATIVE, path)
        assert (first.rows, first.closed) == (ROWS, 1)
        simulator.insert(place_of(NATIVE), 5)
        again = await exported(session, NATIVE, path)
    assert (again.rows, again.skipped) == (0, 1)


@pytest.mark.parametrize(("name", "new"), [(NATIVE, 5), ("data.evm.transactions", 0)])
async def test_a_rising_list_needs_a_lower_bound(name: str, new: int, tmp_path: Path) -> None:
    """A list with its oldest rows first is updated where the service takes a lower bound."""
    simulator, path = simulator_of(order="ascending"), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        await exported(session, name, path)
        simulator.insert(place_of(name), 5)
        again = await exported(session, name, path)
    assert (again.rows, again.skipped) == (new, 0 if new else 1)


async def test_the_part_of_a_rising_list_is_not_all_fetched_later(tmp_path: Path) -> None:
    """With a limit, an update of a list with its oldest rows first would fetch all the others."""
    simulator, path = simulator_of(order="ascending"), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        assert (await exported(session, NATIVE, path, limit=10)).rows == 10
        assert (await exported(session, NATIVE, path, limit=10)).skipped == 1


@pytest.mark.parametrize("name", [NATIVE, "data.evm.blocks", "data.nfts.tokens"])
async def test_an_empty_list_is_asked_again(name: str, tmp_path: Path) -> None:
    """A list without rows is fetched again by each run until it has some."""
    simulator, path = simulator_of(), tmp_path / "rows.jsonl"
    simulator = Simulator(seed=5, rows=0, chains=CHAINS)
    async with simulated(simulator) as session:
        for _ in range(2):
            empty = await exported(session, name, path)
            assert (empty.rows, empty.skipped) == (0, 0)
        simulator.insert(place_of(name), 9)
        assert (await exported(session, name, path)).rows == 9


@pytest.mark.parametrize(("name", "new"), [(NATIVE, 3), ("metrics.chains.metric", 1)])
async def test_daily_updates_cost_little(name: str, new: int, tmp_path: Path) -> None:
    """Each daily run sends two requests at most, and adds one record to the log."""
    simulator, path = Simulator(seed=7, rows=500, points=500, chains=CHAINS), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        method: Any = reduce(getattr, name.split("."), session)
        for day in range(8):
            simulator.insert(place_of(name), new if day else 0)
            requests = simulator.stats.requests
            result = await export(method, [arguments(ROUTES[name])], path)
            assert result.rows == (new if day else 500)
            assert simulator.stats.requests - requests <= (2 if day else 6)
    assert len(lines(path)) == lines(path).total() == 500 + 7 * new
    records = [*(tmp_path / "rows.jsonl.log").glob("*.json")]
    assert len(records) <= 8 + 3  # a first run that takes long has more than one
    assert max(record.stat().st_size for record in records) < 4_096
