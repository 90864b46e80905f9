"""Checkpoints: written and read back whole, or refused as damaged."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.client.config import resolve
from chainapi.core.paging.checkpoint import CHECKPOINT_VERSION, query_fingerprint
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.position import Beginning
from chainapi.core.url import Query
from chainapi.errors import CheckpointError

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
MARKS = st.sampled_from([8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(bytes.hex)
COUNTS = st.integers(0, 2**53 - 1)
SECONDS = st.floats(0, 2.0**53 - 1)


@st.composite
def watermarks(draw: st.DrawFn) -> Watermark:
    """Spans of numbers, from new to old, and the marks of rows at some ends.

    Two spans may meet in a number.
    """
    ends = sorted(draw(st.lists(st.integers(), min_size=2, max_size=9)), reverse=True)
    ends = ends[: len(ends) // 2 * 2]
    gaps = tuple(pair for index, pair in enumerate(pairwise(ends)) if index % 2)
    marks = st.lists(MARKS, max_size=3).map(tuple)
    ties = tuple((end, draw(marks)) for end in dict.fromkeys(ends) if draw(st.booleans()))
    at = draw(st.none() | st.sampled_from(ends))
    return Watermark(ends[0], ends[-1], gaps, at, ties, draw(marks) if ties else (), draw(UNICODE))


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any checkpoint that a walk can make."""
    token = draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=99))
    return Checkpoint(
        query=draw(UNICODE),
        path=draw(UNICODE),
        token=token,
        minted_at=None if token is None else draw(SECONDS),
        offset=draw(COUNTS),
        pages=draw(COUNTS),
        rows=draw(COUNTS),
        restarts=draw(COUNTS),
        watermark=draw(st.none() | watermarks()),
        unordered=draw(st.booleans()),
        keyless=draw(st.booleans()),
        bound=draw(st.none() | st.integers()),
        head=tuple(draw(st.lists(MARKS, max_size=3))),
        done=token is None and draw(st.booleans()),
    )


MARK = "0123456789abcdef"


SPANS: tuple[Any, ...] = (
    None,
    9,
    {},
    [],
    [1],
    [1, 2],
    [3, 2, 1],
    [9, 5, 6, 1],
    [2, "1"],
    [2, True],
    [2, 1.0],
)
TIES: tuple[Any, ...] = (None, 5, [5], [[]], [["9"]], [[9, 5]], [[9, "x"]], [[True]], [[9, MARK, None]])
WRONG_WATERMARKS: list[dict[str, Any]] = [
    {"spans": [9, 1], "at": None},
    {"field": 5, "spans": [9, 1], "at": None},
    *({"field": "n", "spans": spans, "at": None} for spans in SPANS),
    *({"field": "n", "spans": [9, 1], "at": at} for at in ("5", True, 5.0, [5])),
    *({"field": "n", "spans": [9, 6, 4, 1], "at": at} for at in (10, 5, 0, 10**400)),
    *({"field": "n", "spans": [9, 1], "at": 1, "ties": ties} for ties in TIES),
    *(
        {"field": "n", "spans": [9, 1], "at": 1, "ties": [[9, MARK]], "met": met}
        for met in (None, 5, MARK, [5], [MARK + "\n"], ["*"])
    ),
]


def damaged(**changes: Any) -> str:
    """Return a good checkpoint's text with some fields changed.

    `...` leaves a field out.
    """
    good = Checkpoint("q", "/p", "t", 5.0, 1, 2, 3, 0, Watermark(9, 1))
    written = json.loads(good.dumps()) | changes
    return json.dumps({name: value for name, value in written.items() if value is not ...})


@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    """A checkpoint read by `loads` equals the one that `dumps` wrote."""
    assert Checkpoint.loads(checkpoint.dumps()) == checkpoint


@given(checkpoints())
def test_a_checkpoint_is_one_line_of_ascii(checkpoint: Checkpoint) -> None:
    """A checkpoint can be kept one a line, in any encoding."""
    text = checkpoint.dumps()
    assert text.isascii()
    assert len(text.splitlines()) == 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
NAMES = st.sampled_from(["chainapi_checkpoint", *(field.name for field in fields(Checkpoint))])


@given(st.text() | st.binary() | JSON)
def test_anything_else_is_refused(text: Any) -> None:
    """Any other text, bytes or object is a CheckpointError and nothing else."""
    with pytest.raises(CheckpointError):
        Checkpoint.loads(text)


@given(JSON)
def test_any_json_is_refused(value: Any) -> None:
    """Any JSON that is no checkpoint is a CheckpointError and nothing else."""
    with pytest.raises(CheckpointError):
        Checkpoint.loads(json.dumps(value))


@given(st.dictionaries(NAMES, JSON, max_size=3))
def test_damaged_fields_are_refused_or_harmless(changes: dict[str, Any]) -> None:
    """Damaged fields give a CheckpointError, or a checkpoint that can be saved again."""
    refusal = ""
    try:
        checkpoint = Checkpoint.loads(damaged(**changes))
    except CheckpointError as error:
        refusal = str(error)
    else:
        assert Checkpoint.loads(checkpoint.dumps()) == checkpoint
    assert len(refusal) < 300
    assert refusal.isprintable()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"query": ...}, "query is missing"),
        ({"query": None}, "query is None"),
        ({"path": 5}, "path is 5"),
        ({"offset": -1}, "offset is -1"),
        ({"offset": True}, "offset is True"),
        ({"offset": 1.5}, "offset is 1.5"),
        ({"offset": 2**53}, "offset is 9007199254740992"),
        ({"rows": "5"}, "rows is '5'"),
        ({"pages": []}, "pages is a list"),
        ({"restarts": {"a": "x" * 500}}, "restarts is a dict"),
        ({"done": 1}, "done is 1"),
        ({"done": True}, "done, and has a token"),
        ({"minted_at": None}, "belong together"),
        ({"token": None}, "belong together"),
        ({"minted_at": 10**400}, "minted_at is a number of more than 100 digits"),
        ({"minted_at": float("nan")}, "minted_at is nan"),
        ({"minted_at": float("inf")}, "minted_at is inf"),
        ({"minted_at": True}, "minted_at is True"),
        ({"token": ""}, "token cannot be sent"),
        ({"token": "a\ud800"}, "token cannot be sent"),
        ({"token": "x" * 4097}, "token cannot be sent"),
        ({"unordered": ...}, "unordered is missing"),
        ({"unordered": 1}, "unordered is 1"),
        ({"keyless": ...}, "keyless is missing"),
        ({"keyless": None}, "keyless is None"),
        ({"watermark": 5}, "watermark is 5"),
        ({"watermark": "9"}, "watermark is '9'"),
        ({"watermark": [9, 1]}, "watermark is a list"),
        ({"watermark": {}}, "watermark is a dict"),
        ({"watermark": {"spans": [9, 1]}}, "watermark is a dict"),
        *(({"watermark": wrong}, "watermark is a dict") for wrong in WRONG_WATERMARKS),
        ({"bound": ...}, "bound is missing"),
        ({"bound": 1.5}, "bound is 1.5"),
        ({"bound": True}, "bound is True"),
        ({"head": None}, "head is None"),
        ({"head": "0123456789abcdef"}, "head is '0123"),
        ({"head": [5]}, "head is a list"),
        ({"head": ["0123456789abcde"]}, "head is a list"),
        ({"head": ["0123456789ABCDEF"]}, "head is a list"),
        ({"head": ["0123456789abcdef\n"]}, "head is a list"),
        ({"head": ["*"]}, "head is a list"),
        ({"head": [MARK + "01234567"]}, "head is a list"),
        ({"head": [MARK * 3]}, "head is a list"),
        ({"chainapi_checkpoint": ...}, "no checkpoint"),
        ({"chainapi_checkpoint": None}, "format is None"),
        ({"chainapi_checkpoint": True}, "format is True"),
        ({"chainapi_checkpoint": 1.0}, "format is 1.0"),
        ({"chainapi_checkpoint": 0}, "format is 0"),
        ({"chainapi_checkpoint": "\x1b[2J"}, "format is '.x1b"),
    ],
)
def test_each_damage_is_named(changes: dict[str, Any], named: str) -> None:
    """The error names the damaged field and its value."""
    with pytest.raises(CheckpointError, match=named):
        Checkpoint.loads(damaged(**changes))


def test_a_newer_version_requires_an_upgrade() -> None:
    """A checkpoint of a later format is refused with the advice to upgrade."""
    with pytest.raises(CheckpointError, match=rf"format {CHECKPOINT_VERSION + 1}.*upgrade chainapi"):
        Checkpoint.loads(damaged(chainapi_checkpoint=CHECKPOINT_VERSION + 1))


def test_an_older_version_requires_a_new_walk() -> None:
    """A checkpoint of the format before is refused with the advice to begin again.

    That format counted nothing.
    """
    with pytest.raises(
        CheckpointError, match=rf"format 1, .* reads format {CHECKPOINT_VERSION}: begin again"
    ):
        Checkpoint.loads(damaged(chainapi_checkpoint=1))


def test_a_checkpoint_without_marks_is_short() -> None:
    """A checkpoint without marks is short: a list with own numbers takes no more room.

    Marks are written only where there are some.
    """
    text = Checkpoint("q", watermark=Watermark(9, 1, at=1)).dumps()
    assert "ties" not in text
    assert "met" not in text
    assert "head" not in text


@pytest.mark.parametrize("bound", [0, -5, 1_700_000_000_000_000_000, -(2**64), None])
def test_a_bound_is_a_key_of_any_size(bound: int | None) -> None:
    """A bound may be any key: before 1970 and in nanoseconds too."""
    checkpoint = Checkpoint("q", bound=bound)
    assert Checkpoint.loads(checkpoint.dumps()) == checkpoint


def test_unknown_fields_are_ignored() -> None:
    """A field unknown to this version is ignored."""
    assert Checkpoint.loads(damaged(colour="red")) == Checkpoint.loads(damaged())


@pytest.mark.parametrize("text", ["[" * 100_000, '{"chainapi_checkpoint":' * 100_000, "1" * 5_000, "", "﻿{}"])
def test_extreme_texts_are_refused(text: str) -> None:
    """Extreme texts are a CheckpointError each.

    They nest past the stack, have numbers past the limit, or are empty.
    """
    with pytest.raises(CheckpointError):
        Checkpoint.loads(text)


@pytest.mark.parametrize("depth", [100, 700, 900, 950])
def test_a_nested_field_is_refused(depth: int) -> None:
    """A field that nests as deep as the reader allows is refused like any other."""
    nested = "[" * depth + "]" * depth
    with pytest.raises(CheckpointError):
        Checkpoint.loads(damaged().replace('"/p"', nested))


PARAMS = (("a", "1"), ("b", "2"))
FINGERPRINT = query_fingerprint("https://h", "/p", PARAMS)


def test_the_fingerprint_is_stable() -> None:
    """A query has the same fingerprint in any process and order of its parameters."""
    assert FINGERPRINT == "381a19f84eb9943ac706c8ba6299311d"
    assert query_fingerprint("https://h", "/p", PARAMS[::-1]) == FINGERPRINT


@pytest.mark.parametrize(
    ("origin", "path", "params"),
    [
        ("https://i", "/p", PARAMS),
        ("https://h", "/q", PARAMS),
        ("https://h", "/p", ()),
        ("https://h", "/p", (("a", "1"), ("b", "3"))),
        ("https://h", "/p", (("a", "1"), ("c", "2"))),
        ("https://h", "/p", (("a", "2"), ("b", "1"))),
        ("https://h", "/p", (*PARAMS, ("b", "2"))),
        ("https://h/", "p", PARAMS),
    ],
)
def test_the_fingerprint_depends_on_each_part(
    origin: str, path: str, params: tuple[tuple[str, str], ...]
) -> None:
    """The fingerprint changes with address, path, and each name or value."""
    assert query_fingerprint(origin, path, params) != FINGERPRINT


def test_the_fingerprint_depends_on_method_and_body() -> None:
    """The fingerprint changes with method and body, but not with the order of the fields of the body."""
    bodies = [None, b"{}", b'{"a":1,"b":[1,2]}', b'{"a":1,"b":[2,1]}', b'{"a":{"b":1}}']
    queries = [(method, body) for method in ("POST", "PATCH") for body in bodies]
    found = {query_fingerprint("https://h", "/p", PARAMS, *query) for query in queries}
    assert len(found | {FINGERPRINT}) == len(queries) + 1
    assert query_fingerprint("https://h", "/p", PARAMS, "POST", b'{"b": [1, 2], "a": 1}') in found


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=3))
def test_any_query_has_a_fingerprint(origin: str, path: str, params: list[tuple[str, str]]) -> None:
    """A fingerprint is 32 hexadecimal digits for any query."""
    fingerprint = query_fingerprint(origin, path, params)
    assert len(fingerprint) == 32
    assert int(fingerprint, 16) >= 0


def test_the_key_is_not_inside() -> None:
    """The API key does not change a checkpoint, and is not inside."""
    one, other = (
        resolve(None, metrics_base_url=None, data_base_url="https://h", api_key=api_key, environment={})[1]
        for api_key in ("first-secret", "second-secret")
    )
    texts = [
        evolve(Checkpoint("", "/p"), query=query_fingerprint(endpoint.base_url, "/p", ())).dumps()  # type: ignore[union-attr]
        for endpoint in (one, other)
    ]
    assert texts[0] == texts[1]
    assert "secret" not in texts[0]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_beginning_reads_as_its_checkpoint(method: str) -> None:
    """The position before the first page has the fields of its checkpoint, which is made once."""
    query = Query("/v1/rows", (("pageSize", "5"),), method=method, body=None if method == "GET" else b"{}")
    beginning = Beginning("https://data.example", query)
    made = beginning.checkpoint()
    shared = {field.name for field in fields(Checkpoint)} - {"query", "path"}
    assert {name: getattr(beginning, name) for name in shared} == {
        name: getattr(made, name) for name in shared
    }
    assert made == Checkpoint(made.query, "/v1/rows" if method == "GET" else "POST /v1/rows")
    assert made.query == query_fingerprint(
        "https://data.example", "/v1/rows", query.params, method, query.body
    )
    assert beginning.checkpoint() is made
