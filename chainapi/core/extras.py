"""Error of an optional package that is not installed."""

from __future__ import annotations

from chainapi.errors import ConfigurationError

__all__ = ["missing_extra"]


def missing_extra(need: str, package: str | None, extra: str, otherwise: str = "") -> ConfigurationError:
    """Return the error of a package that an extra installs.

    `need` is the subject and the verb, such as "chainapi.otel needs"; `otherwise` is another remedy.
    """
    return ConfigurationError(
        f"{need} {package}, which is not installed: pip install 'chainapi[{extra}]'{otherwise}"
    )
