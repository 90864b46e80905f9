"""A cron job: `15 3 * * * python nightly_export.py tps.jsonl`.

Run again, it continues where it stopped, and fetches only what is new; it waits for a run that is not over
yet. Exit codes: 0 for a whole export, 75 ("temporary failure") when another run can complete it, 1 when a
person has to look.
"""

import asyncio
import sys

from chainapi import Session
from chainapi.errors import ChainAPIError, IncompleteExportError, QuotaWaitError, TargetInUseError
from chainapi.export import export

CHAINS = [43114, 43113, 8021]


async def main(target: str) -> int:
    """Export the transactions per second of each chain; return the exit code."""
    try:
        async with Session(max_wait=600.0, tag="nightly") as session:
            result = await export(session.metrics.avg_tps, CHAINS, target, wait=3600)
    except (IncompleteExportError, QuotaWaitError, TargetInUseError) as error:
        print(error, "- run it again", file=sys.stderr)
        return 75
    except ChainAPIError as error:
        print("the export failed:", error, file=sys.stderr)
        return 1
    print(f"{result.rows} rows in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
