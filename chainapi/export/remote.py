"""Targets on object stores, and on other file systems of fsspec.

The journal is a local folder; each part becomes an object exactly once:

1. The files of a part are written beside the journal, synced and read back (`part_writer`).
2. The journal stores their names, sizes and digests.
3. Each file is uploaded under its name; the size and the digest of the object are compared.
4. The journal stores that the part is in place; a folder gets a new manifest, which lists the part and no
   longer what it replaces.
5. The objects that the part replaces are deleted.
6. The pages of the part are deleted from the journal, and the local files too.

A run that finds a part of step 2 uploads its files again under the same names, unless the objects are there.
If a local file is missing, the part is written again from its pages. Before the first part an export
creates a claim, a small object with an id that its journal has too. So the second of two exports that begin
at the same moment is refused.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from attrs import frozen

from chainapi._text import quoted
from chainapi.core.arguments import mapping_of
from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export.files import (
    FileState,
    has_state,
    os_errors_explained,
    partial_of,
    refuse_link,
    sync_folder,
    write_partial,
)
from chainapi.export.formats import format_of
from chainapi.export.journal import Journal
from chainapi.export.manifest import MANIFEST, listed_in, manifest_of, refuse_newer
from chainapi.export.part_records import BEGUN, CLEANED, IN_PLACE, Part, PartFile, next_number
from chainapi.export.settings import JOURNAL, format_name_of, settings_in
from chainapi.export.store import Store, divided_url, path_of, redacted, refuse_cut_url
from chainapi.export.target import ABOUT, Target, refuse_name
from chainapi.export.worker import Worker, look, until

__all__ = ["RemoteTarget", "publish", "recover_uploads", "target_of"]

_BEGUN_ABOUT = f".{ABOUT}-*.partial"  # the file `ABOUT` until it is whole
_JOURNAL_FOLDER = "folder for the journal"
FILES = "files"  # folder in that of a journal: files that are not uploaded yet
UPLOADS_AT_ONCE = 8
SMALL = 8 << 20  # bytes of a file that is uploaded beside others: drivers hold up to 100 MiB of each


@frozen(kw_only=True)
class RemoteTarget(Target):
    """Target of an export on a file system of fsspec.

    `path`, `root` and the paths of parts are those of local files, which exist until they are uploaded.

    Attributes:
        store: folder of the objects.
        place: folder of the journal.

    """

    appends: ClassVar[bool] = False

    store: Store
    place: Path

    @classmethod
    def at(
        cls,
        url: str,
        format_name: str | None,
        journal: str | None,
        options: Mapping[str, Any],
    ) -> Target:
        """Return the target at a URL.

        It is a folder if the URL ends with a slash, or its last name has no suffix. The format of an export
        that is there is the default.

        Raises:
            ConfigurationError: the URL, the format or an option is invalid, or a package is missing.
            ExportError: the target has files of another format, or the journal cannot be read.

        """
        folder, name = divided_url(url, lambda name: Path(name).suffix)
        refuse_name(redacted(url), "target")
        store = Store.of(folder, options)
        if store.is_local:
            if journal is not None:
                raise ConfigurationError(_LOCAL_JOURNAL)
            return Target.of(f"{store.root}/{name}", format_name)
        protocol, _, rest = folder.partition("://")
        last = name or rest.rpartition("/")[2]
        if journal is not None and "://" in journal:
            raise ConfigurationError(
                f"journal={redacted(journal)} is a URL, and the journal is a folder on a local "
                "disk: name such a folder"
            )
        place = Path(journal or f"{last or protocol}.export").absolute()
        refuse_name(str(place), _JOURNAL_FOLDER)
        path = place / FILES / name
        with os_errors_explained(place, _JOURNAL_FOLDER):
            stored = settings_in(place)
        form = format_of(format_name_of(redacted(url), format_name, stored, last, folder=not name))
        return cls(path=path, folder=not name, format=form, store=store, place=place, stored=stored)

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return self.place

    @property
    def address(self) -> str:
        """URL of the folder or the file."""
        return self.store.url if self.folder else self.store.address(self.path.name)

    def file(self, name: str) -> str:
        """Return the URL of a file by its name below the folder."""
        return self.store.address(name)

    def exists(self, name: str) -> bool:
        """Check whether there is an object, by its name below the folder."""
        return self.store.exists(name)

    @contextmanager
    def fetched(self, name: str, stop: threading.Event) -> Iterator[Path]:
        """Download an object of the folder; delete the local file after the block."""
        path = self.root / f".old-{Path(name).name}"
        try:
            self._download(name, path, stop)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def present(self, path: Path, stop: threading.Event) -> Path | None:
        """Download the present content of a file; return None if there is no such object."""
        return self._download(self.name_of(path), path, stop)

    def _download(self, name: str, path: Path, stop: threading.Event) -> Path | None:
        found = self.store.state(name)
        if found is None:
            path.unlink(missing_ok=True)
            return None
        self.store.download(name, path, stop)
        if not has_state(path, found.size, found.digest):
            raise ExportError(f"{self.file(name)} was changed while it was read: start the same export again")
        return path

    def name_of(self, path: Path) -> str:
        """Return the name of the object of a local file."""
        return path.relative_to(self.root).as_posix()

    def prepare(self) -> bool:
        """Create the folder of the journal and the claim.

        Objects that no export with this journal wrote are refused. Returns whether the export is new here.

        Raises:
            ExportError: the target holds other objects or belongs to another export, or cannot be written.

        """
        with os_errors_explained(self.journal, _JOURNAL_FOLDER):
            refuse_link(self.journal, dangling=True)
            about, database = self.journal / ABOUT, self.journal / JOURNAL
            for path in (about, database, database.with_name(f"{JOURNAL}-wal")):
                refuse_link(path)
            is_new = not about.exists()
            own = self._begin(about) if is_new else self._read_about(about)
            self.root.mkdir(parents=True, exist_ok=True)
        if not self.store.create(self._claim, own):
            self._check_claim(own)
        return is_new

    def has_others(self) -> bool:
        """Check for the object, or for objects in the folder beside the claim."""
        if not self.folder:
            return self.exists(self.path.name)
        return any(name != self._claim for name in self.store.names())

    def _check_claim(self, own: bytes) -> None:
        """Refuse a claim with another id; write the claim again if a kill left half of it."""
        found = self.store.read(self._claim)
        if not own.startswith(found):
            raise ExportError(
                f"another export writes to {self.address}, with another journal than {self.journal}: use the "
                "journal of that export, or choose another target"
            )
        if found != own:
            self.store.replace(self._claim, own)

    def clear(self) -> None:
        """Delete the local files of parts, and what a killed run left of the address."""
        with os_errors_explained(self.journal, _JOURNAL_FOLDER):
            for left in self.journal.glob(_BEGUN_ABOUT):
                left.unlink(missing_ok=True)
            for left in sorted(self.root.rglob("*"), reverse=True):  # folders of partitions after their files
                if left.is_dir():
                    left.rmdir()
                else:
                    left.unlink()

    @property
    def _claim(self) -> str:
        return "_export" if self.folder else f"{self.path.name}.export"

    def _begin(self, about: Path) -> bytes:
        """Store the address and a new id with the journal; return the id."""
        if self.journal.exists() and (
            not self.journal.is_dir() or not all(one.match(_BEGUN_ABOUT) for one in self.journal.iterdir())
        ):
            if about.exists():  # another export with this journal has begun meanwhile
                return self._read_about(about)
            raise ExportError(
                f"{self.journal} is not a journal of an export to {self.address}: choose another folder for "
                "the journal"
            )
        taken = self.store.names() if self.folder else self.exists(self.path.name) or self._has_claim()
        if taken:
            held = "is not empty" if self.folder else "exists"
            raise ExportError(
                f"{self.address} {held}, and {self.journal} is not the journal of an export to it: use the "
                "journal of that export, or choose another target"
            )
        self.journal.mkdir(parents=True, exist_ok=True)  # a killed run may have created it
        content = json.dumps({"target": self.address, "id": uuid4().hex}).encode()
        _create_once(about, content)
        return self._read_about(about)

    def _has_claim(self) -> bool:
        return self.exists(self._claim)

    def _read_about(self, about: Path) -> bytes:
        try:
            found = json.loads(about.read_bytes())
            target, own = found["target"], found["id"].encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ExportError(f"{about} is damaged: put a copy back, or choose another target") from None
        if target != self.address:
            raise ExportError(
                f"{self.journal} is the journal of an export to {target}, and not to {self.address}: choose "
                "another folder for the journal"
            )
        return bytes(own)


def target_of(
    out: str | os.PathLike[str],
    format_name: str | None,
    journal: str | os.PathLike[str] | None,
    storage_options: Mapping[str, Any] | None,
) -> Target:
    """Return the target at a path or a URL.

    Raises:
        ConfigurationError: `out` is no path or URL, the format is unknown, a package is missing, or an
            argument does not apply.
        ExportError: no file can have this name.

    """
    address, options = path_of("out", out), mapping_of("storage_options", storage_options)
    refuse_cut_url(address)
    place = None if journal is None else path_of("journal", journal)
    if not isinstance(format_name, str | None):
        raise ArgumentError(f"format={quoted(format_name)} must be the name of a format, such as parquet")
    if isinstance(out, str) and "://" in address:
        return RemoteTarget.at(address, format_name, place, options)
    if place is not None:
        raise ConfigurationError(_LOCAL_JOURNAL)
    if options:
        raise ConfigurationError(
            "storage_options= apply to a URL such as s3://bucket/folder/: leave them out"
        )
    return Target.of(out, format_name)


_LOCAL_JOURNAL = (
    "journal= applies to a URL such as s3://bucket/folder/; the journal of a local target is beside it: "
    "leave it out"
)


# Parts


async def publish(journal: Journal, target: RemoteTarget, part: Part, worker: Worker, thread: Worker) -> None:
    """Upload the files of a written part.

    Args:
        journal: journal of the export.
        target: target of the export.
        part: the part.
        worker: thread that the journal belongs to.
        thread: thread of the uploads.

    Raises:
        ExportError: an object or the journal cannot be written; the next run completes the part.
        Stopped: the caller was cancelled during an upload; the next run repeats it.

    """
    if target.folder:
        await thread.run(_check_new, target, part)
    await worker.run(journal.begin_part, part)
    await thread.run(_upload, target, part, thread.stop, new=target.folder)
    await worker.run(journal.complete_part, part)
    if target.folder:
        content = await worker.run(manifest_of, journal)
        await thread.run(target.store.replace, MANIFEST, content)
        await thread.run(target.store.remove, part.content.replaces)
    await worker.run(journal.clean, part, finished=not target.folder)
    await thread.run(target.clear)


def recover_uploads(journal: Journal, target: RemoteTarget, stop: threading.Event) -> Part | None:
    """Complete and return the part of a killed run; check that a file is unchanged.

    Raises:
        ExportError: the file is missing or was changed, or the journal has no record of it.
        Stopped: `stop` was set during an upload; the next run repeats it.

    """
    part, completed = journal.last_part(), None
    with os_errors_explained(target.journal, _JOURNAL_FOLDER):
        if part is not None and part.state == BEGUN:
            _refuse_newer(journal, target, part, stop)
            if _is_ready(target, part):
                _upload(target, part, stop)
                journal.complete_part(part)
            else:
                _withdraw(journal, target, part)
                journal.discard_part(part)
                part = journal.last_part()
        if part is None or target.folder:
            _check_free(target, target.name_of(target.part(next_number(part))))
        if part is not None and target.folder:
            _check_manifest(journal, target, part)
        if part is not None and part.state != CLEANED:
            target.store.remove(part.content.replaces)
            journal.clean(part, finished=not target.folder)
            completed = part
        target.clear()
        if part is not None and not target.folder:
            _check_unchanged(target, part.rows_file)
    return completed


def _check_new(target: RemoteTarget, part: Part) -> None:
    """Refuse a part with the name of an object of others."""
    names = [file.name for file in part.content.files]
    with ThreadPoolExecutor(UPLOADS_AT_ONCE if target.store.is_concurrent else 1, "chainapi-look") as threads:
        deque(threads.map(partial(_check_free, target), names), maxlen=0)


def _upload(target: RemoteTarget, part: Part, stop: threading.Event, *, new: bool = False) -> None:
    """Upload the files that are not there yet; small ones side by side.

    The names of a `new` part are known to be free.
    """
    small, large = list[PartFile](), list[PartFile]()
    for file in part.content.files:
        (small if target.store.is_concurrent and file.size <= SMALL else large).append(file)
    upload = partial(_upload_file, target, stop, new)
    with ThreadPoolExecutor(UPLOADS_AT_ONCE, "chainapi-upload") as threads:
        deque(threads.map(upload, small), maxlen=0)
    for file in large:
        upload(file)


def _upload_file(target: RemoteTarget, stop: threading.Event, new: bool, file: PartFile) -> None:
    look(stop)
    if new or not _is_uploaded(target, file):
        target.store.upload(file.name, partial_of(target.root / file.name), stop)


def _is_ready(target: RemoteTarget, part: Part) -> bool:
    """Check whether each file of a part is an object, or can be uploaded."""
    return all(
        has_state(partial_of(target.root / file.name), file.size, file.digest) or _is_uploaded(target, file)
        for file in part.content.files
    )


def _is_uploaded(target: RemoteTarget, file: PartFile) -> bool:
    return target.store.state(file.name) == FileState(file.size, file.digest)


def _withdraw(journal: Journal, target: RemoteTarget, part: Part) -> None:
    """Delete the objects of a part that is written again.

    Its files may get other names. The object of a single file has the old rows and stays; that of its invalid
    rows loses what the part has added.
    """
    if target.folder or part.number == 1:
        target.store.remove(file.name for file in part.content.files)
        return
    name = next((file.name for file in part.content.files if file.invalid), None)
    if name is None or not target.exists(name):
        return
    before = [file.size for old in journal.parts() for file in old.content.files if file.invalid]
    if before:
        target.store.replace(name, target.store.read(name)[: before[-1]])
    else:
        target.store.remove([name])


def _create_once(path: Path, content: bytes) -> None:
    """Create a file whole, unless another export creates it at the same moment."""
    own = path.with_name(f"{path.name}-{uuid4().hex}")
    write_partial(own, lambda partial: partial.write_bytes(content))
    try:
        path.hardlink_to(partial_of(own))
    except OSError:
        if not path.exists():  # a file system without hard links
            partial_of(own).replace(path)
    partial_of(own).unlink(missing_ok=True)
    sync_folder(path.parent)


def _refuse_newer(journal: Journal, target: RemoteTarget, part: Part, stop: threading.Event) -> None:
    """Refuse to repeat a begun part that a newer copy of the journal has completed.

    A single object has the rows before the part, or its own, or those that were uploaded before a kill.
    """
    if target.folder:
        if target.exists(MANIFEST):
            refuse_newer(target.file(MANIFEST), target.store.read(MANIFEST).splitlines(), part.number, target)
        return
    own, before = part.rows_file, journal.last_part(IN_PLACE)
    found = None if own is None else target.store.state(own.name)
    if own is None or found is None or found in _states(part, before):
        return
    if found.size >= own.size or not _is_torn(target, own, stop):
        raise _changed(target)


def _states(*parts: Part | None) -> list[FileState]:
    """Return the states of the files with the rows of parts."""
    files = [part.rows_file for part in parts if part is not None]
    return [FileState(file.size, file.digest) for file in files if file is not None]


def _is_torn(target: RemoteTarget, file: PartFile, stop: threading.Event) -> bool:
    """Check whether an object has the first bytes of a file.

    Stores that are not atomic show them after an upload that was killed.
    """
    path = partial_of(target.root / file.name)
    if not path.is_file():
        return True
    with path.open("rb") as own, closing(target.store.pieces(file.name)) as pieces:
        return all(piece == own.read(len(piece)) for piece in until(stop, pieces))


def _check_manifest(journal: Journal, target: RemoteTarget, last: Part) -> None:
    """Write the manifest again if it is missing or differs.

    One with newer parts, or without files that they have replaced, is refused: the journal is then an old
    copy. Half a manifest is what a killed run leaves in a store that is not atomic.
    """
    content = manifest_of(journal)
    found = target.store.read(MANIFEST) if target.exists(MANIFEST) else b""
    if found == content:
        return
    refuse_newer(target.file(MANIFEST), found.splitlines(), last.number + 1, target)
    if found.endswith(b"\n"):
        _refuse_lacking(target, found, content, last.number + (last.state == CLEANED))
    target.store.replace(MANIFEST, content)


def _refuse_lacking(target: RemoteTarget, manifest: bytes, content: bytes, number: int) -> None:
    """Refuse a manifest without files of parts below a number, which `content` lists."""
    listed = {name for name, _ in listed_in(manifest.splitlines())}
    for name, part in listed_in(content.splitlines()):
        if part < number and name not in listed:
            raise ExportError(
                f"{target.file(MANIFEST)} lacks {name}, which {target.journal} has: is that an old copy? Put "
                "the newest copy back, or delete the manifest if it was changed"
            )


def _check_free(target: RemoteTarget, name: str) -> None:
    """Refuse to overwrite an object that the journal lacks: it is then an old copy."""
    if target.exists(name):
        raise ExportError(
            f"{target.file(name)} exists, but {target.journal} has no record of it: is that an old copy, "
            "or without its -wal file? Put the newest copy back, or choose another target"
        )


def _check_unchanged(target: RemoteTarget, file: PartFile | None) -> None:
    found = None if file is None else target.store.state(file.name)
    if file is None or found is None:
        raise _changed(target, "is missing")
    if found != FileState(file.size, file.digest):
        raise _changed(target)


def _changed(target: RemoteTarget, what: str = "was changed since it was written") -> ExportError:
    return ExportError(
        f"{target.address} {what}: put it back as it was, or delete it and {target.journal} to start over"
    )
