"""``chainapi quota``: the processes that share a quota, as a table and as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ShareUnavailableError
from chainapi.share.link import Link, linked_pair
from tests.cli.terminal import ADDRESSES, Outcome, chainapi, plain
from tests.cli.terminal import environment as environment
from tests.share.test_watch import busy_host

ORIGIN = "https://simulator.invalid"
KEY = ADDRESSES["CHAINAPI_API_KEY"]
NAME = quota_name(ORIGIN, KEY)


class Machine:
    """Machine on which processes share the Data API's quota.

    With `ends`, the host is away when it is observed for the second time. Before the observation number
    `interrupt` the user presses Ctrl-C.
    """

    def __init__(self, *, ends: bool = False, interrupt: int = 0) -> None:
        self.shares: list[str | None] = []
        self.secrets: list[bytes] = []
        self.closed = 0
        self._ends, self._interrupt = ends, interrupt
        self._observed = 0

    def observable(self, share: str | None) -> Machine:
        """Return the machine."""
        self.shares.append(share)
        return self

    async def observe(self, name: str, secret: bytes) -> Link | None:
        """Return a link to the host."""
        self.secrets.append(secret)
        if name != NAME:
            return None
        self._observed += 1
        if self._observed == self._interrupt:
            raise KeyboardInterrupt
        if self._ends and self._observed == 2:
            return None
        host = await busy_host()
        near, far = linked_pair()
        host.serve(far)
        return near

    async def aclose(self, name: str) -> None:
        """Count."""
        self.closed += 1


class Directory(Machine):
    """Machine that lists its quotas: one of the environment's key, one of another key, and two in trouble."""

    def names(self) -> list[str]:
        """Return the names of the quotas."""
        return ["hangs", "left", "other", NAME]

    async def observe(self, name: str, secret: bytes) -> Link | None:
        """Return a link to the host of a quota."""
        if name == "hangs":
            raise ShareUnavailableError("its host does not answer")
        return None if name == "left" else await super().observe(NAME, secret)


def shown(machine: Machine, *tokens: str, tty: bool = True) -> Outcome:
    """Run ``chainapi quota`` on a machine."""
    return chainapi("quota", *tokens, tty=tty, observable=machine.observable)


def test_table_of_spenders() -> None:
    """The table has the state of the quota, and what each process and tag spent."""
    machine = Machine()
    outcome = shown(machine)
    assert (outcome.code, outcome.err) == (0, "")
    lines = plain(outcome.out)
    assert lines[0].startswith("data: ")
    assert "of 100 left (quota a minute), 1 waiting, 0 in flight, next request in 60 s, at " in lines[0]
    assert lines[1] == f"https://simulator.invalid, quota {NAME[:8]}, shared by 2 processes"
    assert [line.split() for line in lines[2:]] == [
        ["process", "tag", "requests", "units", "share", "429s", "in", "flight", "waiting"],
        ["web:1", "api", "2", "2", "100%", "0", "0", "0"],
        ["job:2", "night", "1", "0", "0%", "1", "0", "0"],
        ["job:2", "0", "0", "0%", "0", "0", "1"],
    ]
    assert machine.shares == [None]
    assert machine.secrets == [frame_key(ORIGIN, None), frame_key(ORIGIN, KEY)]
    assert machine.closed == 2


@pytest.mark.parametrize("tty", [True, False])
def test_state_as_json(tty: bool) -> None:
    """With --json, or without a terminal, each quota is a line of JSON."""
    outcome = shown(Machine(), *(["--json"] if tty else []), tty=tty)
    (record,) = outcome.rows
    assert (record["service"], record["origin"], record["processes"]) == ("data", ORIGIN, 2)
    assert (record["limit"], record["window"], record["waiting"]) == (100.0, 60.0, 1)
    assert 59 <= record["stopped_for"] <= 60
    assert [one["units"] for one in record["spenders"]] == [2.0, 0.0, 0.0]
    assert record["spenders"][0]["tag"] == "api"


def test_nobody_shares_a_quota() -> None:
    """Without a host the command fails, and shows what to do."""
    machine = Machine(ends=True)
    machine._observed = 1
    outcome = shown(machine)
    assert (outcome.code, outcome.out) == (1, "")
    assert "no process shares a quota there: start one with the same address" in outcome.err


def test_watch_reads_the_state_each_second() -> None:
    """With --watch a line or a table follows each second; the command finds the next host."""
    outcome = shown(Machine(ends=True, interrupt=4), "--watch", tty=False)
    assert outcome.code == 130
    assert [round(row["stopped_for"], 1) for row in outcome.rows] == [60.0, 60.0]
    assert outcome.err.count("no process shares a quota there") == 1
    drawn = shown(Machine(ends=True, interrupt=3), "--watch")
    assert drawn.code == 130
    assert "web:1" in drawn.out
    assert "no process shares a quota there" in drawn.out


def test_address_of_redis_is_passed_on() -> None:
    """The carrier over Redis is chosen by --share, which takes nothing but the address of a server."""
    for share in ("local", "http://localhost", "1"):
        outcome = shown(Machine(), "--share", share)
        assert (outcome.code, outcome.out) == (2, "")
        assert "--share must be the address of a Redis server" in outcome.err
    machine = Machine()
    assert shown(machine, "--share", "redis://localhost:6379/0").code == 0
    assert machine.shares == ["redis://localhost:6379/0"]


def test_all_quotas_of_a_machine_are_shown() -> None:
    """On one machine all quotas are shown, those of the environment first, and one that hangs is reported."""
    outcome = shown(Directory(), tty=False)
    assert outcome.code == 0
    assert [(row["service"], row["origin"], row["quota"]) for row in outcome.rows] == [
        ("data", ORIGIN, NAME),
        (None, "https://data.test", "other"),
    ]
    assert outcome.err == "chainapi: its host does not answer\n"


def test_quotas_are_shown_without_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one machine neither addresses nor the key are needed: the host names the address."""
    for name in ADDRESSES:
        monkeypatch.delenv(name)
    lines = plain(shown(Directory()).out)
    assert lines[0].startswith("unknown service: ")
    assert "https://data.test, quota other, shared by 2 processes" in lines


def test_services_have_to_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names the variables that it needs if quotas are not listed, as over Redis."""
    for name in ADDRESSES:
        monkeypatch.delenv(name)
    outcome = shown(Machine())
    assert outcome.code == 2
    assert "CHAINAPI_METRICS_BASE_URL" in outcome.err
    assert "CHAINAPI_DATA_BASE_URL" in outcome.err


def test_public_services_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --provider public the command looks for the quotas of its addresses, with and without a key."""
    for name in ADDRESSES:
        monkeypatch.delenv(name)
    origins = "https://metrics.avax.network", "https://data-api.avax.network"
    machine = Machine()
    assert "no process shares a quota there" in shown(machine, "--provider", "public").err
    assert machine.secrets == [frame_key(origin, None) for origin in origins]
    monkeypatch.setenv("CHAINAPI_API_KEY", KEY)
    keyed = Machine()
    shown(keyed, "--provider", "public")
    assert keyed.secrets[1] == frame_key(origins[1], KEY)


def test_nobody_shares_a_quota_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names the directory in which it looked."""
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(tmp_path / "share"))
    outcome = chainapi("quota")
    assert outcome.code == 1
    assert f"no process shares a quota in the directory {tmp_path / 'share'}" in outcome.err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of directories")
def test_directory_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is open to others is named with the reason."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(tmp_path))
    outcome = chainapi("quota")
    assert outcome.code == 1
    assert f"the directory {tmp_path} cannot be used" in outcome.err
