"""Compare the package with the one of the reference commit: `python -m tests.judge.compare --seeds 500`.

The file `reference` names the commit. Both packages are judged by the runner of the working tree, each in a
process of its own. There is no list of differences that are allowed: what is to change changes first, in a
commit of its own, and then the reference moves.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Self

__all__ = ["ROOT", "Digests", "check_out", "differences", "main"]

ROOT = Path(__file__).parents[2]
SHOWN = 3  # differing seeds or routes whose traces are shown
LINES = 60  # of each of their differences
WIDTH = 400  # characters of a line


def check_out(commit: str, folder: Path) -> None:
    """Put the package of a commit into a folder."""
    git = ("git", "-C", str(ROOT))
    known = subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False)
    if known.returncode:
        sys.exit(
            f"the reference commit {commit} is not in this clone: run `git fetch --unshallow`, or in CI clone"
            " with the whole history"
        )
    packed = subprocess.run([*git, "archive", commit, "chainapi"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def command(*arguments: str) -> list[str]:
    """Return the command of the runner."""
    return [sys.executable, str(ROOT / "tests/judge/run.py"), *arguments]


def environment(package: Path, **variables: str) -> dict[str, str]:
    """Return the environment in which a package is first on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAINAPI_")}
    return {**kept, "PYTHONPATH": str(package), **variables}


class Digests:
    """Seeds, or routes, and their digests, as a process judges the package in a folder."""

    def __init__(self, package: Path, *arguments: str, **variables: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command(*arguments, "--package", str(package)),
            cwd=package,
            env=environment(package, **variables),
            text=True,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for line in self._process.stdout or ():
            name, _, digest = line.partition(" ")
            yield name, digest.strip()
        if self._process.wait():
            self._errors.seek(0)
            raise RuntimeError(f"the runner failed: {self._errors.read()[-2_000:]}")


def differences(package: Path, reference: Path, *arguments: str) -> Iterator[str]:
    """Yield the seeds or routes whose digests differ; both processes run at once."""
    with Digests(package, *arguments) as ours, Digests(reference, *arguments) as theirs:
        for (name, digest), (_, before) in zip(ours, theirs, strict=True):
            if digest != before:
                yield name


def difference(package: Path, reference: Path, *arguments: str) -> list[str]:
    """Return the difference of two traces."""
    before, after = (
        subprocess.run(call, cwd=place, env=environment(place), text=True, capture_output=True, check=True)
        for call, place in ((command(*arguments), reference), (command(*arguments), package))
    )
    both = before.stdout.splitlines(), after.stdout.splitlines()
    lines = list(unified_diff(*both, "reference", "working tree", lineterm="", n=2))
    left = len(lines) - LINES
    return [*(line[:WIDTH] for line in lines[:LINES]), *([f"... {left} more lines"] if left > 0 else [])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, show what differs, and exit with 1 if something does."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="500", help="random programs: how many, or a range")
    parser.add_argument("--rows", default="3", help="sets of bodies of each route: how many, or a range")
    parser.add_argument("--reference", help="another commit than the one in tests/judge/reference")
    given = parser.parse_args(arguments)
    commit = given.reference or (ROOT / "tests/judge/reference").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder).resolve()
        check_out(commit, reference)
        found: list[tuple[str, ...]] = [(name,) for name in differences(ROOT, reference, given.seeds)]
        found += [(name, given.rows, "--rows") for name in differences(ROOT, reference, given.rows, "--rows")]
        for name, *options in found[:SHOWN]:
            print(f"\n{name} differs: tests/judge/run.py {' '.join(options)} --trace {name}")
            print(*difference(ROOT, reference, *options, "--trace", name), sep="\n")
    if found:
        sys.exit(f"{len(found)} differ from {commit}: {' '.join(name for name, *_ in found[:20])}")
    print(f"seeds {given.seeds}, and all routes with bodies {given.rows}: the same as {commit}")


if __name__ == "__main__":
    main()
