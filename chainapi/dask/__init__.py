"""Dask: one quota for a cluster, and exports on its workers (extra ``dask``).

::

    client = distributed.Client("scheduler:8786")
    chainapi.dask.export(client, "data.evm.blocks", [43114, 43113], "s3://bucket/blocks")
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chainapi._api.catalogue import ROUTES
from chainapi._text import did_you_mean, quoted
from chainapi.core.arguments import mapping_of, whole_numbers
from chainapi.core.extras import missing_extra
from chainapi.errors import ArgumentError, ConfigurationError

try:
    import distributed as _distributed  # noqa: F401 - every module of the package needs it
except ModuleNotFoundError as _missing:
    raise missing_extra("chainapi.dask needs", _missing.name, "dask") from None

from chainapi.dask.plugins import session

# Arguments of local exports that a cluster has no use for, and why.
_LOCAL = {
    "format": "its workers write Parquet; leave it out",
    "partition": "its folder has a part for each set of sources; leave it out, or export without a cluster",
    "wait": "the run that begins later takes over; leave it out",
    "resume": "make the same call again to continue an export",
}
_BY_PATH = ("data.list", "metrics.list")  # methods of a session for lists by their paths

if TYPE_CHECKING:
    from chainapi._tables.types import Amounts
    from chainapi.export.layout import ParquetOptions
    from chainapi.export.progress import ExportProgress
    from chainapi.export.window import LookbackGiven

__all__ = ["export", "register", "session"]


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
    parquet: ParquetOptions | None = None,
    limit: int | None = None,
    lookback: LookbackGiven | None = None,
    ranges: int | str | None = None,
    concurrency: int = 32,
    commit_seconds: float | None = None,
    compact: bool = True,
    progress: Callable[[ExportProgress], None] | None = None,
    session_arguments: Mapping[str, Any] | None = None,
    **query: Any,
) -> Any:
    """Export many lists on the workers of a Dask cluster, to a folder of Parquet.

    It is `chainapi.export.export` with a partition of the sources for each task: each row is in the folder
    exactly once, and the same call continues an export that was stopped, and later fetches new rows. Each
    partition has a log of its own in ``_log``. The workers use the sessions of `register`; without one,
    `export` registers sessions that take their arguments from the environment of the workers.

    Args:
        client: a ``distributed.Client``, synchronous or not.
        route: dotted name of a method of a session that returns `Pages`, such as ``data.evm.blocks``.
        sources: the sources, as in `chainapi.export.export`.
        target: a folder that all workers reach: a path, or a URL of fsspec such as ``s3://bucket/blocks``,
            without a password or a query.
        storage_options: options of the file system of `target`.
        partitions: number of partitions of a new export, 32 by default. A source is in one of them by a
            checksum of its label, so the number stays the same in later runs.
        fields: names of the columns. `chainapi.export.export` describes this option and the others in full.
        amounts: type of amounts.
        parquet: compression and row groups of the files.
        limit: rows of each source until it has ended for the first time.
        lookback: how far below its newest row a finished source is fetched again.
        ranges: number or width of the ranges in which each source is read side by side, in one partition.
        concurrency: number of sources, or ranges, that are open at once in each running partition.
        commit_seconds: seconds after which fetched rows are in the folder, 60 by default; a worker that is
            killed loses the rows since then, and others fetch them again.
        compact: merge small parts of a partition.
        progress: called in the event loop of the client, several times a second.
        session_arguments: arguments of sessions for this export alone, as `register` takes them.
        query: further arguments of the method, the same for all sources.

    Returns:
        An `ExportResult`; for an asynchronous client, an awaitable of it.

    Raises:
        ConfigurationError: an argument is invalid, or a package is missing.
        IncompleteExportError: some sources failed; the others are in the target.
        TargetInUseError: another run has taken the target over.
        ExportError: the target cannot be read or written, or holds another export; or the cluster failed.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    from chainapi.dask.cluster import ClusterExport
    from chainapi.dask.partition import Job
    from chainapi.dask.plugins import checked_client
    from chainapi.export.layout import Layout
    from chainapi.export.progress import reporter_of
    from chainapi.export.spec import ExportSpec, checked_sources

    whole_numbers(partitions=partitions)
    if refused := sorted(query.keys() & _LOCAL.keys()):
        raise ConfigurationError(f"{refused[0]}= does not apply to a cluster: {_LOCAL[refused[0]]}")
    shown: Any = progress
    if shown is True:
        raise ConfigurationError("progress=True does not apply to a cluster: pass a function")
    checked_sources("sources", sources)
    method: Any = None  # each worker takes the method of its session
    spec = ExportSpec(
        method,
        sources if isinstance(sources, AsyncIterable) else [*sources],
        query,
        Layout("parquet", amounts, fields, None, parquet),
        limit=limit,
        concurrency=concurrency,
        ranges=ranges,
        lookback=lookback,
        commit_seconds=commit_seconds,
        compact=compact,
    )
    options = mapping_of("storage_options", storage_options)
    job = Job(_route(route), _folder(target, options), options, spec)
    arguments = None if session_arguments is None else mapping_of("session_arguments", session_arguments)
    run = ClusterExport(client, job, partitions, reporter_of(shown or False), arguments)
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


def _folder(target: Any, options: Mapping[str, Any]) -> str:
    """Return the address of a target, the same for every process."""
    from chainapi.export.target import target_of

    if not isinstance(target, str | os.PathLike):
        raise ArgumentError(f"target={quoted(target)} must be a path or a URL")
    found = target_of(target, "parquet", options)
    if found.name:
        raise ConfigurationError(f"target= must be a folder, and {found.address} is a file: name another one")
    address = found.address
    return address if isinstance(address, str) else f"{address.absolute()}{os.sep}"


def _route(given: Any) -> str:
    """Return a route, unless no session has it, or it is no list."""
    if not isinstance(given, str):
        raise ArgumentError(f"route={quoted(given)} must be the name of a method, such as data.evm.blocks")
    if given not in (*ROUTES, *_BY_PATH):
        hint = did_you_mean(given, (*ROUTES, *_BY_PATH), "`chainapi routes` shows all names")
        raise ConfigurationError(f"no route is named {quoted(given)}: {hint}")
    if given in ROUTES and ROUTES[given].single:
        raise ConfigurationError(f"{given} returns a single resource: only lists can be exported")
    return given
