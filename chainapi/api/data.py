"""The Data API: its routes as data, bound to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import gets, group, lists
from chainapi.api.routes import Route
from chainapi.api.service import ServiceAPI
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.api.groups.evm import EVM
    from chainapi.api.groups.icm import ICM, Teleporter
    from chainapi.api.groups.nfts import NFTs
    from chainapi.api.groups.primary_network import PrimaryNetwork
    from chainapi.api.groups.usage import Usage
    from chainapi.api.groups.webhooks import Webhooks
    from chainapi.api.parameters import ChainId
    from chainapi.models import AggregatedSignatures, AvaxSupply, ChainInfo, HealthCheck, Operation
    from chainapi.models.enums import ChainFeature, Network

__all__ = ["DataAPI"]


class DataAPI(ServiceAPI):
    """The Data API: blocks, transactions, UTXOs and chains, with an API key.

    Attributes:
        evm: blocks, transactions, balances and contracts of EVM chains.
        nfts: tokens of ERC-721 and ERC-1155 collections.
        primary_network: the P-, X- and C-Chain, their validators, subnets and blockchains.
        icm: messages between chains.
        teleporter: the same by their former name; deprecated.
        usage: what an organisation's own requests used.
        webhooks: the webhooks of the account, to read.

    """

    evm: EVM = group("chainapi.api.groups.evm.EVM")
    nfts: NFTs = group("chainapi.api.groups.nfts.NFTs")
    primary_network: PrimaryNetwork = group("chainapi.api.groups.primary_network.PrimaryNetwork")
    icm: ICM = group("chainapi.api.groups.icm.ICM")
    teleporter: Teleporter = group("chainapi.api.groups.icm.Teleporter")
    usage: Usage = group("chainapi.api.groups.usage.Usage")
    webhooks: Webhooks = group("chainapi.api.groups.webhooks.Webhooks")

    # The routes that are in no group.

    @gets(Route("/v1/health-check"))
    async def health_check(self, *, priority: int = 0, deadline: float | None = None) -> HealthCheck:
        """Return the health of the service."""
        ...

    @gets(Route("/v1/live-check"))
    async def live_check(self, *, priority: int = 0, deadline: float | None = None) -> HealthCheck:
        """Return whether the service is alive, for reads."""
        ...

    @lists(Route("/v1/chains", key=("chain_id",), weight="free"))
    def chains(
        self,
        *,
        network: Network | None = None,
        feature: ChainFeature | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[ChainInfo]:
        """Walk the chains that the service knows (specification, section 4)."""
        ...

    @gets(Route("/v1/chains/{chainId}", weight="free"))
    async def chain(
        self, chain_id: ChainId, *, priority: int = 0, deadline: float | None = None
    ) -> ChainInfo:
        """Return what is known of a chain."""
        ...

    @gets(Route("/v1/avax/supply", weight="free"))
    async def avax_supply(self, *, priority: int = 0, deadline: float | None = None) -> AvaxSupply:
        """Return the supply of AVAX, in whole AVAX."""
        ...

    @gets(Route("/v1/operations/{operationId}", weight="small"))
    async def operation(
        self, operation_id: str, *, priority: int = 0, deadline: float | None = None
    ) -> Operation:
        """Return the state of a long-running operation."""
        ...

    @gets(Route("/v1/signatureAggregator/{network}/aggregateSignatures/{txHash}", weight="medium"))
    async def aggregated_signatures(
        self, network: Network, tx_hash: str, *, priority: int = 0, deadline: float | None = None
    ) -> AggregatedSignatures:
        """Return the signatures gathered for a message of the P-Chain."""
        ...
