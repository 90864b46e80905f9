"""Every habit of this project as a command: `nox` runs what has to pass, `nox -l` lists all of them."""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10"
nox.options.sessions = ["lint", "types", "tests", "docs"]
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff; `nox -s lint -- --fix` mends what can be mended."""
    session.install("-e", ".[dev]")
    if "--fix" in session.posargs:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy --strict and pyright, tests included."""
    session.install("-e", ".[dev]")
    session.run("mypy")
    session.run("pyright")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests with branch coverage on each supported Python that this machine has."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "pytest", "--cov", "--cov-branch", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Make what is generated in the docs anew, then run every code block; `-- --full` measures as well."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "chainapi._tooling.pages")
    session.run("python", "docs/recording.py")
    if "--full" in session.posargs:  # minutes: the tables of the page on rate limits
        session.run("python", "docs/rate_limits.py", "--full")
    session.run("python", "-m", "pytest", "tests/test_docs.py")


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions of all dependencies that pyproject.toml allows."""
    session.install("uv")
    session.run("uv", "pip", "install", "--resolution", "lowest-direct", "-e", ".[dev]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def limits(session: nox.Session) -> None:
    """Run the rate-limit laboratory: every kind of server in virtual time, targets beside figures."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.limits", *session.posargs)


@nox.session
def compare(session: nox.Session) -> None:
    """Compare routes and models with OpenAPI documents: `nox -s compare -- DATA.json METRICS.json`."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "chainapi._tooling.compare", "--examples", *session.posargs)


@nox.session
def conform(session: nox.Session) -> None:
    """Check the simulator's answers against OpenAPI documents: `nox -s conform -- DATA.json METRICS.json`."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.simulator.conform", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Let the random reader walk 100,000 times: `nox -s soak -- --examples 100000 --seed 1`."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.paging", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and memory as ratios against hand-written loops, side by side in one run."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.bench", *session.posargs)
