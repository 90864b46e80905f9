"""Host process of shared quotas: ``python -m chainapi.share DIRECTORY``.

Sessions start it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from chainapi.share.process import HostProcess


async def main(path: str) -> None:
    """Host the quotas of a directory until no session uses them any more."""
    host = HostProcess.at(path)
    if sys.platform != "win32":
        host.stop_at_signals()
    await host.run()


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(main(sys.argv[1]))
