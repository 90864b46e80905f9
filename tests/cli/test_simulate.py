"""``chainapi simulate``: options and the simulator that they set up."""

from __future__ import annotations

import json
import re
import shlex
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from chainapi.cli import WRONG_USAGE
from chainapi.cli.simulate import AnomalyOptions
from chainapi.simulator import Anomalies, Simulator
from tests.cli.terminal import ADDRESSES, chainapi
from tests.cli.terminal import environment as environment
from tests.cli.test_cli import simulated
from tests.simulator.test_anomalies import loads

BLOCKS = "/v1/chains/43114/blocks"


def ask(variables: dict[str, str], path: str, *, header: str = "x-data-api-key", **query: object) -> Any:
    """Return the body of a simulator's answer, or the status and messages of an error."""
    url = f"{variables['CHAINAPI_DATA_BASE_URL']}{path}?{urlencode(query)}"
    request = urllib.request.Request(url, headers={header: variables["CHAINAPI_API_KEY"]})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["message"]


@pytest.mark.real_time
def test_options_make_the_simulator_that_they_describe() -> None:
    """Options set chains, growth, token lifetimes, the key's header, and faults."""
    options = [
        *("--chains", "7", "43114", "--rows", "30", "--grow-every", "0.001"),
        *("--token-lifetime", "0.001", "--expired-status", "410", "--api-key-header", "X-Other-Key"),
        *("--fault", "data.evm.transactions=status:503,message:later,every:2"),
        *("--fault", "/v1/chains/7/*=status:400,message:under maintenance"),
    ]
    with simulated(*options) as variables:
        assert variables["CHAINAPI_API_KEY_HEADER"] == "x-other-key"
        assert ask(variables, "/v1/chains")[0] == 401
        other = {"header": "x-other-key"}
        assert [chain["chainId"] for chain in ask(variables, "/v1/chains", **other)["chains"]] == [
            "7",
            "43114",
        ]
        first = ask(variables, BLOCKS, **other)
        later = ask(variables, BLOCKS, **other)
        assert int(later["blocks"][0]["blockNumber"]) > int(first["blocks"][0]["blockNumber"])
        token = first["nextPageToken"]
        assert ask(variables, BLOCKS, pageToken=token, **other) == (410, ["pageToken has expired"])
        assert "transactions" in ask(variables, "/v1/chains/43114/transactions", **other)
        assert ask(variables, "/v1/chains/43114/transactions", **other) == (503, ["later"])
        assert ask(variables, "/v1/chains/7/blocks", **other) == (400, ["under maintenance"])


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


@pytest.mark.real_time
def test_options_make_the_anomalies_that_they_describe() -> None:
    """Options exist for each anomaly by name, with the rows of a simulator in memory."""
    assert {*ANOMALIES, "anomalies_in"} == set(AnomalyOptions.__annotations__)
    options = [
        word for name, value in ANOMALIES.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    memory = Simulator(5, rows=40, anomalies=Anomalies(route="data.evm.blocks", **ANOMALIES))
    with simulated("--seed", "5", "--rows", "40", "--anomalies-in", "data.evm.blocks", *options) as variables:
        page = ask(variables, BLOCKS, pageSize=40)
        assert page["blocks"] == memory.rows_of(BLOCKS)
        again = ask(variables, BLOCKS, pageSize=40, pageToken=page["nextPageToken"])
        assert [row["blockHash"] for row in again["blocks"]] == [row["blockHash"] for row in page["blocks"]]
        transactions = ask(variables, "/v1/chains/43114/transactions", pageSize=100)["transactions"]
    assert transactions == Simulator(5, rows=40).rows_of("/v1/chains/43114/transactions")


@pytest.mark.real_time
def test_the_last_page_may_be_repeated() -> None:
    """--repeat-pages takes a number or the word last."""
    with simulated("--rows", "5", "--repeat-pages", "last") as variables:
        token = ask(variables, BLOCKS)["nextPageToken"]
        assert len(ask(variables, BLOCKS, pageToken=token)["blocks"]) == 5


DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"
SHOWN = re.findall(r"^chainapi simulate (.+)$", DOCS.read_text("utf-8"), re.MULTILINE)


@pytest.mark.real_time
@pytest.mark.parametrize("command", SHOWN)
def test_commands_of_the_docs_serve(command: str) -> None:
    """Commands in the docs of the simulator each serve both services."""
    with simulated(*shlex.split(command)) as variables:
        assert list(variables)[: len(ADDRESSES)] == list(ADDRESSES)
        assert ("CHAINAPI_API_KEY_HEADER" in variables) == ("--api-key-header" in command)


def test_the_docs_show_every_option() -> None:
    """The docs contain commands that together name every anomaly."""
    assert all(f"--{name.replace('_', '-')}" in " ".join(SHOWN) for name in AnomalyOptions.__annotations__)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fault", "data.evm.bloks=status:503"], "--fault: no route is named 'data.evm.bloks'"),
        (
            ["--fault", "data.evm.blocks"],
            "--fault: cannot read the fault 'data.evm.blocks': write ROUTE=KEY:VALUE",
        ),
        (["--fault", "*=sta"], "--fault: a fault has no part 'sta': use at:VALUE, every:VALUE"),
        (["--fault", "*=stall", "--fault", "*=at:0,stall"], "--fault: 'at' must be >= 1: 0"),
        (["--chains", "7", "7"], "chainapi: --chains must be at least one chain id, each given once"),
        (["--chains", "C"], "--chains"),
        (
            ["--anomalies-in", "data.nothing", "--ties", "2"],
            "chainapi: --anomalies-in: no route is named 'data.nothing'",
        ),
        (["--ties", "0"], "--ties"),
        (["--order", "random"], "--order"),
        (["--malformed", "2"], "--malformed"),
        (["--repeat-pages", "0"], "--repeat-pages. Must be last, or >= 1"),
        (["--repeat-pages", "first"], "--repeat-pages"),
        (["--grow-every", "0"], "--grow-every"),
        (["--expired-status", "200"], "--expired-status"),
        (["--fault", "*=status:99"], "--fault: 'status' must be >= 200: 99"),
        (["--api-key-header", "x y"], "--api-key-header"),
    ],
)
def test_impossible_options_are_wrong_usage(options: list[str], said: str) -> None:
    """Impossible options are refused in one line with their name, before serving."""
    outcome = chainapi("simulate", *options)
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert said in outcome.err


def test_help_names_every_part_of_a_fault() -> None:
    """Help of --fault has its form and each of its parts."""
    from chainapi.simulator.faults import FLAGS, KEYS

    text = chainapi("simulate", "--help").out
    assert all(f"{key}:" in text for key in KEYS)
    assert all(flag in text for flag in FLAGS)
