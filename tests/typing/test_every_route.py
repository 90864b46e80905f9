"""Types of calls of every route; type checkers read the other modules of this folder."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.sample
@pytest.mark.proof
def test_the_types_of_every_route() -> None:
    """Mypy accepts a call of every route with every parameter, and the type of its rows or its resource."""
    command = (sys.executable, "-m", "chainapi._tooling.calls")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
