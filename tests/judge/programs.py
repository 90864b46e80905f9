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

from chainapi import Checkpoint, Failure, LimiterOptions, Session, merge
from chainapi.errors import ChainAPIError
from tests.judge.bodies import ROUTES, arguments
from tests.judge.service import BASE, LIFETIME, TooManyRequestsError, World
from tests.judge.trace import Trace, shown_error, shown_page, shown_row

__all__ = ["PROGRAMS", "READERS", "play"]

EPOCH = 1_750_000_000.0  # wall clock at the beginning
ALL = 1_000  # rows; no list has as many
PAUSE = 1_000  # seconds in which everything arrives that is on its way
LISTS = tuple(name for name, route in ROUTES.items() if "list" in route)
CLASSIC = ("metrics.avg_tps", "data.chains", "data.evm.blocks", "data.evm.internal_transactions")
RANGED = tuple(name for name in LISTS if "range" in ROUTES[name])
SINGLE = tuple(name for name, route in ROUTES.items() if "one" in route and "method" not in route)
WRITES = tuple(name for name, route in ROUTES.items() if "one" in route and "method" in route)


class Query:
    """List query of a program: it opens the same stream again in another session."""

    def __init__(self, draw: random.Random, name: str, **given: Any) -> None:
        self.name, self.route, more = name, ROUTES[name], ROUTES[name].get("more", {})
        self.arguments = arguments(self.route["args"]) | given
        self.plain = draw.random() < 0.25 and "method" not in self.route and not given
        if "page_size" in more and draw.random() < 0.6:
            self.arguments["page_size"] = draw.choice((2, 3, 5, 100))
        if "sort_order" in more and draw.random() < 0.5:
            self.arguments["sort_order"] = draw.choice(("asc", "desc"))
        self.named = draw.random() < 0.5
        self.options: dict[str, Any] = {"on_invalid": draw.choice(("raise", "raw"))}

    def open(self, session: Session, resume: Checkpoint | None = None) -> Any:
        """Return a stream of the list, by the method of its route or by its path."""
        if not self.plain:
            return attrgetter(self.name)(session)(**self.arguments, **self.options, resume=resume)
        named = {
            "page_size": self.arguments.get("page_size"),
            "items": self.route.get("items") if self.named else None,
            "key": self.route.get("key"),
            "descending_key": self.route.get("descends"),
        }
        if "range" in self.route and self.named:
            bound, named["descending_key"], *_ = self.route["range"]
            named["until"] = f"end{bound}"
        service = getattr(session, self.name.partition(".")[0])
        return service.list(_path(self.route), **named, **self.options, resume=resume)


def _path(route: Any) -> str:
    parts = [f"43114{part.partition('}')[2]}" if "{" in part else part for part in route["path"].split("/")]
    return "/".join(parts)


class Play:
    """One program at work: its world, its sessions, its trace."""

    def __init__(self, seed: str, trace: Trace, kind: str) -> None:
        self.draw, self.world, self.trace = random.Random(seed), World(seed, kind), trace
        some = self.some = self.draw.choice
        self.options: dict[str, Any] = {
            "max_attempts": 5 if kind in ("calm", "merged") else some((1, 2, 3, 5, 5)),
            "timeout": some((5.0, 30.0)),
            "on_expired": some(("restart", "restart", "restart", "raise")),
            "max_in_flight": some((None, None, 1, 2)),
            "limiter": LimiterOptions(probe=some((True, False))),
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
        return Query(self.draw, self.some(names or self.some((LISTS, LISTS, CLASSIC, RANGED))), **given)

    async def guarded(self, work: Coroutine[Any, Any, Any], *where: Any) -> Any:
        """Return the result of a call, or note its error and return it."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - a result like any other
            self.trace.add("error", *where, shown_error(error))
            return error

    async def sleep(self) -> None:
        """Let hours pass, or minutes in which what is on its way arrives."""
        await asyncio.sleep(self.some((PAUSE,) * 5 + (0.35 * LIFETIME,) * 3 + (1.2 * LIFETIME,)))

    async def read(self, stream: Any, how: str, most: int = ALL) -> None:
        """Read a stream in one of the ways, and note what it gives and where it stands then."""
        how = "first" if stream.exhausted else how  # a whole stream is read once
        await self.guarded(self._read(stream, how, most), how)
        self.trace.add("state", stream.exhausted, stream.restarts)

    async def _read(self, stream: Any, how: str, most: int) -> None:
        lazy = how == "items" and self.draw.random() < 0.2
        if how == "collect":
            rows = await stream.collect(self.some((None, most, most)))
            return self.trace.add("collect", [shown_row(row) for row in rows])
        if how == "first":
            return self.trace.add("first", shown_row(await stream.first()))
        async for one in self._source(stream, how, most):
            many = [shown_row(row) for row in one] if isinstance(one, list) else None
            self.trace.add(how, many or (shown_page(one) if how == "pages" else shown_row(one)))
            most -= 1 if many is None else len(many)
            if most <= 0 and how in GREEDY:
                return await asyncio.sleep(PAUSE)
            if lazy and self.draw.random() < 0.1:
                await self.sleep()
        return None

    def _source(self, stream: Any, how: str, most: int) -> Any:
        size = self.some((None, 1, 2, 3, 5, 8))
        match how:
            case "pages":
                return stream
            case "items":
                return stream.items()
            case "limited items":
                return stream.items(limit=most)
            case "batches":
                return stream.batches(size)
        return stream.batches(size, limit=most)

    async def finish(self, stream: Any) -> None:
        """Read a stream to its end, through some errors."""
        for _ in range(3):
            if not stream.exhausted:
                await self.read(stream, "items")


GREEDY = ("pages", "items", "batches")  # which fetch ahead without a limit
READERS = (*GREEDY, "limited items", "limited batches", "collect", "first")


async def walk(play: Play) -> None:
    """Read a list in several ways, with pauses, errors, and resumes in new sessions."""
    query, ahead = play.query(), play.draw.random() < 0.2
    if ahead:
        query.options["prefetch"] = play.some((1, 2, 4))
        play.options["max_attempts"] = 5
    resume: Checkpoint | None = None
    for left in reversed(range(play.some((1, 2, 2, 3, 4)))):
        async with play.session() as session:
            stream = query.open(session, resume)
            for _ in range(play.some((1, 1, 2, 3))):
                await play.read(
                    stream, play.some(GREEDY if ahead else READERS), play.some((1, 2, 3, 4, 7, 11, 30))
                )
                if play.draw.random() < 0.3:
                    await play.sleep()
            resume = Checkpoint.loads(stream.checkpoint.dumps())
            await (stream.aclose() if left else play.finish(stream))
        if play.draw.random() < 0.3:
            await play.sleep()
        if play.draw.random() < 0.04:
            query = play.query()  # of another list: CheckpointError
    play.trace.add_sent(play.world)


async def timed(play: Play) -> None:
    """Walk one list without a limit: the order of the requests and their times count too."""
    async with play.session(max_in_flight=None) as session:
        await play.read(play.query().open(session), "pages")
    play.trace.add_sent(play.world, ordered=True)


async def interrupted(play: Play) -> None:
    """Cancel a reader in the middle of a walk, continue, and resume from there in another session."""
    query = play.query()
    async with play.session() as session:
        stream = query.open(session)
        for _ in range(play.draw.randrange(1, 4)):
            try:
                async with asyncio.timeout(play.some((0.05, 0.25, 0.45, 0.65, 1.25, 2.55))):
                    await play.read(stream, play.some((*GREEDY, "collect")))
            except TimeoutError:
                play.trace.add("cancelled", stream.exhausted, stream.restarts)
        resume = Checkpoint.loads(stream.checkpoint.dumps())
        if play.draw.random() < 0.5:
            await play.finish(stream)
    async with play.session() as session:
        await play.finish(query.open(session, resume))
    play.trace.add_sent(play.world)


async def merged(play: Play) -> None:
    """Merge several lists, and merge them again from pages in the middle."""
    # Two streams of one list would share its versions.
    queries = {query.name: query for query in [play.query() for _ in range(play.draw.randrange(2, 5))]}
    saved: dict[str, Checkpoint] = {}
    for most in (play.some((2, 3, ALL)), ALL):
        pages: dict[str, list[Any]] = {}
        async with play.session() as session:
            streams = {name: query.open(session, saved.get(name)) for name, query in queries.items()}
            await play.guarded(_merge(play, streams, pages, saved, most), "merged")
        for name in sorted(pages):
            play.trace.add("merged", name, pages[name])
    play.trace.add_sent(play.world)


async def _merge(
    play: Play, streams: dict[str, Any], pages: dict[str, list[Any]], saved: dict[str, Checkpoint], most: int
) -> None:
    """Read all pages; keep the first ones of each stream, and the position after them."""
    options: Any = {"concurrency": play.some((2, 32)), "on_error": play.some(("raise", "yield"))}
    async with aclosing(merge(streams, **options)) as found:
        async for name, outcome in found:
            had = pages.setdefault(name, [])
            if len(had) < most:
                failed = isinstance(outcome, Failure)
                had.append(shown_error(outcome.error) if failed else shown_page(outcome))
                saved[name] = Checkpoint.loads(outcome.checkpoint.dumps())


async def split(play: Play) -> None:
    """Split a list into ranges, read each, and resume it with the method of the whole list."""
    name = play.some(RANGED)
    by_time, more = ROUTES[name]["range"][0] == "Timestamp", ROUTES[name].get("more", {})
    given: dict[str, Any] = {"start_timestamp": BASE} if by_time else play.some(({}, {"start_block": BASE}))
    needed = {"time_interval": "day", "subnet_id": "subnet", "addresses": ["first"]}  # by some routes
    query = play.query((name,), **given, **{key: needed[key] for key in needed if key in more})
    query.plain = False
    ways = [{"ranges": play.some((1, 2, 3, 5))}, {"days": play.some((3, 7))} if by_time else {"blocks": 4}]
    async with play.session() as session:
        parts = await play.guarded(_parts(query.open(session).split(**play.some(ways))), "split")
        for part in [] if isinstance(parts, Exception) else parts:
            play.trace.add("range")
            await play.read(part, play.some(READERS), play.some((2, 5, ALL)))
            resume = Checkpoint.loads(part.checkpoint.dumps())
            async with play.session() as other:
                await play.finish(query.open(other, resume))
    play.trace.add_sent(play.world)


async def _parts(ranges: Any) -> Any:
    return await ranges


async def follow(play: Play) -> None:
    """Follow a list that grows, and continue from a checkpoint in another session."""
    name = play.some((*RANGED, *CLASSIC))
    start = f"start_{ROUTES[name].get('range', [''])[0].lower()}"
    given = {start: BASE} if start != "start_" and play.draw.random() < 0.4 else {}
    query = play.query((name,), **given)
    query.arguments.pop("sort_order", None)
    resume: Any = None
    for _ in range(play.some((1, 2))):
        async with play.session() as session:
            resume = await play.guarded(_follow(play, query.open(session, resume)), "follow")
        if isinstance(resume, Exception):
            break
    play.trace.add_sent(play.world)


async def _follow(play: Play, stream: Any) -> Checkpoint:
    every = 600  # faults and pauses move no poll by as much
    async with stream.follow(every=every, lookback=play.some((0, 0, 0, 1, 86_400))) as rows:
        for _ in range(play.some((3, 8, 15))):
            try:
                async with asyncio.timeout(5.5 * every):
                    play.trace.add("followed", shown_row(await anext(rows)))
            except ChainAPIError as error:
                play.trace.add("error", "followed", shown_error(error))
            except TimeoutError:
                play.trace.add("no more rows")
                break
        return Checkpoint.loads(rows.checkpoint.dumps())


async def single(play: Play) -> None:
    """Read resources by name, by path, as raw responses, and two at a time as one request."""
    async with play.session() as session:
        for _ in range(play.draw.randrange(1, 4)):
            name, how = play.some(SINGLE), play.some(("typed", "typed", "shared", "plain", "raw"))
            play.trace.add("get", name, how)
            view = session.with_options(coalesce=True) if how == "shared" else session
            await asyncio.gather(*[_noted(play, _get(view, name, how)) for _ in range(1 + (how == "shared"))])
    play.trace.add_sent(play.world)


async def _noted(play: Play, work: Coroutine[Any, Any, Any]) -> None:
    outcome = await play.guarded(work)
    if not isinstance(outcome, Exception):
        play.trace.add("got", shown_row(outcome))


async def _get(session: Any, name: str, how: str) -> Any:
    service, route = getattr(session, name.partition(".")[0]), ROUTES[name]
    if how == "plain":
        return await service.get(_path(route), limit=3, flag=True, names=["b", "a"])
    if how == "raw":
        response = await service.get_response(_path(route), text="ü &=/")
        return [response.status, response.request_id, response.json()]
    return await attrgetter(name)(session)(**arguments(route["args"]))


async def write(play: Play) -> None:
    """Write, and read by POST, while the service fails: what may have been done is not done twice."""
    async with play.session() as session:
        for _ in range(play.draw.randrange(2, 6)):
            name = play.some(WRITES)
            given, more = arguments(ROUTES[name]["args"]), arguments(ROUTES[name].get("more", {}))
            given |= {key: value for key, value in more.items() if play.draw.random() < 0.5}
            play.trace.add("write", name)
            await _noted(play, attrgetter(name)(session)(**given))
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
                trace.add("raised", shown_error(error))
    return trace
