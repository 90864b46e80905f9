"""Exports that continue with page tokens that count rows from the head of a list, which grew meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import ROUTES, Session
from chainapi.export import ExportResult, export
from chainapi.testing import run
from tests.documents import Maker
from tests.export.contract import stopped
from tests.export.growing import rows_in
from tests.ledger import ADDRESS, Ledger, Row, block, point, transfer
from tests.sessions import reaching

LIFETIME = 100.0  # seconds of a page token
PROOF = pytest.mark.proof
ROWS = 60  # of a list at first, in pages of ten

_INTERNAL: Row = Maker(1, whole=True).page(ROUTES["data.evm.internal_transactions"], 1)["transactions"][0]


def internal(number: int, serial: int) -> Row:
    """Return an internal transaction of a block; those of one serial are equal."""
    return {**_INTERNAL, "blockNumber": str(number), "txHash": f"0x{serial}"}


@frozen
class Kind:
    """Kind of a list, and how it is exported.

    Attributes:
        walk: returns the method of a session.
        source: its arguments.
        make: makes a row.
        items: name of the list field.
        share: rows that share a number.
        keyed: whether rows have a key.
        ordered: whether the list is in descending order.
        updated: whether later runs add new rows.
        options: further options of the export.

    """

    walk: Callable[[Session], Any]
    source: Any = (1, ADDRESS)
    make: Callable[[int, int], Row] = transfer
    items: str = "transactions"
    share: int = 3
    keyed: bool = True
    ordered: bool = False
    updated: bool = True
    options: Mapping[str, Any] = field(factory=dict[str, Any])

    def ledger(self, rows: int = ROWS, *, shifts: bool = True) -> Ledger:
        """Return a service with a list of this kind."""
        ledger = Ledger([], self.make, self.items, latency=1.0, lifetime=LIFETIME, shifts=shifts)
        self.grow(ledger, rows)
        return ledger

    def grow(self, ledger: Ledger, rows: int) -> None:
        """Add rows at the head of the list."""
        begin = len(ledger.numbers)
        ledger.numbers += [100 + serial // self.share for serial in range(begin, begin + rows)]

    async def export(self, session: Session, path: Path, **options: Any) -> ExportResult:
        """Export the list."""
        chosen = {"page_size": 10, **self.options, **options}
        return await export(self.walk(session), [self.source], path, **chosen)

    async def stop(self, session: Session, path: Path, pages: int, **options: Any) -> bool:
        """Begin or continue an export; cancel it after some pages, unless it ended before."""
        task = await stopped(self.export(session, path, **options), pages + 0.5)
        if not task.cancelled():
            task.result()
        return task.cancelled()

    async def lines(self, session: Session, path: Path) -> Counter[str]:
        """Count the rows of the list of now, as another export has them."""
        await self.export(session, path)
        return lines_in(path)


def quick_and_others(quick: Any, *others: Any) -> list[Any]:
    """Return a value for each run of the suite, and others for proofs."""
    return [quick, *(pytest.param(one, marks=PROOF) for one in others)]


def lines_in(path: Path) -> Counter[str]:
    """Count the rows of a file."""
    return Counter(path.read_text().splitlines())


def plain(session: Session) -> Any:
    """Return the method of lists by their paths."""
    return session.data.list


PATH = ("/v1/rows",)
KINDS = {
    "key": Kind(plain, PATH, updated=False, options={"key": "txHash"}),
    "key, cursor": Kind(lambda session: session.data.evm.erc20_transactions),
    "key, order": Kind(lambda session: session.data.evm.blocks, (1,), block, "blocks", ordered=True),
    "number": Kind(
        lambda session: session.metrics.chains.metric, (1, "avgTps"), point, "results", 1, ordered=True
    ),
    "order": Kind(
        plain, PATH, internal, keyed=False, ordered=True, options={"descending_key": "blockNumber"}
    ),
    "cursor": Kind(lambda session: session.data.evm.internal_transactions, make=internal, keyed=False),
}


@pytest.mark.parametrize(
    ("pages", "growth"),
    [(4, 27), *(pytest.param(*one, marks=PROOF) for one in ((1, 0), (1, 11), (4, 1), (4, 10), (4, 200)))],
)
@pytest.mark.parametrize("name", KINDS)
async def test_rows_of_a_list_that_grew_meanwhile_come_once(
    name: str, pages: int, growth: int, tmp_path: Path
) -> None:
    """A continued export leaves out the rows that it has; its updates add what the list gained."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    growth += 3 if growth and not kind.keyed else 0  # so that rows rise above the last number
    ledger = kind.ledger()
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert await kind.stop(session, path, pages)
        kind.grow(ledger, growth)
        result = await kind.export(session, path)
        grown = await kind.lines(session, tmp_path / "grown.jsonl")
        if not kind.ordered and growth > 10 * pages:  # some of the new rows were in the pages
            assert begun <= lines_in(path) <= grown
            return
        assert lines_in(path) == begun
        assert result.closed == (not kind.updated)
        await kind.export(session, path)
        assert lines_in(path) == (grown if kind.updated else begun)


def in_threes(number: int, serial: int) -> Row:
    """Return an internal transaction that is equal to two others of its block."""
    return internal(number, serial // 3)


@pytest.mark.parametrize("shifts", [True, False])
@pytest.mark.parametrize(
    ("name", "pages", "growth"),
    [
        *((name, 2, growth) for name in ("order", "cursor") for growth in (5, 12)),
        *((name, 4, 1) for name in ("plain", "order", "cursor")),
    ],
)
async def test_equal_rows_of_a_list_stay_as_many(
    name: str, pages: int, growth: int, shifts: bool, tmp_path: Path
) -> None:
    """Rows that a list without a key has three times are in the target three times.

    If nothing proves that a list shifted, as with one new row, they repeat, and no row is lost.
    """
    kind = evolve(KINDS["order"], options={}) if name == "plain" else KINDS[name]
    kind, path = evolve(kind, make=in_threes, share=6), tmp_path / "rows.jsonl"
    ledger = kind.ledger(shifts=shifts)
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert {*begun.values()} == {3}
        assert await kind.stop(session, path, pages)  # after 2 pages, two of three equal rows were there
        kind.grow(ledger, growth)
        await kind.export(session, path)
        assert begun <= lines_in(path)
        repeated = growth if shifts and growth == 1 else 0
        assert lines_in(path).total() == begun.total() + repeated


@pytest.mark.parametrize("limit", quick_and_others(35, 41))
@pytest.mark.parametrize("growth", quick_and_others(27, 7, 60))
@pytest.mark.parametrize("name", KINDS)
async def test_a_limit_counts_rows_once(name: str, growth: int, limit: int, tmp_path: Path) -> None:
    """Rows that come again do not count for a limit: the target has the first rows of the list."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    ledger = kind.ledger()
    async with reaching(ledger) as session:
        await kind.export(session, tmp_path / "begun.jsonl", limit=limit)
        assert await kind.stop(session, path, 3, limit=limit)
        kind.grow(ledger, growth)
        await kind.export(session, path, limit=limit)
        assert lines_in(path).total() == limit
        assert {*lines_in(path).values()} == {1}
        if growth < 30 or kind.ordered:
            assert lines_in(path) == lines_in(tmp_path / "begun.jsonl")


@pytest.mark.parametrize("name", ["key, order", "number"])
async def test_a_stopped_lookback_of_a_list_that_grew(name: str, tmp_path: Path) -> None:
    """A window that is fetched again, and stopped, has each row once, also if the list grew meanwhile."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    ledger = kind.ledger()
    async with reaching(ledger) as session:
        await kind.export(session, path)
        for growth in (40, 12):
            kind.grow(ledger, growth)
            assert await kind.stop(session, path, 2, lookback="10 s")
        for _ in range(2):
            await kind.export(session, path, lookback="10 s")
        assert lines_in(path) == await kind.lines(session, tmp_path / "grown.jsonl")


@frozen
class History:
    """Export that is stopped again and again, while its list grows and its tokens die.

    Attributes:
        name: kind of the list.
        rows: rows at first.
        steps: for each run that is stopped its pages, seconds until the next one, and rows that the list
            gains, half of them while it runs if its tokens do not count rows.
        limit: limit of the export.
        ranges: ranges of the export.
        out: name of the target.
        shifts: whether tokens count rows from the head.
        disorder: whether the numbers of some rows break the order of the list.

    """

    name: str
    rows: int
    steps: list[tuple[int, float, int]]
    limit: int | None = None
    ranges: int | str | None = None
    out: str = "rows.jsonl"
    shifts: bool = True
    disorder: bool = False


KEYED = ["key", "key, cursor", "key, order", "number"]
HISTORIES = st.builds(
    History,
    name=st.sampled_from(KEYED),
    rows=st.integers(10, 110),
    steps=st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from([0.0, LIFETIME / 3, LIFETIME + 1]), st.integers(0, 90)),
        min_size=1,
        max_size=4,
    ),
    out=st.sampled_from(["rows.jsonl", "rows/", "rows.sqlite"]),
    shifts=st.booleans(),
)
LIMITED = st.builds(evolve, HISTORIES, shifts=st.just(False), limit=st.integers(1, 90))
DISORDERED = st.builds(evolve, HISTORIES, shifts=st.just(False), disorder=st.just(True))
IN_RANGES = st.builds(
    evolve, HISTORIES, name=st.just("key, cursor"), limit=st.none(), ranges=st.sampled_from([3, "7 blocks"])
)


async def check(history: History, folder: Path) -> None:
    """Carry out a history, and compare the target with the list."""
    kind = KINDS[history.name]
    ledger = kind.ledger(history.rows, shifts=history.shifts)
    if history.disorder:
        for one in range(0, history.rows - 2, 4):
            ledger.numbers[one], ledger.numbers[one + 2] = ledger.numbers[one + 2], ledger.numbers[one]
    options: dict[str, Any] = {"limit": history.limit, "ranges": history.ranges, "format": None}
    if history.out == "rows/" and kind.walk is not plain:
        options |= {"format": "jsonl", "commit_seconds": 1.5}
    path = folder / (history.out if kind.walk is not plain else "rows.jsonl")  # else rows have no columns

    def found() -> list[int]:
        return sorted(map(serial_of, rows_in(path, path.suffix[1:] or "jsonl")))

    ended = False  # whether a run has had the whole list, so that later ones are updates
    async with reaching(ledger) as session:
        for pages, pause, growth in history.steps:
            begin, meanwhile = len(ledger.numbers), 0 if history.shifts else growth // 2
            ledger.grows = [
                (ledger.now + pages / 2, 100 + (begin + one) // kind.share) for one in range(meanwhile)
            ]
            stopped = await kind.stop(session, path, pages, **options)
            ledger.numbers += [number for _, number in ledger.grows]
            ledger.grows = []
            ended = ended or not stopped
            if ended and history.limit is not None:
                break
            await asyncio.sleep(pause)
            kind.grow(ledger, growth - meanwhile)
        await kind.export(session, path, **options)
        first = found()
        kind.grow(ledger, 5 * kind.share)
        result = await kind.export(session, path, **options)
    last, whole = found(), [*range(len(ledger.numbers))]
    assert len({*last}) == len(last)
    if history.limit is None:
        assert first[: history.rows] == whole[: history.rows]
        assert last == (first if result.closed else whole)
    else:
        assert 1 <= len(first) <= (len(whole) if ended else history.limit)
        assert len(first) >= min(history.limit, history.rows) or not kind.ordered or history.disorder
        assert first == whole[first[0] : first[-1] + 1] or history.disorder
        assert last == (first if result.closed else whole[first[0] :]) or history.disorder
    assert history.disorder or not (kind.ordered and result.closed)


def serial_of(row: Mapping[str, Any]) -> int:
    """Return the serial that a row was made of."""
    for name in ("tx_hash", "txHash", "block_hash"):
        if name in row:
            return int(row[name].removeprefix("0x"))
    return int(float(row["value"]))


EXAMPLES = (
    History("key", 100, [(1, 0.0, 30), (1, 0.0, 10)]),  # rows come again at two places
    History("key, order", 100, [(1, 0.0, 60), (2, 0.0, 25), (1, 101.0, 5)]),
    History("key, cursor", 60, [(4, 0.0, 24), (1, 0.0, 9), (1, 0.0, 0), (1, 0.0, 30)]),
    History("key", 60, [(2, 101.0, 15), (5, 0.0, 12), (1, 0.0, 12)]),  # stopped in a second pass
    History("key, order", 20, [(8, 0.0, 50), (3, 0.0, 14)], out="rows/"),  # a stopped update
    History("key, cursor", 18, [(8, 0.0, 8), (1, 0.0, 7)]),  # stopped among rows of the newest number
    History("key, order", 101, [(2, 101.0, 30), (2, 101.0, 30)], limit=25, shifts=False),  # ties
    History("key, order", 12, [(1, 101.0, 0), (2, 0.0, 0)], limit=10, shifts=False),
    History(
        "key, cursor", 100, [(3, 0.0, 4)], limit=50, shifts=False
    ),  # the update has what the limit skipped
    History("key", 100, [(3, 101.0, 200)], limit=50, shifts=False),
    History("number", 102, [(2, 101.0, 90), (4, 0.0, 7), (4, 0.0, 3)], limit=70, shifts=False),
    History("key, cursor", 100, [(2, 0.0, 9), (1, 101.0, 9)], limit=30, shifts=False),
    History("key, cursor", 110, [(7, 0.0, 7), (2, 101.0, 7)], ranges=4, out="rows.sqlite"),
)


@pytest.mark.parametrize("history", EXAMPLES, ids=lambda one: f"{one.name}, {one.steps}")
def test_each_row_comes_once(history: History, tmp_path: Path) -> None:
    """An export that is stopped at any pages of a list that grows repeats no row, and leaves no gap."""
    run(check(history, tmp_path))


@pytest.mark.proof
@settings(max_examples=200, deadline=None)
@given(history=HISTORIES | LIMITED | IN_RANGES | DISORDERED)
def test_each_row_comes_once_in_any_history(history: History) -> None:
    """So it is in any history, with a limit or in ranges, in a file, a folder or a database."""
    with TemporaryDirectory() as folder:
        run(check(history, Path(folder)))
