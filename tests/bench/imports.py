"""CPU time of the first lines of users' programs, against `import aiohttp`.

Each program runs in a process of its own. Run this alone: ``python -m tests.bench import``.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from tests.bench.figures import row, shown

__all__ = ["bench_import"]

ROUNDS = 15
BASE = "import aiohttp"
MADE = "from chainapi import Session; session = Session(data_base_url='https://x.test', api_key='k')"
# The body comes from a transport in memory: the first page costs its records and decoder, and no socket.
FIRST_PAGE = """
import asyncio
from chainapi import Session
from chainapi._http.message import Response

class Answers:
    async def send(self, request):
        return Response(200, {}, b'{"blocks": []}')
    async def aclose(self):
        pass

async def main():
    async with Session(data_base_url='https://x.test', api_key='k', transport=Answers()) as session:
        async for page in session.data.evm.blocks(43114):
            break

asyncio.run(main())
"""
PROGRAMS: Mapping[str, tuple[str, str]] = {
    "import chainapi": ("import chainapi", "<= 1.15"),
    "from chainapi import Session": ("from chainapi import Session", "<= 1.15"),
    "the same and a Session made": (MADE, "<= 1.30"),
    "the same and its first typed route": (f"{MADE}; session.data.evm.blocks(43114)", "<= 1.30"),
    "the same and its first page, from memory": (FIRST_PAGE, "models load here"),
}


def bench_import() -> None:
    """Measure each program beside the import of aiohttp, in turns."""
    with tempfile.TemporaryDirectory() as compiled:
        # Compiled once, as an installed package is.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        codes = (BASE, *(code for code, _ in PROGRAMS.values()))
        _, *rounds = [[_cpu(code, environment) for code in codes] for _ in range(1 + ROUNDS)]
    base, *others = zip(*rounds, strict=True)
    for (what, (_, target)), seconds in zip(PROGRAMS.items(), others, strict=True):
        ratios = [ours / theirs for ours, theirs in zip(seconds, base, strict=True)]
        row(f"{what}, against import aiohttp", shown(ratios), target)


def _cpu(code: str, environment: Mapping[str, str]) -> float:
    """Return the CPU seconds of a process that runs a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
