"""File system in memory that dies at a step, as the process that uses it would."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from attrs import define
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from chainapi.dask.partition import Job
from chainapi.export.spec import Arguments
from chainapi.export.store import Store

__all__ = ["Disk", "Killed", "Place", "job_of", "rows_in", "rows_of", "tables_of"]


class Killed(Exception):  # noqa: N818 - a death, not an error
    """The process died."""


class Disk(MemoryFileSystem):  # type: ignore[misc]
    """File system of one test; from a chosen step on, nothing of the process has any effect.

    A step creates, replaces or removes one object.
    """

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs = [""]
        self.died = False
        self.revive()

    def revive(self, *, before: int = 0, after: int = 0) -> None:
        """Start a new process, which dies before or after a step; 0 for never."""
        self.steps, self.dead = 0, False
        self._before, self._after = before, after

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Create or replace an object."""
        self._begin()
        super().pipe_file(path, value, mode, **options)
        self._end()

    def rm_file(self, path: str) -> None:
        """Remove an object."""
        self._begin()
        super()._rm(path)
        self._end()

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """List a folder."""
        self._die(self.dead)
        return super().ls(path, detail, **options)

    def _begin(self) -> None:
        self._die(self.dead)
        self.steps += 1
        self._die(self.steps == self._before)

    def _end(self) -> None:
        self._die(self.steps == self._after)

    def _die(self, dying: bool) -> None:
        if dying:
            self.dead = self.died = True
            raise Killed


@define
class Place:
    """Folder of an export on a disk of a test."""

    disk: Any
    url: str = "disk://blocks"

    def open(self) -> Store:
        """Open the folder."""
        return Store(self.url, self.disk, "/blocks")


_runs = count(1)


def job_of(place: Any, sources: Any, *, route: str = "data.evm.blocks", **options: Any) -> Job:
    """Return the job of a partition, of a run of its own."""
    defaults: dict[str, Any] = {
        "export": f"run-{next(_runs)}",
        "sessions": "chainapi-session",
        "number": 3,
        "query": {"page_size": 10},
        "limit": None,
        "amounts": "text",
        "concurrency": 4,
        "part_rows": 25,
        "part_bytes": 1 << 20,
    }
    arguments = tuple(Arguments.of(source) for source in sources)
    return Job(folder=place, route=route, sources=arguments, **{**defaults, **options})


def tables_of(disk: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of all parts on a disk."""
    for name in sorted(disk.store):
        if name.endswith(".parquet"):
            yield from pq.read_table(io.BytesIO(disk.cat_file(name))).to_pylist()


def rows_of(disk: Any) -> Counter[str]:
    """Count the rows of all parts on a disk."""
    return Counter(map(_text, tables_of(disk)))


def rows_in(path: Path) -> Counter[str]:
    """Count the rows of a Parquet file, or of all in a folder, as every reader of Parquet finds them."""
    return Counter(map(_text, ds.dataset(path, format="parquet").to_table().to_pylist()))


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
