"""The Metrics API: its routes as data, bound to a session."""

from __future__ import annotations

from typing import Never

from chainapi.config import refuse_unknown
from chainapi.core.checkpoint import Checkpoint
from chainapi.core.query import path_segment
from chainapi.models.metrics import MetricPoint
from chainapi.pages import MetricPages
from chainapi.routes import Route
from chainapi.service import ServiceAPI

__all__ = ["MetricsAPI"]

AVG_TPS = Route(
    "/v1/avg_tps/{chain_id}",
    items="results",
    model=MetricPoint,
    newest_first="timestamp",
    others=(("status", int), ("last_run", int)),
)


class MetricsAPI(ServiceAPI):
    """The Metrics API: time series per chain, without an API key."""

    def avg_tps(
        self,
        chain_id: int | str,
        *,
        resume: Checkpoint | None = None,
        prefetch: int = 0,
        priority: int = 0,
        **unknown: Never,
    ) -> MetricPages[MetricPoint]:
        """Walk the average transactions per second of a chain, newest first (specification, section 4).

        Args:
            chain_id: identifier of the chain.
            resume: a checkpoint of the same query.
            prefetch: pages to fetch ahead, 0 to 16, while the reader works on the one in hand.
            priority: requests with a higher one pass the others in the queue for quota.

        Raises:
            ConfigurationError: an argument cannot be used; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        refuse_unknown(unknown, ("prefetch", "priority", "resume"), "avg_tps")
        path = AVG_TPS.path.format(chain_id=path_segment("chain_id", chain_id))
        return MetricPages(self._source(AVG_TPS, path, (), resume, prefetch, priority))
