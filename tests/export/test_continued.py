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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.api.catalogue import ROUTES
from chainapi.export import export
from chainapi.export.run import ExportResult
from chainapi.testing import run
from tests.documents import Maker
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
        task = asyncio.create_task(self.export(session, path, **options))
        await asyncio.wait([task], timeout=pages + 0.5)
        task.cancel()
        await asyncio.wait([task])
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


@pytest.mark.parametrize("growth", quick_and_others(12, 0, 5, 20))
@pytest.mark.parametrize("shifts", [True, False])
@pytest.mark.parametrize("name", ["order", "cursor"])
async def test_equal_rows_of_a_list_stay_as_many(
    name: str, shifts: bool, growth: int, tmp_path: Path
) -> None:
    """Rows that a list without a key has three times are in the target three times."""
    kind, path = evolve(KINDS[name], make=in_threes, share=6), tmp_path / "rows.jsonl"
    ledger = kind.ledger(shifts=shifts)
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert {*begun.values()} == {3}
        assert await kind.stop(session, path, 2)  # two of three equal rows are on these pages
        kind.grow(ledger, growth)
        await kind.export(session, path)
        assert lines_in(path) == begun


@pytest.mark.parametrize("name", ["plain", "order", "cursor"])
@pytest.mark.parametrize("growth", quick_and_others(1, 0, 2))
@pytest.mark.parametrize("shifts", [True, False])
async def test_a_row_that_may_be_another_one_is_kept(
    name: str, growth: int, shifts: bool, tmp_path: Path
) -> None:
    """If nothing proves that a list shifted, equal rows are kept: they repeat, and no row is lost."""
    kind = evolve(KINDS["order"], options={}) if name == "plain" else KINDS[name]
    kind, path = evolve(kind, make=in_threes, share=6), tmp_path / "rows.jsonl"
    ledger = kind.ledger(shifts=shifts)
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert await kind.stop(session, path, 4)
        kind.grow(ledger, growth)
        await kind.export(session, path)
        assert begun <= lines_in(path)
        assert lines_in(path).total() == begun.total() + (growth if shifts else 0)


@pytest.mark.parametrize("name", quick_and_others("cursor", *(name for name in KINDS if name != "cursor")))
async def test_stops_among_rows_that_come_again(name: str, tmp_path: Path) -> None:
    """An export that is stopped again and again while rows come again has each row once."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    ledger = kind.ledger()
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert await kind.stop(session, path, 4)
        for growth in (24, 9, 0, 30):
            kind.grow(ledger, growth)
            assert await kind.stop(session, path, 1)
        await kind.export(session, path)
        assert lines_in(path) == begun


@pytest.mark.parametrize(  # "number" is bounded then
    "name", quick_and_others("key", *(name for name in KINDS if name not in ("key", "number")))
)
async def test_a_later_pass_that_is_stopped(name: str, tmp_path: Path) -> None:
    """A walk that restarted, and is stopped in its second pass, continues that pass alike."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    ledger = kind.ledger()
    async with reaching(ledger) as session:
        assert await kind.stop(session, path, 2)
        await asyncio.sleep(LIFETIME)
        kind.grow(ledger, 15)
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        for pages in (5, 1):
            assert await kind.stop(session, path, pages)
            kind.grow(ledger, 12)
        await kind.export(session, path)
        assert lines_in(path) == begun


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


@pytest.mark.parametrize("name", ["key, order", "order"])
async def test_a_limited_pass_that_is_stopped_above_its_rows(name: str, tmp_path: Path) -> None:
    """A limited walk that restarted, and is stopped among rows that it skips, keeps its order."""
    kind, path = KINDS[name], tmp_path / "rows.jsonl"
    ledger = kind.ledger(102)  # no new row has the newest number
    async with reaching(ledger) as session:
        await kind.export(session, tmp_path / "begun.jsonl", limit=70)
        assert await kind.stop(session, path, 2, limit=70)
        await asyncio.sleep(LIFETIME)
        for growth in (90, 7, 3):
            kind.grow(ledger, growth)
            assert await kind.stop(session, path, 4, limit=70)
        assert (await kind.export(session, path, limit=70)).closed == 0
        assert lines_in(path) == lines_in(tmp_path / "begun.jsonl")


@pytest.mark.parametrize("growth", quick_and_others(7, 0, 40))
async def test_ranges_continue_alike(growth: int, tmp_path: Path) -> None:
    """The newest range of a list, which grew while the export was stopped, has each row once."""
    kind, path = KINDS["key, cursor"], tmp_path / "rows.jsonl"
    ledger = kind.ledger(300)
    async with reaching(ledger) as session:
        begun = await kind.lines(session, tmp_path / "begun.jsonl")
        assert await kind.stop(session, path, 7, ranges=4)
        kind.grow(ledger, growth)
        await kind.export(session, path, ranges=4)
        assert lines_in(path) == begun
        await kind.export(session, path, ranges=4)
        assert lines_in(path) == await kind.lines(session, tmp_path / "grown.jsonl")


async def test_a_stopped_update_of_a_list_that_grew(tmp_path: Path) -> None:
    """An update that is stopped adds each new row once."""
    for name in ("key, cursor", "key, order", "number", "cursor", "order"):
        kind, path = KINDS[name], tmp_path / f"{name}.jsonl"
        ledger = kind.ledger(20)
        async with reaching(ledger) as session:
            await kind.export(session, path)
            kind.grow(ledger, 50)
            assert await kind.stop(session, path, 3)
            kind.grow(ledger, 14)
            for _ in range(2):
                await kind.export(session, path)
            assert lines_in(path) == await kind.lines(session, tmp_path / f"{name}-grown.jsonl")


@pytest.mark.parametrize("growth", quick_and_others(7, 0, 30))
@pytest.mark.parametrize("name", quick_and_others("key, cursor", "key, order", "number", "cursor", "order"))
async def test_an_update_that_is_stopped_among_rows_of_the_target(
    name: str, growth: int, tmp_path: Path
) -> None:
    """A stopped update leaves out rows of the newest number that came before the stop, and come again."""
    kind = KINDS[name]
    growth += 3 if growth and not kind.keyed else 0  # so that rows rise above the last number
    for known in (17, 18, 19):  # rows of the target; three share each number
        path, ledger = tmp_path / f"{known}.jsonl", kind.ledger(known)
        async with reaching(ledger) as session:
            await kind.export(session, path)
            kind.grow(ledger, 8)
            await kind.stop(session, path, 1)  # after eight new rows, and two of the target
            kind.grow(ledger, growth)
            result = [await kind.export(session, path) for _ in range(2)][-1]
            found, grown = lines_in(path), await kind.lines(session, tmp_path / f"{known}-grown.jsonl")
            assert {*found.values()} == {1}
            # Where new rows came between others, an update of a list without an order recognizes no others.
            assert found <= grown if result.closed else found == grown
            assert bool(result.closed) <= (not kind.ordered and growth > 10)


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


STEPS = st.lists(
    st.tuples(
        st.integers(1, 8),  # pages until the export is cancelled
        st.sampled_from([0.0, LIFETIME / 3, LIFETIME + 1]),  # seconds until the next run
        st.integers(0, 90),  # rows that the list gains meanwhile
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.proof
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["key", "key, cursor", "key, order", "number"]), shifts=st.booleans(), steps=STEPS
)
@example(name="key", shifts=True, steps=[(1, 0.0, 30), (1, 0.0, 10)])  # rows come again at two places
@example(name="key, order", shifts=True, steps=[(1, 0.0, 60), (2, 0.0, 25), (1, 101.0, 5)])
def test_each_row_comes_once(name: str, shifts: bool, steps: list[tuple[int, float, int]]) -> None:
    """An export that is stopped at any pages of a list that grows repeats no row, and leaves no gap."""

    async def check(folder: Path) -> None:
        kind, path = KINDS[name], folder / "rows.jsonl"
        ledger = kind.ledger(100, shifts=shifts)
        async with reaching(ledger) as session:
            for pages, pause, growth in steps:
                if not await kind.stop(session, path, pages):
                    break
                await asyncio.sleep(pause)
                kind.grow(ledger, growth)
            result = [await kind.export(session, path) for _ in range(2)][-1]
            found, grown = lines_in(path), await kind.lines(session, folder / "grown.jsonl")
            assert {*found.values()} == {1}
            assert found <= grown if result.closed else found == grown
            assert kind.ordered <= (not result.closed)

    with TemporaryDirectory() as folder:
        run(check(Path(folder)))
