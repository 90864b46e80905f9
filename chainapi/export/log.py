"""Log of an export: numbered commits.

Commit n holds rows of any sources and the positions after them; both are there, or neither. Its record is the
file ``00000012.json`` in the folder of the log: the files with rows that it adds and replaces, and the
position of each source that moved. Only one writer can create the record of a number, and each number follows
the one before, so that a second writer is refused. The record of each 100th commit has everything that is in
force: a reader begins there, and older records are deleted, but never the newest 200.

A record never changes. The files that it adds are complete before it is created (`Disk.keep`, `Bucket.keep`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from attrs import define, field
from msgspec import Struct

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.bucket import Bucket
from chainapi.export.disk import Disk, digest_of
from chainapi.export.given import PageDigests, WalkId

__all__ = ["Commit", "DataFile", "Log", "Storage", "TargetState", "joined"]

FORMAT = 2  # of records
FULL_EVERY = 100  # commits
KEPT = 200  # newest records, which are never deleted

Storage = Disk | Bucket
Span = tuple[int, int | None, int | None]  # rows, their least and greatest number
Pieces = dict[str, list[tuple[int, int, int]]]  # by label: number of a range, first byte, byte after the last


class DataFile(Struct, frozen=True, omit_defaults=True):
    """File with rows.

    Attributes:
        name: its name below the target, with slashes.
        rows: number of its rows.
        size: its bytes.
        sources: for each source the number of its rows, and the least and the greatest of the numbers that
            order its list; None for rows without a number.
        invalid: whether it has invalid rows, as JSON lines.
        digest: digest of its first and last bytes, for one file; empty for a part of a folder.

    """

    name: str
    rows: int
    size: int
    sources: dict[str, Span] = {}
    invalid: bool = False
    digest: str = ""

    def begins(self, path: Path) -> bool:
        """Return whether a local file begins with the bytes of this one."""
        is_long = path.stat().st_size >= self.size
        return is_long and (not self.digest or digest_of(path, self.size) == self.digest)

    def reaches(self, label: str, start: int) -> bool:
        """Return whether the file may have rows of a source from a number on."""
        span = self.sources.get(label)
        return span is not None and (span[2] is None or span[2] >= start)


class Commit(Struct, frozen=True, omit_defaults=True):
    """Record of a commit.

    Attributes:
        number: counts the commits from 1.
        time: Unix time in seconds.
        writer: random id of the run.
        added: files that the commit adds.
        replaced: names of files whose rows are in others now, or that left the list.
        positions: positions that moved, by label (`SourcePosition.dump`).
        given: files with digests of rows, each with the pieces of its sources.
        settings: the export, if this commit begins or changes it.
        files: all files in force, in each 100th record.
        full: whether the record has all positions, all files and the settings.

    """

    number: int
    time: int
    writer: str
    added: tuple[DataFile, ...] = ()
    replaced: tuple[str, ...] = ()
    positions: dict[str, Any] = {}
    given: dict[str, Pieces] = {}
    settings: dict[str, Any] | None = None
    files: tuple[DataFile, ...] = ()
    full: bool = False


@define(eq=False)
class TargetState:
    """State after the newest commit.

    Attributes:
        number: number of that commit; 0 before the first one.
        settings: the export; empty before the first commit.
        positions: position of each source by label.
        files: files with rows by name, in the order in which they were added.
        given: files with digests of rows, each with the pieces of its unfinished sources.
        last: the newest record; before the first one an empty one.

    """

    number: int = 0
    settings: dict[str, Any] = field(factory=dict[str, Any])
    positions: dict[str, Any] = field(factory=dict[str, Any])
    files: dict[str, DataFile] = field(factory=dict[str, DataFile])
    given: dict[str, Pieces] = field(factory=dict[str, Pieces])
    last: Commit = field(factory=lambda: Commit(0, 0, ""))

    def take(self, commit: Commit) -> None:
        """Take a commit, which follows the newest one."""
        if commit.full:
            self.positions, self.given = {}, {}
            self.files = {one.name: one for one in commit.files}
        for name in commit.replaced:
            self.files.pop(name, None)
        self.files.update((one.name, one) for one in commit.added)
        self.positions.update(commit.positions)
        self.given.update(commit.given)
        ended = {label for label, one in commit.positions.items() if one.get("done")}
        if ended and self.given:
            left = {
                name: {label: one for label, one in pieces.items() if label not in ended}
                for name, pieces in self.given.items()
            }
            self.given = {name: pieces for name, pieces in left.items() if pieces}
        self.settings = self.settings if commit.settings is None else commit.settings
        self.number, self.last = commit.number, commit

    def full(self, commit: Commit) -> Commit:
        """Return the record of the next commit with all that is in force then."""
        after = TargetState(self.number, self.settings, {**self.positions}, {**self.files}, {**self.given})
        after.take(commit)
        return msgspec.structs.replace(
            commit,
            positions=after.positions,
            given=after.given,
            settings=after.settings,
            files=tuple(after.files.values()),
            full=True,
        )


class Log:
    """Log of one target, or of one partition of a cluster.

    Args:
        storage: where the target is.
        folder: name of the folder of the log.
        writer: random id of the run.

    Attributes:
        state: what is in force; known after `read`.

    """

    def __init__(self, storage: Storage, folder: str, writer: str = "") -> None:
        self.storage: Storage = storage
        self.folder: str = folder
        self.writer: str = writer
        self.state: TargetState = TargetState()
        self._first = 1  # number of the oldest record

    def read(self, *, writes: bool = False) -> TargetState:
        """Read the log from the newest full record on.

        A reader leaves out half a record, which may be under way; a writer removes it.

        Raises:
            ExportError: a record is missing or damaged, or of another version.

        """
        self.state = TargetState()
        numbers = self._numbers() or [0]
        self._first, newest = max(1, numbers[0]), numbers[-1]
        torn = self._is_torn(newest)
        last = newest - torn
        full = (last - 1) // FULL_EVERY * FULL_EVERY + 1
        for number in range(max(1, full), last + 1):
            self.state.take(self._record(number))
        if torn and writes:
            # A whole record that was damaged later may have replaced files, which are gone then.
            if any(self.storage.size(name) is None for name in self.state.files):
                raise self.damaged(self._name(newest))
            self.storage.remove([self._name(newest)])
        return self.state

    def _is_torn(self, number: int) -> bool:
        """Check for half a record of a killed run, at a URL that is not atomic."""
        if not number or isinstance(self.storage, Disk):
            return False
        return not (self.storage.read(self._name(number)) or b"").endswith(b"\n")

    def exists(self) -> bool:
        """Return whether there is a record."""
        return bool(self._numbers())

    def append(self, **changes: Any) -> Commit:
        """Create the record of the next commit, and take it.

        Raises:
            TargetInUseError: another run has created it.
            ExportError: it cannot be written.

        """
        number, state = self.state.number + 1, self.state
        commit = Commit(number, int(time.time()), self.writer, **changes)
        if number % FULL_EVERY == 1:
            commit = state.full(commit)
        name, content = self._name(number), _JSON.encode(commit)
        content = _JSON.encode(_Record(FORMAT, crc32(content), msgspec.Raw(content))) + b"\n"
        self._check_writer()
        if not self.storage.create(name, content) and self.storage.read(name) != content:
            raise self._taken_over()
        if number > 1 and self.storage.size(self._name(number - 1)) is None:
            raise self._taken_over()  # others are past this number, and have deleted records
        gone = state.given.keys()
        state.take(commit)
        self.storage.remove([name for name in gone if name not in state.given])
        if commit.full:
            self._prune()
        return commit

    def claim(self) -> None:
        """Become the writer of a file system that lets two writers create one name."""
        if not self.storage.exclusive:
            self.storage.replace(f"{self.folder}/writer", self.writer.encode())

    def _check_writer(self) -> None:
        """Check that no other run has become the writer since."""
        if not self.storage.exclusive and self.storage.read(f"{self.folder}/writer") != self.writer.encode():
            raise self._taken_over()

    # Digests of rows

    def write_given(self, given: Mapping[WalkId, Sequence[PageDigests]]) -> dict[str, Pieces]:
        """Write the digests of rows of the next commit; return its field `given`."""
        if not given:
            return {}
        name = f"{self.folder}/{self.state.number + 1:08}-{self.writer}.given"
        content, pieces = bytearray(), Pieces()
        for (label, place), pages in given.items():
            start = len(content)
            content += _MSGPACK.encode(pages)
            pieces.setdefault(label, []).append((place, start, len(content)))
        self.storage.replace(name, bytes(content))
        return {name: pieces}

    def given(self, walk: WalkId) -> Iterator[PageDigests]:
        """Yield the digests of the rows of a walk, in the order in which they were stored."""
        for name, pieces in [*self.state.given.items()]:
            for place, start, end in pieces.get(walk[0], ()):
                if place == walk[1]:
                    content = self.storage.read(name, start, end)
                    try:
                        yield from _GIVEN.decode(content or b"")
                    except msgspec.DecodeError:
                        raise self.damaged(name) from None

    def damaged(self, name: str) -> ExportError:
        """Return the error for a record that cannot be read."""
        where = self.storage.address(self.folder)
        return ExportError(
            f"{self.storage.address(name)} is missing or damaged, and {where} says which rows the target has:"
            " put a copy of that folder back, or choose another target"
        )

    def leftovers(self) -> list[str]:
        """Return the names of files with digests that no record names."""
        found = [f"{self.folder}/{name}" for name in self.storage.names(self.folder)]
        return [name for name in found if name.endswith(".given") and name not in self.state.given]

    def _numbers(self) -> list[int]:
        found = map(_RECORD.fullmatch, self.storage.names(self.folder))
        return sorted(int(one[1]) for one in found if one)

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number:08}.json"

    def _record(self, number: int) -> Commit:
        name = self._name(number)
        try:
            record = msgspec.json.decode(self.storage.read(name) or b"", type=_Record)
            if record.format != FORMAT:
                raise ExportError(
                    f"{self.storage.address()} was exported by another version of chainapi: keep its files, "
                    "and choose another target"
                )
            commit = msgspec.json.decode(record.commit, type=Commit)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self.damaged(name) from None
        named = commit.number == number and commit.full == (number % FULL_EVERY == 1)
        if crc32(record.commit) != record.crc32 or not named:
            raise self.damaged(name)
        return commit

    def _prune(self) -> None:
        """Delete records before the second last full one, but not the newest ones."""
        number = self.state.number
        least = min(number - FULL_EVERY, number - KEPT + 1)
        if least > self._first:
            self.storage.remove([self._name(one) for one in range(self._first, least)])
            self._first = least

    def _taken_over(self) -> TargetInUseError:
        return TargetInUseError(
            f"another export is writing to this target, {self.storage.address()}: it has made commit "
            f"{self.state.number + 1} first. Run one export at a time; the rows of this run since its last "
            "commit are fetched again by the next one"
        )


_RECORD = re.compile(r"(\d{8,})\.json", re.ASCII)
_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()
_GIVEN = msgspec.msgpack.Decoder(list[PageDigests])


class _Record(Struct):
    format: int
    crc32: int
    commit: msgspec.Raw


def joined(spans: Iterable[Mapping[str, Span]]) -> dict[str, Span]:
    """Return the rows of each source in several files."""
    found = dict[str, Span]()
    for one in spans:
        for label, (rows, least, most) in one.items():
            if label in found:
                count, low, high = found[label]
                rows += count
                least = None if least is None or low is None else min(least, low)
                most = None if most is None or high is None else max(most, high)
            found[label] = rows, least, most
    return found
