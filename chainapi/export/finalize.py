"""From rows that wait to a final file, exactly once.

A file is written aside; its digest is noted; it gets its name; its rows are dropped from the state. Who finds
a digest noted and rows still there looks at the file: either it has the digest, and only the last step is
left, or it never got its name, and its rows are written again.

Rows that could not be made go to a file of their own, which gets its name just before the final file does.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from chainapi.errors import ExportError
from chainapi.export.columns import INVALID, SOURCE, Column
from chainapi.export.files import Target, digest_of, put_in_place, refuse_link, told, write_aside
from chainapi.export.journal import State
from chainapi.export.records import Part

__all__ = ["Stopped", "recover", "seal"]


class Stopped(Exception):  # noqa: N818 - asked for, not met
    """The writing of a file was given up because its caller wants to end."""


def recover(state: State, target: Target) -> None:
    """Finish what a run that was killed had begun, and see that the last file is as it was left.

    Raises:
        ExportError: the file is gone, was changed, or is one that the state does not know.

    """
    part = state.last_part()
    with told(target.path):
        if part is not None and not part.whole:
            if _is(target.part(part.number), part):
                state.part_in_place(part)
            else:
                state.part_given_up(part)
            part = state.last_part()
        if part is not None and not target.folder:
            _check_unchanged(target.part(part.number), part, state)
        else:
            _check_free(target.part(1 if part is None else part.number + 1), state)


def seal(state: State, target: Target, columns: Sequence[Column], stop: threading.Event) -> Part | None:
    """Write the rows of finished sources into a final file, behind those it has; None if there are none.

    Raises:
        ExportError: the file cannot be written; every row is still in the state.
        Stopped: `stop` was set meanwhile.

    """
    last, (waiting, invalid) = state.last_part(), state.waiting()
    # A first file is written for sources without rows as well, not where no source came to its end.
    if not waiting and not invalid and (last is not None or not state.finished()):
        return None
    number = 1 if last is None else last.number + 1
    path = target.part(number)
    previous = None if last is None or target.folder else path

    def rows(*, invalid: bool = False) -> Iterator[tuple[str, bytes]]:
        for row in state.finished_rows(invalid=invalid):
            if stop.is_set():
                raise Stopped
            yield row

    aside, size, digest = write_aside(path, lambda new: target.format.write(new, columns, rows, previous))
    before = last.rows if last is not None and previous else 0
    kept = last.invalid if last is not None and previous else 0
    invalid_path = target.invalid_part(number)
    invalid_aside, invalid_size = (
        _write_invalid(invalid_path, rows(invalid=True), kept) if invalid else (None, kept)
    )
    part = Part(number, path.name, before + waiting, size, digest, invalid_size, whole=False)
    state.part_written(part)
    if invalid_aside is not None:
        put_in_place(invalid_aside, invalid_path)  # before the file whose name says that both are there
    put_in_place(aside, path)
    state.part_in_place(part)
    return part


def _write_invalid(path: Path, rows: Iterator[tuple[str, bytes]], kept: int) -> tuple[Path, int]:
    """Write the invalid rows, behind the first `kept` bytes of the file that exists.

    What that has behind them belongs to a final file that never got its name.
    """
    refuse_link(path)

    def write(new: Path) -> None:
        with new.open("wb") as file:
            if kept and path.is_file():
                with path.open("rb") as old:
                    shutil.copyfileobj(old, file)
                file.truncate(min(kept, file.tell()))
                file.seek(0, os.SEEK_END)
            for source, row in rows:
                label = msgspec.json.encode(source)
                file.write(b'{"%b":%b,%b\n' % (SOURCE.encode(), label, row[len(INVALID) + 1 :]))

    aside, size, _ = write_aside(path, write)
    return aside, size


def _is(path: Path, part: Part) -> bool:
    return path.is_file() and path.stat().st_size == part.size and digest_of(path) == part.digest


def _check_free(path: Path, state: State) -> None:
    """Refuse to write over a file of a later state: this one was put back, or lost what was beside it."""
    refuse_link(path)
    if path.exists():
        raise ExportError(
            f"{path} exists, and {state.path} does not know it: was that put back, or parted from its -wal? "
            "Choose another target"
        )


def _check_unchanged(path: Path, part: Part, state: State) -> None:
    if _is(path, part):
        return
    what = "was changed since it was written" if path.exists() else "is gone"
    raise ExportError(
        f"{path} {what}: put it back as it was, or delete {state.path} (and {path.name}) to start over"
    )
