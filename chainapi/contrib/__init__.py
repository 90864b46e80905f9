"""chainapi inside web frameworks: `fastapi`, `starlette`, and parts for others."""

from __future__ import annotations

from chainapi.errors import ConfigurationError

__all__ = ["missing"]


def missing(package: str) -> ConfigurationError:
    """Return the error of a web framework that is not installed."""
    return ConfigurationError(
        f"chainapi.contrib needs {package}, which is not installed: pip install 'chainapi[fastapi]'"
    )
