"""Programs of the machine that tests run."""

from __future__ import annotations

import shutil

import pytest

__all__ = ["CHROMIUM", "find", "lacks", "program"]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")  # names of the program


def find(*names: str) -> str | None:
    """Return the path of a program, by the first of its names on PATH; None without one."""
    return next(filter(None, map(shutil.which, names)), None)


def lacks(package: str) -> str:
    """Return the message about a program of Debian's package that is not there."""
    return f"{package} is not installed: run `apt-get install {package}` (Debian), or put it on PATH"


def program(*names: str) -> str:
    """Return the path of a program; without it the test fails.

    The first name is that of its package too.
    """
    if place := find(*names):
        return place
    pytest.fail(lacks(names[0]))
