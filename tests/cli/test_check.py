"""``chainapi check``: one request of each route, compared with what chainapi knows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from chainapi import ROUTES, Session
from chainapi.simulator import Anomalies, Fault, Simulator
from chainapi.testing import Player, run
from tests.cli.terminal import FAILED, WRONG_USAGE, Outcome, chainapi, plain
from tests.cli.terminal import environment as environment
from tests.served import served

pytestmark = pytest.mark.adapter

UNITS: dict[str, Any] = {"limit": 1_000_000, "weighted": True}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command against a simulator on a port."""

    def checked(simulator: Simulator, *options: str, tty: bool = False) -> Outcome:
        with served(simulator) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            loop = asyncio.new_event_loop
            return chainapi("check", *options, session=Session, loop_factory=loop, tty=tty)

    return checked


def kinds(outcome: Outcome) -> set[str]:
    """Return the kinds of differences of an outcome."""
    return {row["kind"] for row in outcome.rows} - {"no answer"}


@pytest.mark.parametrize("settings", [UNITS, {"limit": 1_000_000}])
def test_a_service_as_documented_has_no_differences(check: Any, settings: dict[str, Any]) -> None:
    """Each route is requested once, those without an example are named, and the exit code is 0."""
    simulator = Simulator(rows=30, points=30, **settings)
    outcome = check(simulator)
    silent = {name: row["what"] for row in outcome.rows for name in row["routes"]}
    assert (outcome.code, kinds(outcome)) == (0, set())
    assert f"{len(ROUTES) - len(silent)} routes answered, {len(silent)} did not; no diff" in outcome.err
    assert len(silent) < 10
    asked = len(ROUTES) - sum("not requested" in why for why in silent.values())
    assert simulator.stats.requests == asked + 2  # and an unknown chain of each service
    assert "--param queries=VALUE" in silent["metrics.looking_glass.composite_query"]


def test_differences_of_rows_are_found(check: Any) -> None:
    """Unknown fields and values, missing fields and other types are listed with their routes."""
    odd = Anomalies(malformed=0.2, unknown_fields=0.5, unknown_values=0.5)
    outcome = check(Simulator(rows=60, anomalies=odd, **UNITS), "data.")
    assert outcome.code == FAILED
    assert kinds(outcome) == {"unknown field", "unknown value", "unknown kind", "missing field", "type"}
    fields = [row for row in outcome.rows if row["kind"] == "unknown field" and "EvmBlock." in row["what"]]
    assert any("data.evm.blocks" in row["routes"] for row in fields)
    table = check(Simulator(rows=60, anomalies=odd, **UNITS), "data.evm.blocks", tty=True)
    assert any(line.split()[:1] == ["kind"] for line in plain(table.out))
    assert "data.evm.blocks" in table.out


CHAIN_BODY = Simulator().rows_of("/v1/chains")[0]
LIMITS = {"ratelimit-policy": "9;w=60", "ratelimit-limit": "9"}


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ({"body": b'{"chainName": 7}'}, ("type", "$.chainName: Expected `str | null`", "")),
        ({"headers": LIMITS}, ("header", "ratelimit-remaining: missing", "")),
        ({"headers": {**LIMITS, "ratelimit-remaining": "5"}}, ("weight", "999994 units, documented 1", "")),
        ({}, ("error", "an unknown chain is no error", "")),
        ({"status": 404, "body": b"<html>"}, ("error", "message in the body of an error: missing", "")),
        (
            {"status": 404, "body": b'{"message": ["no"], "error": "Not Found", "statusCode": 400}'},
            ("error", "statusCode in the body of an error: another value", ""),
        ),
    ],
)
def test_differences_of_responses_are_found(
    check: Any, fault: dict[str, Any], found: tuple[str, str, str]
) -> None:
    """Headers, prices and bodies of errors that differ are listed."""
    fault = {"status": 200, "body": json.dumps(CHAIN_BODY).encode(), **fault}
    outcome = check(Simulator(faults=[Fault(route="data.chain", **fault)], **UNITS), "data.chain")
    kind, begin, end = found
    assert outcome.code == FAILED
    assert [
        row["routes"]
        for row in outcome.rows
        if row["kind"] == kind and row["what"].startswith(begin) and row["what"].endswith(end)
    ][:1] == [["data.chain"]]


def test_a_refusal_is_no_difference(check: Any) -> None:
    """A route that refuses its example is listed in the service's words; without any answer the code is 1."""
    refused = Fault(route="data.evm.blocks", status=403, messages=("not in your plan",))
    outcome = check(Simulator(faults=[refused], **UNITS), "data.evm.blocks")
    assert (outcome.code, kinds(outcome)) == (0, set())
    [row] = outcome.rows
    assert row["routes"] == ["data.evm.blocks"]
    assert "403 Forbidden" in row["what"]
    assert "not in your plan" in row["what"]
    assert check(Simulator(faults=[refused], **UNITS), "data.evm.blocks", "--param", "chain_id=7").code == 0
    assert check(Simulator(faults=[refused]), "data.evm.blocks_").code == FAILED  # no headers of limits
    assert check(Simulator(faults=[refused]), "no.route").code == WRONG_USAGE


def test_a_recording_is_played_by_a_test(check: Any, tmp_path: Path) -> None:
    """--record keeps the answers for a Player, without the key and without answers about the account."""
    file = tmp_path / "check.jsonl"
    simulator = Simulator(rows=30, points=30, api_key="secret-key-of-mine", **UNITS)
    assert check(simulator, "--record", str(file)).code == 0
    text = file.read_text("utf-8")
    assert "secret-key-of-mine" not in text
    assert "/v1/webhooks" not in text
    assert "/v1/apiUsageMetrics" not in text

    async def play() -> int:
        async with Player(file).session() as session:
            page = await anext(session.data.evm.blocks(43114, page_size=25))
            return len(page)

    assert run(play()) == 25
