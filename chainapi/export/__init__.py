"""Exports: many lists at once into files, which hold every row exactly once whatever stops the machine.

::

    await export(session.data.evm.blocks, [43114, 43113], "blocks.parquet", page_size=100)

``run`` is one export from its first source to its final file, ``sources`` the walk of one source. ``journal``
is what it remembers, ``writer`` the way into it; ``files`` says where things are, ``finalize`` makes the
final file; ``columns`` turns rows of a model into columns, and ``formats`` has a module for each kind of
file. ``progress`` is what can be watched.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from chainapi.core.arguments import whole_number
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from chainapi.client.pages import Pages
    from chainapi.export.progress import ExportProgress
    from chainapi.export.run import ExportResult

__all__ = ["export"]


async def export(
    walk: Callable[..., Pages[Any]],
    over: Iterable[Any] | AsyncIterable[Any],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - what users call it
    limit: int | None = None,
    concurrency: int = 32,
    on_progress: Callable[[ExportProgress], None] | None = None,
    **query: Any,
) -> ExportResult:
    """Walk many lists at once into one file, or into a folder that gets a file each run.

    Started again after whatever ended it, it goes on where it stood. Once all is fetched, routes whose rows
    come newest first are asked for what is new since; others for nothing. What it remembers is in a SQLite
    database beside the file (``blocks.parquet.export``), or in the folder (``_export``).

    Args:
        walk: a method that returns `Pages`, such as ``session.data.evm.blocks``.
        over: the sources: each the first argument of `walk`, a tuple of its arguments, or a mapping of named
            ones. They are taken as they are needed. Joined with "/" they name the source in every row.
        out: a file; or a folder, which exists, ends with a slash, or has no suffix.
        format: ``jsonl``, ``csv``, ``parquet``, ``sqlite`` or ``duckdb``; else the suffix says it, and a
            folder gets ``jsonl``.
        limit: rows of each source; all without it. Where a walk had to begin again, up to a page more; a
            later run fetches all that is new.
        concurrency: how many sources are open at once; their pages are what is held in memory.
        on_progress: called after each commit, and at each stage.
        query: further arguments of `walk`, the same for all sources. With ``on_invalid="raw"`` rows that
            cannot be made go to JSON lines beside the final file (``blocks.parquet.invalid``): the source,
            the JSON path, the error and the row as it came.

    Raises:
        ConfigurationError: an argument cannot be used, or a package is missing.
        IncompleteExportError: some sources failed; the others are in the target.
        ExportError: the target cannot be read or written, holds another export, or is written by another one.
        ChainAPIError: what concerns all sources, such as a key that is refused.

    """
    from chainapi.export.files import Target
    from chainapi.export.run import Exporter

    if limit is not None:
        whole_number("limit", limit)
    if "resume" in query:
        raise ConfigurationError("an export resumes by itself: start it again with the same target")
    target = Target.of(out, format)
    return await Exporter(walk, over, target, query, limit, concurrency, on_progress).run()
