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
BODIES = 12  # of a resource, and pages with one wrong row


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
    """Return the trace of a route."""
    trace = Trace()
    answers = Answers(trace)
    session = Session(
        metrics_base_url="https://metrics.test",
        data_base_url="https://data.test",
        api_key="key-of-the-judge",
        transport=answers,
        max_attempts=1,
    )
    call, route = attrgetter(name)(session), ROUTES[name]
    required = arguments(route["args"])
    every = required | arguments(route.get("more", {}))
    async with session:
        with warnings.catch_warnings(action="ignore"):
            for given in (every, required):
                await _note(trace, call(**given) if "one" in route else call(**given).collect())
            for seed in seeds:
                await (_single if "one" in route else _list)(f"{name} {seed}", answers, call, required)
    return trace


async def _single(seed: str, answers: Answers, call: Any, given: dict[str, Any]) -> None:
    route = ROUTES[seed.split()[0]]
    maker = Maker(seed, missing=0.3)
    for number in range(BODIES):
        body = {} if route["one"] is None else maker.value(route["one"])
        for _ in range(number % 3):
            spoil(maker.draw, body)
        answers.bodies.append(encode(body))
        await _note(answers.trace, call(**given))


async def _list(seed: str, answers: Answers, call: Any, given: dict[str, Any]) -> None:
    route = ROUTES[seed.split()[0]]
    maker, items = Maker(seed, missing=0.3), route.get("items", "chains")

    def page(rows: int, wrong: int) -> dict[str, Any]:
        body = {name: maker.value(kind) for name, kind in route.get("extra", {}).items()}
        body[items] = [maker.value(route["list"]) for _ in range(rows)]
        for _ in range(wrong):
            row = maker.draw.randrange(rows)
            if isinstance(body[items][row], dict):
                spoil(maker.draw, body[items][row])
            else:
                body[items][row] = odd(maker.draw)
        return body

    answers.bodies.append(encode(page(ROWS, ROWS)))
    await _note(answers.trace, call(**given, on_invalid="raw").collect())
    for number in range(BODIES):
        body = page(3, number % 2)
        if number % 4 == 3:
            spoil(maker.draw, body)
        answers.bodies.append(encode(body))
        await _note(answers.trace, _first_page(call(**given)))


async def _first_page(stream: Any) -> list[Any]:
    page = await anext(stream)
    return [*page.items, *page.extra.values(), page.next_page_token]


async def _note(trace: Trace, work: Any) -> None:
    """Note the rows of a call by both kinds of names, or the error."""
    try:
        found = await work
    except ChainAPIError as error:
        return trace.add("error", shown_error(error))
    except Exception as error:  # noqa: BLE001 - a result like any other
        return trace.add("raised", type(error).__name__)
    for row in found if isinstance(found, list) else [found]:
        trace.add("row", row.to_dict() if hasattr(row, "to_dict") else row, shown_row(row))
    return None
