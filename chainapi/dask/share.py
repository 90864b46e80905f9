"""One session for each worker of a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from chainapi.session import Session

__all__ = ["ensure_registered", "register", "session"]

PLUGIN = "chainapi-session"


class SessionPlugin(WorkerPlugin):
    """Opens a session on each worker, in its event loop, and closes it at the end."""

    name = PLUGIN

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self.session: Session | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def setup(self, worker: Any) -> None:
        from chainapi.session import Session

        self.session = Session(**self._arguments)

    async def teardown(self, worker: Any) -> None:
        if self.session is not None:
            await self.session.aclose()


def session() -> Session:
    plugin = get_worker().plugins.get(PLUGIN)
    if plugin is None or plugin.session is None:
        raise ConfigurationError("no session on this worker: call chainapi.dask.register(client) first")
    return plugin.session


async def ensure_registered(client: Any) -> None:
    plugin = SessionPlugin({})
    plugin.idempotent = True
    await client.register_plugin(plugin)


def register(client: Any, **session_arguments: Any) -> Any:
    return client.register_plugin(SessionPlugin(session_arguments))
