"""Sinks of one file: a text file that grows, and a Parquet file.

The log is the folder ``NAME.log`` beside the file. Invalid rows are in ``NAME.invalid``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chainapi.errors import ExportError
from chainapi.export.batch import PageRows
from chainapi.export.disk import Disk, Lock, digest_of, explained, hidden, refuse_link
from chainapi.export.folder import CommitSize, Folder, Moves, earlier_version
from chainapi.export.given import Given, Walk
from chainapi.export.log import DataFile, Log, Span, State
from chainapi.export.partition import Partitioner
from chainapi.export.progress import Step
from chainapi.export.window import Window, Windows

__all__ = ["ParquetFile", "TextFile"]

MARK = "appending"  # file in the log: the rows after the recorded ones are those of a run that was killed


class TextFile:
    """Sink of one text file: a commit appends rows, and its record has the new length.

    A file that loses rows, or whose header gets columns, is written again under a hidden name; the record
    comes before it gets its name.

    Attributes:
        size: when a commit is due.
        added: names of the files that this run has changed.

    """

    ends_with: Step | None = None

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        self.size = CommitSize(100_000, 8 << 20, 1.0 if seconds is None else seconds)
        self.added = list[str]()
        self._path, self._name = path, path.name
        self._disk = Disk(path.parent)
        self._log = Log(self._disk, f"{path.name}.log", writer)
        self._lock = Lock(path.with_name(self._log.folder) / "lock", str(path))
        self._form: Any = None
        self._settings: dict[str, Any] | None = None
        self._content = list[bytes]()
        self._rows = 0  # that wait for the next commit
        self._header: bytes | None = None  # of the file that is there

    @property
    def state(self) -> State:
        """State after the newest commit."""
        return self._log.state

    @property
    def packs(self) -> bool:
        """Whether `write` takes the values of rows."""
        return False

    def address(self, name: str = "") -> str:
        """Return the path of a file beside the target, or of the target."""
        return self._disk.address(name or self._name)

    def open(self) -> State:
        """Take the lock, read the log, and complete or remove what a killed run began.

        Raises:
            TargetInUseError: another export has the lock.
            ExportError: the target is the file of somebody else, was changed, or its log is damaged.

        """
        check_file(self._path)
        self._lock.acquire()
        state = self._log.read()
        if not state.number and self._path.exists():
            raise ExportError(
                f"{self._path} exists, and no export wrote it (no {self._log.folder} is beside it): move it "
                "away, or choose another target"
            )
        own = {one.name: one for one in state.files.values()}
        for name in (self._name, f"{self._name}.invalid"):
            complete(self._disk, own.get(name), name)
        if (file := own.get(self._name)) is not None:
            self._check(file)
        self._disk.discard(self._disk.left_behind(self._log.folder))
        self._disk.remove(self._log.leftovers())
        return state

    def begin(self, form: Any, settings: Mapping[str, Any], partitioner: Partitioner | None) -> None:
        """Take the format of new rows.

        Store the settings with the next commit, if they differ.
        """
        self._form = form
        self._settings = None if settings == self.state.settings else dict(settings)
        if self._file is not None:
            self._header = form.header_of(self._path, str(self._path))

    def given(self, walk: Walk) -> Iterable[Given]:
        """Yield the hashes of the rows of a walk, in the order in which they were stored."""
        return self._log.given(walk)

    def write(self, pages: Iterable[PageRows]) -> None:
        """Add rows to the next commit."""
        pages = [*pages]
        self._content.append(self._form.encode(pages))
        self._rows += sum(page.count for page in pages)

    def commit(self, moves: Moves) -> list[DataFile]:
        """Store the rows written and the positions after them: both, or neither.

        Raises:
            ExportError: the file or its record cannot be written.

        """
        return self._commit(moves, rewrite=self._header not in (None, self._form.header))

    def replace(
        self, windows: Mapping[str, Window], number: Callable[[Mapping[str, Any]], int | None], moves: Moves
    ) -> tuple[int, int]:
        """Let rows that were fetched again replace rows of the file, in one commit.

        Return the numbers of rows that the file gains and loses.
        """
        compared, dropped = Windows(windows, number, self._form), dict[int, str]()
        file = self._file
        if file is not None:
            dropped = compared.dropped(self._form.rows(self._path, str(self._path)))
        new = [*compared.new()]
        self.write(new)
        self._commit(
            moves, dropped=dropped, rewrite=bool(dropped) or self._header not in (None, self._form.header)
        )
        return sum(page.count for page in new), compared.removed

    def missing(self, label: str, start: int) -> str | None:
        """Return None: `open` has checked the file."""
        return None

    def finish(self) -> None:
        """Write a file without rows, if there was none."""
        if self._file is None:
            self._commit(Moves(), rewrite=True)

    def close(self) -> None:
        """Release the lock, and remove the mark if a record names all rows."""
        try:
            if self._lock.held and self._file is not None and self._disk.size(self._name) == self._file.size:
                self._disk.remove([self._mark] if self._disk.size(self._mark) is not None else [])
        finally:
            self._lock.release(stays=self.state.number > 0)

    @property
    def _file(self) -> DataFile | None:
        return self.state.files.get(self._name)

    @property
    def _mark(self) -> str:
        return f"{self._log.folder}/{MARK}"

    def _check(self, file: DataFile) -> None:
        """Refuse a file that others have changed.

        Cut off the rows of a run that was killed.
        """
        size = self._disk.size(self._name)
        if size is None:
            raise changed(self._path, "is missing", self._log.folder)
        with explained(self._path, "read"):
            same = size >= file.size and digest_of(self._path, file.size) == file.digest
        if not same or (size > file.size and self._disk.size(self._mark) is None):
            raise changed(self._path, "was changed since it was written", self._log.folder)
        if size > file.size:
            self._cut(file.size)

    def _cut(self, size: int) -> None:
        with explained(self._path), self._path.open("rb+") as raw:
            raw.truncate(size)
            os.fsync(raw.fileno())

    def _commit(
        self, moves: Moves, *, rewrite: bool, dropped: Mapping[int, str] | None = None
    ) -> list[DataFile]:
        content = b"".join(self._content)
        files, staged = list[DataFile](), list[str]()
        if content or dropped or rewrite:
            if (old := self._file) is None or rewrite:
                files.append(self._rewritten(content, dropped or {}))
                staged.append(self._name)
            else:
                files.append(self._appended(content, old))
        if moves.invalid:
            files.append(more_invalid(self._disk, f"{self._name}.invalid", moves.invalid))
            staged.append(f"{self._name}.invalid")
        if self._name in staged and self._file is None and self._path.exists():
            self._disk.discard(staged)
            raise ExportError(
                f"{self._path} exists, and no export wrote it: move it away, and start the same export again"
            )
        self._disk.keep(staged)
        settings, self._settings = self._settings, None
        given = self._log.write_given(moves.given)
        self._log.append(added=tuple(files), positions=moves.positions, given=given, settings=settings)
        self._disk.publish(staged)
        self._content, self._rows = [], 0
        self._header = self._form.header if self._file is not None else None
        self.added += [file.name for file in files]
        return files

    def _appended(self, content: bytes, old: DataFile) -> DataFile:
        """Append rows; after an error the file is cut again."""
        if self._disk.size(self._mark) is None:
            self._disk.replace(self._mark, b"")
        packed = self._form.packed(content)
        try:
            with explained(self._path), self._path.open("ab") as raw:
                if raw.tell() != old.size:  # with the mark, the next run would cut what somebody has appended
                    self._disk.remove([self._mark])
                    raise changed(self._path, "was changed while this export ran", self._log.folder)
                raw.write(packed)
                raw.flush()
                os.fsync(raw.fileno())
        except OSError:
            with suppress(ExportError):  # on a disk that refuses this too, the next run does it
                self._cut(old.size)
            raise
        return self._described(self._path, old.size + len(packed), old.rows + self._rows)

    def _rewritten(self, content: bytes, dropped: Mapping[int, str]) -> DataFile:
        """Write the file, or write it again, under a hidden name."""
        path, old = self._disk.staged(self._name), [] if self._file is None else [self._path]
        with explained(self._path):
            self._form.rewrite(path, [(one, str(one), dropped.keys()) for one in old])
            with path.open("ab") as raw:
                raw.write(self._form.packed(content) if content else b"")
            for one in old:
                path.chmod(one.stat().st_mode & 0o7777)
        rows = self._rows + sum(file.rows for file in (self._file,) if file is not None) - len(dropped)
        return self._described(path, path.stat().st_size, rows)

    def _described(self, path: Path, size: int, rows: int) -> DataFile:
        with explained(path, "read"):
            return DataFile(self._name, rows, size, digest=digest_of(path, size))


class ParquetFile(Folder):
    """Sink of one Parquet file: the end of a run joins the parts of its commits."""

    ends_with: Step | None = "joining"

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        self._path = path
        folder = f"{path.name}.log"
        super().__init__(
            Disk(path.parent), writer, compact=False, seconds=seconds, log=folder, prefix=f"{folder}/"
        )

    def address(self, name: str = "") -> str:
        """Return the path of a file beside the target, or of the target."""
        return self.storage.address(name or self._path.name)

    def open(self) -> State:
        """See `Folder.open`.

        Raises:
            ExportError: the file was changed or is missing.

        """
        check_file(self._path)
        state = super().open()
        for file in state.files.values():
            size = self.storage.size(file.name)
            if size is None and not file.invalid:
                raise changed(self.storage.address(file.name), "is missing", self._log.folder)
            if file.name == self._path.name and digest_of(self._path, file.size) != file.digest:
                raise changed(self._path, "was changed since it was written", self._log.folder)
        if state.number and self._path.exists() and self._path.name not in state.files:
            raise changed(self._path, "is in no record, as if its log were an old copy", self._log.folder)
        return state

    def finish(self) -> None:
        """Join the parts to the file."""
        parts = [
            file.name
            for file in self.state.files.values()
            if not file.invalid and file.name != self._path.name
        ]
        old = [self._path.name] if self._path.name in self.state.files else []
        if parts or not old:
            self._merge("", [*old, *parts], self._path.name)
            self.added = [name for name in self.added if name not in parts]

    def _file(self, name: str, sources: dict[str, Span]) -> DataFile:
        made = super()._file(name, sources)
        path = self.storage.staged(name)
        if name == self._path.name and self._path.exists():
            path.chmod(self._path.stat().st_mode & 0o7777)
        return DataFile(name, made.rows, made.size, sources, digest=digest_of(path, made.size))

    def _invalid_file(self, lines: Sequence[bytes]) -> list[DataFile]:
        assert isinstance(self.storage, Disk)  # noqa: S101 - for the type checker
        return [more_invalid(self.storage, f"{self._path.name}.invalid", lines)] if lines else []

    def _names(self) -> list[str]:
        parts = [
            f"{self._prefix}{name}"
            for name in self.storage.names(self._log.folder)
            if name.startswith("part-")
        ]
        return parts + [name for name in (self._path.name,) if self.storage.size(name) is not None]

    def _staged(self) -> list[str]:
        beside = (self._path.name, f"{self._path.name}.invalid")
        found = [name for name in beside if os.path.lexists(hidden(self._path.with_name(name)))]
        return found + self.storage.left_behind(self._log.folder)

    def _refuse_others(self, names: Sequence[str]) -> None:
        if self._path.name in names:
            raise ExportError(
                f"{self._path} exists, and no export wrote it (no {self._log.folder} is beside it): move it "
                "away, or choose another target"
            )


def check_file(path: Path) -> None:
    """Refuse the target of an earlier version, and links in place of files.

    Raises:
        ExportError: it is one of them.

    """
    if path.with_name(f"{path.name}.export").exists():
        raise earlier_version(str(path))
    for one in (path, path.with_name(f"{path.name}.log")):
        refuse_link(one)


def complete(disk: Disk, file: DataFile | None, name: str) -> None:
    """Give a staged file its name if the newest record has it; else delete it."""
    staged = hidden(disk.root / name)
    if not staged.exists() or staged.is_symlink():
        disk.discard([name])
        return
    size = staged.stat().st_size
    if file is not None and size == file.size and digest_of(staged, size) == file.digest:
        disk.publish([name])
    else:
        disk.discard([name])


def more_invalid(disk: Disk, name: str, lines: Sequence[bytes]) -> DataFile:
    """Stage the file with invalid rows, with more of them.

    Somebody may have taken the old one away.
    """
    old = disk.read(name) or b""
    content = old + b"".join(lines)
    path = disk.staged(name)
    with explained(path):
        path.write_bytes(content)
    return DataFile(
        name, content.count(b"\n"), len(content), invalid=True, digest=digest_of(path, len(content))
    )


def changed(path: Path | str, what: str, log: str) -> ExportError:
    """Return the error for a file that others have changed."""
    return ExportError(f"{path} {what}: put it back as it was, or delete it and {log} to start over")
