"""Files of an export on any file system of fsspec (extra `fsspec`).

S3, Google Cloud Storage, Azure and ``memory://`` create an object only once (``If-None-Match: *`` and the
like), and show it only whole. On others two writers at the same moment may both create a name: there the log
compares the id of its writer before each commit. No error has a credential from the options of the file
system.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import ENOENT
from pathlib import Path
from traceback import format_exception
from typing import Any, Self, cast
from uuid import uuid4

from attrs import define, field

from chainapi._text import MASK, notation, quoted
from chainapi.core.extras import missing_extra
from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export.disk import reason_of

__all__ = ["Bucket", "checked_url", "refuse_cut_url"]

UPLOADS_AT_ONCE = 8
SHORTEST_SECRET = 4  # characters: a shorter option is no secret, and its text may be anywhere
EXCLUSIVE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
# Part of a token, a connection string or a PEM key, without its name; a shorter one may be in other words.
_PIECE = re.compile(r"(?:^|[?&;\s])(?:[^=?&;\s]*=)?([^?&;\s]{8,})")
_ADDRESS = re.compile(r"https?://[^?@]*")  # without credentials
_USER = re.compile(r"(?P<container>(?:abfss?|az)://[^/:@]+@)|(?<=://)[^/]*@")  # of Azure; it is no user
_PASSWORD = re.compile(r"://[^/]*:[^/]*@")
_CUT_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[/\\](?![/\\])")  # one letter is a drive


@define(eq=False)
class Bucket:
    """Folder of an fsspec file system.

    New files are written on the local disk, and uploaded.

    Attributes:
        url: the folder as the user named it.
        files: the file system.
        root: path of the folder in it.
        exclusive: whether only one creation of a name succeeds.

    """

    url: str
    files: Any = field(repr=False)  # its options may have the credentials of the file system
    root: str = field(repr=False)
    exclusive: bool
    _secrets: re.Pattern[str] = field(repr=False)  # that no message may have
    _folders: set[str] = field(factory=set[str], init=False)  # that are there
    _local: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Open the folder at a URL, with the options of its file system.

        Raises:
            ConfigurationError: the file system is unknown, or a package that it needs is missing.

        """
        shown = redacted(url)
        try:
            from fsspec.config import conf  # type: ignore[import-untyped]
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        except ImportError:
            raise missing_extra(f"{shown} needs", "fsspec", "fsspec") from None
        secrets = _pattern_of(_secrets_in([options, conf, url if shown != url else ""]))
        try:
            files, root = url_to_fs(url, **options)
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            reason = secrets.sub(MASK, str(error) or type(error).__name__)
            raise ConfigurationError(
                f"{shown} cannot be opened by fsspec on this machine: {reason}"
            ) from None
        return cls(shown, files, root.rstrip("/"), _is_exclusive(files), secrets)

    def address(self, name: str = "") -> str:
        """Return the URL of an object, or of the folder."""
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{name}" if name else self.url

    def names(self, folder: str = "", *, below: bool = False) -> list[str]:
        """Return the names of the objects in a folder, sorted.

        With `below` in the folders in it too.
        """
        path = self._path(folder)
        with self._explained(folder, "listed"):
            self.files.invalidate_cache()
            try:
                found = self.files.find(path, maxdepth=None if below else 1)
            except FileNotFoundError:
                return []
        return sorted(name.removeprefix(path).lstrip("/") for name in found if name.startswith(f"{path}/"))

    def size(self, name: str) -> int | None:
        """Return the bytes of an object; None if there is none."""
        with self._explained(name, "read"):
            self.files.invalidate_cache()
            try:
                found = self.files.info(self._path(name))
            except FileNotFoundError:
                return None
            return int(found["size"]) if found["type"] == "file" else None

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the bytes of an object, or those between two offsets.

        None if there is no such object.
        """
        with self._explained(name, "read"), suppress(FileNotFoundError):
            return cast("bytes", self.files.cat_file(self._path(name), start=start, end=end))
        return None

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """Yield the path of a local file with the content of an object."""
        path = self.staged(f"fetched/{uuid4().hex}{Path(name).suffix}")  # an object may have any name
        try:
            with self._explained(name, "read"):
                self.files.get_file(self._path(name), str(path))
            yield path
        finally:
            path.unlink(missing_ok=True)

    def create(self, name: str, content: bytes) -> bool:
        """Create an object; return False if there is one."""
        path = self._path(name)
        with self._explained(name):
            self._make_folder(name)
            try:
                self.files.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            except OSError:
                # A server may refuse the second object with a code of its own, and an error of the network
                # hides whether the object arrived: the caller compares what is there with its own.
                if self.files.exists(path):
                    return False
                raise
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write an object, in place of one with its name."""
        with self._explained(name):
            self._make_folder(name)
            self.files.pipe_file(self._path(name), content)

    def staged(self, name: str) -> Path:
        """Return the local path at which a new file is written."""
        if self._local is None:
            self._local = tempfile.TemporaryDirectory(prefix="chainapi-", ignore_cleanup_errors=True)
        path = Path(self._local.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def keep(self, names: Collection[str]) -> None:
        """Upload staged files, and delete the local ones.

        Raises:
            ExportError: an object cannot be written, or has another size than the file.

        """
        # Drivers that are not asynchronous may have one connection.
        at_once = UPLOADS_AT_ONCE if getattr(self.files, "async_impl", False) else 1
        with ThreadPoolExecutor(at_once, "chainapi-upload") as threads:
            for _ in threads.map(self._upload, names):
                pass

    def _upload(self, name: str) -> None:
        path = self.staged(name)
        with self._explained(name):
            self._make_folder(name)
            self.files.put_file(str(path), self._path(name))
        if self.size(name) != path.stat().st_size:
            raise ExportError(
                f"{self.address(name)} has another size than the file that was uploaded: start the same "
                "export again"
            )
        path.unlink()

    def publish(self, names: Collection[str]) -> None:
        """Do nothing: an object has its name since it was uploaded."""

    def discard(self, names: Iterable[str]) -> None:
        """Delete staged files, and objects that no record names."""
        for name in names:
            with suppress(OSError):
                self.staged(name).unlink(missing_ok=True)
            with suppress(Exception):  # each driver has errors of its own; a later run tries again
                self.files.rm_file(self._path(name))

    def remove(self, names: Collection[str]) -> None:
        """Delete objects; those that are missing are left out."""
        for name in names:
            with self._explained(name, "removed"), suppress(FileNotFoundError):
                self.files.rm_file(self._path(name))

    def left_behind(self, folder: str = "") -> list[str]:
        """Return nothing: the objects of a killed run have their names."""
        return []

    def close(self) -> None:
        """Delete the local files."""
        if self._local is not None:
            self._local.cleanup()
            self._local = None

    def _make_folder(self, name: str) -> None:
        """Create the folder of an object, on file systems that have folders."""
        folder = self._path(name).rpartition("/")[0]
        if folder not in self._folders:
            if not self.exclusive:
                self.files.makedirs(folder, exist_ok=True)
            self._folders.add(folder)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def _explained(self, name: str, step: str = "written") -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if step == "written":
                raise self._error(name, step, "there is no such folder") from None
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), self.address(name)) from None
        except ExportError:
            raise
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            told = self._secrets.sub(MASK, reason or type(error).__name__)
            has_secret = self._secrets.search("".join(format_exception(error)))
            raise self._error(name, step, told) from (None if has_secret else error)

    def _error(self, name: str, step: str, reason: str) -> ExportError:
        return ExportError(
            f"{self.address(name)} cannot be {step}: {reason}; remove the cause, and start again"
        )


def _is_exclusive(files: Any) -> bool:
    from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return isinstance(files, MemoryFileSystem) or any(one in EXCLUSIVE for one in protocols)


# URLs and credentials


def refuse_cut_url(address: str) -> None:
    """Refuse a URL without its second slash, such as ``str(Path("s3://bucket/x"))``.

    Raises:
        ArgumentError: it is one.

    """
    if _CUT_URL.match(address):
        raise ArgumentError(
            f"{quoted(address)} is a URL that lacks a slash: give a string such as s3://bucket/folder/, or "
            "the absolute path of a local folder with this name"
        )


def checked_url(url: str, suffixes: Collection[str]) -> str:
    """Return the URL of a folder.

    Args:
        url: the URL.
        suffixes: suffixes that only files have.

    Raises:
        ConfigurationError: it names a file, or a chain of file systems, or has credentials that would be
            in messages.

    """
    shown = redacted(url)
    if "::" in url:
        raise ConfigurationError(f"{shown} is a chain of file systems: name the last one alone")
    if "?" in url or _PASSWORD.search(url):
        raise ConfigurationError(
            f"{shown} was given with a password or a query: pass credentials with storage_options=, or in "
            "the environment or the configuration of the file system"
        )
    if url.lower().endswith(tuple(suffixes)):
        raise ConfigurationError(
            f"{shown} is a file, and an object of a URL cannot grow: name a folder, such as"
            f" {shown.rpartition('.')[0]}/, or export to a local file and upload that"
        )
    protocol, _, rest = url.partition("://")
    top = "/" if rest.startswith("/") else ""  # without it, local:// is the current directory
    return f"{protocol}://{rest.rstrip('/') or top}"


def redacted(url: str) -> str:
    """Return a URL, or a chain of them, without users, passwords and a query."""
    return _USER.sub(lambda found: found["container"] or "", url.partition("?")[0])


def _pattern_of(secrets: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds each secret, as it is, and in JSON, HTML and URLs."""
    longest_first = sorted({*secrets}, key=len, reverse=True)  # one may be the beginning of another
    found = ["".join(map(notation, one)) for one in longest_first if len(one) >= SHORTEST_SECRET]
    return re.compile("|".join(found) or "(?!)")


def _secrets_in(options: Any) -> Iterator[str]:
    """Yield the texts in options that may be credentials: all but addresses.

    Drivers put pieces of an option in their messages, such as the parameters of a token.
    """
    if isinstance(options, Mapping):
        options = [*options.values()]
    elif isinstance(options, bytes):
        options = options.decode(errors="replace")
    if isinstance(options, str):
        texts = [options, *_PIECE.findall(options)]
        yield from (text for text in texts if not _ADDRESS.fullmatch(text))
    elif isinstance(options, list | tuple | set | frozenset):
        for value in options:
            yield from _secrets_in(value)
