"""``chainapi export --dask``: the command line on a cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import distributed
import pyarrow.parquet as pq
import pytest
from dask import config

from chainapi.cli import FAILED, WRONG_USAGE, run
from chainapi.cli.terminal import Terminal
from tests.cli.terminal import Outcome, Stream
from tests.dask.clusters import simulated
from tests.dask.disks import rows_in

ROUTE = "data.evm.blocks"


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
    parts = [pq.ParquetFile(path) for path in (tmp_path / "b").glob("*.parquet")]
    assert {part.metadata.row_group(0).column(0).compression for part in parts} == {"GZIP"}
    written = len(parts)
    line = (
        f"40 new rows of 2 sources fetched, {written} file{'s' * (written > 1)} written to {tmp_path / 'b'}"
    )
    assert outcome == Outcome(0, "", f"chainapi: {line}\n")
    assert rows_in(tmp_path / "b").total() == 40
    again = f"chainapi: no new rows: {tmp_path / 'b'} has the rows of 2 sources\n"
    assert chainapi(*command) == Outcome(0, "", again)


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


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (("/v1/chains/1/blocks",), "--dask does not apply to paths"),
        ((ROUTE, "1", "--format", "csv"), "--format csv does not apply"),
        ((ROUTE, "1", "--partition", "day"), "--partition does not apply: a part of a cluster is one file"),
        ((ROUTE, "1", "--compression-level", "99"), "--compression-level 99 must be"),
        ((ROUTE, "1", "--journal", "state"), "--journal does not apply: workers of a cluster keep"),
        ((ROUTE, "1", "--lookback", "1d"), "--lookback does not apply: workers of a cluster never"),
    ],
)
def test_what_does_not_apply_is_refused(
    scheduler: str, tokens: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """Formats and sources that workers cannot write are refused at once."""
    outcome = chainapi("export", *tokens, "--out", str(tmp_path / "b"), "--dask", scheduler)
    assert outcome.code == WRONG_USAGE
    assert message in outcome.err


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scheduler at the address the command fails with a line that names it."""
    with config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        outcome = chainapi("export", ROUTE, "1", "--out", str(tmp_path / "b"), "--dask", "tcp://127.0.0.1:9")
    assert outcome.code == FAILED
    assert "the Dask scheduler at tcp://127.0.0.1:9 cannot be reached" in outcome.err


@pytest.mark.parametrize(
    "tokens", [("/v1/chains/1/blocks",), (ROUTE, "1", "--part-bytes", "5"), ("data.evm",)]
)
def test_wrong_usage_needs_no_scheduler(tokens: tuple[str, ...], tmp_path: Path) -> None:
    """A command that no cluster can carry out is refused before it connects to one."""
    with config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        outcome = chainapi("export", *tokens, "--out", str(tmp_path / "b"), "--dask", "tcp://127.0.0.1:9")
    assert outcome.code == WRONG_USAGE


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("address", ["nowhere", "tcp://", "nowhere://127.0.0.1:9"])
def test_no_address_of_a_scheduler(address: str, tmp_path: Path) -> None:
    """A malformed address is one line on standard error, and leaves no client that would warn at its end."""
    outcome = chainapi("export", ROUTE, "1", "--out", str(tmp_path / "b"), "--dask", address)
    gc.collect()
    assert outcome.code == WRONG_USAGE
    assert outcome.err.startswith(f"chainapi: --dask {address}: ")
    assert outcome.err.count("\n") == 1
