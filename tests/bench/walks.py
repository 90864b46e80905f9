"""Walks to compare: chainapi, and the loops that people write by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import cattrs
import msgspec
from attrs import frozen
from yarl import URL

from chainapi import Session

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


_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(
    Block,
    cattrs.gen.make_dict_structure_fn(
        Block,
        _CONVERTER,
        **{  # type: ignore[arg-type]
            name: cattrs.gen.override(rename=msgspec.inspect.type_info(BlockStruct).fields[index].encode_name)  # type: ignore[attr-defined]
            for index, name in enumerate(BlockStruct.__struct_fields__)
        },
    ),
)


async def chainapi_blocks(base: str) -> int:
    """Walk blocks with chainapi and typed rows, with all features on."""
    rows = 0
    async with Session(metrics_base_url=base, data_base_url=base, api_key="k") as session:
        async for page in session.data.list(BLOCKS, items="blocks", model=Block, page_size=100):
            rows += len(page)
    return rows


async def chainapi_points(base: str) -> int:
    """Walk points with chainapi."""
    rows = 0
    async with Session(metrics_base_url=base) as session:
        async for page in session.metrics.avg_tps(43114):
            rows += len(page)
    return rows


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


async def struct_blocks(base: str) -> int:
    """Walk blocks by hand into Structs."""
    decoder, rows = msgspec.json.Decoder(BlockBody), 0
    async for body, box in bodies(base, BLOCKS):
        page = decoder.decode(body)
        rows, box[0] = rows + len(page.blocks), page.nextPageToken
    return rows


async def same_objects(base: str) -> int:
    """Walk blocks by hand into the same frozen attrs objects, through Structs."""
    decoder, rows = msgspec.json.Decoder(BlockBody), 0
    async for body, box in bodies(base, BLOCKS):
        page = decoder.decode(body)
        made = msgspec.convert(page.blocks, list[Block], from_attributes=True, strict=False)
        rows, box[0] = rows + len(made), page.nextPageToken
    return rows


async def cattrs_blocks(base: str) -> int:
    """Walk blocks by hand with json and plain cattrs."""
    import json

    rows = 0
    async for body, box in bodies(base, BLOCKS):
        page: Any = json.loads(body)
        made = _CONVERTER.structure(page["blocks"], list[Block])
        rows, box[0] = rows + len(made), page.get("nextPageToken")
    return rows


async def struct_points(base: str) -> int:
    """Walk points by hand into Structs."""
    decoder, rows = msgspec.json.Decoder(PointBody), 0
    async for body, box in bodies(base, POINTS):
        page = decoder.decode(body)
        rows, box[0] = rows + len(page.results), page.nextPageToken
    return rows


async def raw_requests(base: str) -> int:
    """Read the bodies only; a search in the bytes finds the token."""
    import re

    pages = 0
    async for body, box in bodies(base, BLOCKS):
        match = re.search(rb'"nextPageToken":"([^"]+)"', body)
        pages, box[0] = pages + 1, match[1].decode() if match else None
    return pages
