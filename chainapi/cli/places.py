"""Quotas that ``chainapi quota`` shows: their places and their states."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field, frozen

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
        self._services = {_name(one): one for one in configs if isinstance(one, ServiceConfig)}
        self._carrier = carrier
        self._names: Callable[[], list[str]] | None = getattr(carrier, "names", None)
        self._places: dict[str, _Place] = {}
        if self._names is None and not self._services:
            reasons = [one.reason for one in configs if isinstance(one, Unconfigured)]
            raise ConfigurationError("; ".join(reasons))

    async def read(self) -> tuple[list[SharedQuota], str]:
        """Return the quotas that processes share now, and problems with others."""
        try:
            self._find()
        except (ConfigurationError, ShareUnavailableError) as error:
            return [], str(error)
        places = list(self._places.values())
        states = await asyncio.gather(*(place.read() for place in places))
        quotas = [state for state in states if isinstance(state, SharedQuota)]
        problems = list(dict.fromkeys(state for state in states if isinstance(state, str)))
        if not quotas and not problems:
            problems = [self._nobody()]
        return quotas, "; ".join(problems)

    async def aclose(self) -> None:
        """End all links."""
        for place in self._places.values():
            await place.aclose()

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

    def _find(self) -> None:
        """Note the quotas that are new, the configured ones first."""
        names = self._services if self._names is None else self._names()
        for name in sorted(names, key=lambda name: name not in self._services):
            if name not in self._places:
                self._places[name] = _Place(name, self._services.get(name), self._carrier)


@define(eq=False)
class _Place:
    """Quota that processes may share."""

    name: str
    config: ServiceConfig | None
    carrier: BuiltIn
    _observer: Observer | None = field(default=None, init=False)

    async def read(self) -> SharedQuota | str | None:
        """Return the state of the quota, None without a host, or a problem in words."""
        try:
            return await self._read()
        except (ConfigurationError, ShareUnavailableError) as error:
            self._close()
            return str(error)

    async def _read(self) -> SharedQuota | None:
        if self._observer is None:
            config = self.config
            secret = b"" if config is None else frame_key(config.origin, _api_key(config))
            link = await self.carrier.observe(self.name, secret)
            if link is None:
                return None
            process = f"{socket.gethostname()}:{os.getpid()}"
            self._observer = Observer(link, process, time.time, self.name)
        snapshot = await self._observer.snapshot()
        if not self._observer.processes:  # the host of other quotas knows this one from before
            return None
        service, origin = None, self._observer.origin
        if self.config is not None:
            service, origin = self.config.name, self.config.origin
        return SharedQuota(self.name, service, origin, self._observer.processes, snapshot)

    async def aclose(self) -> None:
        """End the link."""
        self._close()
        await self.carrier.aclose(self.name)

    def _close(self) -> None:
        if self._observer is not None:
            self._observer.close()
            self._observer = None


def _name(config: ServiceConfig) -> str:
    return quota_name(config.origin, _api_key(config))


def _api_key(config: ServiceConfig) -> str | None:
    return None if config.key is None else config.key.reveal()
