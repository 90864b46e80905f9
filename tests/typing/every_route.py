"""Every route with every parameter, for the type checkers; made by `tests.tooling.calls`."""

from __future__ import annotations

from typing import assert_type

from chainapi import Session
from chainapi.models import (
    AddressChainIds,
    AddressChains,
    AddressTransaction,
    AddressTransactionV2,
    AggregatedSignatures,
    ApiLog,
    AvaxSupply,
    Blockchain,
    ChainInfo,
    CollectibleBalance,
    Contract,
    Delegator,
    Erc20TokenBalance,
    Erc20Transfer,
    Erc721TokenBalance,
    Erc721Transfer,
    Erc1155TokenBalance,
    Erc1155Transfer,
    EvmBlock,
    EvmTransaction,
    HealthCheck,
    HistoricalReward,
    IcmMessage,
    IcmPoint,
    IcmSummary,
    InternalTransaction,
    L1Validator,
    LastActivity,
    MetricPoint,
    MetricsChain,
    NativeBalance,
    NativeTransaction,
    NetworkDetails,
    NftToken,
    Operation,
    PChainTransaction,
    PendingReward,
    PrimaryNetworkBalances,
    PrimaryNetworkBlock,
    PrimaryNetworkRpcUsage,
    PrimaryNetworkTransaction,
    PrimaryNetworkUtxo,
    RankedAddress,
    RankedAddresses,
    RollingWindowMetrics,
    SharedSecret,
    Subnet,
    SubnetRpcUsage,
    TeleporterMessage,
    Transfer,
    UsageMetrics,
    Validator,
    Webhook,
    XChainAsset,
    XChainTransaction,
    XChainVertex,
)
from chainapi.pages import MetricPages, Pages


async def call_every_route(session: Session) -> None:
    """Call every route; lists send nothing before they are read."""
    assert_type(await session.data.health_check(priority=1), HealthCheck)
    assert_type(await session.data.live_check(priority=1), HealthCheck)
    assert_type(
        session.data.chains(network="mainnet", feature="nftIndexing", resume=None, prefetch=2, priority=1),
        Pages[ChainInfo],
    )
    assert_type(await session.data.chain(7, priority=1), ChainInfo)
    assert_type(await session.data.avax_supply(priority=1), AvaxSupply)
    assert_type(await session.data.operation("operation_id-49", priority=1), Operation)
    assert_type(
        await session.data.aggregated_signatures("mainnet", "tx_hash-49", priority=1), AggregatedSignatures
    )
    assert_type(
        session.data.evm.blocks_of_all_chains(
            network="mainnet", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[EvmBlock],
    )
    assert_type(
        session.data.evm.transactions_of_all_chains(
            network="mainnet", status="failed", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[NativeTransaction],
    )
    assert_type(await session.data.evm.address_chains("address-49", priority=1), AddressChains)
    assert_type(
        session.data.evm.blocks(7, page_size=100, resume=None, prefetch=2, priority=1), Pages[EvmBlock]
    )
    assert_type(await session.data.evm.block(7, 7, priority=1), EvmBlock)
    assert_type(
        session.data.evm.block_transactions(7, 7, page_size=100, resume=None, prefetch=2, priority=1),
        Pages[NativeTransaction],
    )
    assert_type(
        session.data.evm.transactions(7, status="failed", page_size=100, resume=None, prefetch=2, priority=1),
        Pages[NativeTransaction],
    )
    assert_type(await session.data.evm.transaction(7, "tx_hash-49", priority=1), EvmTransaction)
    assert_type(
        await session.data.evm.native_balance(7, "address-49", block_number=7, currency="usd", priority=1),
        NativeBalance,
    )
    assert_type(
        session.data.evm.erc20_balances(
            7,
            "address-49",
            block_number=7,
            filter_spam_tokens=True,
            contract_addresses=["first", "second"],
            currency="usd",
            page_size=500,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Erc20TokenBalance],
    )
    assert_type(
        session.data.evm.erc721_balances(
            7,
            "address-49",
            contract_address="contract_address-97",
            page_size=500,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Erc721TokenBalance],
    )
    assert_type(
        session.data.evm.erc1155_balances(
            7,
            "address-49",
            block_number=7,
            contract_address="contract_address-97",
            page_size=500,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Erc1155TokenBalance],
    )
    assert_type(
        session.data.evm.collectible_balances(
            7,
            "address-49",
            contract_address="contract_address-97",
            page_size=500,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[CollectibleBalance],
    )
    assert_type(
        await session.data.evm.deployment(7, "address-49", currency="usd", priority=1), EvmTransaction
    )
    assert_type(
        session.data.evm.deployments(7, "address-49", page_size=100, resume=None, prefetch=2, priority=1),
        Pages[Contract],
    )
    assert_type(await session.data.evm.contract(7, "address-49", priority=1), Contract)
    assert_type(await session.data.evm.chains_of_address("address-49", priority=1), AddressChains)
    assert_type(
        session.data.evm.all_latest_transactions(
            network="mainnet", status="failed", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[NativeTransaction],
    )
    assert_type(
        session.data.evm.all_latest_blocks(
            network="mainnet", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[EvmBlock],
    )
    assert_type(
        session.data.evm.transfers(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[Transfer],
    )
    assert_type(
        session.data.evm.address_transactions(
            7,
            "address-49",
            start_block=7,
            end_block=7,
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[AddressTransaction],
    )
    assert_type(
        session.data.evm.address_transactions_v2(
            7,
            "address-49",
            start_block=7,
            end_block=7,
            filter_spam_tokens=True,
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[AddressTransactionV2],
    )
    assert_type(
        session.data.evm.native_transactions(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[NativeTransaction],
    )
    assert_type(
        session.data.evm.erc20_transactions(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[Erc20Transfer],
    )
    assert_type(
        session.data.evm.erc721_transactions(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[Erc721Transfer],
    )
    assert_type(
        session.data.evm.erc1155_transactions(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[Erc1155Transfer],
    )
    assert_type(
        session.data.evm.internal_transactions(
            7, "address-49", start_block=7, end_block=7, page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[InternalTransaction],
    )
    assert_type(
        session.data.nfts.tokens(7, "address-49", page_size=100, resume=None, prefetch=2, priority=1),
        Pages[NftToken],
    )
    assert_type(await session.data.nfts.token(7, "address-49", 7, priority=1), NftToken)
    assert_type(await session.data.primary_network.details("mainnet", priority=1), NetworkDetails)
    assert_type(
        await session.data.primary_network.transaction(
            "mainnet", "11111111111111111111111111111111LpoYY", "tx_hash-49", priority=1
        ),
        PrimaryNetworkTransaction,
    )
    assert_type(
        session.data.primary_network.transactions(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            addresses=["first", "second"],
            l1_validation_id="l1_validation_id-49",
            tx_types=["AddValidatorTx", "AddSubnetValidatorTx"],
            start_timestamp=0,
            end_timestamp=0,
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PrimaryNetworkTransaction],
    )
    assert_type(
        session.data.primary_network.staking_transactions(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            addresses=["first", "second"],
            tx_types=["AddValidatorTx", "AddSubnetValidatorTx"],
            start_timestamp=0,
            end_timestamp=0,
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PChainTransaction],
    )
    assert_type(
        session.data.primary_network.pending_rewards(
            "mainnet",
            addresses=["first", "second"],
            node_ids=["first", "second"],
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PendingReward],
    )
    assert_type(
        session.data.primary_network.rewards(
            "mainnet",
            addresses=["first", "second"],
            node_ids=["first", "second"],
            sort_order="asc",
            currency="usd",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[HistoricalReward],
    )
    assert_type(
        session.data.primary_network.utxos(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            addresses=["first", "second"],
            asset_id="asset_id-49",
            min_utxo_amount=0,
            include_spent=True,
            sort_by="timestamp",
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PrimaryNetworkUtxo],
    )
    assert_type(
        await session.data.primary_network.last_activity(
            "mainnet", "11111111111111111111111111111111LpoYY", addresses=["first", "second"], priority=1
        ),
        LastActivity,
    )
    assert_type(
        await session.data.primary_network.balances(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            block_timestamp=0,
            addresses=["first", "second"],
            priority=1,
        ),
        PrimaryNetworkBalances,
    )
    assert_type(
        await session.data.primary_network.block(
            "mainnet", "11111111111111111111111111111111LpoYY", 7, priority=1
        ),
        PrimaryNetworkBlock,
    )
    assert_type(
        session.data.primary_network.blocks(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            start_timestamp=0,
            end_timestamp=0,
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PrimaryNetworkBlock],
    )
    assert_type(
        session.data.primary_network.node_blocks(
            "mainnet",
            "11111111111111111111111111111111LpoYY",
            "node_id-49",
            start_timestamp=0,
            end_timestamp=0,
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[PrimaryNetworkBlock],
    )
    assert_type(
        session.data.primary_network.vertices(
            "mainnet",
            "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[XChainVertex],
    )
    assert_type(
        await session.data.primary_network.vertex(
            "mainnet", "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM", "vertex_hash-49", priority=1
        ),
        XChainVertex,
    )
    assert_type(
        session.data.primary_network.vertices_at_height(
            "mainnet",
            "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
            vertex_height=0,
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[XChainVertex],
    )
    assert_type(
        await session.data.primary_network.asset(
            "mainnet", "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM", "asset_id-49", priority=1
        ),
        XChainAsset,
    )
    assert_type(
        session.data.primary_network.asset_transactions(
            "mainnet",
            "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
            "asset_id-49",
            tx_types=["AddValidatorTx", "AddSubnetValidatorTx"],
            start_timestamp=0,
            end_timestamp=0,
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[XChainTransaction],
    )
    assert_type(
        session.data.primary_network.chain_ids(
            "mainnet", addresses=["first", "second"], resume=None, prefetch=2, priority=1
        ),
        Pages[AddressChainIds],
    )
    assert_type(
        session.data.primary_network.blockchains(
            "mainnet", sort_order="asc", page_size=10000, resume=None, prefetch=2, priority=1
        ),
        Pages[Blockchain],
    )
    assert_type(
        await session.data.primary_network.blockchain("mainnet", "blockchain_id-49", priority=1), Blockchain
    )
    assert_type(
        session.data.primary_network.subnets(
            "mainnet", sort_order="asc", page_size=10000, resume=None, prefetch=2, priority=1
        ),
        Pages[Subnet],
    )
    assert_type(await session.data.primary_network.subnet("mainnet", "subnet_id-49", priority=1), Subnet)
    assert_type(
        session.data.primary_network.validators(
            "mainnet",
            node_ids=["first", "second"],
            sort_by="blockIndex",
            sort_order="asc",
            validation_status="completed",
            min_delegation_capacity=7,
            max_delegation_capacity=7,
            min_time_remaining=2147483647,
            max_time_remaining=2147483647,
            min_fee_percentage=100,
            max_fee_percentage=100,
            min_uptime_performance=100,
            max_uptime_performance=100,
            subnet_id="subnet_id-49",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Validator],
    )
    assert_type(
        session.data.primary_network.validations(
            "mainnet",
            "node_id-49",
            validation_status="completed",
            sort_order="asc",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Validator],
    )
    assert_type(
        session.data.primary_network.delegators(
            "mainnet",
            reward_addresses=["first", "second"],
            sort_order="asc",
            delegation_status="completed",
            node_ids=["first", "second"],
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[Delegator],
    )
    assert_type(
        session.data.primary_network.l1_validators(
            "mainnet",
            l1_validation_id="l1_validation_id-49",
            include_inactive_l1_validators=True,
            node_id="node_id-97",
            subnet_id="subnet_id-53",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[L1Validator],
    )
    assert_type(await session.data.icm.message("message_id-49", priority=1), IcmMessage)
    assert_type(
        session.data.icm.messages(
            source_blockchain_id="source_blockchain_id-49",
            destination_blockchain_id="destination_blockchain_id-97",
            blockchain_id="blockchain_id-53",
            to="to-5",
            from_="from_-33",
            network="mainnet",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[IcmMessage],
    )
    assert_type(
        session.data.icm.address_messages(
            "address-49", network="mainnet", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[IcmMessage],
    )
    assert_type(await session.data.teleporter.message("message_id-49", priority=1), TeleporterMessage)
    assert_type(
        session.data.teleporter.messages(
            source_blockchain_id="source_blockchain_id-49",
            destination_blockchain_id="destination_blockchain_id-97",
            blockchain_id="blockchain_id-53",
            to="to-5",
            from_="from_-33",
            network="mainnet",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[TeleporterMessage],
    )
    assert_type(
        session.data.teleporter.address_messages(
            "address-49", network="mainnet", page_size=100, resume=None, prefetch=2, priority=1
        ),
        Pages[TeleporterMessage],
    )
    assert_type(
        await session.data.usage.api(
            org_id="org_id-49",
            start_timestamp=0,
            end_timestamp=0,
            time_interval="minute",
            group_by="requestPath",
            chain_id=7,
            response_code=7,
            request_type="data",
            api_key_id="api_key_id-97",
            request_path="request_path-53",
            priority=1,
        ),
        UsageMetrics,
    )
    assert_type(
        session.data.usage.logs(
            org_id="org_id-49",
            start_timestamp=0,
            end_timestamp=0,
            chain_id=7,
            response_code=7,
            request_type="data",
            api_key_id="api_key_id-97",
            request_path="request_path-53",
            page_size=100,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[ApiLog],
    )
    assert_type(
        await session.data.usage.subnet_rpc(
            time_interval="hourly",
            start_timestamp=0,
            end_timestamp=0,
            group_by="rpcMethod",
            chain_id=7,
            response_code=7,
            rpc_method="rpc_method-49",
            rl_bypass_api_token="rl_bypass_api_token-97",
            priority=1,
        ),
        SubnetRpcUsage,
    )
    assert_type(
        await session.data.usage.rpc(
            time_interval="hourly",
            start_timestamp=0,
            end_timestamp=0,
            group_by="rpcMethod",
            chain_id=7,
            response_code=7,
            rpc_method="rpc_method-49",
            rl_bypass_api_token="rl_bypass_api_token-97",
            priority=1,
        ),
        SubnetRpcUsage,
    )
    assert_type(
        await session.data.usage.primary_network_rpc(
            network="mainnet",
            time_interval="hourly",
            start_timestamp=0,
            end_timestamp=0,
            group_by="rpcMethod",
            response_code=7,
            request_path="request_path-49",
            country="country-97",
            continent="continent-53",
            user_agent="user_agent-5",
            rpc_method="rpc_method-33",
            priority=1,
        ),
        PrimaryNetworkRpcUsage,
    )
    assert_type(
        session.data.webhooks.list(status="active", page_size=100, resume=None, prefetch=2, priority=1),
        Pages[Webhook],
    )
    assert_type(await session.data.webhooks.get("webhook_id-49", priority=1), Webhook)
    assert_type(
        session.data.webhooks.addresses("webhook_id-49", page_size=100, resume=None, prefetch=2, priority=1),
        Pages[str],
    )
    assert_type(await session.data.webhooks.shared_secret(priority=1), SharedSecret)
    assert_type(session.metrics.avg_tps(7, resume=None, prefetch=2, priority=1), MetricPages[MetricPoint])
    assert_type(await session.metrics.health_check(priority=1), HealthCheck)
    assert_type(await session.metrics.live_check(priority=1), HealthCheck)
    assert_type(
        session.metrics.chains.list(network="mainnet", resume=None, prefetch=2, priority=1),
        Pages[MetricsChain],
    )
    assert_type(await session.metrics.chains.get(7, priority=1), MetricsChain)
    assert_type(
        session.metrics.chains.metric(
            7,
            "activeAddresses",
            start_timestamp=0,
            end_timestamp=0,
            time_interval="hour",
            page_size=2160,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(await session.metrics.chains.rolling(7, "gasUsed", priority=1), RollingWindowMetrics)
    assert_type(
        session.metrics.chains.nft_holders(
            7, "address-49", page_size=5000, resume=None, prefetch=2, priority=1
        ),
        Pages[RankedAddress],
    )
    assert_type(
        session.metrics.chains.token_holders(
            7,
            "address-49",
            threshold=7,
            start_timestamp=0,
            end_timestamp=0,
            page_size=5000,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[RankedAddress],
    )
    assert_type(
        session.metrics.chains.btcb_bridgers(
            threshold=7, page_size=5000, resume=None, prefetch=2, priority=1
        ),
        Pages[RankedAddress],
    )
    assert_type(
        session.metrics.icm.timeseries(
            start_timestamp=0,
            end_timestamp=0,
            src_blockchain_id="src_blockchain_id-49",
            dest_blockchain_id="dest_blockchain_id-97",
            time_interval="hour",
            group_by="srcBlockchainId",
            network="mainnet",
            page_size=2160,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[IcmPoint],
    )
    assert_type(
        await session.metrics.icm.summary(
            src_blockchain_id="src_blockchain_id-49",
            dest_blockchain_id="dest_blockchain_id-97",
            group_by="srcBlockchainId",
            network="mainnet",
            priority=1,
        ),
        IcmSummary,
    )
    assert_type(
        session.metrics.networks.metric(
            "mainnet",
            "delegatorCount",
            start_timestamp=0,
            end_timestamp=0,
            subnet_id="subnet_id-49",
            page_size=2160,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(
        session.metrics.l1_validators.metric(
            "totalCumulativeFeesDaily",
            start_timestamp=0,
            end_timestamp=0,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(
        session.metrics.l1_validators.by_validation(
            "l1_validation_id-49",
            "validationCumulativeFeesDaily",
            start_timestamp=0,
            end_timestamp=0,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(
        session.metrics.l1_validators.by_node(
            "node_id-49",
            "perNodeCumulativeFeesPaid",
            start_timestamp=0,
            end_timestamp=0,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(
        session.metrics.l1_validators.by_subnet(
            "subnet_id-49",
            "perSubnetDailyFeesPaid",
            start_timestamp=0,
            end_timestamp=0,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[MetricPoint],
    )
    assert_type(
        session.metrics.subnets.validators(
            "subnet_id-49",
            start_timestamp=0,
            end_timestamp=0,
            network="mainnet",
            page_size=5000,
            resume=None,
            prefetch=2,
            priority=1,
        ),
        Pages[RankedAddresses],
    )
