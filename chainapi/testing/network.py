"""Block of the network: connections to anything but loopback raise an error."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["NetworkBlockedError", "network_blocked"]


class NetworkBlockedError(RuntimeError):
    """A test tried to reach a host that is not allowed.

    It is no OSError: nothing takes it for a failure of the network that can be retried.
    """


@contextmanager
def network_blocked(allowed: Collection[str] = ()) -> Iterator[None]:
    """Block the network.

    Connections and look-ups of names raise NetworkBlockedError inside the ``with`` block. Loopback addresses,
    sockets of the file system and the hosts in `allowed` stay reachable. The block is in Python's `socket`
    module and acts on all threads; a library that connects without it, such as a database driver in C, is not
    affected.
    """
    known, getaddrinfo = set(allowed), socket.getaddrinfo
    before = {name: vars(socket.socket).get(name) for name in ("connect", "connect_ex")}

    def checked(method: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
        def call(self: socket.socket, address: Any, /) -> Any:
            if isinstance(address, tuple):  # a string is the path of a socket of the file system
                _check(address[0], known)
            return method(self, address)

        return call

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        _check(host, known)
        found = getaddrinfo(host, *args, **kwargs)
        if _name(host) in known:
            known.update(_name(address[0]) for *_, address in found)
        return found

    for name in before:
        setattr(socket.socket, name, checked(getattr(socket.socket, name)))
    socket.getaddrinfo = look_up
    try:
        yield
    finally:
        socket.getaddrinfo = getaddrinfo
        for name, method in before.items():
            if method is None:  # inherited
                delattr(socket.socket, name)
            else:
                setattr(socket.socket, name, method)


def _check(host: object, allowed: Collection[str]) -> None:
    name = _name(host)
    if not is_local(name) and name not in allowed:
        raise NetworkBlockedError(
            f"the test tried to connect to {name}, but it uses a fixture of chainapi, which blocks the"
            " network except for loopback addresses. To allow it, mark the test with"
            f" @pytest.mark.chainapi_network (any host) or @pytest.mark.chainapi_network({name!r}), or run"
            " pytest with --chainapi-network"
        )


def _name(host: object) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")


def is_local(host: str) -> bool:
    """Return whether a host is this machine.

    That is a loopback address, localhost, or an empty name, which is for listening.
    """
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
