"""Golden rows: what each route makes of bodies that are right, odd or wrong, and what it sends."""

from __future__ import annotations

import random
import warnings
from collections import deque
from operator import attrgetter
from typing import Any

from chainapi import Session
from chainapi.errors import ChainAPIError
from chainapi.transport import Request, Response
from tests.judge.bodies import ROUTES, Maker, arguments, encode, odd
from tests.judge.trace import Trace, shown_error, shown_row

__all__ = ["examine"]

ROWS = 24  # of a page with invalid rows among them
BODIES = 13  # of a resource, and pages


class Answers:
    """Transport that gives prepared bodies, and notes the requests."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.bodies: deque[bytes] = deque()

    async def send(self, request: Request) -> Response:
        """Return the next body."""
        secret = [name for name in request.headers if name.endswith("api-key")]
        self.trace.add("sent", request.method, request.url, str(request.body), secret)
        return Response(200, {}, self.bodies.popleft() if self.bodies else b"{}")

    async def aclose(self) -> None:
        """Close nothing."""


def spoil(draw: random.Random, value: Any) -> None:
    """Change one place of a JSON value: an odd value, one more field, or one less."""
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        inner = [place for place in places if isinstance(value[place], dict | list) and value[place]]
        if not inner or draw.random() < 0.5:
            break
        value = value[draw.choice(inner)]
    how = draw.random()
    if isinstance(value, dict) and (how < 0.2 or not places):
        value[draw.choice(("novel", "novelField", "nextPageToken", "class", "é", ""))] = odd(draw)
    elif isinstance(value, dict) and how < 0.35:
        del value[draw.choice(places)]
    else:
        value[draw.choice(places)] = odd(draw)


async def examine(name: str, seeds: range) -> Trace:
    """Return the trace of a route: of its bodies, after a call with all parameters."""
    trace, route = Trace(), ROUTES[name]
    answers = Answers(trace)
    addresses: Any = {"metrics_base_url": "https://metrics.test", "data_base_url": "https://data.test"}
    async with Session(**addresses, api_key="key-of-the-judge", transport=answers, max_attempts=1) as session:
        call, given = attrgetter(name)(session), arguments(route["args"])
        with warnings.catch_warnings(action="ignore"):
            await _note(trace, call(**given, **arguments(route.get("more", {}))))
            for seed in seeds:
                maker = Maker(f"{name} {seed}", missing=0.3)
                for number in range(BODIES):
                    body, options = (_resource if "one" in route else _page)(maker, route, number)
                    answers.bodies.append(encode(body))
                    await _note(trace, call(**given, **options))
    return trace


def _resource(maker: Maker, route: Any, number: int) -> tuple[Any, dict[str, Any]]:
    """Return a body of a single resource with none, one or two odd places."""
    body = maker.value(route["one"]) if route["one"] else {}
    for _ in range(number % 3):
        spoil(maker.draw, body)
    return body, {}


def _page(maker: Maker, route: Any, number: int) -> tuple[Any, dict[str, Any]]:
    """Return a page with many odd rows, or one or no such row among few, and how to read it."""
    items, count = route.get("items", "chains"), 3 if number else ROWS
    body = {name: maker.value(kind) for name, kind in route.get("extra", {}).items()}
    rows = body[items] = [maker.value(route["list"]) for _ in range(count)]
    for _ in range(number % 2 if number else ROWS):
        row = maker.draw.randrange(count)
        if isinstance(rows[row], dict):
            spoil(maker.draw, rows[row])
        else:
            rows[row] = odd(maker.draw)
    if number % 4 == 3:
        spoil(maker.draw, body)
    return body, {"on_invalid": "raise" if number else "raw"}


async def _note(trace: Trace, called: Any) -> None:
    """Note what a call gives, by both kinds of names, or its error."""
    try:
        if not hasattr(called, "__anext__"):
            return trace.add("row", *_both(await called))
        page = await anext(called)
    except ChainAPIError as error:
        return trace.add("error", shown_error(error))
    except Exception as error:  # noqa: BLE001 - a result like any other
        return trace.add("raised", type(error).__name__)
    for value in (*page.items, *page.extra.values(), page.next_page_token):
        trace.add("row", *_both(value))
    return None


def _both(value: Any) -> tuple[Any, Any]:
    return value.to_dict() if hasattr(value, "to_dict") else value, shown_row(value)
