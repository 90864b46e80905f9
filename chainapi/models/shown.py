"""Descriptions of rows and of lists of rows in one line, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from chainapi.models.schema import fields_of, is_record
from chainapi.models.timestamps import utc_datetime
from chainapi.models.unions import RawRow

__all__ = ["described", "shown"]

WIDTH = 96  # characters of a row
LONGEST = 20  # characters of a string in a row


def shown(record: Any, width: int = WIDTH) -> str:
    """Return the class of a record, and the first fields that fit into `width`.

    Missing fields and those that no repr may show are left out.
    """
    kind: Any = type(record)
    parts, length = list[str](), len(kind.__name__)
    for field in fields_of(kind):
        value = getattr(record, field.name, None)
        if value is None or not field.shown:
            continue
        part = f"{field.name}={_brief(value)}"
        length += len(part) + 2
        if length > width:
            parts.append("...")
            break
        parts.append(part)
    return f"{kind.__name__}({', '.join(parts)})"


def described(rows: Sequence[Any]) -> str:
    """Return number and class of rows, and time or key of the first and the last."""
    if not rows:
        return "0 rows"
    kind = "" if isinstance(rows[0], dict | str) else f"{_cut(type(rows[0]).__name__, 24)} "
    count = f"{len(rows):,} {kind}{'row' if len(rows) == 1 else 'rows'}"
    ends = [_label(row) for row in (rows[:1] if len(rows) == 1 else (rows[0], rows[-1]))]
    return ", ".join([count, " to ".join(ends)])


def _label(row: Any) -> str:
    """Return the time of a row, or the first of its values."""
    values = list(_values(row))
    for _, value, timestamp in values:
        if timestamp and type(value) is int:
            with suppress(ValueError):
                return f"{utc_datetime(value):%Y-%m-%d %H:%M:%S}"
    first = next((value for _, value, _ in values if value is not None), row)
    return _cut(first, LONGEST) if isinstance(first, str) else _brief(first)


def _values(row: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield name and value of each field of a row, and whether it is a timestamp.

    Fields that no repr may show are left out.
    """
    raw = row.raw if isinstance(row, RawRow) else row
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            yield name, value, str(name).lower().endswith("timestamp")
    for field in fields_of(type(raw)):
        if field.shown:
            yield field.name, getattr(row, field.name, None), field.timestamp


def _brief(value: Any) -> str:
    """Return a value in a few characters."""
    if is_record(type(value)):
        return f"{type(value).__name__}(...)"
    if isinstance(value, list | tuple | dict):
        return f"<{len(value)} {'entry' if len(value) == 1 else 'entries'}>" if value else repr(value)
    return repr(_cut(value, LONGEST)) if isinstance(value, str) else _cut(str(value), 2 * LONGEST)


def _cut(text: str, most: int) -> str:
    """Return a string, or its beginning and end if it is long."""
    return text if len(text) <= most else f"{text[: most - 8]}...{text[-5:]}"
