"""Repetition of writes: which faults are repeated, and after which the outcome is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from chainapi import LimiterOptions, Session
from chainapi.core.idempotency import Idempotency
from chainapi.errors import (
    APIConnectionError,
    CertificateError,
    ChainAPIError,
    ConnectError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    ResponseTooLargeError,
)
from chainapi.transport import Response
from tests.client.test_attempts import Script
from tests.sessions import reaching

Answer = Response | Exception | None
Write = Callable[[Session], Awaitable[Any]]


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


def read(session: Session) -> Awaitable[Any]:
    """Read with POST."""
    return session.data.primary_network.last_activity_v2("fuji", "p-chain", addresses="P-fuji1x")


def answer(status: int, body: bytes = b"{}") -> Response:
    """Return a response."""
    return Response(status, {}, body)


SECRET = answer(200, b'{"secret": "s"}')
REFUSED = ConnectError("cannot connect")
LIMITED = Response(429, {"retry-after": "0"}, b"{}")
PAGE = answer(200, b"<html>Please sign in</html>")
FAULTS: list[Answer] = [APIConnectionError("broken"), None, *map(answer, (500, 502, 503, 504))]
LOST: list[Answer] = [*FAULTS, ResponseTooLargeError("large"), answer(520)]


async def outcome(write: Write, *answers: Answer, **options: Any) -> tuple[int, Any]:
    """Return the number of requests of a call, and its result or error."""
    script = Script([*answers])
    async with reaching(
        script, **{"timeout": 5.0, "limiter": LimiterOptions(isolated=True), **options}
    ) as session:
        try:
            result = await write(session)
        except ChainAPIError as error:
            return len(script.times), error
    return len(script.times), result


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
            sent, error = await outcome(write, *before, lost)
            known = isinstance(error, OutcomeUnknownError) and isinstance(error.__cause__, ChainAPIError)
            if not known or not sent == error.attempts == len(before) + 1 or "session.data" not in str(error):
                failures.append(f"{write.__name__}, {lost}: {sent} requests, {error!r}")
    assert not failures
    sent, result = await outcome(post, REFUSED, LIMITED, REFUSED, SECRET)
    assert (sent, result.secret) == (4, "s")


async def test_what_is_idempotent_is_repeated() -> None:
    """DELETE, and POST that only reads, are repeated after each fault, as GET is."""
    failures = []
    for write in (delete, read):
        for fault in (REFUSED, LIMITED, *FAULTS):
            sent, result = await outcome(write, fault, fault, answer(404))
            if sent != 3:
                failures.append(f"{write.__name__}, {fault}: {sent} requests, {result!r}")
    assert not failures


async def test_a_404_for_a_repeated_delete_means_done() -> None:
    """A DELETE that may have been done before its 404 returns None; in any other case a 404 is an error."""
    for lost in FAULTS:
        assert await outcome(delete, lost, answer(404)) == (2, None)
    for write, before in ((delete, []), (delete, [REFUSED]), (delete, [LIMITED]), (read, [FAULTS[0]])):
        _, error = await outcome(write, *before, answer(404))
        assert type(error) is NotFoundError


async def test_an_answer_that_cannot_be_read_is_not_asked_for_again() -> None:
    """A 2xx of a write that cannot be decoded is DecodeError at once, which says that it was carried out."""
    for write in (post, delete):
        for body in (b"{", b"[]"):
            sent, error = await outcome(write, answer(200, body))
            assert (sent, type(error)) == (1, DecodeError)
            assert "carried the request out: do not repeat it" in str(error)


async def test_a_web_page_says_nothing_about_a_write() -> None:
    """A web page leaves POST and PATCH unknown, and is a DecodeError of DELETE that claims nothing."""
    for write in (post, patch, bodiless):
        sent, error = await outcome(write, PAGE)
        assert (sent, type(error), type(error.__cause__)) == (1, OutcomeUnknownError, DecodeError)
        assert "look it up" in str(error)
    sent, error = await outcome(delete, PAGE)
    assert (sent, type(error)) == (1, DecodeError)
    assert "carried" not in str(error)


async def test_an_answer_without_a_body_is_accepted_where_the_route_has_none() -> None:
    """Any 2xx is a success for a route without a body; other writes need one."""
    for response in (answer(200, b""), answer(201, b""), answer(204, b""), answer(200)):
        assert await outcome(bodiless, response) == (1, None)
    _, error = await outcome(post, answer(200, b""))
    assert isinstance(error, DecodeError)
    assert "without a body" in str(error)
    _, error = await outcome(bodiless, LIMITED, max_attempts=1)
    assert type(error) is RateLimitedError


async def test_the_outcome_of_what_was_not_sent_is_known() -> None:
    """Failures to connect end after `max_attempts`, and certificates at once, with their own errors."""
    sent, error = await outcome(post, REFUSED, max_attempts=3)
    assert (sent, type(error)) == (3, ConnectError)
    sent, error = await outcome(post, CertificateError("not trusted"))
    assert (sent, type(error)) == (1, CertificateError)
    _, error = await outcome(post, REFUSED, deadline=0.01)
    assert type(error) is DeadlineExceededError


async def test_a_deadline_in_an_attempt_leaves_the_outcome_unknown() -> None:
    """A deadline in an attempt of POST or PATCH is OutcomeUnknownError, of others DeadlineExceededError."""
    for write, kind in (
        (post, OutcomeUnknownError),
        (delete, DeadlineExceededError),
        (read, DeadlineExceededError),
    ):
        _, error = await outcome(write, None, deadline=1.0)
        assert type(error) is kind
        assert kind is DeadlineExceededError or isinstance(error.__cause__, DeadlineExceededError)


async def test_statuses_that_say_nothing_was_done() -> None:
    """Client errors, 501 and 505 say that nothing was done: their own errors are raised at once."""
    for status in (400, 401, 403, 404, 409, 418, 422, 501, 505):
        sent, error = await outcome(post, answer(status))
        assert sent == 1
        assert not isinstance(error, OutcomeUnknownError)
        assert error.status == status
