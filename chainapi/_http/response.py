"""RawResponse: a successful response of a service, as it was received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from chainapi._http.message import request_id
from chainapi.models.codec import decode_resource

__all__ = ["RawResponse"]


@frozen(eq=False)
class RawResponse:
    """Successful response of a service, as it was received.

    Attributes:
        status: the HTTP status code, 200 to 299.
        headers: the headers of the response by lower-case names; the API key is masked in them.
        body: the decompressed body.
        elapsed: seconds from sending the request to the last byte; waits and other attempts do not count.
        age: seconds since the request was sent, for a response of a cache; 0 for one of the service.

    """

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    body: bytes = field(default=b"{}", repr=lambda body: f"<{len(body):,} bytes>")
    elapsed: float = field(default=0.0, repr=lambda seconds: f"{seconds:.3f}")
    age: float = field(default=0.0, repr=lambda seconds: f"{seconds:.3f}")

    @property
    def request_id(self) -> str | None:
        """Id that the service gave to the request; None without such a header."""
        return request_id(self.headers)

    def json(self) -> Any:
        """Decode the body as plain JSON, at each call; no number is rounded.

        Raises:
            DecodeError: the body is not JSON.

        """
        return decode_resource(self.body)
