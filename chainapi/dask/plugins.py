"""Plugins of a cluster: gates beside the scheduler, and a session on each worker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from distributed import Client, Reschedule, WorkerPlugin, get_worker

from chainapi._config import is_loopback
from chainapi._text import quoted
from chainapi.dask.links import DaskCarrier, GatePlugin
from chainapi.errors import ArgumentError, ConfigurationError
from chainapi.session import Session

__all__ = [
    "SESSIONS",
    "SessionPlugin",
    "checked_client",
    "install",
    "plugin_of",
    "plugin_soon",
    "session",
    "stop_tasks",
]

T = TypeVar("T")

SESSIONS = "chainapi-session"  # name of the plugin
REPLACED_WITHIN = 60.0  # seconds that the tasks of a replaced session have to write what they fetched


class SessionPlugin(WorkerPlugin):
    """Session on a worker, in the worker's event loop, closed when the worker ends.

    Its arguments are pickled as they are: an API key among them travels in the messages of Dask, and the
    scheduler keeps it for workers that come later. No repr shows them.

    Attributes:
        session: the session; missing if it could not be opened.

    """

    session: Session

    def __init__(
        self, arguments: Mapping[str, Any], name: str = SESSIONS, *, idempotent: bool = False
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self._arguments = arguments
        self._tasks: dict[tuple[str, int], asyncio.Task[Any]] = {}
        self._carrier: DaskCarrier | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), name=self.name, idempotent=self.idempotent), (self._arguments,)

    def setup(self, worker: Any) -> None:
        """Open the session.

        Raises:
            ConfigurationError: an argument, or a variable in the environment of the worker, is invalid.

        """
        self._carrier = DaskCarrier.of(worker)
        limiter = self._arguments.get("limiter")
        share = {} if limiter is not None and limiter.isolated else {"share": self._carrier}
        self.session = Session(**{**share, **self._arguments})

    async def teardown(self, worker: Any) -> None:
        """End the tasks of the session, each with what it has, and close it."""
        await _cancel(self._tasks.values())
        if hasattr(self, "session"):
            await self.session.aclose()
        if self._carrier is not None:
            self._carrier.close()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Cancel a task that the scheduler released.

        Its client is gone, or another worker has it.
        """
        if finish == "released" and key in self._tasks:
            _cancel_once(self._tasks[key])

    async def run(self, key: tuple[str, int], coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as the task `key`; `stop` and the end of the worker cancel it.

        Raises:
            Reschedule: it was cancelled; another worker has to run the task, unless it was released.

        """
        task = asyncio.create_task(coroutine)
        self._tasks[key] = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise Reschedule from None
        finally:
            del self._tasks[key]

    async def stop(self, group: str) -> None:
        """Cancel the tasks of a group, and wait for their ends."""
        await _cancel(task for key, task in self._tasks.items() if key[0] == group)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    if found := [*tasks]:
        for task in found:
            _cancel_once(task)
        await asyncio.wait(found)


def _cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancel a task; a second time would keep it from writing what it has."""
    if not task.cancelling():
        task.cancel()


def plugin_of(worker: Any, name: str = SESSIONS) -> SessionPlugin:
    """Return the plugin of a worker.

    Raises:
        ConfigurationError: the worker has no session.

    """
    plugin = worker.plugins.get(name)
    if not isinstance(plugin, SessionPlugin) or not hasattr(plugin, "session"):
        raise ConfigurationError(
            "this worker has no session: call chainapi.dask.register(client) first. If you did, the session "
            "could not be opened, and the log of the worker has the reason"
        )
    return plugin


async def plugin_soon(worker: Any, name: str, key: Any) -> SessionPlugin:
    """Return the plugin of a worker for a task; wait while `register` replaces it.

    Raises:
        ConfigurationError: the worker has no session.
        Reschedule: the task was released meanwhile.

    """
    with suppress(TimeoutError):
        async with asyncio.timeout(REPLACED_WITHIN):
            while name not in worker.plugins:  # noqa: ASYNC110 - Dask has no event for it
                await asyncio.sleep(0.05)
    if worker.state.tasks[key].state == "cancelled":  # before a plugin could note it
        raise Reschedule
    return plugin_of(worker, name)


def session() -> Session:
    """Return the session of the worker that runs this task.

    Use it in coroutines: it belongs to the event loop of the worker. Do not close it.

    Raises:
        ConfigurationError: this is no task of a worker, or the worker has no session.

    """
    try:
        worker = get_worker()
    except ValueError:
        raise ConfigurationError("chainapi.dask.session() works inside tasks of a Dask worker only") from None
    return plugin_of(worker).session


async def stop_tasks(group: str, sessions: str, dask_worker: Any) -> None:
    """Stop the tasks of a group on a worker; for ``client.run``."""
    await plugin_of(dask_worker, sessions).stop(group)


def checked_client(given: Any) -> Client:
    """Return the argument `client`.

    Raises:
        ArgumentError: it is no client of Dask.

    """
    if not isinstance(given, Client):
        raise ArgumentError(f"client={quoted(given)} must be a distributed.Client")
    return given


async def install(
    client: Any, arguments: Mapping[str, Any], name: str = SESSIONS, *, idempotent: bool = False
) -> None:
    """Install both plugins; with `idempotent` keep a session plugin that is there.

    Raises:
        ConfigurationError: an argument is invalid, or the key would travel unencrypted.

    """
    if arguments.get("api_key") is not None:
        known = await client.scheduler.identity(n_workers=-1)
        for address in (client.scheduler.address, *known["workers"]):
            _check_encrypted(address)
    await client.register_plugin(GatePlugin())
    await client.register_plugin(SessionPlugin(arguments, name, idempotent=idempotent))


def _check_encrypted(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme in ("tls", "wss", "inproc") or is_loopback(parts.hostname or ""):
        return
    raise ConfigurationError(
        f"api_key= would travel unencrypted to {address}: secure the cluster with TLS, or leave api_key= out "
        "and set CHAINAPI_API_KEY in the environment of the workers"
    )
