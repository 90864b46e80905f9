"""Target of an export: a local file or folder, and the names of its files."""

from __future__ import annotations

import glob
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from attrs import field, frozen

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.files import os_errors_explained, partial_of, refuse_link
from chainapi.export.formats import format_of, log_beside
from chainapi.export.settings import JOURNAL, format_name_of, settings_in

if TYPE_CHECKING:
    from chainapi.export.formats import Format

__all__ = ["ABOUT", "Target", "is_utf_8", "refuse_name"]

# File in the folder of the journal of a URL: the address of the target, and the id of the claim.
ABOUT = "target"


@frozen
class Target:
    """Target of an export: a file, or a folder that gets a file for each part.

    Attributes:
        path: the file or the folder.
        folder: whether it is a folder.
        format: format of the files.
        partition: keys that divide the rows of a part into files; empty for one file.
        stored: settings of the export that it holds; empty for a new one.

    """

    appends: ClassVar[bool] = True  # whether a single file may get its new rows after the old ones

    path: Path
    folder: bool
    format: Format
    partition: tuple[str, ...] = ()
    stored: Mapping[str, Any] = field(factory=dict[str, Any], kw_only=True, repr=False)

    @classmethod
    def of(cls, out: str | os.PathLike[str], format_name: str | None) -> Self:
        """Return the target at a path.

        A folder exists, ends with a slash, or has no suffix. The format of an export that is there is the
        default.

        Raises:
            ConfigurationError: the format is unknown, or a package that it needs is missing.
            ExportError: no file can have this name, or the target has files of another format.

        """
        path = Path(out)
        slash = os.fspath(out).endswith(("/", os.sep))
        refuse_name(os.fspath(out), "target")
        with os_errors_explained(path):
            folder = path.is_dir() or (not path.is_file() and (slash or not path.suffix))
            stored = settings_in(_journal_of(path, folder=folder))
        name = format_name_of(path, format_name, stored, path.name, folder=folder)
        return cls(path, folder, format_of(name), stored=stored)

    @property
    def address(self) -> Path | str:
        """Path or URL of the file or the folder."""
        return self.path

    @property
    def root(self) -> Path:
        """Folder of the files."""
        return self.path if self.folder else self.path.parent

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return _journal_of(self.path, folder=self.folder)

    def part(self, number: int, within: str = "") -> Path:
        """Return the path of a file of a part; `number` counts from 1.

        With a partition, `within` is its folder, with slashes.
        """
        return self.path / within / f"part-{number:05}{self.format.suffix}" if self.folder else self.path

    def parts(self, number: int) -> Iterable[Path]:
        """Return the paths of a part's files that exist, or that of a single file."""
        if not self.folder:
            return [self.path]
        stem, suffix = f"part-{number:05}", self.format.suffix
        own = re.compile(rf"{stem}(-\d+)?{re.escape(suffix)}")  # see `corrected`
        pattern = f"{'**/' if self.partition else ''}{stem}*{glob.escape(suffix)}"
        return (path for path in self.path.glob(pattern) if own.fullmatch(path.name))

    def corrected(self, number: int, name: str) -> Path:
        """Return the path of a part's copy of an earlier file that loses rows.

        It keeps the number of the part that first had these rows.
        """
        old = self.root / name
        first = old.name.removesuffix(self.format.suffix).rpartition("-")[2]
        return old.with_name(f"part-{number:05}-{first}{self.format.suffix}")

    def invalid_part(self, number: int) -> Path:
        """Return the path of the JSON lines with the invalid rows of a part.

        No pattern for the parts of a folder matches it, and readers of folders skip the underscore.
        """
        name = f"_invalid-{number:05}.ndjson" if self.folder else f"{self.path.name}.invalid"
        return self.root / name

    def file(self, name: str) -> Path | str:
        """Return the path of a file by its name below the folder."""
        return self.root / name

    def present(self, path: Path, stop: threading.Event) -> Path | None:
        """Return the path of a file if it exists."""
        return path if path.is_file() else None

    def exists(self, name: str) -> bool:
        """Check whether a file is there, by its name below the folder."""
        return (self.root / name).is_file()

    @contextmanager
    def fetched(self, name: str, stop: threading.Event) -> Iterator[Path]:
        """Yield the path of a local file with the content of a file of the folder."""
        yield self.root / name

    def left_behind(self) -> Iterator[Path]:
        """Yield the ``.partial`` files of a killed run."""
        if self.folder:
            yield from self.path.rglob(".part-*.partial*")
            yield from self.path.glob("._invalid-*.partial")
        else:
            yield from self.root.glob(f"{glob.escape(partial_of(self.path).name)}*")

    def prepare(self) -> bool:
        """Create the folders; refuse a file, or a folder with files, that no export wrote.

        Returns whether the export is new here: False if it has a journal, even one of a refused run.

        Raises:
            ExportError: the target holds other files, or cannot be written.

        """
        with os_errors_explained(self.path):
            self._check_names()
        with os_errors_explained(self.root):
            refuse_link(self.root, dangling=True)
            _check_is_folder(self.root)
            self.root.mkdir(parents=True, exist_ok=True)
            own = [self.journal, self.journal / JOURNAL, self.journal / f"{JOURNAL}-wal"]
            if not self.folder:
                own += self.path, self.invalid_part(1)
            for path in own:
                refuse_link(path)
            if (self.journal / ABOUT).exists():
                raise ExportError(
                    f"{self.journal} is the journal of an export to a URL: choose another target"
                )
            if (self.journal / JOURNAL).exists():
                return False
            if self.journal.exists() and (not self.journal.is_dir() or any(self.journal.iterdir())):
                raise ExportError(
                    f"{self.journal} is not a journal that this version of chainapi reads: move it away, or "
                    "choose another target"
                )
        self.refuse_others()
        return True

    def refuse_others(self) -> None:
        """Refuse a file, or a folder with files; no export has begun here.

        Raises:
            ExportError: there is such a file, or a log of an earlier database.

        """
        if self.has_others():
            held, place = ("is not empty", "in") if self.folder else ("exists", "beside")
            known = (self.journal / JOURNAL).exists()  # of a run that was refused
            missing = "" if known else f" (no {self.journal.name} is {place} it)"
            raise ExportError(
                f"{self.address} {held}, and no export wrote it{missing}: move it away, or choose another"
                " target"
            )
        self.refuse_log()

    def refuse_log(self) -> None:
        """Refuse a log beside a single database.

        A file that gets its name would be read with the log.

        Raises:
            ExportError: a database that is gone has left it.
            TargetInUseError: a program has it for the database that is there.

        """
        log = None if self.folder else log_beside(self.path, self.format)
        if log is None:
            return
        if self.path.exists():
            raise TargetInUseError(
                f"{self.path} is locked: another program has it open, and its log beside it, {log.name}."
                " Close it there, and start the same export again; all rows are kept in the journal"
            )
        raise ExportError(
            f"{self.path} has a log of another database beside it, {log.name}: programs would take it for"
            " that of the new one, which it would damage. Move it away, and start the same export again"
        )

    def has_others(self) -> bool:
        """Check for the file, or for files in the folder beside the journal."""
        with os_errors_explained(self.root):
            if not self.folder:
                return self.path.exists()
            return any(path != self.journal for path in self.path.iterdir())

    def _check_names(self) -> None:
        """Refuse a new file if a name beside it would be too long.

        Such names are used once its rows are fetched. The log of a database that is being written has a name
        as long as this one.

        Raises:
            OSError: the file system takes no such name.

        """
        if not self.folder and not (self.journal / JOURNAL).exists():
            with suppress(FileNotFoundError, NotADirectoryError):
                os.lstat(partial_of(self.invalid_part(1)))


def _journal_of(path: Path, *, folder: bool) -> Path:
    """Return the folder of the journal of a local file or folder."""
    return path / "_export" if folder else path.with_name(path.name + ".export")


def _check_is_folder(path: Path) -> None:
    """Refuse a path with a file where a folder must be; the path need not exist.

    Raises:
        ExportError: there is such a file.

    """
    nearest = next((one for one in (path, *path.parents) if one.exists()), path)
    if nearest.exists() and not nearest.is_dir():
        raise ExportError(f"{path} cannot be written: {nearest} is no folder; choose another target")


def refuse_name(name: str, other: str) -> None:
    """Refuse a name that no file can have; the message says to choose another one.

    Raises:
        ExportError: no file of an export can have this name.

    """
    if (fault := _fault_of_name(name)) is not None:
        raise ExportError(f"{name!r} cannot be written: {fault}; choose another {other}")


def _fault_of_name(name: str) -> str | None:
    """Return why no file of an export can have this name, or None."""
    if not name:
        return "the name is empty"
    if "\0" in name:
        return "a file name cannot contain NUL"
    if (encoding := sys.getfilesystemencoding()) != "utf-8" and not name.isascii():
        return f"Python encodes file names as {encoding} here, and libraries as UTF-8: set PYTHONUTF8=1"
    return None if is_utf_8(name) else "its name is not UTF-8, as the libraries of most formats need it"


def is_utf_8(text: str) -> bool:
    """Check that a string can be UTF-8: that it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
