"""Directory in which the processes of one user meet the host of their quotas.

``host.lock`` is locked by the host while it lives, and has its process id. ``host.sock`` is its Unix socket;
where there are none, ``host.port`` has its loopback TCP port and a secret. ``start.lock`` is locked by the
process that starts a host. ``NAME.quota`` is what the host has learned of a quota.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from chainapi.errors import ConfigurationError
from chainapi.share import forks

__all__ = ["UNIX_SOCKETS", "Directory", "is_foreign", "share_directory"]

UNIX_SOCKETS = hasattr(socket, "AF_UNIX") and sys.platform != "win32"
BACKLOG = 1024  # connections that wait to be accepted; the kernel may allow fewer
LONGEST_PATH = 100  # bytes of the path of a Unix socket that every system allows
SECRET = 32  # bytes
_EXPIRY = struct.Struct("!d")  # Unix time, before what was learned of a quota


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
class Directory:
    """Directory of one user; its methods do not wait.

    Attributes:
        path: the directory, created for the user alone (mode 0700).
        tcp: whether hosts listen on loopback TCP.

    """

    path: Path
    tcp: bool

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None = None, *, tcp: bool = not UNIX_SOCKETS) -> Directory:
        """Return a directory by its path; None for the one of `share_directory`.

        Hosts listen on loopback TCP too if the path is too long for a Unix socket.
        """
        found = share_directory() if path is None else Path(path)
        return cls(found, tcp or len(os.fsencode(found / "host.sock")) > LONGEST_PATH)

    def prepare(self) -> None:
        """Create the directory if it is missing; check that nobody else can use it.

        Raises:
            ConfigurationError: it is a link, or belongs to another user, or is open to others.
            OSError: it cannot be created.

        """
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700, parents=True)
        if (fault := _fault(self.path.lstat())) is not None:
            raise ConfigurationError(
                f"the directory {self.path} cannot be used to share the quota: it {fault}. Let"
                " CHAINAPI_SHARE_DIR name another directory; chainapi creates it if it does not exist"
            )

    # --- a session ------------------------------------------------------------------------------

    def dial(self) -> tuple[socket.socket, bytes] | None:
        """Return a connection to the host, with the secret to send.

        None if nobody listens.
        """
        with suppress(OSError, ValueError):
            if not self.tcp:
                return _connected(socket.socket(socket.AF_UNIX), str(self._socket)), b""
            port, secret = self._port.read_text("ascii").split()
            return _connected(socket.socket(), ("127.0.0.1", int(port))), bytes.fromhex(secret)
        return None

    @contextmanager
    def starting(self) -> Iterator[bool]:
        """Keep other processes from starting a host; yield False if one of them is at it."""
        with self._locked("start.lock") as lock:
            yield lock is not None

    @property
    def host(self) -> int | None:
        """Process id of the host; 0 if it must not be killed, None without a host."""
        with self._locked("host.lock") as lock:
            if lock is not None:
                return None
        with suppress(OSError, ValueError):
            return int((self.path / "host.lock").read_bytes())
        return 0

    def quotas(self) -> list[str]:
        """Return the names of the quotas that hosts have stored."""
        return sorted(path.stem for path in self.path.glob("*.quota"))

    # --- the host -------------------------------------------------------------------------------

    @contextmanager
    def hosted(self, *, replaceable: bool) -> Iterator[bool]:
        """Be the host; yield False if another process is.

        Sessions may kill this process when it does not answer, if it is `replaceable`.
        """
        with self._locked("host.lock") as lock:
            if lock is not None:
                os.ftruncate(lock, 0)
                with suppress(OSError):  # a full disk: then nobody can replace this host
                    os.write(lock, str(os.getpid() if replaceable else 0).encode())
            try:
                yield lock is not None
            finally:
                if lock is not None:
                    self._socket.unlink(missing_ok=True)
                    self._port.unlink(missing_ok=True)

    def listen(self) -> tuple[socket.socket, bytes]:
        """Listen as the host, and return the socket with the secret that sessions send."""
        if not self.tcp:
            self._socket.unlink(missing_ok=True)
            listener, secret = socket.socket(socket.AF_UNIX), b""
            listener.bind(str(self._socket))
            self._socket.chmod(0o600)
        else:
            listener, secret = socket.socket(), secrets.token_bytes(SECRET)
            listener.bind(("127.0.0.1", 0))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        if self.tcp:
            self._write("host.port", f"{listener.getsockname()[1]} {secret.hex()}".encode())
        return listener, secret

    @property
    def intact(self) -> bool:
        """Whether sessions find the host here; a directory may be removed."""
        return (self._port if self.tcp else self._socket).exists()

    def load(self, name: str) -> tuple[bytes, float]:
        """Return what a host has learned of a quota, and its age in seconds.

        No bytes for nothing.
        """
        with suppress(OSError), (self.path / f"{name}.quota").open("rb") as file:
            content, age = file.read(), max(0.0, time.time() - os.fstat(file.fileno()).st_mtime)
            return content[_EXPIRY.size :], age
        return b"", 0.0

    def store(self, name: str, memory: bytes, seconds: float) -> None:
        """Keep what the host has learned of a quota for at least some seconds."""
        with suppress(OSError):  # a full disk: the next host learns again
            self._write(f"{name}.quota", _EXPIRY.pack(time.time() + seconds) + memory)

    def prune(self) -> None:
        """Remove what was learned of quotas, once it is of no use any more."""
        for path in self.path.glob("*.quota"):
            with suppress(OSError, struct.error):
                if _EXPIRY.unpack_from(path.read_bytes())[0] < time.time():
                    path.unlink()

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _socket(self) -> Path:
        return self.path / "host.sock"

    @property
    def _port(self) -> Path:
        return self.path / "host.port"

    def _write(self, name: str, content: bytes) -> None:
        """Write a whole file, which nobody else can read."""
        draft = self.path / f".{name}.draft"
        with open(draft, "wb", opener=_create) as file:
            file.write(content)
        draft.replace(self.path / name)

    @contextmanager
    def _locked(self, name: str) -> Iterator[int | None]:
        """Lock a file, and yield its descriptor; None if another process holds the lock."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o600)
        forks.drop_in_child(descriptor)
        try:
            yield descriptor if _lock(descriptor) else None
        finally:
            forks.keep(descriptor)
            os.close(descriptor)


def is_foreign(peer: socket.socket) -> bool:
    """Return whether another user runs the process at the other end of a Unix socket.

    Where the system does not tell, the directory lets nobody else in.
    """
    if sys.platform != "linux" or peer.family != socket.AF_UNIX:
        return False
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user != os.geteuid())


def _connected(peer: socket.socket, address: str | tuple[str, int]) -> socket.socket:
    """Connect a socket; on one machine that succeeds or fails at once."""
    try:
        peer.settimeout(1.0)
        if peer.family == socket.AF_INET:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            peer.setblocking(False)  # a full queue of connections is an error
        peer.connect(address)
        peer.setblocking(False)
    except BaseException:
        peer.close()
        raise
    return peer


def _fault(status: os.stat_result) -> str | None:
    """Return the reason against a directory; None without one."""
    if not stat.S_ISDIR(status.st_mode):
        return "is a link or a file"
    if sys.platform == "win32":  # the folder above, which is the user's, gives the permissions
        return None
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(status.st_mode):04o} instead of 0700)"
    return None


_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def _create(path: str, _: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_FOLLOW, 0o600)


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        """Lock a file if nobody else did; return whether this process holds the lock."""
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # behind the process id, which others read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        """Lock a file if nobody else did; return whether this process holds the lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
