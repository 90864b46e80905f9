"""``chainapi estimate``: cost of a list, before anything is sent."""

from __future__ import annotations

import re
from math import ceil

from attrs import asdict
from cyclopts.types import PositiveInt

from chainapi._api.endpoint import Endpoint
from chainapi._api.routes import units_of
from chainapi._config import plans
from chainapi._limits import view
from chainapi._limits.view import Estimate, Limit, plan_limits
from chainapi._text import quoted
from chainapi.cli.common import Flag, Hidden, Many, Plan, refuse
from chainapi.cli.names import RouteName, Value, is_path, read_values, resolve
from chainapi.cli.tables import table_of
from chainapi.core.duration import DAY, HOUR, MINUTE
from chainapi.errors import ConfigurationError

__all__ = ["estimate", "read_limit"]

_LIMIT = re.compile(r"([0-9][0-9_]*)/(?=[0-9a-z])([0-9.]*) *(|s|sec|second|min|minute|h|hour|d|day)s?")
_SECONDS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY}  # by the first letter of a unit


def estimate(
    route: RouteName,
    /,
    *values: Value,
    rows: PositiveInt,
    page_size: PositiveInt | None = None,
    plan: Plan | None = None,
    limit: Many = None,
    sources: PositiveInt = 1,
    json: Flag = False,
    terminal: Hidden,
) -> None:
    """Estimate the requests, units and minutes that rows of a route cost.

    The output also has the share of a day's limit. The command sends nothing and needs no key.

    Args:
        route: The name of a route, such as data.evm.blocks.
        values: Values of the parameters in its path; optional, and checked.
        rows: Rows of each source.
        page_size: Rows per page; by default the maximum of the route.
        plan: Published plan, instead of CHAINAPI_PLAN.
        limit: A further limit as AMOUNT/TIME, such as 6000/minute or 100/60s; may be repeated.
        sources: Number of lists to read, such as chains or addresses.
        json: JSON; the default if the output is not a terminal.
        terminal: The streams of the command.

    """
    if is_path(route):
        raise ConfigurationError(
            f"the cost of {quoted(route)} is not known: give the name of a route, see `chainapi routes`"
        )
    endpoint = resolve(route)
    read_values(route, values, whole=False)
    service = route.partition(".")[0]
    named = plans(plan).get(service)
    published = () if named is None else plan_limits(service, named)
    limits = [*published, *map(read_limit, limit or [])]
    size = _page_size(route, endpoint, page_size)
    price = units_of(route, endpoint.route)
    # The last page of each source is not shared with the next source.
    rows_sent = sources * ceil(rows / size) * size
    cost = view.estimate(rows_sent, size, price, limits)
    walk = {"route": route, "rows": rows, "sources": sources, "page_size": size}
    record = {**walk, **asdict(cost), "plan": named}
    if json or not terminal.interactive:
        terminal.line(record)
        return
    shown = _shown(cost, endpoint.route.weight)
    if published:
        minute, day = published
        shown["plan"] = f"{named}: {minute.amount:,.0f} units a minute, {day.amount:,.0f} a day"
    terminal.console.print(table_of(("", ""), shown.items()))


def _page_size(name: str, endpoint: Endpoint, given: int | None) -> int:
    """Return the rows of a page."""
    if endpoint.single:
        refuse(f"{name} returns a single resource", page_size=given)
        return 1
    known = endpoint.page_size
    size: int | None = known.checked(given or known.default) if known else given
    if size is None:
        raise ConfigurationError(f"the page size of {name} is not known: give --page-size")
    return size


def _shown(cost: Estimate, weight: str | None) -> dict[str, str]:
    units, minutes, share = cost.units, cost.minutes, cost.day_share
    return {
        "requests": f"{cost.requests:,}",
        "units": "unknown: no weight is published" if units is None else f"{units:,} (a request is {weight})",
        "minutes": "unknown" if minutes is None else f"{minutes:,.1f} at least",
        "share of a day": "unknown: no limit of a day or more" if share is None else f"{share:.1%}",
    }


def read_limit(text: str) -> Limit:
    """Return a limit from a string such as ``6000/minute`` or ``100/60s``.

    Raises:
        ConfigurationError: the text has another form.

    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"--limit {text!r} must be AMOUNT/TIME, such as 6000/minute or 100/60s")
    try:
        return Limit(float(match[1]), per=float(match[2] or 1) * _SECONDS[match[3][:1] or "s"], units=True)
    except ValueError as error:  # too many dots or digits, or nothing above 0
        raise ConfigurationError(f"--limit {text!r}: {error}") from None
