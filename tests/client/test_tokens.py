"""Page tokens that a service refuses, and lists that lead nowhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define

from chainapi import Pages, Session
from chainapi.errors import (
    APIStatusError,
    BadRequestError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
)
from chainapi.events import Event, Restarted, TokenRenewed
from chainapi.transport import Request, Response

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


def opened(service: Tokens, heard: list[Event] | None = None, **options: Any) -> tuple[Session, Pages[Any]]:
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
        session, pages = opened(service, heard)
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
        session, pages = opened(Tokens(once(2, status)), max_attempts=1)
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
    session, pages = opened(Tokens(once(1)))
    async with session:
        with pytest.raises(BadRequestError):
            await anext(pages)
        assert (len(await pages.collect()), pages.restarts) == (8, 0)
    asked: list[int] = []

    def judge(page: int, _: int) -> int:
        asked.append(page)
        return 400 if page == 2 or len(asked) > 2 else 200

    session, pages = opened(Tokens(judge))
    async with session:
        with pytest.raises(BadRequestError):
            await pages.collect()
        assert pages.restarts == 1


async def test_a_page_that_is_refused_whatever_its_token() -> None:
    """A page refused under a new token too is PageRefusedError with the words; it can be requested again."""
    open_again: list[bool] = []
    service = Tokens(lambda page, _: 404 if page == 4 and not open_again else 200)
    session, pages = opened(service)
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
    session, pages = opened(service)
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
    session, pages = opened(service)
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
    session, pages = opened(service, on_expired=on_expired)
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


async def test_a_restart_has_to_get_further() -> None:
    """Restarts continue while each pass gets a page further; one that ends earlier ends the walk."""
    deepest = {"page": 1}

    def further(page: int, serial: int) -> int:
        if page > deepest["page"]:
            deepest["page"] = page
            dead.append(service.served)
        return 400 if dead and 0 < serial <= dead[-1] else 200

    dead: list[int] = []
    service = Tokens(further)
    session, pages = opened(service)
    async with session:
        assert [row["n"] for row in await pages.collect()] == list(range(1, 9))
    assert pages.restarts == 7

    passes: list[int] = []

    def earlier(page: int, serial: int) -> int:
        passes.extend([page] * (page == 1))
        return 400 if page >= (6 if len(passes) == 1 else 3) or (page == 5 and service.sent[-2] == 6) else 200

    service = Tokens(earlier)
    session, pages = opened(service)
    async with session:
        with pytest.raises(PageTokenExpiredError):
            await pages.collect()
    assert pages.restarts == 1


# Lists that lead nowhere


async def test_pages_in_a_circle_are_a_loop() -> None:
    """A token that comes again with the rows that it had is a loop, whatever the number of pages between."""
    failures = []
    for lead, cycle in ((0, 1), (3, 1), (0, 2), (5, 7), (20, 400)):

        def follows(page: int, lead: int = lead, cycle: int = cycle) -> str:
            return f"{page + 1 if page < lead + cycle else lead + 1}.0"

        service = Tokens(next_token=follows)
        session, pages = opened(service)
        async with session:
            with pytest.raises(PaginationLoopError) as caught:
                await pages.collect()
        rows = [row["n"] for row in caught.value.partial]
        if (
            rows[: lead + cycle] != list(range(1, lead + cycle + 1))
            or len(service.sent) > lead + 2 * cycle + 1
        ):
            failures.append(f"{cycle} pages behind {lead}: {len(rows)} rows of {len(service.sent)} requests")
    assert not failures


async def test_one_token_with_new_rows_is_no_loop() -> None:
    """A service may give one token for all pages, as long as their rows differ."""
    served: list[int] = []

    def rows(_: int) -> list[Any]:
        served.append(1)
        return [{"n": len(served)}]

    session, pages = opened(Tokens(rows=rows, next_token=lambda _: "2.0" if len(served) < 1_100 else None))
    async with session:
        assert len(await pages.collect()) == 1_100


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
    session, pages = opened(Tokens(rows=lambda page: [{"n": 1}] * (page == 1), last=900))
    async with session:
        assert await pages.collect() == [{"n": 1}]
    assert pages.exhausted
