"""Names and identifiers of chains, tokens, contract methods and addresses in rows."""

from __future__ import annotations

__all__ = [
    "BLOCKCHAIN_NAMES",
    "COLLECTIONS",
    "METHODS",
    "PRIMARY_CHAINS",
    "TESTNETS",
    "TOKENS",
    "bech32",
    "chain_names",
    "identifier",
]

# Identifiers need only the right letters and be unique, so each byte becomes one letter of the alphabet:
# a conversion to base 58 would take longer than the rest of the row.
_BASE58 = bytes(b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[i % 58] for i in range(256))
_BECH32 = bytes(b"qpzry9x8gf2tvdw0s3jn54khce6mua7l"[i % 32] for i in range(256))

# Names of chains, and names and symbols of their native tokens.
CHAINS = {
    1: ("Ethereum", "Ether", "ETH"),
    43114: ("Avalanche (C-Chain)", "Avalanche", "AVAX"),
    43113: ("Avalanche (C-Chain) Testnet", "Avalanche", "AVAX"),
    53935: ("DFK Chain", "Jewel", "JEWEL"),
    335: ("DFK Chain Testnet", "Jewel", "JEWEL"),
    432204: ("Dexalot Subnet", "Dexalot", "ALOT"),
    432201: ("Dexalot Subnet Testnet", "Dexalot", "ALOT"),
    4337: ("Beam L1", "Beam", "BEAM"),
    13337: ("Beam L1 Testnet", "Beam", "BEAM"),
    8021: ("Numine", "Numine", "NUMI"),
    68414: ("Henesys", "Nexpace", "NXPC"),
}
TESTNETS = frozenset({43113, 335, 432201, 13337})
# Chains that are nobody's, for all other identifiers.
OTHER_CHAINS = (
    ("Solstice L1", "Solstice", "SOLST"),
    ("Meridian L1", "Meridian", "MRDN"),
    ("Cascade L1", "Cascade", "CSCD"),
    ("Lantern L1", "Lantern", "LNTRN"),
    ("Juniper L1", "Juniper", "JNPR"),
    ("Harbor L1", "Harbor", "HRBR"),
    ("Granite L1", "Granite", "GRNT"),
)
# Names, symbols and decimals of ERC-20 tokens; names and symbols of collections.
TOKENS = (
    ("USD Coin", "USDC", 6),
    ("TetherToken", "USDt", 6),
    ("Wrapped AVAX", "WAVAX", 18),
    ("Wrapped Ether", "WETH.e", 18),
    ("Bitcoin", "BTC.b", 8),
    ("Staked AVAX", "sAVAX", 18),
    ("JoeToken", "JOE", 18),
    ("BENQI", "QI", 18),
    ("Chainlink Token", "LINK.e", 18),
    ("Dai Stablecoin", "DAI.e", 18),
    ("Pangolin", "PNG", 18),
    ("GMX", "GMX", 18),
)
COLLECTIONS = (
    ("Avvy Domains", "AVVY"),
    ("Smol Joes", "SMOL"),
    ("Dokyo", "DOKYO"),
    ("Chikn", "CHIKN"),
    ("DFK Heroes", "HERO"),
    ("Joepegs Peons", "PEON"),
)
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


def chain_names(chain: int) -> tuple[str, str, str]:
    """Return the name of a chain, and the name and the symbol of its native token."""
    return CHAINS.get(chain) or OTHER_CHAINS[chain % len(OTHER_CHAINS)]


def identifier(drawn: bytes) -> str:
    """Return an identifier, such as a subnet's."""
    return "2" + drawn.translate(_BASE58).decode()


def bech32(drawn: bytes) -> str:
    """Return an address of the Primary Network, without its prefix."""
    return drawn.translate(_BECH32).decode()
