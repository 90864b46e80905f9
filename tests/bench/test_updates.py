"""Measurement of updates of one file."""

from __future__ import annotations

import re

import pytest

from tests.bench.updates import main


def test_an_update_writes_fewer_bytes_than_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has a line for the file and one for the update, which writes less where rows are added."""
    main(["jsonl", "sqlite", "parquet", "--rows", "3000", "--new", "100"])
    found = re.findall(r"(\w+), ([\d,]+) (rows|more) +([\d.]+) MB written", capsys.readouterr().out)
    assert [(name, rows) for name, rows, *_ in found] == [
        (name, rows) for name in ("jsonl", "sqlite", "parquet") for rows in ("3,000", "100")
    ]
    assert all(float(new[3]) <= float(old[3]) for old, new in zip(found[0:4:2], found[1:4:2], strict=True))
