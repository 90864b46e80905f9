"""CPU time of the simulator for a request in memory, against `json.loads` of its body.

Run this alone: ``python -m tests.bench simulator``.
"""

from __future__ import annotations

import gc
import json
import time

from attrs import frozen

from chainapi.simulator import Settings, World
from chainapi.transport import Request
from tests.bench.figures import row, shown

__all__ = ["bench_simulator"]

ROUNDS = 9
ROWS = 200_000  # of each list: no walk below reaches its end


@frozen
class Case:
    """List, the pages of a walk over it, and the target for new pages, which kept ones stay far below."""

    what: str
    path: str
    pages: int
    target: str


CASES = (
    Case("10 blocks", "/data/v1/chains/43114/blocks?pageSize=10", 300, "<= 4.5"),
    Case("100 blocks", "/data/v1/chains/43114/blocks?pageSize=100", 60, "<= 3.5"),
    Case("2,160 points", "/metrics/v2/chains/43114/metrics/gasUsed?pageSize=2160", 20, "<= 2.5"),
)


def bench_simulator() -> None:
    """Measure pages that are new, and pages that any simulator of the process has made before."""
    for case in CASES:
        rounds = [_round(case, seed) for seed in range(ROUNDS)]
        for kind, ratios in zip(("new", "kept"), zip(*rounds, strict=True), strict=True):
            what = f"simulator, {case.what} in memory, {kind}, against json.loads"
            row(what, shown(ratios), case.target)


def _round(case: Case, seed: int) -> tuple[float, float]:
    """Return the ratios of a walk over new pages, and of the same walk in another world."""
    bodies = _walk(case, seed, 1)[1]  # loads the route
    new, bodies = _walk(case, seed, case.pages)
    kept, _ = _walk(case, seed, case.pages)
    gc.collect()
    began = time.process_time()
    for body in bodies:
        json.loads(body)
    by_json = time.process_time() - began
    return new / by_json, kept / by_json


def _walk(case: Case, seed: int, pages: int) -> tuple[float, list[bytes]]:
    """Return the CPU seconds of a walk in a world of its own, and the bodies of its pages."""
    world = World(Settings(seed, rows=ROWS, points=ROWS))
    address, bodies = case.path, list[bytes]()
    gc.collect()
    began = time.process_time()
    for _ in range(pages):
        request = Request("GET", f"https://x.test{address}", {"x-data-api-key": "simulated-key"})
        body = world.answer(world.sent(request, 0.0), 0.0).response.body
        bodies.append(body)
        token = body[-38:-2].decode()  # the last field of a page
        address = f"{case.path}&pageToken={token}"
    return time.process_time() - began, bodies
