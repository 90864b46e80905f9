"""Rows of files with the kinds of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainapi.export.formats import Format
from chainapi.tables.columns import Column

__all__ = ["typed_rows"]


def typed_rows(form: Format, path: Path, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return the rows of a file with the kinds of these columns."""
    return [form.typed(row, columns) for row in form.read(path)]
