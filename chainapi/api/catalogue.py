"""Catalog of all endpoints by dotted name, such as ``data.evm.blocks``.

`ROUTES` has those that only read, with any method; `WRITES` those that change something in the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from chainapi.api.binding import endpoints_in, groups_of
from chainapi.api.data import DataAPI
from chainapi.api.endpoint import Endpoint
from chainapi.api.metrics import MetricsAPI

__all__ = ["ROUTES", "WRITES"]


def _found() -> Iterator[tuple[str, Endpoint]]:
    for service, kind in (("data", DataAPI), ("metrics", MetricsAPI)):
        for name, endpoint in endpoints_in(kind).items():
            yield f"{service}.{name}", endpoint
        for group, members in groups_of(kind).items():
            for name, endpoint in endpoints_in(members).items():
                yield f"{service}.{group}.{name}", endpoint


def _split(*, reads: bool) -> Mapping[str, Endpoint]:
    return MappingProxyType({name: endpoint for name, endpoint in _found() if endpoint.reads == reads})


ROUTES = _split(reads=True)
WRITES = _split(reads=False)
