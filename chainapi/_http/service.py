"""Service of a session: requests with the key, the gate, errors without the key.

The key is masked in every string that the service sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urljoin, urlsplit

from attrs import define, field
from msgspec.structs import replace

from chainapi._config import ServiceConfig
from chainapi._http.message import Request, Response, is_markup, request_id
from chainapi._http.query import Query
from chainapi._http.response import RawResponse
from chainapi._http.transport import AiohttpTransport
from chainapi._text import contains, masked
from chainapi._version import __version__
from chainapi.errors import AuthenticationError, ChainAPIError, DecodeError
from chainapi.models.codec import Stepwise
from chainapi.models.error_body import decode_error, excerpt
from chainapi.models.sizes import LARGE

if TYPE_CHECKING:
    from chainapi._http.emitter import ServiceEvents
    from chainapi._http.options import Attempt, Call, CallOptions
    from chainapi._http.telemetry import Telemetry
    from chainapi._http.transport import Transport
    from chainapi._limits.gate import AnyGate
    from chainapi._limits.member import Member
    from chainapi._limits.view import QuotaSnapshot

__all__ = ["Service"]

E = TypeVar("E", bound=ChainAPIError)
R = TypeVar("R")

_HEADERS = {
    "accept": "application/json",
    "content-type": "application/json",
    "user-agent": f"chainapi/{__version__}",
}


@define(eq=False, repr=False)
class Service:
    """Service as a session reaches it.

    Attributes:
        endpoint: its address and key.
        transport: sends the requests.
        member: the session's place in the gate.
        events: emits the events of the service.
        telemetry: observes each request, and adds headers to it; None without one.
        waiting: functions that end the calls that wait for quota with a 401 of another one.
        unopened: connections that may still be opened before the first response.

    """

    endpoint: ServiceConfig
    transport: Transport
    member: Member
    events: ServiceEvents
    telemetry: Telemetry | None = None
    waiting: set[Callable[[AuthenticationError], None]] = field(factory=set[Any], init=False)
    unopened: int = field(init=False)
    _gate: AnyGate | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        # Calls that wait for a `rate` need few connections at once; the first request opens its own.
        self.unopened = self.member.settings.max_in_flight - 1 if self.member.ceiling is None else 0

    @property
    def name(self) -> str:
        """`metrics` or `data`."""
        return self.endpoint.name

    def tag(self, options: CallOptions) -> str:
        """Return the name of the spender of a call."""
        return self.member.tag if options.tag is None else options.tag

    # --- requests, and their gate -----------------------------------------------------------

    def request(self, call: Call) -> Request:
        """Return the request of a call; the key is added here and nowhere else."""
        endpoint, query, token = self.endpoint, call.query, call.page_token
        headers = {**_HEADERS, **call.options.headers}
        if endpoint.key is not None and endpoint.key_header is not None:
            headers[endpoint.key_header] = endpoint.key.reveal()
        content = None if query.body is None else query.content(token)
        return Request(query.method, query.url(endpoint.base_url, token), headers, content)

    async def send_observed(self, request: Request, call: int) -> Response:
        """Send a request of the call with that number, with the headers of the telemetry."""
        assert self.telemetry is not None  # noqa: S101 - otherwise nobody observes
        with self.telemetry.attempt(call) as headers:
            # The request's own headers win: the key, and those that the caller passed.
            return await self.transport.send(replace(request, headers={**headers, **request.headers}))

    def warm(self) -> None:
        """Open a connection for a call that waits for the first response."""
        if self.unopened and isinstance(self.transport, AiohttpTransport):
            self.unopened -= 1
            self.transport.warm(self.endpoint.base_url + "/")

    def shown_url(self, call: Call) -> str:
        """Return the URL of a call as people may see it, without the page token."""
        return call.query.url(self.endpoint.base_url, None if call.page_token is None else "REDACTED")

    def join(self, gate: AnyGate) -> None:
        """Use a gate from now on; no request may be under way."""
        self._gate = gate
        gate.join(self.member)

    def leave(self) -> None:
        """Withdraw the session's settings from the gate.

        Requests under way are not affected.
        """
        if self._gate is not None:
            self._gate.leave(self.member)

    @property
    def gate(self) -> AnyGate:
        """The gate that was joined."""
        assert self._gate is not None  # noqa: S101 - a session joins before it sends
        return self._gate

    def price(self, query: Query) -> float | None:
        """Return the cost of a request in compute units; None if nothing shows it."""
        return query.cost if self._gate is None else self._gate.price(query.route, query.cost)

    def snapshot(self) -> QuotaSnapshot:
        """Return the state of the quota; inside a running loop only."""
        return self.gate.snapshot(self.member)

    def key_refused(self, error: AuthenticationError) -> None:
        """End the calls that wait for quota after a 401 for the key."""
        if self.endpoint.key is not None:
            for end in self.waiting:
                end(error)
            self.waiting.clear()

    # --- bodies and strings, the key masked -------------------------------------------------

    async def decode(self, decode: Callable[[bytes], R], body: bytes) -> R:
        """Decode a body; a large one in steps, so that other tasks run.

        Raises:
            DecodeError: the body does not match the route; pass it to `undecoded`.

        """
        if len(body) <= LARGE or not isinstance(decode, Stepwise):
            return decode(body)
        steps: Generator[None, None, R] = decode.steps(body)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("R", end.value)
            await asyncio.sleep(0)

    def received(self, attempt: Attempt) -> RawResponse:
        """Return a successful response as it was received, the key masked in its headers."""
        response, key = attempt.outcome, self.endpoint.key
        assert isinstance(response, Response)  # noqa: S101 - a successful call has one
        headers, secret = response.headers, "" if key is None else key.reveal()
        if contains("\n".join(headers.values()), secret):
            headers = {name: masked(value, secret) for name, value in headers.items()}
        return RawResponse(response.status, headers, response.body, attempt.elapsed, attempt.age)

    def describe(self, response: Response) -> tuple[str, tuple[str, ...]]:
        """Return the error type and the messages of an error response."""
        if 300 <= response.status < 400:
            target = _redirect_target(self.endpoint.base_url, response.headers.get("location", ""))
            return "Redirect", (f"redirects are not followed; this one leads {self._shown(target)}",)
        return decode_error(response.body, self._secret)

    def request_id(self, outcome: object) -> str | None:
        """Return the id that the service gave to a request.

        None without a response, or without an id.
        """
        found = request_id(outcome.headers) if isinstance(outcome, Response) else None
        return None if found is None else self._shown(found)

    def identified(self, error: E, call: int | None, outcome: object) -> E:
        """Return an error with the number of its call and the id of its request."""
        error.call = call
        error.request_id = self.request_id(outcome)
        return error

    def shown_fault(self, fault: DecodeError) -> DecodeError:
        """Return an error in which what the service sent is short and printable."""
        return fault.changed(reason=self._shown(fault.reason), path=self._shown(fault.path))

    def undecoded(self, error: DecodeError, body: bytes) -> DecodeError:
        """Return the error of a body, the key masked; a web page is named as such."""
        fault = self.shown_fault(error)
        if error.malformed and is_markup(body):
            reason = (
                "the answer is a web page (HTML), not JSON: check the base address, and whether the network"
                f" requires a sign-in. Open {self.endpoint.origin} in a browser to see the page"
            )
            return fault.changed(reason=reason)
        return fault

    def _shown(self, text: str) -> str:
        return excerpt(text, self._secret)

    @property
    def _secret(self) -> str:
        return "" if self.endpoint.key is None else self.endpoint.key.reveal()


def _redirect_target(base_url: str, location: str) -> str:
    """Return the origin that a redirect leads to, as part of a sentence.

    Path, query and user are left out.
    """
    if not location:
        return "nowhere"
    try:
        here, there = urlsplit(base_url), urlsplit(urljoin(base_url, location))
    except ValueError:
        return "to no valid address"
    if (here.scheme, here.netloc) == (there.scheme, there.netloc):
        return "to the same origin"
    return f"to {there.scheme}://{there.netloc.rpartition('@')[2]}"
