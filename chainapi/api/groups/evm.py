"""The routes of `session.data.evm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import Bounds, ChainId, PageSize, PageSize500, Texts
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import (
        AddressChains,
        AddressTransaction,
        AddressTransactionV2,
        CollectibleBalance,
        Contract,
        Erc20TokenBalance,
        Erc20Transfer,
        Erc721TokenBalance,
        Erc721Transfer,
        Erc1155TokenBalance,
        Erc1155Transfer,
        EvmBlock,
        EvmTransaction,
        InternalTransaction,
        NativeBalance,
        NativeTransaction,
        Transfer,
    )
    from chainapi.models.enums import Currency, Network, SortOrder, TransactionStatus

__all__ = ["EVM"]


class EVM(Group):
    """Blocks, transactions, balances and contracts of EVM chains."""

    @lists(Route("/v1/blocks", "blocks", key=("chain_id", "block_hash")))
    def blocks_of_all_chains(
        self,
        *,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[EvmBlock]:
        """Walk the latest blocks of all chains."""
        ...

    @lists(Route("/v1/transactions", "transactions", key=("chain_id", "tx_hash")))
    def transactions_of_all_chains(
        self,
        *,
        network: Network | None = None,
        status: TransactionStatus | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NativeTransaction]:
        """Walk the latest transactions of all chains."""
        ...

    @gets(Route("/v1/address/{address}/chains"))
    async def address_chains(
        self, address: str, *, priority: int = 0, deadline: float | None = None
    ) -> AddressChains:
        """Return the chains that an address is active on."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/blocks",
            "blocks",
            key=("block_hash",),
            weight="small",
            descending_key="block_timestamp",
        )
    )
    def blocks(
        self,
        chain_id: ChainId,
        *,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[EvmBlock]:
        """Walk the blocks of a chain, newest first."""
        ...

    @gets(Route("/v1/chains/{chainId}/blocks/{blockId}", weight="small"))
    async def block(
        self, chain_id: ChainId, block_id: int | str, *, priority: int = 0, deadline: float | None = None
    ) -> EvmBlock:
        """Return a block, by its number or its hash."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/blocks/{blockId}/transactions",
            "transactions",
            key=("tx_hash",),
            weight="medium",
        )
    )
    def block_transactions(
        self,
        chain_id: ChainId,
        block_id: int | str,
        *,
        page_size: Annotated[int, Bounds(0, 100)] | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NativeTransaction]:
        """Walk the transactions of a block."""
        ...

    @lists(Route("/v1/chains/{chainId}/transactions", "transactions", key=("tx_hash",), weight="medium"))
    def transactions(
        self,
        chain_id: ChainId,
        *,
        status: TransactionStatus | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NativeTransaction]:
        """Walk the latest transactions of a chain."""
        ...

    @gets(Route("/v1/chains/{chainId}/transactions/{txHash}", weight="medium"))
    async def transaction(
        self, chain_id: ChainId, tx_hash: str, *, priority: int = 0, deadline: float | None = None
    ) -> EvmTransaction:
        """Return a transaction with all its transfers."""
        ...

    @gets(Route("/v1/chains/{chainId}/addresses/{address}/balances:getNative", weight="medium"))
    async def native_balance(
        self,
        chain_id: ChainId,
        address: str,
        *,
        block_number: int | None = None,
        currency: Currency | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> NativeBalance:
        """Return the balance of an address in the chain's own token."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/balances:listErc20",
            "erc20TokenBalances",
            key=("address",),
            weight="medium",
            others=(("native_token_balance", "NativeTokenBalance"),),
        )
    )
    def erc20_balances(
        self,
        chain_id: ChainId,
        address: str,
        *,
        block_number: int | None = None,
        filter_spam_tokens: bool | None = None,
        contract_addresses: Texts | None = None,
        currency: Currency | None = None,
        page_size: PageSize500 | None = 500,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc20TokenBalance]:
        """Walk the ERC-20 balances of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/balances:listErc721",
            "erc721TokenBalances",
            key=("address", "token_id"),
            weight="medium",
            others=(("native_token_balance", "NativeTokenBalance"),),
        )
    )
    def erc721_balances(
        self,
        chain_id: ChainId,
        address: str,
        *,
        contract_address: str | None = None,
        page_size: PageSize500 | None = 500,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc721TokenBalance]:
        """Walk the ERC-721 tokens of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/balances:listErc1155",
            "erc1155TokenBalances",
            key=("address", "token_id"),
            weight="medium",
            others=(("native_token_balance", "NativeTokenBalance"),),
        )
    )
    def erc1155_balances(
        self,
        chain_id: ChainId,
        address: str,
        *,
        block_number: int | None = None,
        contract_address: str | None = None,
        page_size: PageSize500 | None = 500,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc1155TokenBalance]:
        """Walk the ERC-1155 balances of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/balances:listCollectibles",
            "collectibleBalances",
            key=("erc_type", "address", "token_id"),
            weight="medium",
        )
    )
    def collectible_balances(
        self,
        chain_id: ChainId,
        address: str,
        *,
        contract_address: str | None = None,
        page_size: PageSize500 | None = 500,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[CollectibleBalance]:
        """Walk the ERC-721 and ERC-1155 balances of an address."""
        ...

    @gets(Route("/v1/chains/{chainId}/contracts/{address}/transactions:getDeployment", weight="medium"))
    async def deployment(
        self,
        chain_id: ChainId,
        address: str,
        *,
        currency: Currency | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> EvmTransaction:
        """Return the transaction that deployed a contract."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/contracts/{address}/deployments",
            "contracts",
            key=("address",),
            weight="medium",
        )
    )
    def deployments(
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
    ) -> Pages[Contract]:
        """Walk the contracts that an address deployed."""
        ...

    @gets(Route("/v1/chains/{chainId}/addresses/{address}"))
    async def contract(
        self, chain_id: ChainId, address: str, *, priority: int = 0, deadline: float | None = None
    ) -> Contract:
        """Return what is known of a contract."""
        ...

    @gets(Route("/v1/chains/address/{address}", weight="free", deprecated=True))
    async def chains_of_address(
        self, address: str, *, priority: int = 0, deadline: float | None = None
    ) -> AddressChains:
        """Return the chains of an address; deprecated."""
        ...

    @lists(
        Route(
            "/v1/chains/allTransactions",
            "transactions",
            key=("chain_id", "tx_hash"),
            weight="free",
            deprecated=True,
        )
    )
    def all_latest_transactions(
        self,
        *,
        network: Network | None = None,
        status: TransactionStatus | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NativeTransaction]:
        """Walk the latest transactions of all chains; deprecated."""
        ...

    @lists(
        Route(
            "/v1/chains/allBlocks", "blocks", key=("chain_id", "block_hash"), weight="free", deprecated=True
        )
    )
    def all_latest_blocks(
        self,
        *,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[EvmBlock]:
        """Walk the latest blocks of all chains; deprecated."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/tokens/{address}/transfers",
            "transfers",
            kind_keys=(
                ("Erc20Transfer", ("tx_hash", "log_index")),
                ("Erc721Transfer", ("tx_hash", "log_index", "erc721_token.token_id")),
            ),
            immutable=("tx_hash", "log_index", "erc1155_token.token_id", "value"),
            weight="medium",
        )
    )
    def transfers(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Transfer]:
        """Walk the transfers of a token's contract."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions",
            "transactions",
            key=("native_transaction.tx_hash",),
            weight="medium",
            descending_key="native_transaction.block_timestamp",
            holds_if=(("descending_key", "sort_order", "desc"),),
        )
    )
    def address_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[AddressTransaction]:
        """Walk the transactions of an address, with their transfers."""
        ...

    @lists(
        Route(
            "/v2/chains/{chainId}/addresses/{address}/transactions",
            "transactions",
            key=("native_transaction.tx_hash",),
            weight="medium",
            descending_key="native_transaction.block_timestamp",
            holds_if=(("descending_key", "sort_order", "desc"),),
        )
    )
    def address_transactions_v2(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        filter_spam_tokens: bool | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[AddressTransactionV2]:
        """Walk the transactions of an address, with the reputation of tokens."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions:listNative",
            "transactions",
            key=("tx_hash",),
            weight="medium",
        )
    )
    def native_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[NativeTransaction]:
        """Walk the native transactions of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions:listErc20",
            "transactions",
            key=("tx_hash", "log_index"),
            weight="medium",
        )
    )
    def erc20_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc20Transfer]:
        """Walk the ERC-20 transfers of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions:listErc721",
            "transactions",
            key=("tx_hash", "log_index", "erc721_token.token_id"),
            weight="medium",
        )
    )
    def erc721_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc721Transfer]:
        """Walk the ERC-721 transfers of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions:listErc1155",
            "transactions",
            immutable=("tx_hash", "log_index", "erc1155_token.token_id", "value"),
            weight="medium",
        )
    )
    def erc1155_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Erc1155Transfer]:
        """Walk the ERC-1155 transfers of an address."""
        ...

    @lists(
        Route(
            "/v1/chains/{chainId}/addresses/{address}/transactions:listInternals",
            "transactions",
            immutable=(
                "tx_hash",
                "from_.address",
                "to.address",
                "internal_tx_type",
                "value",
                "is_reverted",
                "gas_used",
                "gas_limit",
            ),
            weight="medium",
        )
    )
    def internal_transactions(
        self,
        chain_id: ChainId,
        address: str,
        *,
        start_block: int | None = None,
        end_block: int | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[InternalTransaction]:
        """Walk the internal transactions of an address."""
        ...
