"""Commands of contributors: `nox` runs the checks of a change, `nox -l` lists all sessions."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.sessions = ["lint", "types", "tests", "docs"]
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]

PROGRAM = """async def main(session):
    stream = session.metrics.avg_tps(43114)
    {work}


chainapi.run(main, **Simulator().arguments())
"""
EXPORT = (
    "from chainapi.export import export\nprint(await export(session.metrics.avg_tps, [43114], {!r}, limit=3))"
)
EXTRAS = {
    "none": "print(await stream.first())",
    "arrow": "print(await stream.to_arrow(3))",
    "cache": "print(await session.with_options(cache=chainapi.Cache(60)).data.chain(43114))",
    "cli": "from chainapi.cli import app\nprint(app.name)",
    "dask": "import chainapi.dask",
    "duckdb": EXPORT.format("tps.duckdb"),
    "fastapi": "import chainapi.contrib.fastapi",
    "fsspec": EXPORT.format("memory://folder/tps/"),
    "otel": "import chainapi.otel",
    "pandas": "print(await stream.to_pandas(3))",
    "parquet": EXPORT.format("tps.parquet"),
    "plot": "from chainapi.export.chart import require_pictures\nrequire_pictures()",
    "polars": "print(await stream.to_polars(3))",
    "redis": "import chainapi.share.redis",
    "testing": "import chainapi.testing.plugin",
    "zstd": EXPORT.format("tps.csv.zst"),
}


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
    """Run every code block of the docs, and build the site; `-- --full` first writes tables and charts."""
    session.install("-e", ".[dev,docs]")
    if "--full" in session.posargs:
        session.run("python", "docs/rate_limits.py", "--full")
        session.run("python", "docs/plots.py")
        session.run("python", "docs/live.py")
    session.run("python", "-m", "pytest", "tests/test_docs.py")
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "docs", "docs/_build")


@nox.session
def wheel(session: nox.Session) -> None:
    """Check the distributions as a package index does, and run tiers 1 and 2 on the installed wheel."""
    session.install("build", "check-wheel-contents", "pyright[nodejs]", "pyroma", "twine")
    place = Path(session.create_tmp()).resolve()
    shutil.rmtree(place)
    session.run("python", "-m", "build", "--outdir", str(place / "dist"), ".")
    session.run("twine", "check", "--strict", *map(str, (place / "dist").iterdir()))
    session.run("check-wheel-contents", str(place / "dist"))
    session.run("pyroma", "--min", "10", ".")
    [built] = (place / "dist").glob("*.whl")
    session.install("--force-reinstall", f"{built}[test]")
    for name in ("tests", "docs", ".ci"):
        shutil.copytree(name, place / "run" / name)
    for name in ("README.md", "pyproject.toml", "noxfile.py"):
        shutil.copy(name, place / "run")
    with session.chdir(place / "run"):
        session.run("pyright", "--verifytypes", "chainapi", "--ignoreexternal")
        # The tools of contributors are not in the wheel, and tests of generated files use them.
        where = session.run("python", "-c", "import chainapi; print(chainapi.__path__[0])", silent=True)
        tooling = Path(str(where).strip()) / "_tooling"
        shutil.copytree(Path(__file__).parent / "chainapi" / "_tooling", tooling, dirs_exist_ok=True)
        chosen = "not adapter and not proof"
        session.run("python", "-m", "pytest", "-n", "auto", "-m", chosen, *session.posargs)


@nox.session
@nox.parametrize("extra", [*EXTRAS])
def extras(session: nox.Session, extra: str) -> None:
    """Use what an extra adds, in an environment with nothing else."""
    session.install(f".[{extra}]" if extra != "none" else ".")
    program = f"import chainapi\nfrom chainapi.simulator import Simulator\n\n\n{PROGRAM}"
    place = session.create_tmp()
    work = EXTRAS[extra].replace("\n", "\n    ")
    Path(place, "example.py").write_text(program.format(work=work), "utf-8")
    with session.chdir(place):
        session.run("python", "-W", "error", "example.py")


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
