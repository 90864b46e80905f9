"""The Metrics API: its routes as data, bound to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import gets, group, lists
from chainapi.api.routes import Route
from chainapi.api.service import ServiceAPI
from chainapi.client.pages import MetricPages, OnInvalid
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.api.groups.chain_metrics import (
        MetricChains,
        MetricICM,
        MetricL1Validators,
        MetricNetworks,
        MetricSubnets,
    )
    from chainapi.api.parameters import ChainId
    from chainapi.models import HealthCheck, MetricPoint

__all__ = ["MetricsAPI"]


class MetricsAPI(ServiceAPI):
    """The Metrics API: time series per chain, without an API key.

    Attributes:
        chains: metrics of EVM chains.
        icm: counts of messages between chains.
        networks: metrics of staking.
        l1_validators: fees of validators of L1s.
        subnets: validators of subnets.

    """

    chains: MetricChains = group("chainapi.api.groups.chain_metrics.MetricChains")
    icm: MetricICM = group("chainapi.api.groups.chain_metrics.MetricICM")
    networks: MetricNetworks = group("chainapi.api.groups.chain_metrics.MetricNetworks")
    l1_validators: MetricL1Validators = group("chainapi.api.groups.chain_metrics.MetricL1Validators")
    subnets: MetricSubnets = group("chainapi.api.groups.chain_metrics.MetricSubnets")

    @lists(
        Route(
            "/v1/avg_tps/{chainId}",
            "results",
            key=("timestamp",),
            descending_key="timestamp",
            others=(("status", "int"), ("last_run", "int")),
        )
    )
    def avg_tps(
        self,
        chain_id: ChainId,
        *,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> MetricPages[MetricPoint]:
        """Walk the average transactions per second of a chain, newest first (specification, section 4).

        Args:
            chain_id: identifier of the chain.
            resume: a checkpoint of the same query.
            on_invalid: "raise" raises DecodeError at a row that is no data point, "raw" gives it as an
                `Invalid` among the other rows.
            prefetch: pages to fetch ahead, 0 to 16, while the reader works on the one in hand.
            priority: requests with a higher one pass the others in the queue for quota.
            deadline: seconds that each page may take in all, instead of the session's.

        Raises:
            ConfigurationError: an argument cannot be used; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        ...

    # The routes that are in no group.

    @gets(Route("/v2/health-check", weight="free"))
    async def health_check(self, *, priority: int = 0, deadline: float | None = None) -> HealthCheck:
        """Return the health of the service."""
        ...

    @gets(Route("/v2/live-check", weight="free"))
    async def live_check(self, *, priority: int = 0, deadline: float | None = None) -> HealthCheck:
        """Return whether the service is alive, for reads."""
        ...
