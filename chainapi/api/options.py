"""Options of a view, a walk and a call: the arguments that are not sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chainapi._text import closest, quoted
from chainapi.client.pages import OnInvalid
from chainapi.core.arguments import boolean, one_of, refuse_unknown, seconds_of, tag_of, whole_number
from chainapi.core.call import CallOptions
from chainapi.core.http import is_header_name
from chainapi.core.limits.waiting import WaitingLimit
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.retry import RetryPolicy
from chainapi.errors import ConfigurationError

__all__ = ["NOT_SENT", "OPTIONS", "Options", "call_options", "is_misspelt", "own_options", "refuse_misspelt"]

NOT_SENT = ("resume", "on_invalid", "prefetch", "priority", "deadline", "tag")
MAX_PREFETCH = 16  # pages; more would be memory that waits for its reader


class Options(Struct, frozen=True):
    """Options of a walk: the arguments that are not sent (`NOT_SENT`)."""

    resume: Checkpoint | None
    on_invalid: OnInvalid
    prefetch: int
    priority: int | None
    deadline: float | None
    tag: str | None

    def __post_init__(self) -> None:
        one_of("on_invalid", self.on_invalid, ("raise", "raw"))
        whole_number("prefetch", self.prefetch, 0, MAX_PREFETCH)


def call_options(options: CallOptions, given: Mapping[str, Any]) -> CallOptions:
    """Return the options of a view with those that are `given`; None keeps one.

    Raises:
        ConfigurationError: an option is invalid.

    """
    wanted = {name: value for name, value in given.items() if value is not None}
    changed = {name: _CHECKS[name](value) for name, value in wanted.items() if name in _CHECKS}
    if "max_attempts" in wanted:
        changed["retry"] = RetryPolicy(whole_number("max_attempts", wanted["max_attempts"]))
    if "headers" in wanted:
        changed["headers"] = {**options.headers, **_headers(wanted["headers"])}
    return replace(options, **changed)


def own_options(
    options: CallOptions, priority: int | None, deadline: float | None, tag: str | None
) -> CallOptions:
    """Return the options of a view with those of one call or stream; None keeps one.

    Raises:
        ConfigurationError: an option is invalid.

    """
    if priority is None and deadline is None and tag is None:
        return options
    return call_options(options, {"priority": priority, "deadline": deadline, "tag": tag})


def _limit_of(name: str, *, zero: bool) -> Callable[[object], float | None]:
    """Return the check of a number of seconds that infinity switches off."""
    return lambda value: None if value == inf else seconds_of(name, value, zero=zero)


def _cache(value: object) -> object:
    """Return the argument ``cache=``; None where it is False."""
    if value is False:
        return None
    from chainapi.client.cache import Cache  # whoever made one has loaded it

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
    "max_waiting": lambda value: (
        None if value == inf else WaitingLimit(whole_number("max_waiting", value, 0))
    ),
}
OPTIONS = (*_CHECKS, "max_attempts", "headers")


def refuse_misspelt(params: dict[str, object], what: str) -> None:
    """Refuse a query parameter that was meant as an argument of the method `what`.

    Query parameters of the services have no underscore.

    Raises:
        ConfigurationError: there is one; the message names the argument.

    """
    for name in params:
        if is_misspelt(name):
            refuse_unknown([name], _KNOWN[what], what, params)


def is_misspelt(name: str) -> bool:
    """Check whether a query parameter was meant as an argument of a method."""
    return "_" in name or closest(name, _LIST_ARGUMENTS, cutoff=0.8) is not None


_RESPONSE_ARGUMENTS = ("path", "priority", "deadline", "tag")
_GET_ARGUMENTS = (*_RESPONSE_ARGUMENTS, "model")
_LIST_ARGUMENTS = (
    *_GET_ARGUMENTS,
    "items",
    "page_size",
    "key",
    "descending_key",
    "until",
    "resume",
    "on_invalid",
    "prefetch",
)
_KNOWN = {"list": _LIST_ARGUMENTS, "get": _GET_ARGUMENTS, "get_response": _RESPONSE_ARGUMENTS}
