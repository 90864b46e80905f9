"""Rows given: hashes of a bounded number of rows, in little memory, and an event beyond that."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi._api.identity import identity_of
from chainapi._api.routes import Route
from chainapi._paging import given as rows_given
from chainapi._paging.given import Assumption, Given
from chainapi.models.codec import PageDecoder

pytestmark = pytest.mark.rule

DECODE = PageDecoder(None, "rows", ())


def page(rows: Sequence[Any]) -> Any:
    """Return the page of these rows."""
    return DECODE(json.dumps({"rows": list(rows)}).encode())


def given_of(key: str = "", order: str = "") -> Given:
    """Return the rows given of a list, for a reader that gets each row once."""
    route = Route("/v1/rows", "rows", key=(key,) if key else (), descending_key=order or None)
    made = Given(identity_of(route, declared=False))
    made.start_counting()
    return made


def fresh(judge: Given, rows: Sequence[Any]) -> list[Any]:
    """Return the rows of a page that the reader gets."""
    stale = judge.judge(page(rows)).stale
    return [row for index, row in enumerate(rows) if index not in stale]


@settings(max_examples=60)
@given(passes=st.lists(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4), min_size=1, max_size=4))
def test_rows_without_a_key_come_as_often_as_the_list_has_them(passes: list[list[list[int]]]) -> None:
    """Over any restarts each row is given as often as the pass with most of it."""
    judge, got, most = given_of(), Counter[int](), Counter[int]()
    for pages in passes:
        for rows in pages:
            got.update(fresh(judge, rows))
        most |= Counter(row for rows in pages for row in rows)
        judge.restart()
    assert got == most
    assert judge.exact


def test_memory() -> None:
    """A row takes at most 100 bytes, with the room of a table that grows; in a list in order, none."""
    sizes = []
    for judge in (given_of("id"), given_of("id", "id")):
        tracemalloc.start()
        for first in range(100_000, 0, -1_000):
            judge.judge(page([{"id": number} for number in range(first, first - 1_000, -1)]))
        judge.leave()
        sizes.append(tracemalloc.get_traced_memory()[0] / 100_000)
        tracemalloc.stop()
    assert sizes[0] < 100
    assert sizes[1] < 5


def test_rows_beyond_the_bound_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound rows come again after a restart, and it is no exact one; this is reported once."""
    monkeypatch.setattr(rows_given, "MOST", 30)
    judge = given_of("id")
    pages = [[{"id": number} for number in range(first, first + 10)] for first in range(0, 60, 10)]
    judged = [judge.judge(page(rows)) for rows in pages]
    assert [*map(list, (rows.refuted for rows in judged))] == [[]] * 3 + [[Assumption.MEMORY]] + [[]] * 2
    judge.restart()
    assert not judge.exact
    assert [len(fresh(judge, rows)) for rows in pages] == [0, 0, 0, 10, 10, 10]
