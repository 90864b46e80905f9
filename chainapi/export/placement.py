"""Parts of an export: each waiting row goes into one of them exactly once.

1. The files of a part are written under other names (``.partial``), synced and read back (`part_writer`).
2. The journal stores their digests.
3. The files are renamed, or appended to a single file (`append`), or their rows are added to a database
   (`transaction`).
4. The journal stores that the part is in place, in a transaction of its own; a folder gets a new manifest.
5. The pages of the part are deleted from the journal, and then their segments.

A run that finds a part of step 2 follows one that stopped before 4. A ``.partial`` file with the digest is
appended or gets its name now. A file that is renamed and has no ``.partial`` file has its name: the
``.partial`` file was on the disk before step 2. A user may have taken the file away since then, so its rows
are never written again.

Everything here blocks the thread of the journal. Step 1 may run in another thread while pages are committed,
and the other steps are short.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
from attrs import evolve

from chainapi.errors import ExportError
from chainapi.export.append import append, cut, has_base, has_tail
from chainapi.export.files import (
    SyncGroup,
    digest_of,
    has_state,
    os_errors_explained,
    partial_of,
    put_in_place,
    reason_of,
    refuse_link,
)
from chainapi.export.formats import DatabaseFormat
from chainapi.export.journal import Journal
from chainapi.export.manifest import has_manifest, write_manifest
from chainapi.export.part_records import BEGUN, CLEANED, IN_PLACE, Part, PartFile, next_number
from chainapi.export.target import Target
from chainapi.export.transaction import Transaction

__all__ = ["place", "recover"]


def recover(journal: Journal, target: Target, stop: threading.Event) -> Part | None:
    """Complete and return the part of a killed run; check that a file is unchanged.

    Raises:
        ExportError: the file is missing or was changed, or the journal has no record of it.
        TargetInUseError: another program has locked a database that was changed.
        Stopped: `stop` was set meanwhile.

    """
    part, completed = journal.last_part(), None
    with os_errors_explained(target.path):
        _check_next(target, part)
        listed = not target.folder or has_manifest(journal, target, part)
        if part is not None and part.state == BEGUN and not _placed(journal, target, part, stop):
            journal.discard_part(part)
            part = journal.last_part()
            _check_next(target, part)
        if part is not None and part.state != CLEANED:
            part = completed = _complete(journal, target, part)
        for left in target.left_behind():
            refuse_link(left)
            if left.is_file():
                left.unlink()
        if part is not None and not target.folder:
            _check_file(target, part, stop)
        elif part is not None and completed is None and not listed:
            write_manifest(journal, target)
    return completed


def place(journal: Journal, target: Target, part: Part, stop: threading.Event) -> None:
    """Rename or append the files of a written part, and delete its pages.

    Raises:
        ExportError: a file cannot be renamed or appended to, or the journal cannot be written.
        TargetInUseError: another program has locked the database.
        Stopped: `stop` was set meanwhile; the next run completes the part.

    """
    previous = journal.last_part()
    with os_errors_explained(target.path):
        for file in part.content.files:
            _check_place(target, file, previous, stop)
    journal.begin_part(part)
    _put(target, part, part.content.files, stop)
    _complete(journal, target, part)


def _check_place(target: Target, file: PartFile, previous: Part | None, stop: threading.Event) -> None:
    """Check that a file may get its name, or follow the rows of the previous part."""
    if target.folder or (previous is None and not file.invalid):
        _check_free(target.root / file.name, target)
    if previous is not None and (file.base is not None or file.added is not None):
        _check_file(target, previous, stop)
    elif not file.invalid:
        target.refuse_log()


def _put(target: Target, part: Part, files: Iterable[PartFile], stop: threading.Event) -> None:
    """Rename or append files of a part."""
    syncs = SyncGroup()
    for file in files:
        _put_file(target, part, file, stop, syncs)
    syncs.sync()


def _put_file(target: Target, part: Part, file: PartFile, stop: threading.Event, syncs: SyncGroup) -> None:
    path = target.root / file.name
    if file.added is not None:
        _transaction(target, stop).add(part)
    elif file.base is not None:
        append(path, file.base, stop)
    else:
        if not file.invalid:
            target.refuse_log()
        put_in_place(path, syncs)


def _complete(journal: Journal, target: Target, part: Part) -> Part:
    """Store that the files of a part are in place, and delete its pages.

    Return the part as stored.
    """
    if part.state == BEGUN:
        files = tuple(_described(target, file) for file in part.content.files)
        part = evolve(part, content=msgspec.structs.replace(part.content, files=files))
        journal.complete_part(part)
    for file in part.content.files:
        if file.base is not None or file.added is not None:
            with suppress(OSError):  # the next run deletes it
                partial_of(target.root / file.name).unlink(missing_ok=True)
    if target.folder:
        write_manifest(journal, target)
        _remove_replaced(target, part)
    journal.clean(part, finished=not target.folder)
    return part


def _remove_replaced(target: Target, part: Part) -> None:
    """Delete the files that a part replaces; the manifest does not list them."""
    paths = [target.root / name for name in part.content.replaces]
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ExportError(
                f"{path} cannot be removed ({reason_of(error)}), and part {part.number} replaces it: remove "
                "the cause and start the same export again"
            ) from error
    syncs = SyncGroup()
    for path in paths:
        if path.parent.is_dir():
            syncs.add(path.parent, path)
    syncs.sync()  # before the journal loses the record that they are to be deleted


def _described(target: Target, file: PartFile) -> PartFile:
    """Return the record of a file.

    Size and digest of a database are known once the rows are in it.
    """
    if file.added is None:
        return file
    path = target.root / file.name
    return msgspec.structs.replace(file, size=path.stat().st_size, digest=digest_of(path))


def _placed(journal: Journal, target: Target, part: Part, stop: threading.Event) -> bool:
    """Rename or append the files of a begun part; return False to write them again."""
    files = part.content.files
    for file in files:
        if file.base is not None:
            _check_unchanged(target, unchanged=has_base(target.root / file.name, file.base))
    left = [file for file in files if not _is_in_place(journal, target, part, file, stop)]
    changed = [file for file in left if not _is_ready(target, part, file, stop)]
    if changed and len(left) < len(files):
        raise ExportError(
            f"{partial_of(target.root / changed[0].name)} was changed since it was written: put it back as "
            f"it was, or move {target.path} and {target.journal} away to start over"
        )
    if not changed:
        _put(target, part, left, stop)
        return True
    for file in left:
        if file.base is not None:
            cut(target.root / file.name, file.base)
    return False


def _is_in_place(journal: Journal, target: Target, part: Part, file: PartFile, stop: threading.Event) -> bool:
    """Check whether a file of a begun part is in place.

    What was appended is appended again.
    """
    if file.added is not None:
        return _transaction(target, stop).is_in(part, journal.last_part(IN_PLACE))
    return file.base is None and not partial_of(target.root / file.name).exists()


def _is_ready(target: Target, part: Part, file: PartFile, stop: threading.Event) -> bool:
    """Check whether the ``.partial`` file has what the journal says."""
    path = target.root / file.name
    if file.added is not None:
        return _transaction(target, stop).is_ready(part)
    if file.base is not None:
        return has_tail(path, file.base, file)
    return has_state(partial_of(path), file.size, file.digest)


def _transaction(target: Target, stop: threading.Event) -> Transaction:
    return Transaction(target.path, cast("DatabaseFormat", target.format), stop)


def _check_file(target: Target, part: Part, stop: threading.Event) -> None:
    """Refuse a single file that is not as its newest part left it."""
    file = part.rows_file
    if isinstance(target.format, DatabaseFormat):
        _transaction(target, stop).check(part)
    else:
        unchanged = file is not None and has_state(target.path, file.size, file.digest)
        _check_unchanged(target, unchanged=unchanged)


def _check_next(target: Target, part: Part | None) -> None:
    """Refuse to overwrite files of the part after this one."""
    if part is None or target.folder:
        number = next_number(part)
        for path in [*target.parts(number), *([target.invalid_part(number)] if target.folder else ())]:
            _check_free(path, target)


def _check_free(path: Path, target: Target) -> None:
    """Refuse to overwrite a file that the journal lacks.

    The journal is then an old copy, or lost its -wal file.
    """
    refuse_link(path)
    if path.exists():
        raise ExportError(
            f"{path} exists, but {target.journal} has no record of it: is that an old copy, or without its "
            "-wal file? Put the newest copy back, or choose another target"
        )


def _check_unchanged(target: Target, *, unchanged: bool) -> None:
    """Refuse a single file unless it is `unchanged`."""
    if unchanged:
        return
    path = target.path
    what = "was changed since it was written" if path.exists() else "is missing"
    raise ExportError(
        f"{path} {what}: put it back as it was, or delete {target.journal} (and {path.name}) to start over"
    )
