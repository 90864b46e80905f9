"""Free ports of loopback."""

from __future__ import annotations

import socket

__all__ = ["free_port"]


def free_port(highest: int = 65_535) -> int:
    """Return a port of loopback up to `highest` that no socket uses."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        if port <= highest:
            return port
