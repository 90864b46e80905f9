"""Recordings of exchanges with the services, and their playback.

A file has one JSON line for each exchange, in the order of sending, below a line with the format's number and
the addresses of the services. It has no request header, only some response headers, and neither the API key
nor a page token.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from base64 import b64decode, b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from chainapi._http.message import Request, Response
from chainapi._http.transport import AiohttpTransport, Transport
from chainapi._limits.headers import read_limits
from chainapi.errors import RecordingError
from chainapi.session import Session
from chainapi.testing.masking import TOKEN_NAME, PageTokenNames, Secrets

__all__ = ["Player", "Recorder"]

FORMAT = 1
ADDRESSES = ("metrics_base_url", "data_base_url")  # in the first line, as arguments of a session
# Response headers that are recorded, in this order; rate-limit headers as well.
KEPT = ("content-type", "retry-after", "location", "etag", "cache-control", "x-request-id")
LIMITS = ("ratelimit", "x-ratelimit", "x-rate-limit")
RESETS = ("retry-after", *(f"{prefix}-reset" for prefix in LIMITS))
SHOWN = 5  # requests in the message of an error

# What a request is matched by: method, path, query, body.
Asked: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], bytes | None]


class _Content(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Recorded body: JSON as sent, or a string, or bytes in base64."""

    body: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None

    @property
    def content(self) -> bytes:
        """The body, byte for byte."""
        if self.text is not None:
            return self.text.encode()
        return bytes(self.body) if self.base64 is None else b64decode(self.base64)


class _Answer(_Content, omit_defaults=True, kw_only=True):
    """Recorded response."""

    status: int
    headers: dict[str, str] = {}


class _Exchange(msgspec.Struct, omit_defaults=True):
    """Recorded request and response.

    `seconds` is the time of sending, after the first request's; `request` is None for one without body.
    """

    method: str
    url: str
    seconds: float
    response: _Answer
    request: _Content | None = None

    @property
    def asked(self) -> Asked:
        """Request, as another one is matched with it."""
        return _asked(self.method, self.url, None if self.request is None else self.request.content)


class _Recorded(Session):
    """Session that closes its recording's connections."""

    recording: Recorder | Player

    async def aclose(self) -> None:
        """Close the session, and the connections of its recording."""
        await super().aclose()
        await self.recording.aclose()


class Recorder:
    """Transport that records the exchanges of another one.

    `save` writes them to a file. ``async with`` closes the connections at its end, and saves unless an
    exception was raised. A request without a response (a broken connection) is not recorded.

    Args:
        path: file of the recording; folders that are missing are made.
        transport: sends the requests and stays open; None uses aiohttp.
        now: wall clock in Unix seconds: dates in limit headers are recorded as seconds from then.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transport: Transport | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path: Path = Path(path)
        self._given = transport
        self._own: AiohttpTransport | None = None
        self._now = now
        self._addresses: dict[str, str] = {}
        self._secrets, self._names = Secrets(), PageTokenNames()
        self._began = 0.0  # when the first request was sent
        self._exchanges: list[_Exchange | None] = []  # in the order of sending; None without an answer

    def __repr__(self) -> str:
        return f"<Recorder of {len(self._exchanges)} requests to {str(self.path)!r}>"

    def session(self, **arguments: Any) -> Session:
        """Return a session that sends through this recorder.

        `arguments` go to `Session`. Its end closes the recorder's connections. Its addresses are
        recorded for `Player.session`.
        """
        session = _session(self, arguments)
        for service in session.connection.configured:
            self._addresses[f"{service.name}_base_url"] = service.endpoint.base_url
        return session

    async def send(self, request: Request) -> Response:
        """Send one request through the other transport, and keep the exchange.

        Raises the errors of that transport.
        """
        self._secrets.learn(request.headers)
        sent, place = asyncio.get_running_loop().time(), len(self._exchanges)
        self._began = self._began if place else sent
        self._exchanges.append(None)
        response = await self._transport().send(request)
        self._exchanges[place] = self._recorded(request, response, round(sent - self._began, 3))
        return response

    def save(self) -> None:
        """Write the exchanges so far to the file, in place of what it had.

        Raises:
            RecordingError: the file cannot be written.

        """
        whole = self.path.with_name(self.path.name + ".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = [{"chainapi_recording": FORMAT, **self._addresses}, *filter(None, self._exchanges)]
            whole.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            whole.replace(self.path)
        except OSError as error:
            raise RecordingError(f"cannot write the recording {self.path}: {error.strerror}") from error

    async def aclose(self) -> None:
        """Close the recorder's own connections; a transport that was passed stays open."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        if kind is None:
            self.save()

    def _transport(self) -> Transport:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = AiohttpTransport()
        return self._own

    def _recorded(self, request: Request, response: Response, seconds: float) -> _Exchange:
        """Return an exchange without its secrets and page tokens."""
        secrets, names = self._secrets, self._names
        limits = sorted(name for name in response.headers if name.startswith(LIMITS))
        headers = {
            name: secrets.masked(_in_seconds(name, response.headers, self._now()))
            for name in (*KEPT, *limits)
            if name in response.headers
        }
        url = names.in_url(secrets.masked(request.url))
        sent = None if request.body is None else names.in_body(secrets.masked_bytes(request.body))
        body = names.in_body(secrets.masked_bytes(response.body))
        if "location" in headers:
            headers["location"] = names.in_url(headers["location"])
        answer = _Answer(
            status=response.status,
            headers={name: names.anywhere(value) for name, value in headers.items()},
            **_held(names.anywhere_in(body) if response.status >= 400 else body),
        )
        content = None if sent is None else _Content(**_held(sent))
        return _Exchange(request.method, url, seconds, answer, content)


class Player:
    """Transport that answers from a recording, at once and without a network.

    A request is matched by its method, path, query and body. Equal requests get their answers in the order of
    recording, each once.

    Args:
        path: file of the recording.
        repeat: whether the last answer to a request is given again and again.

    Raises:
        RecordingError: there is no such file, or it is not a recording. `send` raises it for a request that
            was not recorded, or that was recorded less often.

    """

    def __init__(self, path: str | os.PathLike[str], *, repeat: bool = False) -> None:
        self.path: Path = Path(path)
        self._repeat = repeat
        self._left: dict[Asked, deque[_Exchange]] = defaultdict(deque)  # not played yet
        self._last: dict[Asked, _Exchange] = {}  # played last
        first, exchanges = _read(self.path)
        self._addresses = {name: first[name] for name in ADDRESSES if name in first}
        for exchange in exchanges:
            self._left[exchange.asked].append(exchange)

    def __repr__(self) -> str:
        return f"<Player of {str(self.path)!r}, {len(self.unplayed())} requests not played yet>"

    def session(self, **arguments: Any) -> Session:
        """Return a session that is answered from the recording.

        `arguments` go to `Session`. It has the addresses of the recording, and needs no API key: a
        word stands in its place.
        """
        return _session(self, {"api_key": "recorded", **self._addresses, **arguments})

    async def send(self, request: Request) -> Response:
        """Return the recorded response to a request.

        Raises:
            RecordingError: no response, or no further one, is recorded.

        """
        asked = _asked(request.method, request.url, request.body)
        if asked not in self._left:
            raise RecordingError(f"{_shown(asked)} is not recorded in {self.path}{self._near(asked)}")
        if self._left[asked]:
            self._last[asked] = self._left[asked].popleft()
        elif not self._repeat:
            raise RecordingError(
                f"{_shown(asked)} was sent more often than it is recorded in {self.path}. {_ADVICE}"
                " Player(repeat=True) repeats the last answer"
            )
        answer = self._last[asked].response
        return Response(answer.status, answer.headers, answer.content)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""

    def unplayed(self) -> list[str]:
        """Return the recorded requests that were not sent yet, as strings."""
        return [_shown(asked) for asked, left in self._left.items() for _ in left]

    def assert_all_played(self) -> None:
        """Assert that every recorded exchange was used.

        The AssertionError has those that were not.
        """
        if left := self.unplayed():
            raise AssertionError(
                f"{len(left)} recorded requests of {self.path} were not sent:\n{_some(left)}"
            )

    def _near(self, asked: Asked) -> str:
        same = [_shown(one) for one in self._left if one[:2] == asked[:2]]
        if not same:
            return f", and neither is anything else for this path. {_ADVICE}"
        return (
            f". Recorded for this path: {', '.join(same[:SHOWN])}{', ...' * (len(same) > SHOWN)}. {_ADVICE}"
        )


_RECORD = "Record it with pytest --chainapi-record=once, or with chainapi.testing.Recorder."
_ADVICE = _RECORD.replace("once", "all")  # the file is there, and has to be replaced


def _session(recording: Recorder | Player, arguments: dict[str, Any]) -> Session:
    session = _Recorded(**{"share": False, **arguments, "transport": recording})
    session.recording = recording
    return session


def _asked(method: str, url: str, body: bytes | None) -> Asked:
    """Return what a request is matched by."""
    parts = urlsplit(url)
    query = tuple(sorted(parse_qsl(parts.query, keep_blank_values=True)))
    return method, parts.path, query, body


def _shown(asked: Asked) -> str:
    """Return a request as text, with only the page tokens that are names."""
    method, path, query, body = asked
    pairs = [
        f"{name}={'***' if name == 'pageToken' and not TOKEN_NAME.fullmatch(value) else value}"
        for name, value in query
    ]
    sent = "" if body is None else f" with a body of {len(body)} bytes"
    return f"{method} {path}{'?' if pairs else ''}{'&'.join(pairs)}{sent}"


def _some(lines: list[str]) -> str:
    return "\n".join([*(f"  {line}" for line in lines[:SHOWN]), *(["  ..."] if len(lines) > SHOWN else [])])


def _in_seconds(name: str, headers: Mapping[str, str], now: float) -> str:
    """Return the value of a header; a point in time as the whole seconds until it."""
    value = headers[name]
    if name not in RESETS:
        return value
    dated = {name: value, **({"date": headers["date"]} if "date" in headers else {})}
    info = read_limits(dated, now)
    seconds = info.retry_after if name == "retry-after" else info.reset
    return value if seconds is None else str(math.ceil(seconds))


# Files


def _read(path: Path) -> tuple[dict[str, Any], list[_Exchange]]:
    """Return the first line and the exchanges of a file.

    Raises RecordingError if it is not a recording.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RecordingError(f"cannot read the recording {path}: {error.strerror}. {_RECORD}") from error
    exchanges: list[_Exchange] = []
    number = 1
    try:
        first = msgspec.json.decode(lines[0] if lines else b"", type=dict[str, Any])
        if first["chainapi_recording"] != FORMAT:
            raise RecordingError(f"the recording {path} has another format. {_ADVICE}")
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 - the error names it
            exchanges.append(msgspec.json.decode(line, type=_Exchange))
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise RecordingError(
            f"line {number} of {path} is not one of a recording: {error}. {_ADVICE}"
        ) from None
    return first, exchanges


def _held(body: bytes) -> dict[str, Any]:
    """Return a body in the form that is read most easily, as a field of `_Content`."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
    with suppress(msgspec.DecodeError, RecursionError):
        msgspec.json.decode(body)
        if body.strip() == body and not {"\n", "\r"} & {*text}:  # it is part of a JSON line as it is
            return {"body": msgspec.Raw(body)}
    return {"text": text}
