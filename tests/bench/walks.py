"""Walks to compare: chainapi, and the loops that people write by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import cattrs
import msgspec
from attrs import frozen
from yarl import URL

BLOCKS = "/v1/chains/43114/blocks"
POINTS = "/v1/avg_tps/43114"


@frozen
class Block:
    """A block as a user would write it down."""

    block_number: int
    block_timestamp: int
    block_hash: str
    parent_hash: str
    tx_count: int
    base_fee: int
    gas_used: int
    gas_limit: int
    gas_cost: int
    fees_spent: int
    cumulative_transactions: int


class BlockStruct(msgspec.Struct, rename="camel"):
    """Block on the wire, for msgspec: numbers stay strings."""

    block_number: str
    block_timestamp: int
    block_hash: str
    parent_hash: str
    tx_count: int
    base_fee: str
    gas_used: str
    gas_limit: str
    gas_cost: str
    fees_spent: str
    cumulative_transactions: str


class BlockBody(msgspec.Struct):
    """A page of blocks."""

    blocks: list[BlockStruct]
    nextPageToken: str | None = None  # noqa: N815 - the name on the wire


class Point(msgspec.Struct):
    """A point of a metric."""

    timestamp: int
    value: float


class PointBody(msgspec.Struct):
    """A page of points."""

    results: list[Point]
    nextPageToken: str | None = None  # noqa: N815 - the name on the wire


@frozen
class PlainPoint:
    """A point as a user would write it down."""

    timestamp: int
    value: float


CONVERTER = cattrs.Converter(detailed_validation=False)
CONVERTER.register_structure_hook(
    Block,
    cattrs.gen.make_dict_structure_fn(
        Block,
        CONVERTER,
        **{  # type: ignore[arg-type]
            name: cattrs.gen.override(rename=msgspec.inspect.type_info(BlockStruct).fields[index].encode_name)  # type: ignore[attr-defined]
            for index, name in enumerate(BlockStruct.__struct_fields__)
        },
    ),
)


async def bodies(base: str, path: str) -> AsyncIterator[tuple[bytes, list[str | None]]]:
    """Yield the bodies of a walk by a plain aiohttp loop.

    The caller appends the next token to the list.
    """
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
        token: str | None = None
        while True:
            query = f"?pageSize=100&pageToken={token}" if token else "?pageSize=100"
            async with client.get(URL(base + path + query, encoded=True)) as answer:
                answer.raise_for_status()
                body = await answer.read()
            box: list[str | None] = [None]
            yield body, box
            if not (token := box[0]):
                return


async def raw_requests(base: str) -> int:
    """Read the bodies only; a search in the bytes finds the token."""
    import re

    pages = 0
    async for body, box in bodies(base, BLOCKS):
        match = re.search(rb'"nextPageToken":"([^"]+)"', body)
        pages, box[0] = pages + 1, match[1].decode() if match else None
    return pages
