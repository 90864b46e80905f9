"""Resume and restart of a list, tokens that a service refuses, and lists that lead nowhere.

That each row comes once, whatever a service and a reader do, is proved by the machine of `tests/paging`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define

from chainapi import Checkpoint, Page, Pages, Session
from chainapi.errors import (
    APIStatusError,
    BadRequestError,
    ConfigurationError,
    DecodeError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
)
from chainapi.events import Event, KeyNotUnique, OrderBroken, Restarted, TokenRenewed
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.client.services import Listed
from tests.sessions import reaching, simulated

BLOCKS = "/v1/chains/43114/blocks"


def numbered(numbers: Iterable[int], **more: str) -> list[dict[str, Any]]:
    """Return a row for each number."""
    return [{"n": number, **more} for number in numbers]


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


@pytest.mark.parametrize(
    ("rows", "fields", "at", "came", "given", "told"),
    [
        (
            numbered(range(12, 0, -1)),
            {},
            0,
            range(18, 12, -1),
            [12, 11, *range(18, 12, -1), *range(10, 0, -1)],
            [],
        ),
        (
            numbered(range(20, 15, -1)),
            {"descending_key": "n"},
            1,
            [99],
            [20, 19, 99, 18, 17, 16],
            [OrderBroken],
        ),
        (
            numbered(range(8, 2, -1), key="one"),
            {"descending_key": "n", "key": "key"},
            0,
            [],
            [*range(8, 2, -1)],
            [KeyNotUnique],
        ),
    ],
    ids=["grew by more than a page", "broke its order", "refuted its key"],
)
async def test_a_page_that_changed_before_its_resumes(
    rows: list[dict[str, Any]],
    fields: dict[str, Any],
    at: int,
    came: Iterable[int],
    given: list[int],
    told: list[type[Event]],
) -> None:
    """Rows given of a page are matched after resumes, whatever became of it; an event tells it once."""
    service, heard = Listed(rows), list[Event]()
    resume: Checkpoint | None = None
    numbers: list[int] = []
    async with reaching(service, on_event=heard.append) as session:
        for limit in (2, 3, 99):
            pages = session.metrics.list("/v1/rows", resume=resume, **fields)
            numbers += [row["n"] for row in await pages.collect(limit=limit)]
            resume = Checkpoint.loads(pages.checkpoint.dumps())
            service.rows[at:at] = numbered(came) if limit == 2 else []
    assert numbers == given
    assert [type(event) for event in heard if isinstance(event, KeyNotUnique | OrderBroken)] == told


async def test_resume_in_a_second_pass() -> None:
    """A resume after a restart without an order reports that rows may come again."""
    service = Listed(numbered(range(12, 0, -1)))
    heard: list[Event] = []
    async with reaching(service, on_event=heard.append) as session:
        pages = session.metrics.list("/v2/rows")
        await pages.collect(limit=8)
        service.life += 1
        await pages.collect(limit=1)
        assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]
        await session.metrics.list("/v2/rows", resume=pages.checkpoint).collect()
    assert [(event.exact, event.restarts) for event in heard if isinstance(event, Restarted)] == [
        (True, 1),
        (False, 1),
    ]


@pytest.mark.parametrize("key", ["timestamp", None])
@pytest.mark.parametrize("through_text", [False, True])
async def test_restart_from_the_watermark(through_text: bool, key: str | None) -> None:
    """A restart of a bounded query begins at the last row given, or its last tie."""
    points = [{"timestamp": stamp, "value": 0.5} for stamp in range(100, 0, -1)]
    service = Listed(points, 10, end="endTimestamp")
    options: dict[str, Any] = {"descending_key": "timestamp", "key": key, "until": "endTimestamp", "chain": 5}
    async with reaching(service) as session:
        pages = session.metrics.list("/v2/series", **options)
        rows = await pages.collect(limit=34)
        service.life += 1
        for limit in (20, 99):
            if through_text:
                resume = Checkpoint.loads(pages.checkpoint.dumps())
                pages = session.metrics.list("/v2/series", resume=resume, **options)
            rows += await pages.collect(limit=limit)
    assert [row["timestamp"] for row in rows] == list(range(100, 0, -1))
    assert pages.restarts == 1
    bounds = [query.get("endTimestamp") for query in service.queries]
    last = 67 if through_text else 61
    restarted = bounds.index(str(last if key else last + 1))
    assert set(bounds[:restarted]) == {None}
    assert set(bounds[restarted:]) == {bounds[restarted]}
    assert all(query["chain"] == "5" for query in service.queries)


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
    async with simulated(Simulator(rows=60)) as session:
        pages = session.data.list(BLOCKS, page_size=10)
        numbers = []
        async for row in pages.items(limit=15):
            numbers.append(row["blockNumber"])
            row["seen"] = True
        count = 0
        async for page in session.data.list(BLOCKS, page_size=10, resume=pages.checkpoint):
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


@pytest.mark.parametrize("prefetch", [0, 1, 3])
async def test_a_row_without_a_key_loses_no_page(prefetch: int) -> None:
    """A page with a bad key is fetched again, and no page fetched ahead behind it takes its place."""
    service = Listed(numbered(range(20, 0, -1)))
    async with reaching(service) as session:
        pages = session.metrics.list("/v2/rows", descending_key="n", prefetch=prefetch)
        service.rows[5] = {"n": "odd"}
        rows = [*await anext(pages)]
        await asyncio.sleep(1)
        with pytest.raises(DecodeError, match="n") as caught:
            await pages.collect()
        assert caught.value.checkpoint == pages.checkpoint
        service.rows[5] = {"n": 15}
        await asyncio.sleep(1)
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(20, 0, -1))


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
    assert copies == copy.deepcopy(late) == late
    assert [page.response.body for page in copies] == [page.response.body for page in late]
    assert late[0] != late[1]


async def test_ordered_lists_drop_their_marks() -> None:
    """Checkpoints of an ordered list have no marks behind the page of a resume."""
    service, heard = Listed(numbered(range(20, 0, -1))), list[Event]()
    async with reaching(service, on_event=heard.append) as session:
        begun = session.metrics.list("/v1/rows", descending_key="n")
        await begun.collect(limit=2)
        assert len(begun.checkpoint.head) == 2
        rest = session.metrics.list("/v1/rows", descending_key="n", resume=begun.checkpoint)
        await rest.collect(limit=2)
        assert rest.checkpoint.head == ()
        await rest.collect(limit=1)
        assert len(rest.checkpoint.head) == 1, "of the page that is open now"


# Page tokens that a service refuses, and lists that lead nowhere


DAY = 86_400.0
DEAD = (400, 404, 410, 422)  # statuses that may mean a dead token
REFUSAL = b'{"message": ["under maintenance", "until 17:00"], "error": "Refused"}'


@define(eq=False)
class Tokens:
    """Service whose page N is opened by the token ``N.S``, where S counts responses.

    Attributes:
        status: status of the answer to a request for a page, by its number and the S of its token.
        rows: rows of a page, by its number.
        next_token: token of the page behind one, by its number; None for the last page.
        sent: pages that were requested.

    """

    status: Callable[[int, int], int] = lambda page, serial: 200
    rows: Callable[[int], list[Any]] = lambda page: [{"n": page}]
    next_token: Callable[[int], str | None] | None = None
    last: int = 8
    sent: list[int] = Factory(list[int])
    served: int = 0

    async def send(self, request: Request) -> Response:
        """Answer for the page that the token opens."""
        token = parse_qs(urlsplit(request.url).query).get("pageToken", ["1.0"])[0]
        page, _, serial = token.partition(".")
        self.sent.append(int(page))
        status = self.status(int(page), int(serial))
        if status != 200:
            return Response(status, {}, REFUSAL)
        self.served += 1
        rows = self.rows(int(page))
        follows = self.next_token(int(page)) if self.next_token is not None else self._next(int(page))
        return Response(200, {}, json.dumps({"rows": rows, "nextPageToken": follows}).encode())

    def _next(self, page: int) -> str | None:
        return None if page == self.last else f"{page + 1}.{self.served}"

    async def aclose(self) -> None:
        """Close nothing."""


def walking(service: Tokens, heard: list[Event] | None = None, **options: Any) -> tuple[Session, Pages[Any]]:
    """Return a session on the service, and a stream of its list."""
    listen = None if heard is None else heard.append
    session = Session(metrics_base_url="https://metrics.test", transport=service, on_event=listen, **options)
    return session, session.metrics.list("/v1/rows", items="rows")


def once(page: int, status: int = 400) -> Callable[[int, int], int]:
    """Refuse the first request for a page, whatever its token."""
    refused: list[int] = []

    def judge(asked: int, _: int) -> int:
        if asked == page and not refused:
            refused.append(asked)
            return status
        return 200

    return judge


def dying(page: int, served: int) -> Callable[[int, int], int]:
    """Refuse, at the first request for a page, all tokens of the first `served` responses."""
    dead: list[int] = []

    def judge(asked: int, serial: int) -> int:
        dead.extend([served] * (asked == page and not dead))
        return 400 if dead and 0 < serial <= served else 200

    return judge


# What a refusal means


async def test_a_refusal_is_judged_by_the_page_before() -> None:
    """A refused token restarts the walk unless the page before shows the same rows under its older token."""
    changing: list[int] = []

    def changed(page: int) -> list[Any]:
        changing.append(page)
        return [{"n": page, "serial": changing.count(page)}]

    def ends(page: int) -> str | None:
        ended.append(page)
        return None if page == 8 or (page == 3 and ended.count(3) == 2) else f"{page + 1}.{len(ended)}"

    ended: list[int] = []
    everything = list(range(1, 9))
    cases: dict[str, tuple[Tokens, list[int], type[Event]]] = {
        "behind the first page": (Tokens(once(2)), [1, 2, *everything], Restarted),
        "page before refused too": (Tokens(dying(4, 3)), [1, 2, 3, 4, 3, *everything], Restarted),
        "page before the same": (Tokens(once(4)), [1, 2, 3, 4, 3, *everything[3:]], TokenRenewed),
        "page before changed": (Tokens(once(4), changed), [1, 2, 3, 4, 3, *everything], Restarted),
        "page before is the last": (
            Tokens(once(4), next_token=ends),
            [1, 2, 3, 4, 3, *everything],
            Restarted,
        ),
    }
    failures = []
    for name, (service, sent, event) in cases.items():
        heard = list[Event]()
        session, pages = walking(service, heard)
        async with session:
            async for _ in pages:
                pass
        told = [type(one) for one in heard if isinstance(one, Restarted | TokenRenewed)]
        if (service.sent, told) != (sent, [event]):
            failures.append(f"{name}: requested {service.sent}, events {told}")
    assert not failures


async def test_only_statuses_of_a_dead_token_restart() -> None:
    """400, 404, 410 and 422 restart a walk; any other status is raised, and the walk continues after it."""
    failures = []
    for status in (*DEAD, 401, 402, 403, 405, 408, 409, 418, 500, 501):
        session, pages = walking(Tokens(once(2, status)), max_attempts=1)
        async with session:
            raised = 0
            try:
                await pages.collect(limit=4)
            except APIStatusError as error:
                raised = error.status
            rows = await pages.collect()
        dead = status in DEAD
        if (raised, pages.restarts) != ((0, 1) if dead else (status, 0)) or not rows:
            failures.append(f"{status}: raised {raised}, {pages.restarts} restarts, {len(rows)} rows")
    assert not failures


async def test_a_refused_first_page_is_an_error_of_the_request() -> None:
    """The refusal of a request without a token raises its error, at the beginning and after a restart."""
    session, pages = walking(Tokens(once(1)))
    async with session:
        with pytest.raises(BadRequestError):
            await anext(pages)
        assert (len(await pages.collect()), pages.restarts) == (8, 0)
    asked: list[int] = []

    def judge(page: int, _: int) -> int:
        asked.append(page)
        return 400 if page == 2 or len(asked) > 2 else 200

    session, pages = walking(Tokens(judge))
    async with session:
        with pytest.raises(BadRequestError):
            await pages.collect()
        assert pages.restarts == 1


async def test_a_page_that_is_refused_whatever_its_token() -> None:
    """A page refused under a new token too is PageRefusedError with the words; it can be requested again."""
    open_again: list[bool] = []
    service = Tokens(lambda page, _: 404 if page == 4 and not open_again else 200)
    session, pages = walking(service)
    async with session:
        rows = await pages.collect(limit=3)
        for _ in range(2):
            with pytest.raises(PageRefusedError) as caught:
                await pages.collect()
            error = caught.value
            assert (error.status, error.messages) == (404, ("under maintenance", "until 17:00"))
            assert str(error) == "404 Refused for GET /v1/rows: under maintenance; until 17:00"
            assert isinstance(error.__cause__, APIStatusError)
        open_again.append(True)
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(1, 9))
    assert pages.restarts == 0


async def test_an_older_token_past_its_lifetime_checks_nothing() -> None:
    """A walk restarts without another request if the older token has reached its lifetime."""
    service = Tokens(once(4))
    session, pages = walking(service)
    async with session:
        rows = await pages.collect(limit=2)
        await asyncio.sleep(DAY - 1)
        rows += await pages.collect(limit=1)
        await asyncio.sleep(2)
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(1, 9))
    assert service.sent == [1, 2, 3, 4, *range(1, 9)]


async def test_one_token_for_all_pages_cannot_be_checked() -> None:
    """A token that is the same for all pages opens no page before: a refusal restarts the walk."""
    served: list[int] = []

    def rows(_: int) -> list[Any]:
        served.append(1)
        return [{"n": len(served)}]

    refusals = [200, 200, 200, 400]
    service = Tokens(
        lambda *_: refusals.pop(0) if refusals else 200, rows, lambda _: None if len(served) > 6 else "2.0"
    )
    session, pages = walking(service)
    async with session:
        await pages.collect()
    assert service.sent == [1, 2, 2, 2, 1, 2, 2, 2]
    assert pages.restarts == 1


async def test_keys_of_any_form_are_known_again() -> None:
    """Rows come once over a restart whatever their keys are: hashes, other texts, numbers, or a mixture."""
    hexadecimal = "0x" + "ab" * 31
    forms: list[Callable[[int], object]] = [
        lambda page: [f"{hexadecimal}{page}{row}" for row in range(4)],
        lambda page: [f"{hexadecimal}{page}0", f"{hexadecimal}{page} ", f"{hexadecimal}z{page}", "é" * 66],
        lambda page: [f"{hexadecimal}{page}0", page, f"row {page}", -page],
        lambda page: [page, page + 100, page + 200],
    ]
    failures = []
    for form in forms:
        service = Tokens(dying(4, 3), lambda page, form=form: [{"k": key} for key in form(page)])  # type: ignore[misc]
        session = Session(metrics_base_url="https://metrics.test", transport=service)
        async with session:
            rows = await session.metrics.list("/v1/rows", items="rows", key="k").collect()
        held = [{"k": key} for page in range(1, 9) for key in form(page)]  # type: ignore[attr-defined]
        once = [row for place, row in enumerate(held) if row not in held[:place]]
        failures += [] if rows == once else [f"{rows} instead of {once}"]
    assert not failures


# Progress


@pytest.mark.parametrize("on_expired", ["restart", "raise"])
async def test_the_error_of_a_dead_token_has_the_words_of_the_service(on_expired: Any) -> None:
    """A walk that ends for a refused token raises an error with the refusal as its cause and in its text."""
    service = Tokens(lambda page, _: 422 if page == 2 else 200)
    session, pages = walking(service, on_expired=on_expired)
    async with session:
        with pytest.raises(PageTokenExpiredError) as caught:
            await pages.collect()
        with pytest.raises(PageTokenExpiredError):
            await pages.collect()
    place = "" if on_expired == "raise" else ", at the same place as before the last restart"
    words = "(under maintenance; until 17:00)"
    assert str(caught.value) == f"the service refused the page token with status 422 {words}{place}"
    assert isinstance(caught.value.__cause__, APIStatusError)
    assert (pages.restarts, len(service.sent)) == ((0, 2) if on_expired == "raise" else (1, 4))


# Lists that lead nowhere


async def test_pages_without_a_new_row_end_at_a_bound() -> None:
    """1,000 pages in a row without a new row end the walk; a page with one begins the count again."""

    def key(rows: dict[int, int]) -> Callable[[int], list[Any]]:
        return lambda page: [{"n": rows.get(page, 1)}]

    for new, bound in (({}, 1_002), ({900: 2}, 1_901)):
        service = Tokens(rows=key(new), last=5_000)
        session = Session(metrics_base_url="https://metrics.test", transport=service)
        async with session:
            pages = session.metrics.list("/v1/rows", items="rows", key="n")
            with pytest.raises(PaginationLoopError, match="brought nothing"):
                await pages.collect()
        assert bound <= len(service.sent) <= bound + 2


async def test_an_empty_list_of_many_pages_ends() -> None:
    """Any number of empty pages below the bound, and an empty last page, are a list like any other."""
    session, pages = walking(Tokens(rows=lambda page: [{"n": 1}] * (page == 1), last=900))
    async with session:
        assert await pages.collect() == [{"n": 1}]
    assert pages.exhausted
