"""Carrier between the processes of one user on one machine.

All of them connect to one host process. A session that finds no host starts one. A host that does not answer
is killed, and replaced.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainapi.core.share.messages import Remote
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.directory import Directory
from chainapi.share.link import Link
from chainapi.share.stream import StreamLink, connected

__all__ = ["LocalCarrier"]

# Errors of a directory that waiting does not end. On Windows a permission may be missing for a moment.
NEVER = {errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
if sys.platform != "win32":
    NEVER |= {errno.EACCES, errno.EPERM}
PAUSE = 0.01  # seconds between two attempts to reach a host that begins
PATIENCE = 10.0  # seconds for a host to begin: on a busy machine its imports take long
# Variables of the environment that a host gets: none may have a key.
KEPT = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TMPDIR", "TZ")

_log = logging.getLogger("chainapi.share")
_processes = list[subprocess.Popen[bytes]]()  # hosts that this process has started


class LocalCarrier:
    """Carrier between the processes of one user on one machine.

    A carrier belongs to one event loop. See `chainapi.share.link.Carrier`.
    """

    patience = PATIENCE

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Prepare a carrier; it opens files and sockets when it connects.

        Args:
            directory: where processes meet; None for the directory of `share_directory`. Processes share a
                quota if they use the same one. It is created for the user alone (mode 0700).

        """
        self._directory = Directory.at(directory)
        self._links: dict[str, set[StreamLink]] = {}
        self._silent: int | None = None  # a host that did not answer

    async def connect(self, name: str) -> Link:
        """See `chainapi.share.link.Carrier.connect`."""
        with self._explained():
            self._directory.prepare()
            until = asyncio.get_running_loop().time() + PATIENCE
            while asyncio.get_running_loop().time() < until:
                self._replace_silent()
                if (link := await self._dial(name)) is not None:
                    return link
                await self._start_host()
        raise ShareUnavailableError(
            f"no process hosts the shared quota in {self._directory.path}, and none could be started in"
            f" {PATIENCE:g} s: end the processes that have files open there, or let CHAINAPI_SHARE_DIR name"
            " another directory"
        )

    async def observe(self, name: str, secret: bytes) -> Link | None:
        """Return a link to the host, which is not started for it; None if there is none.

        Raises:
            ConfigurationError: the directory cannot be used by this user.

        """
        with self._explained():
            self._directory.prepare()
            return await self._dial(name)

    def names(self) -> list[str]:
        """Return the names of the quotas that hosts have stored.

        See `observe`.

        Raises:
            ConfigurationError: the directory cannot be used by this user.
            ShareUnavailableError: the directory cannot be read now.

        """
        with self._explained():
            self._directory.prepare()
            return self._directory.quotas()

    def remote(self, name: str, secret: bytes) -> Remote | None:
        """Return None: only the processes of this machine share the quota."""
        return None

    async def aclose(self, name: str) -> None:
        """See `chainapi.share.link.Carrier.aclose`."""
        ending = [*self._links.get(name, ())]
        for link in ending:
            link.close()
        if ending:
            await asyncio.wait([link.closed for link in ending])
        await asyncio.sleep(0)  # the transports close their sockets
        _let_go()

    async def _dial(self, name: str) -> StreamLink | None:
        """Connect to the host; return None if nobody listens."""
        found = self._directory.dial()
        if found is None:
            return None
        host = self._directory.host
        link = await connected(*found)
        self._links.setdefault(name, set()).add(link)

        def ended(_: object) -> None:
            self._links[name].discard(link)
            if link.silent:
                self._silent = host

        link.closed.add_done_callback(ended)
        return link

    def _replace_silent(self) -> None:
        """Kill a host that did not answer, unless another one has its place by now."""
        silent, self._silent = self._silent, None
        if silent and silent == self._directory.host and sys.platform != "win32":
            _log.warning("process %d, the host of the shared quotas, does not answer: it is replaced", silent)
            with suppress(ProcessLookupError):
                os.kill(silent, signal.SIGKILL)

    async def _start_host(self) -> None:
        """Start a host and wait for it, unless another session is at it or a host begins."""
        _let_go()
        with self._directory.starting() as first:
            if not first or self._directory.host is not None:
                await asyncio.sleep(PAUSE)
                return
            process = _start(self._directory)
            until = asyncio.get_running_loop().time() + PATIENCE
            while asyncio.get_running_loop().time() < until:
                if (found := self._directory.dial()) is not None:
                    found[0].close()
                    _log.info(
                        "this process is the first to share quotas in %s; those in other containers, or"
                        " of other users, need the same CHAINAPI_SHARE_DIR to share them",
                        self._directory.path,
                    )
                    return
                if process is not None and process.poll() is not None:
                    raise ShareUnavailableError(
                        "the process that should host the shared quota ended at once with status"
                        f" {process.returncode}: run `{sys.executable} -m chainapi.share"
                        f" {self._directory.path}` to see why"
                    )
                await asyncio.sleep(PAUSE)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise (ConfigurationError if error.errno in NEVER else ShareUnavailableError)(
                f"the directory {self._directory.path} cannot be used to share the quota: {error}. Let"
                " CHAINAPI_SHARE_DIR name a directory that this user can write"
            ) from error


def _start(directory: Directory) -> subprocess.Popen[bytes] | None:
    """Start a host process; a thread of this process hosts if that is not possible."""
    if Path(sys.executable or "").name.lower().startswith("python") and not getattr(sys, "frozen", False):
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        command = [sys.executable, "-P", "-m", "chainapi.share", str(directory.path)]
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a path of our own
                command,
                cwd=Path(sys.executable).anchor,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            reason = str(error)
        else:
            _processes.append(process)
            return process
    else:
        reason = f"{sys.executable or 'this program'} is not the Python interpreter"
    _log.warning(
        "this process hosts the shared quotas in a thread, and ends them with itself, because no process can"
        " be started for them: %s",
        reason,
    )
    from chainapi.share.process import HostProcess  # with all rules of limits

    host = HostProcess(directory, replaceable=False)
    threading.Thread(target=lambda: asyncio.run(host.run()), name="chainapi-share", daemon=True).start()
    return None


def _let_go(*, all_: bool = False) -> None:
    """Forget the hosts that have ended, which leaves no zombie; or all of them."""
    for process in [*_processes]:
        if process.poll() is not None:
            _processes.remove(process)
        elif all_:
            process.returncode = 0  # it outlives this process; else Python would warn of it


atexit.register(_let_go, all_=True)
