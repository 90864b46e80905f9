"""Settings of a simulator."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import Attribute, define, field
from attrs.validators import ge, gt, le, optional

from chainapi._http.message import is_header_name
from chainapi.simulator.anomalies import Anomalies
from chainapi.simulator.faults import Broken, Fault

__all__ = ["API_KEY_HEADER", "Anomalies", "Broken", "Fault", "Settings"]

API_KEY_HEADER = "x-data-api-key"  # of the specification
CHAINS = (43114, 43113, 53935, 432204, 4337, 8021)


# Converters are written out, because the type checkers cannot see through `tuple` and `str.lower`.
def _chain_ids(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _faults(values: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(values)


def _anomalies(value: Anomalies | Iterable[Anomalies]) -> tuple[Anomalies, ...]:
    return (value,) if isinstance(value, Anomalies) else tuple(value)


def _lower(value: str) -> str:
    return value.lower()


def _distinct(_: object, attribute: Attribute[tuple[int, ...]], value: tuple[int, ...]) -> None:
    if not value or len(set(value)) != len(value):
        raise ValueError(f"{attribute.name} must be at least one chain id, each given once")


def _header_name(_: object, attribute: Attribute[str], value: str) -> None:
    if not is_header_name(value):
        raise ValueError(f"{attribute.name} is no valid header name")


@define(eq=False)
class Settings:
    """Settings of the services: contents, behavior, limits and faults.

    You may change limits and faults while the services run.

    Attributes:
        seed: all random choices follow from it.
        chains: the chain ids that exist.
        points: daily points of each series at the beginning.
        rows: rows of each other list at the beginning.
        metrics_page_size: points on a page of the Metrics API.
        api_key: key that the Data API accepts.
        other_keys: further keys that it accepts, each with a quota of its own.
        api_key_header: header of the key.
        api_key_required: whether the Data API refuses requests without a key, as in the specification;
            otherwise they share a quota of their own.
        limit: requests that a key may send in a window; None for no limit and no limit headers.
        window: length of the window in seconds, from the first request in it.
        day_limit: requests that a key may send in a day, from the first request in it; None for no limit.
        metrics_limit: requests that the Metrics API takes in a window, without limit headers; None for no
            limit.
        metrics_window: length of that window in seconds.
        metrics_day_limit: requests that the Metrics API takes in a day; None for no limit.
        weighted: whether all limits count compute units: the cost of a request's route, one for a route
            without a known cost.
        block: seconds for which a key is blocked that sends three requests between a 429 and the end of its
            retry-after; None for no block.
        token_lifetime: seconds until a page token expires.
        expired_status: status of the answer to an expired token.
        grow_every: seconds after which each list has one more row at its head; None for never.
        forbidden: paths of the Data API that no key has the privilege for.
        faults: faults of requests.
        anomalies: anomalies of lists; of several, the first one whose route matches a list counts.
        epoch: Unix time, in seconds, of the newest rows at the beginning.

    """

    seed: int = 0
    chains: tuple[int, ...] = field(default=CHAINS, kw_only=True, converter=_chain_ids, validator=_distinct)
    points: int = field(default=1_000, kw_only=True, validator=ge(0))
    rows: int = field(default=1_000, kw_only=True, validator=ge(0))
    metrics_page_size: int = field(default=100, kw_only=True, validator=ge(1))
    api_key: str = field(default="simulated-key", kw_only=True, repr=False)
    other_keys: tuple[str, ...] = field(default=(), kw_only=True, converter=_texts, repr=False)
    api_key_header: str = field(
        default=API_KEY_HEADER, kw_only=True, converter=_lower, validator=_header_name
    )
    api_key_required: bool = field(default=True, kw_only=True)
    limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    window: float = field(default=60.0, kw_only=True, validator=gt(0))
    day_limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    metrics_limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    metrics_window: float = field(default=60.0, kw_only=True, validator=gt(0))
    metrics_day_limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    weighted: bool = field(default=False, kw_only=True)
    block: float | None = field(default=None, kw_only=True, validator=optional(gt(0)))
    token_lifetime: float = field(default=86_400.0, kw_only=True, validator=gt(0))
    expired_status: int = field(default=400, kw_only=True, validator=[ge(400), le(599)])
    grow_every: float | None = field(default=None, kw_only=True, validator=optional(gt(0)))
    forbidden: tuple[str, ...] = field(default=("/v1/apiUsageMetrics",), kw_only=True, converter=_texts)
    faults: tuple[Fault, ...] = field(default=(), kw_only=True, converter=_faults)
    anomalies: tuple[Anomalies, ...] = field(default=(), kw_only=True, converter=_anomalies)
    epoch: int = field(default=1_767_225_600, kw_only=True)
