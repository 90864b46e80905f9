"""Attempts of one call: what is sent again, after which wait, and what the last error says.

A write is sent again only while nothing can have been done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chainapi import LimiterOptions, Session
from chainapi.core.idempotency import Idempotency
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    CertificateError,
    ChainAPIError,
    ConnectError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    OutcomeUnknownError,
    QuotaWaitError,
    RateLimitedError,
    ResponseTooLargeError,
    ServerError,
)
from chainapi.transport import Response
from tests.client.services import Answer, Script
from tests.sessions import reaching

Call = Callable[[Session], Awaitable[Any]]


def get(session: Session) -> Awaitable[Any]:
    """Read with GET."""
    return session.data.get("/v1/x")


def read(session: Session) -> Awaitable[Any]:
    """Read with POST."""
    return session.data.primary_network.last_activity_v2("fuji", "p-chain", addresses="P-fuji1x")


def post(session: Session) -> Awaitable[Any]:
    """Make a webhook's new secret: POST, not idempotent."""
    return session.data.webhooks.rotate_shared_secret()


def patch(session: Session) -> Awaitable[Any]:
    """Rename a webhook: PATCH, not idempotent."""
    return session.data.webhooks.update("w", name="x")


def delete(session: Session) -> Awaitable[Any]:
    """Deactivate a webhook: DELETE, idempotent."""
    return session.data.webhooks.deactivate("w")


def bodiless(session: Session) -> Awaitable[Any]:
    """Have a token read again: POST whose response has no body."""
    return session.data.nfts.reindex(43114, "0xabc", 7)


def answer(status: int, body: bytes = b"{}") -> Response:
    """Return a response."""
    return Response(status, {}, body)


OK = answer(200, b'{"good": 1}')
SECRET = answer(200, b'{"secret": "s"}')
REFUSED = ConnectError("cannot connect")
LIMITED = Response(429, {"retry-after": "0"}, b"{}")
PAGE = answer(200, b"<html>Please sign in</html>")
FAULTS: list[Answer] = [APIConnectionError("broken"), None, *map(answer, (500, 502, 503, 504))]
LOST: list[Answer] = [*FAULTS, ResponseTooLargeError("large"), answer(520)]


async def outcome(*answers: Answer, call: Call = get, **options: Any) -> tuple[Script, Any]:
    """Return the transport after one call, and the result or error."""
    script = Script(*answers)
    options = {"timeout": 5.0, "limiter": LimiterOptions(isolated=True), **options}
    async with reaching(script, **options) as session:
        try:
            return script, await call(session)
        except ChainAPIError as error:
            return script, error


async def written(call: Call, *answers: Answer, **options: Any) -> tuple[int, Any]:
    """Return the number of requests of a call, and its result or error."""
    script, result = await outcome(*answers, call=call, **options)
    return len(script.times), result


# Reads


async def test_what_is_sent_again() -> None:
    """Faults that may pass are sent again up to max_attempts, others are raised after one request."""
    cases: list[tuple[Answer, int]] = [
        *((fault, 3) for fault in FAULTS),
        (CertificateError("not trusted"), 1),
        *((answer(200, body), 3) for body in (b"{", b" \r\n", b"\xff{}", "{}".encode("utf-16"))),
        *((answer(200, start + b"<!DOCTYPE html><html>"), 1) for start in (b"", b" \r\n", b"\xef\xbb\xbf")),
        (PAGE, 1),
        (answer(204, b""), 1),
        *((answer(status), 1) for status in (199, 302, 400, 401, 403, 404, 409, 418, 501, 505)),
    ]
    failures = []
    for one, requests in cases:
        script, error = await outcome(one, max_attempts=3, timeout=1.0)
        if len(script.times) != requests or error.attempts != requests:
            failures.append(f"{one}: {len(script.times)} requests, not {requests}: {error!r}")
        if isinstance(one, Response) and one.status == 200 and not error.malformed:
            failures.append(f"{one}: {error!r} is not about a malformed body")
    assert not failures


async def test_an_error_of_a_transport_that_is_not_chainapis_is_raised_as_it_is() -> None:
    """An exception that the transport should not raise is not retried, and reaches the caller unchanged."""
    boom = ZeroDivisionError("a bug")
    script = Script(boom)
    async with reaching(script) as session:
        with pytest.raises(ZeroDivisionError) as caught:
            await session.data.get("/v1/x")
    assert caught.value is boom
    assert len(script.times) == 1


async def test_pauses_grow_and_honour_what_the_service_asks() -> None:
    """Pauses are random below 1, 2, 4 and 8 s; a Retry-After, or a reset with nothing left, is kept."""
    script, error = await outcome(answer(500))
    assert len(script.waits) == 4
    assert all(0 <= wait <= most for wait, most in zip(script.waits, (1, 2, 4, 8), strict=True))
    assert error.elapsed == pytest.approx(sum(script.waits), abs=0.1)
    told = {"ratelimit-limit": "100", "ratelimit-reset": "30"}
    cases = (({"retry-after": "7"}, 7.0), ({**told, "ratelimit-remaining": "0"}, 30.0))
    for headers, wait in cases:
        script, result = await outcome(Response(503, headers, b"{}"), OK)
        assert (result, script.waits) == ({"good": 1}, [wait])


async def test_max_wait_counts_the_waits_of_all_attempts() -> None:
    """`max_wait` bounds the waits of a call together, for quota and for a service that is busy."""
    script, error = await outcome(Response(429, {"retry-after": "4"}, b"{}"), max_wait=10.0)
    assert type(error) is QuotaWaitError
    assert script.waits == [4.0, 4.0]
    script, error = await outcome(Response(503, {"retry-after": "7"}, b"{}"), max_wait=6.0)
    assert type(error) is ServerError
    assert script.waits == []


async def test_refusals_end_with_the_wait_that_they_ask_for() -> None:
    """A 429 counts a fifth of an attempt; the error has the last Retry-After, else the last reset."""
    for headers in ({"retry-after": "1"}, {"retry-after": "1", "ratelimit-reset": "9"}):
        script, error = await outcome(Response(429, headers, b'{"message": "slow down"}'), max_attempts=3)
        assert type(error) is RateLimitedError
        assert (error.retry_after, error.messages, len(script.times)) == (1.0, ("slow down",), 11)


async def test_the_last_error_says_what_happened() -> None:
    """The error of a call has the request, the attempts, and the phrase of a status without a name."""
    _, error = await outcome(answer(404))
    assert isinstance(error, APIStatusError)
    assert (error.error, error.where, error.attempts) == ("Not Found", "GET /v1/x", 1)
    _, error = await outcome(answer(499))
    assert error.error == ""
    _, error = await outcome(answer(502, b"<html><h1>Bad gateway</h1>" + b"x" * 100_000))
    assert (type(error), len(str(error)) < 500) == (ServerError, True)
    assert error.messages[0].startswith("<html><h1>Bad gateway</h1>")
    _, error = await outcome(answer(200, b"{"))
    assert isinstance(error, DecodeError)
    assert "in the response to GET /v1/x (tried 5 times" in str(error)
    _, error = await outcome(None, timeout=2.0, max_attempts=1)
    assert isinstance(error, APITimeoutError)
    assert "no whole answer within 2 s for GET /v1/x" in str(error)


async def test_a_web_page_names_the_address_for_a_browser() -> None:
    """A web page in place of JSON is an error that names the page to open, after one request."""
    script, error = await outcome(PAGE)
    assert (type(error), error.attempts, len(script.times)) == (DecodeError, 1, 1)
    assert "sign-in" in str(error)
    assert "Open https://data.test in a" in str(error)


# Writes


def test_methods_are_as_the_rfc_says() -> None:
    """Methods are safe, idempotent or neither as in RFC 9110 and RFC 5789."""
    kinds = {
        Idempotency.SAFE: ("GET", "HEAD", "OPTIONS"),
        Idempotency.IDEMPOTENT: ("PUT", "DELETE"),
        Idempotency.NON_IDEMPOTENT: ("POST", "PATCH"),
    }
    for kind, methods in kinds.items():
        assert {Idempotency.of_method(method) for method in methods} == {kind}


async def test_a_write_is_repeated_only_while_nothing_was_done() -> None:
    """POST and PATCH are repeated after a 429 and ConnectError alone; another fault leaves them unknown."""
    starts: list[list[Answer]] = [[], [REFUSED, LIMITED]]
    failures = []
    for write, lost in [(post, one) for one in LOST] + [(patch, one) for one in LOST]:
        for before in starts:
            sent, error = await written(write, *before, lost)
            known = isinstance(error, OutcomeUnknownError) and isinstance(error.__cause__, ChainAPIError)
            if not known or not sent == error.attempts == len(before) + 1 or "session.data" not in str(error):
                failures.append(f"{write.__name__}, {lost}: {sent} requests, {error!r}")
    assert not failures
    sent, result = await written(post, REFUSED, LIMITED, REFUSED, SECRET)
    assert (sent, result.secret) == (4, "s")


async def test_what_is_idempotent_is_repeated() -> None:
    """DELETE, and POST that only reads, are repeated after each fault, as GET is."""
    failures = []
    for call in (delete, read):
        for fault in (REFUSED, LIMITED, *FAULTS):
            sent, result = await written(call, fault, fault, answer(404))
            if sent != 3:
                failures.append(f"{call.__name__}, {fault}: {sent} requests, {result!r}")
    assert not failures


async def test_a_404_for_a_repeated_delete_means_done() -> None:
    """A DELETE that may have been done before its 404 returns None; in any other case a 404 is an error."""
    for lost in FAULTS:
        assert await written(delete, lost, answer(404)) == (2, None)
    for call, before in ((delete, []), (delete, [REFUSED]), (delete, [LIMITED]), (read, [FAULTS[0]])):
        _, error = await written(call, *before, answer(404))
        assert type(error) is NotFoundError


async def test_an_answer_of_a_write_that_cannot_be_read() -> None:
    """A 2xx that is no JSON was carried out; a web page leaves POST and PATCH unknown."""
    for write in (post, delete):
        for body in (b"{", b"[]"):
            sent, error = await written(write, answer(200, body))
            assert (sent, type(error)) == (1, DecodeError)
            assert "carried the request out: do not repeat it" in str(error)
    for write in (post, patch, bodiless):
        sent, error = await written(write, PAGE)
        assert (sent, type(error), type(error.__cause__)) == (1, OutcomeUnknownError, DecodeError)
        assert "look it up" in str(error)
    sent, error = await written(delete, PAGE)
    assert (sent, type(error)) == (1, DecodeError)
    assert "carried" not in str(error)


async def test_an_answer_without_a_body_is_accepted_where_the_route_has_none() -> None:
    """Any 2xx is a success for a route without a body; other writes need one."""
    for response in (answer(200, b""), answer(201, b""), answer(204, b""), answer(200)):
        assert await written(bodiless, response) == (1, None)
    _, error = await written(post, answer(200, b""))
    assert isinstance(error, DecodeError)
    assert "without a body" in str(error)
    _, error = await written(bodiless, LIMITED, max_attempts=1)
    assert type(error) is RateLimitedError


async def test_the_outcome_of_what_was_not_done_is_known() -> None:
    """Failures to connect, certificates and statuses by which nothing was done raise their own errors."""
    cases: list[tuple[Answer, dict[str, Any], int, type[Exception]]] = [
        (REFUSED, {"max_attempts": 3}, 3, ConnectError),
        (CertificateError("not trusted"), {}, 1, CertificateError),
        (REFUSED, {"deadline": 0.01}, 1, DeadlineExceededError),
        *(
            (answer(status), {}, 1, APIStatusError)
            for status in (400, 401, 403, 404, 409, 418, 422, 501, 505)
        ),
    ]
    for one, options, requests, kind in cases:
        sent, error = await written(post, one, **options)
        assert isinstance(error, kind)
        assert (sent, isinstance(error, OutcomeUnknownError)) == (requests, False)
        assert not isinstance(one, Response) or getattr(error, "status", None) == one.status


async def test_a_deadline_in_an_attempt_leaves_the_outcome_unknown() -> None:
    """A deadline in an attempt of POST or PATCH is OutcomeUnknownError, of others DeadlineExceededError."""
    unknown, late = OutcomeUnknownError, DeadlineExceededError
    for call, kind in ((post, unknown), (patch, unknown), (delete, late), (read, late)):
        _, error = await written(call, None, deadline=1.0)
        assert type(error) is kind
        assert kind is late or isinstance(error.__cause__, late)
