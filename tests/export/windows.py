"""Windows of a list that changes at random: `python -m tests.export.windows [EXAMPLES]`.

Rows of the newest numbers change, leave, come late and come on top, and move to other partitions, while runs
with a lookback are stopped and continued. After each run that ended, the target must be the list.
"""

from __future__ import annotations

import asyncio
import sys
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.errors import IncompleteExportError
from chainapi.testing import run
from tests.export.buckets import bucket
from tests.export.contract import BLOCKS, DAY, TARGETS, TRANSFERS, Place, Story, Target, stopped
from tests.ledger import Ledger
from tests.sessions import reaching

__all__ = ["CASES", "Case", "check_windows"]


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
    """Export of blocks or transfers to a target.

    Attributes:
        story: kind of the list.
        target: where its rows go.
        raw: whether rows become invalid too, and valid again.
        numbers: numbers of the rows at first.
        steps: what follows the first run.

    """

    story: Story
    target: Target
    raw: bool
    numbers: list[int]
    steps: list[Step]


HALF_DAY = DAY // 2  # seconds between the times of two blocks with consecutive numbers
# A version of a row has a block hash of its own.
STORIES = (evolve(BLOCKS, invalid=()), evolve(TRANSFERS, fields=("tx_hash", "block_hash", "block_number")))
NAMES = ("text file", "folder of JSON lines", "partitions", "URL of a folder", "URL of partitions")

STEPS = st.builds(
    Step,
    changes=st.lists(
        st.tuples(st.sampled_from(["change", "spoil", "withdraw", "late", "new", "new"]), st.integers(0, 40)),
        max_size=8,
    ),
    seconds=st.floats(0.02, 1.0),
    pause=st.sampled_from([0.0, 101.0]),
    lookback=st.integers(1, 6),
)
CASES = st.builds(
    Case,
    story=st.sampled_from(STORIES),
    target=st.sampled_from([one for one in TARGETS if one.name in NAMES]),
    raw=st.booleans(),
    numbers=st.lists(st.integers(0, 9), min_size=1, max_size=14),
    steps=st.lists(STEPS, min_size=1, max_size=4),
)


def check_windows(case: Case) -> None:
    """Run a case, and compare the target with the list after each run that ended."""
    with TemporaryDirectory() as folder, bucket() as objects:
        run(_check(case, Place.of(case.target, Path(folder, "run"), objects)))


async def _check(case: Case, place: Place) -> None:
    unit = HALF_DAY if case.story.name == BLOCKS.name else 1
    story = evolve(case.story, numbers=[unit * number for number in sorted(case.numbers)])
    ledger, earlier = story.ledger(lifetime=100.0), list[Ledger]()
    options: dict[str, Any] = {"page_size": 3, "on_invalid": "raw" if case.raw else "raise"}
    async with reaching(ledger) as session:
        await place.export(session, story, **options)
        for step in case.steps:
            newest = max((ledger.numbers[one] for one in _listed(ledger)), default=0)
            for kind, pick in step.changes:
                kind = "change" if kind == "spoil" and not case.raw else kind
                _change(ledger, kind, pick, newest, step.lookback, unit)
            options["lookback"] = step.lookback * unit
            task = await stopped(place.export(session, story, **options), step.seconds)
            assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)
            await asyncio.sleep(step.pause)
            await place.export(session, story, **options)
            place.check(story, ledger, *earlier)
            earlier.append(deepcopy(ledger))


def _listed(ledger: Ledger) -> list[int]:
    """Return the serials of the rows of a list."""
    return [serial for serial in range(len(ledger.numbers)) if serial not in ledger.gone]


def _change(ledger: Ledger, kind: str, pick: int, newest: int, lookback: int, unit: int) -> None:
    """Change a list within the window, or above it."""
    within = [one for one in _listed(ledger) if newest - lookback * unit <= ledger.numbers[one]]
    if kind == "new":
        ledger.numbers.append(newest + pick % 4 * unit)
    elif kind == "late":
        ledger.numbers.append(max(0, newest - pick % (lookback + 1) * unit))
    elif within and kind == "withdraw":
        ledger.gone.add(within[pick % len(within)])
    elif within:
        serial = within[pick % len(within)]
        moved = {} if unit > 1 else {"blockTimestamp": pick % 5 * DAY}
        spoilt = {"gasUsed": "", "logIndex": ""} if kind == "spoil" else {}
        version = f"0x{kind}{pick}of{serial}"  # no two blocks share a hash
        ledger.changed[serial] = {"blockHash": version, **moved, **spoilt}


def main() -> None:
    """Check as many random cases as the first argument says, 200 by default."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    settings(max_examples=examples, deadline=None)(given(case=CASES)(check_windows))()
    print(f"{examples} cases: each target was the list")


if __name__ == "__main__":
    main()
