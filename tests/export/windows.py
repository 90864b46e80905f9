"""Windows of a list that changes at random: `python -m tests.export.windows [EXAMPLES]`.

Rows of the newest numbers change, leave, come late and come on top, while runs with a lookback are stopped
and continued. After each run that ended, the target must be the list.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.errors import IncompleteExportError
from chainapi.export import export
from chainapi.export.formats import format_of
from chainapi.export.run import ExportResult
from chainapi.testing import run
from tests.ledger import ADDRESS, Ledger, block, transfer
from tests.sessions import reaching

__all__ = ["CASES", "Case", "check_windows", "rows_of", "transfers"]


@frozen
class Step:
    """Changes of a list, and then two runs: one that is stopped, and one that ends.

    Attributes:
        changes: kind of each change, and a number that chooses the row.
        seconds: time of the first run until it is stopped.
        pause: seconds until the second one.
        lookback: lookback of both.

    """

    changes: list[tuple[str, int]]
    seconds: float
    pause: float
    lookback: int


@frozen
class Case:
    """Export of blocks or transfers to a folder or a file.

    Attributes:
        blocks: whether the list has blocks.
        folder: whether the target is a folder.
        numbers: numbers of the rows at first.
        steps: what follows the first run.

    """

    blocks: bool
    folder: bool
    numbers: list[int]
    steps: list[Step]


STEPS = st.builds(
    Step,
    changes=st.lists(
        st.tuples(st.sampled_from(["change", "withdraw", "late", "new", "new"]), st.integers(0, 40)),
        max_size=8,
    ),
    seconds=st.floats(0.01, 0.4),
    pause=st.sampled_from([0.0, 101.0]),
    lookback=st.integers(1, 6),
)
CASES = st.builds(
    Case,
    blocks=st.booleans(),
    folder=st.booleans(),
    numbers=st.lists(st.integers(0, 9), min_size=1, max_size=14),
    steps=st.lists(STEPS, min_size=1, max_size=4),
)


def check_windows(case: Case) -> None:
    """Run a case, and compare the target with the list after each run that ended."""
    with TemporaryDirectory() as place:
        run(_check(case, Path(place) / ("out" if case.folder else "out.jsonl")))


async def _check(case: Case, out: Path) -> None:
    make, items = (block, "blocks") if case.blocks else (transfer, "transactions")
    ledger = Ledger(sorted(case.numbers), make, items, size=3, lifetime=100.0, by_number=True)

    async def once(session: Session, lookback: int | None) -> ExportResult:
        if case.blocks:
            return await export(session.data.evm.blocks, [1], out, page_size=3, lookback=lookback)
        return await transfers(session, out, lookback=lookback)

    async with reaching(ledger) as session:
        await once(session, None)
        for step in case.steps:
            newest = max((ledger.numbers[one] for one in _listed(ledger)), default=0)
            for kind, pick in step.changes:
                _change(ledger, kind, pick, newest, step.lookback)
            task = asyncio.create_task(once(session, step.lookback))
            await asyncio.wait([task], timeout=step.seconds)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)
            await asyncio.sleep(step.pause)
            await once(session, step.lookback)
            expected = Counter(_expected(ledger, serial) for serial in _listed(ledger))
            assert Counter(map(_content, rows_of(out))) == expected


async def transfers(session: Session, out: Path, **options: Any) -> ExportResult:
    """Export the transfers of an address, three rows a page."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, [(43114, ADDRESS)], out, page_size=3, **options)


def rows_of(out: Path, suffix: str = "jsonl") -> list[dict[str, Any]]:
    """Return the rows of a file, or of all parts of a folder."""
    files = [out] if out.is_file() else sorted(out.glob(f"part-*.{suffix}"))
    return [row for file in files for row in format_of(suffix).read(file)]


def _listed(ledger: Ledger) -> list[int]:
    """Return the serials of the rows of a list."""
    return [serial for serial in range(len(ledger.numbers)) if serial not in ledger.gone]


def _change(ledger: Ledger, kind: str, pick: int, newest: int, lookback: int) -> None:
    """Change a list within the window, or above it."""
    within = [one for one in _listed(ledger) if newest - lookback <= ledger.numbers[one]]
    if kind == "new":
        ledger.numbers.append(newest + pick % 4)
    elif kind == "late":
        ledger.numbers.append(max(0, newest - pick % (lookback + 1)))
    elif within and kind == "withdraw":
        ledger.gone.add(within[pick % len(within)])
    elif within:
        ledger.changed[within[pick % len(within)]] = {"blockHash": f"0xc{pick}"}


def _content(row: dict[str, Any]) -> tuple[int, int, str]:
    """Return number, serial and hash of a row of a file."""
    if "tx_hash" in row:
        return int(row["block_number"]), int(row["tx_hash"][2:]), row["block_hash"]
    return int(row["block_timestamp"]), int(row["block_number"]), row["block_hash"]


def _expected(ledger: Ledger, serial: int) -> tuple[int, int, str]:
    row = {**ledger.make(ledger.numbers[serial], serial), **ledger.changed.get(serial, {})}
    return ledger.numbers[serial], serial, row["blockHash"]


def main() -> None:
    """Check as many random cases as the first argument says, 200 by default."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings(max_examples=examples, deadline=None)(given(case=CASES)(check_windows))()
    print(f"{examples} cases: each target was the list")


if __name__ == "__main__":
    main()
