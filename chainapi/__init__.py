"""Asyncio client for the Metrics API and the Data API: streaming pagination that loses no row.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainapi._version import __version__

if TYPE_CHECKING:
    from chainapi.config import Provider
    from chainapi.core.checkpoint import Checkpoint
    from chainapi.core.quota import Limit
    from chainapi.models.invalid import Invalid
    from chainapi.models.metrics import MetricPoint
    from chainapi.pages import MetricPage, Page, Pages
    from chainapi.session import Session

__all__ = [
    "Checkpoint",
    "Invalid",
    "Limit",
    "MetricPage",
    "MetricPoint",
    "Page",
    "Pages",
    "Provider",
    "Session",
    "__version__",
]

_PLACES = {
    "Checkpoint": "core.checkpoint",
    "Invalid": "models.invalid",
    "Limit": "core.quota",
    "MetricPage": "pages",
    "MetricPoint": "models.metrics",
    "Page": "pages",
    "Pages": "pages",
    "Provider": "config",
    "Session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
