"""Types of reading: single rows, batches, resources of a model, raw responses.

Type checkers read this module; nothing runs it.
"""

from __future__ import annotations

from typing import Any, TypedDict, assert_type

from attrs import frozen

from chainapi import Page, Pages, Session
from chainapi._http.response import RawResponse
from chainapi.models import EvmBlock


@frozen
class Block:
    """A class of a user's."""

    block_number: int


class Named(TypedDict):
    """A typed dict of a user's."""

    name: str


async def streams(session: Session) -> None:
    """Rows have the type of the stream."""
    blocks = session.data.evm.blocks(43114)
    assert_type(await blocks.first(), EvmBlock | None)
    async for block in blocks.items(limit=3):
        assert_type(block, EvmBlock)
    async for batch in blocks.batches(500):
        assert_type(batch, list[EvmBlock])
    assert_type(session.data.list("/v1/x", model=Block), Pages[Block])
    assert_type(session.data.list("/v1/x", model=Named), Pages[Named])


async def resources(session: Session) -> None:
    """Return resources of the type of their model; without one, of any."""
    assert_type(await session.data.get("/v1/x", model=Block), Block)
    assert_type(await session.data.get("/v1/x", model=Named, priority=1, chainId=2), Named)
    assert_type(await session.data.get("/v1/x", model=list[Block]), list[Block])
    assert_type(await session.metrics.get("/v1/x"), Any)


async def responses(session: Session, page: Page[EvmBlock]) -> None:
    """Raw responses have one class."""
    assert_type(page.response, RawResponse)
    assert_type(await session.data.get_response("/v1/x", chainId=2), RawResponse)


def forms(row: EvmBlock) -> None:
    """Plain forms of rows are dicts."""
    assert_type(row.to_dict(), dict[str, Any])
    assert_type(row.to_wire(), dict[str, Any])
