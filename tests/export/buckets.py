"""Object store in memory, whose steps fail, tear objects or are noted, as a test says."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec  # type: ignore[import-untyped]
from fsspec.callbacks import DEFAULT_CALLBACK, Callback  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

__all__ = ["Bucket", "bucket"]


PIECE = 100  # bytes of a download


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """File system ``bucket://``, which all instances of a process share.

    Before and after each step that writes or removes an object, `on_step` is called with the name of the
    object, the word "before" or "after", and the content that the object is to have. Each of `on_list`
    is called once, before the answer to the next listing of a folder. `on_read` is called with the name of
    an object before each piece of it that is downloaded.
    """

    protocol = "bucket"
    cachable = False
    on_step: ClassVar[Callable[[str, str, bytes], None] | None] = None
    on_list: ClassVar[list[Callable[[], object]]] = []
    on_read: ClassVar[Callable[[str], None] | None] = None
    options: ClassVar[list[dict[str, Any]]] = []
    asked: ClassVar[Counter[str]] = Counter()  # objects whose state was asked for

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options.append(options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("bucket://"))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """List a folder."""
        try:
            return super().ls(path, detail=detail, **options)
        finally:
            if self.on_list:
                self.on_list.pop()()

    def info(self, path: str, **options: Any) -> Any:
        """Return size and kind of an object."""
        self.asked[path.rpartition("/")[2]] += 1
        return super().info(path, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Create or replace an object."""
        with self._step(path, value):
            super().pipe_file(path, value, mode, **options)

    def put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        """Upload a file; if the step fails with half an object, that is what is there.

        The object is there once all its bytes were reported, as in S3.
        """
        content = Path(lpath).read_bytes()
        with self._step(rpath, content):
            callback.relative_update(len(content))
            super().pipe_file(rpath, content)

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Callback = DEFAULT_CALLBACK,
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Download an object in pieces."""
        content = self.cat_file(rpath)
        with Path(lpath).open("wb") as file:
            for start in range(0, len(content), PIECE):
                if (call := type(self).on_read) is not None:
                    call(rpath)
                callback.relative_update(file.write(content[start : start + PIECE]))

    def rm_file(self, path: str) -> None:
        """Remove an object."""
        with self._step(path, b""):
            super()._rm(path)

    @contextmanager
    def _step(self, path: str, content: bytes) -> Iterator[None]:
        call = type(self).on_step
        if call is not None:
            call(path, "before", content)
        yield
        if call is not None:
            call(path, "after", content)

    @classmethod
    def store_object(cls, path: str, content: bytes) -> None:
        """Put an object there without a step."""
        MemoryFileSystem.pipe_file(cls(), path, content)

    @classmethod
    def copy_to(cls, folder: Path) -> None:
        """Make a folder one of the objects of a bucket that has its name."""
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in cls.objects().items():
            path = folder.parent / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @classmethod
    def objects(cls) -> dict[str, bytes]:
        """Return the content of all objects."""
        return {name: bytes(found.getvalue()) for name, found in cls.store.items()}


@contextmanager
def bucket() -> Iterator[type[Bucket]]:
    """Register an empty file system ``bucket://`` for the block."""
    fresh: Any = type(
        "Bucket",
        (Bucket,),
        {"store": {}, "pseudo_dirs": [""], "options": [], "on_list": [], "asked": Counter()},
    )
    fsspec.register_implementation("bucket", fresh, clobber=True)
    yield fresh
    fresh.on_step = fresh.on_read = None
