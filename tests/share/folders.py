"""Folders in which processes share quotas, and hosts live on for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["share_folder"]


@contextmanager
def share_folder() -> Iterator[Path]:
    """Yield a folder whose path is short enough for Unix sockets, with directories of hosts in it.

    They are renamed before they are removed: a host that lives on may store something at that moment.
    """
    with tempfile.TemporaryDirectory(prefix="share") as folder:
        try:
            yield Path(folder)
        finally:
            for path in Path(folder).iterdir():
                path.rename(path.with_name(f"{path.name}.removed"))
