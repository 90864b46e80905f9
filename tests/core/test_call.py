"""Call flow driven command by command: no event loop, no clock, no transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chainapi.core.call import (
    Acquire,
    Call,
    CallFlow,
    CallOptions,
    CallSettings,
    Command,
    Decode,
    Describe,
    Exchange,
    GivenUp,
    Pause,
    Send,
    SentAt,
)
from chainapi.core.limits.info import RateLimitInfo
from chainapi.core.limits.verdict import Verdict
from chainapi.core.retry import RetryBudget, RetryPolicy
from chainapi.core.url import Query
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    CertificateError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    PageTokenExpiredError,
    RateLimitedError,
    RedirectError,
    ServerError,
)
from chainapi.transport import Response

WHERE = "GET /v1/x"
OK = Response(200, {}, b"{}")
NO_JSON = DecodeError("no JSON", malformed=True)
BROKEN = APIConnectionError("broken")
SLOW = APITimeoutError("no whole answer within 30 s")


def status(code: int, body: bytes = b"{}") -> Response:
    """Return a response with a status."""
    return Response(code, {}, body)


def refusal(verdict: Verdict, limits: RateLimitInfo | None = None) -> Exchange:
    """Return the exchange of a request that was refused with 429."""
    return Exchange(SentAt(0.0, 0.0), status(429), limits or RateLimitInfo(), verdict)


@define
class Script:
    """Executor of commands without a service: fixed durations and scripted outcomes.

    Attributes:
        outcomes: what the attempts meet, in turn; the last one is repeated.
        decoded: what decoding gives, in turn; the last one is repeated.
        queue: seconds that each wait for quota takes.
        took: seconds that each attempt takes.

    """

    outcomes: Sequence[Response | APIConnectionError | Exchange] = (OK,)
    decoded: Sequence[object] = ("decoded",)
    queue: float = 0.0
    took: float = 1.0
    unanswered: APITimeoutError | None = None
    now: float = 100.0
    commands: list[Command] = field(factory=list[Command])
    settings: CallSettings = field(factory=lambda: CallSettings(RetryBudget(), jitter=lambda: 1.0))
    options: CallOptions = field(factory=CallOptions)

    def run(self, call: Call | None = None, began: float | None = None) -> tuple[Any, Exchange]:
        """Run a call to its end."""
        self.flow = CallFlow(
            call or Call(Query("/v1/x"), options=self.options),
            self.settings,
            self.now if began is None else began,
        )
        commands = self.flow.run(self.now)
        try:
            command = next(commands)
            while True:
                self.commands.append(command)
                result = self.carry_out(command)
                command = commands.send((self.now, result))
        except StopIteration as end:
            outcome: tuple[Any, Exchange] = end.value
            return outcome

    flow: CallFlow = field(init=False)

    def carry_out(self, command: Command) -> object:
        """Return the result of a command, and let its time pass."""
        if isinstance(command, Acquire):
            self.now += self.queue
            return self.unanswered
        if isinstance(command, Send):
            sent = SentAt(self.now, 1e9 + self.now)
            self.now += self.took
            outcome = self.outcomes[min(command.attempt, len(self.outcomes)) - 1]
            return outcome if isinstance(outcome, Exchange) else Exchange(sent, outcome)
        if isinstance(command, Decode):
            done = self.count(Decode)
            return self.decoded[min(done, len(self.decoded)) - 1]
        if isinstance(command, Pause):
            self.now += command.seconds
            return None
        return "", ("from the body",)

    def count(self, kind: type[Command]) -> int:
        """Return how many commands of a kind there were."""
        return sum(isinstance(command, kind) for command in self.commands)

    @property
    def kinds(self) -> list[str]:
        """Names of the commands, in order."""
        return [type(command).__name__ for command in self.commands]

    @property
    def pauses(self) -> list[float]:
        """Seconds of the pauses, in order."""
        return [command.seconds for command in self.commands if isinstance(command, Pause)]


# --- outcomes of one attempt ---


def test_a_good_call() -> None:
    """A call that succeeds at once acquires, sends, decodes and returns its exchange."""
    script = Script(queue=2.5)
    decoded, exchange = script.run()
    assert (decoded, exchange.outcome, exchange.sent) == ("decoded", OK, SentAt(102.5, 1e9 + 102.5))
    assert script.commands == [Acquire(None, inf, again=False), Send(1), Decode(OK)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (404, NotFoundError),
        (418, APIStatusError),
        (302, RedirectError),
        (501, ServerError),
        (199, APIStatusError),
    ],
)
def test_a_final_status_is_raised_after_one_attempt(code: int, kind: type[APIStatusError]) -> None:
    """A final status is raised after one attempt, with the messages of its body."""
    script = Script([status(code)])
    with pytest.raises(kind) as caught:
        script.run()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.messages) == (code, ("from the body",))
    assert (caught.value.where, caught.value.attempts, caught.value.elapsed) == (WHERE, 1, 1.0)
    assert script.kinds == ["Acquire", "Send", "Describe"]


def test_an_error_without_a_name_has_the_reason_phrase() -> None:
    """An error without a name has the standard phrase of its status."""
    with pytest.raises(NotFoundError) as caught:
        Script([status(404)]).run()
    assert caught.value.error == "Not Found"
    with pytest.raises(APIStatusError) as unknown:
        Script([status(499)]).run()
    assert unknown.value.error == ""


@pytest.mark.parametrize("lasting", [CertificateError("not trusted")])
def test_a_lasting_connection_error_is_raised_at_once(lasting: APIConnectionError) -> None:
    """A permanent connection error is raised after one attempt."""
    script = Script([lasting])
    with pytest.raises(type(lasting), match="not trusted for GET /v1/x"):
        script.run()
    assert script.kinds == ["Acquire", "Send"]


# --- retries ---


@pytest.mark.parametrize("fault", [status(503), status(500), BROKEN, SLOW])
def test_a_fault_is_retried(fault: Response | APIConnectionError) -> None:
    """A retry follows a pause and a wait in the queue ahead of others."""
    script = Script([fault, OK])
    assert script.run()[0] == "decoded"
    assert [kind for kind in script.kinds if kind != "Describe"] == [
        *("Acquire", "Send", "Pause"),
        *("Acquire", "Send", "Decode"),
    ]
    acquired = [command for command in script.commands if isinstance(command, Acquire)]
    assert [command.again for command in acquired] == [False, True]
    assert script.pauses == [1.0]  # base 0.5 s, doubled


@given(st.lists(st.sampled_from([status(502), status(504), BROKEN, SLOW]), min_size=5, max_size=5))
def test_faults_end_with_the_last_attempt(faults: list[Response | APIConnectionError]) -> None:
    """Five faults of any kind end a call; the error has attempts and total time."""
    script = Script(faults)
    with pytest.raises((ServerError, APIConnectionError)) as caught:
        script.run()
    assert script.pauses == [1.0, 2.0, 4.0, 8.0]
    assert isinstance(caught.value, APIStatusError | APIConnectionError)
    assert (caught.value.attempts, caught.value.elapsed) == (5, 5.0 + 15.0)


@pytest.mark.parametrize(("fault", "reason"), [(status(503), "503"), (BROKEN, "broken"), (SLOW, SLOW.reason)])
def test_a_pause_names_its_reason(fault: Response | APIConnectionError, reason: str) -> None:
    """A pause has the number of the failed attempt and the reason."""
    script = Script([fault, OK])
    script.run()
    assert Pause(1.0, 1, reason) in script.commands


def test_a_retry_after_is_kept() -> None:
    """Retry-After of a 503 is kept; a wait above `max_wait` ends the call."""
    busy = Exchange(SentAt(0.0, 0.0), status(503), RateLimitInfo(retry_after=7.0))
    script = Script([busy, OK])
    script.run()
    assert script.pauses == [7.0]
    for left, pause in ((0.0, 30.0), (9.0, 1.0)):  # a reset counts where nothing is left
        script = Script([Exchange(SentAt(0.0, 0.0), status(500), RateLimitInfo(100.0, left, 30.0)), OK])
        script.run()
        assert script.pauses == [pause]
    script = Script([busy, OK])
    script.options = replace(script.options, max_wait=6.0)
    with pytest.raises(ServerError):
        script.run()
    assert script.pauses == []


def test_without_retries_every_fault_is_final() -> None:
    """A fault is final if only one attempt is allowed."""
    script = Script([BROKEN])
    script.options = replace(script.options, retry=RetryPolicy(max_attempts=1))
    with pytest.raises(APIConnectionError):
        script.run()
    assert script.kinds == ["Acquire", "Send"]


# --- the retry budget ---


@pytest.mark.parametrize(("fault", "cost"), [(BROKEN, 5.0), (status(500), 5.0), (SLOW, 10.0)])
def test_a_retry_costs_and_its_success_gives_back(fault: Response | APIConnectionError, cost: float) -> None:
    """A retry takes its cost from the session's budget until it succeeds."""
    script = Script([fault, fault, OK])
    script.run()
    assert script.settings.budget.level == 500.0
    script = Script([fault, fault, status(404)])
    with pytest.raises(NotFoundError):
        script.run()
    assert script.settings.budget.level == 500.0 - 2 * cost


def test_an_empty_budget_ends_the_retries() -> None:
    """An empty retry budget makes a fault final, after the first attempt."""
    script = Script([BROKEN, OK])
    script.settings.budget.level = 4.0
    with pytest.raises(APIConnectionError) as caught:
        script.run()
    assert (caught.value.attempts, script.pauses) == (1, [])
    script = Script()
    script.settings.budget.level = 0.0
    script.run()
    assert script.settings.budget.level == 1.0


# --- refusals ---


def attempts(verdict: Verdict, max_attempts: int = 3, max_wait: float | None = 1e9) -> int:
    """Return how many requests a call sends that is always refused, 100 at most."""
    script = Script([*[refusal(verdict)] * 99, OK], took=0.0)
    script.options = replace(script.options, retry=RetryPolicy(max_attempts))
    script.options = replace(script.options, max_wait=max_wait)
    with suppress(RateLimitedError):
        script.run()
    assert script.pauses == []
    return script.count(Send)


@pytest.mark.parametrize(
    ("verdict", "sent"),
    [
        (Verdict.QUOTA, 11),
        (Verdict.UNANNOUNCED, 11),
        (Verdict.ROUTE, 3),
        (Verdict.TOO_EXPENSIVE, 1),
        (Verdict.PASSED, 3),
    ],
)
def test_attempts_after_refusals(verdict: Verdict, sent: int) -> None:
    """The gate's verdict limits the 429s of a call, which never pauses by itself.

    The gate waits instead.
    """
    assert attempts(verdict) == sent
    assert attempts(verdict, max_attempts=1) == 1


def test_a_patient_call_takes_any_number_of_refusals() -> None:
    """A call without `max_wait` takes any number of 429s that name no wait.

    Other refusals still count.
    """
    assert attempts(Verdict.UNANNOUNCED, max_wait=None) == 100
    assert attempts(Verdict.UNANNOUNCED, max_wait=None, max_attempts=1) == 1
    assert attempts(Verdict.QUOTA, max_wait=None) == 11


@pytest.mark.parametrize(
    ("limits", "retry_after"),
    [
        (RateLimitInfo(retry_after=7.0, reset=9.0), 7.0),
        (RateLimitInfo(reset=9.0), 9.0),
        (RateLimitInfo(), None),
    ],
)
def test_a_refusal_keeps_the_wait(limits: RateLimitInfo, retry_after: float | None) -> None:
    """The error of a 429 has the last retry-after, else the last reset."""
    script = Script([refusal(Verdict.ROUTE, limits)])
    script.options = replace(script.options, retry=RetryPolicy(max_attempts=1))
    with pytest.raises(RateLimitedError) as caught:
        script.run()
    assert caught.value.retry_after == retry_after


def test_a_request_that_costs_more_than_the_limit() -> None:
    """RateLimitedError explains a request that costs more than the whole limit."""
    with pytest.raises(RateLimitedError, match="it costs more than the limit") as caught:
        Script([refusal(Verdict.TOO_EXPENSIVE)]).run()
    assert caught.value.messages[0] == "from the body"


@pytest.mark.parametrize(("asked", "pause"), [(59.0, 59.0), (2_592_000.0, 60.0), (0.0, 1.0)])
def test_a_retry_after_has_a_cap(asked: float, pause: float) -> None:
    """A wait that a 5xx requests is cut to `max_stop`, and `max_wait` bounds what is left of it."""
    busy = Exchange(SentAt(0.0, 0.0), status(503), RateLimitInfo(retry_after=asked))
    script = Script([busy, OK])
    script.settings.max_stop = 60.0
    script.options = replace(script.options, max_wait=60.0)
    script.run()
    assert script.pauses == [pause]


# --- deadline and max_wait ---


def test_the_deadline_counts_from_the_beginning() -> None:
    """The deadline of a call counts from `began`, by default from now on."""
    script = Script()
    script.options = replace(script.options, deadline=30.0)
    script.run(began=90.0)
    assert script.commands[0] == Acquire(None, 120.0, again=False)
    script.run(Call(Query("/v1/x"), options=CallOptions(deadline=5.0)))
    assert script.commands[3] == Acquire(None, 106.0, again=False)


def test_a_retry_behind_the_deadline_is_not_waited_for() -> None:
    """A retry behind the deadline ends the call at once, with its time by phase."""
    script = Script([BROKEN], queue=2.0, took=3.0)
    script.options = replace(script.options, deadline=12.0)
    with pytest.raises(DeadlineExceededError) as caught:
        script.run(began=99.0)
    error = caught.value
    assert error.__cause__ is BROKEN is script.flow.last
    assert (error.in_queue, error.in_attempts, error.between_attempts) == (5.0, 6.0, 1.0)
    assert (error.attempts, error.elapsed, error.retry_after) == (2, 12.0, 2.0)
    assert script.pauses == [1.0]
    assert "the last error: broken" in str(error)


@pytest.mark.parametrize(("deadline", "pauses"), [(2.0, []), (2.1, [1.0])])
def test_a_pause_must_end_before_the_deadline(deadline: float, pauses: list[float]) -> None:
    """A pause that ends exactly at the deadline leaves no time for another attempt."""
    script = Script([BROKEN])
    script.options = replace(script.options, deadline=deadline)
    with pytest.raises(DeadlineExceededError):
        script.run()
    assert script.pauses == pauses


@pytest.mark.parametrize(("deadline", "sent"), [(5.0, 0), (5.1, 1), (12.0, 1), (12.1, 2)])
def test_a_turn_after_the_deadline_is_not_used(deadline: float, sent: int) -> None:
    """A request is sent before the deadline only, also if no timer has ended its call by then."""
    script = Script([BROKEN, OK], queue=5.0)
    script.options = replace(script.options, deadline=deadline)
    if sent == 2:
        script.run()
    else:
        with pytest.raises(DeadlineExceededError) as caught:
            script.run()
        assert (caught.value.attempts, caught.value.__cause__) == (sent, script.flow.last)
    assert script.count(Send) == sent


@given(queue=st.floats(0.0, 5.0), took=st.floats(0.0, 5.0), cut=st.floats(0.0, 60.0))
def test_the_phases_add_up(queue: float, took: float, cut: float) -> None:
    """The phases of a call cut off at any deadline add up to the time that passed."""
    script = Script([BROKEN, status(503), BROKEN, status(429), OK], queue=queue, took=took)
    script.options = replace(script.options, deadline=1_000.0)
    script.run(began=90.0)
    error = script.flow.exceeded(script.now + cut)
    phases = error.in_queue + error.in_attempts + error.between_attempts
    assert phases == pytest.approx(error.elapsed) == pytest.approx(script.now + cut - 90.0)
    assert error.between_attempts == pytest.approx(sum(script.pauses))


def test_waits_of_all_attempts_count_towards_max_wait() -> None:
    """Waits of earlier attempts reduce `max_wait`, at most to 0."""
    script = Script([refusal(Verdict.QUOTA)] * 3 + [OK], queue=4.0)
    script.options = replace(script.options, max_wait=10.0)
    script.run(began=99.0)
    waits = [command.max_wait for command in script.commands if isinstance(command, Acquire)]
    assert waits == [9.0, 5.0, 1.0, 0.0]


def test_a_service_that_answers_nobody() -> None:
    """A timeout in the queue ends the call, and counts no attempt."""
    script = Script(unanswered=APITimeoutError("no answer to any request for 9 s"), queue=9.0)
    with pytest.raises(APITimeoutError, match="no answer to any request for 9 s for GET /v1/x") as caught:
        script.run()
    assert (caught.value.attempts, caught.value.elapsed) == (0, 9.0)
    assert script.kinds == ["Acquire"]


# --- requests that are not sent ---


@pytest.mark.parametrize(("not_after", "sent"), [(105.0, False), (105.1, True), (inf, True)])
def test_a_token_that_dies_in_the_queue_is_not_sent(not_after: float, sent: bool) -> None:
    """A page token is sent before `not_after` only, however long its request waited."""
    script = Script(queue=5.0)
    call = Call(Query("/v1/x"), "token", not_after)
    if sent:
        script.run(call)
    else:
        with pytest.raises(PageTokenExpiredError):
            script.run(call)
    assert script.count(Send) == sent


def test_a_token_can_die_between_two_attempts() -> None:
    """A retry does not send a token that expired after the first attempt."""
    script = Script([BROKEN, OK])
    with pytest.raises(PageTokenExpiredError):
        script.run(Call(Query("/v1/x"), "token", 101.5))
    assert script.kinds == ["Acquire", "Send", "Pause", "Acquire"]


def test_a_call_that_nobody_needs_is_given_up() -> None:
    """A call checks before each attempt that a caller still needs the response."""
    answers = [True, False]
    needed: Callable[[], bool] = lambda: answers.pop(0)  # noqa: E731
    script = Script([BROKEN])
    with pytest.raises(GivenUp):
        script.run(Call(Query("/v1/x"), needed=needed))
    assert script.kinds == ["Acquire", "Send", "Pause", "Acquire"]


# --- bodies ---


def test_a_body_that_is_no_json_is_fetched_again() -> None:
    """Malformed bodies count as faults, and a later good body ends the call well."""
    script = Script(decoded=[NO_JSON, NO_JSON, {"good": 1}])
    assert script.run()[0] == {"good": 1}
    assert script.pauses == [1.0, 2.0]
    assert Pause(1.0, 1, "no JSON") in script.commands


def test_a_malformed_body_at_every_attempt() -> None:
    """A malformed body at the last attempt raises DecodeError with the attempt count."""
    script = Script(decoded=[NO_JSON])
    with pytest.raises(DecodeError, match=r"no JSON in the response to GET /v1/x \(tried 5 times"):
        script.run()


@pytest.mark.parametrize(
    ("body", "fault"),
    [(b'{"a": 1}', DecodeError("missing", path="$.b")), (b"\xef\xbb\xbf\n <html>", NO_JSON)],
)
def test_a_body_that_would_come_again_is_final(body: bytes, fault: DecodeError) -> None:
    """JSON of another shape, and a web page, are raised after one attempt."""
    script = Script([status(200, body)], decoded=[fault])
    with pytest.raises(DecodeError, match=fault.reason):
        script.run()
    assert script.kinds == ["Acquire", "Send", "Decode"]


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_a_missing_body(body: bytes) -> None:
    """A 200 without a body is retried, a 204 is not; neither is decoded."""
    script = Script([status(200, body), OK])
    assert script.run()[0] == "decoded"
    assert script.kinds == ["Acquire", "Send", "Pause", "Acquire", "Send", "Decode"]
    for code, phrase in ((204, "204 No Content"), (205, "205 Reset Content")):
        script = Script([status(code, body)])
        with pytest.raises(DecodeError, match=f"an answer without a body: {phrase}"):
            script.run()
        assert script.kinds == ["Acquire", "Send"]


def test_a_command_shows_no_body() -> None:
    """Reprs of commands hide the body, which may contain the API key."""
    for command in (Decode(status(200, b"secret")), Describe(status(400, b"secret"))):
        assert "secret" not in repr(command)
