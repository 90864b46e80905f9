"""Asyncio client for the Metrics API and the Data API: streaming pagination that loses no row."""

from chainapi._version import __version__
from chainapi.config import Provider
from chainapi.core.checkpoint import Checkpoint
from chainapi.core.quota import Limit
from chainapi.models.metrics import MetricPoint
from chainapi.pages import MetricPage, Page, Pages
from chainapi.session import Session

__all__ = [
    "Checkpoint",
    "Limit",
    "MetricPage",
    "MetricPoint",
    "Page",
    "Pages",
    "Provider",
    "Session",
    "__version__",
]
