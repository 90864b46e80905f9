"""Problem details: status, kind and wait of each error, and what the client never sees."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from chainapi import Session, errors
from chainapi.contrib.problems import problem_of, upstream_error
from chainapi.errors import (
    APIStatusError,
    ArgumentError,
    AuthenticationError,
    ChainAPIError,
    DeadlineExceededError,
    NotFoundError,
    QuotaWaitError,
    RateLimitedError,
    ServerError,
)
from chainapi.simulator import Fault, Simulator
from tests.test_errors import ALL

PAGE = Path(__file__).parents[2] / "docs" / "web.md"
ROW = re.compile(r"^\| (?P<names>`\w+`.*?) \| (?P<status>\d{3}) \| `(?P<kind>[\w-]+)` \|", re.MULTILINE)


def documented() -> dict[str, tuple[int, str]]:
    """Return status and kind of each error in the table of docs/web.md."""
    rows: dict[str, tuple[int, str]] = {}
    for row in ROW.finditer(PAGE.read_text("utf-8")):
        for name in re.findall(r"`(\w+)`", row["names"]):
            rows[name] = int(row["status"]), row["kind"]
    return rows


def test_each_error_has_the_status_that_the_docs_list() -> None:
    """The nearest class in the table of docs/web.md, which has errors only, decides status and kind."""
    table = documented()
    assert table.keys() <= set(errors.__all__)
    wrong = list[str]()
    for error in ALL:
        nearest = next(table[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in table)
        problem = problem_of(error)
        if (problem.status, problem.kind) != nearest:
            wrong.append(f"{error!r}: {problem.status} {problem.kind}, not {nearest}")
    assert wrong == []


def test_body_has_the_members_of_the_standard() -> None:
    """The body has type, title, status and detail, and the wait where there is one."""
    problem = problem_of(QuotaWaitError(1_000.0, retry_after=41.2, max_wait=2.0))
    assert json.loads(problem.body) == {
        "type": "urn:chainapi:quota",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "quota is available again in 41.2 s",
        "retry_after": 41.2,
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.0, "1"), (41.2, "42")])
def test_retry_after_is_never_too_early(seconds: float, header: str) -> None:
    """Retry-After is rounded up to whole seconds, and scripts of other origins may read it."""
    headers = problem_of(QuotaWaitError(1_000.0, retry_after=seconds, max_wait=0.0)).headers
    assert headers["retry-after"] == header
    assert headers["access-control-expose-headers"] == "retry-after"
    assert headers["cache-control"] == "no-store"
    assert "retry-after" not in problem_of(ServerError(503)).headers  # the wait is not known


@pytest.mark.parametrize("named", [None, 7.5])
async def test_wait_after_429_is_that_of_the_answer_or_of_the_quota(named: float | None) -> None:
    """A 429 that named no wait has that of the quota, which has stopped by then."""
    simulator = Simulator(faults=(Fault(at=1, status=429),))
    async with Session(
        metrics_base_url=simulator.metrics_base_url, transport=simulator.transport(), max_attempts=1
    ) as session:
        with pytest.raises(RateLimitedError):
            await session.metrics.avg_tps(43114).collect()
        stop = session.quota["metrics"].stopped_for
        problem = problem_of(RateLimitedError(retry_after=named), session)
    assert problem.retry_after == (named or stop) > 0
    assert problem_of(RateLimitedError()).retry_after is None


def test_full_queue_is_described_as_one() -> None:
    """A call beside which too many wait may come again when those have left, at the same `Retry-After`."""
    problem = problem_of(errors.QueueFullError(1_000.0, retry_after=41.2, max_waiting=100))
    assert (problem.status, problem.kind, problem.retry_after) == (503, "quota", 41.2)
    assert problem.detail == "too many requests wait for quota: those are expected to have left in 41.2 s"


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError(messages=("the key abc is unknown",), where="GET /v1/secret"),
        errors.PermissionDeniedError(messages=("the key abc is limited",), where="GET /v1/secret"),
        errors.ConfigurationError("api_key abc of /v1/secret is empty"),
        errors.RedirectError(302, "Redirect", ("this one leads to secret abc",)),
        errors.APIConnectionError("secret abc refused"),
        APIStatusError(418, "secret", ("abc",)),
        errors.DecodeError("abc", path="$.secret"),
        errors.ExportError("/secret/abc is no directory"),
        ChainAPIError("secret abc"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_client_sees_no_fault_of_the_server(error: ChainAPIError, caplog: pytest.LogCaptureFixture) -> None:
    """Texts of faults that are not the client's are in the log, not in the response."""
    with caplog.at_level(logging.INFO, "chainapi"):
        problem = problem_of(error, place="GET /tps")
    assert problem.status >= 500
    assert not re.search(rb"abc|secret", problem.body)
    assert "GET /tps answered" in caplog.text
    assert "abc" in caplog.text


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (AuthenticationError(), logging.ERROR),
        (errors.ConfigurationError("x"), logging.ERROR),
        (ServerError(503), logging.WARNING),
        (DeadlineExceededError(1.0), logging.WARNING),
        (QuotaWaitError(1.0, retry_after=1.0, max_wait=0.0), logging.INFO),
        (NotFoundError(), logging.INFO),
    ],
    ids=lambda value: type(value).__name__,
)
def test_log_level_says_who_has_to_act(
    error: ChainAPIError, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults of the configuration are errors, those of the services warnings, the rest information."""
    with caplog.at_level(logging.DEBUG, "chainapi"):
        problem_of(error)
    assert [record.levelno for record in caplog.records] == [level]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ArgumentError("chain_id=-1 is negative or too large"), "chain_id=-1 is negative or too large"),
        (NotFoundError(messages=("no such chain", "or none yet")), "no such chain; or none yet"),
        (NotFoundError(error="Not Found"), "Not Found"),
        (DeadlineExceededError(5.0, in_queue=5.0), "no answer within 5 s"),
    ],
)
def test_client_sees_its_own_mistakes(error: ChainAPIError, detail: str) -> None:
    """Texts about the client's own request are in the response."""
    assert problem_of(error).detail == detail


def test_group_of_errors_has_the_worst() -> None:
    """Of a group the highest status decides, then the longest wait; other errors stay the application's."""
    short, long = (
        QuotaWaitError(1.0, retry_after=1.0, max_wait=0.0),
        QuotaWaitError(9.0, retry_after=9.0, max_wait=0.0),
    )
    group = ExceptionGroup("tasks", [NotFoundError(), ExceptionGroup("inner", [short, long]), short])
    assert upstream_error(group) is long
    assert upstream_error(ExceptionGroup("tasks", [NotFoundError(), KeyError("x")])) is None
    assert upstream_error(KeyError("x")) is None
