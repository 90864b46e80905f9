"""``chainapi estimate``: what a walk will take, said before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Annotated

from attrs import asdict
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from chainapi.api.endpoint import Endpoint
from chainapi.cli.common import Flag, Hidden, Many, Rows
from chainapi.cli.names import RouteName, Value, read_values, resolve
from chainapi.core.duration import DAY, HOUR, MINUTE
from chainapi.core.limits import estimate as arithmetic
from chainapi.core.limits.estimate import Estimate
from chainapi.core.limits.quota import Limit
from chainapi.errors import ConfigurationError

__all__ = ["estimate", "read_limit"]

_SECONDS: Mapping[str, float] = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("min", "minute"), MINUTE),
    **dict.fromkeys(("h", "hour"), HOUR),
    **dict.fromkeys(("d", "day"), DAY),
}
_LIMIT = re.compile(r"([0-9][0-9_]*)/([0-9.]*) *([a-z]*)")


def estimate(
    route: RouteName,
    /,
    *values: Value,
    rows: Rows,
    page_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    limit: Many = None,
    sources: Rows = 1,
    json: Flag = False,
    terminal: Hidden,
) -> None:
    """Say what rows of a route will take: requests, compute units, minutes, a share of the day.

    Nothing is sent, and no key is needed: what a request costs is in the record of the route.

    Args:
        route: A name, such as data.evm.blocks.
        values: What stands in its path; not needed here, and checked where it is given.
        rows: Rows of each source.
        page_size: Rows a page; by default as many as the route gives at most.
        limit: A limit of the plan as AMOUNT/TIME, such as 6000/minute or 100/60s; may be repeated.
        sources: How many such lists are walked: chains, addresses.
        json: JSON instead of a table; always so where the output is no terminal.
        terminal: Where the command writes.

    """
    declared = resolve(route)
    read_values(route, values, whole=False)
    limits = [read_limit(text) for text in limit or []]
    size = _page_size(route, declared, page_size)
    price = declared.route.units
    # The last page of each source is a page of its own.
    asked = sources * ceil(rows / size) * size
    told = arithmetic.estimate(asked, size, 1 if price is None else price, limits)
    record = {"route": route, "rows": rows, "sources": sources, "page_size": size, **asdict(told)}
    if json or not terminal.interactive:
        terminal.line(record)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _shown(told, declared.route.weight).items():
        table.add_row(name, value)
    terminal.console.print(table)


def _page_size(name: str, declared: Endpoint, given: int | None) -> int:
    """Return how many rows a request gives."""
    if declared.single:
        if given is not None:
            raise ConfigurationError(f"--page-size has no place here: {name} gives a single resource")
        return 1
    known = declared.page_size
    size: int | None = known.checked(given or known.default) if known else given
    if size is None:
        raise ConfigurationError(f"{name} does not say how many rows a page has: give --page-size")
    return size


def _shown(told: Estimate, weight: str | None) -> dict[str, str]:
    each = f"a request is {weight}" if weight else "its weight is not known: one a request"
    share = told.day_share
    return {
        "requests": f"{told.requests:,}",
        "units": f"{told.units:,} ({each})",
        "minutes": f"{told.minutes:,.1f} at least",
        "share of a day": "no limit of a day or more is given" if share is None else f"{share:.1%}",
    }


def read_limit(text: str) -> Limit:
    """Read a limit such as ``6000/minute`` or ``100/60s``.

    Raises:
        ConfigurationError: the text is none.

    """
    match = _LIMIT.fullmatch(text)
    unit = match and _SECONDS.get(match[3].removesuffix("s") or "s")
    if not match or not unit or not (match[2] or match[3]):
        raise ConfigurationError(f"--limit {text!r} must be AMOUNT/TIME, such as 6000/minute or 100/60s")
    try:
        return Limit(float(match[1]), per=float(match[2] or 1) * unit)
    except ValueError as error:  # too many dots or digits, or nothing above 0
        raise ConfigurationError(f"--limit {text!r}: {error}") from None
