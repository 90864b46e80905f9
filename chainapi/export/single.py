"""Sinks of one file: a text file that grows, and a Parquet file.

The log is the folder ``NAME.log`` beside the file. Invalid rows are in ``NAME.invalid``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from chainapi.errors import ExportError
from chainapi.export.disk import Disk, digest_of, explained, hidden
from chainapi.export.folder import Folder
from chainapi.export.log import DataFile, Span, TargetState
from chainapi.export.progress import Step
from chainapi.export.sink import CommitSize, Moves, check_path, not_ours
from chainapi.export.text import EncodedRows
from chainapi.export.window import Windows

__all__ = ["ParquetFile", "TextFile"]

MARK = "appending"  # file in the log, while a run appends: a later run may cut what follows the records


class SingleFile(Folder):
    """Sink of one file, with its log beside it, which may have parts.

    The records have the digest of each file; a run compares it when it begins.
    """

    ends_with: Step | None = None

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        self._path, self._name = path, path.name
        self._disk = Disk(path.parent)
        super().__init__(self._disk, writer, compact=False, seconds=seconds, log=f"{path.name}.log")

    def address(self, name: str = "") -> str:
        """Return the path of a file beside the target, or of the target."""
        return self._disk.address(name or self._name)

    def open(self) -> TargetState:
        """See `Folder.open`; refuse files that others have changed."""
        check_path(self._path)
        check_path(self._path.with_name(self._log.folder))
        state = super().open()
        for file in state.files.values():
            if not file.invalid:
                self._check(file, self._disk.root / file.name)
        if state.number and self._name not in state.files and self._path.exists():
            raise self._changed(self._path, "is in no record, as if its log were an old copy")
        return state

    def _check(self, file: DataFile, path: Path) -> None:
        with explained(path, "read"):
            if not path.exists():
                raise self._changed(path, "is missing")
            if not file.begins(path) or not self._completed(file, path):
                raise self._changed(path, "was changed since it was written")

    def _completed(self, file: DataFile, path: Path) -> bool:
        """Return whether a file has the size that its record names."""
        return path.stat().st_size == file.size

    def _changed(self, path: Path, what: str) -> ExportError:
        return ExportError(
            f"{path} {what}: put it back as it was, or delete it and {self._log.folder} to start over"
        )

    def _names(self) -> list[str]:
        found = [f"{self._log.folder}/{name}" for name in self._disk.names(self._log.folder)]
        return [*filter(self._is_part, found), *([self._name] if self._path.exists() else [])]

    def _staged(self) -> list[str]:
        beside = (self._name, f"{self._name}.invalid")
        found = [name for name in beside if os.path.lexists(hidden(self._path.with_name(name)))]
        return found + self._disk.left_behind(self._log.folder)

    def _refuse_others(self, names: Sequence[str]) -> None:
        for name in (self._name, f"{self._name}.invalid"):
            if os.path.lexists(self._path.with_name(name)):
                raise not_ours(self.address(name))

    def _free_name(self, folder: str, more: str = "") -> str:
        return super()._free_name(self._log.folder, more)

    def _file(self, name: str, sources: dict[str, Span]) -> DataFile:
        """Return the description of a staged file, which keeps the mode of an old one."""
        path, old = self._disk.staged(name), self._disk.root / name
        if old.exists():
            path.chmod(old.stat().st_mode & 0o7777)
        file = super()._file(name, sources)
        return structs.replace(file, digest=digest_of(path, file.size))

    def _invalid_file(self, lines: Sequence[bytes]) -> list[DataFile]:
        """Stage the file with invalid rows, with more of them.

        Somebody may have taken the old one away.
        """
        if not lines:
            return []
        name = f"{self._name}.invalid"
        content = (self._disk.read(name) or b"") + b"".join(lines)
        self._stage(name).write_bytes(content)
        return [structs.replace(self._file(name, {}), rows=content.count(b"\n"), invalid=True)]


class TextFile(SingleFile):
    """Sink of one text file: a commit appends rows, and its record has the new length.

    A file that loses rows, or whose header gets columns, is written again under a hidden name; the record
    comes before it gets its name.
    """

    size: CommitSize = CommitSize(100_000, 8 << 20, 1.0)

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        super().__init__(path, writer, seconds=seconds)
        self._dropped: Mapping[int, str] = {}  # places of rows that leave with the next commit
        self._mark = f"{self._log.folder}/{MARK}"

    def write(self, pages: Iterable[EncodedRows]) -> None:
        """Add rows to the next commit, which appends them."""
        self._waiting += pages

    def drop(self, compared: Windows) -> None:
        """Note the rows that leave the file."""
        if self._there is not None:
            self._dropped = compared.dropped(self._form.rows(self._path, str(self._path)))

    def commit(self, moves: Moves) -> None:
        """Append the rows written, and store the positions after them: both, or neither."""
        pages, self._waiting = self._waiting, []
        old, rows = self._there, sum(page.count for page in pages)
        has_new_header = bool(self._form.header) and self._settings is not None
        if old is None or self._dropped or has_new_header:
            files = [] if old is None else [(self._path, str(self._path), self._dropped)]
            self._rewrite(self._name, files, pages)
            rows += 0 if old is None else old.rows - len(self._dropped)
            self._commit(moves, [structs.replace(self._file(self._name, {}), rows=rows)])
        else:
            self._commit(moves, [], grown=[self._appended(pages, old, rows)] if pages else [])
        self._dropped = {}

    def finish(self) -> None:
        """Write a file without rows, if there was none."""
        if self._there is None:
            self.commit(Moves())

    def close(self) -> None:
        """Release the lock, and remove the mark if a record names all rows."""
        try:
            if self._there is not None and self._disk.size(self._name) == self._there.size:
                self._disk.remove([self._mark])
        finally:
            super().close()

    @property
    def _there(self) -> DataFile | None:
        return self.state.files.get(self._name)

    def _completed(self, file: DataFile, path: Path) -> bool:
        """Cut off the rows of a killed run; return whether the file has its size."""
        if path.stat().st_size > file.size and self._disk.size(self._mark) is not None:
            with path.open("rb+") as raw:
                raw.truncate(file.size)
                os.fsync(raw.fileno())
        return super()._completed(file, path)

    def _appended(self, pages: Sequence[EncodedRows], old: DataFile, rows: int) -> DataFile:
        """Append rows; after an error the next run cuts them off."""
        if self._disk.size(self._mark) is None:
            self._disk.replace(self._mark, b"")
        content = self._form.packed(self._form.encode(pages))
        with self._path.open("ab") as raw:
            if raw.tell() != old.size:  # with the mark, the next run would cut what somebody has appended
                self._disk.remove([self._mark])
                raise self._changed(self._path, "was changed while this export ran")
            raw.write(content)
            raw.flush()
            os.fsync(raw.fileno())
        size = old.size + len(content)
        return DataFile(self._name, old.rows + rows, size, digest=digest_of(self._path, size))


class ParquetFile(SingleFile):
    """Sink of one Parquet file: the end of a run joins the parts of its commits."""

    ends_with: Step | None = "joining"

    def finish(self) -> None:
        """Join the parts to the file."""
        files = [file.name for file in self.state.files.values() if not file.invalid]
        if files != [self._name]:
            self._merge("", files, self._name)
