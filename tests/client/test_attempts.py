"""Attempts of one call: what is sent again, after which wait, until when, and what the error says.

A write is sent again only while nothing can have been done.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import ROUTES, LimiterOptions, Session
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
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.client.services import Answer, Script, time
from tests.sessions import reaching, simulated

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


# Deadlines: all waits and attempts count, and the error has the times


PATH = "/v1/chains/43114"
TOLD = {"ratelimit-policy": "100;w=60", "ratelimit-limit": "100"}


FINE = Response(200, {**TOLD, "ratelimit-remaining": "50"}, b"{}")
USED_UP = Response(429, {**TOLD, "ratelimit-remaining": "0", "retry-after": "60"}, b"{}")
BROKEN = Response(500, {}, b'{"message": "it broke", "error": "Internal Server Error", "statusCode": 500}')
SILENT = Response(429, {}, b'{"message": "too many", "error": "Too Many Requests", "statusCode": 429}')
BUSY = Response(503, {"retry-after": "20"}, b"{}")


def idle(session: Session) -> bool:
    """Return whether every permit is back and nobody waits."""
    return (session.data.quota.in_flight, session.data.quota.waiting) == (0, 0)


async def test_callers_of_a_hanging_service_fail_by_the_deadline() -> None:
    """Callers of a service that never answers fail at the deadline, and hold up no later call."""
    service = Script((0.05, None))
    async with reaching(service, deadline=5.0) as session:
        calls = (session.data.get(PATH) for _ in range(100))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {DeadlineExceededError}
        assert time() == pytest.approx(5, abs=0.001)
        assert service.flying == 0
        assert idle(session)
        service.answers = [(0.05, FINE)]
        await session.data.get(PATH)
        assert time() < 7


async def test_deadline_covers_all_attempts_and_waits() -> None:
    """A call that is retried ends at its deadline, with the time of each phase and what failed last."""
    service = Script((1.0, BROKEN), (1.0, BROKEN), (1.0, None))
    async with reaching(service) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            await session.data.get(PATH, deadline=8.0)
    error = caught.value
    assert time() == pytest.approx(8, abs=0.001)
    assert (error.deadline, error.attempts, error.retry_after) == (8.0, 3, None)
    assert error.elapsed == pytest.approx(8, abs=0.001)
    assert error.in_queue + error.in_attempts + error.between_attempts == pytest.approx(8, abs=0.001)
    assert error.in_attempts > 2
    assert error.between_attempts > 0
    assert isinstance(error.__cause__, ServerError)
    assert error.__context__ is None
    assert "deadline=8 s" in str(error)
    assert "in 3 attempts" in str(error)
    assert "500 Internal Server Error" in str(error)
    assert PATH in str(error)


async def test_each_attempt_has_its_timeout_although_the_transport_caught_the_last_one() -> None:
    """A transport that turns its cancellation into an error of its own is timed out at each attempt."""

    class Deaf(Script):
        async def send(self, request: Request) -> Response:
            try:
                return await super().send(request)
            except asyncio.CancelledError:
                raise APIConnectionError("closed in the middle") from None

    async with reaching(Deaf((0.0, None)), timeout=2.0, max_attempts=3) as session:
        with pytest.raises(APIConnectionError, match="closed in the middle") as caught:
            await session.data.get(PATH)
        assert (caught.value.attempts, idle(session)) == (3, True)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_next_attempt_after_the_deadline_is_not_waited_for() -> None:
    """A 503 whose Retry-After is beyond the deadline ends the call at once, with the time to come back."""
    async with reaching(Script((1.0, BUSY))) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            await session.data.get(PATH, deadline=5.0)
        assert time() == pytest.approx(1, abs=0.001)
        assert caught.value.retry_after == pytest.approx(20)
        assert isinstance(caught.value.__cause__, ServerError)
        assert "would begin in 20.0 s" in str(caught.value)
        assert idle(session)


async def test_quota_that_is_known_to_come_too_late_is_not_waited_for() -> None:
    """A stop beyond the deadline ends a call at once with QuotaWaitError."""
    service = Script((0.5, FINE), (0.5, USED_UP), (0.5, FINE))
    async with reaching(service, now=lambda: 1000.0) as session:
        await session.data.get(PATH)
        patient = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(0.6)
        with pytest.raises(QuotaWaitError) as caught:
            await session.data.get(PATH, deadline=5.0)
        assert time() == pytest.approx(1.1, abs=0.001)
        assert (caught.value.max_wait, caught.value.deadline) == (None, 5.0)
        assert caught.value.retry_at == pytest.approx(1000 + caught.value.retry_after)
        assert "the call's deadline, 5.0 s from now" in str(caught.value)
        await session.data.get(PATH, deadline=100.0)
        await patient


async def test_the_tighter_of_max_wait_and_deadline_is_named() -> None:
    """QuotaWaitError names `max_wait` where that is shorter, else the deadline."""
    for max_wait, deadline, named in ((5.0, 10.0, "max_wait"), (10.0, 5.0, "deadline")):
        async with reaching(
            Script((0.0, USED_UP)), max_wait=max_wait, limiter=LimiterOptions(isolated=True)
        ) as session:
            with pytest.raises(QuotaWaitError, match=named) as caught:
                await session.data.get(PATH, deadline=deadline)
        assert getattr(caught.value, named) == pytest.approx(5)
        assert (caught.value.max_wait is None) == (named == "deadline")


async def test_refusal_that_comes_meanwhile_ends_the_call_at_once() -> None:
    """A refused call, and one behind it, end once the wait exceeds the time left."""
    service = Script((0.5, FINE), (0.5, USED_UP))
    async with reaching(service, max_in_flight=1) as session:
        await session.data.get(PATH)
        calls = (session.data.get(PATH, deadline=5.0) for _ in range(2))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {QuotaWaitError}
        assert time() == pytest.approx(1, abs=0.001)
        assert idle(session)


async def test_timeout_and_last_attempt_come_before_the_deadline() -> None:
    """A call without attempts left before its deadline raises the last failure."""
    async with reaching(Script((0.1, None)), timeout=1.0, max_attempts=2) as session:
        with pytest.raises(APITimeoutError) as caught:
            await session.data.get(PATH, deadline=60.0)
        assert not isinstance(caught.value, DeadlineExceededError)
        assert caught.value.attempts == 2
    async with reaching(Script((0.1, FINE))) as session:
        assert await session.data.get(PATH, deadline=1.0) == {}


async def test_a_large_body_is_decoded_within_the_deadline() -> None:
    """Decoding counts: a body that takes long to decode ends at the deadline."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    rows = b",".join(b'{"timestamp": %d, "value": 1.5}' % number for number in range(60_000, 0, -1))
    service = Script(
        (0.1, Response(200, TOLD, b'{"results": []}')),
        (0.5, Response(200, TOLD, b'{"results": [' + rows + b"]}")),
    )
    async with reaching(service) as session:
        await anext(session.metrics.avg_tps(43114))
        stepper = asyncio.create_task(_steps(loop, 0.1))
        with pytest.raises(DeadlineExceededError) as caught:
            await anext(session.metrics.avg_tps(43114, deadline=0.7))
        stepper.cancel()
    assert caught.value.in_attempts == pytest.approx(caught.value.elapsed, abs=0.01)


async def _steps(loop: VirtualLoop, seconds: float) -> None:
    """Let time pass at each turn of the loop."""
    while True:
        loop.jump(seconds)
        await asyncio.sleep(0)


@example(answers=[(0.1, FINE), *[(0.1, SILENT)] * 400], deadlines=[30.0, 30.0])
@given(
    st.lists(
        st.tuples(st.floats(0.01, 3.0), st.sampled_from([FINE, BROKEN, BUSY, USED_UP, SILENT, None])),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.floats(0.05, 20.0), min_size=1, max_size=12),
)
def test_no_call_outlives_its_deadline(answers: list[tuple[float, Answer]], deadlines: list[float]) -> None:
    """Whatever the service does, calls end by their deadlines, their times add up, and permits return."""

    async def run() -> None:
        service = Script(*answers, (0.1, FINE))
        async with reaching(service, timeout=2.0) as session:

            async def call(deadline: float) -> float:
                began = time()
                try:
                    await session.data.get(PATH, deadline=deadline)
                except DeadlineExceededError as error:
                    spent = error.in_queue + error.in_attempts + error.between_attempts
                    return abs(spent - error.elapsed) + max(0.0, time() - began - deadline)
                except ChainAPIError:
                    return max(0.0, time() - began - deadline)
                return max(0.0, time() - began - deadline)

            amiss = await asyncio.gather(*(call(deadline) for deadline in deadlines))
            assert max(amiss) < 1e-6
            assert idle(session)
            service.answers = [(0.1, FINE)]
            await session.data.get(PATH, deadline=600.0)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


# --- walks ---


async def test_deadline_bounds_each_page_of_a_walk() -> None:
    """A deadline of 2 s holds for each page of a walk, not for the whole walk."""
    async with simulated(Simulator(rows=200, latency=1.0), deadline=2.0) as session:
        for prefetch in (0, 3):
            pages = session.data.list(f"{PATH}/blocks", page_size=10, prefetch=prefetch)
            assert len(await pages.collect()) == 200
    assert time() > 20


@pytest.mark.parametrize("prefetch", [0, 2])
async def test_walk_goes_on_after_a_deadline(prefetch: int) -> None:
    """A stream read again after a deadline loses and repeats no row, and its error has the checkpoint."""
    sim = Simulator(rows=100, latency=0.1, faults=[Fault(at=4, stall=True)])
    async with simulated(sim) as session:
        pages = session.data.evm.blocks(43114, page_size=10, prefetch=prefetch, deadline=2.0)
        with pytest.raises(DeadlineExceededError) as caught:
            await pages.collect()
        error = caught.value
        assert error.checkpoint is not None
        assert error.partial is not None
        assert error.checkpoint.rows == len(error.partial) == 30
        rows = [*error.partial, *await pages.collect()]
        assert len({row.block_number for row in rows}) == len(rows) == 100


# --- places for the argument ---


def test_every_route_takes_a_deadline() -> None:
    """Each named route, `list` and `get` have `deadline=`, None by default."""
    for name, declared in ROUTES.items():
        assert declared.signature.parameters["deadline"].default is None, name
    session = reaching(Script((0, FINE)))
    for method in (session.data.list, session.data.get):
        assert inspect.signature(method).parameters["deadline"].default is None


async def test_deadline_of_a_call_wins_over_the_sessions() -> None:
    """The deadline of a call replaces the session's, whether shorter or longer."""
    async with reaching(Script((0.1, None)), deadline=5.0, timeout=100.0) as session:
        for deadline in (2.0, 20.0):
            began = time()
            with pytest.raises(DeadlineExceededError):
                await session.data.chain(43114, deadline=deadline)
            assert time() - began == pytest.approx(deadline, abs=0.001)
