"""Dagster: an asset that is an export; `dagster dev -f pipeline_dagster.py`."""

import dagster as dg

from chainapi import Session
from chainapi.errors import IncompleteExportError
from chainapi.export import export

CHAINS = [43114, 43113]


@dg.asset
async def tps() -> dg.MaterializeResult[None]:
    """Transactions per second of each chain, as JSON lines."""
    async with Session(max_wait=60.0, tag="dagster") as session:
        try:
            result = await export(session.metrics.avg_tps, CHAINS, "tps.jsonl", wait=600)
        except IncompleteExportError as error:  # the next run continues with the failed chains
            waits = [getattr(failure, "retry_after", None) or 60.0 for failure in error.failures.values()]
            raise dg.RetryRequested(max_retries=5, seconds_to_wait=max(waits)) from error
    return dg.MaterializeResult(metadata={"rows": result.rows})


defs = dg.Definitions(assets=[tps])

if __name__ == "__main__":
    raise SystemExit(not dg.materialize([tps]).success)
