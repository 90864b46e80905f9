"""Metrics of sessions: instruments of OpenTelemetry, fed by events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from threading import Lock
from typing import TypeAlias
from urllib.parse import urlsplit
from weakref import WeakSet

from attrs import frozen
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from chainapi._http.telemetry import Observed
from chainapi._limits.view import QuotaSnapshot

__all__ = ["METRICS", "Attributes", "Instrument", "Metrics", "chosen", "server_of"]

Attributes: TypeAlias = Mapping[str, str | int | None]

PATIENCE = 0.2  # seconds in which a loop returns its quotas to the thread of an exporter

# Advised by the semantic conventions for HTTP; a wait or a call with waits may take minutes.
_REQUEST = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_CALL = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)


@frozen
class Instrument:
    """Metric: name, kind, unit in UCUM, meaning, and names of its attributes.

    A histogram has the bounds of its buckets.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    attributes: tuple[str, ...]
    bounds: tuple[float, ...] = ()


_SERVICE = ("chainapi.service",)
_SERVER = (*_SERVICE, "server.address", "server.port")
_METHOD = (*_SERVER, "http.request.method", "url.scheme", "url.template")

METRICS: tuple[Instrument, ...] = (
    Instrument(
        "http.client.request.duration",
        "histogram",
        "s",
        "Duration of one request; its count is the number of requests by status.",
        (*_METHOD, "http.response.status_code", "error.type"),
        _REQUEST,
    ),
    Instrument(
        "chainapi.call.duration",
        "histogram",
        "s",
        "Duration of one call, with its waits, attempts and retries.",
        (*_METHOD, "error.type"),
        _CALL,
    ),
    Instrument(
        "chainapi.quota.wait.duration",
        "histogram",
        "s",
        "Wait of a call for its turn to send a request; a wait of less than 10 ms does not count.",
        (*_SERVICE, "chainapi.wait.reason"),
        _CALL,
    ),
    Instrument(
        "chainapi.retries",
        "counter",
        "{retry}",
        "Requests that were repeated after a fault.",
        (*_SERVICE, "error.type"),
    ),
    Instrument(
        "chainapi.refusals", "counter", "{refusal}", "Responses with status 429.", (*_SERVICE, "url.template")
    ),
    Instrument(
        "chainapi.restarts", "counter", "{restart}", "Streams that restarted at their first page.", _SERVICE
    ),
    Instrument(
        "chainapi.cache.served",
        "counter",
        "{response}",
        "Calls that a cached response answered, without a request.",
        (*_SERVICE, "chainapi.cache.use"),
    ),
    Instrument(
        "chainapi.quota.remaining",
        "gauge",
        "{unit}",
        "Units that are left of the quota; with several keys, of the quota with the fewest.",
        _SERVER,
    ),
    Instrument("chainapi.quota.limit", "gauge", "{unit}", "Units of that quota in one window.", _SERVER),
    Instrument("chainapi.quota.waiting", "gauge", "{request}", "Requests that wait for that quota.", _SERVER),
)
REQUESTS, CALLS, WAITS, RETRIES, REFUSALS, RESTARTS, CACHED = METRICS[:7]


def server_of(origin: str) -> Attributes:
    """Return scheme, address and port of an origin as attributes."""
    parts = urlsplit(origin)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"url.scheme": parts.scheme, "server.address": parts.hostname or "", "server.port": port}


def chosen(names: Iterable[str], known: Attributes) -> dict[str, str | int]:
    """Return the attributes that a table names, and that have a value."""
    return {name: value for name in names if (value := known.get(name)) is not None and value != ""}


class Metrics:
    """Instruments of one meter, for all sessions that are observed with it."""

    def __init__(self, meter: Meter) -> None:
        self._record: dict[str, Callable[[float, dict[str, str | int]], None]] = {}
        self._quotas = _Quotas()
        for one in METRICS:
            if one.kind == "histogram":
                histogram = meter.create_histogram(
                    one.name, one.unit, one.meaning, explicit_bucket_boundaries_advisory=one.bounds
                )
                self._record[one.name] = histogram.record
            elif one.kind == "counter":
                self._record[one.name] = meter.create_counter(one.name, one.unit, one.meaning).add
            else:
                callback = partial(self._quotas.observations, one)
                meter.create_observable_gauge(one.name, [callback], one.unit, one.meaning)

    def record(self, instrument: Instrument, value: float, known: Attributes) -> None:
        """Record seconds or a count, with the attributes that the table names."""
        self._record[instrument.name](value, chosen(instrument.attributes, known))

    def observe(self, session: Observed) -> None:
        """Observe the quotas of a session, as long as it lives."""
        self._quotas.add(session)


_Quota: TypeAlias = tuple[str, str, QuotaSnapshot]


class _Quotas:
    """Quotas of the open sessions, read in their event loops."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Observed] = WeakSet()
        self._lock = Lock()  # an exporter reads in a thread of its own

    def add(self, session: Observed) -> None:
        with self._lock:
            self._sessions.add(session)

    def observations(self, gauge: Instrument, _: CallbackOptions) -> Iterable[Observation]:
        """Yield one observation for each server, of its quota with the fewest units."""
        fewest: dict[tuple[str, str], QuotaSnapshot] = {}
        for name, origin, quota in self._read():
            before = fewest.setdefault((name, origin), quota)
            if quota.remaining is not None and (
                before.remaining is None or quota.remaining < before.remaining
            ):
                fewest[name, origin] = quota
        for (name, origin), quota in fewest.items():
            value = getattr(quota, gauge.name.rpartition(".")[2])  # remaining, limit or waiting
            if value is not None:
                known = {"chainapi.service": name, **server_of(origin)}
                yield Observation(value, chosen(gauge.attributes, known))

    def _read(self) -> Iterator[_Quota]:
        with self._lock:
            sessions = list(self._sessions)
        loops: dict[asyncio.AbstractEventLoop, list[Observed]] = {}
        for session in sessions:
            if session.loop is not None:
                loops.setdefault(session.loop, []).append(session)
        for loop, members in loops.items():
            yield from _read_in(loop, members)


def _read_in(loop: asyncio.AbstractEventLoop, sessions: list[Observed]) -> list[_Quota]:
    """Return the quotas of sessions of one loop; none if the loop is busy."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        return [quota for session in sessions for quota in session.quotas()]
    if not loop.is_running():
        return []

    async def read() -> list[_Quota]:
        return [quota for session in sessions for quota in session.quotas()]

    future = asyncio.run_coroutine_threadsafe(read(), loop)
    try:
        return future.result(PATIENCE)
    except TimeoutError:  # the loop is busy, or waits for the exporter to end
        future.cancel()
        return []
