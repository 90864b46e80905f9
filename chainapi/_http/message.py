"""HTTP requests and responses as values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeGuard

from msgspec import Struct, field

from chainapi.core.private import Private

__all__ = ["Request", "Response", "SentAt", "is_header_name", "is_markup", "request_id"]

# Headers with the id that a service or the proxy before it gave to a request, the usual one first.
_REQUEST_ID = ("x-request-id", "request-id", "x-amzn-requestid", "x-correlation-id", "cf-ray")

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Request(Private, Struct, frozen=True):
    """One HTTP request.

    ``url`` is absolute and already percent-encoded. Header names are lower-case. Neither the values of
    ``headers`` nor anything made from them appears in a repr: one of them is the API key. ``body`` is JSON;
    None for a request without one.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None

    def __repr__(self) -> str:
        body = "None" if self.body is None else f"<{len(self.body)} bytes>"
        return f"Request(method={self.method!r}, url={self.url!r}, body={body})"


class Response(Private, Struct, frozen=True):
    """One whole HTTP response.

    Header names are lower-case; a header that was sent several times is one value, joined with ``", "``
    as RFC 9110, section 5.3 describes. ``body`` is decompressed.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Response(status={self.status!r}, body=<{len(self.body)} bytes>)"


class SentAt(Struct, frozen=True):
    """Time at which an answered request was sent, in seconds.

    It is given on the loop's clock, and in Unix time. `call` is the number of its call.
    """

    at: float
    wall: float
    call: int | None = None


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the id of a request by the headers of its response; None without one."""
    return next((value for name in _REQUEST_ID if (value := headers.get(name))), None)


def is_header_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the name of a header (RFC 9110, section 5.1)."""
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def is_markup(body: bytes) -> bool:
    """Return whether a body begins as HTML or XML does.

    White space and a byte order mark may come before.
    """
    return body[:1_024].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")
