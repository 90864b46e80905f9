"""Recordings: playback equals what was recorded, and no file has a key or a page token."""

from __future__ import annotations

import asyncio
import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Cache, Provider, Session
from chainapi.errors import (
    APIConnectionError,
    NotFoundError,
    RateLimitedError,
    RecordingError,
    SessionClosedError,
)
from chainapi.models import AllTimeNativeBalanceQuery, DateRangeMinBalance
from chainapi.simulator import Fault, Simulator
from chainapi.testing import Clock, Player, Recorder
from chainapi.testing.masking import Secrets
from chainapi.transport import Request, Response

KEY = "hunt3r2-Marker~Key%s{0}"
DATA = "https://data.invalid"
DATES = DateRangeMinBalance(
    first_date="2026-01-01", last_date="2026-01-31", min_balance="1", evm_chain_id="43114"
)
WHERE: dict[str, Any] = {"data_base_url": DATA, "metrics_base_url": "https://metrics.invalid"}


class Scripted:
    """Transport with one response for each path, or one error."""

    def __init__(self, answers: Mapping[str, Response | Exception | list[Response]]) -> None:
        self.answers = answers
        self.closed = False

    async def send(self, request: Request) -> Response:
        """Answer by the path."""
        answer = self.answers[request.url.removeprefix(DATA).partition("?")[0]]
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True


def text_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text("utf-8")


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return [entry.name for entry in folder.iterdir()]


def body(value: object) -> Response:
    """Return a response with a JSON body."""
    return Response(200, {"content-type": "application/json"}, json.dumps(value).encode())


async def record(path: Path, answers: Mapping[str, Any], *urls: str, **headers: str) -> str:
    """Record one request to each address, and return the file."""
    async with Recorder(path, Scripted(answers), now=lambda: 1_000.0) as recorder:
        for url in urls or answers:
            try:
                await recorder.send(Request("GET", DATA + url, headers or {"x-data-api-key": KEY}))
            except APIConnectionError:
                continue
    return text_of(path)


async def play(path: Path, url: str, **options: Any) -> Response:
    """Return the recorded response to a request."""
    return await Player(path, **options).send(Request("GET", DATA + url, {"x-data-api-key": "other"}))


async def test_walk_is_played_as_it_was_recorded(tmp_path: Path) -> None:
    """Rows, pages and single resources of a recording equal those of the service; nothing is left over."""
    simulator = Simulator(rows=95, points=30, limit=50, api_key=KEY)
    where = {"data_base_url": simulator.data_base_url, "metrics_base_url": simulator.metrics_base_url}

    async def read(session: Session) -> list[Any]:
        async with session:
            pages = [page async for page in session.data.evm.blocks(43114, page_size=20)]
            rows = [[*page] for page in pages]
            points = await session.metrics.avg_tps(43114).collect()
            chain = await session.data.get("/v1/chains/43114")
            with pytest.raises(NotFoundError):
                await session.data.get("/v1/chains/1")
            return [rows, points, chain]

    async with Recorder(tmp_path / "deep" / "walk.jsonl", simulator.transport()) as recorder:
        recorded = await read(recorder.session(api_key=KEY, **where))
    player = Player(recorder.path)
    assert await read(player.session()) == recorded
    player.assert_all_played()
    assert len(recorded[0]) == 5


async def test_file_can_be_read_and_compared(tmp_path: Path) -> None:
    """A file has one line for each exchange, the body as JSON, and recording again gives the same file."""
    simulators = [Simulator(seed=2, rows=25, limit=9, api_key=KEY) for _ in range(2)]
    await simulators[1].transport().send(Request("GET", simulators[1].metrics_base_url + "/v1/avg_tps/43114"))
    texts: list[str] = []
    for number, simulator in enumerate(simulators):
        async with Recorder(tmp_path / f"{number}.jsonl", simulator.transport()) as recorder:
            where = {"data_base_url": simulator.data_base_url, "api_key": KEY}
            async with recorder.session(**where) as session:
                await session.data.evm.blocks(43114, page_size=10).collect()
        texts.append(text_of(recorder.path))
    first, *lines = (json.loads(line) for line in texts[0].splitlines())
    assert texts[0] == texts[1]
    assert first == {"chainapi_recording": 1, "data_base_url": simulators[0].data_base_url}
    assert [line["url"].partition("?")[2] for line in lines] == [
        "pageSize=10",
        "pageSize=10&pageToken=page-token-1",
        "pageSize=10&pageToken=page-token-2",
    ]
    assert [line["response"]["body"].get("nextPageToken") for line in lines] == [
        "page-token-1",
        "page-token-2",
        None,
    ]
    assert list(lines[0]) == ["method", "url", "seconds", "response"]
    assert lines[0]["response"]["headers"]["ratelimit-remaining"] == "8"


FORMS = {
    "plain": KEY,
    "upper case": KEY.upper(),
    "cut short": KEY[:9],
    "JSON": json.dumps('"' + KEY)[1:-1],
    "URL": quote(KEY, safe=""),
    "base64": b64encode(KEY.encode()).decode(),
    "base64 behind one byte": b64encode(b"u" + KEY.encode()).decode(),
    "credentials": "Basic " + b64encode(b"me:" + KEY.encode()).decode(),
    "HTML": "&lt;" + KEY + "&gt;",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_key_is_in_no_file(form: str, tmp_path: Path) -> None:
    """A key that the service echoes in a body, a header or a URL is masked, in every form."""
    echo = {"message": [f"bad key {form}", {form: form}], "error": form}
    answers = {
        "/v1/json": Response(
            403, {"retry-after": form, "x-request-id": form, "set-cookie": form}, json.dumps(echo).encode()
        ),
        "/v1/text": Response(200, {}, f"<p>\n{form}</p>".encode()),
        "/v1/bytes": Response(200, {}, b"\xff" + form.encode()),
        "/v1/redirect": Response(302, {"location": f"https://{form}.example/{form}"}, b""),
    }
    text = await record(
        tmp_path / "echo.jsonl", answers, *answers, f"/v1/json?key={quote(form)}&plain={form}"
    )
    played = [(await play(tmp_path / "echo.jsonl", url)).body.decode("latin-1") for url in answers]
    decoded = "".join([text, *played]).lower()
    assert KEY[:8] not in decoded
    for before in range(3):
        assert b64encode(b"\0" * before + KEY[:12].encode()).decode()[4:12].lower() not in decoded
    assert "***" in text


async def test_values_of_other_headers_are_masked_and_damage_no_body(tmp_path: Path) -> None:
    """Header values not known as harmless are masked, a short one only as a word of a credential's header."""
    long = [KEY, "secret-two", "application/json"]
    answers = {"/v1/x": body([*long, "7", "17", "k", "key"])}
    headers = {"x-own": "secret-two", "x-tenant": "7", "x-api-key": "k"}
    given = {"accept": "application/json", "authorization": f"Bearer {KEY}", **headers}
    text = await record(tmp_path / "a.jsonl", answers, **given)
    masked = ["***", "***", "application/json", "7", "17", "***", "key"]
    assert json.loads(text.splitlines()[1])["response"]["body"] == masked


@pytest.mark.rule
@pytest.mark.parametrize(("name", "scheme"), [("authorization", "Basic"), ("proxy-authorization", "bearer")])
def test_scheme_of_credentials_is_no_secret(name: str, scheme: str) -> None:
    """The name of a scheme stays, also before a first letter of the credentials; a value alone is masked."""
    secrets = Secrets()
    secrets.learn({name: f"{scheme} a1b2c3d4e5"})
    for row in ("Basic Attention Token", "bearer asset", "Negotiate a price"):
        assert secrets.masked(row) == row
    assert secrets.masked(f"{scheme} a1b2c3d4e5, A1B2C3D4") == f"{scheme} ***, ***"
    secrets.learn({name: scheme})
    assert secrets.masked(f"a {scheme} b") == "a *** b"


@pytest.mark.rule
@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=8, max_size=40).map(
        "k{}z".format
    ),
    st.integers(8),
)
def test_any_key_is_masked(key: str, cut: int) -> None:
    """Whatever the key, no text has its first eight characters, in any notation of JSON, HTML and URLs."""
    secrets = Secrets()
    secrets.learn({"x-api-key": key})
    in_json = json.dumps(key)[1:-1]
    forms = [in_json.replace("/", r"\/"), quote(key), quote(key, safe="").lower(), html.escape(key.upper())]
    assert secrets.masked(" ".join(forms)) == " ".join(["***"] * len(forms))
    masked = secrets.masked(f"a {key[:cut]} {quote(key, safe='')} {json.dumps(key)} {key.swapcase()} b")
    assert key[:8].lower() not in masked.lower().replace("*", "\0")
    assert masked.startswith("a ***")
    assert masked.endswith(" b")


async def test_recorder_shows_no_key(tmp_path: Path) -> None:
    """The repr of a recorder, and of its parts, has no key."""
    recorder = Recorder(tmp_path / "a.jsonl", Scripted({"/v1/x": body(1)}))
    await recorder.send(Request("GET", DATA + "/v1/x", {"x-api-key": KEY}))
    assert KEY not in repr(recorder) + repr(vars(recorder))


# Page tokens


async def test_page_tokens_get_names(tmp_path: Path) -> None:
    """A token is replaced in the field that holds it and in requests, and not in rows."""
    answers = {
        "/v1/a": Response(200, {}, b'{"rows":["2","x"],"nextPageToken" : "2"}'),
        "/v1/hash": body({"rows": [TOKEN], "nextPageToken": TOKEN}),
        "/v1/b": body({"n": "2"}),
    }
    text = await record(
        tmp_path / "a.jsonl", answers, "/v1/a", "/v1/a?pageToken=2&q=2", "/v1/b?pageToken=other", "/v1/hash"
    )
    urls = [json.loads(line)["url"] for line in text.splitlines()[1:]]
    assert [url.partition("?")[2] for url in urls] == [
        "",
        "pageToken=page-token-1&q=2",
        "pageToken=page-token-2",
        "",
    ]
    assert json.loads(text.splitlines()[-1])["response"]["body"]["rows"] == [TOKEN]
    assert (
        await play(tmp_path / "a.jsonl", "/v1/a")
    ).body == b'{"rows":["2","x"],"nextPageToken" : "page-token-1"}'
    assert (await play(tmp_path / "a.jsonl", "/v1/b?pageToken=page-token-2")).body == b'{"n": "2"}'


TOKEN = "6f1c2f3e-8a51-4a34-9e0c-1b2d3c4f5a6b/+"


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({}, json.dumps({"message": [f"pageToken {TOKEN} has expired"]}).encode()),
        ({}, f"<p>{TOKEN}, {quote(TOKEN, safe='')}</p>".encode()),
        ({}, json.dumps({"page": {"nextPageToken": TOKEN[::-1]}}, indent=1).encode()),
        ({"location": f"/v1/b?pageToken={quote(TOKEN[::-1])}", "etag": TOKEN}, b""),
    ],
)
async def test_no_page_token_stays(headers: dict[str, str], content: bytes, tmp_path: Path) -> None:
    """A token that an answer quotes, in an object in the page, or in a header, gets its name, too."""
    url = f"/v1/a?pageToken={quote(TOKEN)}"
    text = await record(tmp_path / "a.jsonl", {"/v1/a": Response(400, headers, content)}, url)
    assert TOKEN[:36] not in text
    assert TOKEN[::-1][2:] not in text
    assert len(re.findall("page-token-[12]", text)) >= 2


async def test_requests_with_a_body_are_matched_by_it(tmp_path: Path) -> None:
    """A walk whose page tokens are in the body of POST is played; another body is not recorded."""
    simulator = Simulator(rows=25, api_key=KEY)

    async def read(session: Session, address: str) -> list[Any]:
        composite = session.metrics.looking_glass.composite_query
        queries = [AllTimeNativeBalanceQuery(id="1", params=DATES)]
        async with session:
            network = session.data.primary_network
            activity = await network.last_activity_v2("mainnet", "p-chain", addresses=[address])
            return [activity, await composite(operator="AND", queries=queries, page_size=10).collect()]

    where = {"data_base_url": simulator.data_base_url, "metrics_base_url": simulator.metrics_base_url}
    async with Recorder(tmp_path / "a.jsonl", simulator.transport()) as recorder:
        recorded = await read(recorder.session(api_key=KEY, **where), "avax1a")
    text = text_of(tmp_path / "a.jsonl")
    assert '"pageToken": "page-token-1"' in text
    player = Player(tmp_path / "a.jsonl")
    assert await read(player.session(), "avax1a") == recorded
    player.assert_all_played()
    with pytest.raises(RecordingError, match=r"POST /data/.* with a body of \d+ bytes is not recorded"):
        await read(player.session(), "avax1b")


# Bodies


BODIES = {
    "exact numbers": b'{"a":0.1234567890123456789,"b":1e3,"c":123456789012345678901234567890}',
    "white space": b'{"a":\n 1}',
    "padded": b" [1] ",
    "text": "ü\n\r".encode(),
    "bytes": b"\xff\x00\x80",
    "empty": b"",
    "no page tokens": b'[{"nextPageToken": null}, {"nextPageToken": 5}, {"nextPageToken": ""}]',
    "broken": b"{",
    "null": b"null",
    "escapes": rb'{"a":"\u00fc\/"}',
    "line separators": '{"a":"\u2028\x85"}'.encode(),
    "half a surrogate": rb'"\ud800"',
}


async def test_bodies_are_played_byte_for_byte(tmp_path: Path) -> None:
    """A body comes back byte for byte, whatever it is."""
    for name, sent in BODIES.items():
        await record(tmp_path / "a.jsonl", {"/v1/x": Response(200, {}, sent)})
        assert (await play(tmp_path / "a.jsonl", "/v1/x")).body == sent, name


# Headers and limits


@pytest.mark.parametrize(
    ("headers", "played"),
    [
        ({"retry-after": "30"}, {"retry-after": "30"}),
        ({"retry-after": "Thu, 01 Jan 1970 00:17:10 GMT"}, {"retry-after": "30"}),
        (
            {"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT", "date": "Thu, 01 Jan 1970 00:00:18 GMT"},
            {"retry-after": "42"},
        ),
        (
            {"x-ratelimit-reset": "1700000000", "date": "Tue, 14 Nov 2023 22:13:00 GMT"},
            {"x-ratelimit-reset": "20"},
        ),
        (
            {"ratelimit-policy": "5;w=60", "ratelimit": '"d";r=5'},
            {"ratelimit-policy": "5;w=60", "ratelimit": '"d";r=5'},
        ),
        ({"retry-after": "soon"}, {"retry-after": "soon"}),
        ({"server": "x", "set-cookie": "a=b", "content-type": "text/plain"}, {"content-type": "text/plain"}),
    ],
)
async def test_headers_are_chosen_and_hold_at_any_time(
    headers: dict[str, str], played: dict[str, str], tmp_path: Path
) -> None:
    """Only some headers are recorded, and points in time as the seconds until them."""
    await record(tmp_path / "a.jsonl", {"/v1/x": Response(429, headers, b"{}")})
    assert (await play(tmp_path / "a.jsonl", "/v1/x")).headers == played


async def test_limits_behave_in_playback(tmp_path: Path) -> None:
    """A refusal is played with its wait, and the session waits as long as at the recording."""
    simulator = Simulator(limit=2, window=60.0, api_key=KEY, rows=50)
    where = {"data_base_url": simulator.data_base_url}

    async def seconds(session: Session) -> float:
        began = Clock().now()
        async with session:
            await session.data.evm.blocks(43114, page_size=10).collect()
        return Clock().now() - began

    async with Recorder(tmp_path / "a.jsonl", simulator.transport()) as recorder:
        recorded = await seconds(recorder.session(api_key=KEY, **where))
    player = Player(tmp_path / "a.jsonl")
    assert await seconds(player.session(**where)) == pytest.approx(recorded, abs=3.0)
    assert recorded > 100.0
    player.assert_all_played()


# Matching


async def test_equal_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    """Equal requests get their answers in order; one more is an error, or repeats the last answer."""
    await record(tmp_path / "a.jsonl", {"/v1/x": [body(1), body(2)]}, "/v1/x?a=1&b=2", "/v1/x?b=2&a=1")
    for repeat in (False, True):
        player = Player(tmp_path / "a.jsonl", repeat=repeat)
        request = Request("GET", DATA + "/v1/x?a=1&b=2")
        assert [(await player.send(request)).body for _ in range(2)] == [b"1", b"2"]
        if repeat:
            assert (await player.send(request)).body == b"2"
            continue
        with pytest.raises(
            RecordingError, match=r"GET /v1/x\?a=1&b=2 was sent more often than it is recorded"
        ):
            await player.send(request)


async def test_request_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    """The error names the request, what is recorded for its path, and how to record it; no page token."""
    await record(tmp_path / "a.jsonl", {"/v1/x": body(1)}, "/v1/x?pageToken=t")
    with pytest.raises(RecordingError) as caught:
        await play(tmp_path / "a.jsonl", "/v1/x?pageToken=5ecret&a=1")
    text = str(caught.value)
    assert text.startswith("GET /v1/x?a=1&pageToken=*** is not recorded in ")
    assert "Recorded for this path: GET /v1/x?pageToken=page-token-1. Record it with" in text
    with pytest.raises(
        RecordingError, match=r"GET /v1/y is not .* neither is anything else for this path\. Record"
    ):
        await play(tmp_path / "a.jsonl", "/v1/y")


async def test_session_raises_the_error_at_once(tmp_path: Path) -> None:
    """A session passes the error on, without a retry or a wait."""
    await record(tmp_path / "a.jsonl", {"/v1/x": body(1)})
    async with Player(tmp_path / "a.jsonl").session(**WHERE) as session:
        with pytest.raises(RecordingError, match="GET /v1/chains is not"):
            await session.data.get("/v1/chains")
        with pytest.raises(RecordingError, match="GET /v1/chains/43114/blocks"):
            await session.data.evm.blocks(43114).collect()
    assert Clock().now() == 0.0


async def test_unplayed_exchanges_are_found(tmp_path: Path) -> None:
    """assert_all_played fails with the requests that were not sent."""
    urls = [f"/v1/x?n={number}" for number in range(7)]
    await record(tmp_path / "a.jsonl", {"/v1/x": body(1)}, *urls)
    player = Player(tmp_path / "a.jsonl")
    await player.send(Request("GET", DATA + urls[0]))
    with pytest.raises(
        AssertionError, match=r"6 recorded requests of .* were not sent:\n  GET /v1/x\?n=1\n(.*\n){4}  \.\.\."
    ):
        player.assert_all_played()
    assert "6 requests not played yet" in repr(player)


# Recording


async def test_failed_block_keeps_the_old_file(tmp_path: Path) -> None:
    """An exception in the block saves nothing and keeps the old file; a broken connection leaves no line."""
    path = tmp_path / "a.jsonl"
    before = await record(path, {"/v1/x": body(1)})

    async def fail() -> None:
        async with Recorder(path, Scripted({"/v1/x": body(2)})) as recorder:
            await recorder.send(Request("GET", DATA + "/v1/x"))
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert (text_of(path), names_in(tmp_path)) == (before, ["a.jsonl"])
    broken = await record(path, {"/v1/x": APIConnectionError("reset"), "/v1/y": body(1)})
    assert [json.loads(line)["url"] for line in broken.splitlines()[1:]] == [DATA + "/v1/y"]


async def test_concurrent_requests_are_recorded_in_the_order_of_sending(tmp_path: Path) -> None:
    """The order of the lines is that of sending, with the seconds after the first request."""
    simulator = Simulator(faults=[Fault(at=1, slow=5.0)], api_key=KEY)
    headers = {"x-data-api-key": KEY}
    recorder = Recorder(tmp_path / "a.jsonl", simulator.transport())
    async with recorder, asyncio.TaskGroup() as group:
        for number in (1, 2):
            url = f"{simulator.data_base_url}/v1/chains/43114?n={number}"
            group.create_task(recorder.send(Request("GET", url, headers)))
            await asyncio.sleep(1.5)
    lines = [json.loads(line) for line in text_of(recorder.path).splitlines()[1:]]
    assert [(line["url"][-1], line["seconds"]) for line in lines] == [("1", 0.0), ("2", 1.5)]


@pytest.mark.adapter
@pytest.mark.real_time
async def test_recorder_has_connections_of_its_own(tmp_path: Path) -> None:
    """A recorder without a transport uses aiohttp, and its session closes the connections."""
    async with Simulator(api_key=KEY) as simulator:
        recorder = Recorder(tmp_path / "a.jsonl")
        for _ in range(2):  # it connects again after a close
            async with recorder.session(data_base_url=simulator.data_base_url, api_key=KEY) as session:
                await session.data.get("/v1/chains/43114")
            with pytest.raises(SessionClosedError):
                await session.data.get("/v1/chains/43114")
            assert recorder._own is None
        recorder.save()
        assert len(text_of(recorder.path).splitlines()) == 3


async def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A target that cannot be written raises RecordingError with its path."""
    (tmp_path / "a").write_text("")
    with pytest.raises(RecordingError, match=r"cannot write the recording .*a.jsonl: "):
        Recorder(tmp_path / "a" / "a.jsonl").save()


# Files


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the recording .*: No such file.*--chainapi-record=once"),
        (b"", "line 1 of .* is not one of a recording"),
        (b"[]", "line 1 of"),
        (b"{}", "line 1 of"),
        (b"\xff", "line 1 of"),
        (b'{"chainapi_recording": 2}', "has another format"),
        (b'{"chainapi_recording": 1}\n{"method": "GET"}', "line 2 of .* missing required field"),
        (b'{"chainapi_recording": 1}\n{', "line 2 of"),
    ],
)
def test_other_files_are_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    """A file that is no recording raises RecordingError with its line and the remedy."""
    if content is not None:
        (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(RecordingError, match=said):
        Player(tmp_path / "a.jsonl")


async def test_player_uses_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Playback needs no key, and does not take that of the environment; a provider names the addresses."""
    sent = list[Request]()

    class Watched(Player):
        async def send(self, request: Request) -> Response:
            sent.append(request)
            return await super().send(request)

    monkeypatch.setenv("CHAINAPI_API_KEY", KEY)
    await record(
        tmp_path / "a.jsonl", {"/v1/x": [body({"a": 1}), Response(429, {}, b"{}")]}, "/v1/x", "/v1/x"
    )
    async with Watched(tmp_path / "a.jsonl").session(provider=Provider.PUBLIC, max_attempts=1) as session:
        assert await session.data.get("/v1/x") == {"a": 1}
        with pytest.raises(RateLimitedError):
            await session.data.get("/v1/x")
    assert {request.headers["x-glacier-api-key"] for request in sent} == {"recorded"}


async def test_cached_calls_and_writes_are_played(tmp_path: Path) -> None:
    """A program with cached walks, coalesced calls and a write sends the same requests in playback."""
    simulator = Simulator(rows=25, api_key=KEY, latency=0.1)
    file, reach = tmp_path / "a.jsonl", simulator.arguments()

    async def work(session: Session) -> list[Any]:
        view = session.with_options(cache=Cache(3600.0))
        walks = [await view.data.evm.blocks(43114, page_size=10).collect() for _ in range(2)]
        chains = await asyncio.gather(*(view.data.chain(43114) for _ in range(3)))
        await session.data.nfts.reindex(43114, "0x71C7656EC7ab88b098defB751B7401B5f6d8976F", "1")
        return [*walks, *chains]

    async with Recorder(file, reach.pop("transport")) as recorder, recorder.session(**reach) as session:
        recorded = await work(session)
    assert simulator.stats.requests == 5  # three pages, the chain, the write
    player = Player(file)
    async with player.session() as session:
        assert await work(session) == recorded
    player.assert_all_played()
