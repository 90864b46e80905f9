"""Services that the tests of sessions share, and questions to the loop of a test."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define, field

from chainapi.transport import Request, Response

__all__ = ["Answer", "Listed", "Script", "alone", "settle", "time"]

Answer = Response | BaseException | Callable[[Request], Response] | None


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def alone() -> bool:
    """Return whether no task but the test's is left."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def settle(rounds: int = 10) -> None:
    """Let callbacks, finalizers and cancelled tasks run, at almost no time."""
    for _ in range(rounds):
        gc.collect()
        await asyncio.sleep(0)


class Script:
    """Transport that gives these answers in turn, the last one again and again.

    An exception is raised, a function makes the answer of the request, and None never comes. An answer can
    stand behind its own number of seconds.

    Attributes:
        seconds: until an answer that has no number of its own.
        requests: requests that were sent.
        times: times at which they were sent.
        flying: how many are under way.
        most: how many were under way at one time.
        closed: how often it was closed.

    """

    def __init__(self, *answers: Answer | tuple[float, Answer], seconds: float = 0.0) -> None:
        self.answers: list[Answer | tuple[float, Answer]] = [*answers]
        self.seconds = seconds
        self.requests, self.times = list[Request](), list[float]()
        self.flying = self.most = self.closed = 0

    async def send(self, request: Request) -> Response:
        """Give the next answer."""
        self.requests.append(request)
        self.times.append(time())
        entry = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        seconds, answer = entry if isinstance(entry, tuple) else (self.seconds, entry)
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(1e9 if answer is None else seconds)
        finally:
            self.flying -= 1
        if isinstance(answer, BaseException):
            raise answer
        assert answer is not None
        return answer if isinstance(answer, Response) else answer(request)

    async def aclose(self) -> None:
        """Count the calls."""
        self.closed += 1

    @property
    def waits(self) -> list[float]:
        """Seconds between two requests."""
        return [round(after - before, 2) for before, after in zip(self.times, self.times[1:], strict=False)]


@define(eq=False)
class Listed:
    """Service of one list in pages of four rows, whose rows and tokens change on request.

    Attributes:
        rows: rows that it holds.
        size: rows of a page.
        end: name of the parameter that bounds the first field of the rows.
        life: tokens of another life are refused.
        shut: place of a page that is refused whatever its token.
        queries: parameters of each request.

    """

    rows: list[dict[str, Any]]
    size: int = 4
    end: str = "end"
    life: int = 0
    shut: int | None = None
    queries: list[dict[str, str]] = field(factory=list[dict[str, str]])

    async def send(self, request: Request) -> Response:
        """Answer for the page that the token opens."""
        query = dict(parse_qsl(urlsplit(request.url).query))
        self.queries.append(query)
        life, _, at = query.get("pageToken", f"{self.life}/0").partition("/")
        if life != str(self.life) or int(at) == self.shut:
            said = b"expired" if life != str(self.life) else b"under maintenance until 17:00"
            return Response(400, {}, b'{"message": "%b"}' % said)
        most = float(query.get(self.end, "inf"))
        held = [row for row in self.rows if self.end not in query or next(iter(row.values())) <= most]
        behind = int(at) + self.size
        token = f"{self.life}/{behind}" if behind < len(held) else None
        body = {"rows": held[int(at) : behind], "nextPageToken": token}
        return Response(200, {}, json.dumps(body).encode())

    async def aclose(self) -> None:
        """Close nothing."""
