"""Routes of the specification that no OpenAPI document has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from chainapi._api.binding import endpoint
from chainapi._api.routes import Route
from chainapi._api.service import ServiceAPI
from chainapi._paging.pages import MetricPages

if TYPE_CHECKING:
    from chainapi._api.options import ListOptions
    from chainapi._api.parameters import ChainId
    from chainapi.models import MetricPoint

__all__ = ["SpecifiedMetrics"]


class SpecifiedMetrics(ServiceAPI):
    """Route of the specification that the public Metrics API has left."""

    # Section 2: a point for each timestamp, newest first. It names no price: limits count requests there.
    @endpoint(
        Route(
            "/v1/avg_tps/{chainId}",
            "results",
            key=("timestamp",),
            descending_key="timestamp",
            extra=(("status", "int"), ("last_run", "int")),
        )
    )
    def avg_tps(
        self,
        chain_id: ChainId,
        **options: Unpack[ListOptions],
    ) -> MetricPages[MetricPoint]:
        """Read the average transactions per second of a chain, newest first.

        See section 4 of the specification.

        Args:
            chain_id: identifier of the chain.
            options: `resume`, `page_token`, `on_invalid`, `prefetch`, `priority`, `deadline` and `tag`.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        ...
