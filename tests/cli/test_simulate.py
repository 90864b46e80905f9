"""``chainapi simulate``: options and the simulator that they set up."""

from __future__ import annotations

import asyncio
import functools
import re
import shlex
import signal
import socket
import sys
from pathlib import Path
from typing import Any, get_type_hints

import aiohttp
import pytest

from chainapi.simulator import Anomalies, Fault, Simulator
from tests.cli.terminal import (
    ADDRESSES,
    FAILED,
    INTERRUPTIBLE,
    TERMINATED,
    WRONG_USAGE,
    chainapi,
    finish,
    simulate,
    start,
)
from tests.cli.terminal import environment as environment
from tests.simulator.test_routes import loads

BLOCKS = "/v1/chains/43114/blocks"
ANOMALY_OPTIONS = {name for name in get_type_hints(Anomalies) if name != "route"}


async def ask(variables: dict[str, str], path: str, *, header: str = "x-data-api-key", **query: Any) -> Any:
    """Return the body of a simulator's answer, or the status and messages of an error."""
    url, headers = f"{variables['CHAINAPI_DATA_BASE_URL']}{path}", {header: variables["CHAINAPI_API_KEY"]}
    async with aiohttp.ClientSession() as client, client.get(url, params=query, headers=headers) as answer:
        body = loads(await answer.read())
    return body if answer.status == 200 else (answer.status, body["message"])


@pytest.mark.adapter
def test_options_make_the_simulator_that_they_describe() -> None:
    """Options set chains, growth, token lifetimes, the key's header, units and faults."""

    async def visit(variables: dict[str, str]) -> None:
        assert variables["CHAINAPI_API_KEY_HEADER"] == "x-other-key"
        assert (await ask(variables, "/v1/chains"))[0] == 401
        other: dict[str, Any] = {"header": "x-other-key"}
        chains = (await ask(variables, "/v1/chains", **other))["chains"]
        assert [chain["chainId"] for chain in chains] == ["7", "43114"]
        first = await ask(variables, BLOCKS, **other)
        later = await ask(variables, BLOCKS, **other)
        assert int(later["blocks"][0]["blockNumber"]) > int(first["blocks"][0]["blockNumber"])
        token = first["nextPageToken"]
        assert await ask(variables, BLOCKS, pageToken=token, **other) == (410, ["pageToken has expired"])
        assert "transactions" in await ask(variables, "/v1/chains/43114/transactions", **other)
        assert await ask(variables, "/v1/chains/43114/transactions", **other) == (503, ["later"])
        assert await ask(variables, "/v1/chains/7/blocks", **other) == (400, ["under maintenance"])

    simulate(
        visit,
        *("--chains", "7", "43114", "--rows", "30", "--grow-every", "0.00001"),
        *("--token-lifetime", "0.001", "--expired-status", "410", "--api-key-header", "X-Other-Key"),
        *("--fault", "data.evm.transactions=status:503,message:later,every:2"),
        *("--fault", "/v1/chains/7/*=status:400,message:under maintenance"),
    )

    async def weighed(variables: dict[str, str]) -> None:
        statuses = [await ask(variables, BLOCKS) for _ in range(3)]
        assert [isinstance(one, dict) for one in statuses] == [True, True, False]
        assert statuses[-1][0] == 429

    simulate(weighed, "--limit", "25", "--window", "30", "--weighted")


ANOMALIES: dict[str, Any] = {
    "ties": 2,
    "equal": 3,
    "replays": 2,
    "order": "shuffled",
    "moved": 0.5,
    "changing": "answer",
    "malformed": 0.25,
    "unknown_fields": 0.5,
    "unknown_values": 0.75,
    "paging": "offset",
    "repeat_pages": 2,
}


@pytest.mark.adapter
def test_options_make_the_anomalies_that_they_describe() -> None:
    """Options exist for each anomaly by name, with the rows of a simulator in memory."""
    assert set(ANOMALIES) == ANOMALY_OPTIONS
    options = [
        word for name, value in ANOMALIES.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    memory = Simulator(5, rows=40, anomalies=Anomalies(route="data.evm.blocks", **ANOMALIES))

    async def visit(variables: dict[str, str]) -> None:
        page = await ask(variables, BLOCKS, pageSize=40)
        assert page["blocks"] == memory.rows_of(BLOCKS)
        again = await ask(variables, BLOCKS, pageSize=40, pageToken=page["nextPageToken"])
        assert [row["blockHash"] for row in again["blocks"]] == [row["blockHash"] for row in page["blocks"]]
        transactions = (await ask(variables, "/v1/chains/43114/transactions", pageSize=100))["transactions"]
        assert transactions == Simulator(5, rows=40).rows_of("/v1/chains/43114/transactions")

    simulate(visit, "--seed", "5", "--rows", "40", "--anomalies-in", "data.evm.blocks", *options)

    async def repeated(variables: dict[str, str]) -> None:
        token = (await ask(variables, BLOCKS))["nextPageToken"]
        assert len((await ask(variables, BLOCKS, pageToken=token))["blocks"]) == 5

    simulate(repeated, "--rows", "5", "--repeat-pages", "last")


DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"
SHOWN = re.findall(r"^chainapi simulate (.+)$", DOCS.read_text("utf-8"), re.MULTILINE)


@pytest.mark.adapter
def test_commands_of_the_docs_serve() -> None:
    """Each command in the docs of the simulator serves; together they name every anomaly."""

    async def visit(variables: dict[str, str]) -> None:
        found.append([*variables])

    found = list[list[str]]()
    for command in SHOWN:
        simulate(visit, *shlex.split(command))
    header = ["CHAINAPI_API_KEY_HEADER"]
    assert found == [[*ADDRESSES, *header * ("--api-key-header" in command)] for command in SHOWN]
    options = {"anomalies_in", *ANOMALY_OPTIONS}
    assert [name for name in options if f"--{name.replace('_', '-')}" not in " ".join(SHOWN)] == []


def test_help_names_every_part_of_a_fault() -> None:
    """Help of --fault has its form and each of the parts that a mistake lists."""
    text = chainapi("simulate", "--help").out
    with pytest.raises(ValueError, match="a fault has no part 'x'") as caught:
        Fault.parse("*=x")
    parts = re.findall(r"([\w-]+)(:VALUE)?", str(caught.value).partition("use ")[2])
    named = [name + ":" * bool(value) for name, value in parts if name != "or"]
    assert len(named) > 15
    assert [name for name in named if name not in text] == []


@pytest.mark.adapter
def test_a_port_that_is_taken_is_one_line() -> None:
    """A port in use is an ordinary error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        outcome = chainapi("simulate", "--port", port, loop_factory=asyncio.new_event_loop)
    assert outcome.code == FAILED
    (line,) = outcome.err.splitlines()
    assert line.startswith("chainapi: ")
    assert port in line


FETCH = """
import asyncio, sys
from chainapi import Session
async def main():
    async with Session() as session:
        return len(await session.data.evm.blocks(43114).collect())
sys.exit(asyncio.run(main()))
"""


@pytest.mark.adapter
def test_a_command_runs_while_the_services_are_simulated(capfd: pytest.CaptureFixture[str]) -> None:
    """A command after -- reaches the simulator by its variables, and its exit code is the exit code."""
    run = functools.partial(chainapi, "simulate", loop_factory=asyncio.new_event_loop)
    outcome = run("--chains", "7", "43114", "--rows", "37", "--", sys.executable, "-c", FETCH)
    assert (outcome.code, outcome.out, outcome.err) == (37, "", "")
    assert run("--", sys.executable, "-c", "print('--port'); import os; os.abort()").code == 128 + 6
    assert capfd.readouterr().out == "--port\n"
    outcome = run("--", "no-such-command")
    assert (outcome.code, outcome.err) == (
        WRONG_USAGE,
        "chainapi: no-such-command cannot be run: No such file or directory; check its path\n",
    )


WAIT = "import signal, sys; print('ready', flush=True); signal.pause()"


@pytest.mark.adapter
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_ends_the_command_and_the_simulator() -> None:
    """SIGTERM reaches the command; SIGINT comes to it from the terminal, and leaves the simulator running."""
    process = start(*INTERRUPTIBLE, "simulate", "--", sys.executable, "-c", WAIT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    outcome = finish(process)
    assert (outcome.code, outcome.err) == (TERMINATED, "")
