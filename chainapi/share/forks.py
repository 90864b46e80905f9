"""File descriptors that a forked child must not keep open: locks and sockets.

A child inherits the open files of its parent. It would keep a lock of the parent, and its connections, after
the parent was killed: nobody could take the lock, and no peer would notice the end. Python closes descriptors
at `exec`; this module does it at `fork`.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["drop", "drop_in_child", "keep"]

_dropped: dict[int, tuple[int, int]] = {}  # descriptor -> device and inode


def drop_in_child(descriptor: int) -> None:
    """Let forked children drop a descriptor."""
    status = os.fstat(descriptor)
    _dropped[descriptor] = (status.st_dev, status.st_ino)


def keep(descriptor: int) -> None:
    """Forget a descriptor, which is about to be closed."""
    _dropped.pop(descriptor, None)


def drop() -> None:
    """Replace every such descriptor by the null device; for the child of a fork.

    The objects of the parent exist in the child too. They close their descriptor some day, so the number must
    stay in use until then. A number that meanwhile belongs to another file is left alone.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor, identity in _dropped.items():
        with suppress(OSError):  # it was closed
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == identity:
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _dropped.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=drop)
