"""Types of `merge`: pages of the streams' kinds, with the type of their source.

Type checkers read this module; nothing runs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, assert_type

from chainapi import Failure, MetricPage, MetricPoint, Page, Pages, Session, merge
from chainapi._paging.pages import MetricPages
from chainapi.models import EvmBlock

Rows = Pages[dict[str, Any]]


async def streams(many: Iterable[Rows], later: AsyncIterable[Rows], session: Session) -> None:
    """Merge without keys: the source is the stream, of its own type."""
    async for stream, page in merge(many):
        assert_type(stream, Rows)
        assert_type(page, Page[dict[str, Any]])
    async for stream, page in merge(later, concurrency=4):
        assert_type(stream, Rows)
        assert_type(page, Page[dict[str, Any]])
    async for metric, points in merge([session.metrics.avg_tps(chain) for chain in (1, 2)]):
        assert_type(metric, MetricPages[MetricPoint])
        assert_type(points, MetricPage[MetricPoint])
    async for _, blocks in merge(session.data.evm.blocks(chain) for chain in (1, 2)):
        assert_type(blocks, Page[EvmBlock])


async def keyed(
    pairs: Iterable[tuple[str, Rows]], later: AsyncIterable[tuple[int, Rows]], session: Session
) -> None:
    """Merge with keys: the source is the key."""
    async for name, page in merge(pairs):
        assert_type(name, str)
        assert_type(page, Page[dict[str, Any]])
    async for number, page in merge(later, on_error="raise"):
        assert_type(number, int)
        assert_type(page, Page[dict[str, Any]])
    async for number, points in merge({chain: session.metrics.avg_tps(chain) for chain in (1, 2)}):
        assert_type(number, int)
        assert_type(points, MetricPage[MetricPoint])
    async for number, blocks in merge((chain, session.data.evm.blocks(chain)) for chain in (1, 2)):
        assert_type(number, int)
        assert_type(blocks, Page[EvmBlock])


async def given(
    many: Iterable[Rows], mapping: Mapping[str, Rows], metrics: AsyncIterable[MetricPages[MetricPoint]]
) -> None:
    """Merge with on_error="yield": an outcome may be a failure."""
    async for stream, outcome in merge(many, on_error="yield"):
        assert_type(stream, Rows)
        assert_type(outcome, Page[dict[str, Any]] | Failure)
    async for name, outcome in merge(mapping, on_error="yield"):
        assert_type(name, str)
        assert_type(outcome, Page[dict[str, Any]] | Failure)
    async for metric, points in merge(metrics, on_error="yield"):
        assert_type(metric, MetricPages[MetricPoint])
        assert_type(points, MetricPage[MetricPoint] | Failure)
