"""Directory in which the processes of a test meet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a path for a directory, short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="share") as folder:
        yield Path(folder, "chainapi")
