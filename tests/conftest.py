"""Every asynchronous test runs in virtual time; one that needs sockets is marked `real_time`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from tests.virtual_time import VirtualLoop

# How fast examples are drawn says something about the machine, nothing about the code.
settings.register_profile("chainapi", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("chainapi")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "real_time: runs on a real event loop, because it opens sockets")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give each asynchronous test its loop."""
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualLoop}
