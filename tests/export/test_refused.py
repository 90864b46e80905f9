"""Calls that no export can carry out, and their errors before a request."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, TypedDict

import pytest

from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export import ParquetOptions, export
from chainapi.simulator import Simulator
from tests.export.buckets import bucket
from tests.export.growing import names_in
from tests.ledger import ADDRESS
from tests.sessions import simulated

SECRET = "hunt3r2-of-the-bucket"
NULL = "__HIVE_DEFAULT_PARTITION__"  # what readers take for null
Case = tuple[Mapping[str, Any], str]  # arguments that differ from `CALL`, and a pattern of the error


class Row(TypedDict):
    """Row of a class without columns."""

    blockHash: str


async def report(_: object) -> None:
    """Report nothing."""


def each(name: str, values: Iterable[Any], said: str = "", **more: Any) -> list[Case]:
    """Return a case for each value of an argument, which its error names."""
    return [({**more, name: value}, said or f"{name}=") for value in values]


CALL: Mapping[str, Any] = {"walk": attrgetter("data.evm.blocks"), "over": [43114], "out": "b.jsonl"}
PATHS: Mapping[str, Any] = {"walk": attrgetter("data.list"), "over": ["/v1/chains/43114/blocks"]}
POINTS: Mapping[str, Any] = {"walk": attrgetter("metrics.chains.metric"), "over": [(43114, "txCount")]}
NATIVE: Mapping[str, Any] = {"walk": attrgetter("data.evm.native_transactions"), "over": [(43114, ADDRESS)]}
ERC20: Mapping[str, Any] = {**NATIVE, "walk": attrgetter("data.evm.erc20_transactions")}
PLATFORM: Mapping[str, Any] = {"walk": attrgetter("data.primary_network.transactions")}
NAMED, TIMED = ("format", "amounts", "parquet", "compact"), ("commit_seconds", "wait")
LISTED = ("fields", "partition", "ranges", "lookback")
UNWRITABLE = "cannot be written: "

REFUSED: Mapping[str, tuple[type[Exception], Mapping[str, Any], Sequence[Case]]] = {
    "methods": (
        ConfigurationError,
        {},
        [
            ({"walk": walk}, f"walk= must be .*such as session.data.evm.blocks.* not .*{kind}")
            for walk, kind in (
                (lambda session: session.data.evm.blocks(1), "Pages"),
                (lambda _: "data.evm.blocks", "str"),
                (attrgetter("data.chain"), "coroutine"),
            )
        ],
    ),
    "sources": (
        ConfigurationError,
        {},
        [
            ({"over": []}, "over= has no source"),
            *each("over", ["43114", 43114, {"chain_id": 43114}], "over= must be a list of sources"),
            ({"over": "b.jsonl", "out": [43114]}, "the sources come before the path"),
            *each("over", [b"4", bytearray(b"4"), memoryview(b"4")], "over= must be a list of sources"),
            ({"over": [1, None, ""]}, "^source 'None' and 1 more: "),
        ],
    ),
    "a source among others": (
        ConfigurationError,
        {"out": "new/b.jsonl"},
        [
            ({"over": [1, bad, 2]}, "^source ")
            for bad in (None, "", "a b/c", "\udcff", 1.5, 10**5000, (1, 2, 3, 4), {"colour": "red"})
        ],
    ),
    "arguments": (
        ConfigurationError,
        {"out": "b/", "format": "parquet"},
        [
            *each("out", (5, None, b"b.jsonl", ["b.jsonl"]), "out=.* must be a path"),
            *each("storage_options", (5, "", [], SECRET, {1: SECRET}), out="memory://wrong/x/"),
            *each("storage_options", (5, [SECRET], 1.5)),
            *(one for name in NAMED for one in each(name, (5, [], {}, (), [1], "x"))),
            *(one for name in TIMED for one in each(name, ("x", [], True, -1, float("nan")))),
            *(one for name in LISTED for one in each(name, (1.5, "x", [1], {}))),
            *each("limit", (0, -1, True, "x", 1.5, [])),
            *each("concurrency", (0, "x", 1.5, [])),
            *each("progress", (5, "bar", [], report)),
            ({"page_size": 101}, "^page_size=101"),
            ({"resume": None}, "does not take resume="),
            ({"limt": 5}, "^export got an .* did you mean 'limit'"),
            ({"page_sise": 5}, "^export got an .* did you mean 'page_size'"),
        ],
    ),
    "types of targets": (ArgumentError, {}, each("out", (None, b"x.jsonl"), "must be a path")),
    "names": (
        ExportError,
        {},
        [
            ({"out": ""}, "'' cannot be written: the name is empty"),
            *each(
                "out", ["x" * 300 + ".jsonl", "x" * 300, "a\0b.jsonl", "a\0b", "a\udcff.jsonl"], UNWRITABLE
            ),
            ({"out": "x" * 246 + ".jsonl"}, UNWRITABLE),  # the name of the log is too long
            ({"out": "x" * 236 + ".duckdb"}, UNWRITABLE),  # that of the log of DuckDB
            ({"out": "x" * 238 + ".parquet"}, UNWRITABLE),  # that of the hidden file of invalid rows
            *each("out", [f"{__file__}/b.jsonl", Path("/proc/b.jsonl"), "\udcff/"], UNWRITABLE),
            *each("out", ["bucket://b/nul\0/", "bucket://b/half\udc80/"], f"{UNWRITABLE}.*; choose another"),
        ],
    ),
    "URLs": (
        ConfigurationError,
        {},
        [
            ({"out": "x/", "storage_options": {"key": SECRET}}, "storage_options= apply to a URL"),
            ({"out": "nowhere://b/x/"}, "nowhere://b/x cannot be opened by fsspec"),
            ({"out": "zip://x/::bucket://b/x.zip"}, "is a chain of file systems"),
            ({"out": f"zip://x/::ftp://me:{SECRET}@b/x.zip"}, "zip://x/::ftp://b/x.zip is a chain"),
            ({"out": f"bucket://me:{SECRET}@b/x/"}, "bucket://b/x/ was given with a password or a query"),
            ({"out": f"bucket://:{SECRET}@b"}, "bucket://b was given with a password or a query"),
            ({"out": f"bucket://b/x/?sig={SECRET}"}, "bucket://b/x/ was given with a password or a query"),
            (
                {"out": f"bucket://b/x.csv?sig={SECRET}"},
                "bucket://b/x.csv was given with a password or a query",
            ),
            (
                {"out": "bucket://b/x.csv"},
                "an object of a URL cannot grow: name a folder, such as bucket://b/x/",
            ),
            ({"out": "bucket://b/x.PARQUET"}, "or export to a local file and upload that"),
            ({"out": "bucket://b/x/", "format": "sqlite"}, "is a format of one file, and bucket://b/x is a"),
            ({"out": Path("bucket://b/x/")}, "'bucket:/b/x' is a URL that lacks a slash: give a string"),
            ({"out": "s3:/b/x.jsonl"}, "is a URL that lacks a slash"),
        ],
    ),
    "formats": (
        ConfigurationError,
        {},
        each("out", ("rows.xlsx", "b.gz", "b.parquet.gz"), "choose one of jsonl, .*csv, .*parquet"),
    ),
    "options of other formats": (
        ConfigurationError,
        {"parquet": ParquetOptions()},
        each("out", ("b.csv", "b.jsonl.zst", "b.duckdb", "f/"), "apply to Parquet, and the files are "),
    ),
    "rows without columns": (
        ConfigurationError,
        PATHS,
        [
            ({"out": f"b.{name}", "model": model}, "with an attrs class, a dataclass or a Struct, or")
            for name in ("csv", "parquet", "sqlite", "duckdb")
            for model in (None, Row)
        ],
    ),
    "columns": (
        ConfigurationError,
        {},
        [
            ({"fields": ["block_numbr"]}, "'block_numbr' is no column; the nearest are 'block_number'"),
            ({"fields": ["blockNumber"]}, "'blockNumber' is no column; the nearest are 'block_number'"),
            ({"fields": ["qqq"]}, "'qqq' is no column; choose from 'chain_id', 'block_number', "),
            ({"fields": ["source", "tx_count"]}, "'source' is always the first column: leave it out"),
            ({"fields": ["tx_count", "gas_used", "tx_count"]}, "fields= has 'tx_count' twice"),
            ({"fields": []}, "fields= has no column name"),
            ({"fields": "tx_count"}, "fields= must be a list of column names, not 'tx_count'"),
            ({"fields": 7}, "fields= must be a list of column names, not 7"),
            ({"fields": [7]}, "fields= must have column names, not 7"),
            (
                {**NATIVE, "fields": ["from.address"]},
                "'from.address' is inside of a column: choose 'from' as",
            ),
            ({**PATHS, "fields": ["blockHash"]}, "these rows have no columns; leave it out"),
        ],
    ),
    "partitions": (
        ConfigurationError,
        {"out": "b", "partition": ["day"]},
        [
            ({"partition": "day"}, "partition= must be a list of keys, not 'day'"),
            (
                {"partition": ["source", "week"]},
                "'week', which is no key: choose from source, year, month, day",
            ),
            ({"partition": []}, "partition= has no key: leave it out"),
            ({"partition": ["day", "day"]}, "partition= has 'day' twice"),
            ({"out": "b.jsonl"}, r"applies to a folder, and .*b\.jsonl is a file"),
            ({"format": "sqlite"}, "format='sqlite' is a format of one file"),
            (
                {"fields": ["gas_used"]},
                "'day', which needs the time of each row: add 'block_timestamp' to fields=",
            ),
            (
                {"walk": attrgetter("data.chains"), "over": [{}]},
                "time of each row: they have none; leave the key",
            ),
            (PATHS, "these rows have no columns; name a route"),
        ],
    ),
    "partitions by source": (
        ConfigurationError,
        {"out": "b", "partition": ["source"]},
        [
            ({"format": "csv", "fields": ["gas_used"]}, "a row without a value would be an empty line"),
            ({**PATHS, "over": ["/v1/chains?" + "x" * 200]}, "is too long for the name of a folder"),
            ({**PATHS, "over": [NULL]}, "readers of partitions take for null"),
        ],
    ),
    "lookbacks": (
        ConfigurationError,
        {"lookback": "1d"},
        [
            ({"lookback": "100 blocks"}, 'ordered by block_timestamp, in seconds: .*"1d"'),
            (NATIVE, 'ordered by block_number, in blocks: .*"100 blocks"'),
            ({**NATIVE, "lookback": timedelta(days=1)}, "in blocks"),
            (
                {**NATIVE, "walk": attrgetter("data.nfts.tokens")},
                "does not apply to this list: its rows have no",
            ),
            *(
                ({"lookback": one}, f"lookback={one!r:.6}.* must be a distance above 0")
                for one in ("soon", "1 fortnight", "9" * 5_000 + "d", 0, True, 1.5)
            ),
            (
                {**POINTS, "out": "b.csv", "fields": ["value"]},
                "by the column timestamp, which the files lack",
            ),
        ],
    ),
    "ranges": (
        ArgumentError,
        ERC20,
        each(
            "ranges",
            (0, -1, True, 1.5, "", "x", "1.5", "7 years", "1.5 days", "0 days", "-3", b"8", "9" * 5_000),
            "^ranges=.* must be a number of ranges, such as 8, or ",
        ),
    ),
    "lists without ranges": (
        ConfigurationError,
        {"ranges": 8},
        [
            ({}, "cannot be split into ranges"),
            ({**PLATFORM, "over": [("mainnet", "p-chain")]}, "with addresses= only"),
            ({**ERC20, "ranges": "7 days"}, "days do not fit"),
            ({**ERC20, "limit": 5}, "ranges= does not apply with a limit"),
            ({**POINTS, "over": [43114], "metric": "txCount"}, "pass start_timestamp="),
        ],
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_is_wrong_is_named_before_a_request(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export refuses what it cannot do before it sends or creates anything.

    The error names what is wrong, and shows no secret.
    """
    monkeypatch.chdir(tmp_path)
    expected, more, cases = REFUSED[kind]
    simulator, failures = Simulator(), list[str]()
    with bucket() as objects:
        async with simulated(simulator) as session:
            for number, (given, said) in enumerate(cases):
                call = {**CALL, **more, **given}
                walk, over, out = call.pop("walk"), call.pop("over"), call.pop("out")
                try:
                    await export(walk(session), over, out, **call)
                except expected as error:
                    shown = "".join(traceback.format_exception(error))
                    made = [*names_in(tmp_path), *objects.objects()]
                    if re.search(said, str(error)) is None or SECRET in shown or made:
                        failures.append(f"{number}, {said}: {error}, {made}")
                else:
                    failures.append(f"{number}, {said}: was taken")
    assert failures == []
    assert simulator.stats.requests == 0
