"""Exports of the command line on a Dask cluster (extra ``dask``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from attrs import asdict

from chainapi.cli.common import DEFAULTS, ConnectionOptions
from chainapi.errors import ConfigurationError, ExportError
from chainapi.export import ExportResult

__all__ = ["exporting_on"]


@asynccontextmanager
async def exporting_on(
    address: str, connection: ConnectionOptions
) -> AsyncIterator[Callable[..., Awaitable[ExportResult]]]:
    """Connect to a scheduler; yield `chainapi.dask.export` without its first argument.

    Raises:
        ConfigurationError: the address is malformed, or a package is missing.
        ExportError: the scheduler cannot be reached.

    """
    import chainapi.dask as cluster

    usual = asdict(DEFAULTS)
    changed = {name: value for name, value in asdict(connection).items() if value != usual[name]}
    async with _connected(address) as client:
        yield partial(cluster.export, client, session_arguments=changed or None)


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Any]:
    from distributed import Client

    client: Any = Client(address, asynchronous=True)
    try:
        await client
    except OSError as error:
        raise ExportError(
            f"the Dask scheduler at {address} cannot be reached ({error}): start it, or check --dask"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"--dask {address}: {error}") from error
    finally:
        if client.status != "running":  # else its destructor would write warnings after the error
            await client.close()
    async with client:
        yield client
