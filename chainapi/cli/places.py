"""Quotas that ``chainapi quota`` shows: their places and their states."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from chainapi._config import ServiceConfig, Unconfigured
from chainapi._limits.view import QuotaSnapshot
from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.directory import share_directory
from chainapi.share.watch import Observer

if TYPE_CHECKING:
    from chainapi.share.registry import BuiltIn

__all__ = ["Places", "SharedQuota"]


@frozen
class SharedQuota:
    """Quota that processes share.

    Attributes:
        name: the digest that names it.
        service: name of its service; None if the quota does not belong to the configured addresses and key.
        origin: scheme, host and port of the service.
        processes: number of the processes.
        snapshot: its state.

    """

    name: str
    service: str | None
    origin: str
    processes: int
    snapshot: QuotaSnapshot


class Places:
    """Quotas to show: all that the carrier lists, or the services'.

    Args:
        configs: the services, configured or not.
        carrier: connects observers.

    Raises:
        ConfigurationError: no service is configured, and the carrier lists no quotas.

    """

    def __init__(self, configs: Sequence[ServiceConfig | Unconfigured], carrier: BuiltIn) -> None:
        keys = {one: _api_key(one) for one in configs if isinstance(one, ServiceConfig)}
        self._services = {quota_name(one.origin, key): one for one, key in keys.items()}
        self._carrier = carrier
        self._names: Callable[[], list[str]] | None = getattr(carrier, "names", None)
        self._observers: dict[str, Observer | None] = {}
        if self._names is None and not self._services:
            raise ConfigurationError(
                "; ".join(one.reason for one in configs if isinstance(one, Unconfigured))
            )

    async def read(self) -> tuple[list[SharedQuota], str]:
        """Return the quotas that processes share now, and problems with others."""
        try:
            names = self._services if self._names is None else self._names()
        except (ConfigurationError, ShareUnavailableError) as error:
            return [], str(error)
        for name in sorted(names, key=lambda name: name not in self._services):  # the configured ones first
            self._observers.setdefault(name)
        states = await asyncio.gather(*map(self._state, self._observers))
        quotas = [state for state in states if isinstance(state, SharedQuota)]
        problems = dict.fromkeys(state for state in states if isinstance(state, str))
        return quotas, "; ".join(problems) or ("" if quotas else self._nobody())

    async def aclose(self) -> None:
        """End all links."""
        for name in self._observers:
            self._close(name)
            await self._carrier.aclose(name)

    def _nobody(self) -> str:
        if self._names is None:
            return (
                "no process shares a quota there: start one with the same address of the server in"
                " CHAINAPI_SHARE or Session(share=...), and with the same addresses and key of the services"
                " as here"
            )
        return (
            f"no process shares a quota in the directory {share_directory()}: start one with CHAINAPI_SHARE=1"
            " or Session(share=True). Processes of another environment may use another directory: set"
            " CHAINAPI_SHARE_DIR. For processes on other machines give --share redis://..."
        )

    async def _state(self, name: str) -> SharedQuota | str | None:
        """Return the state of a quota, None without a host, or a problem in words."""
        try:
            observer = self._observers[name] or await self._observe(name)
            if observer is None:
                return None
            snapshot = await observer.snapshot()
        except (ConfigurationError, ShareUnavailableError) as error:
            self._close(name)
            return str(error)
        if not observer.processes:  # the host of other quotas knows this one from before
            return None
        config = self._services.get(name)
        service, origin = (None, observer.origin) if config is None else (config.name, config.origin)
        return SharedQuota(name, service, origin, observer.processes, snapshot)

    async def _observe(self, name: str) -> Observer | None:
        config = self._services.get(name)
        secret = b"" if config is None else frame_key(config.origin, _api_key(config))
        link = await self._carrier.observe(name, secret)
        if link is not None:
            process = f"{socket.gethostname()}:{os.getpid()}"
            self._observers[name] = Observer(link, process, time.time, name)
        return self._observers[name]

    def _close(self, name: str) -> None:
        if (observer := self._observers[name]) is not None:
            observer.close()
            self._observers[name] = None


def _api_key(config: ServiceConfig) -> str | None:
    return None if config.key is None else config.key.reveal()
