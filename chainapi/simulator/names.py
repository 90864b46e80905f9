"""Names and identifiers of chains, contract methods and addresses in rows."""

from __future__ import annotations

__all__ = ["BLOCKCHAIN_NAMES", "CHAIN_NAMES", "METHODS", "PRIMARY_CHAINS", "bech32", "identifier"]

# Identifiers need only the right letters and be unique, so each byte becomes one letter of the alphabet:
# a conversion to base 58 would take longer than the rest of the row.
_BASE58 = bytes(b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[i % 58] for i in range(256))
_BECH32 = bytes(b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"[i % 32] for i in range(256))

CHAIN_NAMES = {
    43114: ("Avalanche (C-Chain)", "AVAX"),
    43113: ("Avalanche (C-Chain) Testnet", "AVAX"),
    53935: ("DFK Chain", "JEWEL"),
    432204: ("Dexalot Subnet", "ALOT"),
    4337: ("Beam L1", "BEAM"),
    8021: ("Numine", "NUMI"),
}
PRIMARY_CHAINS = {
    "p-chain": "11111111111111111111111111111111LpoYY",
    "x-chain": "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
    "c-chain": "2q9e4r6Mu3U68nU1fYjgbR6JvwrRx36CohpAX5UQxse55x1Q5",
}
# Names and identifiers of the three chains of a network, each with the name of its chain.
BLOCKCHAIN_NAMES = {
    **{chain: chain for chain in PRIMARY_CHAINS},
    **{name: chain for chain, name in PRIMARY_CHAINS.items()},
    "2JVSBoinj9C2J33VntvzYtVJNZdN2NKiwwKjcumHUWEb5DbBrm": "x-chain",
    "yH8D7ThNJkxmtkuv2jgBa4P1Rn3Qpr4pPr7QYNfcdoS6k6HWp": "c-chain",
}
METHODS = (
    ("NATIVE_TRANSFER", "", "Native Transfer"),
    ("CONTRACT_CALL", "0xa9059cbb", "transfer(address,uint256)"),
    ("CONTRACT_CALL", "0x095ea7b3", "approve(address,uint256)"),
    ("CONTRACT_CALL", "0x38ed1739", "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)"),
)


def identifier(drawn: bytes) -> str:
    """Return an identifier, such as a subnet's."""
    return "2" + drawn.translate(_BASE58).decode()


def bech32(drawn: bytes) -> str:
    """Return an address of the Primary Network, without its prefix."""
    return drawn.translate(_BECH32).decode()
