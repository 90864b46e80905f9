"""Checkpoints: written and read back whole, or refused as damaged."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from attrs import fields
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.core.paging.checkpoint import CHECKPOINT_VERSION, query_fingerprint
from chainapi.core.paging.order import Watermark
from chainapi.errors import CheckpointError

pytestmark = pytest.mark.rule

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


@settings(max_examples=40)
@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    """A checkpoint is one line of ASCII, and equals what `loads` reads from it."""
    text = checkpoint.dumps()
    assert text.isascii()
    assert len(text.splitlines()) == 1
    assert Checkpoint.loads(text) == checkpoint


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
NAMES = st.sampled_from(["chainapi_checkpoint", *(field.name for field in fields(Checkpoint))])


@settings(max_examples=50)
@given(st.text() | st.binary() | JSON | JSON.map(json.dumps))
def test_anything_else_is_refused(text: Any) -> None:
    """Any other text, JSON included, bytes or object is a CheckpointError and nothing else."""
    with pytest.raises(CheckpointError):
        Checkpoint.loads(text)


@settings(max_examples=50)
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


DAMAGES: list[tuple[dict[str, Any], str]] = [
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
]


def test_each_damage_is_named() -> None:
    """The error names the damaged field and its value."""
    failures = []
    for changes, named in DAMAGES:
        try:
            failures.append(f"{changes}: read as {Checkpoint.loads(damaged(**changes))}")
        except CheckpointError as error:
            failures += [] if re.search(named, str(error)) else [f"{changes}: {error}"]
    assert not failures


def test_another_version_says_what_to_do() -> None:
    """A checkpoint of a later format is refused with the advice to upgrade, an older one to begin again."""
    ours = CHECKPOINT_VERSION
    for version, advice in (
        (ours + 1, rf"format {ours + 1}.*upgrade chainapi"),
        (1, "format 1, .*begin again"),
    ):
        with pytest.raises(CheckpointError, match=advice):
            Checkpoint.loads(damaged(chainapi_checkpoint=version))


def test_unknown_fields_are_ignored() -> None:
    """A field unknown to this version is ignored."""
    assert Checkpoint.loads(damaged(colour="red")) == Checkpoint.loads(damaged())


def test_extreme_texts_are_refused() -> None:
    """Texts that nest past the stack, have numbers past the limit, or are empty are refused."""
    texts = ["[" * 100_000, '{"chainapi_checkpoint":' * 100_000, "1" * 5_000, "", "\ufeff{}"]
    texts += [damaged().replace('"/p"', "[" * depth + "]" * depth) for depth in (100, 700, 900, 950)]
    for text in texts:
        with pytest.raises(CheckpointError):
            Checkpoint.loads(text)


PARAMS = (("a", "1"), ("b", "2"))
FINGERPRINT = query_fingerprint("https://h", "/p", PARAMS)


def test_the_fingerprint_depends_on_each_part() -> None:
    """A query has one fingerprint in any process and order of parameters; each part of it changes that."""
    assert FINGERPRINT == "381a19f84eb9943ac706c8ba6299311d"
    assert query_fingerprint("https://h", "/p", PARAMS[::-1]) == FINGERPRINT
    others: list[tuple[str, str, tuple[tuple[str, str], ...]]] = [
        ("https://i", "/p", PARAMS),
        ("https://h", "/q", PARAMS),
        ("https://h", "/p", ()),
        ("https://h", "/p", (("a", "1"), ("b", "3"))),
        ("https://h", "/p", (("a", "1"), ("c", "2"))),
        ("https://h", "/p", (("a", "2"), ("b", "1"))),
        ("https://h", "/p", (*PARAMS, ("b", "2"))),
        ("https://h/", "p", PARAMS),
    ]
    assert len({query_fingerprint(*other) for other in others} | {FINGERPRINT}) == len(others) + 1


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
