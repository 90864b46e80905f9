"""Windows of a list that changes at random: `python -m tests.export.windows [EXAMPLES]`.

Rows of the newest numbers change, leave, come late and come on top, and move to other partitions, while runs
with a lookback are stopped and continued. After each run that ended, the target must be the list.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.errors import IncompleteExportError
from chainapi.export import export, files
from chainapi.testing import run
from tests.export.buckets import Bucket, bucket
from tests.export.contract import read, stopped
from tests.export.growing import rows_in
from tests.ledger import ADDRESS, Ledger, block, point, transfer
from tests.sessions import reaching

__all__ = [
    "CASES",
    "DAY",
    "Case",
    "check_folder",
    "check_windows",
    "points",
    "seconds",
    "transfers",
    "values_of",
]


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
        shape: kind of the target: a file, a folder, or a folder with partitions; or a URL like these.
        raw: whether rows become invalid too, and valid again.
        numbers: numbers of the rows at first.
        steps: what follows the first run.

    """

    blocks: bool
    shape: str
    raw: bool
    numbers: list[int]
    steps: list[Step]


SHAPES = ("file", "folder", "partitions", "objects", "partitions of objects")
DAY = 86_400  # seconds
HALF_DAY = 43_200  # seconds between the times of two blocks with consecutive numbers

STEPS = st.builds(
    Step,
    changes=st.lists(
        st.tuples(st.sampled_from(["change", "spoil", "withdraw", "late", "new", "new"]), st.integers(0, 40)),
        max_size=8,
    ),
    seconds=st.floats(0.01, 0.4),
    pause=st.sampled_from([0.0, 101.0]),
    lookback=st.integers(1, 6),
)
CASES = st.builds(
    Case,
    blocks=st.booleans(),
    shape=st.sampled_from(SHAPES),
    raw=st.booleans(),
    numbers=st.lists(st.integers(0, 9), min_size=1, max_size=14),
    steps=st.lists(STEPS, min_size=1, max_size=4),
)


def check_windows(case: Case) -> None:
    """Run a case, and compare the target with the list after each run that ended."""
    with TemporaryDirectory() as place, bucket() as objects:
        run(_check(case, Path(place), objects))


async def _check(case: Case, place: Path, objects: type[Bucket]) -> None:
    out = place / ("out.jsonl" if case.shape == "file" else "out")
    make, items = (_block, "blocks") if case.blocks else (transfer, "transactions")
    ledger = Ledger(sorted(case.numbers), make, items, size=3, lifetime=100.0, by_number=True)
    options: dict[str, Any] = {"partition": ["source", "day"] if "partitions" in case.shape else None}
    target: Path | str = out
    if "object" in case.shape:
        target, out = f"bucket://b/{out.name}", place / "b" / out.name
    options["on_invalid"] = "raw" if case.raw else "raise"
    invalid = Counter[str]()

    async def once(session: Session, lookback: int | None) -> Any:
        if not case.blocks:
            return await transfers(session, target, lookback=lookback, **options)
        seconds = None if lookback is None else lookback * HALF_DAY
        walk = session.data.evm.blocks
        return await export(walk, [1], target, page_size=3, lookback=seconds, **options)

    async with reaching(ledger) as session:
        await once(session, None)
        for step in case.steps:
            newest = max((ledger.numbers[one] for one in _listed(ledger)), default=0)
            for kind, pick in step.changes:
                kind = "change" if kind == "spoil" and not case.raw else kind
                _change(ledger, kind, pick, newest, step.lookback)
            task = await stopped(once(session, step.lookback), step.seconds)
            assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)
            await asyncio.sleep(step.pause)
            await once(session, step.lookback)
            spoilt = {serial for serial in _listed(ledger) if _is_spoilt(ledger, serial)}
            expected = Counter(_expected(ledger, one) for one in _listed(ledger) if one not in spoilt)
            if target != out:
                objects.copy_to(place / "b")
            found = Counter(map(_content, rows_in(out)))
            assert found == expected, (found - expected, expected - found)
            if not out.suffix:
                check_folder(out, target)
            invalid |= Counter(_expected(ledger, serial)[2] for serial in spoilt)
            assert _invalid_in(out) >= invalid
            assert max(_invalid_in(out).values(), default=1) == 1


async def transfers(session: Session, out: Path | str, **options: Any) -> Any:
    """Export the transfers of an address, three rows a page."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, [(43114, ADDRESS)], out, page_size=3, **options)


def seconds(value: Any) -> float:
    """Return a time of a file in seconds."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value) if "T" in value else int(value)
    return float(value.timestamp()) if isinstance(value, datetime) else float(value)


def check_folder(out: Path, target: Path | str, suffix: str = "jsonl") -> None:
    """Check that the files of a folder are those of its log, and that rows are in the folder of their day."""
    listed = {str(one.path).removeprefix(str(target)).lstrip("/"): one for one in files(target)}
    assert listed.keys() == {path.relative_to(out).as_posix() for path in out.rglob(f"part-*.{suffix}")}
    for name, one in listed.items():
        rows = read(out / name, suffix)
        assert one.rows == len(rows) > 0
        assert one.size == (out / name).stat().st_size
        assert one.newest.keys() >= {row["source"] for row in rows if "source" in row}
        if "day=" in name:
            times = [seconds(row.get("block_timestamp", row.get("timestamp"))) for row in rows]
            days = {datetime.fromtimestamp(time, UTC).date().isoformat() for time in times}
            (source,) = one.newest
            keys = [f"source={quote(source, safe='')}"] if "source=" in name else []
            assert name.split("/")[:-1] == [*keys, *(f"day={day}" for day in days)]


def points(days: list[int] | range) -> Ledger:
    """Return a service with one point of a metric a day."""
    return Ledger([DAY * day for day in days], point, "results", by_number=True)


def values_of(out: Path, suffix: str = "jsonl") -> dict[int, int]:
    """Return the value of each day; fail where a day is there twice."""
    found = [
        (int(seconds(row["timestamp"]) // DAY), int(float(row["value"]))) for row in rows_in(out, suffix)
    ]
    assert len({day for day, _ in found}) == len(found)
    return dict(found)


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
        serial = within[pick % len(within)]
        moved = {} if ledger.make is _block else {"blockTimestamp": pick % 5 * 2 * HALF_DAY}
        spoilt = {"gasUsed": "", "logIndex": ""} if kind == "spoil" else {}
        version = f"0x{kind}{pick}of{serial}"  # no two blocks share a hash
        ledger.changed[serial] = {"blockHash": version, **moved, **spoilt}


def _block(number: int, serial: int) -> dict[str, Any]:
    return block(number * HALF_DAY, serial)


def _content(row: dict[str, Any]) -> tuple[int, int, str]:
    """Return number, serial and hash of a row of a file."""
    if "tx_hash" in row:
        return int(row["block_number"]), int(row["tx_hash"][2:]), row["block_hash"]
    return int(row["block_timestamp"]) // HALF_DAY, int(row["block_number"]), row["block_hash"]


def _is_spoilt(ledger: Ledger, serial: int) -> bool:
    return "" in ledger.changed.get(serial, {}).values()


def _invalid_in(out: Path) -> Counter[str]:
    """Count the invalid rows by the hashes of their blocks."""
    files = [out.with_name(f"{out.name}.invalid"), *out.glob("_invalid-*.ndjson")]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    return Counter(json.loads(line)["row"]["blockHash"] for line in lines)


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
