"""The FastAPI integration: lifespan, dependency, errors, streams, quota and health."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, WebSocket
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from chainapi import Checkpoint, Session, SessionView
from chainapi.contrib import starlette
from chainapi.contrib.fastapi import (
    ResumeDep,
    SessionDep,
    get_session,
    lifespan,
    ndjson,
    server_sent_events,
    view,
)
from chainapi.errors import ConfigurationError, NotFoundError
from chainapi.events import Event, ResponseReceived
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from tests.contrib.applications import application, visited
from tests.contrib.asgi import Visit, events, lines
from tests.raw_server import settle

CHAIN = 43114
InteractiveDep = Annotated[SessionView, Depends(view(max_waiting=1, tag="interactive"))]


async def test_lifespan_opens_and_closes_one_session() -> None:
    """The session lives as long as the application, calls the user's listener, and its rows are JSON."""
    seen: list[Event] = []
    app = application(Simulator(), on_event=seen.append)
    async with visited(app) as client:
        session = app.state.chainapi
        points = await client.get(f"/points/{CHAIN}?limit=2")
        assert (await client.get("/internal/health")).json()["session"] == "open"
    assert points.json()[0].keys() == {"timestamp", "value"}
    assert [event.status for event in seen if isinstance(event, ResponseReceived)] == [200]
    assert session.connection.closed


async def test_lifespan_inside_another_one() -> None:
    """A lifespan of your own enters that of chainapi."""
    simulator = Simulator(points=3)
    opened = lifespan(metrics_base_url=simulator.metrics_base_url, transport=simulator.transport())

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with opened(app) as state:
            yield {**state, "own": "own"}

    app = FastAPI(lifespan=own)

    @app.get("/tps/{chain}")
    async def tps(chain: int, session: SessionDep) -> Response:
        return ndjson(session.metrics.avg_tps(chain))

    async with visited(app) as client:
        assert len(lines((await client.get(f"/tps/{CHAIN}")).content)) == 3


async def test_mounted_application_has_the_session_of_the_outer_one() -> None:
    """A mounted application uses the session of the application around it."""
    simulator = Simulator()
    outer = application(simulator)
    outer.mount("/mounted", application(simulator))
    async with outer.router.lifespan_context(outer) as state:

        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            await outer({**scope, "state": dict(state or {})}, receive, send)  # as a server does

        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://app.invalid") as client:
            for path in (f"/mounted/chain/{CHAIN}", "/mounted/internal/health"):
                assert (await client.get(path)).status_code == 200


async def test_wrong_settings_stop_the_application_at_its_start() -> None:
    """A wrong argument is found when the application starts, not at the first request."""
    wrong: list[dict[str, Any]] = [{"timeout": -1.0}, {"on_event": "print"}]
    for arguments in wrong:
        app = FastAPI(lifespan=lifespan(**arguments))
        with pytest.raises(ConfigurationError, match=next(iter(arguments))):
            async with app.router.lifespan_context(app):
                pass


async def test_view_is_made_once_for_a_session() -> None:
    """The calls of all requests count for one `max_waiting`; each application has a view of its own."""

    def made() -> FastAPI:
        app = application(Simulator(limit=2, window=60.0))

        @app.get("/name/{chain}")
        async def name(chain: int, session: InteractiveDep) -> str | None:
            return (await session.data.chain(chain)).chain_name

        return app

    for _ in range(2):
        async with visited(made()) as client:
            await client.get(f"/name/{CHAIN}")
            calls = await asyncio.gather(*(client.get(f"/name/{CHAIN}") for _ in range(6)))
        assert sorted(call.status_code for call in calls) == [200, 200, 503, 503, 503, 503]


async def test_view_is_of_the_session_that_a_test_puts_in_place() -> None:
    """A view is one of the session that the dependency returns, overridden or not."""
    simulator = Simulator()
    app = application(simulator)

    @app.get("/tag")
    async def tag(session: InteractiveDep) -> str:
        await session.data.chain(CHAIN)
        return session.quota["data"].spenders[0].tag

    async with Session(**simulator.arguments()) as session:
        app.dependency_overrides[get_session] = lambda: session
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
            assert (await client.get("/tag")).json() == "interactive"


def test_wrong_options_of_a_view_are_found_where_it_is_made() -> None:
    """An unknown or invalid option is an error of the import, not of the first request."""
    with pytest.raises(ConfigurationError, match="max_wait"):
        view(max_wait=-1.0)
    with pytest.raises(ConfigurationError, match="max_waits"):
        view(max_waits=1.0)  # type: ignore[arg-type]


async def test_limit_of_a_stream() -> None:
    """A resumed stream that has sent all rows of its limit is answered with 204, a wrong limit with 422."""
    app = application(Simulator(points=350))

    @app.get("/newest")
    async def newest(session: SessionDep, resume: ResumeDep, limit: int) -> Response:
        return server_sent_events(session.metrics.avg_tps(CHAIN, resume=resume), limit=limit)

    @app.get("/newest.ndjson")
    async def newest_lines(session: SessionDep, limit: int) -> Response:
        return ndjson(session.metrics.avg_tps(CHAIN), limit=limit)

    async with visited(app) as client:
        assert len(lines((await client.get("/newest.ndjson?limit=130")).content)) == 130
        sent = events((await client.get("/newest?limit=130")).content)
        assert [len(data) for name, data, _ in sent if name == "rows"] == [100, 30]
        for (_, _, position), status in zip(sent, (200, 204, 204), strict=True):
            again = await client.get("/newest?limit=130", headers={"last-event-id": position or ""})
            assert again.status_code == status
        for path in ("/newest?limit=0", "/newest.ndjson?limit=0"):
            assert (await client.get(path)).status_code == 422


async def test_application_without_a_session_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Without the lifespan a request is a 500, and the log names the remedy."""
    app = application(Simulator())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app.invalid") as client:
        answer = await client.get(f"/chain/{CHAIN}")
        health = await client.get("/internal/health")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:chainapi:configuration")
    assert "pass lifespan=lifespan(...)" in caplog.text
    assert (health.status_code, health.json()["session"]) == (503, "closed")


async def test_session_made_before_a_fork_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that inherited its session answers with 500, and the log says what to do."""
    async with visited(application(Simulator())) as client:
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: -1)
            answers = [
                await client.get(path) for path in (f"/chain/{CHAIN}", f"/tps/{CHAIN}", "/internal/quota")
            ]
    assert {(answer.status_code, answer.json()["type"]) for answer in answers} == {
        (500, "urn:chainapi:configuration")
    }
    assert caplog.text.count("made before a fork") == 3


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/tps/-1", 422, "invalid-argument"),
        ("/tps/999", 404, "not-found"),
        ("/tps/999/events", 404, "not-found"),
        ("/points/43114?limit=0", 422, "invalid-argument"),
        ("/points/999", 404, "not-found"),
        ("/tps/43114?resume=nonsense", 422, "invalid-checkpoint"),
    ],
)
async def test_mistakes_of_the_client_are_named(path: str, status: int, kind: str) -> None:
    """A wrong parameter is a 422, an unknown chain a 404, streams included."""
    async with visited(application(Simulator())) as client:
        answer = await client.get(path)
    assert answer.status_code == answer.json()["status"] == status
    assert answer.json()["type"] == f"urn:chainapi:{kind}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [f"/chain/{CHAIN}", f"/blocks/{CHAIN}/events"])
async def test_refused_key_is_a_bad_gateway_without_a_secret(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that the service refuses is the backend's fault: a 502, the reason only in the log."""
    async with visited(application(Simulator(), api_key="wrong-and-secret")) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["type"]) == (502, "urn:chainapi:upstream")
    assert not {"401", "key", "secret"} & set(answer.text.replace('"', " ").split())
    assert "AuthenticationError" in caplog.text
    assert "wrong-and-secret" not in caplog.text + answer.text


@pytest.mark.parametrize(
    ("fault", "options", "status", "kind"),
    [
        (Fault(every=1, status=500), {"max_attempts": 1}, 502, "upstream"),
        (Fault(every=1, status=503), {"max_attempts": 2}, 502, "upstream"),
        (Fault(every=1, disconnect=True), {"max_attempts": 1}, 502, "upstream"),
        (Fault(every=1, stall=True), {"max_attempts": 1}, 504, "upstream-timeout"),
        (Fault(every=1, stall=True), {"deadline": 8.0}, 504, "deadline"),
        (Fault(every=1, status=400, messages=("no such option",)), {}, 422, "refused-argument"),
        (Fault(every=1, status=429), {"max_attempts": 1}, 503, "quota"),
    ],
)
@pytest.mark.parametrize("path", [f"/chain/{CHAIN}", f"/tps/{CHAIN}", f"/tps/{CHAIN}/events"])
async def test_faults_of_the_services_become_statuses(
    path: str, fault: Fault, options: dict[str, float], status: int, kind: str
) -> None:
    """Before the first byte each fault has its status, for plain answers and for streams."""
    async with visited(application(Simulator(faults=(fault,)), **options)) as client:
        answer = await client.get(path)
    if fault.stall and path.endswith("events"):  # the heartbeat began the response
        assert answer.status_code == 200
        name, problem, _ = events(answer.content)[-1]
        assert (name, problem["status"], problem["type"]) == ("problem", status, f"urn:chainapi:{kind}")
    else:
        assert (answer.status_code, answer.json()["type"]) == (status, f"urn:chainapi:{kind}")


async def test_retry_after_holds() -> None:
    """Before the promised time a request is refused, and after it one succeeds."""
    simulator = Simulator(limit=2, window=60)
    async with visited(application(simulator, max_wait=1.0)) as client:
        for _ in range(2):
            assert (await client.get(f"/chain/{CHAIN}")).status_code == 200
        refused = await client.get(f"/chain/{CHAIN}")
        assert refused.status_code == 503
        wait = int(refused.headers["retry-after"])
        assert 50 <= wait <= 60
        await asyncio.sleep(wait - 10)
        assert (await client.get(f"/chain/{CHAIN}")).status_code == 503
        await asyncio.sleep(10)
        assert (await client.get(f"/chain/{CHAIN}")).status_code == 200


async def test_group_of_a_task_group_is_answered() -> None:
    """Errors that a task group of a handler raises are answered; a group with others is a 500."""
    app = application(Simulator())

    @app.get("/both")
    async def both(session: SessionDep, broken: bool = False) -> None:
        async def fail() -> None:
            raise KeyError("broken") if broken else NotFoundError()

        async with asyncio.TaskGroup() as group:
            group.create_task(session.metrics.avg_tps(999).collect())
            group.create_task(fail())

    async with visited(app) as client:
        assert (await client.get("/both")).status_code == 404
        with pytest.raises(ExceptionGroup):
            await client.get("/both?broken=true")


@pytest.mark.parametrize(("chain", "code", "reason"), [(CHAIN, 1013, "quota"), (999, 1011, "not-found")])
async def test_websocket_is_closed_with_the_kind_of_problem(chain: int, code: int, reason: str) -> None:
    """An error in a WebSocket handler closes it: try again later, or a failure."""
    app = application(Simulator(metrics_limit=0 if chain == CHAIN else None), max_attempts=1)

    @app.websocket("/ws/{chain}")
    async def stream(websocket: WebSocket, chain: int, session: SessionDep) -> None:
        await websocket.accept()
        async for point in session.metrics.avg_tps(chain).items():
            await websocket.send_json(point.value)

    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    path = f"/ws/{chain}"
    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "headers": [], "query_string": b""}
    async with visited(app):
        await app({**scope, "state": {}, "subprotocols": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
    assert (sent[-1]["code"], sent[-1]["reason"]) == (code, reason)


async def test_script_of_another_origin_can_read_the_wait() -> None:
    """With CORS, the problem and its Retry-After reach a script of another origin."""
    app = application(Simulator(limit=0), max_wait=1.0)
    app.add_middleware(CORSMiddleware, allow_origins=["https://page.invalid"])
    async with visited(app) as client:
        refused = await client.get(f"/chain/{CHAIN}", headers={"origin": "https://page.invalid"})
    assert refused.status_code == 503
    assert refused.headers["access-control-allow-origin"] == "https://page.invalid"
    assert refused.headers["access-control-expose-headers"] == "retry-after"


async def test_browser_that_connects_again_continues() -> None:
    """Last-Event-ID resumes at the event, and the end is answered with 204."""
    simulator = Simulator(points=350)
    async with visited(application(simulator)) as client:
        path = f"/tps/{CHAIN}/events"
        every = events((await client.get(path)).content)
        second = await client.get(path, headers={"last-event-id": every[1][2] or ""})
        last = await client.get(path, headers={"last-event-id": every[-1][2] or ""})
    rest = [row for name, data, _ in events(second.content) if name == "rows" for row in data]
    assert rest == simulator.rows_of(f"/v1/avg_tps/{CHAIN}")[200:]
    assert (last.status_code, last.content) == (204, b"")


async def test_checkpoint_of_another_list_is_refused() -> None:
    """A checkpoint that belongs to another query is the client's mistake."""
    async with visited(application(Simulator())) as client:
        every = events((await client.get(f"/tps/{CHAIN}/events")).content)
        answer = await client.get("/tps/43113/events", headers={"last-event-id": every[0][2] or ""})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:chainapi:invalid-checkpoint")


async def test_checkpoint_can_be_a_query_parameter() -> None:
    """A client without Last-Event-ID sends the checkpoint of the error record as ``resume``."""
    simulator = Simulator(points=350, faults=(Fault(after_page=1, status=500, times=1),))
    async with visited(application(simulator, max_attempts=1)) as client:
        *rows, last = lines((await client.get(f"/tps/{CHAIN}")).content)
        rest = await client.get(f"/tps/{CHAIN}", params={"resume": last["error"]["checkpoint"]})
    assert rows + lines(rest.content) == simulator.rows_of(f"/v1/avg_tps/{CHAIN}")


async def test_quota_page_sends_nothing_upstream() -> None:
    """Quota and health are answered from memory, before the first request too."""
    simulator = Simulator(limit=100, window=60)
    async with visited(application(simulator)) as client:
        empty = (await client.get("/internal/quota")).json()
        await client.get("/internal/health")
        assert simulator.stats.requests == 0
        await client.get(f"/chain/{CHAIN}")
        answer = await client.get("/internal/quota")
    assert empty["data"]["remaining"] is None
    assert (answer.json()["data"]["limit"], answer.json()["data"]["remaining"]) == (100, 99)
    assert answer.json().keys() == {"metrics", "data"}
    assert answer.headers["cache-control"] == "no-store"


async def test_health_shows_the_last_answers() -> None:
    """Health has status or fault and the age of the last answer of each service."""
    simulator = Simulator(faults=(Fault(at=2, disconnect=True),))
    async with visited(application(simulator, max_attempts=1)) as client:
        assert (await client.get("/internal/health")).json() == {"session": "open", "last_answers": {}}
        await client.get(f"/chain/{CHAIN}")
        await client.get(f"/tps/{CHAIN}")
        await asyncio.sleep(30)
        answers = (await client.get("/internal/health")).json()["last_answers"]
    assert (answers["data"]["status"], answers["data"]["fault"]) == (200, None)
    assert answers["data"]["seconds_ago"] == pytest.approx(30, abs=1)
    assert answers["metrics"]["status"] is None
    assert "closed the connection" in answers["metrics"]["fault"]


@pytest.mark.parametrize("path", [f"/tps/{CHAIN}", f"/tps/{CHAIN}/events"])
@pytest.mark.parametrize("pieces", [0, 2])
async def test_client_that_leaves_ends_the_upstream_work(path: str, pieces: int) -> None:
    """After a client has left, nothing is sent for it, wherever the walk was."""
    simulator = Simulator(points=1_000, latency=20.0)
    app = application(simulator)
    async with visited(app):
        async with Visit(app, path) as visit:
            for _ in range(pieces):
                await visit.piece()
            await asyncio.sleep(1)
        sent = simulator.stats.requests
        await asyncio.sleep(1_000)
        assert simulator.stats.requests == sent
        assert app.state.chainapi.quota["metrics"].in_flight == 0
    assert len(asyncio.all_tasks()) == 1


@settings(max_examples=4)
@given(
    clients=st.lists(
        st.tuples(
            st.sampled_from(["/tps/43114", "/tps/43114/events", "/blocks/43114/events"]),
            st.floats(0, 200),  # seconds until it comes
            st.floats(0, 200),  # seconds that it stays
        ),
        min_size=1,
        max_size=12,
    ),
    latency=st.sampled_from([0.0, 0.3, 8.0]),
)
def test_clients_that_come_and_go_leave_nothing_behind(
    clients: list[tuple[str, float, float]], latency: float
) -> None:
    """Whenever clients leave, no request, no task and no place in a queue remains for them."""

    async def visit(app: FastAPI, path: str, comes: float, stays: float) -> None:
        await asyncio.sleep(comes)
        async with Visit(app, path):
            await asyncio.sleep(stays)

    async def run() -> None:
        simulator = Simulator(points=2_000, rows=2_000, latency=latency, limit=5, metrics_limit=5)
        app = application(simulator)
        async with visited(app):
            await asyncio.gather(*(visit(app, *client) for client in clients))
            sent = simulator.stats.requests
            assert len(asyncio.all_tasks()) == 1
            for quota in app.state.chainapi.quota.values():
                assert (quota.in_flight, quota.waiting) == (0, 0)
            await asyncio.sleep(1_000)
            assert simulator.stats.requests == sent
            assert simulator.stats.sent_while_stopped == 0

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


async def test_no_answer_and_no_log_has_the_key(caplog: pytest.LogCaptureFixture) -> None:
    """The API key is in no response, be it rows, an error or the quota, and in no line of the log."""
    faults = (Fault(route="data.evm.blocks", after_page=1, status=500, messages=("simulated-key",)),)
    simulator = Simulator(faults=faults)
    with caplog.at_level(logging.DEBUG, "chainapi"):
        async with visited(application(simulator, max_attempts=1)) as client:
            paths = ("/tps/43114", "/tps/999", "/chain/1", "/chain/x", f"/blocks/{CHAIN}/events")
            pages = ("/internal/quota", "/internal/health")
            answers = [await client.get(path) for path in (*paths, *pages)]
    assert {answer.status_code for answer in answers} == {200, 404, 422}
    text = caplog.text + "".join(f"{answer.headers}{answer.text}" for answer in answers)
    assert simulator.api_key == "simulated-key"
    assert simulator.api_key not in text


@pytest.mark.parametrize("pieces", [0, 1])
async def test_middleware_of_starlette_does_not_hide_that_a_client_left(pieces: int) -> None:
    """Behind a BaseHTTPMiddleware a client that leaves ends the work too, without an error."""
    simulator = Simulator(points=1_000, latency=20.0)
    app = application(simulator)

    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    async with visited(app):
        async with Visit(app, f"/tps/{CHAIN}") as visit:
            for _ in range(pieces):
                await visit.piece()
            await asyncio.sleep(1)
        sent = simulator.stats.requests
        await asyncio.sleep(1_000)
        assert simulator.stats.requests == sent


async def test_middleware_of_starlette_knows_a_response_that_begins_as_the_client_leaves() -> None:
    """Behind a BaseHTTPMiddleware a client that leaves while the response begins is no error either."""

    async def rows(turns: int) -> AsyncIterator[dict[str, int]]:
        await asyncio.sleep(1)
        await settle(turns)
        yield {"row": 1}

    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    for turns in range(6):
        visit = Visit(BaseHTTPMiddleware(ndjson(rows(turns)), dispatch=pass_on), "/rows")
        await asyncio.sleep(1)
        await visit.leave()


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("make", [ndjson, server_sent_events])
async def test_client_that_leaves_amid_a_piece_ends_a_generator(
    make: Callable[..., Response], cancelled: bool
) -> None:
    """A user's generator ends, however long that takes, when the client leaves while a piece is sent.

    So it does if the response is cancelled before the server gave that piece up.
    """
    ended = asyncio.Event()

    async def rows() -> AsyncIterator[dict[str, int]]:
        try:
            while True:
                yield {"row": 1}
        finally:
            await asyncio.sleep(5)
            ended.set()

    async def receive() -> Message:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message.get("body"):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(2)

    scope: Scope = {"type": "http", "method": "GET", "path": "/rows"}
    response = asyncio.create_task(make(rows())(scope, receive, send))
    await asyncio.wait([response], timeout=11)
    assert not response.done()
    if cancelled:
        response.cancel()
    await asyncio.wait([response])
    assert response.cancelled() == cancelled
    assert ended.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_server_that_cannot_send_ends_the_work_in_silence() -> None:
    """A server may raise OSError in place of a disconnect; that is no error of the application."""
    simulator = Simulator(points=1_000)
    sends = 0

    async with Session(
        metrics_base_url=simulator.metrics_base_url, transport=simulator.transport()
    ) as session:
        response = ndjson(session.metrics.avg_tps(CHAIN))

        async def receive() -> Message:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(_: object) -> None:
            nonlocal sends
            sends += 1
            if sends == 3:
                raise OSError("gone")

        await response({"type": "http", "method": "GET", "path": "/"}, receive, send)
    assert (sends, simulator.stats.requests) == (3, 2)


async def test_head_request_gets_headers_only() -> None:
    """HEAD fetches the first page, for the status, and no more."""
    simulator = Simulator(points=1_000)
    app = application(simulator)

    @app.head("/tps/{chain}")
    async def head(chain: int, session: SessionDep) -> Response:
        return ndjson(session.metrics.avg_tps(chain))

    async with visited(app) as client:
        answer = await client.head(f"/tps/{CHAIN}")
    assert (answer.status_code, answer.content, simulator.stats.requests) == (200, b"", 1)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(ndjson, "application/x-ndjson"), (server_sent_events, "text/event-stream; charset=utf-8")],
)
async def test_headers_of_a_stream_are_those_of_any_response(
    make: Callable[..., Response], kind: str
) -> None:
    """A handler or its decorator reads and changes the headers of a stream, and sets cookies."""
    app = application(Simulator(points=3))

    @app.get("/marked")
    async def marked(session: SessionDep) -> Response:
        response = make(session.metrics.avg_tps(CHAIN))
        assert (response.media_type, response.headers["content-type"]) == (kind.partition(";")[0], kind)
        response.headers["cache-control"] = "private"
        response.headers["x-mark"] = "1"
        response.set_cookie("seen", "yes")
        return response

    async with visited(app) as client:
        answer = await client.get("/marked")
    assert (answer.status_code, answer.cookies["seen"]) == (200, "yes")
    names = ("content-type", "cache-control", "x-accel-buffering", "x-mark", "content-length")
    assert [answer.headers.get(name) for name in names] == [kind, "private", "no", "1", None]


async def test_background_task_runs_after_a_stream() -> None:
    """Background tasks of a handler run after its stream has ended."""
    simulator, ran = Simulator(points=3), asyncio.Event()
    app = application(simulator)

    async def run() -> None:
        ran.set()

    @app.get("/and-then")
    async def and_then(session: SessionDep, tasks: BackgroundTasks) -> Response:
        tasks.add_task(run)
        return ndjson(session.metrics.avg_tps(CHAIN))

    async with visited(app) as client:
        await client.get("/and-then")
    assert ran.is_set()


@pytest.mark.parametrize(
    ("module", "package"), [("fastapi", "fastapi"), ("starlette", "starlette.applications")]
)
def test_without_the_extra(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the framework the import names the extra."""
    for name in ("fastapi", "starlette"):
        monkeypatch.delitem(sys.modules, f"chainapi.contrib.{name}")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"needs {module}.*pip install 'chainapi\[fastapi\]'"):
        importlib.import_module(f"chainapi.contrib.{module}")


async def test_starlette_alone() -> None:
    """The same parts work in a Starlette application without FastAPI."""
    simulator = Simulator(points=3)

    async def tps(request: Request) -> Response:
        session = starlette.get_session(request)
        resume = starlette.last_checkpoint(request)
        return starlette.ndjson(session.metrics.avg_tps(int(request.path_params["chain"]), resume=resume))

    app = Starlette(
        routes=[Route("/tps/{chain}", tps), *starlette.routes()],
        lifespan=starlette.lifespan(
            metrics_base_url=simulator.metrics_base_url, transport=simulator.transport()
        ),
    )
    starlette.add_exception_handlers(app)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app.invalid") as client,
    ):
        assert len(lines((await client.get(f"/tps/{CHAIN}")).content)) == 3
        assert (await client.get("/tps/999")).status_code == 404
        assert (await client.get("/quota")).json()["metrics"]["in_flight"] == 0
        assert (await client.get("/health")).json()["session"] == "open"


async def test_checkpoint_in_a_header_is_checked_before_the_service_is_asked() -> None:
    """A checkpoint with a token that no list gave costs the service nothing but its own refusal."""
    simulator = Simulator(points=350)
    async with visited(application(simulator)) as client:
        every = events((await client.get(f"/tps/{CHAIN}/events")).content)
        position = Checkpoint.loads(every[0][2] or "")
        sent = simulator.stats.requests
        damaged = position.dumps().replace('"pages":', '"pages":-')
        answer = await client.get(f"/tps/{CHAIN}", params={"resume": damaged})
    assert answer.status_code == 422
    assert simulator.stats.requests == sent
