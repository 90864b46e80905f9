"""What crosses the transport: a request, and the response to it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

__all__ = ["Request", "Response"]


@frozen
class Request:
    """One HTTP request without a body.

    ``url`` is absolute and already percent-encoded. Header names are lower-case. Neither the values of
    ``headers`` nor anything made from them appears in a repr: one of them is the API key.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)


@frozen
class Response:
    """One whole HTTP response.

    Header names are lower-case; a header that was sent several times is one value, joined with ``", "``
    as RFC 9110, section 5.3 describes. ``body`` is decompressed.
    """

    status: int
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=lambda body: f"<{len(body)} bytes>")
