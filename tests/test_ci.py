"""Python versions, programs and sample of the tests before a change lands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import TRACED_EXAMPLES, make_fewer_examples, traced_at_first
from tests.programs import CHROMIUM, program

SCRIPT = Path(__file__).parent.parent / ".ci" / "pythons"
PROGRAMS = SCRIPT.with_name("programs")
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


def programs(machine: Path) -> tuple[int, str, list[str]]:
    """Run the script that installs programs; return its status, its message and the calls of apt-get."""
    done = subprocess.run(
        [PROGRAMS], capture_output=True, text=True, check=False, env={"PATH": str(machine / "bin")}
    )
    calls = machine / "calls"
    return done.returncode, done.stderr.strip(), calls.read_text().splitlines() if calls.exists() else []


def provide_apt(machine: Path, user: int, script: str = "exit 0") -> None:
    """Give a machine an apt-get that records its calls, for a user."""
    install(machine / "bin/id", f"echo {user}")
    install(machine / "bin/apt-get", f'echo "$DEBIAN_FRONTEND $*" >> {machine}/calls; {script}')


APT = "noninteractive -qq -o DPkg::Lock::Timeout=120"
INSTALL = f"{APT} install -y --no-install-recommends"
INSTALLED = [f"{APT} update", f"{INSTALL} chromium fonts-dejavu-core fish zsh"]


@pytest.mark.parametrize("name", CHROMIUM)
def test_programs_on_the_path_are_taken(machine: Path, name: str) -> None:
    """A machine with the shells and a browser, by one of its names, installs nothing."""
    provide_apt(machine, 0)
    for each in (name, "fish", "zsh"):
        install(machine / "bin" / each, RUNS)
    assert programs(machine) == (0, "", [])


def test_only_missing_programs_are_installed(machine: Path) -> None:
    """A machine with a browser and one shell installs the other shell."""
    provide_apt(machine, 0)
    for each in ("chromium", "zsh"):
        install(machine / "bin" / each, RUNS)
    assert programs(machine) == (0, "", [f"{APT} update", f"{INSTALL} fish"])


def test_programs_are_installed_by_root(machine: Path) -> None:
    """The lists of packages are updated, then Chromium, a font and the shells are installed."""
    provide_apt(machine, 0)
    assert programs(machine) == (0, "", INSTALLED)


def test_programs_are_installed_with_sudo(machine: Path) -> None:
    """Another user installs them with sudo, without a password."""
    provide_apt(machine, 1000)
    install(machine / "bin/sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    install(machine / "bin/true", RUNS)
    assert programs(machine) == (0, "", INSTALLED)


@pytest.mark.parametrize(
    ("user", "script", "reason"),
    [
        (None, "", "has no apt-get"),
        (1000, "", "this user is not root and has no sudo without a password"),
        (0, "exit 100", "apt-get update failed"),
        (0, '[ "$4" = update ]', "apt-get install failed"),
    ],
)
def test_a_machine_that_cannot_install_programs_says_why(
    machine: Path, user: int | None, script: str, reason: str
) -> None:
    """The script fails with the reason, and with what to do."""
    if user is not None:
        provide_apt(machine, user, script)
    status, message, _ = programs(machine)
    assert status == 1
    assert message == (
        f"this machine lacks Chromium fish zsh, and {reason}: install them, or set"
        " CHAINAPI_REQUIRE_PROGRAMS=0 to skip their tests"
    )


def test_ci_installs_programs_and_requires_them() -> None:
    """The script of the checks installs the programs, and lets no test be skipped that needs one."""
    script = (SCRIPT.parent / "run").read_text()
    assert 'export CHAINAPI_REQUIRE_PROGRAMS="${CHAINAPI_REQUIRE_PROGRAMS-1}"' in script
    assert (
        script.index(".ci/programs >")
        < script.index('finish "$programs"')
        < script.index("== test it on Python $first")
    )


def test_without_a_program_a_test_is_skipped_or_fails(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Chromium says so in a skipped test; where it is required, the test fails."""
    monkeypatch.setenv("PATH", str(machine / "bin"))
    monkeypatch.delenv("CHAINAPI_REQUIRE_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium is not installed: run `apt-get install"):
        program(*CHROMIUM)
    monkeypatch.setenv("CHAINAPI_REQUIRE_PROGRAMS", "1")
    with pytest.raises(pytest.fail.Exception, match="CHAINAPI_REQUIRE_PROGRAMS=1"):
        program(*CHROMIUM)
    install(machine / "bin/google-chrome", RUNS)
    assert program(*CHROMIUM) == str(machine / "bin/google-chrome")


def test_a_sample_makes_few_examples() -> None:
    """With `--cases`, Hypothesis makes few examples of a test that asks for many."""
    seen: list[int] = []

    @settings(max_examples=50)
    @given(st.integers())
    def test(number: int) -> None:
        seen.append(number)

    make_fewer_examples([cast("Any", SimpleNamespace(obj=test))], 5)
    test()
    assert 1 < len(seen) <= 5


def test_coverage_traces_the_first_examples() -> None:
    """The first examples of a test run with the tracer of coverage, the others without one."""
    traced: list[bool] = []
    before = sys.gettrace()

    def trace(*_: object) -> None:
        return None

    example = traced_at_first(lambda: traced.append(sys.gettrace() is trace), trace)
    try:
        for _ in range(TRACED_EXAMPLES + 2):
            example()
    finally:
        sys.settrace(before)
    assert traced == [True] * TRACED_EXAMPLES + [False] * 2
