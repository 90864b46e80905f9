"""Objects of a folder on any file system of fsspec.

`Store.create` is atomic, fails if the name exists, and reads the object back:

- on a local file system the object is written under another name, synced, and linked to its name, which fails
  if the name exists; then its folder is synced,
- S3, Google Cloud Storage and Azure Blob Storage refuse the second object of a name (``If-None-Match: *``,
  ``ifGenerationMatch=0``; fsspec's ``mode="create"``), and show objects only whole,
- ``memory://`` is one dictionary of this process,
- other file systems of fsspec check whether the name exists and then write: two writers at the same moment
  may both succeed, and a killed one may leave half an object.

`Store.upload` replaces an object. It is atomic on the object stores. Other file systems may show half an
object after an upload that was killed or failed, until it is repeated: callers compare `Store.state` with
what they know. No error has a credential from the options of the file system. Everything here blocks.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EIO, ENOTDIR
from pathlib import Path
from traceback import format_exception
from typing import Any, BinaryIO, Self, cast
from uuid import uuid4

from attrs import field, frozen

from chainapi._text import masked, quoted
from chainapi.core.extras import missing_extra
from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export.files import FileState, chunks, has_state, reason_of, state_of, sync_folder
from chainapi.export.worker import Stopped, look

__all__ = [
    "Store",
    "absolute",
    "divided_url",
    "path_of",
    "redacted",
    "refuse_credentials",
    "refuse_cut_url",
    "secrets_in",
]

SHORTEST_SECRET = 4  # characters: a shorter option is no secret, and its text may be anywhere
SHORTEST_PIECE = 8  # characters: a shorter piece of an option may be part of other words
_SEPARATORS = re.compile(r"[?&;\s]+")  # between the pieces of a SAS token, a connection string, a PEM key
_USER = re.compile(r"(?:^|::)(?P<protocol>[^:/]*)://(?P<user>[^/]*@)")  # of each URL in a chain
_CUT_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[/\\](?![/\\])")  # one letter is a drive
_WITH_CONTAINER = ("abfs", "abfss", "az")  # Azure: "abfs://container@account/folder"


def absolute(target: str | os.PathLike[str]) -> str:
    """Return a target as a URL or an absolute path, the same for every process."""
    text = os.fspath(target)
    return text if "://" in text or "::" in text else str(Path(text).absolute())


def path_of(name: str, value: str | os.PathLike[str]) -> str:
    """Return an argument that is a path or a URL as a string.

    Raises:
        ArgumentError: it is neither a string nor an object for a path that is one.

    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ArgumentError(f"{name}={quoted(value)} must be a path: a string, or a Path")
    return text


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


def redacted(url: str) -> str:
    """Return a URL, or a chain of them, without users, passwords and a query.

    The container of an Azure URL, which is where others have the user, stays.
    """
    protocol, separator, rest = url.partition("://")
    return _USER.sub(_without_user, f"{protocol}{separator}{rest.partition('?')[0]}")


def _without_user(found: re.Match[str]) -> str:
    user = found["user"]
    is_container = found["protocol"] in _WITH_CONTAINER and user != "@" and ":" not in user
    return found[0] if is_container else found[0].removesuffix(user)


def refuse_credentials(url: str) -> None:
    """Refuse a URL, or a chain of them, with credentials that would be in messages.

    Raises:
        ConfigurationError: it has a password or a query.

    """
    if "?" in url.partition("://")[2] or any(":" in found["user"] for found in _USER.finditer(url)):
        raise ConfigurationError(
            f"{redacted(url)} was given with a password or a query: pass credentials with storage_options=, "
            "or in the environment or the configuration of the file system"
        )


def divided_url(url: str, is_file: Callable[[str], object]) -> tuple[str, str]:
    """Return the URL of a folder, and the name of a file in it; empty for the folder.

    A URL with a slash at its end is a folder, and so is one whose last name is no file by `is_file`.

    Raises:
        ConfigurationError: the URL has credentials that would be in messages, or is a chain of file systems.

    """
    if "::" in url:
        raise ConfigurationError(f"{redacted(url)} is a chain of file systems: name the last one alone")
    refuse_credentials(url)
    protocol, _, rest = url.partition("://")
    top = "/" if rest.startswith("/") else ""  # without it, file:// is the current directory
    above, _, name = rest.rstrip("/").rpartition("/")
    if rest.endswith("/") or not is_file(name):
        return f"{protocol}://{rest.rstrip('/') or top}", ""
    return f"{protocol}://{above or top}", name


@frozen(eq=False)
class Store:
    """Folder of an fsspec file system.

    Attributes:
        url: the folder as the user named it.
        files: the file system.
        root: path of the folder in it.
        secrets: strings that no message may have.
        advice: what the message of an error says to do.

    """

    url: str
    files: Any = field(repr=False)  # its options may have the credentials of the file system
    root: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    advice: str = field(
        default="what is there is kept: remove the cause and start the same export again", repr=False
    )

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Open the folder at a URL or a path, with the `options` of its file system.

        Raises:
            ConfigurationError: the file system is unknown, or a package that it needs is missing.

        """
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]
        except ImportError:
            raise missing_extra(f"{redacted(url)} needs", "fsspec", "fsspec") from None
        secrets = secrets_in([options, *_configured(url)])
        if redacted(url) != url:
            secrets = *secrets, url
        try:
            files, root = url_to_fs(url, **options)
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            reason = _masked(str(error) or type(error).__name__, secrets)
            raise ConfigurationError(
                f"{redacted(url)} cannot be opened by fsspec on this machine: {reason}"
            ) from None
        return cls(redacted(url), files, root.rstrip("/"), secrets)

    def address(self, name: str) -> str:
        """Return the URL of an object, or of the folder itself for an empty name."""
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{name}" if name else self.url

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names in a folder; empty if the folder is missing.

        Raises:
            ExportError: the folder cannot be listed.

        """
        path = self._path(folder)
        with self._explained(folder, "listed"):
            self.files.invalidate_cache()
            try:
                found = self.files.ls(path, detail=False)
            except FileNotFoundError:
                return []
        names = (name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != path)
        return sorted(name for name in names if not name.endswith(_UNFINISHED))

    def files_below(self) -> list[str]:
        """Return the sorted names of all objects below the folder, with slashes.

        Raises:
            ExportError: they cannot be listed.

        """
        with self._explained("", "listed"):
            self.files.invalidate_cache()
            found = self.files.find(self.root)
        return sorted(name.removeprefix(self.root).lstrip("/") for name in found)

    def create(self, name: str, content: bytes) -> bool:
        """Create an object with this content; return False if the name exists.

        Raises:
            ExportError: the object cannot be written.

        """
        path = self._path(name)
        with self._explained(name):
            try:
                if self.is_local:
                    _create_file(Path(path), content)
                else:
                    self.files.pipe_file(path, content, mode="create")
                    self._read_back(path, content)
            except FileExistsError:
                return False
            except OSError:
                # A server that speaks S3 may refuse the second object with a code of its own, and an error
                # of the network hides whether the object arrived: callers compare what is there with theirs.
                if self.files.exists(path):
                    return False
                raise
        return True

    def _read_back(self, path: str, content: bytes) -> None:
        """Compare a new object with its content; delete it if it differs."""
        if content and self.files.cat_file(path) != content:
            self.files.rm_file(path)
            raise OSError(EIO, "other bytes came back than were written")

    def replace(self, name: str, content: bytes) -> None:
        """Create an object with this content, or give it this content.

        Raises:
            ExportError: the object cannot be written.

        """
        path = self._path(name)
        with self._explained(name):
            if self.is_local:
                _replace_file(Path(path), content)
            else:
                self.files.pipe_file(path, content)

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            ExportError: the object is missing or cannot be read.

        """
        path = self._path(name)
        with self._explained(name, "read"):
            return cast("bytes", self.files.cat_file(path))

    @contextmanager
    def opened(self, name: str, own: tuple[type[Exception], ...] = ()) -> Iterator[BinaryIO]:
        """Open an object for reading in pieces.

        Args:
            name: name of the object.
            own: errors of the block; all others are those of the driver, which may have any.

        Raises:
            ExportError: the object is missing or cannot be read.

        """
        with self._explained(name, "read", (Stopped, *own)), self.files.open(self._path(name), "rb") as file:
            yield file

    def pieces(self, name: str) -> Generator[bytes, None, None]:
        """Yield the content of an object in pieces.

        Raises:
            ExportError: the object is missing or cannot be read.

        """
        with self.opened(name) as file:
            yield from chunks(file)

    def upload(self, name: str, path: Path, stop: threading.Event) -> None:
        """Copy a local file to an object, and compare the two.

        Raises:
            ExportError: the object cannot be written, or has other bytes than the file.
            Stopped: `stop` was set before the file system reported the last bytes as sent.

        """
        with self._explained(name):
            self.files.put_file(str(path), self._path(name), callback=_watching(stop))
        found = self.state(name)
        if found is None or not has_state(path, found.size, found.digest):
            raise ExportError(
                f"{self.address(name)} has other bytes when it is read back than were uploaded; all rows are "
                "kept in the journal: start the same export again"
            )

    def download(self, name: str, path: Path, stop: threading.Event | None = None) -> None:
        """Copy an object to a local file.

        Raises:
            ExportError: the object is missing, or it cannot be read or stored.
            Stopped: `stop` was set before the file system reported the last bytes as received.

        """
        with self._explained(name, "read"):
            self.files.get_file(self._path(name), str(path), callback=_watching(stop))

    def state(self, name: str) -> FileState | None:
        """Return the size and the digest of an object; None if it is missing.

        Raises:
            ExportError: the object cannot be read.

        """
        path, size = self._path(name), self._size(name)
        if size is None:
            return None
        with self._explained(name, "read"):
            return state_of(size, lambda start, end: self.files.cat_file(path, start=start, end=end))

    def exists(self, name: str) -> bool:
        """Check whether there is an object.

        Raises:
            ExportError: the store does not say so.

        """
        return self._size(name) is not None

    def _size(self, name: str) -> int | None:
        """Return the size of an object; None if it is missing."""
        with self._explained(name, "read"):
            self.files.invalidate_cache()
            try:
                found = self.files.info(self._path(name))
            except FileNotFoundError:
                return None
            return int(found["size"]) if found["type"] == "file" else None

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; those that are missing are left out."""
        for name in names:
            path = self._path(name)
            with self._explained(name, "removed"), suppress(FileNotFoundError):
                self.files.rm_file(path)

    def remove_unfinished(self) -> None:
        """Delete what killed writers left behind in a local folder."""
        if self.is_local:
            for path in Path(self.root).rglob(f".*{_UNFINISHED}"):
                path.unlink(missing_ok=True)

    @property
    def is_local(self) -> bool:
        """Check whether the objects are local files."""
        from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

        return isinstance(self.files, LocalFileSystem)

    @property
    def is_concurrent(self) -> bool:
        """Check whether calls of several threads run side by side.

        They do with asynchronous drivers; others may have one connection.
        """
        return bool(getattr(self.files, "async_impl", False))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def _explained(
        self, name: str, step: str = "written", own: tuple[type[Exception], ...] = (Stopped,)
    ) -> Iterator[None]:
        try:
            yield
        except own:
            raise
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            told = _masked(reason or type(error).__name__, self.secrets)
            whole = "".join(format_exception(error))
            raise ExportError(f"{self.address(name)} cannot be {step}: {told}; {self.advice}") from (
                error if _masked(whole, self.secrets) == whole else None
            )


def secrets_in(options: Any) -> tuple[str, ...]:
    """Return the strings that no message may have, the longest first.

    Drivers put pieces of an option in their messages, such as the parameters of a token.
    """
    found = set[str]()
    for text in _texts(options):
        found.add(text)
        pieces = [piece for part in _SEPARATORS.split(text) for piece in (part, part.partition("=")[2])]
        found.update(piece for piece in _texts(pieces) if len(piece) >= SHORTEST_PIECE)
    return tuple(sorted(found, key=len, reverse=True))  # one may be the beginning of another


def _watching(stop: threading.Event | None) -> Any:
    """Return a callback of fsspec that looks at `stop` at each piece of a file."""
    from fsspec.callbacks import Callback  # type: ignore[import-untyped]

    return Callback(hooks={"stop": lambda *_, **__: look(stop)})


def _configured(url: str) -> Iterator[Mapping[str, Any]]:
    """Yield the options that fsspec adds to those of a caller.

    They are from its configuration files, and from variables such as ``FSSPEC_S3_SECRET``.
    """
    from fsspec.config import apply_config  # type: ignore[import-untyped]
    from fsspec.core import get_filesystem_class, split_protocol

    for one in url.split("::"):
        protocol = split_protocol(one)[0] or one  # a file system in a chain may have no path
        with suppress(Exception):  # of an unknown or broken one, which cannot be opened either
            yield apply_config(get_filesystem_class(protocol), {})


def _texts(options: Any) -> Iterator[str]:
    """Yield the strings in the options of a file system that may be credentials.

    Those are all but addresses.
    """
    if isinstance(options, bytes):
        yield options.decode(errors="replace")
    elif isinstance(options, str):
        if not options.startswith(("http://", "https://")) or redacted(options) != options:
            yield options
    elif isinstance(options, Mapping):
        for value in options.values():
            yield from _texts(value)
    elif isinstance(options, list | tuple | set | frozenset):
        for value in options:
            yield from _texts(value)


def _masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            # `masked` leaves a short secret inside of a word.
            text = masked(text, secret).replace(secret, "***")
    return text


_UNFINISHED = ".unfinished"  # suffix of a local file that is being written


def _create_file(path: Path, content: bytes) -> None:
    """Create a file whole, or raise FileExistsError."""
    unfinished = _written(path, content)
    try:
        if os.name == "nt":
            unfinished.rename(path)  # Windows refuses a name that exists
        else:
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def _replace_file(path: Path, content: bytes) -> None:
    _written(path, content).replace(path)
    sync_folder(path.parent)


def _written(path: Path, content: bytes) -> Path:
    """Write and sync a file beside `path`, and return its path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # which would mean that the object itself exists
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(path.parent)) from error
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}{_UNFINISHED}")
    with unfinished.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if unfinished.read_bytes() != content:
        unfinished.unlink()
        raise OSError(EIO, "other bytes came back than were written")
    return unfinished
