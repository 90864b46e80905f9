"""Real-world services: forms of headers, missing fields, faults, refused routes.

A `Front` stands before a server of `tests.limits.servers`. It writes real header fields, which the client
reads with its own reader; nothing of the client's arithmetic is shared.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil, inf

from attrs import define, field, frozen

from chainapi import Limit
from chainapi.errors import QuotaWaitError
from chainapi.testing import run as in_virtual_time
from tests.limits.runs import finish
from tests.limits.seam import Ask, Gate, Permit, Verdict, read_limits
from tests.limits.servers import EPSILON, Server, Stacked

__all__ = ["OVERDUE", "Client", "Errand", "Front", "Outcome", "Scene", "ideal", "run"]

OVERDUE = 1.1  # seconds: a call about to get its turn is not refused
BEGAN = 1_700_000_000.0  # Unix time at time 0 of the loop


@frozen
class Errand:
    """Request of a job: its route, its real cost, its documented cost, and its priority."""

    route: str = "/a"
    cost: float = 1.0
    prior: float | None = None
    priority: int = 0


@frozen
class Front:
    """Front of the counting server.

    Attributes:
        form: of the fields: d6 (separate, the reset only on a refusal), d7 (combined, with a reset on every
            answer), d8 (named policies), x (X- fields, the reset as Unix time), bare (a retry-after only),
            date (a retry-after as a date only), none.
        faults: share of the requests that are answered with 503; a counted one has met the limiter.
        counted: whether a request that fails was counted.
        retry_after: whether a 503 has a retry-after of one second.
        torn: share of the responses with a missing field, or a limit of 0.
        silent: share of the requests that get a 404 without fields, and are not counted.
        closed: routes that are always refused, with the quota that is left.
        closed_for: seconds of the retry-after of such a refusal.
        waitless: whether refusals have no wait.
        inner: fields of a refusal by the second of two limiters in turn: its "own", those of the "outer" one,
            or "none"; a retry-after is beside them.

    """

    form: str = "d6"
    faults: float = 0.0
    counted: bool = True
    retry_after: bool = False
    torn: float = 0.0
    silent: float = 0.0
    closed: frozenset[str] = frozenset()
    closed_for: float = 20.0
    waitless: bool = False
    inner: str = "own"


@frozen
class Scene:
    """Job, its service and the number of callers; others `used` units before it."""

    server: Callable[[], Server]
    errands: Sequence[Errand]
    front: Front = Front()
    callers: int = 100
    used: float = 0.0
    used_at: float = 0.0
    in_flight: int = 100
    trip: float = 0.05
    seed: int = 0
    limits: tuple[Limit, ...] = ()
    max_wait: float | None = None
    probe: bool = True
    spread: float = 0.0  # seconds over which the callers begin


@define
class Outcome:
    """Outcome of a job."""

    seconds: float = 0.0
    done: int = 0
    refusals: int = 0
    storm: int = 0  # most refusals at one instant, closed routes apart
    in_stops: int = 0
    hung: bool = False
    first_burst: int = 0  # refusals within a second of the first one
    overdue: int = 0  # requests that left later than `max_wait` allows
    attempts: dict[int, tuple[float, int]] = field(factory=dict[int, tuple[float, int]])  # time, number
    begun: dict[int, float] = field(factory=dict[int, float])
    finished: dict[int, float] = field(factory=dict[int, float])
    turned_away: dict[int, tuple[float, float]] = field(factory=dict[int, tuple[float, float]])
    given_up: int = 0
    instants: Counter[float] = field(factory=Counter[float])
    gate: Gate | None = None


class _GaveUpError(Exception):
    """A session gives up on a request whose route refuses it again and again."""


class _Service:
    """Answers the requests of one scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.front, self.rng = scene, scene.front, random.Random(scene.seed)
        self.server = scene.server()
        self.begun = False

    def answer(self, now: float, errand: Errand) -> tuple[int, dict[str, str]]:
        """Return status and headers."""
        front, rng = self.front, self.rng
        if not self.begun:
            self.begun = True
            for _ in range(round(self.scene.used)):
                self.server.take(now - self.scene.used_at, 1.0)
        if errand.route in front.closed:
            wait = None if front.waitless else front.closed_for
            return 429, self.fields(now, wait)
        if rng.random() < front.silent:
            return 404, {}
        if rng.random() < front.faults:
            if front.counted and self.server.earliest(now, errand.cost) <= now + EPSILON:
                self.server.take(now, errand.cost)
            return 503, {"retry-after": "1"} if front.retry_after else {}
        at = self.server.earliest(now, errand.cost)
        if at > now + EPSILON:
            return 429, self.refusal(now, None if front.waitless else at - now, errand.cost)
        self.server.take(now, errand.cost)
        fields = self.fields(now, None)
        if rng.random() < front.torn:
            self.tear(fields)
        return 200, fields

    def tear(self, fields: dict[str, str]) -> None:
        """Remove a field, or replace its value by nonsense."""
        names = sorted(fields)
        if not names:
            return
        name = self.rng.choice(names)
        if name.endswith("-limit") and self.rng.random() < 0.5:
            fields[name] = "0"
        elif self.rng.random() < 0.3:
            fields.clear()
        else:
            del fields[name]

    def refusal(self, now: float, wait: float | None, cost: float) -> dict[str, str]:
        """Return the fields of a refusal; an unannounced second limiter has none."""
        server, inner = self.server, self.front.inner
        if not isinstance(server, Stacked) or not server.in_turn or inner == "own":
            return self.fields(now, wait, cost)
        if server.second.earliest(now, cost) <= now + EPSILON:
            return self.fields(now, wait, cost)
        found = self.fields(now, None, cost) if inner == "outer" else {}
        return found if wait is None else found | {"retry-after": str(max(1, ceil(wait - EPSILON)))}

    def shown(self, now: float, wait: float | None) -> Server:
        """Return the limiter that writes the fields: the second of two if it refuses."""
        server = self.server
        if not isinstance(server, Stacked) or not server.in_turn:
            return server
        inner = wait is not None and server.second.earliest(now, 1.0) > now + EPSILON
        return server.second if inner else server.first

    def fields(self, now: float, wait: float | None, cost: float = 1.0) -> dict[str, str]:
        """Return the fields of an answer in the form of this service."""
        server, form = self.shown(now, wait), self.front.form
        limit, left = f"{server.limit:.0f}", f"{server.remaining(now):.0f}"
        whole = server.earliest(now, min(server.limit, getattr(server, "size", server.limit)))
        exact = max(0.5, wait if wait is not None else whole - now)
        reset = ceil(exact - EPSILON)
        window = f"{server.window:g}"
        seconds = None if wait is None else str(max(1, ceil(wait - EPSILON)))
        found: dict[str, str] = {}
        if form == "d6":
            found = {
                "ratelimit-policy": f"{limit};w={window}",
                "ratelimit-limit": limit,
                "ratelimit-remaining": left,
            }
            if seconds is not None:
                found["ratelimit-reset"] = seconds
        elif form == "d7":
            found = {
                "ratelimit-policy": f"{limit};w={window}",
                "ratelimit": f"limit={limit}, remaining={left}, reset={reset}",
            }
        elif form == "d8":
            found = {
                "ratelimit-policy": f'"default";q={limit};w={window}',
                "ratelimit": f'"default";r={left};t={reset}',
            }
        elif form == "x":
            found = {
                "x-ratelimit-limit": limit,
                "x-ratelimit-remaining": left,
                "x-ratelimit-reset": str(ceil(BEGAN + now + exact - EPSILON)),
            }
        if seconds is not None and form == "date":
            moment = datetime.fromtimestamp(ceil(BEGAN + now + (wait or 0.0) - EPSILON), UTC)
            found["retry-after"] = moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
        elif seconds is not None and form != "none":
            found["retry-after"] = seconds
        return found


def ideal(scene: Scene) -> float:
    """Return the seconds an all-knowing client needs for the requests that can pass."""
    service = _Service(scene)
    server = service.server
    for _ in range(round(scene.used)):
        server.take(-scene.used_at, 1.0)
    at, slots, half = 0.0, [0.0] * min(scene.callers, scene.in_flight), scene.trip / 2
    for number, errand in enumerate(one for one in scene.errands if one.route not in scene.front.closed):
        place = number % len(slots)
        at = server.earliest(max(at, slots[place] + half), errand.cost)
        server.take(at, errand.cost)
        slots[place] = at + half
    return at + half


class Client:
    """Client that sends requests of a scene through a gate, with a session's retries."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.service, self.outcome = scene, _Service(scene), Outcome()
        self.rng = random.Random(scene.seed + 1)
        self.loop = asyncio.get_running_loop()
        self.stops = {"": -inf}
        self.gate = self.outcome.gate = Gate(
            max_in_flight=scene.in_flight,
            limits=scene.limits,
            probe=scene.probe,
            random=self.rng.random,
            now=lambda: BEGAN + self.loop.time(),
        )

    def closed(self, errand: Errand) -> str:
        """Return the route's name if a refusal may concern it alone, else an empty one."""
        front = self.scene.front
        return errand.route if errand.route in front.closed or front.inner == "outer" else ""

    def answer(self, errand: Errand) -> tuple[int, dict[str, str]]:
        """Return the service's answer."""
        return self.service.answer(self.loop.time(), errand)

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        wait, again = self.scene.max_wait, tries > 0
        return await self.gate.acquire(
            Ask(errand.route, errand.prior, errand.priority, max_wait=wait, again=again)
        )

    async def send(self, number: int, errand: Errand, tries: int) -> int:
        """Make one attempt; return the status."""
        scene, outcome = self.scene, self.outcome
        outcome.attempts[number] = self.loop.time(), tries
        permit = await self.acquire(number, errand, tries)
        outcome.overdue += scene.max_wait is not None and self.loop.time() > (
            outcome.attempts[number][0] + scene.max_wait + OVERDUE
        )
        outcome.in_stops += self.loop.time() < self.stops.get(self.closed(errand), -inf) - EPSILON
        await asyncio.sleep(scene.trip / 2)
        status, headers = self.answer(errand)
        await asyncio.sleep(scene.trip / 2)
        info = read_limits(headers, BEGAN + self.loop.time())
        if status == 429:
            self.refused(errand, info.retry_after or info.reset or 0.0)
        if permit.answered(status, info) in (Verdict.ROUTE, Verdict.TOO_EXPENSIVE) and tries >= 4:
            raise _GaveUpError
        if status == 503:
            backoff = self.rng.random() * 0.5 * 2.0 ** min(tries, 5)
            await asyncio.sleep(max(info.retry_after or 0.0, backoff))
        return status

    def refused(self, errand: Errand, wait: float) -> None:
        """Note a refusal and its wait."""
        now, key = self.loop.time(), self.closed(errand)
        self.stops[key] = max(self.stops.get(key, -inf), now + wait)
        if errand.route not in self.scene.front.closed:
            self.outcome.refusals += 1
            self.outcome.instants[round(now, 6)] += 1

    async def run(self, number: int, errand: Errand) -> None:
        """Do one errand."""
        outcome, tries = self.outcome, 0
        outcome.begun[number] = self.loop.time()
        try:
            while await self.send(number, errand, tries) not in (200, 404):
                tries += 1
        except _GaveUpError:
            outcome.given_up += 1
        except QuotaWaitError as error:
            outcome.turned_away[number] = (self.loop.time(), error.retry_after)
        else:
            outcome.done += 1
            outcome.finished[number] = self.loop.time()
            if errand.route not in self.scene.front.closed:
                outcome.seconds = self.loop.time()


def run(scene: Scene, limit: float = 1e6, client: Callable[[Scene], Client] = Client) -> Outcome:
    """Run the job through a gate, with retries as a session makes them."""
    return in_virtual_time(_job(scene, limit, client))


async def _job(scene: Scene, limit: float, build: Callable[[Scene], Client]) -> Outcome:
    client = build(scene)
    todo = iter(enumerate(scene.errands))

    async def work(place: int) -> None:
        await asyncio.sleep(scene.spread * place / scene.callers)
        for number, errand in todo:
            await client.run(number, errand)

    outcome = client.outcome
    outcome.hung = await finish(map(work, range(min(scene.callers, len(scene.errands)))), limit)
    outcome.seconds = limit if outcome.hung else outcome.seconds
    outcome.storm = max(outcome.instants.values(), default=0)
    first = min(outcome.instants, default=0.0)
    outcome.first_burst = sum(number for when, number in outcome.instants.items() if when <= first + 1.0)
    return outcome


def many(count: int, cost: float = 1.0, prior: float | None = None) -> list[Errand]:
    """Return `count` errands alike."""
    return [Errand("/a", cost, prior)] * count
