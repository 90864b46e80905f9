"""Python versions for the tests before a change lands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "pythons"
RUNS, FAILS = "exit 0", 'echo "pyenv: python: command not found" >&2; exit 127'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the folder of a machine that has a shell and no Python."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "env"):
        place = shutil.which(name)
        assert place is not None
        (tmp_path / "bin" / name).symlink_to(place)
    return tmp_path


def install(place: Path, script: str) -> None:
    """Put a program there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/usr/bin/env bash\n{script}\n")
    place.chmod(0o755)


def pythons(machine: Path, *without: str) -> tuple[list[str], str]:
    """Run the script on that machine; return the Pythons found and the messages."""
    done = subprocess.run(
        [SCRIPT, *without],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": str(machine / "bin"), "HOME": str(machine)},
    )
    return done.stdout.replace(str(machine), "").splitlines(), done.stderr.strip()


def test_a_python_on_the_path_is_taken(machine: Path) -> None:
    """Pythons on PATH are found, and missing or excluded versions are reported."""
    for minor in (11, 12, 14):
        install(machine / "bin" / f"python3.{minor}", RUNS)
    found = ["3.11 /bin/python3.11", "3.12 /bin/python3.12", "3.14 /bin/python3.14"]
    assert pythons(machine) == (found, "this machine lacks Python 3.13")
    assert pythons(machine, "3.11") == (found[1:], "this machine lacks Python 3.13")


def test_a_shim_that_does_not_run_is_none(machine: Path) -> None:
    """A pyenv shim that does not run is skipped for the versions that pyenv has."""
    for minor in (11, 12, 13, 14):
        install(machine / "bin" / f"python3.{minor}", FAILS)
    install(machine / ".pyenv/versions/3.12.1/bin/python", FAILS)
    install(machine / ".pyenv/versions/3.12.10/bin/python", RUNS)
    install(machine / ".pyenv/versions/3.1.2/bin/python", RUNS)
    found = ["3.12 /.pyenv/versions/3.12.10/bin/python"]
    assert pythons(machine) == (found, "this machine lacks Python 3.11 3.13 3.14")


def test_a_machine_with_nothing_is_reported(machine: Path) -> None:
    """A machine without any Python is no error, and every version is reported."""
    assert pythons(machine) == ([], "this machine lacks Python 3.11 3.12 3.13 3.14")
