"""The directory in which processes of one machine share a quota: what is in it, and who may use it."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chainapi import Session
from chainapi.errors import ConfigurationError
from chainapi.simulator import Simulator

PATH = "/v1/chains/43114"
KEY = "key-that-no-file-may-have"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither modes nor Unix sockets")


@pytest.fixture
def chosen(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that CHAINAPI_SHARE_DIR names."""
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(directory))
    return directory


def shared(sim: Simulator, **options: Any) -> Session:
    """Return a session that shares its quota with the processes of this machine."""
    return Session(**{**sim.arguments(), "share": True, **options})


@asynccontextmanager
async def two_members(**settings: Any) -> AsyncIterator[tuple[Simulator, Session, Session]]:
    """Return two sessions that share a quota through the directory.

    Each has a connection of its own, because they differ in what to do without one.
    """
    sim = Simulator(api_key=KEY, **settings)
    async with shared(sim) as first, shared(sim, on_unavailable="fail") as second:
        for session in (first, second):
            await session.data.get(PATH)
        yield sim, first, second


def modes(directory: Path) -> dict[str, int]:
    """Return the names and modes of the files in a directory."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


async def test_only_the_user_can_use_the_files(chosen: Path) -> None:
    """The directory has mode 0700 and each file 0600, whatever the umask; none has the key."""
    umask = os.umask(0)
    try:
        async with two_members() as (_, first, _):
            await first.data.get(PATH)
            await asyncio.sleep(1.0)  # the host stores what it learned
            found = modes(chosen)
            contents = [(chosen / name).read_bytes() for name in found if not name.endswith(".sock")]
    finally:
        os.umask(umask)
    assert modes(chosen.parent) == {"chainapi": 0o700}
    assert set(found.values()) == {0o600}
    assert {Path(name).suffix for name in found} == {".host", ".election", ".lock", ".memory", ".sock"}
    assert not any(KEY in name for name in found)
    assert not any(KEY.encode() in content for content in contents)


async def test_two_members_share_the_quota(chosen: Path) -> None:
    """Sessions that meet in the directory spend one quota, and the second continues when the first closes."""
    async with two_members(limit=10, window=10.0, latency=0.02) as (sim, first, second):
        await asyncio.gather(*(session.data.get(PATH) for session in (first, second) for _ in range(10)))
        await first.aclose()
        await asyncio.gather(*(second.data.get(PATH) for _ in range(10)))
        assert (sim.stats.answered[429] <= 1, sim.stats.sent_while_stopped) == (True, 0)
        assert second.quota["data"].limit == 10
    assert {Path(name).suffix for name in modes(chosen)} <= {".election", ".memory"}


def _foreign(directory: Path) -> Path:
    if os.geteuid() != 0:
        return Path("/")
    directory.mkdir(mode=0o700)
    os.chown(directory, 65_534, -1)
    return directory


def _linked(directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    link = directory.with_name("link")
    link.symlink_to(directory)
    return link


def _open(directory: Path) -> Path:
    directory.mkdir()
    directory.chmod(0o750)
    return directory


def _file(directory: Path) -> Path:
    directory.touch(0o700)
    return directory


def _read_only(directory: Path) -> Path:
    if os.geteuid() == 0:  # who may write everywhere else
        return Path("/sys/chainapi")
    directory.mkdir(mode=0o500)
    return directory


UNSAFE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "foreign": (_foreign, "it belongs to another user"),
    "link": (_linked, "it is a link or a file"),
    "file": (_file, "it is a link or a file"),
    "open": (_open, r"it is open to others \(mode 0750 instead of 0700\)"),
    "long": (lambda path: path / ("x" * 100), "a path that is too long for a Unix socket"),
    "read-only": (_read_only, ""),
    "unusable": (lambda path: _file(path) / "inside", "Not a directory"),
}


@pytest.mark.parametrize("choice", ["fail", "degrade"])
@pytest.mark.parametrize("kind", UNSAFE)
async def test_an_unsafe_directory_is_refused(
    kind: str, choice: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that can never be shared fails the first call with the way out, and sends nothing."""
    make, fault = UNSAFE[kind]
    path = make(directory)
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(path))
    sim = Simulator()
    began = asyncio.get_running_loop().time()
    async with shared(sim, on_unavailable=choice) as session:
        with pytest.raises(ConfigurationError, match=f"(?s){path}.*{fault}.*CHAINAPI_SHARE_DIR"):
            await session.data.get(PATH)
    assert asyncio.get_running_loop().time() < began + 2.0
    assert sim.stats.requests == 0


async def test_the_directory_of_the_user(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CHAINAPI_SHARE_DIR it is in an absolute XDG_RUNTIME_DIR, else with the temporary files."""
    monkeypatch.delenv("CHAINAPI_SHARE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(directory.parent))
    for runtime, expected in ((str(directory.parent), "chainapi"), ("", f"chainapi-{os.geteuid()}")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        async with shared(Simulator()) as session:
            await session.data.get(PATH)
            assert (directory.parent / expected).is_dir()


async def test_damaged_files_are_replaced(chosen: Path) -> None:
    """Files that have no sense any more do not keep a process from sharing."""
    async with two_members():
        names = [name for name in modes(chosen) if name.endswith(".host")]
    for name in (*names, names[0].replace(".host", ".memory")):
        (chosen / name).write_bytes(b"damaged" * 100)
        (chosen / name).chmod(0o600)
    async with two_members(limit=5, window=10.0) as (sim, _, second):
        await second.data.get(PATH)
        assert sim.stats.answered[200] == 3


async def test_files_that_vanish(chosen: Path) -> None:
    """When something removes the files, the members meet again in new ones."""
    async with two_members() as (sim, first, second):
        for name in modes(chosen):
            (chosen / name).unlink()
        await asyncio.sleep(10.0)
        await asyncio.gather(*(session.data.get(PATH) for session in (first, second)))
        assert sim.stats.answered[200] == 4
        assert any(name.endswith(".sock") for name in modes(chosen))
