"""Final file of an export: each pending row goes into it exactly once.

1. The file is written under another name (``.partial``), with rows of finished sources only.
2. The journal stores its digest.
3. The file is renamed.
4. The journal stores that the file is in place, in a transaction of its own.
5. The journal deletes the rows.

A run that finds a file of step 2 follows one that stopped before 4. If the ``.partial`` file has the digest,
the file gets its name now. If there is no such file, the rename took place: the ``.partial`` file was on the
disk before step 2. A user may have taken the file away since then, so its rows are never written again.

Invalid rows go to a file of their own, which is renamed just before the final one: a final file proves that
both exist.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import msgspec

from chainapi.errors import ExportError
from chainapi.export.files import (
    Target,
    digest_of,
    os_errors_explained,
    partial_of,
    put_in_place,
    refuse_link,
    write_partial,
)
from chainapi.export.journal import Journal
from chainapi.export.records import BEGUN, CLEANED, Part
from chainapi.tables.codec import INVALID
from chainapi.tables.columns import SOURCE, Column

__all__ = ["Stopped", "finalize", "recover"]


class Stopped(Exception):  # noqa: N818 - a request of the caller, not an error
    """The caller stopped the writing of a file."""


def recover(journal: Journal, target: Target) -> None:
    """Complete the final file of a killed run; check that the last file is unchanged.

    Raises:
        ExportError: the file is missing or was changed, or the journal has no record of it.

    """
    part = journal.last_part()
    with os_errors_explained(target.path):
        if part is not None and part.state == BEGUN and not _placed(target, part):
            journal.discard_part(part)
            part = journal.last_part()
        if part is not None and part.state != CLEANED:
            _complete(journal, part)
        if part is not None and not target.folder:
            _check_unchanged(target.part(part.number), part, journal)
        else:
            _check_free(target.part(1 if part is None else part.number + 1), journal)


def finalize(
    journal: Journal, target: Target, columns: Sequence[Column], stop: threading.Event
) -> Part | None:
    """Write the pending rows into a final file; return None without pending rows.

    A single file keeps its rows, and the pending ones follow.

    Raises:
        ExportError: the file cannot be written; every row is still in the journal.
        Stopped: `stop` was set meanwhile.

    """
    last, (pending, invalid) = journal.last_part(), journal.count_pending_rows()
    # Finished sources without rows get a first file too: an empty one.
    if not pending and not invalid and (last is not None or not journal.count_finished_sources()):
        return None
    number = 1 if last is None else last.number + 1
    previous = None if target.folder else last  # a single file repeats the rows that it has
    path, invalid_path = target.part(number), target.invalid_part(number)
    rows = functools.partial(_rows, journal, stop)
    old = None if previous is None else path
    partial, size, digest = write_partial(
        path, lambda new: target.format.write(new, columns, _lines(rows()), old)
    )
    renames = [(partial, path)]
    invalid_size = 0 if previous is None else previous.invalid
    if invalid:
        partial, invalid_size = _write_invalid(invalid_path, rows(invalid=True), invalid_size)
        renames.insert(0, (partial, invalid_path))
    before = 0 if previous is None else previous.rows
    part = Part(number, path.name, before + pending, size, digest, invalid_size, BEGUN)
    journal.begin_part(part)
    for source, final in renames:
        put_in_place(source, final)
    _complete(journal, part)
    return part


def _complete(journal: Journal, part: Part) -> None:
    """Store that a file has its name, and delete its rows from the journal."""
    if part.state == BEGUN:
        journal.complete_part(part)
    journal.clean(part)


def _placed(target: Target, part: Part) -> bool:
    """Give a begun file its name; return False if its rows must be written again."""
    path, invalid = target.part(part.number), target.invalid_part(part.number)
    partial = partial_of(path)
    if not partial.exists():
        return True
    if not _matches(partial, part):
        return False
    if partial_of(invalid).exists():
        put_in_place(partial_of(invalid), invalid)
    put_in_place(partial, path)
    return True


def _rows(journal: Journal, stop: threading.Event, *, invalid: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield the pending rows with their labels; raise Stopped once `stop` is set."""
    for row in journal.pending_rows(invalid=invalid):
        if stop.is_set():
            raise Stopped
        yield row


def _lines(rows: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield labels, each with some of its rows as JSON lines."""
    for label, found in groupby(rows, itemgetter(0)):
        while lines := b"".join(row + b"\n" for _, row in islice(found, 1_000)):
            yield label, lines


def _write_invalid(path: Path, rows: Iterator[tuple[str, bytes]], kept: int) -> tuple[Path, int]:
    """Write the invalid rows behind the first `kept` bytes of the file.

    Returns the new file and its size. Bytes behind `kept` belong to a final file that never got its name.
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

    partial, size, _ = write_partial(path, write)
    return partial, size


def _matches(path: Path, part: Part) -> bool:
    return path.is_file() and path.stat().st_size == part.size and digest_of(path) == part.digest


def _check_free(path: Path, journal: Journal) -> None:
    """Refuse to overwrite a file that the journal lacks.

    The journal is then an old copy, or lost its -wal file.
    """
    refuse_link(path)
    if path.exists():
        raise ExportError(
            f"{path} exists, but {journal.path} has no record of it: is that an old copy, or separated from "
            "its -wal file? Put the newest copy back, or choose another target"
        )


def _check_unchanged(path: Path, part: Part, journal: Journal) -> None:
    if _matches(path, part):
        return
    what = "was changed since it was written" if path.exists() else "is missing"
    raise ExportError(
        f"{path} {what}: put it back as it was, or delete {journal.path} (and {path.name}) to start over"
    )
