"""Types of fields and parameters that no document specifies.

Examples are numbers in strings, decimals and secrets.
"""

from __future__ import annotations

# Fields with whole numbers of any size in strings.
WHOLE_STRINGS = frozenset(
    (
        "amount amountDelegated amountStaked balance balanceThreshold baseFee baseFeePerGas blockHeight blockNumber"
        " consumingBlockNumber createBlockIndex createBlockNumber cumulativeTransactions currentSupply"
        " delegationCapacity delegationRewardAmount estimatedAnnualStakingReward estimatedGrossReward"
        " estimatedNetReward estimatedReward feesSpent gasCost gasLimit gasPrice gasSpent gasUsed grossReward"
        " l1ValidatorFeeBalanceThreshold maxFeePerGas maxPriorityFeePerGas messageNonce netReward nonce outputIndex"
        " gas receiptCumulativeGasUsed receiptEffectiveGasPrice receiptGasUsed receivedMessageNonce tokenId"
        " totalAmountStaked validationRewardAmount value"
    ).split()
)
# Records whose chainId is a number; in other records a chain may have a name.
WHOLE_CHAIN_IDS = frozenset(
    (
        "ChainInfo EvmBlock NativeTransaction FullNativeTransaction NativeTokenBalance Erc20TokenBalance"
        " Erc721TokenBalance Erc1155TokenBalance"
    ).split()
)
# Fields with exact decimals, in strings or numbers.
DECIMALS = frozenset(
    (
        "circulatingSupply delegationFee delegationFeePercent genesisUnlock l1ValidatorFees sortKey stakingRatio"
        " totalCBurned totalLocked totalPBurned totalRewards totalStaked totalSupply totalXBurned Money.value"
    ).split()
)
# Numbers that may have a fraction; all other numbers are whole.
FLOATS = frozenset(
    (
        "allTime apiCreditsConsumed apiCreditsUsed apiCreditsWasted benchedCChainRequestsPercent"
        " benchedPChainRequestsPercent benchedXChainRequestsPercent last90Days lastDay lastHour lastMonth lastWeek"
        " lastYear latitude longitude medianResponseTimeMsecs progress reachabilityPercent requestDurationMsecs"
        " requestsPerSecond stakePercentage successRatePercent uptimePerformance value"
    ).split()
)
# Fields that the documents require and that answers may lack, with the reason.
OPTIONAL = {
    "EvmBlock.chainId": "real answers lack it",
    "NativeTransaction.chainId": "real answers of the same kind lack it",
    "FullNativeTransaction.chainId": "real answers of the same kind lack it",
    "ActiveValidator.geolocation": "may be null",
    "Erc20TokenBalance.tokenReputation": "may be null",
    "Erc20TokenV2.tokenReputation": "may be null",
    "ChainInfo.*": "the specification shows no field of the chain record",
    "NetworkToken.*": "the specification shows no field of this part of the chain record",
    **dict.fromkeys(
        (
            *("AddressActivityEvent.webhookId", "AddressActivityEvent.messageId", "WebhookTransaction.*"),
            *("WebhookLog.*", "AccessListEntry.*", "WebhookErcTransfer.*", "WebhookErcToken.*"),
            "WebhookInternalTransaction.*",
        ),
        "example calls in the service's own pages lack some",
    ),
}
# Fields of an envelope whose schema and example disagree: both types are accepted.
ENVELOPE_TYPES = {"nftCollectionName": "list[str] | str", "nftSymbol": "list[str] | str"}
# Fields that stay plain JSON, with the reason.
PLAIN = {"genesisData": "the genesis of a chain has the format of its virtual machine, and there are many"}
# Fields that no repr shows.
SECRETS = frozenset({"SharedSecret.secret"})

# Parameters with whole numbers in strings.
WHOLE_PARAMETERS = frozenset(
    {
        "blockNumber",
        "endBlock",
        "maxDelegationCapacity",
        "minDelegationCapacity",
        "pChainHeight",
        "quorumPercentage",
        "quorumPercentageBuffer",
        "responseCode",
        "startBlock",
    }
)
# Parameters with several values, joined with commas.
LIST_PARAMETERS = frozenset({"addresses", "contractAddresses", "nodeIds", "rewardAddresses"})
# Parameters whose name is a keyword or too general in Python.
RENAMED_PARAMETERS = {"from": "from_", "id": "webhook_id"}
# Types of parameters that the documents give as strings.
PARAMETER_TYPES = {
    "chainId": "ChainId",
    "blockId": "int | str",
    "tokenId": "int | str",
    "threshold": "int | str",
    "subnetId": "str",
}
