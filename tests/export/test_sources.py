"""Sources of an export: equal and colliding ones, refused arguments, arguments that may change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chainapi import Pages, Session
from chainapi.errors import ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import ExportResult, export
from chainapi.simulator import Simulator
from tests.export.growing import rows_in
from tests.ledger import ADDRESS
from tests.sessions import simulated

BLOCKS = "/v1/chains/1/blocks"


def sources_in(path: Path) -> Counter[str]:
    """Count the rows of a file by source."""
    return Counter(row["source"] for row in rows_in(path))


# Labels


async def test_sources_with_one_label_are_told_apart(tmp_path: Path) -> None:
    """Different lists with equal labels are all there, also in another order and in later runs."""
    simulator, path = Simulator(chains=(1, 2), rows=30), tmp_path / "b.jsonl"
    async with simulated(simulator) as session:

        def walk(*parts: str) -> Pages[Any]:
            return session.data.list(f"/v1/chains/{len(parts[0])}/blocks")

        labels = [("a", "/b/c"), ("a/", "b/c")]  # "a//b/c" both
        await export(walk, labels, path, limit=10)
        found = sources_in(path)
        assert [*found.values()] == [10, 10]
        assert min(found, key=len) == "a//b/c"
        assert max(found, key=len).startswith("a//b/c~")
        requests = simulator.stats.requests
        result = await export(walk, reversed(labels), path, limit=10)
        assert (result.rows, result.sources) == (0, 2)
        assert simulator.stats.requests == requests
    by_source = {row["source"]: row["blockNumber"][:5] for row in rows_in(path)}
    assert len(set(by_source.values())) == 2


async def test_sources_with_one_query_are_one(tmp_path: Path) -> None:
    """A number and its text, and positional and named arguments, are the same list."""
    simulator, path = Simulator(chains=(1,), rows=30), tmp_path / "b.jsonl"
    async with simulated(simulator) as session:
        over = [1, "1", {"chain_id": 1}, (1,), {"chain_id": "1", "page_size": 7}]
        result = await export(session.data.evm.blocks, over, path)
        assert result.sources == 1
        again = await export(session.data.evm.blocks, ["1"], path)
    assert sources_in(path) == {"1": 30}
    assert again.rows == 0


# Arguments that the method refuses


@pytest.mark.parametrize(
    ("bad", "label"),
    [
        (None, "None"),
        ("", "all"),
        pytest.param(10**5000, "a number", id="large"),
        ((1, 2, 3, 4), "1/2/3/4"),
        ({"colour": "red"}, "red"),
    ],
)
async def test_a_refused_source_of_an_iterator_fails_alone(bad: Any, label: str, tmp_path: Path) -> None:
    """A source that comes late and is refused fails, and the others are in the file."""
    simulator, path = Simulator(chains=(1, 2), rows=30), tmp_path / "b.jsonl"

    async def sources() -> AsyncIterator[Any]:
        yield 1
        await asyncio.sleep(3_600)
        yield bad
        yield bad
        yield 2

    async with simulated(simulator) as session:
        with pytest.raises(IncompleteExportError, match="1 of 3 sources failed") as caught:
            await export(session.data.evm.blocks, sources(), path)
    assert [one[: len(label)] for one in caught.value.failures] == [label]
    assert all(isinstance(error, ConfigurationError) for error in caught.value.failures.values())
    assert sources_in(path) == {"1": 30, "2": 30}


# Arguments that may change


async def test_arguments_that_change_no_row_may_change(tmp_path: Path) -> None:
    """Page size, prefetch, priority, concurrency and the like do not make another export."""
    simulator, path = Simulator(chains=(1,), rows=30), tmp_path / "b.jsonl"
    changes: list[dict[str, Any]] = [
        {},
        {"page_size": 100},
        {"page_size": None, "prefetch": 2},
        {"priority": 3, "deadline": 60.0, "tag": "mine"},
        {"on_invalid": "raw"},
        {"concurrency": 1},
    ]
    async with simulated(simulator) as session:
        for change in changes:
            simulator.insert(BLOCKS, 5)
            result = await export(session.data.evm.blocks, [1], path, **change)
            assert result.rows == (35 if not change else 5)
    assert len({row["block_number"] for row in rows_in(path)}) == len(rows_in(path)) == 60


async def test_arguments_with_equal_values_in_the_query_are_equal(tmp_path: Path) -> None:
    """A number and its text, a time and its Unix seconds, and a default are the same argument."""
    simulator, path = Simulator(rows=30), tmp_path / "p.jsonl"
    day = datetime(2024, 1, 1, tzinfo=UTC)
    forms: list[dict[str, Any]] = [
        {"chain_id": 43114, "start_timestamp": day},
        {"chain_id": "43114", "start_timestamp": int(day.timestamp()), "end_timestamp": None},
    ]
    async with simulated(simulator) as session:
        for form in forms:
            await export(session.metrics.chains.metric, [{"metric": "activeAddresses"}], path, **form)
        other: dict[str, Any] = {"chain_id": 43114, "start_timestamp": 1_704_067_201}
        with pytest.raises(ExportError, match="start_timestamp was 1704067200, is 1704067201"):
            await export(session.metrics.chains.metric, [{"metric": "activeAddresses"}], path, **other)


async def test_another_address_is_another_export(tmp_path: Path) -> None:
    """The address of the service is a setting, and a parameter with its name is another one."""
    simulator, path = Simulator(rows=30), tmp_path / "b.jsonl"
    source = {"chain_id": 43114}

    async def run(session: Session, address: str) -> ExportResult:
        return await export(session.data.evm.native_transactions, [source], path, address=address)

    async with simulated(simulator) as session:
        assert (await run(session, ADDRESS)).rows == 30
        assert (await run(session, ADDRESS)).rows == 0
        with pytest.raises(ExportError, match=f"holds another export: address= was {ADDRESS}, is 0x2"):
            await run(session, "0x" + "22" * 20)
    async with simulated(simulator, data_base_url="https://elsewhere.test") as session:
        with pytest.raises(ExportError, match=r"export: address was https://.*, is https://elsewhere\.test"):
            await run(session, ADDRESS)


@pytest.mark.parametrize("name", ["address", "route", "columns", "options"])
async def test_a_parameter_of_a_path_may_have_the_name_of_a_setting(name: str, tmp_path: Path) -> None:
    """A list by its path takes parameters of any name; later runs compare them."""
    simulator, path = Simulator(chains=(1,), rows=30), tmp_path / "b.jsonl"
    query: dict[str, Any] = {name: "x"}
    async with simulated(simulator) as session:
        for rows in (30, 0):
            result = await export(session.data.list, [BLOCKS], path, **query)
            assert result.rows == rows
        with pytest.raises(ExportError, match=f"holds another export: {name}= was 'x', is left out"):
            await export(session.data.list, [BLOCKS], path)
