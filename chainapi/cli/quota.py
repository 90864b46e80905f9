"""``chainapi quota``: shared quotas, their units left, and their spenders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from attrs import asdict
from rich.console import Group, RenderableType
from rich.text import Text

from chainapi._config import resolve
from chainapi._limits.view import QuotaSnapshot, Spender
from chainapi.cli.common import Flag, Hidden, ServiceOptions
from chainapi.cli.places import Places, SharedQuota
from chainapi.cli.progress import pause, waits
from chainapi.cli.tables import cell, table_of
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted
from chainapi.errors import ConfigurationError, ShareUnavailableError

__all__ = ["quota", "record", "tables"]

SERVICES = ServiceOptions()
PERIOD = 1.0  # seconds between two states with --watch


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
    share = _checked(share)
    places = Places(
        resolve(**asdict(services), api_key=None),
        terminal.observable(share),
    )
    as_json = json or not terminal.interactive
    try:
        if watch and not as_json:
            await _draw(places, terminal)
        await _print(places, terminal, as_json=as_json, again=watch)
    finally:
        await places.aclose()


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


def tables(quotas: Sequence[SharedQuota], problem: str = "") -> RenderableType:
    """Return quotas for a terminal: states, tables of spenders, and a problem."""
    parts: list[RenderableType] = [cell(problem)] if problem else []
    for shared in quotas:
        parts += [Text(""), *_table(shared)] if parts else _table(shared)
    return Group(*parts)


def _table(shared: SharedQuota) -> Iterator[RenderableType]:
    snapshot = shared.snapshot
    yield cell(f"{shared.service or 'unknown service'}: {_state(snapshot)}", "bold")
    place = f"{shared.origin or 'unknown address'}, quota {shared.name[:8]}"
    yield cell(f"{place}, shared by {counted(shared.processes, 'process')}", "dim")
    names = ("process", "tag", "requests", "units", "share", "429s", "in flight", "waiting")
    total = sum(one.units for one in snapshot.spenders)
    yield table_of(names, [_cells(one, total) for one in snapshot.spenders], right=6)


def _cells(one: Spender, total: float) -> Sequence[str]:
    share = f"{one.units / total:.0%}" if total else ""
    counts = (f"{number:,}" for number in (one.refusals, one.in_flight, one.waiting))
    return one.process or "several", one.tag, f"{one.requests:,}", f"{one.units:,.0f}", share, *counts


def _state(snapshot: QuotaSnapshot) -> str:
    """Return the state of a quota in words."""
    left = "not known yet what is left"
    if snapshot.remaining is not None and snapshot.limit is not None:
        left = f"{snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left ({snapshot.policy})"
    parts = [
        left,
        *([f"plan {snapshot.plan}"] if snapshot.plan else []),
        f"{snapshot.waiting:,} waiting",
        f"{snapshot.in_flight:,} in flight",
    ]
    return ", ".join([*parts, *([waits(snapshot)] if pause(snapshot) else [])])


async def _print(places: Places, terminal: Terminal, *, as_json: bool, again: bool) -> None:
    """Print the state, once or each second; report a problem once."""
    reported = ""
    while True:
        quotas, problem = await places.read()
        if not quotas and not again:
            raise ShareUnavailableError(problem)
        if as_json:
            for shared in quotas:
                terminal.line(record(shared))
        else:
            terminal.console.print(tables(quotas))
        if problem and problem != reported:
            terminal.report(problem)
        reported = problem
        if not again:
            return
        await asyncio.sleep(PERIOD)


async def _draw(places: Places, terminal: Terminal) -> None:
    """Draw the state each second."""
    quotas, problem = await places.read()
    async with terminal.live(lambda: tables(quotas, problem)):
        while True:
            await asyncio.sleep(PERIOD)
            quotas, problem = await places.read()


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
