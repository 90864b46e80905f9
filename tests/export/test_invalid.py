"""Exports of invalid rows: each once, after every kind of stop."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import Factory, define

from chainapi import Session
from chainapi.errors import ColumnValueError, DecodeError, IncompleteExportError
from chainapi.export import export
from chainapi.models import EvmBlock
from chainapi.transport import Request, Response, Transport
from tests.documents import DEEP
from tests.export.contract import read
from tests.models.lists import ListService
from tests.models.test_invalid import block

FIRST = 100  # number of the newest block


def invalid_block(number: int) -> bytes:
    """Return a block that does not fit its model."""
    return block(number, gasUsed="", ratio=...).replace(
        b'"gasUsed"', b'"ratio":0.12345678901234567890,"gasUsed"'
    )


def blocks(rows: Sequence[bytes]) -> ListService:
    """Return a service with one list of blocks, 4 on a page."""
    return ListService([*rows], 4, "blocks", "position")


@define
class Chains(ListService):
    """Chains of 20 blocks, every seventh invalid; `more` are added at their heads."""

    rows: list[bytes] = Factory(list[bytes])
    size: int = 4
    items: str = "blocks"
    by: Literal["row", "position"] = "position"
    more: int = 0

    async def send(self, request: Request) -> Response:
        """Return a page of a chain."""
        newest = FIRST + self.more
        self.rows = [
            invalid_block(number) if number % 7 == 0 else block(number)
            for number in range(newest, FIRST - 20, -1)
        ]
        return await super().send(request)


CHAINS = (1, 2, 3)
EXPECTED = Counter((str(chain), number) for chain in CHAINS for number in range(FIRST, FIRST - 20, -1))


def session_of(chains: Transport) -> Session:
    """Return a session of these chains."""
    return Session(data_base_url="https://data.invalid", api_key="key", transport=chains)


def made_in(folder: Path, format_: str) -> Counter[tuple[str, int]]:
    """Count the blocks of the final files by chain and number."""
    return Counter(
        (str(row["source"]), int(row["block_number"]))
        for file in folder.glob(f"*.{format_}")
        for row in read(file, format_)
    )


def invalid_in(folder: Path) -> list[dict[str, Any]]:
    """Return the invalid rows of the files beside the others, or of the table of a database."""
    found = [
        {**json.loads(line, parse_float=Decimal), "file": file.name}
        for file in sorted([*folder.glob("*.invalid"), *folder.glob("_invalid-*.ndjson")])
        for line in file.read_text().splitlines()
    ]
    for path in folder.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT source, path, error, row FROM invalid").fetchall()
        for source, where, error, row in rows:
            made = json.loads(row, parse_float=Decimal)
            found.append({"source": source, "path": where, "error": error, "row": made, "file": "invalid"})
    return found


def numbers(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """Count invalid rows by chain and number."""
    return Counter((row["source"], row["row"]["blockNumber"]) for row in rows)


@pytest.mark.parametrize(
    ("name", "format_", "invalid"),
    [
        ("b.csv", "csv", "b.csv.invalid"),
        ("b.parquet", "parquet", "b.parquet.invalid"),
        ("b.sqlite", "sqlite", None),
        ("", "jsonl", "_invalid-00000001.ndjson"),
    ],
)
async def test_invalid_rows_are_in_a_place_of_their_own(
    name: str, format_: str, invalid: str | None, tmp_path: Path
) -> None:
    """Invalid rows are beside the others, each once: in a file, or in the table of a database."""
    out = tmp_path / name
    chains = Chains()
    progress: list[tuple[int, int]] = []

    def note(seen: Any) -> None:
        progress.append((seen.rows, seen.invalid))

    async with session_of(chains) as session:
        walk = session.data.evm.blocks
        options: Any = {"format": format_, "page_size": 4, "on_invalid": "raw"}
        result = await export(walk, CHAINS, out, progress=note, **options)
        assert (result.rows, result.invalid) == (3 * 17, 3 * 3) == progress[-1]
        assert result.written_invalid == (() if invalid is None else (tmp_path / invalid,))
        again = await export(walk, CHAINS, out, **options)
        assert (again.rows, again.invalid, again.written_invalid) == (0, 0, ())
    rows = invalid_in(tmp_path)
    assert made_in(tmp_path, format_) + numbers(rows) == EXPECTED
    assert Counter(row["source"] for row in rows) == dict.fromkeys("123", 3)
    row = rows[0]
    assert set(row) == {"source", "path", "error", "row", "file"}
    assert (row["path"], row["error"]) == ("$.blocks[2].gasUsed", "Expected `int`, got `str`")
    assert row["row"]["ratio"] == Decimal("0.12345678901234567890")


async def test_an_export_continues_where_an_invalid_row_stopped_it(tmp_path: Path) -> None:
    """A run with on_invalid="raw", as the error advises, completes the rows."""
    chains = Chains()
    async with session_of(chains) as session:
        with pytest.raises(IncompleteExportError) as caught:
            await export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl", page_size=4)
        failure = caught.value.failures["1"]
        assert isinstance(failure, DecodeError)
        assert failure.checkpoint is not None
        advice = 'started again with on_invalid="raw", the export keeps such rows apart from the others'
        assert str(failure).endswith(f"; {advice}")
        assert "resume=" not in str(caught.value)
        await export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl", page_size=4, on_invalid="raw")
    assert made_in(tmp_path, "jsonl") + numbers(invalid_in(tmp_path)) == EXPECTED


class Misfits(Chains):
    """Chains of valid blocks; the tenth one of chain 2 has a fee that 256 bits do not hold."""

    async def send(self, request: Request) -> Response:
        """Return a page of a chain."""
        self.rows = [block(number) for number in range(FIRST, FIRST - 20, -1)]
        if "/2/" in request.url:
            self.rows[9] = block(FIRST - 9, feesSpent=str(2**256))
        return await ListService.send(self, request)


@pytest.mark.parametrize(("shape", "ordered", "prefetch"), [("file", True, 3), ("folder", False, 0)])
async def test_a_value_that_does_not_fit_fails_its_source_alone(
    shape: str, ordered: bool, prefetch: int, tmp_path: Path
) -> None:
    """The other sources are complete, and the failed one keeps the pages before the value."""
    out = tmp_path if shape == "folder" else tmp_path / "b.jsonl"
    paths = [f"/v1/chains/{chain}/blocks" for chain in CHAINS]
    options: Any = {"format": "jsonl", "page_size": 4, "amounts": "decimal", "prefetch": prefetch}

    async def run(**more: Any) -> Any:
        if ordered:
            return await export(session.data.evm.blocks, CHAINS, out, **options, **more)
        return await export(session.data.list, paths, out, model=EvmBlock, **options, **more)

    async with session_of(Misfits()) as session:
        with pytest.raises(IncompleteExportError) as caught:
            await run()
        ((label, failure),) = caught.value.failures.items()
        assert label == ("2" if ordered else paths[1])
        assert isinstance(failure, ColumnValueError)
        assert str(failure).startswith(f"$.fees_spent: {2**256} does not fit its column")
        for said in ('amounts="text" holds every whole number', "The row is EvmBlock(", 'on_invalid="raw"'):
            assert said in str(failure)
        counts = Counter(source for source, _ in made_in(tmp_path, "jsonl"))
        assert [*counts.values()] == [20, 8, 20]
        result = await run(on_invalid="raw")
    assert (result.rows, result.invalid) == (11, 1)
    found = Counter(number for _, number in made_in(tmp_path, "jsonl"))
    assert found == Counter({number: 2 if number == FIRST - 9 else 3 for _, number in EXPECTED})


class Restarting:
    """List whose page token dies, and whose first page then has a row more, with a fee that does not fit."""

    def __init__(self) -> None:
        self.newest = [block(FIRST), block(FIRST - 1)]

    async def send(self, request: Request) -> Response:
        """Return the first page, or refuse the token."""
        if "pageToken" in request.url:
            self.newest.append(block(FIRST - 2, feesSpent=str(2**256)))
            return Response(400, {}, b"{}")
        token = b',"nextPageToken":"t"' if len(self.newest) == 2 else b""
        return Response(200, {}, b'{"blocks":[%b]%b}' % (b",".join(self.newest), token))

    async def aclose(self) -> None:
        """Hold nothing."""


@pytest.mark.parametrize("ordered", [True, False])
async def test_row_of_a_misfit_is_its_index_in_the_page(ordered: bool, tmp_path: Path) -> None:
    """Rows of the page that the export has already are counted too."""
    async with session_of(Restarting()) as session:
        walk: Any = session.data.evm.blocks if ordered else partial(session.data.list, model=EvmBlock)
        with pytest.raises(IncompleteExportError) as caught:
            await export(walk, [43114 if ordered else "/v1/x"], tmp_path / "b.jsonl", amounts="decimal")
    (failure,) = caught.value.failures.values()
    assert isinstance(failure, ColumnValueError)
    assert failure.row == 2


@pytest.mark.parametrize("shape", ["file", "folder"])
async def test_invalid_rows_of_later_runs_follow(shape: str, tmp_path: Path) -> None:
    """New invalid rows are added to the earlier ones, or to a new file; a file may be taken away."""
    chains = Chains()
    out = tmp_path if shape == "folder" else tmp_path / "b.jsonl"
    async with session_of(chains) as session:
        options: Any = {"format": "jsonl", "page_size": 4, "on_invalid": "raw"}
        await export(session.data.evm.blocks, CHAINS, out, **options)
        chains.more = 10
        result = await export(session.data.evm.blocks, CHAINS, out, **options)
        assert result.rows + result.invalid == 30
        rows = invalid_in(tmp_path)
        assert len({row["file"] for row in rows}) == (1 if shape == "file" else 2)
        new = Counter((str(chain), FIRST + more) for chain in CHAINS for more in range(1, 11))
        assert made_in(tmp_path, "jsonl") + numbers(rows) == EXPECTED + new
        for row in rows:
            (tmp_path / row["file"]).unlink(missing_ok=True)
        chains.more = 20
        result = await export(session.data.evm.blocks, CHAINS, out, **options)
    assert len(invalid_in(tmp_path)) == result.invalid > 0


async def test_an_export_of_invalid_rows_alone(tmp_path: Path) -> None:
    """An export of invalid rows alone writes an empty final file."""
    served = blocks([invalid_block(number) for number in range(10)])
    async with session_of(served) as session:
        result = await export(
            session.data.evm.blocks, [1], tmp_path / "b.jsonl", page_size=4, on_invalid="raw"
        )
    assert (result.rows, result.invalid) == (0, 10)
    assert (tmp_path / "b.jsonl").read_bytes() == b""
    assert [row["row"]["blockNumber"] for row in invalid_in(tmp_path)] == [*range(10)]


async def test_rows_without_a_model_may_be_invalid(tmp_path: Path) -> None:
    """A row without a model that cannot be parsed is kept as a string."""
    served = blocks([b'{"n":1}', b'{"n":"\\ud800"}', b"[" * DEEP + b"]" * DEEP, b'{"n":2}'])
    async with session_of(served) as session:
        await export(session.data.list, ["/v1/rows"], tmp_path / "b.jsonl", items="blocks", on_invalid="raw")
    lines = (tmp_path / "b.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, 2]
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl.invalid").read_text().splitlines()]
    assert [row["row"] for row in rows] == [{"n": "\ud800"}, "[" * DEEP + "]" * DEEP]


# Bytes that are not UTF-8, in a field that the model does not name


def served(field: bytes) -> ListService:
    """Return a service with ten blocks, the sixth with one more field."""
    rows = [block(FIRST - place) for place in range(10)]
    return blocks([*rows[:5], rows[5][:-1] + b"," + field + b"}", *rows[6:]])


@pytest.mark.parametrize("field", [b'"more":"a\xffb"', b'"more":{"\xff":["\xff"]}', b'"mo\xffre":1'])
async def test_bytes_that_are_not_utf_8_are_a_fault_of_their_row(field: bytes, tmp_path: Path) -> None:
    """The source fails at the row; the rows before it are kept, and all others can be had."""
    async with session_of(served(field)) as session:
        walk, out = session.data.evm.blocks, tmp_path / "b.jsonl"
        with pytest.raises(IncompleteExportError) as failed:
            await export(walk, [1], out, page_size=4)
        assert isinstance(failed.value.failures["1"], DecodeError)
        result = await export(walk, [1], out, page_size=4, on_invalid="raw")
    assert (result.rows, result.invalid) == (5, 1)  # four are there from the first run
    assert made_in(tmp_path, "jsonl").total() == 9
    (row,) = invalid_in(tmp_path)
    assert "\ufffd" in json.dumps(row["row"], ensure_ascii=False)
