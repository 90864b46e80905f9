"""Configuration of addresses and key.

`tests/api` proves by requests which setting counts, `tests/test_secrets.py` that nothing shows the key.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import Provider
from chainapi._config import Secret, ServiceConfig, Unconfigured, resolve
from chainapi.errors import ConfigurationError

pytestmark = pytest.mark.rule

ROUTE = "/v1/avg_tps/{chainId}"
KEY = "k3y-\\'\"%s{0}-never-shown"
ENVIRONMENT = {
    "CHAINAPI_METRICS_BASE_URL": "https://metrics.environment",
    "CHAINAPI_DATA_BASE_URL": "https://data.environment",
    "CHAINAPI_API_KEY": "environment-key",
}


def resolved(
    provider: Provider | str | None = None,
    *,
    metrics_base_url: str | None = None,
    data_base_url: str | None = None,
    api_key: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[ServiceConfig | Unconfigured, ServiceConfig | Unconfigured]:
    """Resolve in an empty environment, unless one is given."""
    return resolve(
        provider,
        metrics_base_url=metrics_base_url,
        data_base_url=data_base_url,
        api_key=api_key,
        environment={} if environment is None else environment,
    )


def data_endpoint(**arguments: Any) -> ServiceConfig:
    """Return the endpoint of the Data API, which has to be configured."""
    defaults: dict[str, Any] = {"data_base_url": "https://data.example", "api_key": KEY}
    endpoint = resolved(**(defaults | arguments))[1]
    assert isinstance(endpoint, ServiceConfig)
    return endpoint


def base_url(url: str) -> str:
    """Return an address as it is used."""
    endpoint = resolved(metrics_base_url=url)[0]
    assert isinstance(endpoint, ServiceConfig)
    return endpoint.base_url


# Where a value comes from.


@pytest.mark.parametrize(
    ("arguments", "metrics", "data"),
    [
        ({}, "CHAINAPI_METRICS_BASE_URL", "CHAINAPI_DATA_BASE_URL"),
        ({"api_key": KEY}, "CHAINAPI_METRICS_BASE_URL", "CHAINAPI_DATA_BASE_URL"),
        ({"data_base_url": "https://h"}, "CHAINAPI_METRICS_BASE_URL", "CHAINAPI_API_KEY"),
    ],
)
def test_what_is_missing_is_named(arguments: dict[str, Any], metrics: str, data: str) -> None:
    """A service that is not configured names its missing argument and variable, and the public services."""
    for service, variable in zip(resolved(**arguments), (metrics, data), strict=True):
        assert isinstance(service, Unconfigured)
        argument = variable.removeprefix("CHAINAPI_").lower()
        reason, _, hint = service.reason.partition("; ")
        assert reason.endswith(f" is not set: give {argument}= or set the variable {variable}")
        assert hint.startswith("CHAINAPI_PROVIDER=public") == (argument != "api_key")


def test_a_misspelt_variable_is_named() -> None:
    """A variable that looks like a misspelt setting is named, without its value."""
    metrics, data = resolved(environment={"CHAINAPI_DATA_BASEURL": "https://h", "CHAINAPI_OPENAPI": "x"})
    assert isinstance(metrics, Unconfigured)
    assert isinstance(data, Unconfigured)
    assert "BASEURL" not in metrics.reason
    assert data.reason.endswith("; CHAINAPI_DATA_BASEURL is set: did you mean CHAINAPI_DATA_BASE_URL?")
    set_on_purpose = {"CHAINAPI_DATA_BASE_URL": "https://h", "CHAINAPI_API_KEY_HEADER": "x-key"}
    _, keyless = resolved(environment=set_on_purpose)
    assert isinstance(keyless, Unconfigured)
    assert keyless.reason.endswith("set the variable CHAINAPI_API_KEY")


# Addresses.


USED = {
    "https://example.com": "https://example.com",
    "https://example.com/": "https://example.com",
    "https://example.com//": "https://example.com",
    "https://example.com/api/v9/": "https://example.com/api/v9",
    "https://example.com/%7Ea": "https://example.com/%7Ea",
    "https://example.com/é": "https://example.com/%C3%A9",
    "HTTPS://Example.COM:8443": "https://example.com:8443",
    "https://example.com:": "https://example.com",
    "https://münchen.example": "https://xn--mnchen-3ya.example",
    "http://my_service:8080": "http://my_service:8080",
    "http://[::1]:8080/x": "http://[::1]:8080/x",
    "http://[0:0:0:0:0:0:0:1]": "http://[::1]",
}


def test_addresses_as_they_are_used() -> None:
    """Addresses keep a path prefix and a port, lose a trailing slash, become ASCII."""
    assert {url: base_url(url) for url in USED} == USED


BAD_ADDRESSES: tuple[Any, ...] = (
    *("", "   ", "example.com", "//example.com", "ftp://example.com", "https://", "https:///path"),
    *("https://user@example.com", "https://user:secret@example.com", "https://@example.com"),
    *("https://example.com?a=b", "https://example.com?", "https://example.com#a", "https://example.com#"),
    *(
        " https://example.com",
        "https://example.com\n",
        "https://exa\tmple.com",
        "https://a..b",
        "https://a,b",
    ),
    *("https://example.com\\@other.example", "https://example.com:99999", "https://example.com:port"),
    *("https://[::1", "https://[::zz]", "https://[fe80::1%25eth0]", "https://" + "a" * 64),
    *("https://ex%61mple.com", "https://<example>.com", "https://example.com/a/../b"),
    *("https://example.com/%2E%2e/b", "https://example.com/\ud800", "https://\udfff.example"),
    *(5, b"https://example.com"),
)


def test_bad_addresses_are_refused() -> None:
    """Bad addresses are refused under the name of their source, without being shown."""
    for url in BAD_ADDRESSES:
        cases: dict[str, dict[str, Any]] = {
            "metrics_base_url": {"metrics_base_url": url},
            "provider.metrics_base_url": {"provider": Provider(metrics_base_url=url)},
            "CHAINAPI_METRICS_BASE_URL": {"environment": {"CHAINAPI_METRICS_BASE_URL": url}},
            "data_base_url": {"data_base_url": url, "api_key": KEY},
        }
        for source, arguments in cases.items():
            with pytest.raises(ConfigurationError, match=f"^{source} ") as caught:
                resolved(**arguments)
            assert "secret" not in str(caught.value)


def test_bad_paths_of_a_provider_are_refused() -> None:
    """Paths of a provider that lead elsewhere, or lack a parameter, are refused before a request."""
    texts = (".evil.example/{chainId}", "/v2/../{chainId}", "/v2/{chainId}?x=1", "/v2/{chain_id}", "/v2/x")
    more = ("/v2/{chainId}/{}", "/v2/{chainId}/{chainId!r}")
    forms: tuple[Any, ...] = (
        {ROUTE: "/v2/{chainId}"},
        (ROUTE, "/v2/{chainId}"),
        ((ROUTE, 5),),
        ((ROUTE, "/v2/x", "/v3/x"),),
    )
    for paths in (*forms, *(((ROUTE, text),) for text in (*texts, *more))):
        with pytest.raises(ConfigurationError, match=r"^provider\.paths"):
            resolved(Provider(metrics_base_url="https://a.example", paths=paths))


@given(st.text())
@example("\u2024")  # IDNA makes a dot of it
@example("a.\u2024")
def test_any_address_is_used_or_refused(url: str) -> None:
    """Any text is an address that can be used again as it is, or a ConfigurationError."""
    for text in (url, f"https://{url}", f"https://example.com/{url}"):
        try:
            used = base_url(text)
        except ConfigurationError:
            continue
        assert used.isascii()
        assert base_url(used) == used


def test_the_key_goes_over_https_or_to_loopback_alone() -> None:
    """An http:// address is taken where nobody can listen in, and for a service without a key."""
    loopback = ("127.0.0.1:8080", "127.8.9.1", "localhost:1", "LOCALHOST", "data.localhost", "[::1]:5")
    for url in (*(f"http://{host}" for host in loopback), "https://example.com"):
        assert data_endpoint(data_base_url=url).key is not None
    others = ("example.com", "192.168.0.1", "localhost.example.com", "127.0.0.1.example.com", "notlocalhost")
    keyless = Provider(data_base_url="http://data.example", api_key_required=False)
    for host in (*others, "[2001:db8::1]", "0.0.0.0"):
        with pytest.raises(ConfigurationError, match=r"data_base_url.*CHAINAPI_DATA_BASE_URL.*in the clear"):
            data_endpoint(data_base_url=f"http://{host}")
        assert base_url(f"http://{host}") == f"http://{host}"
    assert resolved(keyless)[1] == ServiceConfig("data", "http://data.example")
    with pytest.raises(ConfigurationError, match="in the clear"):
        resolved(keyless, api_key=KEY)
    # It goes to the origin, of which the path prefix is no part.
    assert data_endpoint(data_base_url="https://example.com:8443/prefix").origin == "https://example.com:8443"


# The key.


def test_the_key_is_handed_out_on_request_only() -> None:
    """`reveal` is the one way to the key: it is not shown, pickled or copied, alone or with its owner."""
    key = data_endpoint().key
    assert key is not None
    assert key.reveal() == KEY
    assert repr(key) == str(key) == "Secret('***')"
    with pytest.raises(TypeError, match="vars"):
        vars(key)
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        for thing in (Secret(KEY), *([data_endpoint()] if duplicate is not copy.copy else [])):
            with pytest.raises(TypeError, match="a secret is not pickled or copied"):
                duplicate(thing)


def test_a_provider_has_to_be_one() -> None:
    """Anything else than a Provider or a name is refused by its type, as is a header that is none."""
    wrong: tuple[Any, ...] = (5, {}, Provider)
    for provider in wrong:
        with pytest.raises(ConfigurationError, match="provider must be a Provider"):
            resolved(provider)
    names: tuple[Any, ...] = ("", "x key", "x-key:", "x-key\r\n", "schlüssel", None, 5)
    for name in names:
        with pytest.raises(ConfigurationError, match="api_key_header"):
            resolved(Provider(api_key_header=name))
    with pytest.raises(ConfigurationError, match=r"^CHAINAPI_API_KEY_HEADER is no valid"):
        resolved(environment={"CHAINAPI_API_KEY_HEADER": ""})


# Deployments by name.


def test_the_variable_names_a_deployment_that_everything_else_replaces() -> None:
    """CHAINAPI_PROVIDER comes last: arguments, a provider, and variables of single settings replace it."""
    public = {"CHAINAPI_PROVIDER": "public"}
    assert resolved(environment=public) == resolved(Provider.PUBLIC)
    assert isinstance(resolved(environment={"CHAINAPI_PROVIDER": " "})[0], Unconfigured)
    metrics, data = resolved(environment={**ENVIRONMENT, **public})
    assert isinstance(metrics, ServiceConfig)
    assert isinstance(data, ServiceConfig)
    assert (metrics.base_url, data.base_url) == ("https://metrics.environment", "https://data.environment")
    assert data.key_header == "x-glacier-api-key"
    assert isinstance(resolved("specification", environment=public)[0], Unconfigured)
    assert resolved(Provider("https://h"), environment=public)[0] == ServiceConfig("metrics", "https://h")
