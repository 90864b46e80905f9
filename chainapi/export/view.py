"""Files of a target for its readers, and the merging of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from msgspec import structs

from chainapi.errors import ExportError
from chainapi.export.disk import explained
from chainapi.export.folder import Folder
from chainapi.export.log import DataFile, Log, Span, State
from chainapi.export.sinks import DATABASES, ParquetOptions, Target, form_of
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.types import Kind

__all__ = ["compacted", "files_of", "logs_of"]


def files_of(target: Target) -> list[DataFile]:
    """Return the files of a target in force.

    Raises:
        ExportError: no export wrote it, or its log is damaged.

    """
    if target.format in DATABASES:
        return [_database(target)]
    states = [log.read() for log in logs_of(target)]
    if not any(state.number for state in states):
        raise no_export(target)
    if (
        target.storage is None
    ):  # the records of one file have no counts of each source: they would grow with it
        (state,) = states
        return [structs.replace(file, sources=_spans(state)) for file in state.files.values()]
    return [file for state in states for file in state.files.values()]


def _spans(state: State) -> dict[str, Span]:
    """Return the newest number of each source by its position."""
    newest = {label: one.get("newest") for label, one in state.positions.items()}
    return {label: (0, None, None if one is None else int(one)) for label, one in newest.items()}


def logs_of(target: Target) -> list[Log]:
    """Return the logs of a target: one, or those of the partitions of a cluster."""
    if target.storage is None:
        assert target.path is not None  # noqa: S101 - for the type checker
        from chainapi.export.disk import Disk

        return [Log(Disk(target.path.parent), f"{target.path.name}.log")]
    names = target.storage.names(target.log, below=True)
    folders = sorted({name.rpartition("/")[0] for name in names if name.endswith(".json")})
    return [Log(target.storage, f"{target.log}/{folder}".rstrip("/")) for folder in folders]


def compacted(target: Target) -> int:
    """Merge the small parts of a folder; return their number.

    Raises:
        ExportError: no export wrote it, or it cannot be written.

    """
    merged = 0
    logs = logs_of(target)
    if not logs:
        raise no_export(target)
    for log in logs:
        alone = log.folder == target.log
        stem = "part" if alone else log.folder.rpartition("/")[2]
        sink = Folder(log.storage, uuid4().hex[:12], log=log.folder, stem=stem, alone=alone)
        try:
            with explained(str(target.address)):
                state = sink.open()
                sink.begin(_form(state), state.settings, None)
                merged += sink.compact(2)
        finally:
            sink.close()
    return merged


def _form(state: State) -> Any:
    """Return the format of the files that a log describes."""
    settings = state.settings
    columns = columns_of(settings["columns"])
    options = ParquetOptions(**settings.get("options") or {})
    labelled = SOURCE not in (settings.get("partition") or ())
    return form_of(settings["format"], columns, columns, options, labelled=labelled)


def columns_of(described: Mapping[str, Any]) -> list[Column]:
    """Return the columns that `chainapi.tables.columns.described` has described."""
    return [_column(name, kind) for name, kind in described.items()]


def _column(name: str, kind: Any) -> Column:
    if isinstance(kind, dict):
        return Column(name, "struct", tuple(columns_of(kind)))
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        return Column(name, "list", (_column("item", kind[0]),))
    return Column(name, cast("Kind", kind))


def _database(target: Target) -> DataFile:
    sink: Any = target.sink(compact=False, seconds=None)
    try:
        if target.path is None or not target.path.exists():
            raise no_export(target)
        sink.read()
        if not sink.state.number:
            raise no_export(target)
        assert target.path is not None  # noqa: S101 - for the type checker
        return DataFile(target.path.name, sink.rows, target.path.stat().st_size, _spans(sink.state))
    finally:
        sink.disconnect()


def no_export(target: Target) -> ExportError:
    """Return the error for a target without an export."""
    return ExportError(f"{target.address} has no export: name the file or the folder of one")
