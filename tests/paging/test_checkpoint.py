"""Checkpoints: written and read back whole, or refused as damaged."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi._paging.checkpoint import FORMAT, Watermark, query_fingerprint
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
    spans = tuple(zip(ends[::2], ends[1::2], strict=False))
    marks = st.lists(MARKS, max_size=3).map(tuple)
    ties = tuple((end, draw(marks)) for end in dict.fromkeys(ends) if draw(st.booleans()))
    at = draw(st.none() | st.sampled_from([end for span in spans for end in span]))
    return Watermark(draw(UNICODE), spans, at, ties, draw(marks) if ties else ())


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
    [[1]],
    [[1, 2]],
    [[9, 5], [6, 1]],
    [[2, "1"]],
    [[2, True]],
    [[2, 1.5]],
)
TIES: tuple[Any, ...] = (
    None,
    5,
    [5],
    [[]],
    [["9"]],
    [[9, 5]],
    [[9, ["x"]]],
    [[True, []]],
    [[9, [MARK, None]]],
)
WRONG_WATERMARKS: list[Any] = [
    5,
    "9",
    {},
    {"number_field": 5, "spans": [[9, 1]]},
    *({"number_field": "n", "spans": spans} for spans in SPANS),
    *({"spans": [[9, 1]], "at": at} for at in ("5", True, 5.5, [5])),
    *({"spans": [[9, 6], [4, 1]], "at": at} for at in (10, 5, 0, 10**400)),
    *({"spans": [[9, 1]], "at": 1, "ties": ties} for ties in TIES),
    *({"spans": [[9, 1]], "at": 1, "met": met} for met in (None, 5, MARK, [5], [MARK + "x"], ["*"])),
]


def damaged(**changes: Any) -> str:
    """Return a good checkpoint's text with some fields changed.

    `...` leaves a field out.
    """
    good = Checkpoint("q", "/p", "t", 5.0, 1, 2, 3, 0, Watermark("n", ((9, 1),)))
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
NAMES = st.sampled_from(["chainapi_checkpoint", *Checkpoint.__struct_fields__])


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
    ({"query": ...}, "query"),
    ({"query": None}, r"\$\.query"),
    ({"path": 5}, r"\$\.path"),
    *(({"offset": value}, r"int.*\$\.offset") for value in (-1, True, 1.5, 2**53)),
    ({"rows": "5"}, r"\$\.rows"),
    ({"pages": []}, r"\$\.pages"),
    ({"restarts": {"a": "x" * 500}}, r"\$\.restarts"),
    ({"done": 1}, r"\$\.done"),
    ({"done": True}, "done, and has a token"),
    ({"minted_at": None}, "belong together"),
    ({"token": None}, "belong together"),
    *(({"minted_at": value}, r"\$\.minted_at") for value in (10**400, float("inf"), float("nan"), -1, True)),
    *(({"token": token}, "token cannot be sent") for token in ("", "a\ud800", "x" * 4097)),
    ({"unordered": 1}, r"\$\.unordered"),
    ({"keyless": None}, r"\$\.keyless"),
    *(({"watermark": wrong}, "watermark") for wrong in WRONG_WATERMARKS),
    ({"bound": 1.5}, r"\$\.bound"),
    ({"bound": True}, r"\$\.bound"),
    *(
        ({"head": head}, r"\$\.head")
        for head in (None, MARK, [5], [MARK[1:]], [MARK.upper()], ["*"], [MARK * 3])
    ),
    *(({"following": value}, r"\$\.following") for value in (1, None)),
    ({"following": True, "watermark": ...}, "has no watermark"),
    *(
        ({"range": value}, r"\$\.range")
        for value in ("a", [1, 2], {"start": "1"}, {"start": True, "end": 2}, 0)
    ),
    ({"chainapi_checkpoint": ...}, "no checkpoint"),
    ({"chainapi_checkpoint": None}, "format is None"),
    ({"chainapi_checkpoint": True}, "format is True"),
    ({"chainapi_checkpoint": 1.0}, "format is 1.0"),
    ({"chainapi_checkpoint": 0}, "format is 0"),
    ({"chainapi_checkpoint": "\x1b[2J"}, "format is '.x1b"),
]


def test_each_damage_is_named() -> None:
    """The error names the damaged field."""
    failures = []
    for changes, named in DAMAGES:
        try:
            failures.append(f"{changes}: read as {Checkpoint.loads(damaged(**changes))}")
        except CheckpointError as error:
            failures += [] if re.search(named, str(error)) else [f"{changes}: {error}"]
    assert not failures


def test_another_version_says_what_to_do() -> None:
    """A text of a later format is refused with the advice to upgrade, an older one to begin again."""
    ours = FORMAT
    for version, advice in (
        (ours + 1, rf"format {ours + 1}.*upgrade chainapi"),
        (ours - 1, f"format {ours - 1}, .*begin again"),
    ):
        with pytest.raises(CheckpointError, match=advice):
            Checkpoint.loads(damaged(chainapi_checkpoint=version))
    with pytest.raises(CheckpointError, match=r"it is not JSON; store the text of checkpoint\.dumps\(\)"):
        Checkpoint.loads(str(Checkpoint("")))


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
