"""The routes of `session.data.nfts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import ChainId, PageSize
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import NftToken

__all__ = ["NFTs"]


class NFTs(Group):
    """Tokens of ERC-721 and ERC-1155 collections."""

    @lists(
        Route(
            "/v1/chains/{chainId}/nfts/collections/{address}/tokens",
            "tokens",
            key=("address", "token_id"),
            weight="medium",
        )
    )
    def tokens(
        self,
        chain_id: ChainId,
        address: str,
        *,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NftToken]:
        """Walk the tokens of a collection."""
        ...

    @gets(Route("/v1/chains/{chainId}/nfts/collections/{address}/tokens/{tokenId}", weight="medium"))
    async def token(
        self,
        chain_id: ChainId,
        address: str,
        token_id: int | str,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> NftToken:
        """Return a token of a collection."""
        ...
