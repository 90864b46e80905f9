"""Metrics of a session for Prometheus, at http://127.0.0.1:9464/metrics.

pip install 'chainapi[otel]' opentelemetry-exporter-prometheus
python docs/examples/prometheus.py 9464
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from chainapi import Session
from chainapi.otel import OpenTelemetry

INTERVAL = 60.0  # seconds


@contextmanager
def exported(port: int) -> Iterator[OpenTelemetry]:
    """Serve the metrics on a port of this machine; 0 takes a free one."""
    provider = MeterProvider([PrometheusMetricReader()])
    server, thread = start_http_server(port, addr="127.0.0.1")
    print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
    try:
        yield OpenTelemetry(meter_provider=provider)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()


async def main(port: int) -> None:
    """Read the newest block once a minute."""
    with exported(port) as telemetry:
        async with Session(telemetry=telemetry) as session:
            while True:
                for block in await session.data.evm.blocks(43114).collect(limit=1):
                    print(f"block {block.block_number}: {block.tx_count} transactions", flush=True)
                await asyncio.sleep(INTERVAL)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 9464))
