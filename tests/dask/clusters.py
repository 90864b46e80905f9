"""Dask clusters of tests: in the test's event loop, without a dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from chainapi import LimiterOptions, Session
from chainapi.export import export, files
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response, Transport

__all__ = [
    "Shared",
    "arguments_of",
    "cluster_of",
    "rows_at",
    "rows_in",
    "straight",
]


@asynccontextmanager
async def cluster_of(workers: int = 2, **options: Any) -> AsyncIterator[tuple[Client, LocalCluster]]:
    """Start a cluster of this process, and a client of it."""
    defaults = {"processes": False, "threads_per_worker": 2}
    async with (
        LocalCluster(
            n_workers=workers, dashboard_address="127.0.0.1:0", asynchronous=True, **{**defaults, **options}
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        yield client, cluster


def arguments_of(simulator: Simulator) -> dict[str, Any]:
    """Return the session's arguments for a simulator with a port."""
    return {
        "data_base_url": simulator.data_base_url,
        "metrics_base_url": simulator.metrics_base_url,
        "api_key": simulator.api_key,
    }


class Shared:
    """Transport that stays the same object on the workers of this process, although Dask pickles it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.arguments: dict[str, Any] = {
            "transport": self,
            "limiter": LimiterOptions(isolated=True),
            "api_key": "key-of-the-test",
            **dict.fromkeys(("data_base_url", "metrics_base_url"), "https://data.test"),
        }
        _shared[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (id(self),)

    async def send(self, request: Request) -> Response:
        """Answer a request."""
        return await self._transport.send(request)

    async def aclose(self) -> None:
        """Close nothing."""


_shared: dict[int, Shared] = {}


def _known(number: int) -> Shared:
    return _shared[number]


# Rows


async def straight(simulator: Simulator, folder: Path, sources: Any) -> Counter[str]:
    """Count the rows of a local export."""
    async with Session(**arguments_of(simulator)) as session:
        await export(session.data.evm.blocks, sources, folder / "straight.parquet", page_size=10)
    return rows_in(folder / "straight.parquet")


def rows_in(path: Path) -> Counter[str]:
    """Count the rows of a Parquet file, or of all in a folder, as every reader of Parquet finds them."""
    return Counter(map(_text, ds.dataset(path, format="parquet").to_table().to_pylist()))


def rows_at(target: Path | str) -> Counter[str]:
    """Count the rows in the files of a target that are in force."""
    found = Counter[str]()
    for one in files(target):
        with fsspec.open(str(one.path)) as file:
            rows = pq.read_table(file).to_pylist()
        assert len(rows) == one.rows
        found.update(map(_text, rows))
    return found


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
