"""dlt: the blocks of several chains in DuckDB, and later the new ones; `python pipeline_dlt.py`."""

from collections.abc import AsyncIterator, Iterator

import dlt
import pyarrow as pa
from dlt.extract import DltResource

from chainapi import Session

FIRST_BLOCKS = {43114: 0, 43113: 0}  # of each chain; 0 stands for all blocks


@dlt.resource(table_name="blocks", primary_key=["chain", "block_hash"], write_disposition="merge")
async def blocks(chain: int, newest: dlt.sources.incremental[int]) -> AsyncIterator[pa.RecordBatch]:
    """Blocks of a chain, the newest first; dlt ends the walk at the newest block of the last run."""
    async with Session(tag="dlt") as session:
        async for batch in session.data.evm.blocks(chain).arrow_batches():
            yield batch.add_column(0, "chain", pa.repeat(chain, batch.num_rows))


@dlt.source
def chain_data() -> Iterator[DltResource]:
    """Return a resource for each chain, so that each has its own newest block; they fill one table."""
    for chain, first in FIRST_BLOCKS.items():
        newest = dlt.sources.incremental("block_number", initial_value=first, row_order="desc")
        yield blocks(chain, newest).with_name(f"blocks_{chain}")


def load() -> int:
    """Load the new blocks into `avalanche.duckdb`; return their number."""
    pipeline = dlt.pipeline("avalanche", destination="duckdb", dataset_name="chain_data")
    pipeline.run(chain_data())
    return pipeline.last_trace.last_normalize_info.row_counts.get("blocks", 0)


if __name__ == "__main__":
    print(load(), "new rows")
