"""Export: many lists at once into files; each row is there exactly once.

::

    await export(session.data.evm.blocks, [43114, 43113], "blocks.parquet", page_size=100)

Pages are fetched side by side, and committed: a commit holds rows of any sources and the positions after
them. Start reading at ``run``; ``log`` has the commits, ``folder``, ``single`` and ``database`` the targets.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from chainapi._hints import to_await
from chainapi.core.arguments import refuse_unknown, seconds_of
from chainapi.errors import ConfigurationError
from chainapi.export.layout import Layout, ParquetOptions
from chainapi.export.result import ExportResult, TargetFile

if TYPE_CHECKING:
    from chainapi._paging.pages import Pages
    from chainapi._tables.types import Amounts
    from chainapi.export.progress import ExportProgress
    from chainapi.export.window import LookbackGiven

__all__ = ["ExportResult", "ParquetOptions", "TargetFile", "compact", "export", "files"]


@to_await
async def export(
    walk: Callable[..., Pages[Any]],
    over: Iterable[Any] | AsyncIterable[Any],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    storage_options: Mapping[str, Any] | None = None,
    fields: Iterable[str] | None = None,
    amounts: Amounts | None = None,
    escape_formulas: bool | None = None,
    parquet: ParquetOptions | None = None,
    partition: Iterable[str] | None = None,
    limit: int | None = None,
    lookback: LookbackGiven | None = None,
    ranges: int | str | None = None,
    concurrency: int = 32,
    commit_seconds: float | None = None,
    compact: bool = True,
    wait: float = 0.0,
    progress: bool | Callable[[ExportProgress], None] = False,
    **query: Any,
) -> ExportResult:
    """Export many lists at once into a file, or into a folder of files.

    The same call continues an export that was stopped, at any moment and by anything. Once all rows are
    fetched, the same call fetches only new rows if the rows show which are new, by a block number or a time,
    and nothing otherwise.

    A later call may leave out `format`, `fields`, `amounts`, `partition`, `escape_formulas` and `parquet`,
    which the target knows; other ones than it has are refused, except `parquet`.

    Args:
        walk: a method that returns `Pages`, such as ``session.data.evm.blocks``.
        over: the sources, read as they are needed. A source is the first argument of `walk`, a tuple of its
            arguments, or a mapping of named ones; joined with "/" they are the column ``source`` of its rows.
        out: a file; or a folder, which exists, ends with a slash, or has no suffix. A URL such as
            ``s3://bucket/blocks/`` is a folder of any file system of fsspec.
        format: ``jsonl``, ``csv``, ``parquet``, ``sqlite`` or ``duckdb``; compressed text is ``jsonl.gz``,
            ``jsonl.zst``, ``csv.gz`` or ``csv.zst``. By default the format of the export in `out`; for a new
            one the suffix of the file or the folder decides, and a folder without one gets ``jsonl``.
        storage_options: options of the file system of a URL, such as credentials, which are stored nowhere.
        fields: names of the columns in Python, in their order; all by default. The first column is ``source``
            in any case. Fields inside of a record cannot be chosen alone.
        amounts: type of whole numbers that often do not fit into 64 bits (fees, balances, values, token ids),
            in every file alike: ``text``, the default, exact at any length; ``decimal``, exact up to 38
            digits; ``float``, rounded to 53 bits.
        escape_formulas: in CSV, write an apostrophe before a text that begins with ``=``, ``+``, ``-`` or
            ``@``, which a spreadsheet takes for a formula; by default texts are as they are. Numbers are not
            changed.
        parquet: compression and row groups of Parquet files.
        partition: keys that divide the rows of a folder of Parquet, CSV or JSON lines, in their order:
            ``source``, and ``day``, ``month`` or ``year`` of the time of a row in UTC. The values are the
            names of folders, as in Hive: ``source=43114/day=2026-11-20/part-00000001.parquet``.
        limit: greatest number of rows of each source until it has ended for the first time; all by default.
            Later runs fetch all new rows.
        lookback: how far below its newest row a finished source is fetched again, so that late and changed
            rows are corrected, and withdrawn ones removed: ``"1d"``, ``"6h"``, seconds or a timedelta for a
            list whose rows have a time; ``"100 blocks"`` or a number for one with block numbers. Each run may
            choose another one.
        ranges: number of ranges in which each source is read side by side, or the width of each, such as
            ``100000 blocks`` or ``7 days`` (see `Pages.split`); one by default. It concerns sources that
            have not begun, and does not apply with `limit`.
        concurrency: number of sources, or ranges, that are open at once. Memory holds a page or two of each.
        commit_seconds: seconds after which fetched rows are in the target: what a kill may cost in requests,
            and what a reader waits for new rows. 60 by default for folders and Parquet, 1 for other files.
        compact: merge small parts of a folder as soon as there are many; False leaves parts as they are.
        wait: seconds to wait for the end of another export to the same target on this machine.
        progress: True to show rows, speed and the time left in a notebook or a terminal; or a function that
            is called with them after each write.
        query: further arguments of `walk`, the same for all sources. ``on_invalid="raw"`` keeps invalid rows
            beside the others, each with its source, the JSON path, the error and the row as the service sent
            it.

    Raises:
        ConfigurationError: an argument is invalid, or a package is missing.
        IncompleteExportError: some sources failed; the rows of the others are in the target.
        TargetInUseError: another export writes to the target, or another program has the database open.
        ExportError: the target cannot be read or written, or holds another export.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    from chainapi.export.progress import reporter_of
    from chainapi.export.run import Run
    from chainapi.export.spec import ExportSpec
    from chainapi.export.target import target_of

    layout = Layout(format, amounts, fields, partition, parquet, escape_formulas)
    spec = ExportSpec(
        walk,
        over,
        _known(walk, query),
        layout,
        limit=limit,
        concurrency=concurrency,
        ranges=ranges,
        lookback=lookback,
        commit_seconds=commit_seconds,
        compact=compact,
    )
    on_progress, wait = reporter_of(progress), seconds_of("wait", wait, zero=True)
    target = target_of(out, layout.format, storage_options)
    sink = target.sink(compact=bool(compact), seconds=commit_seconds)
    run = Run(spec, target, sink, wait, on_progress)
    if progress is not True:
        return await run.run()
    from chainapi._paging.progress import shown

    async with shown(run.progress):
        return await run.run()


def _known(walk: Any, query: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of a list method, after a check of their names."""
    if (endpoint := getattr(walk, "endpoint", None)) is not None:
        names = {*endpoint.signature.parameters, *signature(export).parameters} - {"self", "query"}
        refuse_unknown(query.keys() - names, names, "export", query)
    return query


def files(
    target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> list[TargetFile]:
    """Return the files with the rows of an export, as the newest commit has them.

    This blocks.

    At a URL, read these and not all objects: what a killed run has left stays until the next run.

    Args:
        target: a file, a folder or a URL, as `export` takes it.
        storage_options: options of the file system of a URL.

    Raises:
        ConfigurationError: it is no path or URL, or a package is missing.
        ExportError: no export wrote it, or its log is damaged.

    """
    from chainapi.export.target import target_of

    return target_of(target, None, storage_options).files()


def compact(target: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> int:
    """Merge the small parts of a folder.

    This blocks. Return the number of merged parts.

    Args:
        target: a folder or a URL that `export` has written, perhaps with ``compact=False``.
        storage_options: options of the file system of a URL.

    Raises:
        ConfigurationError: it is a file, which has no parts, or a package is missing.
        TargetInUseError: an export is writing to it.
        ExportError: no export wrote it, or it cannot be written.

    """
    from chainapi.export.target import target_of

    found = target_of(target, None, storage_options)
    if found.name:
        raise ConfigurationError(f"{found.address} is one file, which has no parts to merge: name a folder")
    return found.compact()
