"""Digests of simulated answers: `python -m tests.simulator.digests`.

The command writes `digests.json` beside this file. Run it after a change of routes, models or factories that
is meant to change answers; the diff of the file names the routes whose answers changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from chainapi import ROUTES, WRITES
from chainapi.simulator import Anomalies, Fault, Settings, World
from chainapi.transport import Request
from tests.simulator.conform import questions, requests

__all__ = ["FILE", "digests", "main", "of_posted", "of_route", "of_setting"]

FILE = Path(__file__).with_name("digests.json")
SEEDS = (3,)
PAGES = 3
SETTINGS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "growth": lambda: {"grow_every": 2.0},
    "limits": lambda: {"limit": 150, "weighted": True, "metrics_limit": 20},
    "faults": lambda: {
        "faults": [
            Fault(route="data.evm.*", every=3, status=503, messages=["later"]),
            Fault(route="/v1/networks/*/blockchains/{id}/utxos", at=2, truncate=True),
            Fault(after_page=2, every=4, status=422),
            Fault(route="metrics.*", every=5, slow=2.0),
        ]
    },
    "ties": lambda: {"anomalies": Anomalies(ties=2, equal=3, replays=2)},
    "order": lambda: {"anomalies": Anomalies(order="shuffled", moved=0.3)},
    "ascending": lambda: {"anomalies": Anomalies(order="ascending", paging="offset", repeat_pages=2)},
    "swapped": lambda: {"anomalies": Anomalies(order="swapped", changing="answer")},
    "malformed": lambda: {"anomalies": Anomalies(malformed=0.5, unknown_values=0.5, changing="pass")},
    "unknown": lambda: {"anomalies": Anomalies(unknown_fields=0.5, unknown_values=1.0)},
}


class _Digest:
    """Digest of the answers of worlds; one second passes between two requests."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._now = 0.0

    def walk(self, world: World, address: str) -> None:
        """Add the answers of the first pages of a list, or of a resource."""
        token = ""
        for _ in range(PAGES):
            token = self._answer(world, f"{address}&pageToken={token}" if token else address)
            if not token:
                return

    def _answer(self, world: World, address: str) -> str:
        """Add an answer, and return its page token."""
        request = Request("GET", f"https://any{address}", {"x-data-api-key": world.settings.api_key})
        answer = world.answer(world.sent(request, self._now), self._now)
        response = answer.response
        described = (response.status, sorted(response.headers.items()), answer.broken, answer.slow)
        self._hash.update(repr(described).encode() + response.body)
        self._now += 1.0
        token = json.loads(response.body).get("nextPageToken", "")
        return str(token)

    def posted(self, world: World, name: str) -> None:
        """Add the answers of a route with another method than GET."""
        for request in requests(name, world):
            response = world.answer(world.sent(request, self._now), self._now).response
            described = (response.status, sorted(response.headers.items()))
            self._hash.update(repr(described).encode() + response.body)
            self._now += 1.0

    def __str__(self) -> str:
        return self._hash.hexdigest()[:16]


def _world(seed: int, **settings: Any) -> World:
    return World(
        Settings(seed, chains=(43114, 7, 43113), rows=23, points=23, metrics_page_size=7, **settings)
    )


def of_route(name: str) -> str:
    """Return the digest of a route's answers, for each listed value of its parameters."""
    digest = _Digest()
    for seed in SEEDS:
        world = _world(seed, forbidden=())
        for address in questions(name):
            digest.walk(world, address.replace("pageSize=100", "pageSize=9"))
    return str(digest)


def of_posted(name: str) -> str:
    """Return the digest of the answers of a route with another method than GET."""
    digest = _Digest()
    for seed in SEEDS:
        digest.posted(_world(seed, forbidden=()), name)
    return str(digest)


def of_setting(setting: str, names: list[str]) -> str:
    """Return the digest of the answers of routes in order under one of the `SETTINGS`."""
    digest = _Digest()
    world = _world(1, **SETTINGS[setting]())
    for name in names:
        digest.walk(world, next(questions(name)).replace("pageSize=100", "pageSize=9"))
    return str(digest)


def digests() -> dict[str, dict[str, str]]:
    """Return all digests: of each route by method, and of those with GET together by setting."""
    read = sorted(name for name, declared in ROUTES.items() if declared.record.method == "GET")
    return {
        "routes": {name: of_route(name) for name in read},
        "posted": {name: of_posted(name) for name in sorted({*ROUTES, *WRITES} - set(read))},
        "settings": {setting: of_setting(setting, read) for setting in SETTINGS},
    }


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(digests(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
