"""API key leaks: the key is found on its own origin's wire and nowhere else."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import pickle
import traceback
import types
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

import attrs
import msgspec
import pytest
from rich.pretty import pretty_repr

from chainapi import Provider, Session
from chainapi.errors import (
    APITimeoutError,
    AuthenticationError,
    ChainAPIError,
    ConfigurationError,
    ConnectError,
    DecodeError,
    PermissionDeniedError,
    RedirectError,
    SessionClosedError,
)
from chainapi.testing import Player, Recorder
from chainapi.transport import AiohttpTransport, Request, Response
from tests.otel.recorded import Recorded
from tests.raw_server import Peer, RawServer, Script, each, http, let_pass, settle, until
from tests.sessions import Answering, reaching

KEY = "hunt3r2-Marker~Key%s{0}"
BASE = "http://127.0.0.1:9"
HOUR = 3_600.0


def hunt(text: str, where: str) -> None:
    """Fail if the key, or its beginning in any case, is in the text."""
    assert KEY[:8] not in text.lower(), f"the key is in {where}: {text[:500]}"


def reachable(root: object) -> Iterator[object]:
    """Yield all objects that an object refers to, except classes, modules and loops."""
    seen = {id(root)}
    todo = [root]
    while todo:
        one = todo.pop()
        yield one
        if isinstance(one, type | types.ModuleType | types.FrameType | asyncio.AbstractEventLoop):
            continue
        if type(one).__name__ == "Secret":  # what holds the key, and shows it to nobody
            continue
        if isinstance(one, types.FunctionType):
            todo.extend(cell.cell_contents for cell in one.__closure__ or () if id(cell) not in seen)
            continue
        for other in gc.get_referents(one):
            if id(other) not in seen:
                seen.add(id(other))
                todo.append(other)


def hunt_object(root: object, where: str) -> None:
    """Hunt in repr, str and vars of all reachable objects, and in what `rich` shows.

    The hunt ends at a Secret.
    """
    for one in reachable(root):
        hunt(repr(one) + pretty_repr(one, max_depth=2), f"repr of {type(one).__name__} in {where}")
        if type(one).__module__.startswith("chainapi"):
            hunt(str(one), f"str of {type(one).__name__} in {where}")
            hunt(format(one), f"format of {type(one).__name__} in {where}")
            if hasattr(one, "__dict__"):
                hunt(repr(vars(one)), f"vars of {type(one).__name__} in {where}")
            if attrs.has(type(one)):
                hunt(repr(attrs.asdict(cast("Any", one))), f"asdict of {type(one).__name__} in {where}")


def chain(error: BaseException) -> Iterator[BaseException]:
    """Walk over an error, its causes, contexts and groups."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions


def hunt_error(error: BaseException) -> None:
    """Hunt in an error as tools show it: text, arguments, tracebacks, frame variables."""
    for one in chain(error):
        where = f"{type(one).__name__} of {error!r:.80}"
        hunt(repr(one) + str(one) + repr(one.args) + repr(vars(one)), where)
        hunt("".join(traceback.format_exception(one)), f"traceback of {where}")
        for frame, line in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename == __file__:
                continue
            for name, value in frame.f_locals.items():
                place = f"{name} in {frame.f_code.co_filename}:{line} of {where}"
                hunt(repr(value) + pretty_repr(value, max_depth=6), place)
    if isinstance(error, ChainAPIError):
        blob = pickle.dumps(error)
        hunt(blob.decode("latin-1"), "the pickled error")
        hunt(repr(vars(pickle.loads(blob))), "the error read back")


async def caught(work: Awaitable[object]) -> BaseException:
    """Return the exception of an awaitable."""
    try:
        await work
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is searched
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture(autouse=True)
def _logs_and_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hunt in all DEBUG logs and all warnings."""
    of_aiohttp = ("aiohttp", "aiohttp.client", "aiohttp.internal")
    for name in ("", "asyncio", *of_aiohttp, "chainapi", "charset_normalizer"):
        caplog.set_level(logging.DEBUG, name)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield
    for record in caplog.get_records("call"):
        hunt(record.getMessage() + repr(record.args) + str(record.exc_info), f"the log of {record.name}")
    hunt(caplog.text, "the log")
    for warning in given:
        hunt(str(warning.message) + repr(warning.source), "a warning")


@asynccontextmanager
async def keyed(script: Script, **settings: Any) -> AsyncIterator[tuple[Session, RawServer, list[Any]]]:
    """Yield a session with the key on a scripted server, and its events.

    The event loop is in debug mode. Events, spans and metrics are searched at the end.
    """
    events: list[Any] = []
    recorded = Recorded()
    asyncio.get_running_loop().set_debug(True)
    async with RawServer(script) as server:
        given = {"data_base_url": server.origin, "api_key": KEY, "on_event": events.append}
        given["telemetry"] = recorded.telemetry
        async with Session(**{**given, "max_attempts": 1, "timeout": 10.0, **settings}) as session:
            yield session, server, events
    for event in events:
        hunt(repr(event) + str(event) + repr(attrs.asdict(event)), "an event")
    for span in recorded.spans:
        hunt(span.to_json(), "a span")
    for name, point in recorded.points():
        hunt(f"{name} {point}", "a metric")


# At rest


async def test_key_is_not_shown_by_what_is_made_of_it() -> None:
    """Sessions, views, streams, checkpoints and requests show no key at any depth, nor do pickles."""
    transport = Answering(b'{"blocks": [{"n": 1}], "nextPageToken": "t"}')
    async with reaching(transport, api_key=KEY) as session:
        pages = session.data.list("/v1/blocks")
        await anext(pages)
        request = transport.requests.pop()  # the transport of a test may keep the key: it needs it
        parts = (session, session.with_options(tag="a"), session.data, session.data.evm, pages, pages.walk)
        for one in parts:
            hunt_object(one, type(one).__name__)
            with suppress(TypeError, AttributeError):
                hunt(pickle.dumps(one).decode("latin-1"), f"a pickle of {type(one).__name__}")
        hunt(pages.checkpoint.dumps(), "a checkpoint")
    assert request.headers["x-data-api-key"] == KEY
    hunt(repr(request) + str(request) + pretty_repr(request), "the request")


def test_rich_shows_the_repr_of_a_struct() -> None:
    """A Struct with a repr of its own is shown by it: `rich` would show all values of another Struct."""
    kinds: list[type[msgspec.Struct]] = [msgspec.Struct]
    for kind in kinds:
        kinds += kind.__subclasses__()
    own = [kind for kind in kinds if kind.__module__.startswith("chainapi.")]
    hiding = [kind for kind in own if kind.__repr__ is not msgspec.Struct.__repr__]
    assert {Request, Response} <= {*hiding}
    assert not [kind for kind in hiding if kind.__rich_repr__ is msgspec.Struct.__rich_repr__]
    assert pretty_repr(Response(200, {"x-echo": KEY}, b"{}")) == "Response(status=200, body=<2 bytes>)"


@pytest.mark.adapter
@pytest.mark.real_time
async def test_key_is_not_shown_by_a_session_at_work() -> None:
    """A session between two pages holds no key in its pool or kept requests."""
    page = b'{"blocks": [{"n": 1}], "nextPageToken": "t"}'
    async with keyed(each(http(page))) as (session, server, _):
        pages = session.data.list("/v1/blocks")
        rows = pages.items()
        await anext(rows)
        assert KEY.encode() in server.seen
        hunt_object(session, "the session")
        hunt_object(pages, "the stream")
        hunt(pages.checkpoint.dumps(), "the checkpoint")
        await rows.aclose()


ENDS = ("\n", "\r", "\r\nX-Evil: 1", "\0", " ", "\t", "\x7f", "ü", "\u2028", "\ud800")
UNFIT: list[Any] = [*(KEY + end for end in ENDS), "\n" + KEY, "", KEY * 400, KEY.encode(), [KEY], {KEY: 1}]


def test_unfit_key_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that no header can carry is refused in an error without it, as argument or variable."""
    for key in UNFIT:
        with pytest.raises(ConfigurationError, match="api_key") as caught:
            Session(data_base_url=BASE, api_key=key)
        hunt_error(caught.value)
        if isinstance(key, str) and "\0" not in key and key.isascii():
            monkeypatch.setenv("CHAINAPI_API_KEY", key)
            with pytest.raises(ConfigurationError, match="CHAINAPI_API_KEY") as caught:
                Session(data_base_url=BASE)
            hunt_error(caught.value)


MISTAKES: list[dict[str, Any]] = [
    {"timeout": -1},
    {"api_kye": KEY},
    {"key": KEY, "timout": 1},
    {"max_body": 0},
    {"data_base_url": "ftp://example.com"},
    {"provider": Provider(api_key_header="bad header")},
    {"max_attempts": 0},
    # without TLS the key is sent to loopback addresses only
    {"data_base_url": "http://example.com"},
    {"data_base_url": "http://10.0.0.1"},
    {"data_base_url": "http://127.0.0.1.evil.example"},
]


def test_other_mistakes_do_not_show_the_key() -> None:
    """A configuration error about something else hides the key; a key over plain HTTP is such a mistake."""
    for settings in MISTAKES:
        with pytest.raises(ConfigurationError) as caught:
            Session(**{"data_base_url": BASE, "api_key": KEY, **settings})
        assert "http://" not in str(settings) or "https" in str(caught.value)
        hunt_error(caught.value)


async def test_misspelt_argument_keeps_no_key() -> None:
    """A key under a misspelt argument is in no frame of the error."""
    session = Session(metrics_base_url=BASE, data_base_url=BASE, api_key=KEY)
    data = session.data
    unknown: dict[str, Any] = {"api_kye": KEY}
    calls: list[Callable[[], Any]] = [
        lambda: data.list("/v1/x", **unknown),
        lambda: data.list("/v1/x", api_key=KEY),
        lambda: data.list("/v1/x", pagesize=1, api_key=KEY),
        lambda: asyncio.create_task(data.get("/v1/x", **unknown)),
        lambda: data.evm.blocks(43114, **unknown),
        lambda: asyncio.create_task(data.evm.block(43114, 1, **unknown)),
        lambda: session.metrics.avg_tps(43114, **unknown),
        lambda: Provider(**unknown),
        lambda: Session(**unknown),
    ]

    async def made(call: Callable[[], Any]) -> None:
        outcome = call()
        if isinstance(outcome, asyncio.Task):
            await outcome

    for call in calls:
        error = await caught(made(call))
        assert isinstance(error, ConfigurationError | TypeError)
        hunt_error(error)
    await session.aclose()


# In errors


async def reset(peer: Peer) -> None:
    """Break the connection off after the request."""
    await peer.request()
    peer.reset()


async def cut_short(peer: Peer) -> None:
    """Send a body shorter than its declared length."""
    await peer.request()
    await peer.send(http(b"{", length=99))


ECHO = json.dumps(
    {"message": [f"bad key {KEY}", {"key": KEY}], "error": f"Forbidden {KEY}", "statusCode": 403}
)

FAULTS = {
    "reset": reset,
    "cut short": cut_short,
    "401": each(http(b'{"message": "no", "error": "Unauthorized"}', "401 Unauthorized")),
    "403 with the key": each(http(ECHO.encode(), "403 Forbidden")),
    "429 with the key": each(http(ECHO.encode(), f"429 {KEY}", f"Retry-After: {KEY}")),
    "500 with the key": each(http((KEY * 200).encode(), "500 Oops")),
    "502 with the key past the excerpt": each(http(b"x" * 290 + (KEY * 200).encode(), "502 Oops")),
    "redirect with the key": each(http(b"", "302 Found", f"Location: https://{KEY}.example/{KEY}")),
    "key as JSON": each(http(json.dumps({KEY: [1], KEY + "2": [2]}).encode())),
    "key as HTML": each(http(KEY.encode())),
    "key as a header": each(http(b"{}", "200 OK", f"X-Key: {KEY}\0")),
    "key as a status": each(f"HTTP/1.1 {KEY}\r\n\r\n".encode()),
    "key as an encoding": each(http(KEY.encode(), "200 OK", "Content-Encoding: gzip")),
    "not HTTP": each(KEY.encode() + b"\r\n\r\n"),
}


@pytest.mark.adapter
@pytest.mark.real_time
async def test_key_is_in_no_error() -> None:
    """The key is in no error, log, event or traceback, also if a service echoes it."""
    for name, script in FAULTS.items():

        async def once(peer: Peer, script: Script = script) -> None:
            try:
                await asyncio.wait_for(script(peer), 5)
            except TimeoutError:
                return

        async with keyed(once) as (session, server, _):
            pages = session.data.list("/v1/blocks")
            for work in (pages.collect(), session.data.get("/v1/x", model=dict[str, int])):
                error = await caught(work)
                assert isinstance(error, ChainAPIError), name
                hunt_error(error)
            assert KEY.encode() in server.seen, name
            transport = AiohttpTransport()
            hunt_error(await caught(_send(transport, server)))
            await transport.aclose()


async def _send(transport: AiohttpTransport, server: RawServer) -> None:
    response = await transport.send(Request("GET", server.origin + "/v1/x", {"x-data-api-key": KEY}))
    hunt(repr(response), "the response")
    raise LookupError("it was answered")


@pytest.mark.adapter
@pytest.mark.real_time
async def test_key_is_in_no_recording(tmp_path: Path) -> None:
    """The key is in no recording, and in no recorder or player, also if a service echoes it."""
    recorder = Recorder(tmp_path / "a.jsonl")
    for script in FAULTS.values():
        async with RawServer(script) as server:
            session = recorder.session(data_base_url=server.origin, api_key=KEY, max_attempts=1)
            async with session:
                hunt_error(await caught(session.data.get("/v1/x", model=dict[str, int])))
            assert KEY.encode() in server.seen
    hunt_object(recorder, "the recorder")
    recorder.save()
    recording = recorder.path.read_text("utf-8")
    hunt(recording, "the recording")
    assert len(recording.splitlines()) > 8
    player = Player(recorder.path)
    hunt_object(player, "the player")
    hunt_error(await caught(player.send(Request("GET", f"{BASE}/v1/y", {"x-data-api-key": KEY}))))


@pytest.mark.adapter
@pytest.mark.real_time
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", http(b"{", length=10)])
async def test_key_is_in_no_traceback_of_a_call_that_is_given_up(sent: bytes) -> None:
    """The key is in no frame of a cancelled call, a deadline or a closed session."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(sent)
        await peer.stall()

    async with keyed(script, timeout=HOUR) as (session, server, _):

        async def given_up(
            work: Awaitable[object], kind: type, end: Callable[[asyncio.Future[object]], object]
        ) -> None:
            """End a call whose request has arrived, and hunt in its error."""
            requests = len(server.requests)
            task = asyncio.ensure_future(work)
            await until(lambda: len(server.requests) > requests)
            await settle()
            if isinstance(done := end(task), Coroutine):
                await done
            error = await caught(task)
            assert type(error) is kind
            hunt_error(error)

        async def impatient() -> None:
            async with asyncio.timeout(60):
                await session.data.get("/v1/x")

        get = partial(session.data.get, "/v1/x")
        await given_up(impatient(), TimeoutError, lambda _: let_pass(60))
        await given_up(asyncio.wait_for(get(), 60), TimeoutError, lambda _: let_pass(60))
        await given_up(get(), APITimeoutError, lambda _: let_pass(HOUR))
        await given_up(get(), asyncio.CancelledError, lambda task: task.cancel())
        await given_up(get(), SessionClosedError, lambda _: session.aclose())


@pytest.mark.adapter
@pytest.mark.real_time
async def test_page_token_is_in_no_event_span_metric_or_log(caplog: pytest.LogCaptureFixture) -> None:
    """A page token is on the wire only, also if the service repeats it in an error or a header."""
    token = "tOken/of a+Page%&" * 3
    forms = {token, quote(token, safe=""), quote_plus(token), json.dumps(token)[1:-1]}
    page = json.dumps({"blocks": [{"n": 1}], "nextPageToken": token}).encode()
    refusal = json.dumps({"message": [f"bad token {token}"], "error": token, "statusCode": 400}).encode()
    answers = [http(page), http(b"", "503 Oops"), http(refusal, "400 Bad Request", f"X-Token: {token}")]

    recorded = Recorded()
    caplog.set_level(logging.DEBUG, "chainapi")
    async with keyed(each(*answers), telemetry=recorded.telemetry, max_attempts=2) as (
        session,
        server,
        events,
    ):
        walk = asyncio.create_task(session.data.list("/v1/blocks").collect())
        await until(lambda: any(type(event).__name__ == "RetryScheduled" for event in events))
        await settle()
        let_pass(60)
        error = await caught(walk)
    assert isinstance(error, ChainAPIError)
    assert quote(token, safe="").encode() in server.seen
    assert {"CallBegan", "CallEnded", "RetryScheduled"} <= {type(event).__name__ for event in events}
    seen = [repr(event) for event in events]
    seen += [span.to_json() for span in recorded.spans]
    seen += [f"{name} {point}" for name, point in recorded.points()]
    seen += [record.getMessage() for record in caplog.records if record.name == "chainapi"]
    assert [text for text in seen if any(form in text for form in forms)] == []


@attrs.frozen
class Block:
    """A resource whose field has the key in its name."""

    block: int


async def test_short_key_is_masked_and_leaves_other_words_alone() -> None:
    """A key of one letter is masked in echoes, but not within other words."""
    message = {"message": "the token 'k' is no key", "error": "k"}
    asked: list[tuple[int, object, str]] = [
        (403, message, "403 *** for GET /v1/x: the token '***' is no key"),
        (200, {"block": "x"}, "$.block: Expected `int`, got `str`"),
        (200, {"other": 1}, "$.block: missing"),
    ]
    for status, body, shown in asked:
        transport = Answering(json.dumps(body).encode(), status)
        async with reaching(transport, api_key="k", max_attempts=1) as session:
            error = await caught(session.data.get("/v1/x", model=Block))
        assert shown in str(error)


# On the wire


@pytest.mark.adapter
@pytest.mark.real_time
async def test_key_does_not_follow_a_redirect() -> None:
    """Redirects of any status and form make no request to another origin."""
    forms = ("{other}/v1", "//{place}/v1", "//user:pw@{place}/", "{other}?key=")
    for status, form in [
        *((status, forms[0]) for status in (301, 303, 307, 308)),
        *((302, form) for form in forms),
    ]:
        async with RawServer(each(http(b'"got it"'))) as other:
            place = other.origin.removeprefix("http://")
            location = "Location: " + form.format(other=other.origin, place=place)
            script = each(http(b"", f"{status} Go", location))
            async with keyed(script, max_attempts=3) as (session, server, _):
                error = await caught(session.data.get("/v1/x"))
                assert isinstance(error, RedirectError), location
                hunt_error(error)
                assert len(server.requests) == 1
            assert (other.connections, other.seen) == (0, b"")


@pytest.mark.adapter
@pytest.mark.real_time
async def test_metrics_api_gets_no_key() -> None:
    """The Metrics API gets no key; the Data API gets it in one header, not in a URL."""
    async with RawServer(each(http())) as public, RawServer(each(http())) as data:
        async with Session(
            metrics_base_url=public.origin,
            data_base_url=data.origin + "/prefix",
            api_key=KEY,
            provider=Provider(api_key_header="X-Other-Key"),
        ) as session:
            await session.metrics.get("/v1/x", q="1")
            await session.data.get("/v1/x", q="1")
        hunt(public.seen.decode(), "a request to the Metrics API")
        [received] = data.requests
        assert received.raw.count(KEY.encode()) == 1
        assert received.headers["x-other-key"] == KEY
        assert received.target == "/prefix/v1/x?q=1"


@pytest.mark.adapter
@pytest.mark.real_time
async def test_each_session_sends_its_own_key() -> None:
    """Sessions with different keys on one transport each send only their own."""
    async with RawServer(each(http())) as server:
        transport = AiohttpTransport()
        keys = [f"key-number-{number}" for number in range(5)]
        sessions = [Session(data_base_url=server.origin, api_key=key, transport=transport) for key in keys]
        calls = [(f"/v1/{key}", session) for key, session in zip(keys, sessions, strict=True)] * 8
        await asyncio.gather(*(session.data.get(path) for path, session in calls))
        for session in sessions:
            await session.aclose()
        await transport.aclose()
        assert len(server.requests) == 40
        for received in server.requests:
            assert received.headers["x-data-api-key"] == received.target.split("/")[2]


@pytest.mark.adapter
@pytest.mark.real_time
async def test_environment_decides_nothing_about_the_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Proxies and .netrc of the environment are ignored, and an error says how to give a proxy."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password mine\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with RawServer(each(http(b'"detour"'))) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        monkeypatch.setenv("NO_PROXY", "")
        async with keyed(each(http(b'"direct"'))) as (session, server, _):
            assert await session.data.get("/v1/x") == "direct"
            assert "authorization" not in server.requests[0].headers
            gone = server.origin
        assert proxy.connections == 0
        async with Session(data_base_url=gone, api_key=KEY, max_attempts=1) as session:
            with pytest.raises(ConnectError, match="HTTP_PROXY is set, but not read: give proxy= to Aiohttp"):
                await session.data.get("/v1/x")
        async with (
            AiohttpTransport(proxy=proxy.origin.replace("//", "//me:secret@")) as transport,
            Session(data_base_url=gone, api_key=KEY, transport=transport) as session,
        ):
            assert await session.data.get("/v1/x") == "detour"
        assert proxy.requests[0].target == f"{gone}/v1/x"


def test_an_impossible_proxy_is_refused_without_showing_its_password() -> None:
    """A proxy that is no address of HTTP is refused."""
    for proxy in ("socks5://me:secret@host:1", "http://", "me:secret@host", "http://[secret", 5):
        options: dict[str, Any] = {"proxy": proxy}
        with pytest.raises(ConfigurationError, match=r"^proxy= must be an address such as http") as caught:
            AiohttpTransport(**options)
        assert "secret" not in str(caught.value)


@pytest.mark.adapter
@pytest.mark.real_time
async def test_cookies_are_not_kept() -> None:
    """Cookies that a server sets are not sent to any server."""
    cookies = ["Set-Cookie: a=1; Path=/", "Set-Cookie: b=2; Domain=127.0.0.1"]
    async with keyed(each(http(b"{}", "200 OK", *cookies))) as (session, server, _):
        for _ in range(3):
            await session.data.get("/v1/x")
        assert len(server.requests) == 3
        assert all("cookie" not in received.headers for received in server.requests)


async def test_refused_key_is_not_tried_again() -> None:
    """401 and 403 are raised after one request: a wrong key is not sent over and over."""
    for status, kind in ((401, AuthenticationError), (403, PermissionDeniedError)):
        transport = Answering(status=status)
        async with reaching(transport, api_key=KEY) as session:
            assert isinstance(await caught(session.data.get("/v1/x")), kind)
        assert len(transport.requests) == 1


def _leak_text(headers: dict[str, str]) -> None:
    raise DecodeError(headers["x"])


def _leak_cause(headers: dict[str, str]) -> None:
    try:
        _leak_text(headers)
    except DecodeError as error:
        raise ValueError("clean") from error


def test_hunter_finds_what_is_there() -> None:
    """The hunter finds a key in an error's text or cause, and deep in an object."""
    for leak in (_leak_text, _leak_cause):
        with pytest.raises((ValueError, DecodeError)) as leaked:
            leak({"x": KEY})
        with pytest.raises(AssertionError, match="the key is in"):
            hunt_error(leaked.value)
    for hidden in ([[[{"deep": [KEY]}]]], KEY.join, lambda: KEY + hunt.__name__ and leaked):
        with pytest.raises(AssertionError, match="the key is in"):
            hunt_object(hidden, "an object")
