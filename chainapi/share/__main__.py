"""Host process of shared quotas: ``python -m chainapi.share [DIRECTORY]``.

Sessions start it with a directory, and it ends a minute after the last of them. Without one it hosts in the
directory of the user until a signal ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from chainapi.share.directory import share_directory
from chainapi.share.process import IDLE, HostProcess


async def main(path: str = "") -> int:
    """Host the quotas of a directory; return 1 if another process does."""
    host = HostProcess.at(path or share_directory(), idle=IDLE if path else None)
    if sys.platform != "win32":
        host.stop_at_signals()
    return 0 if await host.run() else 1


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(asyncio.run(main(*sys.argv[1:2])))
