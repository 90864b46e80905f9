"""Export: many lists at once into files; each row is there exactly once.

::

    await export(session.data.evm.blocks, [43114, 43113], "blocks.parquet", page_size=100)

Pages are fetched and committed to a journal, a SQLite database and files with rows beside the target. A
folder gets its parts meanwhile; a single file gets the rows of finished sources at the end. Start reading at
``run``, which calls ``fetch`` (``sources``, ``writer``, ``journal``) and ``part_schedule`` (``part_writer``,
``placement`` or ``remote``).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chainapi.core.arguments import boolean, whole_number, whole_numbers
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from chainapi.client.pages import Pages
    from chainapi.export.formats import Compression
    from chainapi.export.lookback import LookbackGiven
    from chainapi.export.progress import ExportProgress
    from chainapi.export.run import ExportResult
    from chainapi.tables.types import Amounts

__all__ = ["export"]


async def export(
    walk: Callable[..., Pages[Any]],
    over: Iterable[Any] | AsyncIterable[Any],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the usual word
    journal: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fields: Iterable[str] | None = None,
    amounts: Amounts | None = None,
    compression: Compression | None = None,
    compression_level: int | None = None,
    row_group_rows: int | None = None,
    limit: int | None = None,
    lookback: LookbackGiven | None = None,
    ranges: int | str | None = None,
    concurrency: int = 32,
    partition: Iterable[str] | None = None,
    part_rows: int | None = None,
    part_bytes: int | None = None,
    part_seconds: float | None = None,
    progress: bool = False,
    on_progress: Callable[[ExportProgress], None] | None = None,
    **query: Any,
) -> ExportResult:
    """Export many lists at once into a file, or into a folder of files.

    A folder gets a part while the export runs, as soon as there are enough rows, and one at the end; its
    manifest lists them. The same call continues an export that was stopped, at any moment and by anything.
    Once all rows are fetched, the same call fetches only new rows if the rows show which are new, by a block
    number or a time, and nothing otherwise. The journal of the export is the folder ``blocks.parquet.export``
    beside a file, ``_export`` in a folder.

    A later call may leave out `format`, `fields`, `amounts`, `partition` and the compression, which the
    target knows; other ones than it has are refused, except the compression.

    Args:
        walk: a method that returns `Pages`, such as ``session.data.evm.blocks``.
        over: the sources, read as they are needed. A source is the first argument of `walk`, a tuple of its
            arguments, or a mapping of named ones; joined with "/" they are the column ``source`` of its rows.
        out: a file; or a folder, which exists, ends with a slash, or has no suffix. A URL such as
            ``s3://bucket/blocks/`` is a folder or a file of any file system of fsspec; with it ``path`` and
            ``written`` of the result are URLs.
        format: ``jsonl``, ``csv``, ``parquet``, ``sqlite`` or ``duckdb``; compressed text is ``jsonl.gz``,
            ``jsonl.zst``, ``csv.gz`` or ``csv.zst``. The default is that of the export in `out`; of a new
            one the suffix of the file or the folder, and ``jsonl`` in a folder without one.
        journal: folder of the journal of a URL, on a local disk; by default one in the current directory,
            with the last name of the URL: ``blocks.export``. Later runs need it.
        storage_options: options of the file system of a URL, such as credentials, which are stored nowhere.
        fields: names of the columns in Python, in their order; all by default. The first column is ``source``
            in any case. Fields inside of a record cannot be chosen alone. Later runs have the same columns.
        amounts: type of whole numbers that often do not fit into 64 bits (fees, balances, values, token
            ids), in every file alike: ``text``, the default, exact at any length; ``decimal``, exact up to 38
            digits; ``float``, rounded to 53 bits; ``binary``, 32 bytes of an unsigned number, most
            significant first.
        compression: compression of Parquet files: ``zstd``, the default, ``snappy``, ``gzip`` or ``none``.
            Later runs keep it, or choose another one.
        compression_level: level of the compression of Parquet and compressed text, 1 to 22 of zstd and 1 to 9
            of gzip; larger is smaller and slower. Later runs keep it, or choose another one.
        row_group_rows: number of rows of a group in Parquet files; by default 100,000, or fewer if they take
            64 MiB. Memory holds one group.
        limit: greatest number of rows of each source until it has ended for the first time; all by default.
            Later runs fetch all new rows.
        lookback: how far below its newest row a finished source is fetched again, so that late and changed
            rows are corrected, and withdrawn ones removed: ``"1d"``, ``"6h"``, seconds or a timedelta for a
            list whose rows have a time; ``"100 blocks"`` or a number for one with block numbers. By default
            no row is fetched again. Each run may choose another one.
        ranges: number of ranges in which each source is walked side by side, or the width of each, such as
            ``100000 blocks`` or ``7 days`` (see `Pages.split`); one walk by default. It concerns sources that
            have not begun, and does not apply with `limit`.
        concurrency: number of sources, or ranges, that are open at once. Memory holds a page or two of each.
        partition: keys that divide the rows of a folder of Parquet, CSV or JSON lines, in their order:
            ``source``, and ``day``, ``month`` or ``year`` of the time of a row in UTC. The values are the
            names of folders, as in Hive: ``source=43114/day=2026-11-20/part-00001.parquet``. Later runs have
            the same keys.
        part_rows: number of rows after which a folder gets a part, also while the export runs; 1,000,000 by
            default.
        part_bytes: bytes of rows, as JSON, after which it gets one; 256 MiB by default.
        part_seconds: seconds after which fetched rows become a part; 600 by default.
        progress: whether a notebook or a terminal shows rows, speed and the time left.
        on_progress: called after each commit and at each stage.
        query: further arguments of `walk`, the same for all sources. ``on_invalid="raw"`` writes invalid rows
            as JSON lines beside the final file (``blocks.parquet.invalid``), each with its source, the JSON
            path, the error and the row as the service sent it.

    Raises:
        ConfigurationError: an argument is invalid, or a package is missing.
        IncompleteExportError: some sources failed; the others are in the target.
        ExportError: the target cannot be read or written, holds another export, or is in use by another one.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    from attrs import evolve

    from chainapi.export.formats import with_options
    from chainapi.export.lookback import Lookback
    from chainapi.export.part_schedule import PartLimits
    from chainapi.export.partition import checked_partition, partitioned
    from chainapi.export.progress import check_reporter
    from chainapi.export.ranges import checked_ranges
    from chainapi.export.remote import target_of
    from chainapi.export.run import Exporter
    from chainapi.export.settings import options_again
    from chainapi.export.spec import ExportSpec, checked_sources
    from chainapi.tables.columns import checked_fields
    from chainapi.tables.types import checked_amounts

    whole_numbers(limit=limit)
    whole_number("concurrency", concurrency)
    if "resume" in query:
        raise ConfigurationError(
            "export() does not take resume=: call it again with the same target to continue an export"
        )
    boolean("progress", progress)
    check_reporter(on_progress)
    over = checked_sources("over", over)
    target = target_of(out, format, journal, storage_options)
    stored = target.stored
    options = options_again(stored, compression, compression_level)
    target = evolve(target, format=with_options(target.format, *options, row_group_rows))
    if keys := checked_partition(stored.get("partition") if partition is None else partition):
        target = partitioned(target, keys)
    spec = ExportSpec(
        walk,
        over,
        str(target.address),
        target.format,
        query,
        limit,
        concurrency,
        checked_amounts(stored.get("amounts", "text") if amounts is None else amounts),
        checked_fields(stored.get("fields") if fields is None else fields),
        target.partition,
        checked_ranges(ranges, limit),
        None if lookback is None else Lookback.of(lookback),
    )
    await spec.check()
    limits = PartLimits.of(part_rows, part_bytes, part_seconds, target)
    exporter = Exporter(spec, target, on_progress, limits)
    if not progress:
        return await exporter.run()
    from chainapi.client.progress import shown

    async with shown(exporter.progress):
        return await exporter.run()
