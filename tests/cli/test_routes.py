"""Routes by name on the command line: descriptions, calls, estimates, completion."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from attrs import fields

import chainapi as package
from chainapi import ROUTES, WRITES, Limit, Session
from chainapi.models import EvmBlock, NativeTransaction
from tests.cli.terminal import BLOCKS, FAILED, WRONG_USAGE, Fixed, chainapi, finish, start
from tests.cli.terminal import environment as environment
from tests.cli.terminal import plain as seen
from tests.documents import Maker
from tests.programs import program

UTXOS_V2 = "data.primary_network.utxos_v2"
BLOCK_NAMES = [
    "data.evm.block",
    "data.evm.block_transactions",
    "data.evm.blocks",
    "data.evm.blocks_of_all_chains",
]
UTXOS = "data.primary_network.utxos"


# chainapi list NAME


def test_list_by_name_prints_the_fields_of_the_model() -> None:
    """Rows have the path, names and types of the model."""
    rows = chainapi("list", "data.evm.blocks", "43114", "--limit", "20", "--page-size", "7").rows
    raw = chainapi("list", BLOCKS, "--limit", "20").rows
    assert list(rows[0]) == [field.name for field in fields(EvmBlock)]
    assert [row["block_number"] for row in rows] == [int(row["blockNumber"]) for row in raw]
    assert [row["block_hash"] for row in rows] == [row["blockHash"] for row in raw]
    metrics = chainapi("list", "metrics.avg_tps", "43114", "--limit", "2").rows  # needs no --api
    assert [row["timestamp"] for row in metrics] == [1_767_225_600, 1_767_139_200]


def test_list_by_name_prints_all_digits() -> None:
    """Amounts are strings, because `jq` would round numbers; a row has the names of its columns."""
    made = Maker(seed=1, whole=True).record(NativeTransaction)
    sent = {**made, "value": str(2**256 - 1), "blockNumber": "7", "news": 1}
    transport = Fixed(200, {"transactions": [sent]})
    (row,) = chainapi("list", "data.evm.native_transactions", "43114", "0x1", transport=transport).rows
    assert (row["value"], row["block_number"], row["extra"]) == (str(2**256 - 1), 7, {"news": 1})
    assert row["from"]["address"] == made["from"]["address"]


def test_list_by_name_requests_full_pages() -> None:
    """`list` by name requests pages of the largest size unless --page-size sets one."""
    transport = Fixed(200, {"blocks": []})
    assert chainapi("list", "data.evm.blocks", "43114", transport=transport).code == 0
    assert transport.asked == ["data/v1/chains/43114/blocks?pageSize=100"]


def test_list_by_name_sends_what_it_is_given() -> None:
    """`list` by name sends path values and parameters by their names on the wire."""
    transport = Fixed(200, {"utxos": []})
    params = ["addresses=a,b", "addresses=c", "asset_id=x", "includeSpent=true"]
    options = [part for param in params for part in ("--param", param)]
    outcome = chainapi("list", UTXOS, "fuji", "p-chain", *options, transport=transport)
    assert (outcome.code, outcome.err) == (0, "")
    (url,) = map(urlsplit, transport.asked)
    assert url.path == "data/v1/networks/fuji/blockchains/p-chain/utxos"
    assert dict(parse_qsl(url.query)) == {
        "pageSize": "100",
        "addresses": "a,b,c",
        "assetId": "x",
        "includeSpent": "true",
    }


def test_list_of_a_single_resource_prints_it() -> None:
    """`list` of a single resource prints one line of JSON, or an indented object.

    A terminal gets the indented object.
    """
    outcome = chainapi("list", "data.chain", "43114")
    (chain,) = outcome.rows
    assert (chain["chain_id"], chain["status"], chain["network_token"]["symbol"]) == (43114, "OK", "AVAX")
    drawn = seen(chainapi("list", "data.chain", "43114", tty=True).out)
    assert len(drawn) > 10
    assert json.loads("\n".join(drawn)) == chain


def test_list_by_name_prints_a_table() -> None:
    """A terminal gets the fields of the model as columns."""
    text = seen(chainapi("list", "data.evm.blocks", "43114", "--limit", "3", tty=True).out)
    assert text[0].split()[:2] == ["chain_id", "block_number"]
    assert sum(line.startswith("43114 ") for line in text) == 3


def test_rows_without_a_model_are_printed_unchanged() -> None:
    """Rows that are no records, or of no kind that a model knows, are printed as they came."""
    raw = {"ercType": "ERC-9999", "amount": 2**80, "nested": {"a": [1]}}
    outcome = chainapi("list", "data.nfts.tokens", "43114", "0x1", transport=Fixed(200, {"tokens": [raw]}))
    assert (outcome.code, outcome.rows) == (0, [raw])
    texts = Fixed(200, {"addresses": ["a", "b"]})
    outcome = chainapi("list", "data.webhooks.addresses", "id", transport=texts)
    assert (outcome.code, outcome.rows) == (0, ["a", "b"])


@pytest.mark.parametrize("single", [False, True])
def test_deprecated_route_is_reported_in_one_line(single: bool) -> None:
    """A deprecated route prints one line on standard error and no Python warning."""
    name = "data.teleporter.message" if single else "data.teleporter.messages"
    body = {"a": 1} if single else {"messages": [{"a": 1}]}
    outcome = chainapi("list", name, *["x"] * single, transport=Fixed(200, body))
    assert (outcome.code, outcome.rows) == (0, [{"a": 1}])
    (line,) = outcome.err.splitlines()
    assert line.startswith("chainapi: Teleporter.message")
    assert " is deprecated: the service will remove /v1/teleporter/messages" in line


# chainapi routes


def test_routes_are_lines_of_json() -> None:
    """Each route is a line of JSON with all its properties."""
    rows = {row["name"]: row for row in chainapi("routes").rows}
    assert list(rows) == [*ROUTES, *WRITES]
    priced = ("data.evm.blocks", "metrics.chains.metric", "metrics.avg_tps")
    assert [rows[name]["units"] for name in priced] == [10, 100, None]
    for name, endpoint in {**ROUTES, **WRITES}.items():
        row, route = rows[name], endpoint.route
        assert (row["path"], row["weight"]) == (route.path, route.weight)
        assert (row["single"], row["deprecated"]) == (endpoint.single, route.deprecated)
        assert (row["method"], row["idempotency"]) == (route.method, route.idempotency.value)
        assert row["reads"] == (name in ROUTES)
        assert [one["name"] for one in row["parameters"]] == [one.name for one in endpoint.parameters]
    blocks = rows["data.evm.blocks"]
    assert (blocks["model"], blocks["units"]) == ("EvmBlock", 10)
    assert rows["data.webhooks.addresses"]["model"] == "str"
    chain_id, page_size = blocks["parameters"]
    assert (chain_id["required"], chain_id["in_path"], chain_id["types"]) == (True, True, ["int", "str"])
    assert (page_size["wire"], page_size["bounds"], page_size["default"]) == ("pageSize", [1, 100], 100)
    network = rows[UTXOS]["parameters"][0]
    assert network["choices"] == ["mainnet", "fuji", "testnet"]


def test_routes_are_found_by_name_or_path() -> None:
    """A text finds the routes that have it in their name or path, in any case; without any it fails."""
    for text in ("EVM.B", "chainid}/BLOCKS"):
        found = [row["name"] for row in chainapi("routes", text).rows]
        low = text.lower()
        assert found == [name for name in ROUTES if low in name or low in ROUTES[name].route.path.lower()]
        assert 0 < len(found) < len(ROUTES)
    outcome = chainapi("routes", "zzz")
    assert (outcome.code, outcome.out) == (FAILED, "")
    assert outcome.err == "chainapi: no route has 'zzz' in its name or path: `chainapi routes` shows all\n"


def test_routes_are_a_table_on_a_terminal() -> None:
    """A terminal shows names, parameters, results, units, and deprecated routes."""
    text = seen(chainapi("routes", "evm.blocks", tty=True).out)
    assert text[0].split() == ["route", "parameters", "returns", "units"]
    assert text[-1].split() == ["data.evm.blocks", "chain_id", "[page_size]", "Pages[EvmBlock]", "10"]
    assert "(deprecated)" in chainapi("routes", "teleporter", tty=True).out
    assert "(deprecated)" not in chainapi("routes", "data.icm.", tty=True).out


def test_one_route_is_shown_in_detail() -> None:
    """A route by its whole name has path, parameters with bounds, and row fields."""
    text = seen(chainapi("routes", "data.evm.blocks", tty=True).out)
    lines = [line.split() for line in text]
    assert ["method", "GET"] in lines
    assert ["path", "/v1/chains/{chainId}/blocks"] in lines
    assert ["model", "EvmBlock"] in lines
    assert [line for line in lines if line[:1] in (["weight"], ["units"])] == [
        ["weight", "small"],
        ["units", "10"],
    ]
    assert ["chain_id", "int", "or", "str", "required"] in lines
    assert ["page_size", "int,", "from", "1", "to", "100", "100"] in lines
    assert ["block_number", "int"] in lines
    (row,) = chainapi("routes", "data.evm.blocks", "--json", tty=True).rows
    assert list(row["fields"]["EvmBlock"]) == [field.name for field in fields(EvmBlock)]


def test_writes_are_shown_and_not_called() -> None:
    """Routes that write are in the list and in detail; commands that read refuse them by their reason."""
    assert "(writes)" in chainapi("routes", "webhooks.create", tty=True).out
    assert "(writes)" not in chainapi("routes", "webhooks.get", tty=True).out
    text = seen(chainapi("routes", "data.webhooks.deactivate", tty=True).out)
    lines = [line.split() for line in text]
    assert ["method", "DELETE"] in lines
    assert ["reads", "False"] in lines
    assert ["idempotency", "idempotent"] in lines
    outcome = chainapi("list", "data.webhooks.create")
    assert outcome.code == WRONG_USAGE
    assert "it writes, and is called from Python only: session.data.webhooks.create()" in outcome.err


SUBQUERY = {
    "id": "1",
    "type": "LatestBalanceStarsArena",
    "params": {"minBalance": "1", "subjectAddress": "0xa"},
}


def test_records_of_a_request_are_json_on_the_command_line() -> None:
    """A list with POST is read by its name; a record is given as its JSON."""
    queries = f"queries={json.dumps(SUBQUERY)}"
    command = ("list", "metrics.looking_glass.composite_query", "--param", "operator=OR", "--limit", "3")
    outcome = chainapi(*command, "--param", queries)
    assert outcome.code == 0
    assert len(outcome.rows) == 3
    assert chainapi("list", UTXOS_V2, "fuji", "p-chain", "--param", "addresses=a,b", "--limit", "2").code == 0
    refused = chainapi(*command, "--param", "queries={}x")
    assert refused.code == WRONG_USAGE
    assert "is not the JSON of one of its records" in refused.err


def test_kinds_of_rows_are_shown_one_by_one() -> None:
    """Rows of several kinds have the fields of each; lists and deprecation are shown."""
    (row,) = chainapi("routes", "data.evm.transfers").rows
    assert list(row["fields"]) == ["Erc20Transfer", "Erc721Transfer", "Erc1155Transfer"]
    assert "list of str" in chainapi("routes", UTXOS, tty=True).out
    deprecated = seen(chainapi("routes", "data.teleporter.messages", tty=True).out)
    assert ["deprecated", "True"] in [line.split() for line in deprecated]
    assert chainapi("routes", "data.webhooks.addresses").rows[0]["fields"] == {}
    assert "weight" not in chainapi("routes", "data.live_check", tty=True).out


def test_each_route_can_be_shown() -> None:
    """The description of each route can be printed as text, one of them as JSON too."""
    wrong = list[str]()
    for name, declared in ROUTES.items():
        text = chainapi("routes", name, tty=True)
        found = declared.route.path in "".join(seen(text.out))
        if text.code or not found or "Annotated" in text.out:
            wrong.append(f"{name}: {text.out}")
    assert wrong == []
    (row,) = chainapi("routes", "data.chain").rows
    assert row["name"] == "data.chain"


# chainapi estimate


def test_estimate_needs_no_service_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate needs no variables, values or requests."""
    for name in [name for name in os.environ if name.startswith("CHAINAPI_")]:
        monkeypatch.delenv(name)
    outcome = chainapi(
        *("estimate", "data.evm.blocks", "--rows", "1000000"),
        *("--limit", "6000/minute", "--limit", "1200000/day"),
        transport=Fixed(500, {}),
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.rows == [
        {
            "route": "data.evm.blocks",
            "rows": 1_000_000,
            "sources": 1,
            "page_size": 100,
            "requests": 10_000,
            "units": 100_000,
            "minutes": 16.0,
            "day_share": 100_000 / 1_200_000,
            "plan": None,
        }
    ]


async def test_estimate_is_that_of_the_library() -> None:
    """`estimate` of one source equals the estimate of its stream."""
    limits = [Limit(600, per=60, units=True), Limit(100_000, per=86_400, units=True)]
    cost = Session().data.evm.blocks(43114, page_size=25).estimate(rows=12_345, limits=limits)
    options = ["--rows", "12345", "--page-size", "25", "--limit", "600/60s", "--limit", "100000/day"]
    (row,) = chainapi("estimate", "data.evm.blocks", "43114", *options).rows
    assert (row["requests"], row["units"], row["minutes"], row["day_share"]) == (
        cost.requests,
        cost.units,
        cost.minutes,
        cost.day_share,
    )


def test_estimate_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A published plan has limits for each service; --limit adds others, and CHAINAPI_PLAN is the default."""
    command = ["estimate", "data.evm.blocks", "--rows", "1000000"]
    (row,) = chainapi(*command, "--plan", "free").rows
    assert (row["plan"], row["minutes"], row["day_share"]) == ("free", 12, 0.05)
    (row,) = chainapi(*command, "--plan", "free", "--limit", "10/minute").rows
    assert row["minutes"] == 9_999
    table = chainapi(*command, "--plan", "free", tty=True).out
    assert "plan free: 8,000 units a minute, 2,000,000 a day" in " ".join(table.split())
    monkeypatch.setenv("CHAINAPI_PLAN", "pro")
    (row,) = chainapi("estimate", "metrics.chains.metric", "--rows", "8100", "--page-size", "1").rows
    assert (row["plan"], row["units"], row["minutes"]) == ("pro", 810_000, 101)
    outcome = chainapi(*command, "--plan", "gold")
    assert (outcome.code, "unauthenticated" in outcome.err) == (WRONG_USAGE, True)


def test_each_command_takes_a_plan() -> None:
    """`--plan` is that of the session."""
    outcome = chainapi("list", BLOCKS, "--limit", "1", "--plan", "base")
    assert (outcome.code, len(outcome.rows)) == (0, 1)


def test_estimate_of_several_sources_rounds_each() -> None:
    """Each source has a last page, and a resource is one request."""
    (row,) = chainapi("estimate", "data.evm.blocks", "--rows", "101", "--sources", "3").rows
    assert (row["requests"], row["units"]) == (6, 60)
    (row,) = chainapi("estimate", "data.chain", "--rows", "1", "--sources", "500").rows
    assert (row["requests"], row["units"], row["day_share"]) == (500, 500, None)


def test_estimate_of_a_route_without_a_price() -> None:
    """Where no price is published, only the requests are known."""
    command = ["estimate", "data.live_check", "--rows", "1", "--sources", "10", "--limit", "100/minute"]
    (row,) = chainapi(*command).rows
    assert (row["requests"], row["units"], row["minutes"], row["day_share"]) == (10, None, None, None)
    lines = [" ".join(line.split()) for line in seen(chainapi(*command, tty=True).out)]
    assert lines[1:3] == ["units unknown: no weight is published", "minutes unknown"]


def test_estimate_is_a_table_on_a_terminal() -> None:
    """A terminal gets requests, units, minutes and the share of a day."""
    command = ["estimate", "data.evm.blocks", "--rows", "1000000", "--limit", "1200000/day"]
    lines = [line.split() for line in seen(chainapi(*command, tty=True).out)]
    assert lines[0] == ["requests", "10,000"]
    assert lines[1][:2] == ["units", "100,000"]
    assert lines[2][:2] == ["minutes", "0.0"]
    assert lines[3] == ["share", "of", "a", "day", "8.3%"]
    assert chainapi(*command, "--json", tty=True).rows == chainapi(*command).rows


# Completion


def test_names_and_documented_values_are_offered(capfd: pytest.CaptureFixture[str]) -> None:
    """Arguments that take a route complete its name, and values behind it those that the service lists."""

    def completed(*words: str) -> list[str]:
        assert chainapi("__complete", *words).code == 0
        lines = capfd.readouterr().out.partition("\x1fbegin\n")[2].splitlines()
        return [line.partition("\t")[0] for line in lines]

    for command in ("list", "estimate", "routes"):
        assert completed(command, "data.evm.bl") == list(ROUTES)
    assert completed("list", UTXOS, "fu") == ["mainnet", "fuji", "testnet"]
    assert "p-chain" in completed("list", UTXOS, "fuji", "")
    assert completed("list", UTXOS, "fuji", "p-chain", "") == []
    assert completed("list", "data.evm.blocks", "") == []
    assert completed("list", BLOCKS, "") == []


@pytest.mark.adapter
def test_completion_loads_no_models() -> None:
    """Completion of names loads no models, simulator or plot."""
    code = (
        "import sys; from chainapi.cli import run; run(['__complete', 'list', 'data.']); print(*sys.modules)"
    )
    *names, loaded = finish(start("-c", code)).out.splitlines()
    assert any(line.startswith("data.evm.blocks\tPages[EvmBlock]") for line in names)
    modules = set(loaded.split())
    assert "chainapi._api.catalogue" in modules
    unwanted = {"chainapi.models.evm", "chainapi.models.common", "chainapi.simulator", "plotext", "difflib"}
    assert not modules & unwanted


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """Return variables that let a shell find the command, and none of the user's."""
    program = tmp_path / "bin" / "chainapi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m chainapi "$@"\n')
    program.chmod(0o755)
    root = str(Path(package.__file__).parents[1])
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": root, "HOME": str(tmp_path), "TERM": "dumb"}


BASH = """
source <(chainapi completion bash)
COMP_WORDS=(chainapi "$@"); COMP_CWORD=$#; COMPREPLY=()
_chainapi
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.adapter
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["list", "data.evm.bl"], BLOCK_NAMES),
        pytest.param(["es"], ["estimate"], marks=pytest.mark.proof),
        pytest.param(["list", UTXOS, "fu"], ["fuji"], marks=pytest.mark.proof),
        pytest.param(["list", "/v1/ch"], [], marks=pytest.mark.proof),
        pytest.param(["completion", "f"], ["fish"], marks=pytest.mark.proof),
    ],
)
def test_bash_completes(words: list[str], offered: list[str], shell_environment: dict[str, str]) -> None:
    """TAB in bash completes route names by prefix and does not complete paths."""
    process = subprocess.run(
        [program("bash"), "--norc", "-c", BASH, "bash", *words],
        env=shell_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr == ""
    assert sorted(process.stdout.split()) == offered


@pytest.mark.proof
def test_fish_completes(shell_environment: dict[str, str]) -> None:
    """TAB in fish completes route names by prefix."""
    process = subprocess.run(
        [
            program("fish"),
            "--no-config",
            "-c",
            "chainapi completion fish | source; complete -C 'chainapi list data.evm.bl'",
        ],
        env=shell_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    offered = sorted(line.partition("\t")[0] for line in process.stdout.splitlines())
    assert offered == BLOCK_NAMES


@pytest.mark.proof
def test_zsh_completes(shell_environment: dict[str, str]) -> None:
    """TAB in zsh completes the only name with the prefix."""
    import pty

    screen, terminal = pty.openpty()
    shell = subprocess.Popen(
        [program("zsh"), "-f", "-i"],
        env={**shell_environment, "PS1": "ready> "},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    try:
        read_until(screen, "ready> ")
        os.write(screen, b"autoload -Uz compinit; compinit -u -D; source <(chainapi completion zsh)\n")
        read_until(screen, "ready> ")
        os.write(screen, b"chainapi estimate data.evm.blocks_\t")
        read_until(screen, "data.evm.blocks_of_all_chains ")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
        os.close(screen)


def read_until(screen: int, text: str) -> None:
    """Read the output of a shell until it has a text."""
    drawn = ""
    while text not in drawn:
        readable, _, _ = select.select([screen], [], [], 30)
        assert readable, drawn
        drawn += os.read(screen, 4096).decode(errors="replace")


def test_scripts_get_names_from_the_command() -> None:
    """A script calls the command for names of routes, and so stays current; other shells are refused."""
    outcome = chainapi("completion", "bash")
    assert (outcome.code, outcome.err) == (0, "")
    assert "__complete" in outcome.out
    assert all(command in outcome.out for command in ("list", "estimate", "routes", "tps"))
    assert chainapi("completion", "tcsh").code == WRONG_USAGE
