"""``chainapi quota``: shared quotas, their units left, and their spenders."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from attrs import asdict, define, field, frozen
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chainapi.cli.common import Flag, Hidden
from chainapi.cli.progress import pause, waits
from chainapi.cli.tables import cell
from chainapi.cli.terminal import Terminal
from chainapi.client.config import ServiceConfig, Unconfigured, resolve
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.limits.spenders import Spender
from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.watch import Observable, Observer

__all__ = ["SharedQuota", "quota", "record", "tables"]

PERIOD = 1.0  # seconds between two states with --watch
NOBODY = (
    "no process shares a quota here: start one with Session(share=True) or the variable CHAINAPI_SHARE=1, by"
    " the same user, with the same addresses and key. For processes on other machines give --share redis://..."
)


@frozen
class SharedQuota:
    """Quota of a service that processes share."""

    service: str
    origin: str
    processes: int
    snapshot: QuotaSnapshot


async def quota(
    *,
    share: str | None = None,
    watch: Flag = False,
    json: Flag = False,
    metrics_base_url: str | None = None,
    data_base_url: str | None = None,
    terminal: Hidden,
) -> None:
    """Show the processes that share a quota, what is left of it, and who spent it.

    The command sends nothing to the services. Processes share a quota with
    Session(share=True) or the variable CHAINAPI_SHARE; tag= on their sessions
    and calls names what they spend it on.

    Args:
        share: Address of the Redis server that connects the processes, instead of CHAINAPI_SHARE; by
            default the processes of this user on this machine.
        watch: Show it again each second, until Ctrl-C.
        json: JSON lines instead of a table; the default if the output is not a terminal.
        metrics_base_url: Address of the Metrics API, instead of CHAINAPI_METRICS_BASE_URL.
        data_base_url: Address of the Data API, instead of CHAINAPI_DATA_BASE_URL.
        terminal: The streams of the command.

    """
    share = _checked(share)
    places = [
        _Place(config, _observable(terminal, share, config))
        for config in _services(metrics_base_url, data_base_url)
    ]
    as_json = json or not terminal.interactive
    try:
        if watch:
            await (_lines(places, terminal) if as_json else _screen(places, terminal))
        else:
            await _once(places, terminal, as_json=as_json)
    finally:
        for place in places:
            await place.aclose()


def record(shared: SharedQuota) -> dict[str, Any]:
    """Return a shared quota as a JSON object; times are seconds from now."""
    snapshot = shared.snapshot
    return {
        "service": shared.service,
        "origin": shared.origin,
        "processes": shared.processes,
        "limit": snapshot.limit,
        "remaining": snapshot.remaining,
        "window": snapshot.window,
        "stopped_for": snapshot.stopped_for,
        "reset_in": snapshot.reset_in,
        "waiting": snapshot.waiting,
        "in_flight": snapshot.in_flight,
        "spenders": [asdict(spender) for spender in snapshot.spenders],
    }


def tables(quotas: Sequence[SharedQuota]) -> RenderableType:
    """Return quotas for a terminal: the state of each, and a table of its spenders."""
    parts: list[RenderableType] = []
    for shared in quotas:
        parts += [Text(""), *_table(shared)] if parts else _table(shared)
    return Group(*parts)


def _table(shared: SharedQuota) -> Iterator[RenderableType]:
    snapshot = shared.snapshot
    yield cell(f"{shared.service}: {_state(snapshot)}", "bold")
    yield cell(f"{shared.origin}, shared by {_processes(shared.processes)}", "dim")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("process", "tag"):
        table.add_column(name, overflow="fold")
    for name in ("requests", "units", "share", "429s", "in flight", "waiting"):
        table.add_column(name, justify="right", no_wrap=True)
    total = sum(one.units for one in snapshot.spenders)
    for spender in snapshot.spenders:
        table.add_row(*_cells(spender, total))
    yield table


def _cells(one: Spender, total: float) -> Iterator[Text]:
    yield cell(one.process or "several")
    yield cell(one.tag)
    numbers = (one.refusals, one.in_flight, one.waiting)
    share = f"{one.units / total:.0%}" if total else ""
    for text in (f"{one.requests:,}", f"{one.units:,.0f}", share, *(f"{number:,}" for number in numbers)):
        yield cell(text)


def _state(snapshot: QuotaSnapshot) -> str:
    """Return the state of a quota in words."""
    left = "not known yet what is left"
    if snapshot.remaining is not None and snapshot.limit is not None:
        left = f"{snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left ({snapshot.policy})"
    parts = [left, f"{snapshot.waiting:,} waiting", f"{snapshot.in_flight:,} in flight"]
    return ", ".join([*parts, *([waits(snapshot)] if pause(snapshot) else [])])


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number:,} processes"


# --- the state, once and again ---------------------------------------------------------------


async def _once(places: Sequence[_Place], terminal: Terminal, *, as_json: bool) -> None:
    quotas = await _read(places)
    if not quotas:
        raise ShareUnavailableError(NOBODY)
    if as_json:
        for shared in quotas:
            terminal.line(record(shared))
    else:
        terminal.console.print(tables(quotas))


async def _lines(places: Sequence[_Place], terminal: Terminal) -> None:
    """Write the state each second, as lines of JSON; report once why none can be read."""
    reported = ""
    while True:
        quotas, problem = await _read_again(places)
        for shared in quotas:
            terminal.line(record(shared))
        if problem and problem != reported:
            terminal.report(problem)
        reported = problem
        await asyncio.sleep(PERIOD)


async def _screen(places: Sequence[_Place], terminal: Terminal) -> None:
    """Draw the state each second."""
    quotas, problem = await _read_again(places)
    async with terminal.live(lambda: cell(problem) if problem else tables(quotas)):
        while True:
            await asyncio.sleep(PERIOD)
            quotas, problem = await _read_again(places)


async def _read(places: Sequence[_Place]) -> list[SharedQuota]:
    """Return the quotas that processes share now."""
    return [shared for place in places if (shared := await place.read()) is not None]


async def _read_again(places: Sequence[_Place]) -> tuple[list[SharedQuota], str]:
    """Return the quotas that processes share now, else the reason why there are none."""
    try:
        quotas = await _read(places)
    except ShareUnavailableError as error:
        return [], str(error)
    return quotas, "" if quotas else NOBODY


@define(eq=False)
class _Place:
    """Quota of a service where processes may share it."""

    config: ServiceConfig
    carrier: Observable
    _observer: Observer | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Name of the quota."""
        return quota_name(self.config.origin, _api_key(self.config))

    async def read(self) -> SharedQuota | None:
        """Return the state of the quota; None if no process hosts it.

        Raises:
            ShareUnavailableError: the host refused this process, or does not answer, or just ended.

        """
        if self._observer is None:
            link = await self.carrier.observe(self.name)
            if link is None:
                return None
            self._observer = Observer(link, f"{socket.gethostname()}:{os.getpid()}", time.time)
        try:
            snapshot = await self._observer.snapshot()
        except ShareUnavailableError:
            self._observer.close()
            self._observer = None
            raise
        return SharedQuota(self.config.name, self.config.origin, self._observer.processes, snapshot)

    async def aclose(self) -> None:
        """End the link."""
        if self._observer is not None:
            self._observer.close()
        await self.carrier.aclose(self.name)


def _checked(share: str | None) -> str | None:
    """Return the address of --share.

    Raises:
        ConfigurationError: it is no address of a Redis server.

    """
    if share is not None and urlsplit(share).scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError(
            "--share must be the address of a Redis server, such as redis://localhost:6379/0"
        )
    return share


def _observable(terminal: Terminal, share: str | None, config: ServiceConfig) -> Observable:
    return terminal.observable(share, frame_key(config.origin, _api_key(config)))


def _api_key(config: ServiceConfig) -> str | None:
    return None if config.key is None else config.key.reveal()


def _services(metrics_base_url: str | None, data_base_url: str | None) -> list[ServiceConfig]:
    """Return the configured services.

    Raises:
        ConfigurationError: no service is configured.

    """
    configs = resolve(None, metrics_base_url=metrics_base_url, data_base_url=data_base_url, api_key=None)
    found = [config for config in configs if isinstance(config, ServiceConfig)]
    if not found:
        raise ConfigurationError("; ".join(one.reason for one in configs if isinstance(one, Unconfigured)))
    return found
