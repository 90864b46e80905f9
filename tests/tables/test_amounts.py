"""Forms of amounts, and values that no column holds: nothing is rounded, and the error says what to do."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from chainapi import MetricPoint
from chainapi.errors import ColumnValueError, ConfigurationError
from chainapi.models import AddressTransaction, Money, NativeTransaction
from tests.answers import exported, page_of, refused, table_of
from tests.documents import Maker

LARGE = 2**256 - 1


@frozen
class Inner:
    """A record in a row."""

    value: int | None = None
    ratio: Decimal | None = None


@frozen
class Row:
    """A row with a field of each type that may be too small."""

    height: int = 1
    value: int | None = None
    share: float = 0.5
    text: str = "x"
    inner: Inner | None = None
    inners: list[Inner | None] | None = None
    ratios: list[Decimal] | None = None


def body_of(*rows: Any) -> bytes:
    """Return a page of rows."""
    return json.dumps({"rows": rows}).encode()


def test_forms_of_amounts() -> None:
    """Amounts have the form of their choice, in records and in lists too."""
    for amounts, value, wanted in (
        ("text", LARGE, str(LARGE)),
        ("text", -(10**99), str(-(10**99))),
        ("decimal", 10**38 - 1, Decimal("9" * 38)),
        ("decimal", 1 - 10**38, Decimal("-" + "9" * 38)),
        ("float", 3, 3.0),
        ("float", LARGE, float(LARGE)),
    ):
        sent = {"value": str(value), "inner": {"value": value}, "inners": [None, {"value": value}]}
        for read in (table_of, lambda body, model, amounts: page_of(body, model).to_arrow(amounts=amounts)):
            row, other = read(body_of(sent, {}), Row, amounts=amounts).to_pylist()
            assert [row["value"], row["inner"]["value"], row["inners"][1]["value"]] == [wanted] * 3
            assert (row["height"], other["value"]) == (1, None)
    (price,) = table_of(body_of({"currencyCode": "usd", "value": "1E-7"}), Money).to_pylist()
    assert price["value"] == Decimal("1E-7")


MISFITS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("text", {"height": 2**63}, ".height", str(2**63), "at most 64 bits"),
    ("text", {"height": -(2**63) - 1}, ".height", str(-(2**63) - 1), "at most 64 bits"),
    ("decimal", {"value": 10**38}, ".value", str(10**38), 'amounts="text" holds every whole number'),
    ("decimal", {"inner": {"value": LARGE}}, ".inner.value", str(LARGE), 'amounts="text"'),
    ("decimal", {"inners": [None, {"value": LARGE}]}, ".inners[1].value", str(LARGE), "38 digits"),
    ("float", {"value": 10**400}, ".value", "more than 100 digits", 'amounts="text"'),
    ("text", {"inner": {"ratio": "1E+20"}}, ".inner.ratio", "E+20", "20 digits before"),
    ("text", {"ratios": [1, "1E-19"]}, ".ratios[1]", "1E-19", "18 after"),
]


def test_a_value_that_does_not_fit() -> None:
    """A value that its type cannot hold raises an error with the value, the row and the remedy."""
    for amounts, row, path, shown, remedy in MISFITS:
        error = refused(table_of, body_of({}, {}, row), Row, amounts=amounts)
        assert isinstance(error, ColumnValueError)
        assert (error.path, error.row) == (f"${path}", 2)
        assert shown in error.reason
        assert remedy in error.reason
        assert "The row is Row(" in error.reason
        assert 'on_invalid="raw"' in str(error)
        left = table_of(body_of({}, row, {}), Row, amounts=amounts, on_invalid="raw")
        assert left.num_rows == 2, "the row is left out"
    times = refused(table_of, body_of({"timestamp": 253402300800, "value": 1}), MetricPoint)
    assert (times.path, "years 1 to 9999" in str(times)) == ("$.timestamp", True)


def test_misfits_of_an_export(tmp_path: Path) -> None:
    """With ``on_invalid="raw"`` an export has the other rows, and the misfit with its error beside them."""
    for number, (amounts, row, path, _, remedy) in enumerate(MISFITS):
        options: dict[str, Any] = {"amounts": amounts, "on_invalid": "raw"}
        out = exported(body_of({}, row, {}), tmp_path / f"{number}.jsonl", Row, **options)
        assert len(out.read_text("utf-8").splitlines()) == 2
        (beside,) = [one for one in tmp_path.glob(f"{number}*") if "invalid" in one.name]
        invalid = json.loads(beside.read_text("utf-8"))
        assert (invalid["path"], remedy in invalid["error"]) == (f"${path}", True)


def test_a_value_in_a_column_whose_attribute_has_another_name() -> None:
    """The error names the column, such as ``from``, whose attribute is ``from_``."""
    for model, at in ((NativeTransaction, ()), (AddressTransaction, ("nativeTransaction",))):
        row = Maker(1, whole=True).record(model)
        inner = row
        for name in at:
            inner = inner[name]
        inner["from"] = {**inner["from"], "decimals": str(2**63)}
        error = refused(table_of, body_of(row), model)
        assert error.path == "$." + "".join("native_transaction." for _ in at) + "from.decimals"


def test_chosen_columns_alone_are_checked(tmp_path: Path) -> None:
    """An export of some columns has them in their order, and ignores a value that fits no other column."""
    body = body_of({"height": 2**70, "value": "7"})
    out = exported(body, tmp_path / "some.jsonl", Row, fields=["text", "value"])
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"source": "/v1/x", "text": "x", "value": "7"}
    ]


def test_choices_of_amounts() -> None:
    """Another form of amounts is refused, with the forms that there are."""
    with pytest.raises(ConfigurationError, match="amounts= must be one of text, decimal, float"):
        page_of(body_of({}), Row).to_arrow(amounts="bytes")  # type: ignore[arg-type]
