"""Settings of an export: those of its target, and their comparison with new ones.

What a run leaves out of the form of its files (format, partition, columns, amounts, compression) is that of
the target. What chooses rows (route, parameters, limit) has to be given again: left out, it means all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainapi.errors import ExportError
from chainapi.export.database import Database
from chainapi.export.formats import name_of
from chainapi.export.integrity import checksum, damaged
from chainapi.tables.columns import changes

if TYPE_CHECKING:
    from chainapi.export.formats import Compression

__all__ = [
    "COLUMNS",
    "HAS_PAGES",
    "JOURNAL",
    "OPTIONS",
    "compare_settings",
    "format_name_of",
    "options_again",
    "settings_in",
]

JOURNAL = "journal"  # name of the database in the folder of a journal
COLUMNS = "columns"  # the setting with the names and kinds of the columns
FOLDER_FORMAT = "jsonl"  # of files in a folder whose name has no suffix of a format
OPTIONS = "options"  # the setting with the compression of the files, which each run may change
# Whether a journal has a page. The ranges of a source have checkpoints before their first pages.
HAS_PAGES = (
    "SELECT EXISTS (SELECT 1 FROM sources WHERE place = 0 AND checkpoint IS NOT NULL)"
    " OR EXISTS (SELECT 1 FROM pages) OR EXISTS (SELECT 1 FROM parts)"
)


def settings_in(journal: Path) -> Mapping[str, Any]:
    """Return the settings of the export with a journal.

    They are empty without a journal, and before the first page: such an export may be begun in another way.
    They are also empty where a link is in place of a file: `Target.prepare` refuses it.

    Args:
        journal: folder of the journal.

    Raises:
        ExportError: another export has the journal open, it is damaged, or it is of another version.

    """
    path = journal / JOURNAL
    log = path.with_name(f"{JOURNAL}-wal")
    if path.is_symlink() or log.is_symlink() or not path.is_file():
        return {}
    database = Database.open(path, check=False)
    try:
        with database.reading() as db:
            (begun,) = db.execute(HAS_PAGES).fetchone()
            found = db.execute("SELECT name, value, checksum FROM about").fetchall() if begun else ()
            if wrong := [name for name, value, stored in found if stored != checksum(name, value)]:
                raise ExportError(damaged(path, f"a record of about: {wrong[0]!r}"))
            return {name: json.loads(value) for name, value, _ in found}
    finally:
        database.close()


def format_name_of(
    address: object, given: str | None, stored: Mapping[str, Any], name: str, *, folder: bool
) -> str:
    """Return the name of the format of a target, or a path that has it as its suffix.

    Args:
        address: path or URL of the target.
        given: name that the caller has given; None for that of the target.
        stored: settings of the export that the target holds.
        name: last part of the address; its suffix names the format of a new target.
        folder: whether the target is a folder, which needs no suffix.

    Raises:
        ExportError: the target has files of another format.

    """
    if not stored:
        return given or ((name_of(name) or FOLDER_FORMAT) if folder else name)
    compare_settings(str(address), {"format": stored["format"]}, {"format": given or stored["format"]})
    return str(stored["format"])


def options_again(
    stored: Mapping[str, Any], compression: Compression | None, level: int | None
) -> tuple[Compression | None, int | None]:
    """Return the compression and its level of a run.

    Those of the target are the defaults; the level belongs to its compression.
    """
    old = stored.get(OPTIONS, {})
    if compression not in (None, old.get("compression")):
        return compression, level
    return old.get("compression"), old.get("compression_level") if level is None else level


def compare_settings(target: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to continue the export in `target` with other settings.

    Raises:
        ExportError: they differ; the message names each of them.

    """
    differences = [
        f"{_argument(name)} was {_value(old.get(name))}, is {_value(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if name not in (COLUMNS, OPTIONS) and old.get(name) != new.get(name)
    ]
    # A column that the rows gained is no other export.
    differences = differences or changes(old.get(COLUMNS, {}), new.get(COLUMNS, {}))
    if differences:
        raise ExportError(
            f"{target} holds another export: {'; '.join(differences)}. Use the same settings, or choose "
            "another target"
        )


def _argument(setting: str) -> str:
    """Return a setting as an argument of `export`; one without an argument as it is."""
    return f"{setting}=" if setting in ("amounts", "fields", "format", "limit", "partition") else setting


def _value(value: object) -> str:
    if value is None:
        return "left out"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
