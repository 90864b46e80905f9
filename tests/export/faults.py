"""Faults at any system call below the target of an export, in all threads and libraries (`shim.c`).

``python -m tests.export.faults [WORD ...] [--every N]`` runs the targets and the stories of `contract` whose
names begin with one of the words: a fault at each Nth step of a first run, and of a later run. One or two
more may follow, while the list grows and all page tokens die. Each run is a fork of one process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from chainapi.errors import ExportError
from chainapi.testing import run
from tests.export.contract import LATENCY, STORIES, TARGETS, TRANSFERS, Place, Story, Target, grow
from tests.ledger import Ledger
from tests.sessions import reaching

__all__ = ["faults"]

T = TypeVar("T")
SHIM = Path(__file__).with_name("shim.c")
ALL = ("killed before", "killed after", "killed half-way", "ENOSPC once", "ENOSPC for good", "EIO")
KINDS = {  # what may happen at each kind of step
    "write": ALL,
    "sync": (*ALL[:2], "ENOSPC once", "EIO"),
    **dict.fromkeys(("open", "rename", "link", "mkdir"), (*ALL[:2], *ALL[3:])),
    **dict.fromkeys(("truncate", "unlink"), (*ALL[:2], "EIO")),
}
MERGES = evolve(TRANSFERS, name="merge of parts", numbers=[one // 3 for one in range(320)])  # 27 parts
TOKENS = 1_000  # more than a run gets
SECONDS = 60  # after which a run hangs


@frozen
class Fault:
    """Fault at a step; without a step there is none."""

    step: int = 0
    kind: str = "killed before"


@define
class Victim:
    """Export that meets faults.

    Attributes:
        place: where it writes.
        story: what it exports.
        changes: how often the list has changed.
        runs: number of runs so far, whose page tokens are dead.

    """

    place: Place
    story: Story
    changes: int = 0
    runs: int = field(default=0, init=False)

    def run(self, fault: Fault) -> list[str]:
        """Run the export in a fork; compare the rows if there is no fault; return the steps.

        Raises:
            AssertionError: it ended with another error than one with advice, or has other rows.

        """
        parent, child = os.pipe()
        if (process := os.fork()) == 0:
            try:
                signal.alarm(SECONDS)
                os.write(child, json.dumps(self._told(fault)).encode())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(child)
        with open(parent, "rb") as pipe:  # noqa: PTH123 - a descriptor
            told = pipe.read()
        _, status = os.waitpid(process, 0)
        self.runs += 1
        ended = os.waitstatus_to_exitcode(status)
        allowed = (0, -signal.SIGKILL) if fault.kind.startswith("killed") else (0,)
        assert ended in allowed, f"ended with {ended}"
        steps, error = json.loads(told) if told else ([], None)
        assert error is None, error
        return list(steps)

    def _told(self, fault: Fault) -> tuple[list[str], str | None]:
        try:
            return self.run_here(fault), None
        except BaseException:  # noqa: BLE001 - the parent raises it
            return [], traceback.format_exc()

    def run_here(self, fault: Fault) -> list[str]:
        """Do what `run` does, in this process."""
        shim, ledger = ctypes.CDLL(os.environ["LD_PRELOAD"]), self._ledger()
        shim.faults_list.restype = ctypes.c_char_p
        shim.faults_begin(
            os.fsencode(self.place.folder), ctypes.c_long(fault.step), ALL.index(fault.kind) + 1
        )
        try:
            run(self._export(ledger))
        except ExportError as error:
            if not fault.step or type(error) is not ExportError or "again" not in str(error):
                raise
        steps: str = shim.faults_list().decode()
        shim.faults_begin(b"", ctypes.c_long(0), 0)
        if not fault.step:
            self.place.check(self.story, ledger)
        return steps.splitlines()

    def _ledger(self) -> Ledger:
        """Return the service after its changes; it refuses the tokens of earlier runs."""
        before = self.story.ledger()
        before._tokens = {f"token-{number}": (float("-inf"), 0) for number in range(TOKENS * self.runs)}
        ledger = self.story.ledger(after=before)
        for _ in range(self.changes):
            self.story.change(ledger)
        return ledger

    async def _export(self, ledger: Ledger) -> None:
        async with reaching(ledger) as session:
            again = self.story.again if self.changes else {}
            await self.place.export(session, self.story, commit_seconds=2 * LATENCY, **again)


@define
class Trial:
    """Faults of one target and one story.

    Attributes:
        folder: where the files are.
        steps: number of steps of a first run, and of a later one.
        faults: number of faults.
        failures: what went wrong.

    """

    target: Target
    story: Story
    folder: Path
    steps: int = 0
    faults: int = 0
    failures: list[str] = field(factory=list[str])
    _names: Iterator[int] = field(factory=count, init=False)

    def run(self, every: int) -> None:
        """Let a fault of each kind occur at each Nth step of a first run, and of a run after a change."""
        self._victim(0, None).run_here(Fault())  # loads and makes what each fork has then
        gc.freeze()
        before: Path | None = None
        for changes in (0, 1):
            victim = self._victim(changes, before)
            steps = victim.run(Fault())
            self.steps += len(steps)
            for step in distinct(steps)[(every - 1) // 2 :: every]:
                for kind in kinds(steps, step):
                    self._suffer(changes, before, Fault(step, kind), steps)
            before = victim.place.folder

    def _victim(self, changes: int, before: Path | None) -> Victim:
        """Return an export in a new folder, or in a copy of one."""
        place = Place(self.target, self.folder / f"{next(self._names)}")
        if before is None:
            place.folder.mkdir()
        else:
            shutil.copytree(before, place.folder)
        return Victim(place, self.story, changes)

    def _suffer(self, changes: int, before: Path | None, fault: Fault, steps: Sequence[str]) -> None:
        """Let one to three runs meet faults; complete the export, and let it grow once more."""
        draw = Random(f"{self.target} {self.story} {changes} {fault}")
        faults = [fault]
        while len(faults) < 3 and draw.random() < 0.4:
            step = draw.randint(1, len(steps))
            faults.append(Fault(step, draw.choice(kinds(steps, step))))
        victim = self._victim(changes, before)
        try:
            for one in faults:
                self.faults += 1
                victim.run(one)
                # Rows of a window are compared once its first run is complete.
                victim.changes += 1 if changes or self.story.change is grow else 0
            if "ranges" in self.story.options:  # a range that ended before the list grew gets no new rows
                victim.run(Fault(sys.maxsize))
            for _ in range(2):
                victim.run(Fault())
                victim.changes += 1
        except AssertionError as error:
            told = ", ".join(f"{one.kind} at {one.step} ({steps[one.step - 1]})" for one in faults)
            run_ = ("a first run", "a later run")[changes]
            self.failures.append(f"{self.target}, {self.story}, {run_}, run {victim.runs}: {told}\n{error}")
        shutil.rmtree(victim.place.folder)


def distinct(steps: Sequence[str]) -> list[int]:
    """Return the numbers of the steps; of equal ones in a row only those of the first and the last one."""
    around = ["", *steps, ""]
    return [at for at in range(1, len(steps) + 1) if not around[at - 1] == around[at] == around[at + 1]]


def kinds(steps: Sequence[str], step: int) -> Sequence[str]:
    """Return the kinds of faults that a step may meet."""
    return KINDS[steps[step - 1].partition(" ")[0]]


def faults(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run this command with the shim in a process; its status is 1 if anything went wrong.

    Raises:
        RuntimeError: there is no C compiler, or this is not Linux.

    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise RuntimeError("the faults of exports need Linux and a C compiler, cc or gcc")
    with tempfile.TemporaryDirectory() as folder:
        shim = Path(folder, "shim.so")
        flags = ("-O1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-pthread")
        subprocess.run([compiler, *flags, "-o", shim, SHIM], check=True)
        command = [sys.executable, "-m", "tests.export.faults", *arguments]
        environment = {**os.environ, "LD_PRELOAD": str(shim)}
        return subprocess.run(
            command, cwd=SHIM.parents[2], env=environment, text=True, check=False, **options
        )


def main() -> int:
    """Print a table, and what went wrong; return 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.export.faults", description=__doc__)
    parser.add_argument("word", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    if not os.environ.get("LD_PRELOAD", "").endswith("shim.so"):
        return faults(*sys.argv[1:]).returncode
    print(f"{'':24}{'':24}{'steps':>8}{'faults':>8}{'seconds':>8}")
    status = 0
    for target in chosen(given.word, [one for one in TARGETS if not one.remote]):
        merges = (MERGES,) if target.folder and not target.divided else ()
        for story in chosen(given.word, (*STORIES, *merges)):
            with tempfile.TemporaryDirectory() as folder:
                trial, begun = Trial(target, story, Path(folder).resolve()), time.perf_counter()
                trial.run(given.every)
            seconds = time.perf_counter() - begun
            print(f"{target!s:24}{story!s:24}{trial.steps:8}{trial.faults:8}{seconds:8.0f}", flush=True)
            print(*trial.failures, sep="\n", end="", flush=True)
            status = status or int(bool(trial.failures))
    return status


def chosen(words: Sequence[str], things: Sequence[T]) -> Sequence[T]:
    """Return the things whose names begin with one of the words, or all if there is none."""
    return [one for one in things if str(one).startswith(tuple(words))] or things


if __name__ == "__main__":
    sys.exit(main())
