"""``chainapi export --dask``: the command line on a cluster."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import distributed
import pyarrow.parquet as pq
import pytest
from dask import config

from chainapi import dask
from chainapi.cli import FAILED, WRONG_USAGE, run
from chainapi.cli.terminal import Terminal
from chainapi.simulator import Simulator
from tests.cli.terminal import Outcome, Stream
from tests.dask.clusters import rows_in

ROUTE = "data.evm.blocks"


@contextmanager
def simulated() -> Iterator[Simulator]:
    """Run a simulator with a port in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    simulator = Simulator(chains=(1, 2), rows=60)
    asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result(10)
    try:
        yield simulator
    finally:
        asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Start a cluster in threads, whose workers have the addresses and the key in their environment."""
    with pytest.MonkeyPatch.context() as patch, simulated() as simulator:
        for name, value in simulator.environment().items():
            patch.setenv(name, value)
        with distributed.LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
        ) as cluster:
            yield cluster.scheduler_address  # pyright: ignore[reportAttributeAccessIssue]


def chainapi(*tokens: str) -> Outcome:
    """Run a command in this process."""
    out, err = Stream(terminal=False), Stream(terminal=False)
    code = run(tokens, terminal=Terminal(out, err))
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.mark.adapter
def test_the_workers_export(scheduler: str, tmp_path: Path) -> None:
    """The command ends with the counts and the folder, and a second run has nothing to do."""
    options = "--limit", "20", "--compression", "gzip", "--out", str(tmp_path / "b")
    command = ("export", ROUTE, "1", "2", *options, "--dask", scheduler)
    outcome = chainapi(*command)
    parts = [*(tmp_path / "b").glob("*.parquet")]
    footers = [pq.ParquetFile(part).metadata for part in parts]
    assert {footer.row_group(0).column(0).compression for footer in footers} == {"GZIP"}
    named = parts[0] if len(parts) == 1 else f"{len(parts)} files in {tmp_path / 'b'}"
    line = f"40 new rows of 2 sources fetched, {named} written"
    assert outcome == Outcome(0, "", f"chainapi: {line}\n")
    assert rows_in(tmp_path / "b").total() == 40
    again = f"chainapi: no new rows: {tmp_path / 'b'} has the rows of 2 sources\n"
    assert chainapi(*command) == Outcome(0, "", again)


@pytest.mark.adapter
def test_a_synchronous_client_waits(scheduler: str, tmp_path: Path) -> None:
    """In a program without asyncio, `chainapi.dask.export` returns the result itself."""
    with distributed.Client(scheduler) as client:
        result = dask.export(client, ROUTE, (1, 2), tmp_path / "b", limit=20)
    assert (result.rows, result.sources) == (40, 2)


@pytest.mark.proof
def test_options_of_the_connection_go_to_the_workers(scheduler: str, tmp_path: Path) -> None:
    """An address on the command line is that of the sessions of the workers."""
    outcome = chainapi(
        *("export", ROUTE, "1", "--out", str(tmp_path / "b"), "--dask", scheduler),
        *("--data-base-url", "http://127.0.0.1:9", "--deadline", "1"),
    )
    assert outcome.code == FAILED
    assert f"--dask {scheduler} --data-base-url http://127.0.0.1:9" in outcome.err


@pytest.mark.adapter
def test_failed_sources_have_a_line_each(scheduler: str, tmp_path: Path) -> None:
    """Failures are reported by source, and the command prints how to continue."""
    outcome = chainapi("export", ROUTE, "77", "--out", str(tmp_path / "b"), "--dask", scheduler)
    assert outcome.code == FAILED
    assert outcome.err.startswith("chainapi: 77: 404 Not Found")
    assert f"to continue: chainapi export {ROUTE} 77 --out {tmp_path / 'b'} --dask {scheduler}" in outcome.err


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scheduler at the address the command fails with a line that names it."""
    with config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        outcome = chainapi("export", ROUTE, "1", "--out", str(tmp_path / "b"), "--dask", "tcp://127.0.0.1:9")
    assert outcome.code == FAILED
    assert "the Dask scheduler at tcp://127.0.0.1:9 cannot be reached" in outcome.err


def test_what_does_not_apply_is_refused(tmp_path: Path) -> None:
    """A command that no cluster can carry out is refused before it connects to one."""
    options = "--out", str(tmp_path / "b"), "--dask", "tcp://127.0.0.1:9"
    cases: tuple[tuple[tuple[str, ...], str], ...] = (
        (("/v1/chains/1/blocks",), "--dask does not apply: rows of a path"),
        ((ROUTE, "1", "--format", "csv"), "--format does not apply: workers of a cluster write Parquet"),
        ((ROUTE, "1", "--partition", "day"), "--partition does not apply"),
        ((ROUTE, "1", "--wait", "5"), "--wait does not apply"),
        (("data.evm",), "data.evm"),
    )
    with config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        for tokens, message in cases:
            outcome = chainapi("export", *tokens, *options)
            assert outcome.code == WRONG_USAGE
            assert message in outcome.err


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("address", ["nowhere", "tcp://", "nowhere://127.0.0.1:9"])
def test_no_address_of_a_scheduler(address: str, tmp_path: Path) -> None:
    """A malformed address is one line on standard error, and leaves no client that would warn at its end."""
    outcome = chainapi("export", ROUTE, "1", "--out", str(tmp_path / "b"), "--dask", address)
    gc.collect()
    assert outcome.code == WRONG_USAGE
    assert outcome.err.startswith(f"chainapi: --dask {address}: ")
    assert outcome.err.count("\n") == 1
