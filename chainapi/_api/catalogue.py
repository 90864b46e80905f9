"""Catalog of all endpoints by dotted name, such as ``data.evm.blocks``.

`ROUTES` has those that only read, with any method; `WRITES` those that change something in the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chainapi._api.data import DataAPI
from chainapi._api.endpoint import Endpoint
from chainapi._api.lazy import routes_below
from chainapi._api.metrics import MetricsAPI

__all__ = ["ROUTES", "WRITES"]


def _split(*, reads: bool) -> Mapping[str, Endpoint]:
    found = (*routes_below("data", DataAPI), *routes_below("metrics", MetricsAPI))
    return MappingProxyType({name: endpoint for name, endpoint in found if endpoint.reads == reads})


#: Routes that read, by their names such as `data.evm.blocks`.
ROUTES = _split(reads=True)
#: Routes that write, by their names.
WRITES = _split(reads=False)
