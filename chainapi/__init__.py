"""Asyncio client for the Metrics API and the Data API."""

__version__ = "0.1.0"
