"""Faults of a rebuilt package, put into copies of it: the judge has to find each of them."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.judge.compare import ROOT, Digests

__all__ = ["FAULTS", "copy", "found_at"]

FAULTS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())
_times = count(1)


def copy(folder: Path) -> Path:
    """Copy the package into a folder, and return the folder."""
    shutil.copytree(ROOT / "chainapi", folder / "chainapi", ignore=shutil.ignore_patterns("__pycache__"))
    return folder.resolve()


def found_at(packages: list[Path], digests: Mapping[str, str]) -> dict[str, int | None]:
    """Return, for each fault, the first seed whose digest it changes; None without one.

    Args:
        packages: copies of the package, which are used at once.
        digests: those of the package without a fault, by seeds from 0 on.

    """
    free: SimpleQueue[Path] = SimpleQueue()
    for package in packages:
        free.put(package)

    def find(name: str) -> int | None:
        package = free.get()
        try:
            return next(_found(package, FAULTS[name], digests), None)
        finally:
            free.put(package)

    with ThreadPoolExecutor(len(packages)) as pool:
        return dict(zip(FAULTS, pool.map(find, FAULTS), strict=True))


def _found(package: Path, fault: Mapping[str, str], digests: Mapping[str, str]) -> Iterator[int]:
    file = package / "chainapi" / fault["file"]
    before = file.read_text()
    assert before.count(fault["old"]) == 1, f"give this fault a place in the code of today: {fault}"
    try:
        _write(file, before.replace(fault["old"], fault["new"]))
        with Digests(package, str(len(digests))) as found:
            for name, digest in found:
                if digests[name] != digest:
                    yield int(name)
    finally:
        _write(file, before)


def _write(file: Path, text: str) -> None:
    """Write a module with a time of its own, by which Python notices that the compiled one is out of date."""
    file.write_text(text)
    os.utime(file, (0, 1_000_000_000 + 10 * next(_times)))
