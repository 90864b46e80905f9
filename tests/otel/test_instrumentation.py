"""Instrumentation: sessions by default, and beside the automatic one of aiohttp."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from yarl import URL

from chainapi import Session
from chainapi.errors import ConfigurationError
from chainapi.otel import ChainAPIInstrumentor, OpenTelemetry
from chainapi.simulator import Simulator
from tests.otel.recorded import Recorded
from tests.sessions import simulated


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Return providers, and remove what was instrumented with them."""
    yield Recorded()
    ChainAPIInstrumentor().uninstrument()
    if AioHttpClientInstrumentor().is_instrumented_by_opentelemetry:
        AioHttpClientInstrumentor().uninstrument()


async def test_instrumentor_is_the_default_of_later_sessions(recorded: Recorded) -> None:
    """An instrumented process records the sessions made since, except those that say False."""
    simulator = Simulator()
    before = simulated(simulator)
    ChainAPIInstrumentor().instrument(tracer_provider=recorded.tracers, meter_provider=recorded.meters)
    sessions = {
        "before": before,
        "default": simulated(simulator),
        "off": simulated(simulator, telemetry=False),
    }
    ChainAPIInstrumentor().uninstrument()
    sessions["after"] = simulated(simulator)
    for name, session in sessions.items():
        async with session:
            await session.with_options(tag=name).data.chain(43114)
    calls = recorded.named("chainapi GET")
    assert [(span.attributes or {})["chainapi.tag"] for span in calls] == ["default"]


def test_opentelemetry_finds_the_instrumentor() -> None:
    """The entry point for `opentelemetry-instrument` names the instrumentor."""
    (found,) = entry_points(group="opentelemetry_instrumentor", name="chainapi")
    assert found.load() is ChainAPIInstrumentor


async def test_without_an_sdk_nothing_changes() -> None:
    """With the API package alone, a session works as without telemetry."""
    simulator = Simulator()
    async with simulated(simulator, telemetry=OpenTelemetry()) as session:
        await session.data.chain(43114)
    assert simulator.stats.requests == 1


def test_other_telemetry_is_refused() -> None:
    """A value that is no telemetry is refused, with what to give."""
    for wrong in ("otel", True, print):
        with pytest.raises(ConfigurationError, match=r"OpenTelemetry of chainapi\.otel"):
            Session(metrics_base_url="https://metrics.test", telemetry=wrong)  # type: ignore[arg-type]


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the API package, the error names the extra."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("chainapi.otel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'chainapi\[otel\]'"):
        import_module("chainapi.otel")


async def walk(simulator: Simulator, **options: Any) -> None:
    """Walk two pages over real sockets."""
    async with Session(metrics_base_url=simulator.metrics_base_url, **options) as session:
        assert len(await session.metrics.avg_tps(43114).collect()) == 150


@pytest.mark.real_time
async def test_request_is_recorded_once(recorded: Recorded) -> None:
    """Beside the automatic instrumentation, each request has one span and counts once."""
    AioHttpClientInstrumentor().instrument(tracer_provider=recorded.tracers, meter_provider=recorded.meters)
    async with Simulator(points=150) as simulator:
        await walk(simulator, telemetry=recorded.telemetry)
    assert len(recorded.named("GET")) == 2
    assert all("http.url" not in (span.attributes or {}) for span in recorded.spans)
    assert recorded.values("http.client.duration") == {}


def documented_filter() -> Callable[[URL], str]:
    """Return the `url_filter` of the docs."""
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text("utf-8")
    (code,) = re.findall(r"^def without_page_token.*?(?=^\S)", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"URL": URL}
    exec(code, names)
    found: Callable[[URL], str] = names["without_page_token"]
    return found


@pytest.mark.real_time
async def test_automatic_instrumentation_is_redacted(recorded: Recorded) -> None:
    """The `url_filter` of the docs keeps page tokens out of the spans of the automatic instrumentation."""
    urls: dict[bool, list[str]] = {}
    for redacted in (False, True):
        AioHttpClientInstrumentor().instrument(
            tracer_provider=recorded.tracers,
            meter_provider=recorded.meters,
            url_filter=documented_filter() if redacted else None,
        )
        before = len(recorded.spans)
        async with Simulator(points=150) as simulator:
            await walk(simulator)
        AioHttpClientInstrumentor().uninstrument()
        urls[redacted] = [str((span.attributes or {})["http.url"]) for span in recorded.spans[before:]]
    assert urls[True][1].endswith("?pageToken=REDACTED")
    assert len(URL(urls[False][1]).query["pageToken"]) > 20, "else the filter is no longer needed"
    assert "pageToken" not in urls[True][0]
