"""Recipe for Prometheus."""

from __future__ import annotations

import asyncio
from pathlib import Path
from runpy import run_path
from urllib.request import urlopen

import pytest

from chainapi.otel.metrics import METRICS
from chainapi.simulator import Simulator
from tests.raw_server import until

RECIPE = Path(__file__).parents[2] / "docs" / "examples" / "prometheus.py"


@pytest.mark.real_time
async def test_prometheus_reads_the_metrics_of_a_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recipe serves the metrics of its session while that sleeps, and no more after its end."""
    printed: list[str] = []

    def reads(text: str) -> bool:
        printed.append(capsys.readouterr().out)
        return text in "".join(printed)

    async with Simulator(limit=50, window=60.0) as simulator:
        for name, value in simulator.environment().items():
            monkeypatch.setenv(name, value)
        task = asyncio.create_task(run_path(str(RECIPE))["main"](0))
        await until(lambda: reads("transactions"))
        address = "".join(printed).split()[0]
        text = await asyncio.to_thread(lambda: urlopen(address).read().decode())
        task.cancel()
        await asyncio.wait((task,))
    lines = text.splitlines()
    requests = [line for line in lines if line.startswith("http_client_request_duration_seconds_count{")]
    assert [line.rpartition(" ")[2] for line in requests] == ["1.0"]
    assert 'http_response_status_code="200"' in requests[0]
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("chainapi_quota_limit{")] == ["50.0"]
    names = {one.name.replace(".", "_") for one in METRICS}
    families = {line.split()[2] for line in lines if line.startswith("# TYPE chainapi")}
    assert families
    assert all(any(family.startswith(name) for name in names) for family in families)
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urlopen, address)
