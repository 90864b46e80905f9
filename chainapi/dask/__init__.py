"""Dask: one quota for a cluster, and exports on its workers (extra ``dask``).

::

    client = distributed.Client("scheduler:8786")
    chainapi.dask.export(client, "data.evm.blocks", [43114, 43113], "s3://bucket/blocks")
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chainapi.core.arguments import mapping_of, whole_number, whole_numbers
from chainapi.core.extras import missing_extra
from chainapi.errors import ConfigurationError

try:
    import distributed as _distributed  # noqa: F401 - every module of the package needs it
except ModuleNotFoundError as error:
    raise missing_extra("chainapi.dask needs", error.name, "dask") from None

from chainapi.dask.plugins import session

if TYPE_CHECKING:
    from chainapi.export.formats import Compression
    from chainapi.export.progress import ExportProgress
    from chainapi.tables.types import Amounts

__all__ = ["export", "register", "session"]

PART_ROWS = 100_000
PART_BYTES = 64 << 20  # of rows as JSON
# Arguments of local exports that a cluster has no use for, and why.
_COMMIT = "a part is the commit of the positions after its rows, and"
_LOCAL = {
    "format": "its workers write Parquet; leave it out",
    "journal": "its workers keep their state beside the parts; leave it out",
    "lookback": f"{_COMMIT} is never written again; leave it out, or export without a cluster",
    "part_bytes": "a part has at most 64 MiB of rows as JSON; give part_rows= for smaller ones",
    "part_seconds": "a part is written when it is full; give part_rows= for smaller ones",
    "partition": f"{_COMMIT} so one file; leave it out, or export to a local folder",
    "progress": "give on_progress= a function",
    "resume": "make the same call again to continue an export",
}


def export(
    client: Any,
    route: str,
    sources: Iterable[Any] | AsyncIterable[Any],
    target: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    fields: Iterable[str] | None = None,
    amounts: Amounts | None = None,
    compression: Compression | None = None,
    compression_level: int | None = None,
    row_group_rows: int | None = None,
    limit: int | None = None,
    ranges: int | str | None = None,
    concurrency: int = 32,
    part_rows: int = PART_ROWS,
    on_progress: Callable[[ExportProgress], None] | None = None,
    session_arguments: Mapping[str, Any] | None = None,
    **query: Any,
) -> Any:
    """Export many lists on the workers of a Dask cluster, into Parquet files.

    The same call continues an export that was stopped, at any moment and by anything, and later fetches new
    rows, as `chainapi.export.export` does. Each row is in the folder exactly once. A file appears whole, with
    rows and checkpoints together: nothing is renamed, and the folder is its own journal.

    The sources are divided into partitions by a checksum of their labels. A worker exports a partition with
    `merge`, through the session of `register`; without one, `export` registers sessions that take their
    arguments from the environment of the workers.

    Args:
        client: a ``distributed.Client``, synchronous or not.
        route: dotted name of a method of a session that returns `Pages`, such as ``data.evm.blocks``.
        sources: the sources: each the first argument of the method, a tuple of its arguments, or a mapping of
            named ones; joined with "/" they are the column ``source`` of its rows.
        target: a folder that all workers reach: a path, or a URL of fsspec such as ``s3://bucket/blocks``,
            without a password or a query.
        storage_options: options of the file system of `target`.
        partitions: number of partitions of a new export, 32 by default. It stays the same in later runs.
        fields: names of the columns, as in `chainapi.export.export`; by default those of the folder.
        amounts: type of amounts, as in `chainapi.export.export`; by default that of the folder.
        compression: compression of the files, as there; so are the level and the groups.
        compression_level: its level.
        row_group_rows: number of rows of a group.
        limit: rows of each source; all by default. Later runs fetch all new rows.
        ranges: number or width of the ranges in which each source is walked side by side, as in
            `chainapi.export.export`; they stay in one partition.
        concurrency: number of sources, or ranges, that are open at once in each running partition.
        part_rows: rows after which a worker writes a file; it writes one after 64 MiB of rows as JSON too. A
            worker that is killed loses the rows after its last file, and they are fetched again.
        on_progress: called in the event loop of the client, several times a second.
        session_arguments: arguments of sessions for this export alone, as `register` takes them.
        query: further arguments of the method, the same for all sources. ``on_invalid="raw"`` writes invalid
            rows as JSON lines into the folder ``_invalid``.

    Returns:
        A `DistributedResult`; for an asynchronous client, an awaitable of it.

    Raises:
        ConfigurationError: an argument is invalid, or a package is missing.
        IncompleteExportError: some sources failed; the others are in the target.
        ExportError: the target cannot be read or written, holds another export, or was taken over by another
            run; or the cluster failed.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    from chainapi.dask.coordinator import DistributedExport
    from chainapi.dask.partition import Folder
    from chainapi.dask.plugins import checked_client
    from chainapi.export.formats import format_of, with_options
    from chainapi.export.progress import check_reporter
    from chainapi.export.ranges import checked_ranges
    from chainapi.export.spec import checked_sources
    from chainapi.export.store import absolute, path_of, refuse_credentials, refuse_cut_url
    from chainapi.tables.columns import checked_fields
    from chainapi.tables.types import checked_amounts

    whole_numbers(limit=limit, partitions=partitions)
    for name, value in (("concurrency", concurrency), ("part_rows", part_rows)):
        whole_number(name, value)
    for name in sorted(query.keys() & _LOCAL.keys()):
        raise ConfigurationError(f"{name}= does not apply to a cluster: {_LOCAL[name]}")
    sources, place = checked_sources("sources", sources), path_of("target", target)
    refuse_cut_url(place)
    refuse_credentials(place)
    check_reporter(on_progress)
    options = compression, compression_level, row_group_rows
    parquet: Any = with_options(format_of("parquet"), *options)
    run = DistributedExport(
        client,
        route,
        sources if isinstance(sources, AsyncIterable) else [*sources],
        Folder(absolute(place), dict(mapping_of("storage_options", storage_options))),
        query,
        limit,
        partitions,
        concurrency,
        part_rows,
        PART_BYTES,
        on_progress,
        None if session_arguments is None else mapping_of("session_arguments", session_arguments),
        None if amounts is None else checked_amounts(amounts),
        checked_fields(fields),
        parquet,
        checked_ranges(ranges, limit),
    )
    return checked_client(client).sync(run.run)


def register(client: Any, **session_arguments: Any) -> Any:
    """Open a session on each worker of a cluster, later ones too; they share a gate.

    The gate lives beside the scheduler, so all workers together keep within one quota. `session` returns the
    session inside of tasks. Calling `register` again replaces the sessions.

    Args:
        client: a ``distributed.Client``, synchronous or not.
        session_arguments: arguments of `chainapi.Session`, which have to be picklable. What is left out comes
            from the environment of the workers: set CHAINAPI_API_KEY there. An ``api_key=`` travels in the
            messages of Dask and stays in the memory of the scheduler; it is refused where they are not
            encrypted.

    Returns:
        None; for an asynchronous client, an awaitable.

    Raises:
        ConfigurationError: an argument is invalid, or the key would travel unencrypted.

    """
    from chainapi.dask.plugins import checked_client, install

    return checked_client(client).sync(install, client, session_arguments)
