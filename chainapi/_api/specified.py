"""Routes of the specification that no OpenAPI document has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi._api.binding import endpoint
from chainapi._api.routes import Route
from chainapi._api.service import ServiceAPI
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.pages import MetricPages, OnInvalid

if TYPE_CHECKING:
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
        *,
        resume: Checkpoint | None = None,
        page_token: str | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int | None = None,
        deadline: float | None = None,
        tag: str | None = None,
    ) -> MetricPages[MetricPoint]:
        """Walk the average transactions per second of a chain, newest first.

        See section 4 of the specification.

        Args:
            chain_id: identifier of the chain.
            resume: a checkpoint of the same query.
            page_token: a bare token to begin at its page.
            on_invalid: "raise" raises DecodeError at an invalid data point, "raw" returns it as an `Invalid`
                among the other rows.
            prefetch: pages to fetch ahead of the reader, 0 to 16.
            priority: requests of a higher priority are first in the queue for quota.
            deadline: seconds for each page with its waits and retries; by default the session's.
            tag: name of the spender in `quota.spenders`; by default the session's.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        ...
