"""Rows survive a key or an order refuted later, and tokens refused twice."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define

from chainapi import Checkpoint, Session
from chainapi.errors import PageRefusedError
from chainapi.events import Event, KeyNotUnique, OrderBroken, Restarted
from chainapi.transport import Request, Response


@define
class Listed:
    """Rows by position, in pages of four; tokens die, and a page is shut, on request."""

    rows: list[dict[str, Any]] = Factory(list)
    life: int = 0
    shut: int | None = None

    async def send(self, request: Request) -> Response:
        """Return a page, and a token that holds its position."""
        query = parse_qs(urlsplit(request.url).query)
        life, _, at = query.get("pageToken", [f"{self.life}/0"])[0].partition("/")
        first = int(at)
        if life != str(self.life) or first == self.shut:
            message = "expired" if life != str(self.life) else "under maintenance until 17:00"
            return Response(400, {}, json.dumps({"message": message}).encode())
        body: dict[str, object] = {"rows": self.rows[first : first + 4]}
        if first + 4 < len(self.rows):
            body["nextPageToken"] = f"{self.life}/{first + 4}"
        return Response(200, {}, json.dumps(body).encode())

    async def aclose(self) -> None:
        """Do nothing."""


def numbered(*numbers: int) -> list[dict[str, Any]]:
    """Return rows with these numbers, all with one key."""
    return [{"n": number, "key": "one"} for number in numbers]


def session(service: Listed, heard: list[Event]) -> Session:
    """Return a session that reaches `service`."""
    return Session(metrics_base_url="https://metrics.test", transport=service, on_event=heard.append)


async def test_a_token_that_dies_after_it_was_renewed() -> None:
    """A page refused with a new token is checked again."""
    service, heard = Listed(numbered(*range(20, 0, -1))), list[Event]()
    async with session(service, heard) as opened:
        pages = opened.metrics.list("/v1/rows", descending_key="n")
        rows = await pages.collect(limit=12)
        service.shut = 12
        for _ in range(2):
            with pytest.raises(PageRefusedError, match="maintenance"):
                await pages.collect()
        service.shut, service.life = None, 1
        rows += await pages.collect()
    assert [row["n"] for row in rows] == list(range(20, 0, -1))
    assert pages.restarts == 1


async def test_key_refuted_after_a_resume() -> None:
    """Rows whose key is refuted after a resume are matched by the marks of their keys."""
    service, heard = Listed(numbered(8, 7, 6, 5, 4, 3)), list[Event]()
    async with session(service, heard) as opened:
        begun = opened.metrics.list("/v1/rows", descending_key="n", key="key")
        numbers = [row["n"] for row in await begun.collect(limit=2)]
        resume = Checkpoint.loads(begun.checkpoint.dumps())
        rest = opened.metrics.list("/v1/rows", descending_key="n", key="key", resume=resume)
        numbers += [row["n"] for row in await rest.collect()]
    assert [event.page for event in heard if isinstance(event, KeyNotUnique)] == [1]
    assert numbers == [8, 7, 6, 5, 4, 3]


async def test_order_that_breaks_in_a_later_pass() -> None:
    """Rows of an earlier pass are left out although the order breaks in a later one."""
    service, heard = Listed(numbered(20, 19, 18, 17, 16, 15, 14, 13, 12, 11)), list[Event]()
    async with session(service, heard) as opened:
        pages = opened.metrics.list("/v1/rows", descending_key="n")
        numbers = [row["n"] for row in await pages.collect(limit=8)]
        service.rows.insert(2, {"n": 99})
        service.life = 1
        numbers += [row["n"] for row in await pages.collect()]
    assert numbers == [20, 19, 18, 17, 16, 15, 14, 13, 99, 12, 11]
    assert sum(isinstance(event, OrderBroken) for event in heard) == 1
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]


async def test_order_that_breaks_in_the_page_of_a_resume() -> None:
    """Rows given of a page are left out after a resume although it breaks the order."""
    service, heard = Listed(numbered(20, 19, 18, 17, 16)), list[Event]()
    async with session(service, heard) as opened:
        begun = opened.metrics.list("/v1/rows", descending_key="n")
        numbers = [row["n"] for row in await begun.collect(limit=2)]
        service.rows.insert(1, {"n": 99})
        rest = opened.metrics.list("/v1/rows", descending_key="n", resume=begun.checkpoint)
        numbers += [row["n"] for row in await rest.collect()]
    assert numbers == [20, 19, 99, 18, 17, 16]


async def test_ordered_lists_drop_their_marks() -> None:
    """Checkpoints of an ordered list have no marks behind the page of a resume."""
    service, heard = Listed(numbered(*range(20, 0, -1))), list[Event]()
    async with session(service, heard) as opened:
        begun = opened.metrics.list("/v1/rows", descending_key="n")
        await begun.collect(limit=2)
        assert len(begun.checkpoint.head) == 2
        rest = opened.metrics.list("/v1/rows", descending_key="n", resume=begun.checkpoint)
        await rest.collect(limit=2)
        assert rest.checkpoint.head == ()
        await rest.collect(limit=1)
        assert len(rest.checkpoint.head) == 1, "of the page that is open now"
