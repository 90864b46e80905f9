"""Asyncio client for the Metrics API and the Data API, with streaming pagination.

No row is lost between pages. The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainapi._version import __version__

if TYPE_CHECKING:
    from chainapi._api.catalogue import ROUTES, WRITES
    from chainapi._api.view import SessionView
    from chainapi._config import LimiterOptions, Provider
    from chainapi._http.cache import Cache, CacheStore, MemoryStore
    from chainapi._limits.view import Limit
    from chainapi._paging.checkpoint import Checkpoint
    from chainapi._paging.merge import Failure, merge
    from chainapi._paging.page import MetricPage, Page
    from chainapi._paging.pages import Pages
    from chainapi.models.invalid import Invalid
    from chainapi.models.metrics import MetricPoint
    from chainapi.script import run
    from chainapi.session import Session
    from chainapi.sync import connect
    from chainapi.webhooks import validate_webhook

__all__ = [
    "ROUTES",
    "WRITES",
    "Cache",
    "CacheStore",
    "Checkpoint",
    "Failure",
    "Invalid",
    "Limit",
    "LimiterOptions",
    "MemoryStore",
    "MetricPage",
    "MetricPoint",
    "Page",
    "Pages",
    "Provider",
    "Session",
    "SessionView",
    "__version__",
    "connect",
    "merge",
    "run",
    "validate_webhook",
]

_MODULES = {
    "ROUTES": "_api.catalogue",
    "WRITES": "_api.catalogue",
    "Cache": "_http.cache",
    "CacheStore": "_http.cache",
    "Checkpoint": "_paging.checkpoint",
    "Failure": "_paging.merge",
    "Invalid": "models.invalid",
    "Limit": "_limits.view",
    "LimiterOptions": "_config",
    "MemoryStore": "_http.cache",
    "MetricPage": "_paging.page",
    "MetricPoint": "models.metrics",
    "Page": "_paging.page",
    "Pages": "_paging.pages",
    "Provider": "_config",
    "Session": "session",
    "SessionView": "_api.view",
    "connect": "sync",
    "merge": "_paging.merge",
    "run": "script",
    "validate_webhook": "webhooks",
}


_ELSEWHERE = {"Fault": "simulator", "Simulator": "simulator", "export": "export"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def _hint(name: str) -> str:
    """Return the import of a public name that another module has."""
    errors = import_module(f"{__name__}.errors").__all__ if name.endswith("Error") else ()
    module = "errors" if name in errors else _ELSEWHERE.get(name)
    return "" if module is None else f": write `from {__name__}.{module} import {name}`"


def __dir__() -> list[str]:
    return __all__
