"""URLs of requests: paths and query parameters, checked and percent-encoded once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chainapi._text import quoted
from chainapi.core.arguments import whole_number
from chainapi.core.idempotency import Idempotency
from chainapi.core.numbers import is_of
from chainapi.core.private import Private
from chainapi.errors import ArgumentError, ConfigurationError

__all__ = ["MAX_PAGE_SIZE", "Query", "checked_page_size", "checked_path", "path_segment"]

MAX_PAGE_SIZE = 10_000  # the largest that any known route takes; most take 100
MAX_SEGMENT = 1_024  # characters

_PATH_SAFE = "/:@!$&'()*+,;=~-._"
_SAFE_PATH = re.compile(rf"[A-Za-z0-9{re.escape(_PATH_SAFE)}]*")  # most paths: nothing in them is quoted
_PLAIN_PAIR = re.compile(r"[A-Za-z0-9_.~-]*=[A-Za-z0-9_.~-]*")  # of a name and a value: nothing is quoted
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")  # most page tokens: nothing in them is quoted
_MAX_WHOLE = 10**100  # identifiers are smaller, and Python does not convert every larger one to text
_WHOLE = re.compile(r"[0-9]{1,100}")  # the same as text
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SEPARATOR = re.compile(r"[/?#%\\\s]")  # of a segment
_PLAIN_SEGMENT = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_SEGMENT}}}")  # most segments
_PATH_END = re.compile(r"[?#\\\s]")  # of a path
_HALF = re.compile(r"[\ud800-\udfff]")  # halves of characters, which UTF-8 cannot carry


def _encode(query: Query) -> str:
    plain = _SAFE_PATH.fullmatch(query.path)
    encoded = query.path if plain else quote(query.path, safe=_PATH_SAFE)
    if not query.params:
        return encoded
    pairs = [f"{name}={value}" for name, value in query.params]
    safe = all(map(_PLAIN_PAIR.fullmatch, pairs))
    return f"{encoded}?{'&'.join(pairs) if safe else urlencode(query.params)}"


class Query(Private, Struct, frozen=True):
    """Method, path, parameters and body of a request, without the page token.

    Attributes:
        path: path below the base address.
        params: parameters of the query.
        route: name that requests of the same cost share.
        cost: documented cost in compute units, if any.
        template: path of a declared route, with the names of its parameters in braces; else empty.
        method: HTTP method.
        body: JSON object; None for a request without a body.
        token_in_body: whether the page token is a field of the body, not a parameter of the query.
        idempotency: effect of sending the request twice.
        lookup: method of a session that shows the effect of a write, such as ``data.webhooks.list``.
        bodiless: whether a successful answer needs no body.
        encoded: path and parameters as they are sent, made of them.

    """

    path: str
    params: tuple[tuple[str, str], ...] = ()
    route: str = ""
    cost: float | None = None
    template: str = ""
    method: str = "GET"
    body: bytes | None = None
    token_in_body: bool = False
    idempotency: Idempotency = Idempotency.SAFE
    lookup: str = ""
    bodiless: bool = False
    encoded: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "encoded", _encode(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r}, {self.params!r})"  # the body may hold secrets

    def url(self, base_url: str, page_token: str | None = None) -> str:
        """Return the whole URL, with the page token as one parameter if it belongs there."""
        if page_token is None or self.token_in_body:
            return base_url + self.encoded
        joint = "&" if self.params else "?"
        token = page_token if _UNRESERVED.fullmatch(page_token) else quote(page_token, safe="")
        return f"{base_url}{self.encoded}{joint}pageToken={token}"

    @property
    def shape(self) -> str:
        """The path with a placeholder for each identifier, for events."""
        return self.template or self.route.partition(":")[2]

    def content(self, page_token: str | None = None) -> bytes | None:
        """Return the body, with the page token as one field if it belongs there."""
        if self.body is None or page_token is None or not self.token_in_body:
            return self.body
        return json.dumps({**json.loads(self.body), "pageToken": page_token}).encode()

    def replaced(self, name: str, value: int | str) -> Query:
        """Return the query with its parameter `name` set to `value`."""
        kept = tuple(pair for pair in self.params if pair[0] != name)
        return replace(self, params=(*kept, (name, str(value))))

    def unsized(self) -> Query:
        """Return the query without its page size."""
        params, body = tuple(pair for pair in self.params if pair[0] != "pageSize"), self.body
        if body is not None:
            body = json.dumps({k: v for k, v in json.loads(body).items() if k != "pageSize"}).encode()
        return replace(self, params=params, body=body)

    @property
    def page_size(self) -> int | None:
        """Rows of a page, where the query or the body names a size."""
        return self.whole("pageSize")

    def whole(self, name: str) -> int | None:
        """Return a whole number that the query or the body names, or None."""
        texts = dict(self.params) | ({} if self.body is None else json.loads(self.body))
        text = str(texts.get(name, ""))
        return int(text) if _WHOLE.fullmatch(text) else None

    @property
    def where(self) -> str:
        """Return method and path, as errors and events show them."""
        return f"{self.method} {self.path}"


def query_params(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return parameters as they are sent, without those that are None.

    A list is joined with commas.

    Raises:
        ArgumentError: a value has no form in a query.
        ConfigurationError: a name is empty or not valid text, or the walk sets it itself.

    """
    if "pageToken" in values:
        raise ConfigurationError(
            "pageToken is set by the walk of list(): give a checkpoint to its argument resume= instead"
        )
    for name in values:
        if not name or _HALF.search(name):
            raise ConfigurationError(f"{quoted(name)} is no name of a query parameter")
    return tuple((name, _text(name, value)) for name, value in values.items() if value is not None)


def _text(name: str, value: object) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(name, entry) for entry in value)
    if isinstance(value, set | frozenset):
        # In an order that is the same in every process: a checkpoint belongs to the query as it is sent.
        return ",".join(sorted(_text(name, entry) for entry in value))
    if isinstance(value, str) and not _HALF.search(value):
        return str(value)
    if isinstance(value, int | float) and abs(value) < _MAX_WHOLE:
        return str(value)
    raise ArgumentError(f"{name}={quoted(value)} cannot be sent as a query parameter")


def _plain(value: object) -> object:
    """Return the value of a member of an enumeration."""
    return value.value if isinstance(value, Enum) else value


def path_segment(name: str, value: object) -> str:
    """Return `value` as one segment of a path.

    Raises:
        ArgumentError: it is not a whole number or a string that can be one segment.

    """
    if type(value) is int and 0 <= value < _MAX_WHOLE:
        return str(value)
    if type(value) is str and _PLAIN_SEGMENT.fullmatch(value):
        return value
    value = _plain(value)
    if not is_of(value, (int, str)):
        raise ArgumentError(f"{name} must be an int or a str, not {type(value).__name__}")
    if isinstance(value, int) and not 0 <= value < _MAX_WHOLE:
        raise ArgumentError(f"{name}={quoted(value)} is negative or too large")
    text = str(value)
    if not text or len(text) > MAX_SEGMENT:
        raise ArgumentError(f"{name} must have 1 to {MAX_SEGMENT} characters, not {len(text)}")
    if _SEPARATOR.search(text) or text in (".", ".."):
        raise ArgumentError(f"{name}={quoted(text)} cannot be part of a path: it has a separator in it")
    if _CONTROL.search(text) or _HALF.search(text):
        raise ArgumentError(f"{name}={quoted(text)} cannot be part of a path: it has no plain text")
    return text


def checked_path(path: object) -> str:
    """Return a path below the base address, as it was given.

    Raises:
        ConfigurationError: it does not begin with "/", or it would lead to another place than it shows.

    """
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(
            f"path={quoted(path)} must be a str that begins with '/', such as '/v1/chains'"
        )
    for segment in path[1:].split("/"):
        if not segment or segment.lower().replace("%2e", ".") in (".", ".."):
            raise ConfigurationError(f"path={quoted(path)} has an empty or a dotted segment")
    if _PATH_END.search(path) or _CONTROL.search(path) or _HALF.search(path):
        raise ConfigurationError(
            f"path={quoted(path)} has a separator or white space in it; give query parameters as keywords"
        )
    return path


def checked_page_size(page_size: object) -> int | None:
    """Return the page size, None for the service's default.

    Raises:
        ArgumentError: it is not a whole number from 1 to 10,000.

    """
    return None if page_size is None else whole_number("page_size", page_size, 1, MAX_PAGE_SIZE)
