"""Parts of a partition: Parquet files with rows and the checkpoints after them.

A partition is the sources that one worker exports at a time. Its parts are numbered, and the footer of each
has the state of all of its sources after these rows. So one atomic creation of an object commits rows and
checkpoints together, without a rename, which object stores lack, and without a second copy of the rows: a
run continues after the newest part, and every reader that lists the folder has the committed rows and no
others.

Two workers may run one partition at the same time: the scheduler gives it away when it takes the first for
dead. Both would write the part of the same number, and only one creation of a name succeeds (see
`chainapi.export.store` for the file systems that promise it). A worker begins with a claim, a small object
with the next number, before it reads the state; a worker that finds a newer claim than its own stops. One
that still has the newest claim reads the state again and continues after the part of the other.

Beside the parts, in folders that readers of Parquet skip:

- ``_export/claims``: claims,
- ``_export/logs``: digests of the rows of unfinished sources, needed if a list without an order restarts,
- ``_export/invalid``: invalid rows of a part, until they are in ``_invalid``.

A log or invalid rows that no state names belong to a part that never was; the next run deletes them.
Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import Factory, define, field

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.digests import DigestCounter
from chainapi.dask.state import FOOTER_KEY, DamagedStateError, State
from chainapi.errors import ExportError
from chainapi.export.formats.parquet import Parquet
from chainapi.export.matching import Matched, Matchers, Walk
from chainapi.export.source_records import Batch, SourceRecord
from chainapi.export.spec import free_label
from chainapi.export.store import Store
from chainapi.tables.columns import SOURCE, Column

__all__ = ["CLAIMS", "INVALID_FOLDER", "LOGS", "PENDING_INVALID", "Outrun", "PartLog", "partition_of"]

CLAIMS, LOGS, PENDING_INVALID = "_export/claims", "_export/logs", "_export/invalid"
INVALID_FOLDER = "_invalid"


class Outrun(Exception):  # noqa: N818 - not an error: the worker continues after the part of the other one
    """A worker with an older claim wrote the part before."""


def partition_of(name: str) -> int | None:
    """Return the number of the partition in the name of a part; None for another file."""
    match name.removesuffix(".parquet").split("-"):
        case "part", partition, number if name.endswith(".parquet") and (partition + number).isdecimal():
            return int(partition)
        case _:
            return None


@define(eq=False)
class PartLog:
    """Log of the pages of one partition, kept as its parts; a `PageLog`.

    Attributes:
        store: folder of the export.
        partition: number of the partition.
        export: name of the export's run.
        columns: returns the columns of the rows.
        part_rows: rows of a part.
        part_bytes: bytes of the rows of a part, as JSON.
        format: options of the files.
        invalid: invalid rows taken since the log was opened.
        written: names of the parts that were written, and of the files with invalid rows.

    """

    store: Store
    partition: int
    export: str
    columns: Callable[[], Sequence[Column]]
    part_rows: int
    part_bytes: int
    format: Parquet
    invalid: int = field(default=0, init=False)
    written: list[str] = field(factory=list[str], init=False)
    _writer: str = field(factory=lambda: uuid4().hex, init=False)
    _claim: int = field(default=0, init=False)
    _state: State = field(factory=State, init=False)
    _sources: dict[str, SourceRecord] = field(factory=dict[str, SourceRecord], init=False)
    _by_query: dict[str, SourceRecord] = field(factory=dict[str, SourceRecord], init=False)
    _matchers: Matchers = field(
        default=Factory(lambda self: Matchers(self._digests_of), takes_self=True), init=False
    )
    _settings: dict[str, Any] = field(factory=dict[str, Any], init=False)
    _logs: dict[str, list[Walk]] = field(factory=dict[str, list[Walk]], init=False)
    _failed: bool = field(default=False, init=False)  # a part could not be written
    # Of the next part: rows with their labels, invalid rows as JSON lines.
    _rows: list[tuple[str, bytes]] = field(factory=list[tuple[str, bytes]], init=False)
    _bytes: int = field(default=0, init=False)
    _invalid_rows: list[bytes] = field(factory=list[bytes], init=False)

    @property
    def groups(self) -> None:
        """See `PageLog.groups`: rows are JSON lines until they are a part."""

    def open(self) -> None:
        """Claim the partition and read its state.

        Raises:
            ExportError: a part is missing or damaged, or the folder cannot be read or written.

        """
        self._claim = self._claimed()
        found = {name for name in self.store.names() if partition_of(name) == self.partition}
        parts = [self._part(number) for number in range(1, len(found) + 1)]
        if found != set(parts):
            raise ExportError(
                f"{self.store.url} has {', '.join(sorted(found))} of partition {self.partition}, and parts "
                "before them are missing: put them back, or choose another target"
            )
        if parts:
            self._state = self._footer(parts[-1])
        if self._state.export != self.export:
            self._state.export = self.export
            self._state.before = self._state.rows, self._state.invalid
        self._sources, self._settings = self._state.records, dict(self._state.settings)
        self._by_query = {record.query: record for record in self._sources.values()}
        self._logs = dict(self._state.logs)
        self._publish_invalid()
        self._remove_unnamed()

    def close(self) -> None:
        """Write the last part, if there is anything that the parts lack.

        Raises:
            ExportError: the part cannot be written, or a newer export has the partition.
            Outrun: another worker wrote this part.

        """
        if self._failed:
            return
        if self._rows or self._invalid_rows or self._has_finished_more():
            self._write()
        if self.written:
            self._remove_unnamed()

    @property
    def counts(self) -> tuple[int, int]:
        """Valid and invalid rows that this run of the export fetched for the partition."""
        rows, invalid = self._state.before
        more = len(self._rows), len(self._invalid_rows)
        return self._state.rows - rows + more[0], self._state.invalid - invalid + more[1]

    # A log of pages

    def settings(self) -> dict[str, Any]:
        """See `PageLog.settings`."""
        return self._settings

    def begin(self, settings: Mapping[str, Any]) -> None:
        """See `PageLog.begin`."""
        self._settings = dict(settings)

    def extend(self, settings: Mapping[str, Any]) -> None:
        """See `PageLog.extend`."""
        self._settings = dict(settings)

    def has_pages(self) -> bool:
        """See `PageLog.has_pages`."""
        return bool(self._state.part)

    def source(self, label: str, query: str) -> SourceRecord:
        """See `PageLog.source`."""
        if (known := self._by_query.get(query)) is None:
            label = free_label(label, query, self._sources.__contains__)
            known = SourceRecord(len(self._sources) + 1, label, query)
            self._sources[label] = self._by_query[query] = known
        return known

    def split(self, source: SourceRecord, starts: Sequence[Checkpoint]) -> None:
        """See `PageLog.split`; the next part stores the ranges."""
        for one in source.split(starts):
            source.add(one)

    def commit(self, batches: Sequence[Batch]) -> int:
        """Take the rows of pages; write a part once it has enough.

        Raises:
            ExportError: the part cannot be written, or a newer export has the partition.
            Outrun: another worker wrote this part.

        """
        count = 0
        for batch in batches:
            count += self._take(batch)
            if len(self._rows) + len(self._invalid_rows) >= self.part_rows or self._bytes >= self.part_bytes:
                self._write()
        return count

    def _take(self, batch: Batch) -> int:
        source = batch.source
        taken = self._matchers.take(batch, batch.encode)
        if taken is None:
            return 0
        new, (valid, invalid) = taken
        self._bytes += len(valid) + len(invalid)
        label = msgspec.json.encode(source.label)
        for line in invalid.split(b"\n")[:-1]:
            self.invalid += 1
            self._invalid_rows.append(b'{"%b":%b,%b\n' % (SOURCE.encode(), label, line[1:]))
        self._rows += [(source.label, line) for line in valid.split(b"\n")[:-1]]
        source.advance(new.batch, met=new.met)
        if source.done:
            self._forget((source.number, source.place))
        return len(new.batch.rows)

    # Rows that come again

    def given_since(
        self, walk: Walk, restarts: int, digests: Collection[bytes], whole: bool
    ) -> DigestCounter | None:
        """See `PageLog.given_since`."""
        return self._matchers.given_since(walk, restarts, digests, whole)

    def _digests_of(self, walk: Walk) -> Iterator[Matched]:
        """Yield the digests of the rows of a walk in the logs, page by page."""
        for name, walks in self._logs.items():
            if walk in walks:
                yield from self._log(name).get(walk, ())

    def _log(self, name: str) -> dict[Walk, list[Matched]]:
        content = self.store.read(f"{LOGS}/{name}")
        try:
            return msgspec.msgpack.decode(content, type=dict[Walk, list[Matched]])
        except msgspec.DecodeError as error:
            raise self._damaged(name, error) from error

    def _forget(self, walk: Walk) -> None:
        self._matchers.forget(walk)
        logs = {name: [one for one in needed if one != walk] for name, needed in self._logs.items()}
        self._logs = {name: needed for name, needed in logs.items() if needed}

    # Parts

    def _has_finished_more(self) -> bool:
        known = self._state.records
        return any(
            record.done and (label not in known or _essence(known[label]) != _essence(record))
            for label, record in self._sources.items()
        )

    def _write(self) -> None:
        """Write the next part and the state after it."""
        self._failed = True
        self._refuse_newer_claim()
        state = self._next_state()
        self._create_beside(state)
        if not self.store.create(self._part(state.part), self._encoded(state)):
            written = self._footer(self._part(state.part))
            if written.writer != self._writer:  # else the file system repeated a request that had arrived
                self._refuse_newer_claim()  # made while this part was on its way
                raise Outrun(f"partition {self.partition}, part {state.part}")
        old, self._state, self._logs = self._state, state, dict(state.logs)
        self.written.append(self._part(state.part))
        self._rows, self._bytes, self._invalid_rows = [], 0, []
        self._matchers.unstored.clear()
        self._publish_invalid()
        self.store.remove(f"{LOGS}/{name}" for name in old.logs if name not in state.logs)
        self._failed = False

    def _refuse_newer_claim(self) -> None:
        """Raise an error if another worker claimed the partition after this one."""
        if (newest := max(self._claims(), default=0)) > self._claim:
            raise ExportError(
                f"another export to {self.store.url} began after this one and has partition {self.partition} "
                f"now (claim {newest}): wait for its end"
            )

    def _next_state(self) -> State:
        old = self._state
        return State(
            part=old.part + 1,
            writer=self._writer,
            export=self.export,
            rows=old.rows + len(self._rows),
            invalid=old.invalid + len(self._invalid_rows),
            before=old.before,
            settings=self._settings,
            sources=[
                one.fields for source in self._sources.values() for one in (source, *source.ranges.values())
            ],
            logs=dict(self._logs),
        )

    def _create_beside(self, state: State) -> None:
        """Create the log of digests and the invalid rows of a part, before it."""
        name = self._beside(state)
        if unstored := self._matchers.unstored:
            log = {walk: [one for _, one in pages] for walk, pages in unstored.items()}
            state.logs[name] = [*log]
            self._create(f"{LOGS}/{name}", msgspec.msgpack.encode(log))
        if self._invalid_rows:
            self._create(f"{PENDING_INVALID}/{name}", b"".join(self._invalid_rows))

    def _create(self, name: str, content: bytes) -> None:
        """Create an object whose name no other worker has.

        Raises:
            ExportError: half of it is there, as file systems that are not atomic leave it after an error.

        """
        if not self.store.create(name, content) and self.store.read(name) != content:
            raise ExportError(
                f"{self.store.address(name)} was not written whole: remove the cause, such as a full disk, "
                "and start the same export again"
            )

    def _encoded(self, state: State) -> bytes:
        """Return the next part as a Parquet file, which was read back."""
        rows = ((label, row + b"\n") for label, row in self._rows)
        name, footer = self._part(state.part), {FOOTER_KEY: state.dumps()}
        return self.format.encode(name, self.columns(), rows, footer)

    def _footer(self, name: str) -> State:
        """Return the state in a part."""
        try:
            with self.store.opened(name, (pa.ArrowException,)) as file:
                footer = pq.read_metadata(file)
            return State.loads((footer.metadata or {})[FOOTER_KEY])
        except (pa.ArrowException, KeyError, DamagedStateError) as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: Exception) -> ExportError:
        return ExportError(
            f"{name} in {self.store.url} is damaged, or of another version of chainapi ({error}): put it "
            "back as it was, or choose another target"
        )

    def _part(self, number: int) -> str:
        return f"part-{self.partition:05}-{number:05}.parquet"

    # Beside the parts

    def _claims(self) -> list[int]:
        return [number for number, _ in self._numbered(CLAIMS)]

    def _claimed(self) -> int:
        """Create a claim that is newer than all others, and delete those."""
        older = self._claims()
        number = max(older, default=0) + 1
        while not self.store.create(self._claim_path(number), b""):
            number += 1
        self.store.remove(map(self._claim_path, older))
        return number

    def _claim_path(self, number: int) -> str:
        return f"{CLAIMS}/{self.partition:05}-{number:05}"

    def _beside(self, state: State) -> str:
        return f"{self.partition:05}-{state.part:05}-{state.writer}"

    def _numbered(self, folder: str) -> list[tuple[int, str]]:
        """Return the objects of this partition in a folder, with their numbers."""
        parts = ((name.split("-"), name) for name in self.store.names(folder))
        return [(int(words[1]), name) for words, name in parts if words[0] == f"{self.partition:05}"]

    def _publish_invalid(self) -> None:
        """Move the invalid rows of the newest part into the folder that users read."""
        state = self._state
        name = self._beside(state)
        if not state.part or name not in (found for _, found in self._numbered(PENDING_INVALID)):
            return
        path = f"{INVALID_FOLDER}/{self._part(state.part).replace('.parquet', '.jsonl')}"
        self.store.replace(path, self.store.read(f"{PENDING_INVALID}/{name}"))
        self.store.remove([f"{PENDING_INVALID}/{name}"])
        self.written.append(path)

    def _remove_unnamed(self) -> None:
        """Delete files of parts that other workers wrote first.

        Later parts may still be written.
        """
        for folder in (LOGS, PENDING_INVALID):
            found = self._numbered(folder)
            self.store.remove(
                f"{folder}/{name}"
                for number, name in found
                if number <= self._state.part and name not in self._state.logs
            )


def _essence(record: SourceRecord) -> tuple[Any, ...]:
    return record.done, record.exported, record.exported_ties
