"""Recipes for aiohttp, FastAPI and cron, on a simulator with a real port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chainapi.simulator import Fault, Simulator
from tests.contrib.asgi import events
from tests.contrib.recipes import (
    CHAIN,
    Recipe,
    Serve,
    client_of,
    ends_the_work_of_clients_that_left,
    levels,
    recipe,
    run,
    says_when_quota_is_back,
    served_by_aiohttp,
    simulator,
    streams_rows,
)
from tests.contrib.serving import served

__all__ = ["levels", "recipe", "simulator"]  # fixtures
pytestmark = [pytest.mark.real_time, pytest.mark.adapter]


@pytest.mark.parametrize(
    ("name", "serve"),
    [("backend_fastapi", served), ("backend_aiohttp", served_by_aiohttp)],
    ids=["fastapi", "aiohttp"],
)
async def test_backend_streams_rows(simulator: Simulator, recipe: Recipe, name: str, serve: Serve) -> None:
    """Each backend streams rows, ends its work when a client leaves, and says when quota is back."""
    await streams_rows(simulator, recipe(name).app, serve)
    await ends_the_work_of_clients_that_left(simulator, recipe(name).app, serve)
    await says_when_quota_is_back(simulator, recipe(name).app, serve)


async def test_fastapi_recipe_has_events_quota_and_health(simulator: Simulator, recipe: Recipe) -> None:
    """The FastAPI recipe also serves server-sent events, the quota and its health."""
    async with served(recipe("backend_fastapi").app) as port, client_of(port) as client:
        stream = await client.get(f"/tps/{CHAIN}/events")
        quota = await client.get("/internal/quota")
        health = await client.get("/internal/health")
    assert [name for name, _, _ in events(stream.content)] == ["rows", "rows", "rows", "end"]
    assert quota.json().keys() == {"metrics", "data"}
    assert health.json()["last_answers"]["metrics"]["status"] == 200


@pytest.mark.program
async def test_cron_job_is_resumed(simulator: Simulator, tmp_path: Path) -> None:
    """A failed run of the cron job has exit code 75, and the next one completes its file."""
    simulator.faults = (Fault(route="/v1/avg_tps/8021", after_page=1, status=404),)
    code, output = await run(tmp_path, "nightly_export", "tps.jsonl")
    assert (code, "run it again" in output) == (75, True), output
    simulator.faults = ()
    assert await run(tmp_path, "nightly_export", "tps.jsonl") == (0, "150 rows in tps.jsonl\n")
    rows = [json.loads(line) for line in (tmp_path / "tps.jsonl").read_text().splitlines()]
    assert len(rows) == len({(row["source"], row["timestamp"]) for row in rows}) == 750
