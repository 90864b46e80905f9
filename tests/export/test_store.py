"""Objects of a folder: created whole, and at most once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.store import Store, redacted, refuse_credentials, secrets_in
from tests.dask.disks import Disk

pytestmark = pytest.mark.rule


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a local folder, or one in memory."""
    return Store.of(str(tmp_path / "b"), {}) if request.param == "file" else Store("disk://b", Disk(), "/b")


def test_an_object_is_created_once(store: Store) -> None:
    """The second creation of a name changes nothing; a replacement does."""
    assert store.create("a/one", b"first")
    assert not store.create("a/one", b"second")
    assert store.read("a/one") == b"first"
    store.replace("a/one", b"third")
    assert store.read("a/one") == b"third"
    assert (store.names(), store.names("a"), store.names("c")) == (["a"], ["one"], [])
    with store.opened("a/one") as file:
        assert file.read(2) == b"th"
    store.remove(["a/one", "a/two"])
    assert store.names("a") == []


class Losing(Disk):
    """File system that keeps half of each object."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Create half an object."""
        super().pipe_file(path, value[: len(value) // 2], mode, **options)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_object_is_read_back(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that comes back with other bytes is an error, and has no name."""
    monkeypatch.setattr(os, "fsync", lambda handle: os.ftruncate(handle, 3))
    store = Store.of(str(tmp_path), {}) if kind == "file" else Store("disk://b", Losing(), "/b")
    with pytest.raises(ExportError, match="one cannot be written: other bytes came back"):
        store.create("one", b"content")
    assert store.names() == []
    assert [*tmp_path.iterdir()] == []


def test_of_many_writers_one_creates(tmp_path: Path) -> None:
    """Of many writers that create one name at once, one succeeds, and the object is that one's."""
    store = Store.of(str(tmp_path / "b"), {})
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            contents = [f"{number} {writer}".encode() * 1000 for writer in range(8)]
            created = [*pool.map(lambda content, number=number: store.create(str(number), content), contents)]
            assert created.count(True) == 1
            assert store.read(str(number)) == contents[created.index(True)]
    assert len([*(tmp_path / "b").iterdir()]) == 20


def test_what_a_killed_writer_left_behind_is_no_object(tmp_path: Path) -> None:
    """An unfinished local file has no name, and is removed later."""
    store = Store.of(str(tmp_path), {})
    store.create("whole", b"")
    (tmp_path / "_export").mkdir()
    for folder in (tmp_path, tmp_path / "_export"):
        (folder / ".part.0123.unfinished").write_bytes(b"half")
    assert store.names() == ["_export", "whole"]
    store.remove_unfinished()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_export", "whole"]
    assert [*(tmp_path / "_export").iterdir()] == []


def test_errors_name_the_object(tmp_path: Path) -> None:
    """An object that cannot be read or written raises ExportError with its path and the reason."""
    (tmp_path / "file").write_text("")
    store = Store.of(str(tmp_path / "file"), {})
    with pytest.raises(ExportError, match=r"file/one cannot be written: .*start the same export again"):
        store.create("one", b"")
    with pytest.raises(ExportError, match="missing cannot be read"):
        Store.of(str(tmp_path), {}).read("missing")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:hunter2@host/b", "ftp://host/b"),
        ("ftp://:hunter2@host", "ftp://host"),
        ("ftp://me:hun::ter2@host/b", "ftp://host/b"),
        ("simplecache::ftp://me:hunter2@host/b", "simplecache::ftp://host/b"),
        ("zip://b::ftp://me:hunter2@host/b.zip", "zip://b::ftp://host/b.zip"),
        ("zip://b::abfs://me:hunter2@host/b.zip", "zip://b::abfs://host/b.zip"),
        ("s3://bucket/b?sig=hunter2", "s3://bucket/b"),
        ("zip://b::s3://bucket/b.zip?sig=hunter2", "zip://b::s3://bucket/b.zip"),
        ("zip://b?sig=hunter2::s3://bucket/b.zip", "zip://b"),
    ],
)
def test_a_url_with_credentials_is_refused(url: str, shown: str) -> None:
    """A password or a query is refused in any URL of a chain, and the error has neither."""
    with pytest.raises(ConfigurationError) as caught:
        refuse_credentials(url)
    assert str(caught.value).startswith(f"{shown} was given with a password or a query")


def test_a_url_without_credentials_is_not_refused() -> None:
    """A user, a container, a port and a chain are no credentials, and neither is a local path."""
    for url in (
        "ftp://host:21/a:b@c",
        "simplecache::memory://b",
        "zip://b::abfs://one@account.example/b.zip",
        "s3://bucket/http://me:hunter2@host",  # the name of an object
        "/b?c:d@e",
    ):
        refuse_credentials(url)
        assert redacted(url) == url
    refuse_credentials("zip://b@1::sftp://me@host:22/b.zip")


def test_options_of_a_file_system_are_not_shown() -> None:
    """A repr has the address, but not the options, which may be credentials."""
    shown = repr(Store("s3://bucket", {"secret": "hush"}, "bucket"))
    assert shown == "Store(url='s3://bucket')"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "hunter", "secret": "hunter-2-tail"}, "hunter-2-tail is wrong"),
        ({"sas_token": "?sv=1&sig=tail-of-it"}, "GET /c?comp=list&sv=1&sig=tail-of-it"),
        ({"connection_string": "AccountName=me;AccountKey=the-tail=="}, "the key the-tail== is wrong"),
        ({"password": b"the-tail"}, "b'the-tail' is wrong"),
        ({"secret": "a/b+tail=="}, "GET /c?s=a%2Fb%2Btail%3D%3D"),
        ({"token": {"private_key": "---\nthe-tail\n---"}}, "{'private_key': '---\\nthe-tail\\n---'}"),
        ({"tokens": {"the-tail"}}, "the-tail is wrong"),
    ],
)
def test_errors_have_no_part_of_an_option(options: dict[str, Any], said: str) -> None:
    """Options are masked whole, in pieces and encoded, whatever driver puts them in its message."""

    class Telling(Disk):
        def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
            raise PermissionError(said)

    store = Store("disk://b", Telling(), "/b", secrets_in(options))
    with pytest.raises(ExportError, match=r"one cannot be read: .*\*\*\*") as caught:
        store.read("one")
    assert "tail" not in "".join(format_exception(caught.value))


class Denied(Disk):
    """Disk whose driver refuses to open, to read or to close an object, as `step` says."""

    step = ""

    def open(self, path: str, mode: str = "rb", *more: Any, **options: Any) -> Any:
        """Open an object."""
        self.refuse("open")
        return DeniedFile(self)

    def refuse(self, step: str) -> None:
        """Raise an error of the driver at its step."""
        if step == self.step:
            raise RuntimeError("403 for token=the-tail")


class DeniedFile(BytesIO):
    """Object of such a disk."""

    def __init__(self, disk: Denied) -> None:
        super().__init__(b"content")
        self.disk = disk

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes."""
        self.disk.refuse("read")
        return super().read(size)

    def close(self) -> None:
        """Close the object."""
        super().close()
        self.disk.refuse("close")
