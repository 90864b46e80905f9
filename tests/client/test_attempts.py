"""Attempts of one call: what is sent again, after which wait, and what the last error says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define, field

from chainapi import LimiterOptions
from chainapi.errors import (
    APIStatusError,
    APITimeoutError,
    CertificateError,
    ChainAPIError,
    DecodeError,
    QuotaWaitError,
    RateLimitedError,
    ServerError,
)
from chainapi.transport import Request, Response
from tests.sessions import reaching

OK = Response(200, {}, b'{"good": 1}')


@define
class Script:
    """Transport that gives these answers in turn, the last one again and again; None never comes."""

    answers: list[Response | Exception | None]
    times: list[float] = field(factory=list[float])

    async def send(self, request: Request) -> Response:
        """Give the next answer."""
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers[min(len(self.times), len(self.answers)) - 1]
        if answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    async def aclose(self) -> None:
        """Close nothing."""

    @property
    def waits(self) -> list[float]:
        """Seconds between two requests."""
        return [round(after - before, 2) for before, after in zip(self.times, self.times[1:], strict=False)]


async def outcome(*answers: Response | Exception | None, **options: Any) -> tuple[Script, Any]:
    """Return the transport after one call, and the result or error."""
    script = Script([*answers])
    async with reaching(script, **{"limiter": LimiterOptions(isolated=True), **options}) as session:
        try:
            return script, await session.data.get("/v1/x")
        except ChainAPIError as error:
            return script, error


async def test_what_is_sent_again() -> None:
    """Faults that may pass are sent again up to max_attempts, others are raised after one request."""
    passing = [Response(status, {}, b"") for status in (500, 502, 503, 504)]
    cases: list[tuple[Response | Exception | None, int]] = [
        *((response, 3) for response in passing),
        (CertificateError("not trusted"), 1),
        (Response(200, {}, b"{"), 3),
        (Response(200, {}, b"\xef\xbb\xbf\n <html>"), 1),
        (Response(200, {}, b" \r\n"), 3),
        (Response(204, {}, b""), 1),
        (None, 3),
        *((Response(status, {}, b"{}"), 1) for status in (199, 302, 400, 401, 403, 404, 409, 418, 501, 505)),
    ]
    failures = []
    for answer, requests in cases:
        script, error = await outcome(answer, max_attempts=3, timeout=1.0)
        if len(script.times) != requests or error.attempts != requests:
            failures.append(f"{answer}: {len(script.times)} requests, not {requests}: {error!r}")
    assert not failures


async def test_an_error_of_a_transport_that_is_not_chainapis_is_raised_as_it_is() -> None:
    """An exception that the transport should not raise is not retried, and reaches the caller unchanged."""
    boom = ZeroDivisionError("a bug")
    script = Script([boom])
    async with reaching(script) as session:
        with pytest.raises(ZeroDivisionError) as caught:
            await session.data.get("/v1/x")
    assert caught.value is boom
    assert len(script.times) == 1


async def test_pauses_grow_and_honour_what_the_service_asks() -> None:
    """Pauses are random below 1, 2, 4 and 8 s; a Retry-After, or a reset with nothing left, is kept."""
    script, error = await outcome(Response(500, {}, b"{}"))
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
    _, error = await outcome(Response(404, {}, b"{}"))
    assert isinstance(error, APIStatusError)
    assert (error.error, error.where, error.attempts) == ("Not Found", "GET /v1/x", 1)
    _, error = await outcome(Response(499, {}, b"{}"))
    assert error.error == ""
    _, error = await outcome(Response(200, {}, b"{"))
    assert isinstance(error, DecodeError)
    assert "in the response to GET /v1/x (tried 5 times" in str(error)
    _, error = await outcome(None, timeout=2.0, max_attempts=1)
    assert isinstance(error, APITimeoutError)
    assert "no whole answer within 2 s for GET /v1/x" in str(error)
