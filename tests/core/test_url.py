"""Queries of requests: refused values, and exact transfer of accepted ones."""

from __future__ import annotations

import enum
import json
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from chainapi._api.routes import route_name
from chainapi._http.query import (
    MAX_PAGE_SIZE,
    MAX_SEGMENT,
    Query,
    checked_page_size,
    checked_path,
    path_segment,
    query_params,
)
from chainapi.errors import ConfigurationError

pytestmark = pytest.mark.rule

BASE = "https://example.com/prefix"
UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


def arrived(url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return path and parameters as a server reads them."""
    parts = urlsplit(url)
    assert url.isascii()
    assert not parts.fragment
    assert f"{parts.scheme}://{parts.netloc}" == "https://example.com"
    return unquote(parts.path, errors="strict"), parse_qsl(
        parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict"
    )


@given(token=UNICODE, params=st.dictionaries(UNICODE.filter(bool), UNICODE, max_size=3))
@example("a&b=c#d+e%20f?g\nh\r\x00", {})
@example("x" * 100_000, {"a": "&pageToken=other"})
@example("pageToken=&é€", {"pageToken[]": "x", "q": "a&b#c+d\ne%26"})
def test_a_page_token_comes_back_exactly(token: str, params: dict[str, str]) -> None:
    """A page token is sent as exactly one parameter, unchanged and last."""
    params.pop("pageToken", None)
    params.pop("pageSize", None)
    path, read = arrived(Query("/v1/blocks", query_params(params)).url(BASE, token))
    assert path == "/prefix/v1/blocks"
    assert read == [*params.items(), ("pageToken", token)]


def test_a_plain_query() -> None:
    """A URL without parameters and token is the base address and the path."""
    query = Query("/v1/chains")
    assert query.url(BASE) == f"{BASE}/v1/chains"
    assert query.url(BASE, "t") == f"{BASE}/v1/chains?pageToken=t"
    assert query.where == "GET /v1/chains"
    assert Query("/v1/chains", (("a", "1"),)).url(BASE) == f"{BASE}/v1/chains?a=1"
    assert repr(query) == "Query('GET /v1/chains', ())"


def test_a_bound_replaces_the_end_of_the_range() -> None:
    """A bound replaces the upper end of the caller's range and no other parameter."""
    query = Query("/v1/points", (("end", "9"), ("start", "1")), "metrics:/v1/points", 2.0)
    for bound in (0, -5, 10**30):
        bounded = query.replaced("end", bound)
        assert bounded == Query("/v1/points", (("start", "1"), ("end", str(bound))), query.route, query.cost)
        assert arrived(bounded.url(BASE, "t"))[1] == [("start", "1"), ("end", str(bound)), ("pageToken", "t")]
        assert Query("/v1/points").replaced("end", bound).params == (("end", str(bound)),)


# Paths.


@given(path=st.text())
@example("/v1/chains/%2E%2e/x")
@example("/a/b\n")
@example("/v1/chains/%2f..%2fx")
@example("//other.example.com/x")
@example("/é/日本")
def test_a_path_leads_where_it_shows_or_is_refused(path: str) -> None:
    """A path is refused, or arrives unchanged, never at another route or host."""
    try:
        checked = checked_path(path)
    except ConfigurationError:
        return
    assert checked == path
    read, params = arrived(Query(path).url(BASE))
    assert read == f"/prefix{path}"
    assert not params
    encoded = urlsplit(Query(path).url(BASE)).path
    assert encoded.count("/") == path.count("/") + 1
    assert not {".", "..", ""} & {unquote(segment) for segment in encoded[1:].split("/")}
    assert URL(Query(path).url(BASE)).path == read  # also for a reader that tidies paths up


BAD_PATHS: tuple[object, ...] = (
    *("", "v1/chains", "/", "/v1//chains", "/v1/chains/", "/v1/../chains", "/v1/./chains", "/.."),
    *("/v1/%2e%2E/x", "/v1/.%2e/x", "/v1/chains?a=b", "/v1/chains#a", "/v1\\chains", "/v1/a b", "/v1/a\nb"),
    *("/v1/a\x00b", "/v1/a\x7fb", "/v1/a\x9bb", "/v1/a\u2028b", "/v1/a\ud800b", "https://example.com/v1"),
    *(None, 5, b"/v1/chains", ["/v1"]),
)


@given(value=st.text() | st.integers())
@example("%2e%2e")
@example("a;b")
@example("-1")
def test_a_segment_stays_one_segment_or_is_refused(value: str | int) -> None:
    """An identifier is refused, or arrives unchanged as one segment of the path."""
    try:
        segment = path_segment("chain_id", value)
    except ConfigurationError:
        return
    read, params = arrived(Query(f"/v1/chains/{segment}/blocks").url(BASE))
    assert read.split("/") == ["", "prefix", "v1", "chains", str(value), "blocks"]
    assert not params
    assert checked_path(f"/v1/chains/{segment}/blocks")


class Chain(enum.Enum):
    """A chain by its name."""

    C = "mainnet"


class Named(str, enum.Enum):  # noqa: UP042 - its str() is no value
    """A chain by its name, as texts were enumerated of old."""

    C = "mainnet"


class Number(enum.IntEnum):
    """A chain by its number."""

    C = 43114


def test_good_segments() -> None:
    """Whole numbers, texts, and members of enumerations are identifiers."""
    longest = "x" * MAX_SEGMENT
    for text in ("0", "43114", "mainnet", "a:b", "...", "é", longest):
        assert path_segment("chain_id", text) == text
    for value, segment in ((43114, "43114"), (Chain.C, "mainnet"), (Named.C, "mainnet"), (Number.C, "43114")):
        assert path_segment("chain_id", value) == segment


BAD_SEGMENTS: tuple[object, ...] = (
    *("", ".", "..", "a/b", "a?b", "a#b", "a\\b", "%2e%2e", "a%2fb", "a b", "a\nb", "a\r", "\x00", "\x7f"),
    *("\x9b2J", "\u2029", "\ud800", "x" * (MAX_SEGMENT + 1), -1, -(10**5_000), 10**5_000),
    *(True, 1.0, None, b"43114", ["43114"]),
)


# Parameters.


def test_values_as_they_are_sent() -> None:
    """Values of each type have one form, sets one order; None is left out."""
    forms: list[tuple[object, str]] = [
        *(("text", "text"), ("", ""), (5, "5"), (-5, "-5"), (1.5, "1.5"), (True, "true"), (False, "false")),
        *((Chain.C, "mainnet"), (Named.C, "mainnet"), (Number.C, "43114"), (["a", 1, True], "a,1,true")),
        *((("a", ("b", "c")), "a,b,c"), ({"b", "a", "c"}, "a,b,c"), (frozenset({2, 1}), "1,2"), ([], "")),
    ]
    for value, sent in forms:
        assert query_params({"none": None, "name": value}) == (("name", sent),)


def test_page_sizes() -> None:
    """Page sizes are whole numbers from 1 to 10,000, or None for the default."""
    for good in (1, 10, 100, MAX_PAGE_SIZE, None):
        assert checked_page_size(good) == good


BAD_VALUES: tuple[object, ...] = (b"bytes", object(), {"a": 1}, [None], 1j, float("nan"), float("inf"))
BAD_VALUES += (10**5_000, "\ud800", ["\udfff"], "x" * 500 + "\ud800")
BAD_SIZES: tuple[object, ...] = (0, -1, MAX_PAGE_SIZE + 1, 10**5_000, 1.5, 10.0, True, "10", b"1", [10])


@pytest.mark.parametrize(
    ("check", "bad", "said"),
    [
        (checked_path, BAD_PATHS, "^path="),
        (partial(path_segment, "chain_id"), BAD_SEGMENTS, "^chain_id"),
        (lambda value: query_params({"name": value}), BAD_VALUES, "^name="),
        (lambda name: query_params({name: 1}), ("", "\ud800"), "no name of a query parameter"),
        (lambda name: query_params({name: "5"}), ("pageToken",), "resume="),  # the walk sets it
        (checked_page_size, BAD_SIZES, "^page_size="),
    ],
)
def test_what_cannot_be_sent_is_refused(check: Any, bad: tuple[object, ...], said: str) -> None:
    """What cannot be sent is refused, in a short plain text with its argument."""
    for value in bad:
        with pytest.raises(ConfigurationError, match=said) as caught:
            check(value)
        text = str(caught.value)
        assert (len(text) < 200, text.isprintable()) == (True, True), ascii(value)[:80]
        assert text.replace("…", "").isascii(), "a cut is marked by one other character"


# Routes.


def test_requests_that_cost_alike_have_one_name() -> None:
    """Paths that differ in identifiers alone have one name, for each method."""
    paths = ("/v1/chains", "/v1/chains/43114/blocks", "/v1/chains/43114", "/v2", "/v1/chains/v9x/blocks")
    names = ("/v1/chains", "/v1/chains/*/blocks", "/v1/chains/*", "/v2", "/v1/chains/*/blocks")
    assert [route_name("data", path) for path in paths] == [f"data:{name}" for name in names]
    balances = "/v1/chains/1/addresses/0xAb/balances:listErc20"
    assert route_name("data", balances) == "data:/v1/chains/*/addresses/*/balances:listErc20"
    assert route_name("data", "/v1/webhooks/7", "DELETE") == "data:DELETE /v1/webhooks/*"
    assert route_name("data", "/v1/webhooks/7", "GET") == "data:/v1/webhooks/*"


def test_the_token_is_where_the_route_has_it() -> None:
    """A page token is a parameter of the query, or a field of the body, and never both."""
    in_query = Query("/v1/x", method="POST", body=b'{"a":1}')
    assert in_query.content("t") == b'{"a":1}'
    assert in_query.url(BASE, "t") == f"{BASE}/v1/x?pageToken=t"
    in_body = Query("/v1/x", method="POST", body=b'{"a":1}', token_in_body=True)
    assert json.loads(in_body.content('t"') or b"") == {"a": 1, "pageToken": 't"'}
    assert (in_body.content(), in_body.url(BASE, "t")) == (b'{"a":1}', f"{BASE}/v1/x")
    assert Query("/v1/x").content("t") is None
    assert in_body.where == "POST /v1/x"
    assert "pageToken" not in repr(in_body)


@pytest.mark.parametrize(
    ("query", "size"),
    [
        (Query("/v1/x"), None),
        (Query("/v1/x", (("pageSize", "7"),)), 7),
        (Query("/v1/x", (("pageSize", "x"),)), None),
        (Query("/v1/x", (("pageSize", "9" * 5_000),)), None),
        (Query("/v1/x", method="POST", body=b'{"pageSize":9}'), 9),
        (Query("/v1/x", (("pageSize", "7"),), method="POST", body=b'{"a":1}'), 7),
    ],
)
def test_the_page_size_is_read_from_either_place(query: Query, size: int | None) -> None:
    """The page size is a parameter of the query or a field of the body; None without one."""
    assert query.page_size == size


def test_a_whole_number_is_read_from_a_parameter() -> None:
    """A parameter of digits is a number, unless it is longer than any number that can be sent."""
    numbers = {"0": 0, "007": 7, "9" * 100: 10**100 - 1}
    others = dict.fromkeys(("9" * 101, "9" * 5_000, "", "-1", " 1", "1\n", "1.5", "²"))
    for text, number in {**numbers, **others}.items():
        query = Query("/v1/x", (("startBlock", "5"), ("endBlock", text)))
        assert query.whole("endBlock") == number
        assert query.whole("toBlock") is None


@given(st.lists(st.tuples(UNICODE.filter(bool), UNICODE), min_size=1, max_size=3))
@example([("pageSize", "100"), ("sortOrder", "desc")])
@example([("a=b", "c")])
def test_parameters_are_sent_as_python_encodes_them(pairs: list[tuple[str, str]]) -> None:
    """Parameters that need no quoting are sent as those that may need it."""
    assert Query("/v1/blocks", tuple(pairs)).url(BASE) == f"{BASE}/v1/blocks?{urlencode(pairs)}"
