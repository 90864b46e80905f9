"""Error tree: as in its diagram, whole after a pickle or copy, safe to print."""

from __future__ import annotations

import copy
import copyreg
import pickle
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Checkpoint, errors
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ArgumentError,
    AuthenticationError,
    BadRequestError,
    CertificateError,
    ChainAPIError,
    CheckpointError,
    ColumnValueError,
    ConfigurationError,
    ConnectError,
    DeadlineExceededError,
    DecodeError,
    ExportError,
    IncompleteExportError,
    NotFoundError,
    OutcomeUnknownError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
    PermissionDeniedError,
    QueueFullError,
    QuotaWaitError,
    RateLimitedError,
    RecordingError,
    RedirectError,
    ResponseTooLargeError,
    ServerError,
    SessionClosedError,
    ShareUnavailableError,
    TargetInUseError,
    WebhookSignatureError,
)


def drawn() -> dict[str, str | None]:
    """Return each error's name in the docstring's tree, with the name of its parent."""
    parents: dict[str, str | None] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        branch, found, text = line.partition("── ")
        if line.strip() == "ChainAPIError":
            depth, name = 0, "ChainAPIError"
        elif found:
            depth, name = (len(branch) - 4) // 4 + 1, text.split()[0]
        else:
            continue
        above[depth] = name
        parents[name] = above[depth - 1] if depth else None
    return parents


def defined() -> dict[str, type[ChainAPIError]]:
    """Return every error class of the module."""
    return {
        name: thing
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, ChainAPIError)
    }


def test_the_tree_is_as_drawn() -> None:
    """The docstring's tree has every class below its base, and no other class."""
    bases = {
        name: None if kind is ChainAPIError else kind.__bases__[0].__name__
        for name, kind in defined().items()
    }
    assert drawn() == bases, "draw each class in the docstring of chainapi/errors.py"


def test_every_error_is_exported_and_described() -> None:
    """`__all__` names the errors and nothing else; each has a docstring."""
    assert sorted(errors.__all__) == sorted(defined()), "__all__ in chainapi/errors.py names each class"
    assert all(kind.__doc__ for kind in defined().values())


def test_some_errors_are_builtin_ones_too() -> None:
    """An error that the docstring calls "also a ..." is caught by that name."""
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(APITimeoutError, TimeoutError)
    assert issubclass(CheckpointError, ValueError)


ALL: list[ChainAPIError] = [
    ChainAPIError("root"),
    ConfigurationError("api_key is empty"),
    ArgumentError("chain_id=-1 is negative or too large"),
    SessionClosedError("closed"),
    APIStatusError(418, "I'm a teapot", ("short",), where="GET /v1/blocks", attempts=3, elapsed=4.25),
    BadRequestError(error="Bad Request", messages=("pageSize must be positive", "and whole")),
    AuthenticationError(),
    PermissionDeniedError(),
    NotFoundError(messages=("no such chain",)),
    RateLimitedError(messages=("slow down",), retry_after=7.5),
    RecordingError("GET /v1/blocks is not recorded"),
    RedirectError(302, "Found"),
    ServerError(503, "Service Unavailable", attempts=5, elapsed=31.0),
    APIConnectionError("reset", where="GET /v1/blocks", attempts=2, elapsed=1.5),
    ConnectError(
        "cannot connect to 127.0.0.1:9: refused", where="POST /v1/webhooks", attempts=2, elapsed=1.5
    ),
    OutcomeUnknownError(
        "no whole answer within 30 s",
        where="POST /v1/webhooks",
        lookup="data.webhooks.list",
        attempts=2,
        elapsed=31.0,
    ),
    WebhookSignatureError("the call has no header x-signature"),
    APITimeoutError("no answer in time", where="GET /v1/blocks", attempts=2, elapsed=60.0),
    DeadlineExceededError(
        5.0, in_queue=1.0, in_attempts=3.5, between_attempts=0.5, retry_after=2.0, last="503"
    ),
    CertificateError("cannot connect to 127.0.0.1:443: its certificate is not trusted"),
    ResponseTooLargeError("the body is larger than max_body=8388608 bytes"),
    DecodeError("missing", path="$.blocks[3].txCount", where="GET /v1/blocks", malformed=True, attempts=2),
    ColumnValueError("has more than 38 digits", path="$.value", row=3, advice="use texts"),
    QuotaWaitError(1_700_000_000.0, retry_after=12.0, max_wait=5.0),
    QueueFullError(1_700_000_000.0, retry_after=12.0, max_waiting=100),
    ShareUnavailableError("no host"),
    PagingError("two readers"),
    PageTokenExpiredError("dead"),
    PageRefusedError(404, "Not Found", ("under maintenance",), where="GET /v1/blocks"),
    PaginationLoopError("again"),
    CheckpointError("damaged"),
    ExportError("locked"),
    IncompleteExportError("1 of 3 sources failed"),
    TargetInUseError("b.duckdb is locked"),
]
DUPLICATES: list[Callable[[ChainAPIError], ChainAPIError]] = [
    copy.copy,
    copy.deepcopy,
    *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
]


def test_all_errors_are_tried() -> None:
    """The list in this file has every class once."""
    assert sorted(type(error).__name__ for error in ALL) == sorted(defined()), "ALL has one of each class"


def test_errors_survive_pickles_and_copies() -> None:
    """Pickles and copies of every error keep type, text, attributes, checkpoint, rows and notes."""
    failures = []
    for one in ALL:
        error = copy.copy(one)
        error.checkpoint = Checkpoint("q", "/p", token="t", minted_at=5.0)
        error.partial = [{"a": 1}]
        error.add_note("a note")
        for twin in (duplicate(error) for duplicate in DUPLICATES):
            same = (type(twin), str(twin), repr(twin), twin.args) == (
                type(error),
                str(error),
                repr(error),
                error.args,
            )
            if not same or vars(twin) != vars(error) or twin is error or not str(twin):
                failures.append(type(error).__name__)
    assert not failures
    export = IncompleteExportError("1 of 3 failed", {"77": NotFoundError(messages=("no such chain",))})
    for twin in (duplicate(export) for duplicate in DUPLICATES):
        assert isinstance(twin, IncompleteExportError)
        assert {label: str(one) for label, one in twin.failures.items()} == {"77": "404: no such chain"}


def test_a_changed_error_keeps_its_position_and_its_call() -> None:
    """An error of decoding with another advice still leads to its walk, its rows and its request."""
    error = DecodeError("a text, not a number", row=3)
    error.call, error.request_id, error.partial = 17, "r-17", [{"a": 1}]
    changed = error.changed(advice="leave it out")
    assert (changed.call, changed.request_id, changed.partial) == (17, "r-17", [{"a": 1}])


def test_a_copy_is_independent() -> None:
    """Changes to a copy leave the error unchanged."""
    error = ServerError(503)
    twin = copy.copy(error)
    twin.checkpoint = Checkpoint("q")
    assert error.checkpoint is None


def test_a_copy_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are not copied, also where a program pickles errors with them, as Dask does."""

    def reduce(error: ServerError) -> tuple[Any, ...]:
        return with_traceback, (error.__reduce__(), error.__traceback__)

    def with_traceback(reduced: tuple[Any, ...], trace: TracebackType) -> BaseException:
        made: BaseException = reduced[0](*reduced[1])
        return made.with_traceback(trace)

    monkeypatch.setitem(copyreg.dispatch_table, ServerError, reduce)
    with pytest.raises(ServerError) as caught:
        raise ServerError(503)
    assert caught.value.__traceback__ is not None
    assert copy.copy(caught.value).__traceback__ is None


def test_errors_outside_of_a_walk_have_no_checkpoint() -> None:
    """Every error has the attributes `checkpoint` and `partial`."""
    assert all(error.checkpoint is None and error.partial is None for error in ALL)


# Statuses.


def test_each_class_has_its_status() -> None:
    """A status error has the status of its class, unless another is given."""
    for kind, status in list[tuple[Any, int]](
        [
            (BadRequestError, 400),
            (AuthenticationError, 401),
            (PermissionDeniedError, 403),
            (NotFoundError, 404),
            (RateLimitedError, 429),
            (ServerError, 500),
        ]
    ):
        assert (kind().status, str(kind()), kind(599).status) == (status, str(status), 599)


def test_what_was_tried_is_added_to_every_error_of_a_call() -> None:
    """`after` adds place, attempts and seconds, and keeps type and attributes."""
    tried: list[APIStatusError | APIConnectionError | DecodeError] = [
        RateLimitedError(retry_after=3.0),
        APITimeoutError("no answer in time"),
        ResponseTooLargeError("too large"),
        DecodeError("no valid JSON", path="$.a", malformed=True),
    ]
    for error in tried:
        placed = error.after(where="GET /v1/chains", attempts=2, elapsed=9.0)
        assert type(placed) is type(error)
        assert vars(placed) == vars(error) | {"where": "GET /v1/chains", "attempts": 2, "elapsed": 9.0}
        assert "GET /v1/chains" in str(placed)
        assert str(placed).endswith("(tried 2 times in 9.0 s)")


def test_a_refused_page_is_both_errors() -> None:
    """A page refused with any token is an expired token and the error of its status."""
    error = PageRefusedError(404, "Not Found", ("under maintenance until 17:00",), where="GET /v1/blocks")
    assert isinstance(error, PageTokenExpiredError)
    assert isinstance(error, PagingError)
    assert isinstance(error, APIStatusError)
    assert (error.status, error.messages) == (404, ("under maintenance until 17:00",))
    assert str(error) == "404 Not Found for GET /v1/blocks: under maintenance until 17:00"
    placed = error.after(where="GET /v1/chains", attempts=2, elapsed=1.0)
    assert type(placed) is PageRefusedError
    assert str(placed).endswith("until 17:00 (tried 2 times in 1.0 s)")


DOWN: Any = {"status": 503, "error": "Service Unavailable", "messages": ("node down", "try later")}
WAIT: Any = {"retry_at": 1_700_000_000.0, "retry_after": 12.34}
TEXTS: dict[str, ChainAPIError] = {
    "503 Service Unavailable: node down; try later": ServerError(**DOWN),
    "503 Service Unavailable for GET /v1/chains: node down; try later (tried 3 times in 4.2 s)": (
        ServerError(**DOWN).after(where="GET /v1/chains", attempts=3, elapsed=4.25)
    ),
    "$: not an object": DecodeError("not an object"),
    "$.results[3].value: missing in the response to GET /v1/avg_tps/1": (
        DecodeError("missing", path="$.results[3].value", where="GET /v1/avg_tps/1")
    ),
    "the outcome of POST /v1/webhooks is unknown: reset. The service may have carried it out, so it was"
    " not sent again: look it up with session.data.webhooks.list() before you repeat the call": (
        OutcomeUnknownError("reset", where="POST /v1/webhooks", lookup="data.webhooks.list")
    ),
    "quota is available again in 12.3 s, later than max_wait=5 s allows": QuotaWaitError(
        **WAIT, max_wait=5.0
    ),
    "quota is available again in 12.3 s, later than the call's deadline, 5.0 s from now": (
        QuotaWaitError(**WAIT, deadline=5.0)
    ),
    "the call would have to wait for quota, and max_waiting=100 calls may do so at once: call again in"
    " 12.3 s, when those are expected to have left, or allow more": QueueFullError(**WAIT, max_waiting=100),
}


def test_the_texts_of_errors() -> None:
    """An error says what happened, where, how often it was tried and what to do."""
    assert {text: str(error) for text, error in TEXTS.items()} == {text: text for text in TEXTS}
    assert not issubclass(OutcomeUnknownError, APIConnectionError | APIStatusError)
    assert "look up its effect before" in str(OutcomeUnknownError("reset", where="POST /x"))
    waits = [vars(error) for error in TEXTS.values() if isinstance(error, QuotaWaitError)]
    assert all(wait.items() >= WAIT.items() for wait in waits)
    limits = [tuple(map(wait.get, ("max_wait", "deadline", "max_waiting"))) for wait in waits]
    assert limits == [(5.0, None, None), (None, 5.0, None), (None, None, 100)]


# What services and networks say is printed.

NASTY = ["\x1b[2J\x07", "a\nb\r", "\x9b2J", "\u202e", "\ud800", "%s %d {0} {error}", "x" * 1_000_000]


def test_texts_are_safe_to_print() -> None:
    """Texts of errors are short, escape control characters and expand no formats."""
    for text in NASTY:
        made: list[ChainAPIError] = [
            ConfigurationError(text),
            APIStatusError(400, text, (text, text)).after(where="GET /", attempts=2, elapsed=1.0),
            APIConnectionError(text),
            APITimeoutError(text).after(where="GET /", attempts=2, elapsed=1.0),
            DecodeError(text, path=text),
        ]
        for error in made:
            assert str(error).isprintable()
            assert len(str(error)) <= 2_000
            assert len(text) > 1_000 or ascii(text)[1:-1] in str(error)
        assert len(vars(made[-1])["reason"]) <= 2_000


@given(st.text(max_size=50))
def test_what_was_escaped_is_not_escaped_again(text: str) -> None:
    """Errors rebuilt from their attributes are equal."""
    error = DecodeError(text, path=text)
    assert str(error.after(where="", attempts=1, elapsed=0.0)) == str(error)
