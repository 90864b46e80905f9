"""New rows of a database in one transaction: its old rows are not written again.

1. The new rows are written to a ``.partial`` database, synced and read back.
2. The journal stores its size and digest.
3. One transaction adds these rows to the database, and a marker with the number of the part; then the newest
   rows are read back.
4. The journal stores that they are in place, with size and digest of the database.

A run that finds a part of step 2 looks for its marker: it is there, and the rows are in, or 3 is done again.

Others may add indexes, tables and views to the database. It counts as unchanged if it has the size and the
digest that the journal stores, or else the newest marker and the number of rows. Everything here blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.files import has_state, partial_of, refuse_link, sync_file, write_errors_explained
from chainapi.export.formats import DatabaseFormat, log_beside
from chainapi.export.formats.markers import Marker
from chainapi.export.part_records import Part, PartFile

__all__ = ["Transaction"]


@frozen
class Transaction:
    """Transaction that adds the rows of a part to a database.

    Attributes:
        path: path of the database.
        format: its format.
        stop: once it is set, long steps end with `Stopped`.

    """

    path: Path
    format: DatabaseFormat
    stop: threading.Event

    def check(self, part: Part) -> None:
        """Check that the database is as a part left it.

        Raises:
            ExportError: its rows were changed.
            TargetInUseError: another program has locked it.

        """
        file = part.rows_file
        if (file is None or not self._matches(file)) and not self._newest() == _marked(part):
            raise self._changed()

    def is_in(self, part: Part, previous: Part | None) -> bool:
        """Check whether a begun part is in the database: the marker says so, and the rows.

        Raises:
            ExportError: the database is neither as the part left it, nor as the previous one did.
            TargetInUseError: another program has locked it.

        """
        newest = self._newest()
        if newest == _marked(part):
            if self.is_ready(part):
                self.format.compare(self.path, partial_of(self.path), self.stop)
            return True
        if previous is None or newest != _marked(previous):
            raise self._changed()
        return False

    def is_ready(self, part: Part) -> bool:
        """Check whether the ``.partial`` database has what the journal says."""
        added = None if part.rows_file is None else part.rows_file.added
        return added is not None and has_state(partial_of(self.path), added.size, added.digest)

    def add(self, part: Part) -> None:
        """Add the rows of the ``.partial`` database.

        Raises:
            ExportError: the database cannot be written, and the next run adds the rows; or it was changed.
            TargetInUseError: another program has locked it; the next run adds the rows.
            Stopped: `stop` was set meanwhile.

        """
        try:
            with self._explained():
                self.format.merge(self.path, partial_of(self.path), part.number, part.content.run, self.stop)
                sync_file(self.path)  # a database may be set to leave that to the system
        except ConfigurationError as error:  # it is damaged where the check of its rows did not read
            raise self._changed() from error

    def _newest(self) -> tuple[Marker | None, int] | None:
        """Return the newest marker and the number of rows.

        None for a file that is no such database.
        """
        try:
            with self._explained():
                return self.format.newest(self.path, self.stop)
        except (ConfigurationError, FileNotFoundError):
            return None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        refuse_link(self.path)
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError:
            with write_errors_explained(self.path):
                raise

    def _matches(self, file: PartFile) -> bool:
        return has_state(self.path, file.size, file.digest) and log_beside(self.path, self.format) is None

    def _changed(self) -> ExportError:
        what = "has other rows than the export wrote" if self.path.exists() else "is missing"
        return ExportError(
            f"{self.path} {what}: put it back as it was, or delete {self.path.name}.export (and "
            f"{self.path.name}) to start over. Others may read the rows and add indexes, views and tables, "
            "and leave the tables of the export as they are"
        )


def _marked(part: Part) -> tuple[Marker, int] | None:
    """Return the marker of a part, and the number of rows."""
    file = part.rows_file
    return None if file is None else (Marker(part.number, part.content.run, file.rows), file.rows)
