"""The Data API: its routes as data, bound to a session."""

from __future__ import annotations

from typing import Any, Never

from chainapi.config import refuse_unknown
from chainapi.core.checkpoint import Checkpoint
from chainapi.pages import Pages
from chainapi.routes import Route
from chainapi.service import ServiceAPI

__all__ = ["DataAPI"]

CHAINS = Route("/v1/chains")


class DataAPI(ServiceAPI):
    """The Data API: blocks, transactions, UTXOs and chains, with an API key."""

    def chains(
        self, *, resume: Checkpoint | None = None, prefetch: int = 0, priority: int = 0, **unknown: Never
    ) -> Pages[dict[str, Any]]:
        """Walk the chains that the service knows (specification, section 4).

        Args:
            resume: a checkpoint of the same query.
            prefetch: pages to fetch ahead, 0 to 16, while the reader works on the one in hand.
            priority: requests with a higher one pass the others in the queue for quota.

        Raises:
            CheckpointError: `resume` belongs to another query.

        """
        refuse_unknown(unknown, ("prefetch", "priority", "resume"), "chains")
        return Pages(self._source(CHAINS, CHAINS.path, (), resume, prefetch, priority))
