"""Units of columns and metrics that the documents of the services state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["COLUMNS", "METRICS", "unit_of"]

COLUMNS: Mapping[str, str] = {
    "amount_delegated": "nAVAX",
    "balance_change": "nAVAX",
    "delegation_capacity": "nAVAX",
    "gas_limit": "gas",
    "gas_used": "gas",
    "remaining_balance": "nAVAX",
}
METRICS: Mapping[str, str] = {
    "activeAddresses": "addresses",
    "activeSenders": "addresses",
    "avgGps": "gas/s",
    "avgTps": "transactions/s",
    "contracts": "contracts",
    "cumulativeAddresses": "addresses",
    "cumulativeContracts": "contracts",
    "cumulativeDeployers": "deployers",
    "cumulativeTxCount": "transactions",
    "delegatorCount": "delegators",
    "deployers": "deployers",
    "gasUsed": "gas",
    "maxGps": "gas/s",
    "maxTps": "transactions/s",
    "txCount": "transactions",
    "validatorCount": "validators",
}


def unit_of(column: str, labels: Iterable[str]) -> str:
    """Return the unit of a column; empty if unknown.

    Points of a metric have it in the column ``value``. The labels of their sources name the metric, as in
    ``43114/gasUsed``: a unit is known if all labels name metrics of one unit.
    """
    if column != "value":
        return COLUMNS.get(column, "")
    units = {next((METRICS[word] for word in label.split("/") if word in METRICS), "") for label in labels}
    return units.pop() if len(units) == 1 else ""
