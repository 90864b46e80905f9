"""Sink of a folder: a commit adds a part for each partition."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.disk import Disk, Lock
from chainapi.export.given import PageDigests, WalkId
from chainapi.export.log import DataFile, Log, Span, Storage, TargetState, joined
from chainapi.export.partition import source_of
from chainapi.export.progress import Step
from chainapi.export.sink import CommitSize, Moves, Sink, earlier_version, not_ours
from chainapi.export.text import EncodedRows
from chainapi.export.window import Windows

__all__ = ["Folder"]

SMALL_ROWS, SMALL_BYTES = 50_000, 32 << 20  # a part below both is small
COMPACT_AT = 24  # small parts of one partition
PIECE = 4 << 20  # bytes of rows of a part that wait until they are written


class Folder(Sink):
    """Sink of a folder on a disk, at a URL, or of one partition of a cluster.

    A lock keeps other writers away from a folder on a disk, and nobody else has its names. Elsewhere several
    writers may be at the next commit: the names of files have the id of their writer, and files without a
    record stay until their commit is past.

    Args:
        storage: where the folder is.
        writer: random id of the run.
        compact: whether small parts are merged.
        seconds: greatest number of seconds between two commits.
        log: name of the folder of the log.
        stem: beginning of the names of parts.
        alone: whether the folder has one log; else the last writer to open a log takes over.

    """

    size: CommitSize = CommitSize(100_000, 32 << 20, 60.0)
    ends_with: Step | None = "compacting"

    def __init__(
        self,
        storage: Storage,
        writer: str,
        *,
        compact: bool = True,
        seconds: float | None = None,
        log: str = "_log",
        stem: str = "part",
        alone: bool = True,
    ) -> None:
        super().__init__(seconds)
        self.storage = storage
        self._compact, self._alone = compact, alone
        self._stem, self._invalid = stem, stem.replace("part", "_invalid", 1)
        self._log = Log(storage, log, writer)
        self._lock: Lock | None = None
        if alone and isinstance(storage, Disk):
            self._lock = Lock(storage.root / log / "lock", self.address())
        self._suffix = "" if self._lock else f"-{writer}"
        self._unfinished = list[str]()  # names of staged files that are in no commit
        self._copies, self._replaced = list[DataFile](), list[str]()  # of the next commit
        self._parts = dict[str, _Part]()  # of the next commit, by folder
        self._folders = dict[str, str]()  # of partitions, by their names in lower case
        self._small = dict[str, list[str]]()  # names of small parts by folder
        self._present = set[str]()  # files of the target, as they were when the run began
        self._orphans = list[str]()  # files that no record names

    def address(self, name: str = "") -> str:
        """Return the path or the URL of a file, or of the target."""
        return self.storage.address(name)

    # Begin

    def open(self) -> TargetState:
        """Take the lock, read the log, and complete or remove what a killed run began."""
        if self._alone and not self._log.exists():
            self._refuse_others(self._names())
        if self._lock is not None:
            self._lock.acquire()
        self._read()
        while not self._alone and not self._take_over():
            self._read()
        return self.state

    def _read(self) -> None:
        self.state: TargetState = self._log.read(writes=True)
        self._log.claim()
        names = self._names()
        self._present = {*names, *self._complete(names)}
        self._orphans = [*self._unknown(names), *self._log.leftovers()]
        self._remove_orphans()
        self._small = {}
        self._note_small(self.state.files.values())
        self._folders = {folder.casefold(): folder for folder in map(_folder_of, self.state.files)}

    def _take_over(self) -> bool:
        """Make a commit, so that an earlier writer can make no further one.

        Return False if another writer was faster.
        """
        try:
            self._log.append()
        except TargetInUseError:
            return False
        return True

    def given(self, walk: WalkId) -> Iterable[PageDigests]:
        """Yield the digests of the rows of a walk, in the order in which they were stored."""
        return self._log.given(walk)

    def _names(self) -> list[str]:
        """Return the names of the files of the target, except the files of the log."""
        names = self.storage.names(below=True)
        return [name for name in names if not name.startswith(f"{self._log.folder}/")]

    def _staged(self) -> list[str]:
        """Return the names of files that a killed run has left under hidden names."""
        log, own = f"{self._log.folder}/", (self._stem, self._invalid)
        found = self.storage.left_behind()
        return [name for name in found if name.startswith(log) or _base_of(name).startswith(own)]

    def _refuse_others(self, names: Sequence[str]) -> None:
        if any(name == "_manifest.ndjson" or name.startswith("_export") for name in names):
            raise earlier_version(self.address())
        for name in names:
            ours = _base_of(name).endswith(".partial") or (self._lock is None and self._is_part(name))
            if not ours:
                raise ExportError(
                    f"{self.address()} is not empty, and no export wrote it: it has {name}, and no folder "
                    f"{self._log.folder}. Move its files away, or choose another target"
                )

    def _is_part(self, name: str) -> bool:
        own = rf"({self._stem}|{self._invalid})-\d{{8,}}.*"
        return re.fullmatch(own, _base_of(name)) is not None

    def _is_past(self, name: str) -> bool:
        """Check that no writer can make a record that names a file."""
        return self._lock is not None or _number_in(name) <= self.state.number

    def _complete(self, names: Sequence[str]) -> list[str]:
        """Complete the newest commit; return the files that got their names.

        Delete staged files that no record names.
        """
        staged, last = self._staged(), self.state.last
        added = {file.name: file for file in last.added}
        whole = [name for name in staged if name in added and self._is_whole(added[name])]
        self.storage.remove([name for name in last.replaced if name in names and name not in added])
        self.storage.publish(whole)
        self.storage.discard(name for name in staged if name not in whole and self._is_past(name))
        return whole

    def _unknown(self, names: Sequence[str]) -> list[str]:
        """Return the parts of runs that were killed before their records.

        With a lock, parts older than the newest record are left alone: people have put them back.
        """
        found = [name for name in names if self._is_part(name) and name not in self.state.files]
        if self._lock is None:
            return found
        if later := [name for name in found if _number_in(name) > self.state.number]:
            raise ExportError(
                f"{self.address(later[0])} is newer than the newest record in "
                f"{self.address(self._log.folder)}: is that an old copy? Put the newest copy back, or choose "
                "another target"
            )
        return []

    def _is_whole(self, file: DataFile) -> bool:
        """Check that a staged file is the one that a record names."""
        path = self.storage.staged(file.name)
        return path.exists() and path.stat().st_size == file.size and file.begins(path)

    def _remove_orphans(self) -> None:
        """Remove files that no record can name any more: their numbers are taken."""
        past = [name for name in self._orphans if self._is_past(name)]
        self.storage.remove(past)
        self._orphans = [name for name in self._orphans if name not in past]

    # Commits

    def commit(self, moves: Moves) -> None:
        """Store the rows written and the positions after them: both, or neither."""
        staged, replaced = [*self._copies, *self._end_parts()], self._replaced
        self._copies, self._replaced = [], []
        self._commit(moves, staged, replaced)
        if self._compact:
            self.compact(COMPACT_AT)

    def write(self, pages: Iterable[EncodedRows]) -> None:
        """Add rows to the next commit; write to a part once enough of its rows wait."""
        for page in pages:
            for folder, rows in self._partitioner.divided(page) if self._partitioner else [("", page)]:
                if folder not in self._parts:
                    self._check_folder(folder)
                    self._parts[folder] = _Part(self._free_name(folder))
                part = self._parts[folder]
                part.add(rows)
                if part.size >= PIECE:
                    self._flush(part)

    def _flush(self, part: _Part) -> None:
        """Write the rows of a part that wait."""
        pages, part.pages, part.size = part.pages, [], 0
        if part.writer is None:
            part.writer = self._form.writer(self._stage(part.name))
        part.writer.write(pages)

    def _end_parts(self) -> Iterator[DataFile]:
        """Write what waits, and close the part of each partition with new rows."""
        for folder in sorted(self._parts):
            part = self._parts[folder]
            if part.pages:
                self._flush(part)
            part.writer.close()
            yield self._file(part.name, part.sources)
        self._parts = {}

    def drop(self, compared: Windows) -> None:
        """Write copies of the parts that lose rows."""
        for file in self.state.files.values():
            if any(file.reaches(label, one.start) for label, one in compared.windows.items()):
                self._drop_from(file, compared)

    def _drop_from(self, file: DataFile, compared: Windows) -> None:
        folder, named = _folder_of(file.name), self.address(file.name)
        with self.storage.fetched(file.name) as path:
            dropped = compared.dropped(self._form.rows(path, named), source_of(folder))
            if dropped:
                self._replaced.append(file.name)
            if 0 < len(dropped) < file.rows:
                name = self._free_name(folder, f"-{len(self._copies) + 1}")
                self._rewrite(name, [(path, named, dropped)])
                self._copies.append(self._file(name, _without(file.sources, dropped.values())))

    def missing(self, label: str, start: int) -> str | None:
        """Return the address of a missing part with rows of a source from a number on."""
        for file in self.state.files.values():
            if file.reaches(label, start) and file.name not in self._present:
                return self.address(file.name)
        return None

    def finish(self) -> None:
        """Merge small parts, and remove what no record names."""
        if self._compact:
            self.compact(COMPACT_AT)
        if self._orphans:  # of a killed run, with the next number: nobody can make a record of it after this
            self._commit(Moves(), [])

    def compact(self, least: int) -> int:
        """Merge the small parts of each partition that has at least so many.

        Return the number of merged parts.
        """
        merged = 0
        for folder, names in [*self._small.items()]:
            if len(names) >= least:
                merged += len(names)
                self._merge(folder, [*names])
        return merged

    def _note_small(self, added: Iterable[DataFile], replaced: Iterable[str] = ()) -> None:
        """Keep the names of the small parts that are there."""
        for name in replaced:
            with suppress(ValueError):
                self._small.get(_folder_of(name), []).remove(name)
        for file in added:
            is_small = not file.invalid and file.rows < SMALL_ROWS and file.size < SMALL_BYTES
            if is_small and file.name in self._present:
                self._small.setdefault(_folder_of(file.name), []).append(file.name)

    def _merge(self, folder: str, names: Sequence[str], name: str | None = None) -> None:
        """Merge parts to one file, in a commit."""
        name = self._free_name(folder) if name is None else name
        self._rewrite(name, self._fetched(names))
        sources = joined(self.state.files[one].sources for one in names)
        self._commit(Moves(), [self._file(name, sources)], names)

    def _fetched(self, names: Iterable[str]) -> Iterator[tuple[Path, str, Collection[int]]]:
        for name in names:
            with self.storage.fetched(name) as path:
                yield path, self.address(name), ()

    def close(self) -> None:
        """Remove what was written since the last commit, and release the lock."""
        for part in self._parts.values():
            part.abandon()
        try:
            self.storage.discard(self._unfinished)
            self.storage.close()
        finally:
            if self._lock is not None:
                self._lock.release(stays=self.state.number > 0)

    def _commit(
        self,
        moves: Moves,
        staged: Sequence[DataFile],
        replaced: Sequence[str] = (),
        grown: Sequence[DataFile] = (),
    ) -> None:
        """Make a commit that adds staged files, and has the new sizes of grown ones."""
        added = [*staged, *self._invalid_file(moves.invalid)]
        names = [file.name for file in added]
        self._check_free(names)
        self.storage.keep(names)
        given = self._log.write_given(moves.given)
        settings, self._settings = self._settings, None
        self._unfinished = []  # after an error there may be a record: the next run completes or removes all
        try:
            self._log.append(
                added=(*added, *grown),
                replaced=tuple(replaced),
                positions=moves.positions,
                given=given,
                settings=settings,
            )
        except TargetInUseError:
            self._unfinished = names
            raise
        self.storage.remove([name for name in replaced if name not in names])
        self.storage.publish(names)
        self._present.update(names)
        self.added.extend(file.name for file in (*added, *grown))
        self._note_small(added, replaced)
        self._remove_orphans()

    def _check_free(self, names: Iterable[str]) -> None:
        """Refuse to replace files of others; a name with a random id is free."""
        for name in () if self._suffix else names:
            if name not in self.state.files and self.storage.size(name) is not None:
                raise not_ours(self.address(name))

    def _invalid_file(self, lines: Sequence[bytes]) -> list[DataFile]:
        if not lines:
            return []
        name = f"{self._invalid}-{self.state.number + 1:08}{self._suffix}.ndjson"
        content = b"".join(lines)
        self._stage(name).write_bytes(content)
        return [DataFile(name, len(lines), len(content), invalid=True)]

    def _rewrite(
        self,
        name: str,
        files: Iterable[tuple[Path, str, Collection[int]]],
        pages: Sequence[EncodedRows] = (),
    ) -> None:
        """Stage a file with the rows of others, and with further ones.

        Args:
            name: its name.
            files: path of each other file, its name in errors, and the places of rows that are left out.
            pages: the further rows.

        """
        with closing(self._form.writer(self._stage(name))) as new:
            for path, named, dropped in files:
                for rows in self._form.kept(path, named, dropped):
                    new.add(rows)
            if pages:
                new.write(pages)

    def _stage(self, name: str) -> Path:
        """Return the path of a new file, which `close` removes unless a commit adds it."""
        self._unfinished.append(name)
        return self.storage.staged(name)

    def _check_folder(self, folder: str) -> None:
        """Refuse two partitions whose folders are one, where case is ignored."""
        known = self._folders.setdefault(folder.casefold(), folder)
        if known == folder or not isinstance(self.storage, Disk):
            return
        paths = [self.storage.root / one for one in (known, folder)]
        if all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
            raise ExportError(
                f"{known} and {folder} are one folder on this file system, which ignores the case of letters:"
                " leave 'source' out of partition=, or choose another target"
            )

    def _file(self, name: str, sources: dict[str, Span]) -> DataFile:
        """Return the description of a staged file."""
        rows = sum(count for count, *_ in sources.values())
        return DataFile(name, rows, self.storage.staged(name).stat().st_size, sources)

    def _free_name(self, folder: str, more: str = "") -> str:
        name = f"{self._stem}-{self.state.number + 1:08}{more}{self._suffix}{self._form.suffix}"
        return f"{folder}/{name}" if folder else name


@define(eq=False)
class _Part:
    """Part of the next commit, with the rows of one partition.

    Attributes:
        name: name of its file.
        pages: rows that wait for a write.
        size: bytes of them.
        sources: rows of each source in the part.
        writer: writer of the file; None before the first write.

    """

    name: str
    pages: list[EncodedRows] = field(factory=list[EncodedRows])
    size: int = 0
    sources: dict[str, Span] = field(factory=dict[str, Span])
    writer: Any = None

    def add(self, page: EncodedRows) -> None:
        """Add rows to those that wait."""
        self.pages.append(page)
        self.size += len(page.lines) or 100 * page.count
        span = {page.label: (page.count, page.lowest, page.highest)}
        known = {page.label: self.sources[page.label]} if page.label in self.sources else {}
        self.sources.update(joined([known, span]))

    def abandon(self) -> None:
        """Close the file, whose content does not count."""
        if self.writer is not None:
            with suppress(Exception):  # such as a full disk, which has ended the run
                self.writer.close()


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _base_of(name: str) -> str:
    return name.rpartition("/")[2]


def _number_in(name: str) -> int:
    found = re.search(r"(?:^|-)(\d{8,})", _base_of(name))
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
