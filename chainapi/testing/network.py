"""Block of the network: connections to anything but loopback raise an error."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

__all__ = ["NetworkBlockedError", "network_blocked"]


class NetworkBlockedError(RuntimeError):
    """A test tried to reach a host that is not allowed.

    It is no OSError: nothing takes it for a failure of the network that can be retried.
    """


# Methods of a socket that take an address, and its place among their arguments.
_METHODS: Mapping[str, int] = {"connect": 0, "connect_ex": 0, "sendto": -1, "sendmsg": 3}
# Functions that look up a host, and the addresses in their results.
_LOOK_UPS: Mapping[str, Callable[[Any], Iterable[object]]] = {
    "getaddrinfo": lambda found: [address[0] for *_, address in found],
    "gethostbyname": lambda found: [found],
    "gethostbyname_ex": lambda found: found[2],
    "gethostbyaddr": lambda found: found[2],
}


@contextmanager
def network_blocked(allowed: Collection[str] = ()) -> Iterator[None]:
    """Block the network.

    Connections, datagrams and look-ups of hosts raise NetworkBlockedError inside the ``with`` block. Loopback
    addresses, the name of this machine, sockets of the file system and the hosts in `allowed` stay reachable.
    The block is in Python's `socket` module and acts on all threads; a library that connects without it, such
    as a database driver in C, is not affected.
    """
    known = {*allowed, socket.gethostname()}
    with ExitStack() as stack:
        for name, addresses in _LOOK_UPS.items():
            look_up = _checked_look_up(getattr(socket, name), addresses, known)
            stack.enter_context(patch.object(socket, name, look_up))
        for name, place in _METHODS.items():
            if (method := getattr(socket.socket, name, None)) is not None:  # Windows has no sendmsg
                checked = _checked_method(method, place, known)
                stack.enter_context(patch.object(socket.socket, name, checked))
        yield


def _checked_method(method: Callable[..., Any], place: int, known: Collection[str]) -> Callable[..., Any]:
    """Return a method of sockets that checks the address among its arguments."""

    def call(self: socket.socket, *args: Any) -> Any:
        for address in args[place:][:1]:
            if isinstance(address, tuple):  # a string is the path of a socket of the file system
                _check(address[0], known)
        return method(self, *args)

    return call


def _checked_look_up(
    function: Callable[..., Any], addresses: Callable[[Any], Iterable[object]], known: set[str]
) -> Callable[..., Any]:
    """Return a look-up that checks its host.

    The addresses of a host that is known are known from then on.
    """

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        _check(host, known)
        found = function(host, *args, **kwargs)
        if _name(host) in known:
            known.update(map(_name, addresses(found)))
        return found

    return look_up


def _check(host: object, allowed: Collection[str]) -> None:
    name = _name(host)
    if not is_local(name) and name not in allowed:
        raise NetworkBlockedError(
            f"the test tried to reach {name}, but it uses a fixture of chainapi, which blocks the"
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
