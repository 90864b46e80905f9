"""Cost of the README's test command: ``python -m tests.cost`` runs its pytest, and prints CPU and wall time.

CPU is that of pytest, its workers, and the programs that the tests start. Arguments are passed to pytest.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

ROOT = Path(__file__).parents[1]
MOST = 240.0  # seconds of CPU: three minutes on two cores, with what workers wait for


def command() -> list[str]:
    """Return the pytest command under the README's heading, for this Python."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"^## Test it$.*?^```sh\n(.*?)\n```", readme, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit("README.md has no block of commands under `## Test it`")
    words = shlex.split(found[1].rpartition("&&")[2])
    return [sys.executable, *words[1:]]


def main() -> int:
    """Run the command; return its status, or 1 if it took too much CPU."""
    began = time.monotonic()
    status = subprocess.run([*command(), *sys.argv[1:]], cwd=ROOT, check=False).returncode
    used = getrusage(RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{cpu:.0f} s of CPU ({MOST:.0f} allowed), {time.monotonic() - began:.0f} s on {os.cpu_count()} cores"
    )
    return status or int(cpu > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
