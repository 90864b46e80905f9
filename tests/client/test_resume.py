"""Resume of a list that changed meanwhile: grown at its head, or a dead token."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define, frozen

from chainapi import Checkpoint, Page, Session
from chainapi.errors import CheckpointError, ConfigurationError, DecodeError
from chainapi.events import Event, Restarted
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.sessions import simulated

BLOCKS = "/v1/chains/43114/blocks"


async def test_first_page_that_grew() -> None:
    """A checkpoint inside a first page that grew is exact without an order."""
    simulator = Simulator(rows=40)
    async with simulated(simulator) as session:
        pages = session.data.list(BLOCKS, page_size=20)
        begun = await pages.collect(limit=5)
        text = pages.checkpoint.dumps()
    simulator.insert(BLOCKS, 3)
    async with simulated(simulator) as session:
        rest = await session.data.list(BLOCKS, page_size=20, resume=Checkpoint.loads(text)).collect()
    numbers = [int(row["blockNumber"]) for row in begun + rest]
    assert sorted(numbers, reverse=True) == list(range(numbers[0] + 3, numbers[0] - 40, -1))
    assert len(numbers) == len(set(numbers)) == 43


@pytest.mark.parametrize("descending_key", ["blockNumber", None])
async def test_resume_with_a_dead_token(descending_key: str | None) -> None:
    """A resume with a dead token goes by the order, else repeats rows; an event says so."""
    simulator = Simulator(rows=250)
    heard: list[Event] = []

    def stream(session: Session, resume: Checkpoint | None = None) -> Any:
        return session.data.list(BLOCKS, page_size=100, descending_key=descending_key, resume=resume)

    async with simulated(simulator) as session:
        pages = stream(session)
        begun = await pages.collect(limit=130)
        text = pages.checkpoint.dumps()
    simulator.advance(25 * 3600)
    simulator.insert(BLOCKS, 2)
    async with simulated(simulator, on_event=heard.append) as session:
        rest = stream(session, Checkpoint.loads(text))
        rows = begun + await rest.collect()
    numbers = [int(row["blockNumber"]) for row in rows]
    assert rest.restarts == 1
    assert len(set(numbers)) == 252
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]
    assert len(numbers) == (252 if descending_key else 130 + 252)


async def test_bare_page_token() -> None:
    """A page token alone begins at its page; once it is dead, the list begins again, and an event says so."""
    simulator = Simulator(rows=250)
    heard: list[Event] = []
    async with simulated(simulator, on_event=heard.append) as session:
        whole = await session.data.list(BLOCKS, page_size=100).collect()
        token = (await anext(session.data.list(BLOCKS, page_size=100))).next_page_token
        rest = session.data.list(BLOCKS, page_size=100, page_token=token)
        assert await rest.collect() == whole[100:]
        records = session.data.evm.blocks(43114, page_size=100, page_token=token)
        assert [row.block_number for row in await records.collect()] == [
            int(row["blockNumber"]) for row in whole[100:]
        ]
        simulator.advance(25 * 3600)
        again = session.data.list(BLOCKS, page_size=100, page_token=token)
        assert (await again.collect(), again.restarts) == (whole, 1)
        assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]
        for wrong in ("", 5, "x" * 5_000):
            with pytest.raises(ConfigurationError, match="page_token="):
                session.data.list(BLOCKS, page_token=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="leave page_token= out"):
            session.data.evm.blocks(43114, page_token=token, resume=rest.checkpoint)


async def test_growing_list_without_restart() -> None:
    """A key finds the repeated rows of a list that grows while it is walked."""

    class Shifting:
        """Pages by position of a list that grows by one row with each request.

        Careless services have such pages.
        """

        def __init__(self) -> None:
            self.newest = 100

        async def send(self, request: Request) -> Response:
            token = parse_qs(urlsplit(request.url).query).get("pageToken", ["0"])[0]
            at = int(token)
            rows = [{"n": self.newest - at - row} for row in range(10) if self.newest - at - row > 0]
            self.newest += 1
            body: dict[str, object] = {"rows": rows}
            if rows and rows[-1]["n"] > 1:
                body["nextPageToken"] = str(at + 10)
            return Response(200, {}, json.dumps(body).encode())

        async def aclose(self) -> None: ...

    for descending_key in ("n", None):
        async with Session(data_base_url="https://data.test", api_key="k", transport=Shifting()) as session:
            rows = await session.data.list("/v1/rows", key="n", descending_key=descending_key).collect()
        assert [row["n"] for row in rows] == list(range(100, 0, -1))


@define
class Ranged:
    """Series with an upper bound `endTimestamp`, whose tokens die on request.

    It keeps the queries.
    """

    points: int = 100
    life: int = 0
    queries: list[dict[str, str]] = Factory(list)

    def forget(self) -> None:
        """Let all tokens die."""
        self.life += 1

    async def send(self, request: Request) -> Response:
        """Return ten points at or below the bound, from the token on."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}
        self.queries.append(query)
        life, _, at = query.get("pageToken", f"{self.life}/0").partition("/")
        if life != str(self.life):
            return Response(400, {}, b'{"message": "expired"}')
        end = int(query.get("endTimestamp", self.points))
        first = end - int(at)
        rows = [{"timestamp": stamp, "value": 0.5} for stamp in range(first, max(0, first - 10), -1)]
        body: dict[str, object] = {"results": rows}
        if rows and rows[-1]["timestamp"] != 1:
            body["nextPageToken"] = f"{self.life}/{end - first + 10}"
        return Response(200, {}, json.dumps(body).encode())

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("key", ["timestamp", None])
@pytest.mark.parametrize("through_text", [False, True])
async def test_restart_from_the_watermark(through_text: bool, key: str | None) -> None:
    """A restart of a bounded query begins at the last row given, or its last tie."""
    service = Ranged()
    options: dict[str, Any] = {"descending_key": "timestamp", "key": key, "until": "endTimestamp", "chain": 5}
    async with Session(metrics_base_url="https://metrics.test", transport=service) as session:
        pages = session.metrics.list("/v2/series", **options)
        rows = await pages.collect(limit=34)
        service.forget()
        if through_text:
            resume = Checkpoint.loads(pages.checkpoint.dumps())
            pages = session.metrics.list("/v2/series", resume=resume, **options)
        rows += await pages.collect(limit=20)
        if through_text:
            resume = Checkpoint.loads(pages.checkpoint.dumps())
            pages = session.metrics.list("/v2/series", resume=resume, **options)
        rows += await pages.collect()
    assert [row["timestamp"] for row in rows] == list(range(100, 0, -1))
    assert pages.restarts == 1
    bounds = [query.get("endTimestamp") for query in service.queries]
    last = 67 if through_text else 61
    restarted = bounds.index(str(last if key else last + 1))
    assert set(bounds[:restarted]) == {None}
    assert set(bounds[restarted:]) == {bounds[restarted]}
    assert all(query["chain"] == "5" for query in service.queries)


async def test_bad_order() -> None:
    """A bad order field, or a bound without an order, raises a clear error."""

    @frozen
    class Row:
        timestamp: str

    class One:
        async def send(self, request: Request) -> Response:
            return Response(200, {}, b'{"rows": [{"timestamp": "today"}]}')

        async def aclose(self) -> None: ...

    async with Session(metrics_base_url="https://metrics.test", transport=One()) as session:
        for name in ("timestamp", "missing"):
            with pytest.raises(DecodeError, match=name):
                await session.metrics.list("/v2/rows", descending_key=name).collect()
            with pytest.raises(DecodeError, match=name):
                await session.metrics.list("/v2/rows", descending_key=name, model=Row).collect()
        with pytest.raises(ConfigurationError, match="descending_key"):
            session.metrics.list("/v2/rows", until="endTimestamp")


async def test_checkpoint_of_another_day() -> None:
    """A checkpoint's token ages by the wall clock until read, then by the loop's."""
    simulator = Simulator(rows=250)
    wall = 1_000_000.0
    async with simulated(simulator, now=lambda: wall) as session:
        pages = session.data.list(BLOCKS, page_size=100)
        await anext(pages)
        resume = pages.checkpoint
        wall += 24 * 3600 - 1
        again = session.data.list(BLOCKS, page_size=100, resume=resume)
        wall += 10 * 24 * 3600  # the clock is set while the stream has not begun: it counts when it begins
        await anext(again)
        assert again.restarts == 1
        wall -= 365 * 24 * 3600
        await asyncio.sleep(24 * 3600 - 1)
        await anext(again)
        assert again.restarts == 1
        wall = 1_000_000.0 - 3600  # behind the time of the checkpoint: its token is taken for new
        late = session.data.list(BLOCKS, page_size=100, resume=resume)
        await anext(late)
        assert late.restarts == 0


async def test_rows_and_pages_that_the_reader_changes() -> None:
    """Changes of rows and pages by a reader do not change stream or checkpoints."""
    simulator = Simulator(rows=60)
    async with simulated(simulator) as session:
        pages = session.data.list(BLOCKS, page_size=10)
        numbers = []
        async for row in pages.items():
            numbers.append(row["blockNumber"])
            row["seen"] = True
            if len(numbers) == 15:
                break
        rest = session.data.list(BLOCKS, page_size=10, resume=pages.checkpoint)
        count = 0
        async for page in rest:
            count += 1
            numbers += [row["blockNumber"] for row in page]
            page.items.append({})
    assert count == 5
    assert len(numbers) == len(set(numbers)) == 60


async def test_the_key_is_in_no_checkpoint() -> None:
    """The API key does not change a checkpoint, and is not in its text."""
    simulator = Simulator(rows=60, other_keys=("second-secret",))
    texts = list[str]()
    for key in (simulator.api_key, "second-secret"):
        async with simulated(simulator, api_key=key, now=lambda: 1e9) as session:
            pages = session.data.list(BLOCKS, page_size=10)
            await pages.collect(limit=5)
            texts.append(pages.checkpoint.dumps())
    assert texts[0] == texts[1]
    assert "secret" not in texts[0]


async def test_order_named_only_at_the_resume() -> None:
    """A checkpoint taken without an order is refused where one is named."""
    async with simulated(Simulator(rows=60)) as session:
        pages = session.data.list(BLOCKS, page_size=10)
        await pages.collect(limit=15)
        with pytest.raises(CheckpointError, match="descending_key"):
            session.data.list(BLOCKS, page_size=10, descending_key="blockNumber", resume=pages.checkpoint)


@define
class Movable:
    """Rows in descending order, with pages anchored at rows, that change on request.

    Rows appear and vanish, and tokens die.
    """

    rows: list[int]
    size: int = 4
    life: int = 0
    odd: bool = False

    def forget(self) -> None:
        """Let all tokens die."""
        self.life += 1

    async def send(self, request: Request) -> Response:
        """Return a page of the rows below the one that the token names."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}
        life, _, at = query.get("pageToken", f"{self.life}/1000").partition("/")
        if life != str(self.life):
            return Response(400, {}, b'{"message": "expired"}')
        below = int(at)
        left = [row for row in self.rows if row < below and row <= int(query.get("end", 1_000))]
        page = left[: self.size]
        body: dict[str, object] = {"rows": [{"n": "odd" if self.odd else row} for row in page]}
        if len(left) > self.size:
            body["nextPageToken"] = f"{self.life}/{page[-1]}"
        return Response(200, {}, json.dumps(body).encode())

    async def aclose(self) -> None:
        """Do nothing."""


def moving(service: Movable, **options: Any) -> Session:
    """Return a session that reaches `service`."""
    return Session(metrics_base_url="https://metrics.test", transport=service, **options)


async def test_resume_in_a_page_that_lost_rows() -> None:
    """Rows deleted from the begun page do not make a resume skip others."""
    service = Movable(list(range(12, 0, -1)))
    async with moving(service) as session:
        pages = session.metrics.list("/v2/rows")
        numbers = [row["n"] for row in await pages.collect(limit=6)]
        text = pages.checkpoint.dumps()
        service.rows.remove(8)
        service.rows.remove(6)
        rest = session.metrics.list("/v2/rows", resume=Checkpoint.loads(text))
        numbers += [row["n"] for row in await rest.collect()]
    assert numbers == [12, 11, 10, 9, 8, 7, 5, 4, 3, 2, 1]


async def test_first_page_that_grew_by_more_than_a_page() -> None:
    """Rows given of a first page are matched on later pages too, over two resumes."""
    service = Movable(list(range(12, 0, -1)))
    async with moving(service) as session:
        numbers = []
        resume: Checkpoint | None = None
        for limit in (3, 2, 4, 99):
            pages = session.metrics.list("/v2/rows", resume=resume)
            async for row in pages.items():
                numbers.append(row["n"])
                limit -= 1
                if not limit:
                    break
            resume = Checkpoint.loads(pages.checkpoint.dumps())
            if len(numbers) == 3:
                service.rows[:0] = range(18, 12, -1)
    assert numbers == [12, 11, 10, 18, 17, 16, 15, 14, 13, *range(9, 0, -1)]


async def test_inexact_restart_after_pages() -> None:
    """An inexact restart has an event: `items()` cannot match rows read as pages."""
    service = Movable(list(range(12, 0, -1)))
    heard: list[Event] = []
    async with moving(service, on_event=heard.append) as session:
        pages = session.metrics.list("/v2/rows")
        await anext(pages)
        service.forget()
        assert len(await pages.collect()) == 12
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]


async def test_resume_in_a_second_pass() -> None:
    """A resume after a restart without an order reports that rows may come again."""
    service = Movable(list(range(12, 0, -1)))
    heard: list[Event] = []
    async with moving(service, on_event=heard.append) as session:
        pages = session.metrics.list("/v2/rows")
        await pages.collect(limit=8)
        service.forget()
        await pages.collect(limit=1)
        assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]
        await session.metrics.list("/v2/rows", resume=pages.checkpoint).collect()
    assert [(event.exact, event.restarts) for event in heard if isinstance(event, Restarted)] == [
        (True, 1),
        (False, 1),
    ]


async def test_restarts_from_the_watermark_are_progress() -> None:
    """A restart from the watermark may get fewer pages far, but has to progress."""
    service = Movable(list(range(40, 0, -1)))
    async with moving(service) as session:
        pages = session.metrics.list("/v2/rows", descending_key="n", until="end")
        rows = await pages.collect(limit=20)
        for _ in range(4):
            service.forget()
            rows += await pages.collect(limit=4)
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(40, 0, -1))
    assert pages.restarts == 4


@pytest.mark.parametrize("prefetch", [0, 2])
async def test_a_row_without_a_key_loses_no_page(prefetch: int) -> None:
    """Iterating again after a page with a bad key fetches that page again."""
    service = Movable(list(range(12, 0, -1)))
    async with moving(service) as session:
        pages = session.metrics.list("/v2/rows", descending_key="n", prefetch=prefetch)
        rows = list(await anext(pages))
        service.odd = True
        await asyncio.sleep(1)
        with pytest.raises(DecodeError) as caught:
            await pages.collect()
        service.odd = False
        assert caught.value.checkpoint == pages.checkpoint
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(12, 0, -1))


@pytest.mark.parametrize("descending_key", ["blockNumber", None])
async def test_the_checkpoint_of_a_page_stays(descending_key: str | None) -> None:
    """A page that is asked late has the checkpoint behind it, after a restart and pickling too."""
    simulator = Simulator(rows=250)
    async with simulated(simulator) as session:
        pages = session.data.list(BLOCKS, page_size=60, descending_key=descending_key)
        early, late = list[Checkpoint](), list[Page[Any]]()
        async for page in pages:
            early.append(pages.checkpoint)
            late.append(page)
            if len(late) == 2:
                simulator.advance(25 * 3600)
    assert {one.restarts for one in early} == {0, 1}
    copies = [pickle.loads(pickle.dumps(page)) for page in late]
    assert [page.checkpoint for page in copies] == [page.checkpoint for page in late] == early
    assert copies == late
    assert late[0] != late[1]
