"""Updates of finished exports: each list that shows its new rows gains them, each once."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.api.catalogue import ROUTES
from chainapi.errors import IncompleteExportError
from chainapi.export import export
from chainapi.export.run import ExportResult
from chainapi.simulator import Anomalies, Simulator
from chainapi.testing import run
from tests.export.year import LISTS as DAILY
from tests.export.year import START, days_of
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


@pytest.mark.parametrize("name", [*DAILY][2:])
def test_daily_updates_cost_little(name: str) -> None:
    """Each daily run sends the requests of its new rows and one more; the journal hardly grows."""
    first, *later = days_of(name, 8)
    new = DAILY[name]
    assert first.rows == START
    assert {day.rows for day in later} == {new}
    assert max(day.requests for day in later) <= 1 + -(-new // 100)
    assert later[-1].journal <= first.journal + (8 << 10)


@pytest.mark.parametrize("name", [NATIVE, "data.evm.transactions"])
async def test_an_update_after_a_limit_leaves_no_gap(name: str, tmp_path: Path) -> None:
    """The limit is that of the first run: an update has all rows above the first ones."""
    simulator, path = simulator_of(ties=3), tmp_path / "rows.jsonl"
    async with simulated(simulator) as session:
        assert (await exported(session, name, path, limit=10)).rows == 10
        simulator.insert(place_of(name), 30)
        update = await exported(session, name, path, limit=10)
        await exported(session, name, tmp_path / "fresh.jsonl")
    fresh = (tmp_path / "fresh.jsonl").read_text().splitlines()
    assert lines(path) == Counter(fresh[: update.rows + 10])
    assert 30 <= update.rows <= 32  # the first ones may have left out rows of the newest block


STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 9.0),  # seconds until the export is cancelled
        st.sampled_from([0.0, 101.0]),  # seconds until the next run
        st.integers(0, 25),  # rows that the list gains meanwhile
        st.booleans(),  # tokens die while the export runs
    ),
    max_size=5,
)
SAMPLE = (NATIVE, "data.evm.transactions", "data.evm.internal_transactions", "data.evm.blocks")


def slow_simulator(**anomalies: Any) -> Simulator:
    """Return a simulator that answers after a second, and whose tokens live for 100."""
    return Simulator(
        seed=5,
        chains=CHAINS,
        rows=ROWS,
        token_lifetime=100.0,
        latency=1.0,
        anomalies=Anomalies(**anomalies),
    )


async def stopped(
    session: Session, simulator: Simulator, name: str, path: Path, seconds: float, growth: int, *, dies: bool
) -> None:
    """Cancel an export after some seconds; meanwhile its list grows and its tokens expire."""
    task = asyncio.create_task(exported(session, name, path))
    await asyncio.wait([task], timeout=seconds / 2)
    simulator.insert(place_of(name), growth)
    if dies:
        simulator.advance(101.0)
    await asyncio.wait([task], timeout=seconds / 2)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)


@pytest.mark.proof
@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(SAMPLE), ties=st.sampled_from([1, 4, 11]), steps=STEPS)
@example(name="data.evm.transactions", ties=4, steps=[(9.0, 0.0, 9, False), (3.5, 101.0, 9, False)] * 2)
@example(name=NATIVE, ties=11, steps=[(9.0, 0.0, 20, False), (3.5, 101.0, 20, False)] * 2)
def test_updates_are_exact(name: str, ties: int, steps: list[tuple[float, float, int, bool]]) -> None:
    """Updates that are stopped again and again while the list grows bring each row once."""

    async def check(folder: Path) -> None:
        simulator, path = slow_simulator(ties=ties), folder / "rows.jsonl"
        async with simulated(simulator) as session:
            for seconds, pause, growth, dies in steps:
                await stopped(session, simulator, name, path, seconds, growth // 2, dies=dies)
                await asyncio.sleep(pause)
                simulator.insert(place_of(name), growth - growth // 2)
            await exported(session, name, path)
            await exported(session, name, path)
            assert set(lines(path).values()) == {1}
            await exported(session, name, folder / "fresh.jsonl")
            assert lines(path) == lines(folder / "fresh.jsonl")

    with TemporaryDirectory() as folder:
        run(check(Path(folder)))


@pytest.mark.proof
@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(SAMPLE), order=st.sampled_from(["swapped", "shuffled"]), steps=STEPS)
@example(name="data.evm.blocks", order="swapped", steps=[(3.5, 101.0, 0, False), (9.0, 0.0, 9, True)])
@example(name=NATIVE, order="swapped", steps=[(5.5, 0.0, 9, True), (5.5, 101.0, 0, False)])
def test_lists_that_break_their_order_are_exact(
    name: str, order: Literal["swapped", "shuffled"], steps: list[tuple[float, float, int, bool]]
) -> None:
    """Restarts and stopped runs bring each row of a list once, also where its order breaks later."""

    async def check(folder: Path) -> None:
        simulator, path = slow_simulator(order=order), folder / "rows.jsonl"
        async with simulated(simulator) as session:
            await exported(session, name, folder / "fresh.jsonl")
            for seconds, pause, growth, dies in steps:
                await stopped(session, simulator, name, path, seconds, growth, dies=dies)
                await asyncio.sleep(pause)
            await exported(session, name, path)
        assert set(lines(path).values()) == {1}
        assert lines(path) >= lines(folder / "fresh.jsonl")

    with TemporaryDirectory() as folder:
        run(check(Path(folder)))
