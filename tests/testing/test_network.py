"""Block of the network: loopback stays reachable, other hosts raise with the remedy."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from chainapi import Session
from chainapi.simulator import Simulator
from chainapi.testing import NetworkBlockedError, network_blocked

KEY = "hunt3r2-key-of-the-test"
OUTSIDE = "192.0.2.1"  # of no host: RFC 5737


@pytest.mark.real_time
@pytest.mark.parametrize("host", [OUTSIDE, "[2001:db8::1]", "outside.invalid"])
async def test_session_cannot_reach_the_network(host: str) -> None:
    """A session raises the error at once, without a retry, for an address and for a name."""
    requests: list[Any] = []
    with network_blocked():
        async with Session(data_base_url=f"https://{host}", api_key=KEY, on_event=requests.append) as session:
            with pytest.raises(NetworkBlockedError, match=r"@pytest.mark.chainapi_network\('") as caught:
                await session.data.get("/v1/chains")
    assert host.strip("[]") in str(caught.value)
    assert [type(event).__name__ for event in requests].count("RequestSent") == 1
    trace = caught.value.__traceback__
    while trace is not None:  # no frame has the headers of the request
        assert trace.tb_frame.f_code.co_filename == __file__ or KEY not in repr(trace.tb_frame.f_locals)
        trace = trace.tb_next


@pytest.mark.adapter
@pytest.mark.real_time
async def test_loopback_stays_reachable() -> None:
    """A server of this machine is reached by its address and by localhost."""
    with network_blocked():
        async with Simulator() as simulator:
            for host in ("127.0.0.1", "localhost"):
                url = simulator.metrics_base_url.replace("127.0.0.1", host)
                async with Session(metrics_base_url=url) as session:
                    assert len(await session.metrics.avg_tps(43114).collect()) == 1_000


LOOK_UPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
CONNECTS: dict[str, Callable[[socket.socket], Any]] = {
    "connect": lambda one: one.connect((OUTSIDE, 9)),
    "connect_ex": lambda one: one.connect_ex((OUTSIDE, 9)),
    "look-up": lambda _: socket.getaddrinfo("outside.invalid", 443),
    "bytes": lambda _: socket.getaddrinfo(b"outside.invalid", 443),
    "look-up of one address": lambda _: socket.gethostbyname("outside.invalid"),
    "look-up of all addresses": lambda _: socket.gethostbyname_ex("outside.invalid"),
    "look-up of a name": lambda _: socket.gethostbyaddr(OUTSIDE),
    "sendto": lambda one: one.sendto(b"", (OUTSIDE, 9)),
    "sendto with flags": lambda one: one.sendto(b"", 0, (OUTSIDE, 9)),
}
if sys.platform != "win32":
    CONNECTS["sendmsg"] = lambda one: one.sendmsg([b""], [], 0, (OUTSIDE, 9))


def test_sockets_cannot_reach_the_network() -> None:
    """Sockets of other libraries are blocked too, until the end of the block."""
    functions = {name: getattr(socket, name) for name in LOOK_UPS}
    for connect in CONNECTS.values():
        with (
            socket.socket(type=socket.SOCK_DGRAM) as one,
            network_blocked(),
            pytest.raises(NetworkBlockedError),
        ):
            connect(one)
    assert {name: getattr(socket, name) for name in LOOK_UPS} == functions
    assert {"connect", "connect_ex", "sendto", "sendmsg"}.isdisjoint(vars(socket.socket))


def test_datagrams_to_this_machine_are_sent() -> None:
    """A datagram to a loopback address, or of a connected socket, arrives; this machine can be looked up."""
    with (
        network_blocked(),
        socket.socket(type=socket.SOCK_DGRAM) as server,
        socket.socket(type=socket.SOCK_DGRAM) as one,
    ):
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        assert one.sendto(b"a", server.getsockname()) == 1
        one.connect(server.getsockname())
        assert (one.sendmsg([b"b"]) if hasattr(one, "sendmsg") else one.send(b"b")) == 1
        assert (server.recv(9), server.recv(9)) == (b"a", b"b")
        assert socket.gethostbyname("localhost") == "127.0.0.1"
        assert socket.getfqdn()


def test_allowed_hosts_are_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is allowed is reached by its name, and by the addresses that any look-up of it finds."""
    reached: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: reached.append(address))
    look_ups: dict[str, tuple[Any, ...]] = {
        "getaddrinfo": ([(socket.AF_INET, socket.SOCK_STREAM, 6, "", (OUTSIDE, 443))], 443),
        "gethostbyname": (OUTSIDE,),
        "gethostbyname_ex": (("db.invalid", [], [OUTSIDE]),),
        "gethostbyaddr": (("db.invalid", [], [OUTSIDE]),),
    }
    for look_up, (found, *port) in look_ups.items():
        monkeypatch.setattr(socket, look_up, lambda *_, found=found: found)
        with network_blocked(["db.invalid"]), socket.socket() as one:
            with pytest.raises(NetworkBlockedError, match=OUTSIDE):
                one.connect((OUTSIDE, 443))
            assert getattr(socket, look_up)("db.invalid", *port) == found
            one.connect((OUTSIDE, 443))
            with pytest.raises(NetworkBlockedError, match=r"other\.invalid"):
                getattr(socket, look_up)("other.invalid", *port)
    assert reached == [(OUTSIDE, 443)] * len(look_ups)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no sockets of the file system")
def test_sockets_of_the_file_system_stay_reachable(tmp_path: Any) -> None:
    """The path of a socket is no host."""
    with network_blocked(), socket.socket(socket.AF_UNIX) as one, pytest.raises(FileNotFoundError):
        one.connect(str(tmp_path / "none"))


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop needs POSIX")
def test_uvloop_is_blocked_too() -> None:
    """A session on uvloop cannot connect to an address."""
    import uvloop

    async def main() -> None:
        async with Session(metrics_base_url=f"https://{OUTSIDE}") as session:
            await session.metrics.get("/v1/chains")

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with network_blocked(), runner, pytest.raises(NetworkBlockedError):
        runner.run(main())
