"""Election of a host on one machine: a directory of locks, addresses and sockets.

The directory has for each quota

- ``<name>.host``: the address of the host (`Address`): its identity, port and secret,
- ``<name>.election``: a lock that a process holds for the moment in which it becomes the host.

and for each host

- ``<identity>.lock``: a lock that the host holds. The kernel releases it when the process ends.
- ``<identity>.sock``: its Unix socket.

So a process is the host as long as the address has its identity and it holds the lock. Every host has files
of its own, because a process that was stopped and wakes up must not remove those of its successor.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import define, field, frozen

from chainapi.errors import ConfigurationError
from chainapi.share import forks

__all__ = ["BACKLOG", "UNIX_SOCKETS", "Address", "Elections", "Seat", "share_directory", "stream_socket"]

UNIX_SOCKETS = hasattr(socket, "AF_UNIX") and sys.platform != "win32"
BACKLOG = 1024  # connections that wait to be accepted; the kernel may allow fewer

_LONGEST_PATH = 107 if sys.platform == "linux" else 103  # bytes of the path of a Unix socket
_ADDRESS = re.compile(rb"([0-9a-f]{16}) ([0-9a-f]{64}) ([0-9]{5})\n")


def share_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory in which the processes of this user share their quotas.

    It is `CHAINAPI_SHARE_DIR`, else ``chainapi`` in `XDG_RUNTIME_DIR`, else a directory of the user in the
    system's folder for temporary files.
    """
    if named := environment.get("CHAINAPI_SHARE_DIR"):
        return Path(named)
    runtime = Path(environment.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():  # by its specification a relative path is ignored
        return runtime / "chainapi"
    if sys.platform == "win32":  # the folder for temporary files is the user's
        return Path(tempfile.gettempdir(), "chainapi")
    return Path(tempfile.gettempdir(), f"chainapi-{os.geteuid()}")


@frozen
class Address:
    """Address of a host.

    Attributes:
        identity: names the files of the host: 16 hexadecimal digits.
        secret: authenticates both ends of a connection: 32 bytes.
        port: on the loopback interface; 0 for a Unix socket.

    """

    identity: str
    secret: bytes = field(repr=False)
    port: int

    def encoded(self) -> bytes:
        """Return the content of the file."""
        return f"{self.identity} {self.secret.hex()} {self.port:05}\n".encode()

    @classmethod
    def decoded(cls, text: bytes) -> Address | None:
        """Return the address in a file; None if it has none."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            return None
        identity, secret, port = found.groups()
        return cls(identity.decode(), bytes.fromhex(secret.decode()), int(port))


@define(eq=False)
class Seat:
    """Place of a host: its address, its lock, and the socket at which it listens."""

    name: str
    address: Address
    listener: socket.socket
    _listening: int
    _lock: int
    _elections: Elections

    def valid(self) -> bool:
        """Return whether this process is still the host: no other one replaced it."""
        return self._elections.address(self.name) == self.address

    def release(self) -> None:
        """Give up the place, so that the next process can become the host at once."""
        forks.release(self._listening)  # the server may have closed the socket
        self.listener.close()
        self._elections.remove(self.name, self.address)
        _close(self._lock)


@define(eq=False)
class Elections:
    """Elections of hosts in a directory.

    With `tcp`, hosts listen on loopback TCP instead of Unix sockets.
    """

    directory: Path
    tcp: bool = not UNIX_SOCKETS

    def prepare(self) -> None:
        """Create the directory if it is missing; check that nobody else can use it.

        Raises:
            ConfigurationError: it is a link, or belongs to another user, or is open to others, or its path
                is too long for a Unix socket.
            OSError: it cannot be created.

        """
        with suppress(FileExistsError):
            self.directory.mkdir(mode=0o700, parents=True)
        fault = _fault(self.directory.lstat())
        if fault is None and not self.tcp and len(os.fsencode(self._socket("0" * 16))) > _LONGEST_PATH:
            fault = f"has a path that is too long for a Unix socket, which may have {_LONGEST_PATH} bytes"
        if fault is not None:
            raise ConfigurationError(
                f"the directory {self.directory} cannot be used to share the quota: it {fault}. Let"
                " CHAINAPI_SHARE_DIR name another directory; chainapi creates it if it does not exist"
            )

    def names(self) -> list[str]:
        """Return the names of quotas with a host, or with one that did not end in order."""
        return sorted(path.stem for path in self.directory.glob("*.host"))

    def address(self, name: str) -> Address | None:
        """Return the address of the last host.

        None before the first host, and after the last one ended in order.
        """
        try:
            return Address.decoded((self.directory / f"{name}.host").read_bytes())
        except FileNotFoundError:
            return None

    def socket_path(self, address: Address) -> str:
        """Return the path of a host's Unix socket."""
        return str(self._socket(address.identity))

    def alive(self, address: Address) -> bool:
        """Return whether the process of a host exists: it holds its lock."""
        try:
            with _opened(self._lock(address.identity), create=False) as lock:
                return not _locked(lock)
        except FileNotFoundError:
            return False

    def elect(self, name: str, instead_of: Address | None = None) -> Seat | None:
        """Make this process the host of a quota, if there is no other.

        A host with the address `instead_of` is replaced, although its process exists.

        Returns None if there is a host, or if another process is in an election now.
        """
        with self._election(name) as entered:
            if not entered:
                return None
            former = self.address(name)
            if former is not None:
                if former != instead_of and self.alive(former):
                    return None
                self._unlink(former.identity)
            return self._seat(name)

    def memory(self, name: str) -> tuple[bytes, float]:
        """Return what a host stored, and its age in seconds; no bytes if there is nothing."""
        try:
            with (self.directory / f"{name}.memory").open("rb") as file:
                return file.read(), max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
        except OSError:
            return b"", 0.0

    def store(self, name: str, memory: bytes) -> None:
        """Store bytes for the hosts to come.

        Raises:
            OSError: they cannot be written.

        """
        path = self.directory / f"{name}.memory"
        draft = path.with_suffix(".draft")
        _write(draft, memory)
        draft.replace(path)

    def remove(self, name: str, address: Address) -> None:
        """Remove the files of a host that ends."""
        self._unlink(address.identity)
        # During an election its winner writes the address; a stale one only says that its host ended.
        with suppress(OSError), self._election(name) as entered:
            if entered and self.address(name) == address:
                (self.directory / f"{name}.host").unlink()

    def _seat(self, name: str) -> Seat:
        identity, secret = secrets.token_hex(8), secrets.token_bytes(32)
        with ExitStack() as undo:
            undo.callback(self._unlink, identity)
            lock = _open(self._lock(identity), create=True)
            undo.callback(_close, lock)
            _locked(lock)
            listener = stream_socket(tcp=self.tcp)
            undo.callback(listener.close)
            address = Address(identity, secret, self._listen(listener, identity))
            # In place: a reader of half an address finds no host, and waits for the end of the election.
            _write(self.directory / f"{name}.host", address.encoded())
            undo.pop_all()
        forks.hold(listener.fileno())
        return Seat(name, address, listener, listener.fileno(), lock, self)

    def _listen(self, listener: socket.socket, identity: str) -> int:
        """Listen, and return the port; 0 for a Unix socket."""
        path = self._socket(identity)
        if self.tcp:
            listener.bind(("127.0.0.1", 0))
        else:
            listener.bind(str(path))
            path.chmod(0o600)
        listener.listen(BACKLOG)
        return int(listener.getsockname()[1]) if self.tcp else 0

    @contextmanager
    def _election(self, name: str) -> Iterator[bool]:
        """Hold the lock of the election; yield False if another process holds it."""
        with _opened(self.directory / f"{name}.election", create=True) as lock:
            yield _locked(lock)

    def _unlink(self, identity: str) -> None:
        for path in (self._lock(identity), self._socket(identity)):
            with suppress(OSError):  # Windows keeps the lock of a process that exists
                path.unlink()

    def _lock(self, identity: str) -> Path:
        return self.directory / f"{identity}.lock"

    def _socket(self, identity: str) -> Path:
        return self.directory / f"{identity}.sock"


def stream_socket(*, tcp: bool) -> socket.socket:
    """Return a socket that does not block: of loopback TCP, or a Unix socket."""
    if sys.platform == "win32" or tcp:
        # asyncio switches Nagle's algorithm off if the protocol is named: it would delay frames by 40 ms.
        sock = socket.socket(socket.AF_INET, proto=socket.IPPROTO_TCP)
    else:
        sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    return sock


def _fault(status: os.stat_result) -> str | None:
    """Return the reason against a directory; None without one."""
    if not stat.S_ISDIR(status.st_mode):
        return "is a link or a file"
    if sys.platform == "win32":  # permissions are those of the folder above, which is the user's
        return None
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(status.st_mode):04o} instead of 0700)"
    return None


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=_create) as file:
        file.write(content)
        file.truncate()


def _create(path: str, _: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)


# --- locks --------------------------------------------------------------------------------------


def _open(path: Path, *, create: bool) -> int:
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    forks.hold(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    forks.release(descriptor)
    os.close(descriptor)


@contextmanager
def _opened(path: Path, *, create: bool) -> Iterator[int]:
    descriptor = _open(path, create=create)
    try:
        yield descriptor
    finally:
        _close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _locked(descriptor: int) -> bool:
        """Lock a file if nobody else did; return whether this process holds the lock."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _locked(descriptor: int) -> bool:
        """Lock a file if nobody else did; return whether this process holds the lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
