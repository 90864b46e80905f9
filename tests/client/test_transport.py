"""AiohttpTransport against scripted servers: what HTTP can do to one request.

What holds for every transport is in the contract beside this module.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import hashlib
import itertools
import json
import os
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.abc
import pytest
import trustme
from cryptography import x509
from yarl import URL

from chainapi import LimiterOptions, Session
from chainapi.errors import (
    APIConnectionError,
    APITimeoutError,
    CertificateError,
    ChainAPIError,
    ConfigurationError,
    DecodeError,
    RedirectError,
    ResponseTooLargeError,
    SessionClosedError,
)
from chainapi.transport import AiohttpTransport, Request
from tests.raw_server import Peer, RawServer, Script, each, http, let_pass, settle, until
from tests.sessions import Answering, reaching

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]

KEY = "hunt3r2-marker-key"
BODY = json.dumps({"results": [{"timestamp": n, "value": n / 7} for n in range(400)]}).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=["direct", "client"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Send requests over connections, or through `ClientSession.request` as beside tools that replace it."""
    if request.param == "client":
        monkeypatch.setattr(aiohttp.ClientSession, "_request", _passed_on(sent=[]))
    return str(request.param)


both = pytest.mark.usefixtures("way")


def _passed_on(sent: list[str]) -> Any:
    """Return a replacement of the method behind `ClientSession.request` that notes each URL."""
    original = vars(aiohttp.ClientSession)["_request"]

    async def replacement(self: aiohttp.ClientSession, method: str, url: URL, **settings: Any) -> Any:
        sent.append(str(url))
        return await original(self, method, url, **settings)

    return replacement


def request(server: RawServer, path: str = "/v1/x") -> Request:
    """Return a request to the server, with a key."""
    return Request("GET", server.origin + path, {"x-data-api-key": KEY, "accept": "application/json"})


async def exchange(script: Script, *, count: int = 1, max_body: int = 2**20) -> list[Any]:
    """Send requests in turn to a scripted server; return each response or error."""
    async with RawServer(script) as server, AiohttpTransport(max_body=max_body) as transport:
        outcomes: list[Any] = []
        for _ in range(count):
            try:
                outcomes.append(await transport.send(request(server)))
            except ChainAPIError as error:
                outcomes.append(error)
        assert len(server.requests) == count
    return outcomes


@asynccontextmanager
async def session_on(script: Script, **settings: Any) -> AsyncIterator[tuple[Session, RawServer]]:
    """Serve a script; return a session and the server.

    The session makes one attempt unless the caller passes more.
    """
    async with RawServer(script) as server:
        given = {"data_base_url": server.origin, "metrics_base_url": server.origin, "api_key": KEY}
        async with Session(**{**given, "timeout": 10.0, "max_attempts": 1, **settings}) as session:
            yield session, server


async def call(server: RawServer, *, max_attempts: int, transport: AiohttpTransport | None = None) -> Any:
    """Call one resource, with retries that follow each other at once."""
    async with Session(
        data_base_url=server.origin, api_key=KEY, max_attempts=max_attempts, timeout=10, transport=transport
    ) as session:
        session.connection.retries.jitter = lambda: 0.0
        return await session.data.get("/v1/x")


# No answer


@both
async def test_refused_connection_is_a_connection_error() -> None:
    """A refused connection is an error with the address and the attempts."""
    async with RawServer(each(b"")) as server:
        origin = server.origin
        await asyncio.sleep(0)
    transport = AiohttpTransport()
    with pytest.raises(APIConnectionError, match=r"cannot connect to 127\.0\.0\.1:\d+: Connect call failed"):
        await transport.send(Request("GET", origin + "/v1/x"))
    await transport.aclose()
    async with Session(metrics_base_url=origin, max_attempts=1) as session:
        with pytest.raises(APIConnectionError) as caught:
            await session.metrics.get("/v1/x")
    assert (caught.value.attempts, caught.value.where) == (1, "GET /v1/x")


async def test_resolver_that_gives_up_is_a_timeout() -> None:
    """A timeout inside aiohttp, such as the resolver's, is an APITimeoutError."""

    class Slow(aiohttp.abc.AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[aiohttp.abc.ResolveResult]:
            raise TimeoutError

        async def close(self) -> None:
            pass

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Slow())) as client:
        with pytest.raises(APITimeoutError, match="no answer in time"):
            await AiohttpTransport(client).send(Request("GET", "http://slow.invalid/"))


async def reset(peer: Peer) -> None:
    """Reset the connection after the request."""
    await peer.request()
    peer.reset()


async def hang_up(peer: Peer) -> None:
    """Close the connection after the request."""
    await peer.request()


async def half_a_head(peer: Peer) -> None:
    """Close the connection within the headers."""
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")


@both
@pytest.mark.parametrize("script", [reset, hang_up, half_a_head])
async def test_a_transport_sends_once(script: Script) -> None:
    """A transport never repeats a request on a connection that was used before."""

    async def first_well(peer: Peer) -> None:
        await peer.request()
        await peer.send(http())
        await script(peer)

    async with RawServer(first_well) as server, AiohttpTransport() as transport:
        await transport.send(request(server))
        with pytest.raises(APIConnectionError):
            await transport.send(request(server))
        assert (len(server.requests), server.connections) == (2, 1)


# Half answers


def cut(answer: bytes, piece: int | None = None, *, rst: bool = False) -> Script:
    """Return a script that sends some bytes, in pieces if their size is given, and breaks off."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer, piece)
        if rst:
            await settle()
            peer.reset()

    return script


CUT_SHORT = [
    http(BODY[:100], length=len(BODY)),
    CHUNKED + b"10\r\n0123456789abcdef\r\n",
    CHUNKED + b"10\r\n01234",
    CHUNKED + b"2\r\n{}\r\n0\r\n",
]


@both
async def test_a_body_that_is_cut_short_is_no_answer() -> None:
    """A body cut short is a connection error, however the connection ends."""
    for answer in CUT_SHORT:
        for rst in (False, True):
            [outcome] = await exchange(cut(answer, rst=rst))
            assert type(outcome) is APIConnectionError
            assert "cut short" in str(outcome) or "broke" in str(outcome)


# No end


def stall(*segments: bytes) -> Script:
    """Return a script that sends segments, one after the other, then waits for ever."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send_apart(*segments)
        await peer.stall()

    return script


BAD_CHUNK = (CHUNKED + b"2\r\n{}\r\n", b"zz\r\nmore\r\n0\r\n\r\n")


@both
@pytest.mark.parametrize(
    "segments",
    [(), (b"HTTP/1.1 200 OK\r\n",), (http(BODY[:50], length=len(BODY)),)],
    ids=["no answer", "in the headers", "in the body"],
)
async def test_a_stall_ends_at_the_deadline(segments: tuple[bytes, ...]) -> None:
    """A stall costs `timeout` seconds, and the next call has its own connection."""
    scripts = itertools.chain([stall(*segments)], itertools.repeat(each(http(b'{"ok": 1}'))))
    async with session_on(lambda peer: next(scripts)(peer), timeout=60) as (session, server):
        task = asyncio.create_task(session.data.get("/v1/x"))
        await until(lambda: len(server.requests) == 1)
        await settle(100)
        let_pass(30)
        await settle()
        assert not task.done()
        let_pass(30)
        with pytest.raises(APITimeoutError, match="no whole answer within 60 s") as caught:
            await task
        assert isinstance(caught.value, TimeoutError)
        assert await session.data.get("/v1/x") == {"ok": 1}
        assert (len(server.requests), server.connections) == (2, 2)


@both
@pytest.mark.parametrize("closes", [False, True])
async def test_a_bad_chunk_in_a_later_segment_ends_at_once(closes: bool) -> None:
    """A bad chunk size in the midst of a body is an error before the deadline, on every attempt."""
    for rounds in (0, 1, 2, 25):

        async def script(peer: Peer, rounds: int = rounds) -> None:
            await peer.request()
            for segment in BAD_CHUNK:
                await peer.send(segment)
                await settle(rounds)
            if not closes:
                await peer.stall()

        async with RawServer(script) as server:
            with pytest.raises(APIConnectionError) as caught:
                await call(server, max_attempts=2)
            assert not isinstance(caught.value, APITimeoutError)
            assert caught.value.attempts == 2


@both
async def test_a_bad_chunk_is_found_on_a_connection_that_was_good_before() -> None:
    """A bad chunk on a kept connection is noticed, and the loss is not logged."""

    async def script(peer: Peer) -> None:
        for _ in range(3):
            await peer.request()
            await peer.send_apart(http(BODY[:50], length=len(BODY)), BODY[50:])
        await peer.request()
        await peer.send_apart(*BAD_CHUNK)
        await settle()
        peer.reset()

    outcomes = await exchange(script, count=4)
    assert [getattr(outcome, "body", None) for outcome in outcomes] == [BODY, BODY, BODY, None]
    assert type(outcomes[3]) is APIConnectionError
    gc.collect()


# Small pieces, keep-alive


def encoded(body: bytes, encoding: str) -> bytes:
    """Return a response whose body is packed."""
    return http(body, "200 OK", f"Content-Encoding: {encoding}")


INFORMED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + http(BODY)
WHOLE: dict[str, tuple[bytes, int | None]] = {
    "one byte each": (http(BODY), 1),
    "pieces": (http(BODY), 97),
    "packed, one byte each": (encoded(gzip.compress(BODY), "gzip"), 1),
    "chunks": (CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n", 600),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\n" + BODY, None),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + BODY, None),
    "informed in one segment": (INFORMED, None),
    "informed before": (INFORMED, 30),
    "deflate": (encoded(zlib.compress(BODY), "deflate"), None),
    "raw deflate": (encoded(zlib.compress(BODY)[2:-4], "deflate"), None),
    "identity": (encoded(BODY, "identity"), None),
    "unknown": (encoded(BODY, "no-such-encoding"), None),
    "gzip that is not announced": (http(gzip.compress(BODY)), None),
}


@both
async def test_a_response_is_the_same_in_any_form() -> None:
    """A response is the same in pieces, packed, chunked, without a length, and behind 100 and 103."""
    for name, (answer, piece) in WHOLE.items():
        [outcome] = await exchange(cut(answer, piece))
        assert (outcome.status, outcome.body) == (200, BODY), name


HALF = gzip.compress(BODY)[:-200]
UNPACKABLE: list[tuple[str, bytes, str]] = [
    *((f"Content-Encoding: {name}", b"{}" * 50, "") for name in ("gzip", "deflate", "zstd")),
    (
        "Content-Encoding: br",
        b"{}" * 50,
        "packed as br, which the request did not accept",
    ),  # is not installed
    ("X-None: 1", HALF, "the answer was cut short or could not be unpacked"),
    ("X-None: 1", gzip.compress(BODY) * 2, "the answer was cut short or could not be unpacked"),
]


@both
async def test_what_is_packed_otherwise_than_it_says_is_an_error() -> None:
    """A body that cannot be unpacked is an error, and half of one no JSON; any other is taken as it is."""
    for header, body, said in UNPACKABLE:
        [outcome] = await exchange(each(http(body, "200 OK", header)))
        assert type(outcome) is APIConnectionError, header
        assert said in str(outcome)
    [outcome] = await exchange(each(http(b"\x1f\x8bnot gzip at all")))
    assert outcome.body == b"\x1f\x8bnot gzip at all"
    async with session_on(each(encoded(HALF, "gzip"))) as (session, _):
        with pytest.raises(DecodeError):
            await session.data.get("/v1/x")


@both
@pytest.mark.parametrize("end", ["announced", "closed", "aborted"])
async def test_a_connection_that_the_server_ended_is_not_used(end: str) -> None:
    """A connection that ends, announced or not, or while the loop is busy, is not used, and costs no call."""

    async def script(peer: Peer) -> None:
        for left in (1, 0):
            await peer.request()
            await peer.send(http(b"{}", "200 OK", *["Connection: close"] * (end == "announced" and not left)))
        if end == "aborted":
            peer.writer.transport.abort()

    # No step of the loop lies between a response and the next request.
    outcomes = await exchange(script, count=5)
    assert [getattr(outcome, "status", outcome) for outcome in outcomes] == [200] * 5


# Errors and odd bodies


async def test_valid_json_is_taken_whatever_it_is_called() -> None:
    """Valid JSON is decoded with any Content-Type and charset."""
    kinds = (
        "text/html",
        "text/plain; charset=no-such-charset",
        "application/json; charset=utf-16",
        "///",
        "",
    )
    answers = [http('{"name": "Zürich"}'.encode(), "200 OK", f"Content-Type: {kind}") for kind in kinds]
    async with session_on(each(*answers)) as (session, _):
        for _kind in kinds:
            assert await session.data.get("/v1/x") == {"name": "Zürich"}


# Too large


async def endless(peer: Peer) -> None:
    """Send a body without end."""
    await peer.request()
    await peer.send(CHUNKED)
    while True:
        await peer.send(b"10000\r\n" + bytes(65_536) + b"\r\n")


@both
async def test_a_bomb_stops_at_the_cap() -> None:
    """A body that is, or unpacks to, more than the cap is ResponseTooLargeError; one of the cap is taken."""
    cap = 2**20
    bomb = gzip.compress(bytes(cap + 1))
    answers = [
        encoded(bomb, "gzip"),
        encoded(zlib.compress(bytes(cap + 1)), "deflate"),
        encoded(bytes(cap + 1), "identity"),
        http(bomb),
    ]
    for script in (*map(each, answers), endless):
        [outcome] = await exchange(script, max_body=cap)
        assert type(outcome) is ResponseTooLargeError
        assert "larger than max_body=1048576 bytes" in str(outcome)
    [outcome] = await exchange(each(encoded(gzip.compress(bytes(cap)), "gzip")))
    assert len(outcome.body) == cap


async def test_a_session_has_a_cap_of_eight_mebibytes_and_takes_another() -> None:
    """A session refuses more than 8 MiB after one request, unless its cap is raised."""
    text = json.dumps("x" * 2**23).encode()
    async with session_on(each(http(text)), max_attempts=5) as (session, server):
        wanted = "max_body=8388608 bytes, .* smaller pages, or give a larger max_body= to AiohttpTransport"
        with pytest.raises(ResponseTooLargeError, match=wanted):
            await session.data.get("/v1/x")
        assert len(server.requests) == 1
        async with (
            AiohttpTransport(max_body=len(text)) as roomy,
            Session(data_base_url=server.origin, api_key=KEY, transport=roomy) as session,
        ):
            assert await session.data.get("/v1/x") == "x" * 2**23


def packed(head: bytes) -> bytes:
    """Return half a gigabyte of zeros, packed into half a megabyte.

    It is the same block again and again.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return head + (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)) * 512


GZIP, ZLIB = b"\x1f\x8b\x08\0\0\0\0\0\2\xff", b"\x78\xda"
BOMBS = {
    "gzip": (packed(GZIP), "gzip"),
    "deflate": (packed(ZLIB), "deflate"),
    "raw deflate": (packed(b""), "deflate"),
    "not announced": (packed(GZIP), None),
    "packed twice": (gzip.compress(packed(GZIP)), "gzip"),
    "many members": (gzip.compress(bytes(2**20)) * 512, "gzip"),
}


@both
@pytest.mark.proof
@pytest.mark.parametrize(("bomb", "encoding"), BOMBS.values(), ids=BOMBS)
async def test_half_a_gigabyte_in_half_a_megabyte_costs_two_caps_at_most(
    bomb: bytes, encoding: str | None
) -> None:
    """A bomb takes at most twice the cap and 2 MiB of memory, however it is packed."""
    assert len(bomb) < 2**20
    headers = [] if encoding is None else [f"Content-Encoding: {encoding}"]
    async with RawServer(each(http(bomb, "200 OK", *headers))) as server, AiohttpTransport() as transport:
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLargeError):
                await transport.send(request(server))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2 * 2**23 + 2**21  # the default cap is 8 MiB


# Not HTTP, or more than was requested


NOT_HTTP = {
    "70 kB header": http(b"{}", "200 OK", "X-Long: " + "x" * 70_000),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "bad status line": b"HTTP/1.1 two hundred\r\n\r\n",
    "bad status": b"HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/9.9": b"HTTP/9.9 200 OK\r\n\r\n{}",
    "HTTP/0.9": b"<html>hello</html>",
    "bare body": b"{}",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    "list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}",
    "NUL in a name": b"HTTP/1.1 200 OK\r\nX\x00Y: 1\r\nContent-Length: 2\r\n\r\n{}",
    "NUL in a value": b"HTTP/1.1 200 OK\r\nX: 1\x002\r\nContent-Length: 2\r\n\r\n{}",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 40_000 + b"Content-Length: 2\r\n\r\n{}",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x16",
}


@both
async def test_what_is_not_http_is_a_connection_error() -> None:
    """Bytes that are not HTTP/1.1 give one typed error, and their connection is not used again."""
    failures = []
    for name, answer in NOT_HTTP.items():
        scripts = itertools.chain([cut(answer)], itertools.repeat(each(http())))
        async with (
            RawServer(lambda peer, scripts=scripts: next(scripts)(peer)) as server,  # type: ignore[misc]
            AiohttpTransport() as transport,
        ):
            try:
                failures.append(f"{name}: {await transport.send(request(server))}")
            except APIConnectionError as error:
                failures += [f"{name}: {error}"] if len(str(error)) >= 200 else []
            again = await transport.send(request(server))
            failures += [] if (again.body, server.connections) == (b"{}", 2) else [f"{name}: not closed"]
    assert not failures


@both
@pytest.mark.parametrize("apart", [False, True], ids=["same segment", "later"])
@pytest.mark.parametrize("read", [False, True], ids=["in the socket", "read"])
async def test_unasked_answer_is_never_taken_for_the_next_one(apart: bool, read: bool) -> None:
    """A second response to one request is dropped together with its connection."""

    async def script(peer: Peer) -> None:
        received = await peer.request()
        first, second = http(received.target.encode()), http(b"unasked")
        if apart:
            await peer.send(first)
            await settle(2)
            await peer.send(second)
        else:
            await peer.send(first + second)
        await peer.stall()

    async with RawServer(script) as server, AiohttpTransport() as transport:
        for number in range(4):
            outcome = await transport.send(request(server, f"/{number}"))
            assert outcome.body == f"/{number}".encode()
            await settle(25 if read else 3)
        assert server.connections == 4


@both
async def test_repeated_headers_are_joined() -> None:
    """Repeated headers are joined under a lower-case name (RFC 9110, section 5.3)."""
    [outcome] = await exchange(each(http(b"{}", "200 OK", "X-A: 1", "x-a: 2", "RETRY-AFTER: 7")))
    assert outcome.headers["x-a"] == "1, 2"
    assert outcome.headers["retry-after"] == "7"


# A redirect is an answer, not an order


TARGETS = {
    "/v1/x": "to the same origin",
    "": "nowhere",
    "?again": "to the same origin",
    "//evil.example/v1": "to http://evil.example",
    "http:evil.example": "to the same origin",
    "https://evil.example:8443/": "to https://evil.example:8443",
    "file:///etc/passwd": "to file://",
    "javascript:alert(1)": "to javascript://",
    "http://[::1": "to no valid address",
    "http://\x1b7red/": r"to http://\x1b7red",
    "http://" + "a" * 5_000 + "/": "to http://" + "a" * 290,
    f"https://evil.example:{KEY}@{KEY}.example/{KEY}": "to https://***.example",
}


async def test_redirect_error_names_its_target() -> None:
    """A redirect error has the target's origin in short, without path, user, key or control characters."""
    failures = []
    for location, place in TARGETS.items():
        redirecting = Answering(status=302, headers={"location": location} if location else {})
        async with reaching(
            redirecting,
            data_base_url="http://127.0.0.1:1/prefix",
            api_key=KEY,
            limiter=LimiterOptions(isolated=True),
        ) as session:
            with pytest.raises(RedirectError) as caught:
                await session.data.get("/v1/x")
        said = str(caught.value)
        if f"this one leads {place}" not in said or KEY in said or len(said) >= 500:
            failures.append(f"{location[:50]}: {said}")
    assert not failures


# Encrypted connections


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return a certificate authority that no machine trusts."""
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """Return the server's side of a connection certified by it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_session_trusts_an_authority_of_ones_own(
    tls: ssl.SSLContext, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of ssl_context=, SSL_CERT_FILE and SSL_CERT_DIR suffices to trust an own authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    pem = tmp_path / "own.pem"
    pem.write_bytes(authority.cert_pem.bytes())
    folder = tmp_path / "authorities"
    folder.mkdir()
    (folder / f"{subject_hash(authority.cert_pem.bytes())}.0").write_bytes(pem.read_bytes())
    async with RawServer(each(http(b'"safe"')), tls=tls) as server:
        ways: list[tuple[str, str, dict[str, Any]]] = [
            ("", "", {"transport": AiohttpTransport(ssl_context=context)}),
            ("SSL_CERT_FILE", str(pem), {}),
            ("SSL_CERT_DIR", f"{tmp_path}/none{os.pathsep}{folder}", {}),
        ]
        for name, value, given in ways:
            with monkeypatch.context() as environment:
                if name:
                    environment.setenv(name, value)
                session = Session(data_base_url=server.origin, api_key=KEY, **given)
            async with session:
                assert await session.data.get("/v1/x") == "safe"
            await session.connection.transport.aclose()
        assert len(server.requests) == 3


def subject_hash(pem: bytes) -> str:
    """Return the file name of an authority in a folder, as OpenSSL needs it."""
    subject = x509.load_pem_x509_certificate(pem).subject
    canonical = x509.Name([x509.NameAttribute(one.oid, str(one.value).lower()) for one in subject])
    encoded = canonical.public_bytes()
    assert encoded[1] < 128  # a length of one byte
    return f"{int.from_bytes(hashlib.sha1(encoded[2:]).digest()[:4], 'little'):08x}"


@pytest.mark.parametrize(
    ("variable", "content", "reason"),
    [
        ("SSL_CERT_FILE", None, "No such file or directory"),
        ("SSL_CERT_FILE", b"", "no certificate in PEM format"),
        ("SSL_CERT_FILE", b"-----BEGIN CERTIFICATE-----\nAAAA\n", "no certificate in PEM format"),
        ("SSL_CERT_DIR", None, "there is no such folder"),
    ],
)
def test_variable_that_names_no_certificates_is_refused(
    variable: str, content: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A variable that names an unreadable path is an error at once."""
    place = tmp_path / "own.pem"
    if content is not None:
        place.write_bytes(content)
    monkeypatch.setenv(variable, str(place))
    with pytest.raises(ConfigurationError, match=f"{variable} names no certificates: .*own.pem: {reason}"):
        Session()


def unchecked(mode: ssl.VerifyMode) -> ssl.SSLContext:
    """Return a context that checks no host name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = mode
    return context


async def test_arguments_that_cannot_work_are_refused() -> None:
    """A context that checks nothing, a cap that is none, and both a client and its settings are refused."""
    unsafe = "must check certificates and host names"
    async with aiohttp.ClientSession() as client:
        cases: list[tuple[dict[str, Any], str]] = [
            *(({"max_body": cap}, "max_body=") for cap in (0, -1, 1.5, "8", True)),
            *(({"ssl_context": unchecked(mode)}, unsafe) for mode in (ssl.CERT_NONE, ssl.CERT_REQUIRED)),
            ({"ssl_context": "own.pem"}, r"ssl_context must be an ssl\.SSLContext, not str"),
            (
                {"client": client, "proxy": "http://127.0.0.1:1"},
                "proxy= has no effect beside a ClientSession",
            ),
            ({"client": client, "ssl_context": ssl.create_default_context()}, "ssl_context= has no effect"),
        ]
        for arguments, said in cases:
            with pytest.raises(ConfigurationError, match=said):
                AiohttpTransport(**arguments)


ADVICE = "set the variable SSL_CERT_FILE, or give ssl_context= to AiohttpTransport"


@both
@pytest.mark.parametrize(
    ("trusted", "host", "days", "reason"),
    [
        (False, "127.0.0.1", 1, f"certificate is not trusted.*{ADVICE}"),
        (True, "other.example", 1, r"is not trusted \(.*127\.0\.0\.1.*\): check the base address"),
        (True, "127.0.0.1", -9, "check this machine's clock"),
        (True, "127.0.0.1", 9, "check this machine's clock"),
    ],
)
async def test_a_certificate_that_does_not_fit_is_refused(
    trusted: bool, host: str, days: int, reason: str, authority: trustme.CA
) -> None:
    """An unknown certificate, or one for another host or day, is an error at once; no byte is sent."""
    ours = ssl.create_default_context()
    if trusted:
        authority.configure_trust(ours)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    end = datetime.now(UTC) + timedelta(days=days)
    begin = end - timedelta(days=1, hours=1)
    authority.issue_cert(host, not_before=begin, not_after=end).configure_cert(theirs)
    async with RawServer(each(http()), tls=theirs) as server:
        async with AiohttpTransport(ssl_context=ours) as transport:
            with pytest.raises(CertificateError, match=reason) as caught:
                await call(server, max_attempts=5, transport=transport)
        assert server.seen == b""
    assert caught.value.attempts == 1
    assert isinstance(caught.value, APIConnectionError)


# The transport's own life


async def test_closed_client_session_is_a_typed_error() -> None:
    """A closed ClientSession is a SessionClosedError, not a RuntimeError of aiohttp."""
    client = aiohttp.ClientSession()
    await client.close()
    with pytest.raises(SessionClosedError):
        await AiohttpTransport(client).send(Request("GET", "http://127.0.0.1:1/"))


@both
async def test_client_session_of_ones_own_is_used_and_left_as_it_was() -> None:
    """A ClientSession's headers and cookies are sent; it is not changed or closed."""

    async def never(*_: Any) -> Any:
        raise AssertionError("a middleware of the given session must not run")

    packed = http(gzip.compress(b'{"a": 1}'), "404 Not Found", "Content-Encoding: gzip", "Set-Cookie: b=2")
    async with (
        RawServer(each(packed)) as server,
        aiohttp.ClientSession(
            headers={"X-Mine": "yes"},
            cookies={"a": "1"},
            raise_for_status=True,
            auto_decompress=False,
            middlewares=[never],
            timeout=aiohttp.ClientTimeout(total=1e-9),
        ) as client,
    ):
        headers, timeout = dict(client.headers), client.timeout
        transport = AiohttpTransport(client)
        outcome = await transport.send(request(server))
        await transport.aclose()
        assert (outcome.status, outcome.body) == (404, b'{"a": 1}')
        assert server.requests[0].headers["x-mine"] == "yes"
        assert not client.closed
        assert (dict(client.headers), client.timeout) == (headers, timeout)
        assert KEY not in repr(dict(client.headers))


async def test_connections_are_opened_while_the_first_request_is_under_way() -> None:
    """Calls that wait for the first response have a connection each by then, and no more than may be used."""
    opened = asyncio.Event()

    async def answer(peer: Peer) -> None:
        if server.connections == 8:
            opened.set()
        while True:
            await peer.request()
            await opened.wait()
            await peer.send(http(b"{}"))

    async with RawServer(answer) as server:
        async with Session(
            data_base_url=server.origin, api_key=KEY, max_in_flight=8, deadline=9.0
        ) as session:
            await asyncio.gather(*(session.data.get("/v1/x") for _ in range(20)))
        assert (server.connections, len(server.requests)) == (8, 20)


@pytest.fixture
def by_client(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the methods of all requests that are sent by `ClientSession.request`."""
    called, original = list[str](), aiohttp.ClientSession.request

    def counted(self: aiohttp.ClientSession, method: str, url: URL, **settings: Any) -> Any:
        called.append(method)
        return original(self, method, url, **settings)

    monkeypatch.setattr(aiohttp.ClientSession, "request", counted)
    return called


async def test_plain_request_does_without_the_method_of_aiohttp(way: str, by_client: list[str]) -> None:
    """A GET takes a connection without `ClientSession.request`; other requests are sent by it."""
    async with RawServer(each(http())) as server, AiohttpTransport() as transport:
        await transport.send(request(server))
        await transport.send(Request("DELETE", f"{server.origin}/v1/x"))
    assert by_client == (["DELETE"] if way == "direct" else ["GET", "DELETE"])


async def test_tool_that_replaces_the_method_of_aiohttp_sees_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tool that records or fakes requests by replacing aiohttp's method sees all of them, in use or not."""
    sent: list[str] = []
    async with RawServer(each(http())) as server, AiohttpTransport() as transport:
        await transport.send(request(server, "/before"))
        with monkeypatch.context() as patch:
            patch.setattr(aiohttp.ClientSession, "_request", _passed_on(sent))
            await transport.send(request(server, "/within"))
        await transport.send(request(server, "/after"))
        assert sent == [f"{server.origin}/within"]
        assert [one.target for one in server.requests] == ["/before", "/within", "/after"]
        assert len({frozenset(one.headers.items()) for one in server.requests}) == 1


async def test_traces_of_instrumented_sessions_see_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces that an instrumentation adds to each ClientSession see the requests of a transport."""
    seen, original = list[str](), aiohttp.ClientSession.__init__

    async def note(_: Any, __: Any, given: aiohttp.TraceRequestStartParams) -> None:
        seen.append(str(given.url))

    def instrumented(self: aiohttp.ClientSession, **settings: Any) -> None:
        traces = aiohttp.TraceConfig()
        traces.on_request_start.append(note)
        original(self, trace_configs=[traces], **settings)

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", instrumented)
    async with RawServer(each(http())) as server, AiohttpTransport() as transport:
        await transport.send(request(server))
        assert seen == [f"{server.origin}/v1/x"]


def _refused(*_: Any, **__: Any) -> Any:
    raise TypeError("another argument is needed")


DIRECT = "chainapi._http.transport.direct."
CHANGES: list[tuple[str, Any, str]] = [
    ("aiohttp.__version__", "4.0.0", "4.0.0: requests cost more CPU, because chainapi was not tested"),
    ("aiohttp.__version__", "3.99.0rc1", "aiohttp 3.99.0rc1: requests cost more CPU"),
    ("aiohttp.ClientRequest", _refused, r"its requests changed \(another argument is needed\)"),
    (f"{DIRECT}_written", _refused, r"its connections changed \(another argument is needed\)"),
]


@pytest.mark.parametrize(("name", "change", "warning"), CHANGES)
async def test_another_release_of_aiohttp_sends_through_its_client(
    name: str, change: Any, warning: str, monkeypatch: pytest.MonkeyPatch, by_client: list[str]
) -> None:
    """A release that may differ, or one that does, sends with its own client, after one warning."""
    monkeypatch.setattr(name, change)
    async with RawServer(each(http())) as server, AiohttpTransport() as transport:
        with pytest.warns(RuntimeWarning, match=warning):
            await transport.send(request(server))
        await transport.send(request(server))
        assert by_client == ["GET"] * 2
        assert [one.target for one in server.requests] == ["/v1/x", "/v1/x"]


KINDS: list[tuple[str, dict[str, str], bytes | None]] = [
    ("POST", {"content-type": "application/json"}, b'{"a": 1}'),
    ("DELETE", {}, None),
    ("GET", {"x-name": "Zo\u00eb"}, None),
    ("GET", {"x-tab": "a\tb"}, None),
    ("GET", {"Host": "other.test", "Accept": "text/csv"}, None),
    ("GET", {"accept": "text/csv", "user-agent": "mine", "accept-encoding": "identity"}, None),
    ("GET", {"x-100%": "50% %s %(x)s", "x-data-api-key": "another"}, None),
]


@both
async def test_requests_of_all_kinds_share_a_connection() -> None:
    """A request with any body, method or headers arrives byte for byte; no header describes the machine."""
    target = "/v1/a%2Fb/%7E+x?pageToken=a%26b%23c%2Bd&q=%C3%BC"
    bodies: list[bytes] = []

    async def answer(peer: Peer) -> None:
        while True:
            received = await peer.request()
            bodies.append(await peer.reader.readexactly(int(received.headers.get("content-length", "0"))))
            await peer.send(http())

    async with RawServer(answer) as server, AiohttpTransport() as transport:
        for method, headers, body in KINDS:
            await transport.send(request(server))
            await transport.send(Request(method, server.origin + target, headers, body))
        assert server.connections == 1
    described = {"host", "x-data-api-key", "accept", "accept-encoding", "user-agent"}
    assert set(server.requests[0].headers) <= described
    assert bodies[1::2] == [body or b"" for *_, body in KINDS]
    for (method, headers, _), received in zip(KINDS, server.requests[1::2], strict=True):
        assert received.raw.startswith(f"{method} {target} HTTP/1.1\r\n".encode())
        sent = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        assert {name: received.headers[name.lower()] for name in headers} == sent
        assert received.raw.lower().count(b"\r\nhost: ") == received.raw.lower().count(b"\r\naccept: ") == 1


@both
async def test_header_that_ends_its_line_is_refused() -> None:
    """A header with a line break or NUL is an error and is not sent, also after a good one of its name."""
    async with RawServer(each(http())) as server, AiohttpTransport() as transport:
        await transport.send(Request("GET", f"{server.origin}/v1/x", {"x-a": "a"}))
        for text in ("a\r\nx-evil: 1", "a\nx-evil: 1", "a\rx-evil: 1", "a\0b"):
            for headers in ({"x-a": text}, {text: "a"}):
                with pytest.raises(APIConnectionError):
                    await transport.send(Request("GET", f"{server.origin}/v1/x", headers))
        assert [one.headers["x-a"] for one in server.requests] == ["a"]
