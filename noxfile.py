"""Commands of contributors: `nox` runs the checks of a change, `nox -l` lists all sessions."""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10"
nox.options.sessions = ["lint", "types", "tests", "docs"]
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff; `nox -s lint -- --fix` corrects what ruff can."""
    session.install("-e", ".[dev]")
    if "--fix" in session.posargs:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy --strict and pyright, tests and calls of every route included."""
    session.install("-e", ".[dev]")
    session.run("mypy")
    session.run("python", "-m", "chainapi._tooling.calls")
    python = session.run("python", "-c", "import sys; print(sys.executable)", silent=True)
    session.run("pyright", "--pythonpath", str(python).strip())


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the README's tests with branch coverage on a supported Python, if it is installed."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", "--cov", "--cov-branch", *session.posargs)


@nox.session
def proofs(session: nox.Session) -> None:
    """Run what takes long: kills, power cuts, mutants, laboratory, judge, soak; then other sessions."""
    session.install("-e", ".[test]")
    chosen = "proof and not recipes and not browser"
    session.run("python", "-m", "pytest", "-n", "auto", "-m", chosen, *session.posargs)
    for name in ("judge", "limits", "soak", "conform", "recipes", "browser", "lowest", "aiohttp", "bench"):
        session.notify(name, posargs=())


@nox.session
def recipes(session: nox.Session) -> None:
    """Run the recipes of docs/examples on their frameworks: Dagster, dlt, Litestar, Quart."""
    session.install("-e", ".[recipes]")
    session.run("python", "-m", "pytest", "-m", "recipes", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Run the live page in the Chromium of the system, which has to be installed."""
    session.install("-e", ".[browser]")
    session.run("python", "-m", "pytest", "-m", "browser", *session.posargs)


@nox.session
def cost(session: nox.Session) -> None:
    """Run the README's tests, and print their CPU; more than 240 seconds fail."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.cost", *session.posargs)


@nox.session
def generate(session: nox.Session) -> None:
    """Write all generated files: records, routes, docs; `-- --check` only compares."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "chainapi._tooling.generate", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Run every code block of the docs; `-- --full` first writes tables and charts, in minutes."""
    session.install("-e", ".[dev]")
    if "--full" in session.posargs:
        session.run("python", "docs/rate_limits.py", "--full")
        session.run("python", "docs/plots.py")
        session.run("python", "docs/live.py")
    session.run("python", "-m", "pytest", "tests/test_docs.py")


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions of all dependencies that pyproject.toml permits."""
    session.install("uv")
    session.run("uv", "pip", "install", "--resolution", "lowest-direct", "-e", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session
@nox.parametrize("release", ["==3.14.3", ""], ids=["lowest", "newest"])
def aiohttp(session: nox.Session, release: str) -> None:
    """Send over the connections of the lowest and of the newest aiohttp, on loopback; warnings are errors."""
    session.install("-e", ".[test]")
    session.install("--upgrade", f"aiohttp{release}")
    session.run("python", "-m", "pytest", "-n", "auto", "tests/client/test_transport.py", *session.posargs)


@nox.session
def limits(session: nox.Session) -> None:
    """Run the rate-limit laboratory: simulated servers in virtual time, figures beside targets."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.limits", *session.posargs)


@nox.session
def conform(session: nox.Session) -> None:
    """Check responses of the simulator against the OpenAPI documents, or those that are named."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.simulator.conform", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Run random walks over lists that change: `nox -s soak -- --examples 100000 --seed 1`."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.paging", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed and memory beside hand-written loops; `-- walks tables` measures only these."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.bench", *session.posargs)


@nox.session
def judge(session: nox.Session) -> None:
    """Compare random programs and rows with the reference commit: `nox -s judge -- --seeds 20000`."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.judge.compare", *session.posargs)
