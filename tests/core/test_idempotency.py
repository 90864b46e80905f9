"""Repetition of writes: which faults are repeated, and which outcome is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chainapi.core.call import Call, CallOptions, Exchange
from chainapi.core.idempotency import Idempotency, may_be_done
from chainapi.core.limits.verdict import Verdict
from chainapi.core.retry import RetryPolicy
from chainapi.core.statuses import status_error
from chainapi.core.url import Query
from chainapi.errors import (
    APIConnectionError,
    APITimeoutError,
    CertificateError,
    ConnectError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    ResponseTooLargeError,
    ServerError,
)
from chainapi.transport import Response
from tests.core.test_call import BROKEN, NO_JSON, OK, SLOW, Script, refusal, status

POST = Query("/v1/x", method="POST", idempotency=Idempotency.NON_IDEMPOTENT, lookup="data.webhooks.list")
DELETE = Query("/v1/x", method="DELETE", idempotency=Idempotency.IDEMPOTENT)
READ = Query("/v1/x", method="POST", body=b"{}")
REFUSED = ConnectError("cannot connect")
LIMITED = refusal(Verdict.QUOTA)
LOST = (BROKEN, SLOW, ResponseTooLargeError("large"), *map(status, (500, 502, 503, 504, 520)))
NOT_DONE = (REFUSED, LIMITED)
PAGE = status(200, b"<html>Please sign in</html>")


def call(query: Query, attempts: int = 5, deadline: float | None = None) -> Call:
    """Return a call of a query."""
    return Call(query, options=CallOptions(retry=RetryPolicy(attempts), deadline=deadline))


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("GET", Idempotency.SAFE),
        ("HEAD", Idempotency.SAFE),
        ("OPTIONS", Idempotency.SAFE),
        ("PUT", Idempotency.IDEMPOTENT),
        ("DELETE", Idempotency.IDEMPOTENT),
        ("POST", Idempotency.NON_IDEMPOTENT),
        ("PATCH", Idempotency.NON_IDEMPOTENT),
    ],
)
def test_methods_are_as_the_rfc_says(method: str, kind: Idempotency) -> None:
    """Methods are safe, idempotent or neither as in RFC 9110 and RFC 5789."""
    assert Idempotency.of_method(method) is kind


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_a_write_with_a_lost_response_is_not_repeated(lost: Response | APIConnectionError) -> None:
    """A POST that may have been carried out is sent once; the error says so, with the fault as its cause."""
    script = Script([lost])
    with pytest.raises(
        OutcomeUnknownError, match=r"POST /v1/x is unknown.*session\.data\.webhooks\.list"
    ) as caught:
        script.run(call(POST))
    assert (caught.value.attempts, caught.value.where) == (1, "POST /v1/x")
    assert isinstance(caught.value.__cause__, APIConnectionError | ServerError)
    assert script.kinds.count("Send") == 1
    assert "Pause" not in script.kinds


@given(st.lists(st.sampled_from(NOT_DONE), max_size=4), st.sampled_from([OK, *LOST]))
def test_a_write_is_repeated_only_while_nothing_was_done(
    before: list[Exchange | APIConnectionError], last: Response | APIConnectionError
) -> None:
    """A POST is repeated after refusals and failures to connect, and no request follows another fault."""
    script = Script([*before, last])
    if last is OK:
        assert script.run(call(POST))[0] == "decoded"
    else:
        with pytest.raises(OutcomeUnknownError) as caught:
            script.run(call(POST))
        assert caught.value.attempts == len(before) + 1
    assert script.kinds.count("Send") == len(before) + 1


@given(
    st.lists(st.sampled_from([*NOT_DONE, *LOST[:2], *LOST[3:7]]), max_size=4), st.sampled_from([DELETE, READ])
)
def test_idempotent_requests_are_repeated(
    before: list[Response | Exchange | APIConnectionError], query: Query
) -> None:
    """DELETE, and POST that only reads, are repeated after each fault, as GET is."""
    script = Script([*before, OK])
    assert script.run(call(query))[0] == "decoded"
    assert script.kinds.count("Send") == len(before) + 1


@pytest.mark.parametrize("lost", [BROKEN, SLOW, status(503)], ids=repr)
def test_a_404_for_a_repeated_delete_means_done(lost: Response | APIConnectionError) -> None:
    """DELETE whose response was lost finds nothing when it is repeated: it was carried out."""
    script = Script([lost, status(404)])
    assert script.run(call(DELETE))[0] is None
    assert "Describe" not in script.kinds or script.kinds.count("Describe") == (lost.__class__ is Response)


@pytest.mark.parametrize("before", NOT_DONE, ids=["not connected", "refused"])
def test_a_404_for_a_delete_that_was_not_sent_is_an_error(before: Exchange | APIConnectionError) -> None:
    """A 404 is NotFoundError if no attempt before can have deleted anything."""
    for outcomes in ([status(404)], [before, status(404)]):
        with pytest.raises(NotFoundError):
            Script(outcomes).run(call(DELETE))


def test_a_404_for_a_repeated_read_is_an_error() -> None:
    """A 404 after a lost response is NotFoundError for a POST that reads."""
    with pytest.raises(NotFoundError):
        Script([BROKEN, status(404)]).run(call(READ))


@pytest.mark.parametrize("fault", [NO_JSON, DecodeError("missing")])
@pytest.mark.parametrize("query", [POST, DELETE])
def test_an_answer_that_cannot_be_read_is_not_asked_for_again(fault: DecodeError, query: Query) -> None:
    """A 2xx of a write that cannot be decoded is DecodeError at once: it was carried out."""
    script = Script(decoded=[fault])
    with pytest.raises(DecodeError, match="carried the request out: do not repeat it"):
        script.run(call(query))
    assert script.kinds.count("Send") == 1


@pytest.mark.parametrize("bodiless", [False, True])
def test_a_web_page_says_nothing_about_a_write(bodiless: bool) -> None:
    """A web page leaves the outcome unknown: the service may never have seen the write."""
    script = Script([PAGE], decoded=[NO_JSON])
    with pytest.raises(OutcomeUnknownError, match=r"unknown: no JSON\. .*look it up") as caught:
        script.run(call(replace(POST, bodiless=bodiless)))
    assert isinstance(caught.value.__cause__, DecodeError)
    assert script.kinds.count("Send") == 1


def test_a_web_page_for_a_delete_claims_nothing() -> None:
    """A web page for a DELETE is DecodeError at once, which does not say that it was done."""
    script = Script([PAGE], decoded=[NO_JSON])
    with pytest.raises(DecodeError) as caught:
        script.run(call(DELETE))
    assert "carried" not in str(caught.value)
    assert script.kinds.count("Send") == 1


@pytest.mark.parametrize("code", [200, 201, 204])
def test_an_answer_without_a_body_is_accepted_where_the_route_has_none(code: int) -> None:
    """A 2xx without a body is a success for a route without one, and DecodeError for another write."""
    assert Script([status(code, b"")]).run(call(replace(POST, bodiless=True)))[0] is None
    assert Script([status(code, b"{}")]).run(call(replace(POST, bodiless=True)))[0] is None
    with pytest.raises(DecodeError, match="without a body"):
        Script([status(code, b"")]).run(call(POST))
    with pytest.raises(RateLimitedError):
        Script([LIMITED]).run(call(replace(POST, bodiless=True), attempts=1))


def test_attempts_of_a_write_end() -> None:
    """Failures to connect end after `max_attempts`, and certificates at once; both outcomes are known."""
    script = Script([REFUSED])
    with pytest.raises(ConnectError):
        script.run(call(POST, attempts=3))
    assert script.kinds.count("Send") == 3
    distrusted = Script([CertificateError("not trusted")])
    with pytest.raises(CertificateError):
        distrusted.run(call(POST))
    assert distrusted.kinds.count("Send") == 1


def test_a_deadline_in_an_attempt_leaves_the_outcome_unknown() -> None:
    """A deadline that passes in an attempt of a write is OutcomeUnknownError, with the deadline as cause."""
    for query, kind in (
        (POST, OutcomeUnknownError),
        (DELETE, DeadlineExceededError),
        (READ, DeadlineExceededError),
    ):
        script = Script()
        script.run(call(query, deadline=0.5))
        error = script.flow.overdue(103.0)  # as its shell does while the attempt runs
        assert type(error) is kind
        if kind is OutcomeUnknownError:
            assert isinstance(error.__cause__, DeadlineExceededError)


def test_a_write_in_the_queue_has_a_known_outcome() -> None:
    """A deadline that passes in a pause is DeadlineExceededError: nothing was done."""
    with pytest.raises(DeadlineExceededError):
        Script([REFUSED]).run(call(POST, deadline=1.2))


def test_statuses_that_say_nothing_was_done() -> None:
    """Client errors, 501 and 505 say that nothing was done; other 5xx do not."""
    codes = [code for code in range(400, 600) if may_be_done(status_error(code, "", ()))]
    assert codes == [code for code in range(500, 600) if code not in (501, 505)]
    assert may_be_done(APITimeoutError("late"))
    assert not may_be_done(REFUSED)
