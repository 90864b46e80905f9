"""Decoding of bodies: a page, a resource or the messages of an error, or a DecodeError with its place."""

from __future__ import annotations

import html
import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import MetricPoint
from chainapi.errors import APIStatusError, ConfigurationError, DecodeError
from chainapi.testing import run
from tests.answers import called, failure_of, page_of, refused, resource_of, rows_of
from tests.documents import DEEP
from tests.models.lists import Bodies
from tests.sessions import Answering, reaching

LONGEST_TOKEN = 4_096


def points(body: bytes) -> Any:
    """Return the page of a metric that a body is."""
    return called("metrics.avg_tps", body)


# The envelope


def test_a_page_of_a_metric() -> None:
    """Pages have rows, token and the other fields of the route; missing ones are None."""
    page = points(
        b'{"results":[{"timestamp":86400,"value":1.5},{"timestamp":0,"value":2}],'
        b'"status":200,"lastRun":90000,"nextPageToken":"t"}'
    )
    assert page.items == [MetricPoint(86_400, 1.5), MetricPoint(0, 2.0)]
    assert type(page.items[1].value) is float
    assert (page.next_page_token, page.status, page.last_run) == ("t", 200, 90_000)
    page = points(b'{"results":[],"status":null}')
    assert (page.status, page.last_run) == (None, None)


def test_the_page_token() -> None:
    """A token that is absent, null or empty ends the list; any other is a text that fits into a URL."""
    for end in (b"", b',"nextPageToken":null', b',"nextPageToken":""'):
        assert page_of(b'{"rows":[1]%b}' % end).next_page_token is None
    longest = "&#\n+%" * (LONGEST_TOKEN // 5)
    body = json.dumps({"rows": [], "nextPageToken": longest}).encode()
    assert page_of(body).next_page_token == longest
    for token in list[Any]([5, True, [], {}, 1.5, "x" * (LONGEST_TOKEN + 1)]):
        error = refused(page_of, json.dumps({"rows": [], "nextPageToken": token}).encode())
        assert (error.path, error.malformed) == ("$.nextPageToken", False)


def test_a_list_field_may_be_null() -> None:
    """Null in place of the list is an empty list, also with a token."""
    page = page_of(b'{"rows":null,"nextPageToken":"t"}')
    assert (page.items, page.next_page_token) == ([], "t")


async def test_each_page_has_the_fields_of_its_own_response() -> None:
    """Each page has the fields of its own response, also after a page with equal or other ones."""
    runs = (7, 7, None, 8, 7)
    points = [{"results": [{"timestamp": 9 - number, "value": 1}]} for number in range(len(runs))]
    more: list[Any] = [{} if run is None else {"lastRun": run} for run in runs]
    service = Bodies(bodies=tuple(point | fields for point, fields in zip(points, more, strict=True)))
    async with reaching(service) as session:
        assert [page.last_run async for page in session.metrics.avg_tps(1)] == [*runs]


# The list field


def test_the_only_list_is_found() -> None:
    """Without `items=`, the only list of the first page is the list field, or else the only null."""
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"blocks": [1]}, "blocks"),
        ({"n": 1, "utxos": [1], "nextPageToken": "t", "x": None}, "utxos"),
        ({"chains": [], "more": None}, "chains"),
        ({"transactions": None, "n": 1}, "transactions"),
    ]
    for body, found in bodies:
        assert rows_of(json.dumps(body).encode(), items=None) == (body[found] or [])


async def test_later_pages_keep_the_list_field() -> None:
    """The field that the first page showed is the list field of later pages, whatever else is a list."""
    async with reaching(Bodies(bodies=({"rows": [1]}, {"rows": [5], "other": [6]}))) as session:
        rows: list[Any] = await session.data.list("/v1/x").collect()
    assert rows == [1, 5]


async def test_of_several_lists_the_one_of_the_route_is_read() -> None:
    """A second list beside that of the route, named as its path ends, does not keep it from being read."""
    chain = {"chainId": "43114", "chainName": "Avalanche (C-Chain)"}
    body = json.dumps({"deprecated": [], "chains": [chain]}).encode()
    async with reaching(Answering(body)) as session:
        assert [one.chain_id for one in await session.data.chains().collect()] == [43114]
        assert await session.data.list("/v1/chains").collect() == [chain]
        with pytest.raises(DecodeError, match="several fields"):
            await session.data.list("/v1/others").collect()


UNCLEAR: list[tuple[Any, str]] = [
    ({"a": [], "b": []}, "several fields could hold the rows: choose one with items= (a, b)"),
    ({"a": None, "b": None}, "(a, b)"),
    ({"a": 1, "b": "x"}, "no field holds a list; the fields are: a, b"),
    ({"nextPageToken": "t"}, "the fields are: none"),
    ({'a"\x1b': []}, "the name of the list field cannot be used: a"),
    ([], "expected an object, got list"),
    (None, "expected an object, got NoneType"),
    ("ok", "expected an object, got str"),
    (5, "expected an object, got int"),
    ({"message": ["no"], "error": "Not Found", "statusCode": 404}, "an error body"),
    ({"message": ["no"], "statusCode": 404}, "an error body"),
    ({"error": "Not Found", "statusCode": 404, "blocks": []}, "an error body"),
]


def test_a_page_without_a_clear_list() -> None:
    """An ambiguous list field is an error with the candidates; an error body is no page of messages."""
    for body, reason in UNCLEAR:
        error = refused(page_of, json.dumps(body).encode(), items=None)
        assert error.path == "$", body
        assert reason in str(error), body


def test_bad_names_of_a_list_field() -> None:
    """A name that no list field can have is refused before a request."""
    for items in list[Any](["nextPageToken", 'a"b', "a\\b", "a\nb", "a\ud800", 5, b"blocks", ["blocks"]]):
        transport = Answering()
        with pytest.raises(ConfigurationError, match=r"^items="):
            reaching(transport).data.list("/v1/x", items=items)
        assert transport.requests == []


def test_of_two_lists_of_one_name_the_last_counts() -> None:
    """If an object has two fields of the same name, the last one counts: of lists, and of other values."""
    assert rows_of(b'{"rows":[1],"rows":[2,3]}') == [2, 3]
    assert resource_of(b'{"a":1,"a":2}') == {"a": 2}


# What can be wrong with a body

WRONG_POINTS: list[tuple[bytes, str]] = [
    (b'{"timestamp":1}', ".value"),
    (b'{"value":1}', ".timestamp"),
    (b'{"timestamp":null,"value":1}', ".timestamp"),
    (b'{"timestamp":1,"value":null}', ".value"),
    (b'{"timestamp":"1.0","value":1}', ".timestamp"),
    (b'{"new":0,"timestamp":"x","value":1}', ".timestamp"),
    (b'{"timestamp":1,"value":"1.5"}', ".value"),
    (b'{"timestamp":true,"value":1}', ".timestamp"),
    (b'{"timestamp":1,"value":false}', ".value"),
    (b'{"timestamp":1.5,"value":1}', ".timestamp"),
    (b'{"timestamp":1e18,"value":1}', ".timestamp"),
    (b'{"timestamp":9007199254740993.0,"value":1}', ".timestamp"),
    (b'{"timestamp":1,"value":[]}', ".value"),
    (b'{"timestamp":1,"value":1e400}', ".value"),
    (b'{"timestamp":1,"value":-1e400}', ".value"),
    (b'{"timestamp":' + b"1" * 5_000 + b',"value":1}', ".timestamp"),
    (b"null", ""),
    (b"5", ""),
    (b"[]", ""),
]


def test_wrong_rows_are_refused_with_their_place() -> None:
    """A row with a field that is missing, null, of a wrong type or out of range is named by its JSON path."""
    for row, path in WRONG_POINTS:
        error = refused(points, b'{"results":[{"timestamp":1,"value":2.0},%b]}' % row)
        assert (error.path, error.malformed, error.row) == (f"$.results[1]{path}", False, 1), row[:50]
        assert len(error.reason) < 120, "no part of the body is in the error"


def test_wrong_envelopes_are_refused() -> None:
    """A wrong envelope is an error in place of an empty page, and so is an error body in a 200."""
    for body, path in (
        (b"{}", "$.results"),
        (b"null", "$"),
        (b"[]", "$"),
        (b'"ok"', "$"),
        (b"5", "$"),
        (b'{"results":{}}', "$.results"),
        (b'{"results":"x"}', "$.results"),
        (b'{"results":[],"status":"fine"}', "$.status"),
        (b'{"results":[],"lastRun":1.5}', "$.lastRun"),
        (b'{"message":["no"],"error":"Not Found","statusCode":404}', "$.results"),
    ):
        assert refused(points, body).path == path, body


NO_JSON = [
    b"",
    b" ",
    b"<html>",
    b"NaN",
    b'{"results":[{"timestamp":1,"value":NaN}]}',
    b'{"results":[{"timestamp":1,"value":-Infinity}]}',
    b'{"results":[]} trailing',
    b'{"results":[]}{}',
    b'{"results":[',
    b'{"results":[],}',
    b"{'results':[]}",
    b'\xef\xbb\xbf{"results":[]}',
    '{"results":[]}'.encode("utf-16"),
    b'{"results":[],"nextPageToken":"\xff"}',
    b'{"results":[],"nextPageToken":"\\ud800"}',
    b'{"results":[],"nextPageToken":"a\\udfffb"}',
    b'{"results":[],"nextPageToken":"a\nb"}',
    b"\x1f\x8b\x08\x00",
]


def test_what_is_no_json_is_malformed() -> None:
    """A body that is no JSON may have been damaged on its way: the error says so, and a retry may heal it."""
    for body in NO_JSON:
        error = refused(points, body)
        assert error.malformed, body
        assert error.path == ("$.results[0]" if b"[{" in body else "$"), body
        assert refused(resource_of, body).malformed, body
    point = b'{"timestamp":1,"value":2.0}'
    for body in (b"", b" ", point + b"," + point, point + b",", b"," + point):
        assert refused(resource_of, body, MetricPoint).malformed, body


def test_deep_nesting_is_refused() -> None:
    """A body that nests deeper than the stack raises DecodeError, of whatever it consists."""
    for nested in (b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP):
        refused(resource_of, nested)
        refused(points, b'{"results":[],"x":' + nested)
        refused(page_of, b'{"rows":[],"x":' + nested)


def test_extremes_that_are_fine() -> None:
    """Unknown fields, duplicate names, -0, NUL and whole numbers of any size are valid JSON."""
    page = points(
        b'{"results":[{"timestamp":-5,"value":-0,"new":{"a":[1]}}],"results2":0,"status":1,"status":2}'
    )
    assert (page.items, page.status, page.last_run) == ([MetricPoint(-5, 0.0)], 2, None)
    big = rows_of(b'{"rows":[9007199254740993,1000000000000000000000000000001,"\\u0000",1e300,"42.42"]}')
    assert big == [2**53 + 1, 10**30 + 1, "\0", 1e300, "42.42"]
    assert type(big[0]) is int


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("rows", "results", "nextPageToken", "status", "lastRun", "message", "error", "statusCode")
FIELDS = st.sampled_from([*NAMES, "timestamp", "value"])
DOCUMENTS = JSON | st.dictionaries(FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON)))


@settings(max_examples=30)
@given(st.binary() | st.text().map(str.encode) | DOCUMENTS.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_decode_or_raise_decode_error(body: bytes) -> None:
    """Any bytes are a page or a resource, or raise DecodeError and nothing else."""
    for read in (page_of, points, resource_of):
        try:
            read(body)
        except DecodeError as error:
            assert error.path.startswith("$")  # noqa: PT017 - some bodies raise none
            assert str(error).isprintable()  # noqa: PT017


# Times


def test_times() -> None:
    """A timestamp has an aware datetime beside it; one outside the calendar is kept, and only that fails."""
    for timestamp in (0, -1, -62_135_596_800, 1_700_000_000, 253_402_300_799):
        time = points(b'{"results":[{"timestamp":%d,"value":1}]}' % timestamp).items[0].time
        assert time.tzinfo is UTC
        assert (time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() == timestamp
    for timestamp in (1_700_000_000_000, -(10**12), 10**18, -(10**30)):
        point = points(b'{"results":[{"timestamp":%d,"value":1}]}' % timestamp).items[0]
        assert point.timestamp == timestamp
        with pytest.raises(ValueError, match=f"timestamp {timestamp} is outside the years 1 to 9999"):
            _ = point.time


# Error bodies


def test_error_bodies() -> None:
    """An error body of any form gives its messages, safe to print: texts, lists, numbers, HTML, nothing."""
    for body, error, messages in (
        (b'{"message":["a","b"],"error":"Bad Request","statusCode":400}', "Bad Request", ("a", "b")),
        (b'{"message":"a","error":"Bad Request"}', "Bad Request", ("a",)),
        (b'{"error":"Bad Request"}', "Bad Request", ()),
        (b'{"message":null}', "", ()),
        (b'{"message":5,"error":6}', "", ("5",)),
        (b'{"message":[true,{"a":[null]},"x"]}', "", ("true", '{"a":[null]}', "x")),
        (b"{}", "", ()),
        (b"", "", ()),
        (b"  \n", "", ()),
        (b"<html>no</html>", "", ("<html>no</html>",)),
        (b"[1]", "", ("[1]",)),
        (b'"no"', "", ('"no"',)),
        (b"\xff\xfe", "", ("\ufffd\ufffd",)),
        (b'{"message":["%s {0} %(a)s"]}', "", ("%s {0} %(a)s",)),
        (b'{"message":["\\u001b[2J\\u009b\\n"],"error":"\\u0007"}', "\\x07", ("\\x1b[2J\\x9b\\n",)),
        (b'{"message":["ok"],"nextPageToken":"t"}', "", ("ok",)),
    ):
        made = failure_of(body)
        assert (made.error, made.messages) == (error or "Bad Request", messages), body


def test_error_bodies_are_bounded() -> None:
    """An error keeps at most 20 messages of 300 characters, however long or deep the body is."""
    long = "x" * 1_000_000
    cut = "x" * 300 + "…"
    assert failure_of(long.encode()).messages == (cut,)
    made = failure_of(json.dumps({"message": [long[:999]] * 1_000, "error": long}).encode())
    assert (made.error, made.messages) == (cut, (cut,) * 20)
    limit = sys.getrecursionlimit()
    for depth in (
        *range(limit // 2, limit + 9),
        DEEP,
    ):  # at one of them, what was decoded is too deep to show
        (message,) = failure_of(b'{"message":' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)).messages
        assert len(message) <= 301


def masked(body: str, key: str) -> str:
    """Return the error of a session with a key, from a service that refuses it with a body."""

    async def read() -> None:
        transport = Answering(body.encode(), status=400)
        async with reaching(transport, api_key=key, max_attempts=1) as session:
            await session.data.get("/v1/x")

    with pytest.raises(APIStatusError) as caught:
        run(read())
    return str(caught.value)


def test_an_echoed_key_is_masked() -> None:
    """A key that the service echoes is masked in any form, before a text is cut."""
    key = "k3y'\"\\<&>/e"
    bodies = [
        json.dumps([key]),
        json.dumps({"message": [key, {"key": key, key: [key]}], "error": key}),
        f"<p>{html.escape(key, quote=False)}</p>",
        " " * 590 + key,
        "x" * 297 + key,
    ]
    found = [body for body in bodies if "k3y" in masked(body, key)]
    assert not found
    long = [
        (length, lead, times)
        for length in (300, 600, 4_000)
        for lead in (0, 299, 599, 2_399)
        for times in (1, 3)
        if "K" in masked("x" * lead + "K" * length * times, "K" * length)
    ]
    assert not long
