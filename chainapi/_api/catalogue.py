"""Catalog of all endpoints by dotted name, such as ``data.evm.blocks``.

`ROUTES` has those that only read, with any method; `WRITES` those that change something in the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from chainapi._api.binding import LazyGroup
from chainapi._api.data import DataAPI
from chainapi._api.endpoint import Endpoint
from chainapi._api.metrics import MetricsAPI

__all__ = ["ROUTES", "WRITES"]


def _found(prefix: str, kind: type) -> Iterator[tuple[str, Endpoint]]:
    """Yield the endpoints of a class, then of its groups, by dotted names."""
    members = [member for base in reversed(kind.__mro__) for member in vars(base).items()]
    for name, value in members:
        if hasattr(value, "endpoint"):
            yield f"{prefix}.{name}", value.endpoint
    for name, value in members:
        if isinstance(value, LazyGroup):
            yield from _found(f"{prefix}.{name}", value.kind)


def _split(*, reads: bool) -> Mapping[str, Endpoint]:
    found = (*_found("data", DataAPI), *_found("metrics", MetricsAPI))
    return MappingProxyType({name: endpoint for name, endpoint in found if endpoint.reads == reads})


ROUTES = _split(reads=True)
WRITES = _split(reads=False)
