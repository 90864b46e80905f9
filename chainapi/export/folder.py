"""Sink of a folder: a commit adds a part for each partition."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import PurePosixPath
from typing import Any

from attrs import define, field, frozen

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.batch import PageRows
from chainapi.export.disk import Disk, Lock, digest_of
from chainapi.export.given import Given, Walk
from chainapi.export.log import DataFile, Log, Span, State, Storage, joined
from chainapi.export.partition import Partitioner, source_of
from chainapi.export.progress import Step
from chainapi.export.window import Window, Windows

__all__ = ["CommitSize", "Folder", "Moves"]

SMALL_ROWS, SMALL_BYTES = 50_000, 32 << 20  # a part below both is small
COMPACT_AT = 24  # small parts of one partition
BUFFER = 4 << 20  # bytes of rows that wait for the file of their part


@frozen
class CommitSize:
    """When a commit is due, whichever comes first.

    Attributes:
        rows: number of rows since the last one.
        size: bytes of their pages.
        seconds: time since the first of them.

    """

    rows: int
    size: int
    seconds: float


@define(eq=False)
class Moves:
    """Changes that a commit stores beside rows.

    Attributes:
        positions: positions that moved, by label.
        given: hashes of rows of unfinished sources.
        invalid: JSON lines of invalid rows, with the label in front.

    """

    positions: dict[str, Any] = field(factory=dict[str, Any])
    given: dict[Walk, list[Given]] = field(factory=dict[Walk, list[Given]])
    invalid: list[bytes] = field(factory=list[bytes])


class Folder:
    """Sink of a folder on a disk, at a URL, or of one partition of a cluster.

    Args:
        storage: where the folder is.
        compact: whether small parts are merged.
        seconds: greatest number of seconds between two commits.
        log: name of the folder of the log.
        prefix: folder of the parts, with a slash.
        stem: beginning of the names of parts.
        alone: whether the lock of a disk keeps other writers away; else the last one to open it takes over.

    Attributes:
        state: what is in force.
        size: when a commit is due.
        added: names of the files that this run has added.
        ends_with: what `finish` does.

    """

    ends_with: Step | None = "compacting"

    def __init__(
        self,
        storage: Storage,
        writer: str,
        *,
        compact: bool = True,
        seconds: float | None = None,
        log: str = "_log",
        prefix: str = "",
        stem: str = "part",
        alone: bool = True,
    ) -> None:
        self.storage = storage
        self.size = CommitSize(100_000, 64 << 20, 60.0 if seconds is None else seconds)
        self.added = list[str]()
        self._compact, self._prefix, self._alone = compact, prefix, alone
        self._stem, self._invalid = stem, stem.replace("part", "_invalid", 1)
        self._log = Log(storage, log, writer)
        self._lock: Lock | None = None
        if alone and isinstance(storage, Disk):
            self._lock = Lock(storage.root / log / "lock", self.address())
        self._suffix = "" if self._lock else f"-{writer}"  # else two writers may write one name
        self._parts = dict[str, _Part]()  # by folder
        self._settings: dict[str, Any] | None = None  # for the next commit
        self._folders = dict[str, str]()  # of partitions, by their names in lower case
        self._present = set[str]()  # files of windows that were looked for
        self._orphans = list[str]()  # files that no record names
        self._form: Any = None
        self._partitioner: Partitioner | None = None

    @property
    def state(self) -> State:
        """State after the newest commit."""
        return self._log.state

    @property
    def packs(self) -> bool:
        """Whether `write` takes the values of rows."""
        return self._partitioner is None and bool(self._form.packs)

    def address(self, name: str = "") -> str:
        """Return the path or the URL of a file, or of the target."""
        return self.storage.address(name)

    # Begin

    def open(self) -> State:
        """Take the lock, read the log, and complete or remove what a killed run began.

        Raises:
            TargetInUseError: another export has the lock.
            ExportError: the target holds other files, or its log is damaged, or it cannot be read.

        """
        names = self._names()
        if self._alone and not self._log.exists():
            self._refuse_others(names)
        if self._lock is not None:
            self._lock.acquire()
            names = self._names()
        self._log.read(writes=True)
        self._log.claim()
        self._complete(names)
        while not self._alone and not self._has_taken_over():
            self._log.read(writes=True)
            self._log.claim()
            self._complete(self._names())
        return self.state

    def _has_taken_over(self) -> bool:
        """Make a commit, so that an earlier writer can make no further one.

        Return False if it was faster.
        """
        try:
            self._log.append()
        except TargetInUseError:
            return False
        return True

    def begin(self, form: Any, settings: Mapping[str, Any], partitioner: Partitioner | None) -> None:
        """Take the format of new parts.

        Store the settings with the next commit, if they differ.
        """
        self._form, self._partitioner = form, partitioner
        folders = (name.rpartition("/")[0] for name in self.state.files)
        self._folders = {folder.casefold(): folder for folder in folders}
        self._settings = None if settings == self.state.settings else dict(settings)

    def _names(self) -> list[str]:
        """Return the names of the files of the target, without those of the log."""
        names = self.storage.names(below=True)
        return [name for name in names if not name.startswith(f"{self._log.folder}/")]

    def given(self, walk: Walk) -> Iterable[Given]:
        """Yield the hashes of the rows of a walk, in the order in which they were stored."""
        return self._log.given(walk)

    def _staged(self) -> list[str]:
        """Return the names of files that a killed run has left under hidden names."""
        own = f"{self._log.folder}/", self._stem, self._invalid
        return [
            name
            for name in self.storage.left_behind()
            if name.startswith(own[0]) or _base(name).startswith(own[1:])
        ]

    def _refuse_others(self, names: Sequence[str]) -> None:
        if any(name == "_manifest.ndjson" or name.startswith("_export") for name in names):
            raise earlier_version(self.address())
        if others := [name for name in names if not _is_hidden(name) and not self._is_orphan(name)]:
            raise ExportError(
                f"{self.address()} is not empty, and no export wrote it: it has {others[0]}, and no folder"
                f" {self._log.folder}. Move its files away, or choose another target"
            )

    def _is_orphan(self, name: str) -> bool:
        """Check for an object that a killed run has uploaded without a record."""
        return not isinstance(self.storage, Disk) and self._is_part(name)

    def _number(self, name: str) -> int | None:
        found = re.fullmatch(rf"{self._stem}-(\d{{8,}})[^/]*", PurePosixPath(name).name)
        return int(found[1]) if found and name.startswith(self._prefix) else None

    def _complete(self, names: Sequence[str]) -> None:
        """Complete the newest commit; remove what no record names."""
        state, last, staged = self.state, self.state.last, self._staged()
        own = set[str]() if last is None else {one.name for one in last.added if self._is_whole(one, staged)}
        if last is not None:
            self.storage.remove([name for name in last.replaced if name not in own and name in names])
            self.storage.publish([name for name in staged if name in own])
        # Without a lock, another writer may be at the next commit; nobody can make an earlier one.
        past = state.number if self._lock is None else sys.maxsize
        self.storage.discard(name for name in staged if name not in own and _number_in(name) <= past)
        later = [name for name in names if (self._number(name) or 0) > state.number]
        if later and isinstance(self.storage, Disk) and self._lock is not None:
            raise ExportError(
                f"{self.address(later[0])} is newer than the newest record in"
                f" {self.address(self._log.folder)}: is that an"
                " old copy? Put the newest copy back, or choose another target"
            )
        if not isinstance(self.storage, Disk) or self._lock is None:
            self._orphans = [name for name in names if self._is_part(name) and name not in state.files]
        self._orphans += self._log.leftovers()
        self._remove_orphans()

    def _is_whole(self, file: DataFile, staged: Sequence[str]) -> bool:
        """Check that a staged file is the one that a record names."""
        if not file.digest or file.name not in staged:
            return True
        path = self.storage.staged(file.name)
        return path.stat().st_size == file.size and digest_of(path, file.size) == file.digest

    def _is_part(self, name: str) -> bool:
        return self._number(name) is not None or PurePosixPath(name).name.startswith(f"{self._invalid}-")

    def _remove_orphans(self) -> None:
        """Remove files that no record can name any more: their numbers are taken."""
        past = [name for name in self._orphans if _number_in(name) <= self.state.number]
        self.storage.remove(past)
        self._orphans = [name for name in self._orphans if name not in past]

    # Commits

    def write(self, pages: Iterable[PageRows]) -> None:
        """Add rows to the next commit."""
        for page in pages:
            if self._partitioner is None:
                self._part("").add(page)
            else:
                for folder, rows in self._partitioner.divided(page):
                    self._part(folder).add(rows)

    def commit(self, moves: Moves) -> list[DataFile]:
        """Store the rows written and the positions after them: both, or neither.

        Raises:
            TargetInUseError: another export has made a commit.
            ExportError: the target cannot be written.

        """
        files = self._commit(moves, self._end_parts())
        if self._compact:
            self.compact()
        return files

    def replace(
        self, windows: Mapping[str, Window], number: Callable[[Mapping[str, Any]], int | None], moves: Moves
    ) -> tuple[int, int]:
        """Let rows that were fetched again replace rows of the target, in one commit.

        Return the numbers of rows that the target gains and loses.
        """
        compared, copies, replaced = Windows(windows, number, self._form), list[DataFile](), list[str]()
        for file in [*self.state.files.values()]:
            if file.invalid or not any(file.reaches(label, one.start) for label, one in windows.items()):
                continue
            with self.storage.fetched(file.name) as path:
                rows = self._form.rows(path, self.address(file.name))
                dropped = compared.dropped(rows, source_of(str(PurePosixPath(file.name).parent)))
                if dropped:
                    replaced.append(file.name)
                    if len(dropped) < file.rows:
                        name = self._free_name(str(PurePosixPath(file.name).parent), f"-{len(copies) + 1}")
                        self._form.rewrite(
                            self.storage.staged(name), [(path, self.address(file.name), dropped.keys())]
                        )
                        copies.append(self._file(name, _without(file.sources, dropped.values())))
        new = [*compared.new()]
        self.write(new)
        self._commit(moves, [*copies, *self._end_parts()], replaced)
        return sum(page.count for page in new), compared.removed

    def missing(self, label: str, start: int) -> str | None:
        """Return the address of a missing part with rows from a number on."""
        for file in self.state.files.values():
            if not file.invalid and file.reaches(label, start):
                if file.name not in self._present and self.storage.size(file.name) is None:
                    return self.address(file.name)
                self._present.add(file.name)
        return None

    def finish(self) -> None:
        """Merge small parts, and remove what no record names."""
        if self._compact:
            self.compact()
        if self._orphans:  # of a killed run, with the next number: nobody can make a record of it after this
            self._commit(Moves(), [])

    def compact(self, least: int = COMPACT_AT) -> int:
        """Merge the small parts of each partition that has at least so many.

        Return the number of merged parts.
        """
        merged = 0
        for folder, names in self._small().items():
            present = [name for name in names if self.storage.size(name) is not None]
            if len(present) >= least:
                self._merge(folder, present)
                merged += len(present)
        return merged

    def _small(self) -> dict[str, list[str]]:
        """Return the names of small parts by folder."""
        found = dict[str, list[str]]()
        for file in self.state.files.values():
            if not file.invalid and file.rows < SMALL_ROWS and file.size < SMALL_BYTES:
                found.setdefault(str(PurePosixPath(file.name).parent), []).append(file.name)
        return found

    def _merge(self, folder: str, names: Sequence[str], name: str | None = None) -> None:
        """Merge parts to one file, in a commit."""
        name = self._free_name(folder) if name is None else name
        with ExitStack() as stack:
            paths = [(stack.enter_context(self.storage.fetched(one)), self.address(one), ()) for one in names]
            self._form.rewrite(self.storage.staged(name), paths)
        sources = joined(self.state.files[one].sources for one in names)
        self._commit(Moves(), [self._file(name, sources)], names)

    def close(self) -> None:
        """Remove what was written since the last commit, and release the lock."""
        for part in self._parts.values():
            part.abandon()
        try:
            self.storage.discard(part.name for part in self._parts.values())
            self.storage.close()
        finally:
            self._parts = {}
            if self._lock is not None:
                self._lock.release(stays=self.state.number > 0)

    def _commit(
        self, moves: Moves, added: Sequence[DataFile], replaced: Sequence[str] = ()
    ) -> list[DataFile]:
        files = [*added, *self._invalid_file(moves.invalid)]
        names = [file.name for file in files]
        try:
            self._check_free(names)
            self.storage.keep(names)
            given = self._log.write_given(moves.given)
        except BaseException:
            self.storage.discard(names)
            raise
        settings, self._settings = self._settings, None
        try:  # after other errors there may be a record: the next run completes the commit, or removes files
            self._log.append(
                added=tuple(files),
                replaced=tuple(replaced),
                positions=moves.positions,
                given=given,
                settings=settings,
            )
        except TargetInUseError:
            self.storage.discard(names)
            self.storage.discard(given)
            raise
        self.storage.remove([name for name in replaced if name not in names])
        self.storage.publish(names)
        self.added += names
        self._remove_orphans()
        return files

    def _check_free(self, names: Sequence[str]) -> None:
        """Refuse to replace files of others; a name with a random id is free."""
        for name in () if self._suffix else names:
            if name not in self.state.files and self.storage.size(name) is not None:
                raise ExportError(
                    f"{self.address(name)} exists, and no export wrote it: move it away, and start the same "
                    "export again"
                )

    def _invalid_file(self, lines: Sequence[bytes]) -> list[DataFile]:
        if not lines:
            return []
        name = f"{self._prefix}{self._invalid}-{self.state.number + 1:08}{self._suffix}.ndjson"
        content = b"".join(lines)
        self.storage.staged(name).write_bytes(content)
        return [DataFile(name, len(lines), len(content), invalid=True)]

    def _part(self, folder: str) -> _Part:
        if folder not in self._parts:
            self._check_folder(folder)
            name = self._free_name(folder)
            self._parts[folder] = _Part(name, lambda: self._form.writer(self.storage.staged(name)))
        return self._parts[folder]

    def _check_folder(self, folder: str) -> None:
        """Refuse two partitions whose folders are one, where case is ignored."""
        known = self._folders.setdefault(folder.casefold(), folder)
        if known == folder or not isinstance(self.storage, Disk):
            return
        paths = [self.storage.root / one for one in (known, folder)]
        if all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
            raise ExportError(
                f"{known} and {folder} are one folder on this file system, which ignores the case of letters:"
                " leave 'source' out of partition=, or choose"
                " another target"
            )

    def _end_parts(self) -> list[DataFile]:
        made = list[DataFile]()
        for folder in sorted(self._parts):
            part = self._parts[folder]
            part.end()
            made.append(self._file(part.name, part.sources))
        self._parts = {}
        return made

    def _file(self, name: str, sources: dict[str, Span]) -> DataFile:
        rows = sum(count for count, *_ in sources.values())
        return DataFile(name, rows, self.storage.staged(name).stat().st_size, sources)

    def _free_name(self, folder: str, more: str = "") -> str:
        within = "" if folder in ("", ".") or f"{folder}/" == self._prefix else f"{folder}/"
        number = f"{self._stem}-{self.state.number + 1:08}{more}{self._suffix}"
        return f"{within or self._prefix}{number}{self._form.suffix}"


class _Part:
    """File that gets the rows of one partition until the next commit."""

    def __init__(self, name: str, opened: Callable[[], Any]) -> None:
        self.name, self.sources = name, dict[str, Span]()
        self._open: Callable[[], Any] = opened
        self._writer: Any = None
        self._waiting, self._size = list[PageRows](), 0

    def add(self, page: PageRows) -> None:
        """Add rows; they wait until there are enough for a write."""
        span = {page.label: (page.count, page.lowest, page.highest)}
        known = {page.label: self.sources[page.label]} if page.label in self.sources else {}
        self.sources.update(joined([known, span]))
        self._waiting.append(page)
        self._size += len(page.lines) or 100 * page.count
        if self._size >= BUFFER:
            self._write()

    def end(self) -> None:
        """Write what waits, and close the file."""
        self._write()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def abandon(self) -> None:
        """Close the file; its content does not count."""
        if self._writer is not None:
            with suppress(Exception):  # such as a full disk, which has ended the run
                self._writer.close()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = self._open()
        self._writer.write(self._waiting)
        self._waiting, self._size = [], 0


def earlier_version(address: str) -> ExportError:
    """Return the error for a target of an unreleased version."""
    return ExportError(
        f"{address} was exported by an earlier version of chainapi: keep its files, and choose another target"
    )


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _is_hidden(name: str) -> bool:
    return PurePosixPath(name).name.endswith(".partial")


def _number_in(name: str) -> int:
    found = re.search(r"(?:^|-)(\d{8,})", PurePosixPath(name).name)
    return int(found[1]) if found else 0


def _without(sources: Mapping[str, Span], dropped: Iterable[str]) -> dict[str, Span]:
    """Return the rows of each source in a file without some.

    Their numbers stay in the same bounds.
    """
    left = dict(sources)
    for label in dropped:
        rows, least, most = left[label]
        left[label] = rows - 1, least, most
    return {label: span for label, span in left.items() if span[0]}
