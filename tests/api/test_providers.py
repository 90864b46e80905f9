"""Deployments: the public services by name, others by their parts, and which setting takes precedence."""

from __future__ import annotations

from typing import Any

import pytest

from chainapi import Checkpoint, Provider, Session
from chainapi.errors import CheckpointError, ConfigurationError
from tests.sessions import Answering

PUBLIC_METRICS, PUBLIC_DATA = "https://metrics.avax.network", "https://data-api.avax.network"
OTHER = "https://other.test"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of the process."""
    for name in ("PROVIDER", "METRICS_BASE_URL", "DATA_BASE_URL", "API_KEY", "API_KEY_HEADER"):
        monkeypatch.delenv(f"CHAINAPI_{name}", raising=False)


async def sent(**options: Any) -> tuple[Any, Any]:
    """Return the requests that a session sends to both services: the points of a chain, and its blocks."""
    transport = Answering(b'{"results": [], "blocks": []}')
    async with Session(transport=transport, **options) as session:
        await session.metrics.avg_tps(43114).collect()
        await session.data.evm.blocks(43114).collect()
    metrics, data = transport.requests
    return metrics, data


async def test_the_public_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """`provider="public"`, its preset or a variable reaches them without a key, at their own paths."""
    for name in ("public", Provider.PUBLIC, None):
        if name is None:
            monkeypatch.setenv("CHAINAPI_PROVIDER", "public")
        for key in (None, "my-key"):
            metrics, data = await sent(**({} if name is None else {"provider": name}), api_key=key)
            assert metrics.url.startswith(f"{PUBLIC_METRICS}/v2/chains/43114/metrics/avgTps")
            assert data.url.startswith(f"{PUBLIC_DATA}/v1/chains/43114/blocks")
            assert data.headers.get("x-glacier-api-key") == key
            assert "my-key" not in str(dict(metrics.headers))


async def test_the_specification() -> None:
    """The specification's deployment has its own path of the metric, and demands a key for the Data API."""
    addresses: dict[str, Any] = {
        "metrics_base_url": "https://metrics.test",
        "data_base_url": "https://data.test",
    }
    metrics, data = await sent(**addresses, api_key="my-key")
    assert metrics.url == "https://metrics.test/v1/avg_tps/43114"
    assert data.headers["x-data-api-key"] == "my-key"
    async with Session(transport=Answering(b'{"results": []}'), **addresses) as session:
        assert await session.metrics.avg_tps(43114).collect() == []
        with pytest.raises(ConfigurationError, match="api_key"):
            await session.data.get("/v1/chains")


async def test_another_deployment() -> None:
    """A `Provider` describes any deployment: addresses, the header of the key, and whether it is needed."""
    mine = Provider(
        metrics_base_url="https://m.test", data_base_url="https://d.test/base", api_key_header="x-own-key"
    )
    metrics, data = await sent(provider=mine, api_key="my-key")
    assert metrics.url.startswith("https://m.test/")
    assert data.url.startswith("https://d.test/base/v1/chains/43114/blocks")
    assert data.headers["x-own-key"] == "my-key"
    keyless = Provider(data_base_url="https://d.test", api_key_required=False)
    async with Session(provider=keyless, transport=Answering()) as session:
        assert await session.data.get("/v1/chains") == {}
        assert "https://d.test" in repr(session)


async def test_which_setting_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument, `provider=`, variable of the setting, and CHAINAPI_PROVIDER count in this order."""
    monkeypatch.setenv("CHAINAPI_PROVIDER", "public")
    monkeypatch.setenv("CHAINAPI_DATA_BASE_URL", "https://variable.test")
    monkeypatch.setenv("CHAINAPI_API_KEY", "key-of-the-variable")
    monkeypatch.setenv("CHAINAPI_API_KEY_HEADER", "x-variable")
    given = Provider(
        data_base_url="https://provider.test", metrics_base_url=OTHER, api_key_header="x-provider"
    )
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "https://variable.test", "x-variable"),
        ({"provider": given}, "https://provider.test", "x-provider"),
        (
            {"provider": given, "data_base_url": "https://argument.test"},
            "https://argument.test",
            "x-provider",
        ),
    ]
    for options, address, header in cases:
        _, data = await sent(**options)
        assert data.url.startswith(address), options
        assert data.headers[header] == "key-of-the-variable", options
    _, data = await sent(api_key="key-of-the-argument")
    assert data.headers["x-variable"] == "key-of-the-argument"


@pytest.mark.parametrize(("name", "shown"), [("pubic", "'pubic'"), ("ac_0123456789abcdef", r"\*\*\*")])
def test_an_unknown_provider_is_refused(name: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of an unknown name has the known ones, and masks a name that may be a key."""
    with pytest.raises(ConfigurationError, match=f"={shown} is no known deployment.*public"):
        Session(provider=name)
    monkeypatch.setenv("CHAINAPI_PROVIDER", name)
    with pytest.raises(ConfigurationError, match=f"CHAINAPI_PROVIDER={shown} is no known deployment.*public"):
        Session()


async def test_a_checkpoint_belongs_to_its_addresses() -> None:
    """A checkpoint of one deployment is refused by another."""
    async with Session(provider="public", transport=Answering(b'{"blocks": []}')) as session:
        pages = session.data.evm.blocks(43114)
        await anext(pages)
        at = Checkpoint.loads(pages.checkpoint.dumps())
        assert session.data.evm.blocks(43114, resume=at).checkpoint == at
    async with Session(data_base_url=OTHER, api_key="k", transport=Answering()) as session:
        with pytest.raises(CheckpointError):
            session.data.evm.blocks(43114, resume=at)
