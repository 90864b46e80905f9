"""Configuration of addresses and key, and secrecy of the key."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import Provider
from chainapi.client.config import MAX_KEY_LENGTH, Secret, ServiceConfig, Unconfigured, resolve
from chainapi.core.arguments import refuse_unknown
from chainapi.errors import ChainAPIError, ConfigurationError

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
    api_key_header: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[ServiceConfig | Unconfigured, ServiceConfig | Unconfigured]:
    """Resolve in an empty environment, unless one is given."""
    return resolve(
        provider,
        metrics_base_url=metrics_base_url,
        data_base_url=data_base_url,
        api_key=api_key,
        api_key_header=api_key_header,
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


def test_arguments_win_over_the_provider_and_the_environment() -> None:
    """An argument wins over the provider, which wins over the environment."""
    provider = Provider("https://metrics.provider", "https://data.provider", "X-Key")
    arguments: dict[str, Any] = {
        "metrics_base_url": "https://metrics.argument",
        "data_base_url": "https://data.argument",
    }
    cases: list[tuple[Provider | None, dict[str, Any], str]] = [
        (None, {}, "environment"),
        (provider, {}, "provider"),
        (provider, arguments, "argument"),
        (None, arguments, "argument"),
    ]
    for given_provider, given_arguments, source in cases:
        metrics, data = resolved(given_provider, environment=ENVIRONMENT, **given_arguments)
        assert isinstance(metrics, ServiceConfig)
        assert isinstance(data, ServiceConfig)
        assert metrics.base_url == f"https://metrics.{source}"
        assert data.base_url == f"https://data.{source}"
        assert data.key_header == ("x-data-api-key" if given_provider is None else "x-key")


def test_the_key_comes_from_the_argument_else_the_environment() -> None:
    """The key argument wins over CHAINAPI_API_KEY."""
    for api_key, expected in ((None, "environment-key"), ("argument-key", "argument-key")):
        key = data_endpoint(api_key=api_key, environment=ENVIRONMENT).key
        assert key is not None
        assert key.reveal() == expected


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping, `resolve` reads the variables of the process when called."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    metrics, data = resolve(None, metrics_base_url=None, data_base_url=None, api_key=None)
    assert isinstance(metrics, ServiceConfig)
    assert isinstance(data, ServiceConfig)
    assert metrics.base_url == "https://metrics.environment"


def test_metrics_endpoints_have_no_key() -> None:
    """A Metrics endpoint has no key, because the Metrics API takes none."""
    metrics = resolved(metrics_base_url="https://h", api_key=KEY)[0]
    assert metrics == ServiceConfig("metrics", "https://h", None, None)


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


# Addresses.


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("https://example.com", "https://example.com"),
        ("https://example.com/", "https://example.com"),
        ("https://example.com//", "https://example.com"),
        ("https://example.com/api/v9/", "https://example.com/api/v9"),
        ("https://example.com/%7Ea", "https://example.com/%7Ea"),
        ("https://example.com/é", "https://example.com/%C3%A9"),
        ("HTTPS://Example.COM:8443", "https://example.com:8443"),
        ("https://example.com:", "https://example.com"),
        ("https://münchen.example", "https://xn--mnchen-3ya.example"),
        ("http://my_service:8080", "http://my_service:8080"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
    ],
)
def test_addresses_as_they_are_used(url: str, used: str) -> None:
    """Addresses keep a path prefix and a port, lose a trailing slash, become ASCII."""
    assert base_url(url) == used


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "example.com",
        "//example.com",
        "ftp://example.com",
        "https://",
        "https:///path",
        "https://user@example.com",
        "https://user:secret@example.com",
        "https://@example.com",
        "https://example.com?a=b",
        "https://example.com?",
        "https://example.com#a",
        "https://example.com#",
        " https://example.com",
        "https://example.com\n",
        "https://exa\tmple.com",
        "https://example.com\\@other.example",
        "https://example.com:99999",
        "https://example.com:port",
        "https://[::1",
        "https://[::zz]",
        "https://[fe80::1%25eth0]",
        "https://a..b",
        "https://" + "a" * 64,
        "https://ex%61mple.com",
        "https://<example>.com",
        "https://a,b",
        "https://example.com/a/../b",
        "https://example.com/%2E%2e/b",
        "https://example.com/\ud800",
        "https://\udfff.example",
        5,
        b"https://example.com",
    ],
)
def test_bad_addresses_are_refused(url: Any) -> None:
    """Bad addresses are refused under the name of their source, without being shown."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("metrics_base_url", {"metrics_base_url": url}),
        ("provider.metrics_base_url", {"provider": Provider(metrics_base_url=url)}),
        ("CHAINAPI_METRICS_BASE_URL", {"environment": {"CHAINAPI_METRICS_BASE_URL": url}}),
        ("data_base_url", {"data_base_url": url, "api_key": KEY}),
    ]
    for source, arguments in cases:
        with pytest.raises(ConfigurationError, match=f"^{source} ") as caught:
            resolved(**arguments)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "paths",
    [
        {ROUTE: "/v2/{chainId}"},
        (ROUTE, "/v2/{chainId}"),
        ((ROUTE, 5),),
        ((ROUTE, "/v2/x", "/v3/x"),),
        ((ROUTE, ".evil.example/{chainId}"),),
        ((ROUTE, "/v2/../{chainId}"),),
        ((ROUTE, "/v2/{chainId}?x=1"),),
        ((ROUTE, "/v2/{chain_id}"),),
        ((ROUTE, "/v2/x"),),
        ((ROUTE, "/v2/{chainId}/{}"),),
        ((ROUTE, "/v2/{chainId}/{chainId!r}"),),
    ],
)
def test_bad_paths_of_a_provider_are_refused(paths: Any) -> None:
    """Paths of a provider that lead elsewhere, or lack a parameter, are refused before a request."""
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


def test_the_origin_is_scheme_host_and_port() -> None:
    """The key goes to the origin; the path prefix is no part of it."""
    assert data_endpoint(data_base_url="https://example.com:8443/prefix").origin == "https://example.com:8443"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080",
        "http://127.8.9.1",
        "http://localhost:1",
        "http://LOCALHOST",
        "http://data.localhost",
        "http://[::1]:5",
        "https://example.com",
    ],
)
def test_the_key_goes_over_https_or_to_loopback(url: str) -> None:
    """An http:// address is taken where nobody can listen in."""
    assert data_endpoint(data_base_url=url).key is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://192.168.0.1",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://notlocalhost",
        "http://[2001:db8::1]",
        "http://0.0.0.0",
    ],
)
def test_the_key_does_not_go_over_plain_http(url: str) -> None:
    """An http:// address elsewhere is refused; without a key it is taken.

    That is so for the Metrics API.
    """
    with pytest.raises(ConfigurationError, match=r"data_base_url.*CHAINAPI_DATA_BASE_URL.*in the clear"):
        data_endpoint(data_base_url=url)
    assert base_url(url) == url


# The key.

BAD_KEYS = [
    "",
    " ",
    "never-shown\n",
    "never-shown\r\nx-other: 1",
    "never\x00shown",
    "never shown",
    "never-shöwn",
    "never-shown\ud800",
    "n" * (MAX_KEY_LENGTH + 1),
    "n" * 9_000,
    b"never-shown",
    5,
]


@pytest.mark.parametrize("api_key", BAD_KEYS, ids=range(len(BAD_KEYS)))
@pytest.mark.parametrize("source", ["api_key", "CHAINAPI_API_KEY"])
def test_bad_keys_are_refused_without_being_shown(api_key: Any, source: str) -> None:
    """A key that no header can carry is refused by name; the error does not show it."""
    arguments: dict[str, Any] = (
        {"api_key": api_key} if source == "api_key" else {"environment": {source: api_key}}
    )
    with pytest.raises(ConfigurationError, match=f"^{source} ") as caught:
        resolved(data_base_url="https://h", **arguments)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = f"{error!r} {error} {error.args} {vars(error)} {pickle.dumps(error)!r}"
    assert "never" not in shown
    assert "nnn" not in shown


def test_the_longest_key_is_taken() -> None:
    """A key of the greatest length is a key."""
    assert data_endpoint(api_key="n" * MAX_KEY_LENGTH).key is not None


SHOWN: list[Callable[[Any], object]] = [
    repr,
    str,
    ascii,
    lambda thing: f"{thing} {thing!r} {thing!s}",
    lambda thing: "%s %r" % (thing, thing),  # noqa: UP031 - the form is what is tried
    lambda thing: "{} {!r}".format(thing, thing),  # noqa: UP032 - the form is what is tried
    lambda thing: [thing, {"endpoint": thing}],
    lambda thing: getattr(thing, "__dict__", None),
    lambda thing: [name for name, _ in inspect.getmembers(thing)],
    lambda thing: attrs.asdict(thing) if attrs.has(type(thing)) else None,
    lambda thing: ConfigurationError(str(thing)),
]


@pytest.mark.parametrize("show", SHOWN, ids=range(len(SHOWN)))
def test_the_key_is_in_no_text(show: Callable[[Any], object]) -> None:
    """A key is in no printed form of an endpoint or of the key."""
    endpoint = data_endpoint()
    for thing in (endpoint, endpoint.key):
        shown = repr(show(thing)) + str(show(thing))
        assert "k3y" not in shown
        assert "never-shown" not in shown


def test_the_key_is_handed_out_on_request_only() -> None:
    """`reveal` is the one way to the key."""
    key = data_endpoint().key
    assert key is not None
    assert key.reveal() == KEY
    assert repr(key) == str(key) == "Secret('***')"
    with pytest.raises(TypeError, match="vars"):
        vars(key)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_key_is_not_pickled_or_copied(duplicate: Callable[[object], object]) -> None:
    """A key is not pickled, and not copied with its owner."""
    endpoint = data_endpoint()
    with pytest.raises(TypeError, match="a secret is not pickled or copied"):
        duplicate(Secret(KEY))
    if duplicate is not copy.copy:
        with pytest.raises(TypeError, match="a secret is not pickled or copied"):
            duplicate(endpoint)


@pytest.mark.parametrize("name", ["", "x key", "x-key:", "x-key\r\n", "schlüssel", None, 5])
def test_bad_header_names_are_refused(name: Any) -> None:
    """A provider's key header has to be the name of a header."""
    with pytest.raises(ConfigurationError, match="api_key_header"):
        resolved(Provider(api_key_header=name))


@pytest.mark.parametrize("provider", [5, {}, Provider])
def test_a_provider_has_to_be_one(provider: Any) -> None:
    """Anything else than a Provider or a name is refused by its type."""
    with pytest.raises(ConfigurationError, match="provider must be a Provider"):
        resolved(provider)


# Deployments by name.


def test_the_public_services_need_no_address_and_no_key() -> None:
    """The preset has the addresses and the header, and its Data API answers without a key."""
    paths = Provider.PUBLIC.paths
    metrics = ServiceConfig("metrics", "https://metrics.avax.network", paths=paths)
    for provider in (Provider.PUBLIC, "public"):
        assert resolved(provider) == (
            metrics,
            ServiceConfig("data", "https://data-api.avax.network", paths=paths),
        )
        keyed = data_endpoint(provider=provider, data_base_url=None)
        assert (keyed.key_header, keyed.base_url) == ("x-glacier-api-key", "https://data-api.avax.network")
        assert keyed.key is not None
        assert keyed.key.reveal() == KEY


def test_a_deployment_without_keys_is_one_value() -> None:
    """The Data API of a provider that requires no key may have any address, even without encryption."""
    provider = Provider(data_base_url="http://data.example", api_key_required=False)
    assert resolved(provider)[1] == ServiceConfig("data", "http://data.example")
    with pytest.raises(ConfigurationError, match="in the clear"):
        resolved(provider, api_key=KEY)


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


def test_the_header_of_the_key_may_be_named_alone() -> None:
    """An argument or a variable replaces the header of a deployment, an argument that of a provider too."""
    variable = {"CHAINAPI_API_KEY_HEADER": "X-Variable"}
    provider = Provider(api_key_header="X-Provider")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("x-data-api-key", {}),
        ("x-variable", {"environment": variable}),
        ("x-variable", {"environment": {**variable, "CHAINAPI_PROVIDER": "public"}}),
        ("x-provider", {"environment": variable, "provider": provider}),
        ("x-argument", {"environment": variable, "provider": provider, "api_key_header": "X-Argument"}),
    ]
    for header, arguments in cases:
        assert data_endpoint(**arguments).key_header == header


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"provider": "pubic"},
            "provider='pubic' is no known deployment: the names are specification, public",
        ),
        (
            {"environment": {"CHAINAPI_PROVIDER": "x"}},
            "CHAINAPI_PROVIDER='x' is no known deployment: the names",
        ),
        ({"api_key_header": "x y"}, "api_key_header is no valid header name"),
        ({"environment": {"CHAINAPI_API_KEY_HEADER": ""}}, "CHAINAPI_API_KEY_HEADER is no valid header name"),
    ],
)
def test_wrong_names_are_refused_in_terms_of_their_source(arguments: dict[str, Any], message: str) -> None:
    """An unknown deployment, and an impossible header, are named as they were given."""
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        resolved(**arguments)


# Unknown arguments.


def test_unknown_arguments_are_refused_with_a_hint() -> None:
    """The error names the argument that was probably meant, else all arguments."""
    with pytest.raises(
        ConfigurationError, match=r"Session got an unknown argument 'api_kye'; did you mean 'api_k"
    ):
        refuse_unknown(["api_kye"], ["timeout", "api_key"], "Session")
    with pytest.raises(ConfigurationError, match=r"unknown argument 'zzz'; it takes api_key, timeout$"):
        refuse_unknown(["zzz"], ["timeout", "api_key"], "Session")
    refuse_unknown([], ["timeout"], "Session")


def test_configuration_errors_are_caught_both_ways() -> None:
    """A ConfigurationError is one of chainapi's errors and a ValueError."""
    assert issubclass(ConfigurationError, ChainAPIError)
    assert issubclass(ConfigurationError, ValueError)
