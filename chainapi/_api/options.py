"""Options of a view, a walk and a call: the arguments that are not sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from chainapi._http.message import is_header_name
from chainapi._http.options import CallOptions
from chainapi._http.retry import RetryPolicy
from chainapi._limits.queue import WaitingLimit
from chainapi._paging.checkpoint import MAX_TOKEN, Checkpoint
from chainapi._text import closest, quoted
from chainapi.core.arguments import boolean, one_of, seconds_of, tag_of, whole_number
from chainapi.errors import ConfigurationError
from chainapi.models.codec import OnInvalid

if TYPE_CHECKING:
    from chainapi._http.connection import Connection

__all__ = [
    "CALL_OPTIONS",
    "OPTIONS",
    "ListOptions",
    "Options",
    "ResourceOptions",
    "call_options",
    "changed_options",
    "is_misspelt",
]

MAX_PREFETCH = 16  # pages; more would be memory that waits for its reader


class ResourceOptions(TypedDict, total=False):
    """Arguments of each named route that are not sent.

    Attributes:
        priority: requests of a higher priority are first in the queue for quota.
        deadline: seconds for a call, or for each page of a list, with waits and retries; by default the
            session's.
        tag: name of the spender in `quota.spenders`; by default the session's.

    """

    priority: int | None
    deadline: float | None
    tag: str | None


class ListOptions(ResourceOptions, total=False):
    """Arguments of each list with a name that are not sent.

    Attributes:
        resume: a checkpoint of the same query.
        page_token: a bare token to begin at its page.
        on_invalid: "raise" raises DecodeError at an invalid row, "raw" returns it as an `Invalid` among the
            other rows.
        prefetch: pages to fetch ahead of the reader, 0 to 16.

    """

    resume: Checkpoint | None
    page_token: str | None
    on_invalid: OnInvalid
    prefetch: int


class Options(Struct, frozen=True):
    """Options of a walk: the values of `ListOptions`, checked."""

    resume: Checkpoint | None = None
    page_token: str | None = None
    on_invalid: OnInvalid = "raise"
    prefetch: int = 0
    priority: int | None = None
    deadline: float | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        one_of("on_invalid", self.on_invalid, ("raise", "raw"))
        whole_number("prefetch", self.prefetch, 0, MAX_PREFETCH)
        if self.page_token is not None:
            _check_token(self.page_token)
            if self.resume is not None:
                raise ConfigurationError("resume= has a page token itself: leave page_token= out")


def _check_token(token: object) -> None:
    if not isinstance(token, str) or not 1 <= len(token) <= MAX_TOKEN:
        raise ConfigurationError(f"page_token={quoted(token)} must be a page.next_page_token, not None")


def call_options(options: CallOptions, given: Mapping[str, Any]) -> CallOptions:
    """Return the options of a view with those that are `given`; None keeps one.

    Raises:
        ConfigurationError: an option is invalid.

    """
    changed = dict[str, Any]()
    for name, value in given.items():
        if value is None:
            continue
        if name == "max_attempts":
            changed["retry"] = RetryPolicy(whole_number(name, value))
        elif name == "max_waiting":
            changed["waiting_limit"] = None if value == inf else WaitingLimit(whole_number(name, value, 0))
        elif name == "headers":
            changed[name] = {**options.headers, **_headers(value)}
        else:
            changed[name] = _CHECKS[name](value)
    return replace(options, **changed) if changed else options


def changed_options(connection: Connection, options: CallOptions, given: Mapping[str, Any]) -> CallOptions:
    """Return the options of a call or a view of a session; see `call_options`."""
    changed = call_options(options, given)
    if given.get("max_waiting") is not None:
        changed = connection.counted(changed, options.waiting_limit)
    connection.expect(changed.timeout)
    return changed


def _limit_of(name: str, *, zero: bool) -> Callable[[object], float | None]:
    """Return the check of a number of seconds that infinity switches off."""
    return lambda value: None if value == inf else seconds_of(name, value, zero=zero)


def _cache(value: object) -> object:
    """Return the argument ``cache=``; None if it is False."""
    if value is False:
        return None
    from chainapi._http.cache import Cache  # whoever made one has loaded it

    if not isinstance(value, Cache):
        raise ConfigurationError(f"cache={quoted(value)} must be a chainapi.Cache, or False for no cache")
    return value


def _headers(headers: object) -> dict[str, str]:
    """Return the argument ``headers=``, with lower-case names.

    The message of an error has no value: it may be a secret.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError("headers= must map names of headers to strings")
    return {_header_name(name): _header_value(name, value) for name, value in headers.items()}


def _header_name(name: object) -> str:
    if not is_header_name(name):
        raise ConfigurationError(f"headers= has {quoted(name)}, which is no name of a header")
    if name.lower() in _OWN_HEADERS:
        raise ConfigurationError(f"headers= has {quoted(name)}, which chainapi sets itself: leave it out")
    if name.lower().endswith("api-key"):  # both services would receive it
        raise ConfigurationError(f"headers= has {quoted(name)}: give the key to Session(api_key=)")
    return name.lower()


def _header_value(name: str, value: object) -> str:
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise ConfigurationError(
            f"headers[{name!r}] must be a string of printable ASCII characters, with no white space at its"
            " ends"
        )
    return value


_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
# The transport frames and decompresses messages.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
)
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "timeout": lambda value: seconds_of("timeout", value),
    "max_wait": _limit_of("max_wait", zero=True),
    "deadline": _limit_of("deadline", zero=False),
    "priority": lambda value: whole_number("priority", value, least=None),
    "tag": tag_of,
    "coalesce": lambda value: boolean("coalesce", value),
    "cache": _cache,
}
OPTIONS = (*_CHECKS, "max_attempts", "max_waiting", "headers")
CALL_OPTIONS = tuple(ResourceOptions.__annotations__)  # the options that each call has


def is_misspelt(name: str) -> bool:
    """Check whether a query parameter was meant as an argument of a method."""
    return "_" in name or closest(name, (*_LIST_ARGUMENTS, *OPTIONS), cutoff=0.8) is not None


_LIST_ARGUMENTS = (
    *("path", "priority", "deadline", "tag", "model", "items", "page_size", "key", "descending_key", "until"),
    *("resume", "page_token", "on_invalid", "prefetch", "params"),
)
