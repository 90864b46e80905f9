"""Cached responses by age, and their keys."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi._http.cache import Cache, CachedResponse, cache_key, significant

pytestmark = pytest.mark.rule

SECONDS = st.floats(0.0, 1e6)
URL = "https://data.test/v1/chains?pageToken=t"


@settings(max_examples=40)
@given(fresh=SECONDS, revalidate=SECONDS, on_error=SECONDS, age=st.floats(0.0, 4e6))
def test_use_by_age(fresh: float, revalidate: float, on_error: float, age: float) -> None:
    """A response is fresh, then stale while revalidated, then for errors only, then of no use."""
    cache = Cache(fresh, stale_while_revalidate=revalidate, stale_if_error=on_error)
    use = cache.use(age, inf)
    if age < fresh:
        assert use == "answer"
    elif age < fresh + revalidate:
        assert use == "revalidate"
    elif age < fresh + on_error:
        assert use == "on error"
    else:
        assert use == "never"
    assert (use == "never") == (age >= cache.lifetime)


@settings(max_examples=40)
@given(age=st.floats(-1e6, 1e6), lifetime=st.floats(1.0, 1e5))
def test_no_page_token_past_its_age(age: float, lifetime: float) -> None:
    """A response as old as a page token may be, or of the future, is never used."""
    use = Cache(1e9, stale_while_revalidate=1e9, stale_if_error=1e9).use(age, lifetime)
    assert (use == "never") == (age < 0 or age >= lifetime)


@settings(max_examples=40)
@given(st.floats(0, 2e9), st.integers(200, 299), st.dictionaries(st.text(), st.text()), st.binary())
def test_stored_form(sent: float, status: int, headers: dict[str, str], body: bytes) -> None:
    """A response is read as it was stored, but for its cookies; its repr has neither headers nor body."""
    response = CachedResponse.of(sent, 0.5, status, headers | {"set-cookie": "a=b"}, body)
    assert CachedResponse.loads(response.dumps()) == response
    headers.pop("set-cookie", None)
    assert (response.headers, response.body) == (headers, body)
    assert repr(response) == object.__repr__(response)


@settings(max_examples=40)
@given(st.binary())
def test_other_bytes_are_no_response(stored: bytes) -> None:
    """Bytes of another program, or of another version, count as missing."""
    response = CachedResponse.loads(stored)
    assert response is None or response.dumps() == stored
    assert CachedResponse.loads(CachedResponse(99, 1.0, 0.5, 200, {}, b"{}").dumps()) is None


def test_keys_differ_by_what_a_response_depends_on() -> None:
    """URL, page token, API key and headers make the key; names of requests do not."""
    keys = {
        cache_key(URL, {}, None),
        cache_key(URL, {}, "one"),
        cache_key(URL, {}, "two"),
        cache_key(URL + "u", {}, "one"),
        cache_key(URL, {"accept-language": "de"}, "one"),
        cache_key(URL, {"x-tenant": "a"}, "one"),
    }
    assert len(keys) == 6
    tracing = {"traceparent": "00-1", "x-request-id": "7", "user-agent": "backend"}
    assert cache_key(URL, tracing, "one") == cache_key(URL, {}, "one")
    assert significant({"b": "1", **tracing, "a": "2"}) == (("a", "2"), ("b", "1"))


def test_keys_reveal_nothing() -> None:
    """A key is a digest: neither API key nor page token is in it, and it is the same in every process."""
    key = cache_key(URL, {}, "very-secret")
    assert key == "ad174ccffbd6a20e99a8f4b1c859e5a9"
