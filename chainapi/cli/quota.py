"""``chainapi quota``: shared quotas, their units left, and their spenders."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from attrs import asdict, frozen
from rich.console import Group, RenderableType
from rich.text import Text

from chainapi._config import ServiceConfig, Unconfigured, resolve
from chainapi._limits.view import QuotaSnapshot, Spender
from chainapi.cli.common import Flag, Hidden, ServiceOptions
from chainapi.cli.progress import wait_text
from chainapi.cli.tables import cell, table_of
from chainapi.cli.wording import counted
from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.directory import share_directory
from chainapi.share.watch import Observer

if TYPE_CHECKING:
    from chainapi.share.registry import BuiltIn

__all__ = ["SharedQuota", "quota", "record", "tables"]

SERVICES = ServiceOptions()
PERIOD = 1.0  # seconds between two states with --watch

# What to do if no process shares a quota.
NOBODY_HERE = (
    "no process shares a quota in the directory {}: start one with CHAINAPI_SHARE=1 or Session(share=True)."
    " Processes of another environment may use another directory: set CHAINAPI_SHARE_DIR. For processes on"
    " other machines give --share redis://..."
)
NOBODY_THERE = (
    "no process shares a quota there: start one with the same address of the server in CHAINAPI_SHARE or"
    " Session(share=...), and with the same addresses and key of the services as here"
)


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


async def quota(
    *,
    share: str | None = None,
    watch: Flag = False,
    json: Flag = False,
    services: ServiceOptions = SERVICES,
    terminal: Hidden,
) -> None:
    """Show the processes that share a quota, what is left of it, and who spent it.

    The command sends nothing to the services. It shows all quotas that processes of this user share on this
    machine by Session(share=True) or CHAINAPI_SHARE; over Redis the configured services'.

    Args:
        share: Address of the Redis server that connects the processes, instead of CHAINAPI_SHARE.
        watch: Show it again each second, until Ctrl-C.
        json: JSON lines; the default if the output is not a terminal.
        services: Options of the services.
        terminal: The streams of the command.

    """
    if share is not None and urlsplit(share).scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError(
            "--share must be the address of a Redis server, such as redis://localhost:6379/0"
        )
    configs = resolve(**asdict(services), api_key=None)
    table, reported = terminal.interactive and not json, ""
    drawn: RenderableType = ""
    async with AsyncExitStack() as opened:
        states = await opened.enter_async_context(aclosing(_states(terminal.observable(share), configs)))
        if watch and table:
            await opened.enter_async_context(terminal.live(lambda: drawn))
        async for quotas, problem in states:
            if not quotas and not watch:
                raise ShareUnavailableError(problem)
            if watch and table:
                drawn = tables(quotas, terminal.now(), problem)
                continue
            if table:
                terminal.console.print(tables(quotas, terminal.now()))
            for shared in quotas if not table else ():
                terminal.line(record(shared))
            if problem and problem != reported:
                terminal.note(problem)
            reported = problem
            if not watch:
                return


async def _states(
    carrier: BuiltIn, configs: Sequence[ServiceConfig | Unconfigured]
) -> AsyncGenerator[tuple[list[SharedQuota], str], None]:
    """Yield the quotas that processes share, and a problem with others, each second.

    They are all that the carrier lists, the configured ones first, or only these.

    Raises:
        ConfigurationError: no service is configured, and the carrier lists no quotas.

    """
    services = {quota_name(one.origin, _key(one)): one for one in configs if isinstance(one, ServiceConfig)}
    list_names: Callable[[], list[str]] | None = getattr(carrier, "names", None)
    if list_names is None and not services:
        raise ConfigurationError("; ".join(one.reason for one in configs if isinstance(one, Unconfigured)))
    nobody = NOBODY_THERE if list_names is None else NOBODY_HERE.format(share_directory())
    known = set[str]()
    try:
        while True:
            try:
                names = [*services] if list_names is None else list_names()
            except (ConfigurationError, ShareUnavailableError) as error:
                yield [], str(error)
            else:
                known.update(names)
                names.sort(key=lambda name: name not in services)
                states = await asyncio.gather(*(_state(carrier, one, services.get(one)) for one in names))
                quotas = [state for state in states if isinstance(state, SharedQuota)]
                problems = dict.fromkeys(state for state in states if isinstance(state, str))
                yield quotas, "; ".join(problems) or ("" if quotas else nobody)
            await asyncio.sleep(PERIOD)
    finally:
        for name in known:
            await carrier.aclose(name)


async def _state(carrier: BuiltIn, name: str, config: ServiceConfig | None) -> SharedQuota | str | None:
    """Return the state of a quota, None without a host, or a problem in words."""
    secret = b"" if config is None else frame_key(config.origin, _key(config))
    try:
        link = await carrier.observe(name, secret)
        if link is None:
            return None
        observer = Observer(link, f"{socket.gethostname()}:{os.getpid()}", time.time, name)
        try:
            snapshot = await observer.snapshot()
        finally:
            observer.close()
    except (ConfigurationError, ShareUnavailableError) as error:
        return str(error)
    if not observer.processes:  # the host of other quotas knows this one from before
        return None
    service, origin = (None, observer.origin) if config is None else (config.name, config.origin)
    return SharedQuota(name, service, origin, observer.processes, snapshot)


def _key(config: ServiceConfig) -> str | None:
    return None if config.key is None else config.key.reveal()


def record(shared: SharedQuota) -> dict[str, Any]:
    """Return a shared quota as a JSON object; times are seconds from now."""
    state = asdict(shared.snapshot)
    names = ("limit", "remaining", "window", "stopped_for", "reset_in", "waiting", "in_flight", "spenders")
    return {
        "service": shared.service,
        "origin": shared.origin,
        "quota": shared.name,
        "processes": shared.processes,
        "plan": shared.snapshot.plan or None,
        **{name: state[name] for name in names},
    }


def tables(quotas: Sequence[SharedQuota], now: datetime, problem: str = "") -> RenderableType:
    """Return quotas for a terminal: states, tables of spenders, and a problem."""
    parts: list[RenderableType] = [cell(problem)] if problem else []
    for shared in quotas:
        parts += [Text("")] if parts else []
        parts += [cell(f"{shared.service or 'unknown service'}: {_state_text(shared.snapshot, now)}", "bold")]
        place = f"{shared.origin or 'unknown address'}, quota {shared.name[:8]}"
        parts += [cell(f"{place}, shared by {counted(shared.processes, 'process')}", "dim")]
        parts += [_spenders(shared.snapshot.spenders)]
    return Group(*parts)


def _spenders(spenders: Sequence[Spender]) -> RenderableType:
    names = ("process", "tag", "requests", "units", "share", "429s", "in flight", "waiting")
    total = sum(one.units for one in spenders)
    rows = [
        (
            one.process or "several",
            one.tag,
            f"{one.requests:,}",
            f"{one.units:,.0f}",
            f"{one.units / total:.0%}" if total else "",
            *(f"{number:,}" for number in (one.refusals, one.in_flight, one.waiting)),
        )
        for one in spenders
    ]
    return table_of(names, rows, right=6)


def _state_text(snapshot: QuotaSnapshot, now: datetime) -> str:
    """Return the state of a quota in words."""
    left = "not known yet what is left"
    if snapshot.remaining is not None and snapshot.limit is not None:
        left = f"{snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left ({snapshot.policy})"
    plan = f"plan {snapshot.plan}" if snapshot.plan else ""
    counts = f"{snapshot.waiting:,} waiting", f"{snapshot.in_flight:,} in flight"
    return ", ".join(filter(None, (left, plan, *counts, wait_text(snapshot, now))))
