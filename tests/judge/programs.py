"""Programs of the judge: what users do with streams, resources and writes, drawn at random.

Each has a world of its own. What a reader leaves in flight is given time to arrive, so that the number of
requests does not depend on when a stream sends them.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from operator import attrgetter
from typing import Any

from chainapi import Checkpoint, Failure, Session, merge
from chainapi.errors import ChainAPIError
from tests.judge.bodies import ROUTES, argument
from tests.judge.service import LIFETIME, TooManyRequestsError, World
from tests.judge.trace import Trace, shown_error, shown_page, shown_row

__all__ = ["PROGRAMS", "play"]

EPOCH = 1_750_000_000.0  # wall clock at the beginning
MOST_ROWS = 400
LISTS = tuple(name for name, route in ROUTES.items() if "list" in route)
CLASSIC = ("metrics.avg_tps", "data.chains", "data.evm.blocks", "data.evm.internal_transactions")
RANGED = tuple(name for name in LISTS if "range" in ROUTES[name])
SINGLE = tuple(
    name for name, route in ROUTES.items() if "one" in route and route.get("method", "GET") == "GET"
)
WRITES = tuple(name for name, route in ROUTES.items() if "one" in route and "method" in route)


class Query:
    """List query of a program: the same arguments open it again."""

    def __init__(self, draw: random.Random, name: str, **given: Any) -> None:
        route = ROUTES[name]
        self.name = name
        self.arguments = {key: argument(value) for key, value in route["args"].items()} | given
        self.plain = draw.random() < 0.25 and "method" not in route and not given
        if "page_size" in route.get("more", {}) and draw.random() < 0.6:
            self.arguments["page_size"] = draw.choice((1, 2, 3, 5, 100))
        if "sort_order" in route.get("more", {}) and draw.random() < 0.5:
            self.arguments["sort_order"] = draw.choice(("asc", "desc"))
        self.named = draw.random() < 0.5
        self.on_invalid = draw.choice(("raise", "raw"))
        self.prefetch = 0

    def open(self, session: Session, resume: Checkpoint | None = None) -> Any:
        """Return a stream of the list."""
        options = {"on_invalid": self.on_invalid, "prefetch": self.prefetch, "resume": resume}
        if not self.plain:
            method = attrgetter(self.name)(session)
            return method(**self.arguments, **options)
        route = ROUTES[self.name]
        path = route["path"]
        for number, part in enumerate(part for part in path.split("/") if "{" in part):
            path = path.replace(part[: part.index("}") + 1], str(43_114 + number), 1)
        named = {"items": route.get("items")} if self.named else {}
        service = getattr(session, self.name.partition(".")[0])
        return service.list(
            path, page_size=self.arguments.get("page_size"), **named, **self._identity(), **options
        )

    def _identity(self) -> dict[str, Any]:
        route = ROUTES[self.name]
        found: dict[str, Any] = {"key": route["key"]} if "key" in route else {}
        if "descends" in route:
            found["descending_key"] = route["descends"]
        return found


class Play:
    """One program at work: its world, its sessions, its trace."""

    def __init__(self, seed: str, trace: Trace, kind: str) -> None:
        self.draw = random.Random(seed)
        self.world = World(seed, kind)
        self.trace = trace
        some = self.draw.choice
        self.options: dict[str, Any] = {
            "max_attempts": 5 if kind in ("calm", "merged") else some((1, 2, 3, 5, 5)),
            "timeout": some((5.0, 30.0)),
            "on_expired": some(("restart", "restart", "restart", "raise")),
            "max_in_flight": some((None, None, 1, 2)),
            "probe": some((True, False)),
            "api_key": some(("key-of-the-judge",) * 50 + (None,)),
        }

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[Session]:
        """Yield a session on the world of the program."""
        loop = asyncio.get_running_loop()
        addresses = {"metrics_base_url": "https://metrics.test", "data_base_url": "https://data.test/base"}
        given = {**addresses, **self.options, **options}
        async with Session(**given, transport=self.world, now=lambda: EPOCH + loop.time()) as session:
            yield session

    def query(self, names: tuple[str, ...] = (), **given: Any) -> Query:
        """Return a query of one of these lists, by default of any."""
        found = self.draw.choice(names or self.draw.choice((LISTS, LISTS, CLASSIC, RANGED)))
        return Query(self.draw, found, **given)

    async def guarded(self, work: Coroutine[Any, Any, Any], *where: Any) -> Any:
        """Return the result of a call, or note its error and return it."""
        try:
            return await work
        except TooManyRequestsError:
            raise
        except Exception as error:
            self.trace.add("error", *where, shown_error(error))
            return error

    async def sleep(self) -> None:
        """Let hours pass, or minutes in which what is on its way arrives."""
        await asyncio.sleep(self.draw.choice((1_000,) * 5 + (0.35 * LIFETIME,) * 3 + (1.2 * LIFETIME,)))

    def state(self, stream: Any) -> None:
        """Note the state of a stream."""
        self.trace.add("state", stream.exhausted, stream.restarts)


async def _read_pages(play: Play, stream: Any, most: int) -> None:
    async for page in stream:
        play.trace.add("page", *shown_page(page))
        most -= 1
        if most <= 0:
            return await asyncio.sleep(1_000)
    return None


async def _read_items(play: Play, stream: Any, most: int) -> None:
    lazy = play.draw.random() < 0.2
    async for row in stream.items():
        play.trace.add("row", shown_row(row))
        if lazy and play.draw.random() < 0.1:
            await play.sleep()
        most -= 1
        if most <= 0:
            return await asyncio.sleep(1_000)
    return None


async def _read_some(play: Play, stream: Any, most: int) -> None:
    async for row in stream.items(limit=most):
        play.trace.add("row", shown_row(row))


async def _read_batches(play: Play, stream: Any, most: int) -> None:
    size = play.draw.choice((None, 1, 2, 3, 5, 8))
    async for batch in stream.batches(size):
        play.trace.add("batch", len(batch), [shown_row(row) for row in batch])
        most -= len(batch)
        if most <= 0:
            return await asyncio.sleep(1_000)
    return None


async def _read_limited_batches(play: Play, stream: Any, most: int) -> None:
    async for batch in stream.batches(play.draw.choice((2, 3, 5)), limit=most):
        play.trace.add("batch", len(batch), [shown_row(row) for row in batch])


async def _collect(play: Play, stream: Any, most: int) -> None:
    limit = play.draw.choice((None, most, most))
    play.trace.add("collected", [shown_row(row) for row in await stream.collect(limit)])


async def _first(play: Play, stream: Any, most: int) -> None:
    play.trace.add("first", shown_row(await stream.first()))


READERS: tuple[Callable[[Play, Any, int], Coroutine[Any, Any, None]], ...] = (
    _read_pages,
    _read_items,
    _read_some,
    _read_batches,
    _read_limited_batches,
    _collect,
    _first,
)
GREEDY = (_read_pages, _read_items, _read_batches)  # which fetch ahead without a limit


async def walk(play: Play) -> None:
    """Read a list in several ways, with pauses, errors, and resumes in new sessions."""
    query = play.query()
    if play.draw.random() < 0.2:
        query.prefetch = play.draw.choice((1, 2, 4))
        play.options["max_attempts"] = 5
    resume: Checkpoint | None = None
    stages = play.draw.choice((1, 2, 2, 3, 4))
    for stage in range(stages):
        async with play.session() as session:
            stream = query.open(session, resume)
            for _ in range(play.draw.choice((1, 1, 2, 3))):
                reader = play.draw.choice(GREEDY if query.prefetch else READERS)
                play.trace.add("read", reader.__name__)
                await play.guarded(reader(play, stream, play.draw.choice((1, 2, 3, 4, 7, 11, 30))))
                play.state(stream)
                if play.draw.random() < 0.3:
                    await play.sleep()
            text = stream.checkpoint.dumps()
            if stage == stages - 1:
                await _finish(play, stream)
            else:
                await stream.aclose()
        if play.draw.random() < 0.3:
            await play.sleep()
        resume = Checkpoint.loads(text)
        if play.draw.random() < 0.04:
            query = play.query()  # of another list: CheckpointError
    play.trace.add_sent(play.world)


async def _finish(play: Play, stream: Any) -> None:
    """Read a stream to its end, through at most three errors."""
    for _ in range(4):
        if not isinstance(await play.guarded(_read_items(play, stream, MOST_ROWS)), ChainAPIError):
            break
    play.state(stream)


async def timed(play: Play) -> None:
    """Walk one list without a limit: the order of the requests and their times count too."""
    async with play.session(max_in_flight=None) as session:
        await play.guarded(_read_pages(play, play.query().open(session), MOST_ROWS))
    play.trace.add_sent(play.world, ordered=True)


async def interrupted(play: Play) -> None:
    """Cancel a reader in the middle of a walk, and continue."""
    query = play.query()
    async with play.session() as session:
        stream = query.open(session)
        for _ in range(play.draw.randrange(1, 4)):
            reader = play.draw.choice((_read_pages, _read_items, _read_batches, _collect))
            try:
                async with asyncio.timeout(play.draw.choice((0.05, 0.25, 0.45, 0.65, 1.25, 2.55))):
                    await play.guarded(reader(play, stream, MOST_ROWS), "interrupted")
            except TimeoutError:
                play.trace.add("cancelled")
            play.state(stream)
        text = stream.checkpoint.dumps()
        if play.draw.random() < 0.5:
            await _finish(play, stream)
    async with play.session() as session:
        await _finish(play, query.open(session, Checkpoint.loads(text)))
    play.trace.add_sent(play.world)


async def merged(play: Play) -> None:
    """Merge several lists, leave them in the middle, and resume each from its last page."""
    queries = {str(number): play.query() for number in range(play.draw.randrange(2, 5))}
    names = {query.name: key for key, query in queries.items()}
    queries = {
        key: queries[key] for key in names.values()
    }  # two streams of one list would share its versions
    saved: dict[str, Checkpoint] = {}
    for most in (play.draw.choice((2, 3, 1_000)), 1_000):
        pages: dict[str, list[Any]] = {}
        async with play.session() as session:
            streams = {key: query.open(session, saved.get(key)) for key, query in queries.items()}
            error = await play.guarded(_merge(play, streams, pages, saved, most), "merged")
        for key in sorted(pages):
            play.trace.add("merged", key, pages[key][:most])
        if error is None and most == 1_000:
            break
    play.trace.add_sent(play.world)


async def _merge(
    play: Play, streams: dict[str, Any], pages: dict[str, list[Any]], saved: dict[str, Checkpoint], most: int
) -> None:
    """Read pages until each stream has had `most` of them, and note where each stands then."""
    how = play.draw.choice(("raise", "yield"))
    async with aclosing(merge(streams, concurrency=play.draw.choice((2, 32)), on_error=how)) as found:  # type: ignore[call-overload]
        async for key, outcome in found:
            had = pages.setdefault(key, [])
            if len(had) < most:
                failed = isinstance(outcome, Failure)
                had.append(shown_error(outcome.error) if failed else shown_page(outcome))
                saved[key] = Checkpoint.loads(outcome.checkpoint.dumps())


async def split(play: Play) -> None:
    """Split a list into ranges, read each, and resume one of them with the method of the whole list."""
    name = play.draw.choice(RANGED)
    start = "start_timestamp" if ROUTES[name]["range"][0] == "Timestamp" else "start_block"
    given = {start: 1_699_920_000} if start == "start_timestamp" or play.draw.random() < 0.5 else {}
    if name == "data.primary_network.transactions":
        given["addresses"] = ["first"]
    if name == "metrics.networks.metric":
        given["subnet_id"] = "subnet"
    query = play.query((name,), **given)
    if "time_interval" in ROUTES[name].get("more", {}):
        query.arguments["time_interval"] = "day"
    async with play.session() as session:
        ways = [{"ranges": play.draw.choice((1, 2, 3))}, {"ranges": 5}]
        ways.append({"blocks": 4} if start == "start_block" else {"days": play.draw.choice((3, 7))})
        parts = await play.guarded(_parts(query.open(session), play.draw.choice(ways)), "split")
        if isinstance(parts, Exception):
            return play.trace.add_sent(play.world)
        texts = []
        for number, part in enumerate(parts):
            play.trace.add("range", number)
            reader = play.draw.choice((_read_pages, _read_items, _collect))
            await play.guarded(reader(play, part, play.draw.choice((2, 5, MOST_ROWS))))
            play.state(part)
            texts.append(part.checkpoint.dumps())
    async with play.session() as session:
        for number, text in enumerate(texts):
            play.trace.add("resumed range", number)
            await _finish(play, query.open(session, Checkpoint.loads(text)))
    return play.trace.add_sent(play.world)


async def _parts(stream: Any, way: dict[str, Any]) -> list[Any]:
    parts: list[Any] = await stream.split(**way)
    return parts


async def follow(play: Play) -> None:
    """Follow a list that grows, and continue from a checkpoint in another session."""
    query = play.query((*RANGED, *CLASSIC))
    if play.draw.random() < 0.4 and "range" in ROUTES[query.name]:
        query.arguments[f"start_{ROUTES[query.name]['range'][0].lower()}"] = 1_699_920_000
        query.plain = False
    query.arguments.pop("sort_order", None)
    lookback = play.draw.choice((0, 0, 0, 1, 86_400))
    resume: Checkpoint | None = None
    for _ in range(play.draw.choice((1, 2))):
        async with play.session() as session:
            outcome = await play.guarded(_follow(play, query.open(session, resume), lookback), "follow")
        if not isinstance(outcome, Checkpoint):
            break
        resume = outcome
    play.trace.add_sent(play.world)


async def _follow(play: Play, stream: Any, lookback: int) -> Checkpoint:
    every = 600  # faults and pauses move no poll by as much
    rows = stream.follow(every=every, lookback=lookback)
    errors = 0
    async with rows:
        for _ in range(play.draw.choice((3, 8, 15))):
            try:
                async with asyncio.timeout(5.5 * every):
                    play.trace.add("followed", shown_row(await anext(rows)))
            except TimeoutError as error:
                play.trace.add("waits", type(error).__name__)
                break
            except ChainAPIError as error:
                play.trace.add("error", "followed", shown_error(error))
                errors += 1
                if errors == 3:
                    break
        return Checkpoint.loads(rows.checkpoint.dumps())


async def single(play: Play) -> None:
    """Read resources by name, by path, as raw responses, and two at a time as one request."""
    async with play.session() as session:
        for _ in range(play.draw.randrange(1, 4)):
            name = play.draw.choice(SINGLE)
            how = play.draw.choice(("typed", "typed", "shared", "plain", "raw"))
            play.trace.add("get", name, how)
            view: Any = session.with_options(coalesce=True) if how == "shared" else session
            calls = [_get(view, name, how) for _ in range(2 if how == "shared" else 1)]
            for outcome in await asyncio.gather(*[play.guarded(call) for call in calls]):
                if not isinstance(outcome, Exception):
                    play.trace.add("got", shown_row(outcome))
    play.trace.add_sent(play.world)


async def _get(session: Any, name: str, how: str) -> Any:
    route = ROUTES[name]
    if how in ("typed", "shared"):
        return await attrgetter(name)(session)(**_arguments(route))
    path = "/".join("43114" if "{" in part else part for part in route["path"].split("/"))
    service = getattr(session, name.partition(".")[0])
    if how == "plain":
        return await service.get(path, limit=3, flag=True, names=["b", "a"])
    response = await service.get_response(path, text="ü &=/")
    return [response.status, response.request_id, len(response.body), response.json()]


def _arguments(route: Any) -> dict[str, Any]:
    return {key: argument(value) for key, value in route["args"].items()}


async def write(play: Play) -> None:
    """Write, and read by POST, while the service fails: what may have been done is not done twice."""
    async with play.session() as session:
        for _ in range(play.draw.randrange(2, 6)):
            name = play.draw.choice(WRITES)
            given = _arguments(ROUTES[name])
            if play.draw.random() < 0.5:
                more = ROUTES[name].get("more", {})
                given |= {key: argument(more[key]) for key in more if play.draw.random() < 0.5}
            play.trace.add("write", name)
            outcome = await play.guarded(attrgetter(name)(session)(**given))
            if not isinstance(outcome, Exception):
                play.trace.add("wrote", shown_row(outcome))
    play.trace.add_sent(play.world)


Program = Callable[[Play], Coroutine[Any, Any, None]]
PROGRAMS: tuple[tuple[Program, int, str], ...] = (  # how often each is played, and the kind of its world
    (walk, 9, ""),
    (walk, 2, "calm"),
    (timed, 2, "timed"),
    (interrupted, 2, "calm"),
    (merged, 3, "merged"),
    (split, 3, ""),
    (follow, 3, "grows"),
    (single, 2, ""),
    (write, 2, ""),
)


async def play(seed: int) -> Trace:
    """Play two programs of a seed, and return the trace."""
    draw, trace = random.Random(seed), Trace()
    weights = [weight for _, weight, _ in PROGRAMS]
    for number, (program, _, kind) in enumerate(draw.choices(PROGRAMS, weights, k=2)):
        trace.add("program", program.__name__)
        with warnings.catch_warnings(action="ignore"):
            try:
                await program(Play(f"{seed} {number}", trace, kind))
            except TooManyRequestsError:
                trace.add("endless")
            except Exception as error:  # noqa: BLE001 - a result like any other
                trace.add("raised", type(error).__name__)
    return trace
