"""Configuration: base addresses, API key and certificates, checked.

They are taken from arguments, else from the environment.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, NoReturn
from urllib.parse import quote, urlsplit

from attrs import frozen
from msgspec import Struct

from chainapi._http.message import is_header_name
from chainapi._text import closest, name_text, quoted
from chainapi.core.arguments import boolean, one_of, seconds_of
from chainapi.core.duration import DAY
from chainapi.errors import ConfigurationError

__all__ = ["LimiterOptions", "Provider", "Secret", "ServiceConfig", "Unconfigured", "resolve", "trusted"]

_NAME = re.compile(r"{(\w+)}")  # of a parameter in a path
LIKE = 0.8  # similarity, from 0 to 1, of the name of a variable that was meant
MAX_KEY_LENGTH = 4_096  # characters; no service issues longer keys, and servers refuse longer headers


@frozen
class Provider:
    """Deployment of the two services: base addresses, and the header of the API key.

    ``Provider()`` is the specification's: its header (section 5), and addresses that you give. ``PUBLIC`` is
    the public deployment. Any other is one value:
    ``Provider("https://metrics.example.com", "https://data.example.com", "x-api-key")``.

    Attributes:
        metrics_base_url: address of the Metrics API.
        data_base_url: address of the Data API.
        api_key_header: name of the header that has the key of the Data API.
        api_key_required: whether the Data API refuses requests without a key.
        paths: routes that the deployment has at another path: pairs of the path of the route, with its
            parameters in braces, and the path there, with the same names in braces.
        page_token_lifetime: age at which a page token is no longer sent (specification, section 8).

    """

    PUBLIC: ClassVar[Provider]
    NAMES: ClassVar[Mapping[str, Provider]]

    metrics_base_url: str | None = None
    data_base_url: str | None = None
    api_key_header: str = "x-data-api-key"
    api_key_required: bool = True
    paths: tuple[tuple[str, str], ...] = ()
    page_token_lifetime: timedelta = timedelta(hours=24)


Provider.PUBLIC = Provider(
    metrics_base_url="https://metrics.avax.network",
    data_base_url="https://data-api.avax.network",
    api_key_header="x-glacier-api-key",
    api_key_required=False,
    paths=(("/v1/avg_tps/{chainId}", "/v2/chains/{chainId}/metrics/avgTps"),),
)
Provider.NAMES = MappingProxyType({"specification": Provider(), "public": Provider.PUBLIC})


@frozen(kw_only=True)
class LimiterOptions:
    """Seldom-used options of the rate limiter of a session.

    Attributes:
        probe: whether one request may be sent early, to learn when an exhausted quota is available again.
        max_stop: seconds after which one request is sent although a 429 or a 5xx set a longer wait; a day
            by default, None waits as long as the service requires.
        isolated: whether the session has limiters of its own. By default it shares them with all sessions of
            its event loop that have the same origin and key, over the network or the same `transport`.
        on_unavailable: of a quota that processes share: "degrade" sends by this process's last part of the
            quota while the others cannot be reached, "fail" raises ShareUnavailableError.

    Raises:
        ConfigurationError: an option is invalid.

    """

    probe: bool = True
    max_stop: float | None = DAY
    isolated: bool = False
    on_unavailable: Literal["degrade", "fail"] = "degrade"

    def __attrs_post_init__(self) -> None:
        boolean("probe", self.probe)
        boolean("isolated", self.isolated)
        one_of("on_unavailable", self.on_unavailable, ("degrade", "fail"))
        if self.max_stop is not None:
            seconds_of("max_stop", self.max_stop)


class Secret:
    """Text that no repr, log or pickle shows.

    `reveal` returns it to the code that sends it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


class ServiceConfig(Struct, frozen=True):
    """Address and key of one service.

    The address has no trailing slash; a service that takes no key has none here. Its `Provider` sets
    `paths` and `page_token_lifetime`, in seconds.
    """

    name: str
    base_url: str
    key_header: str | None = None
    key: Secret | None = None
    paths: tuple[tuple[str, str], ...] = ()
    page_token_lifetime: float = DAY

    @property
    def origin(self) -> str:
        """Scheme, host and port; the key is sent nowhere else."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def path(self, route: str) -> str:
        """Return the path of a route in this deployment, with its parameters in braces."""
        return dict(self.paths).get(route, route)


class Unconfigured(Struct, frozen=True, eq=False):
    """Service without an address or a key, its `argument`.

    `variables` has the names of the variables that begin with CHAINAPI_.
    """

    argument: str
    variables: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Message of the error, with a variable whose name is like the missing one."""
        variable = _variable(self.argument)
        reason = (
            f"{_SETTINGS[self.argument]} is not set: give {self.argument}= or set the variable {variable}"
        )
        known = [*map(_variable, (*_SETTINGS, *_OTHERS))]
        for name in self.variables:
            if name not in known and closest(name, known, cutoff=LIKE) == variable:
                return f"{reason}; {name} is set: did you mean {variable}?"
        if self.argument == "api_key":
            return reason
        return f"{reason}; {_variable('provider')}=public has the addresses of the public services"


def resolve(
    provider: Provider | str | None,
    *,
    metrics_base_url: str | None,
    data_base_url: str | None,
    api_key: str | None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[ServiceConfig | Unconfigured, ServiceConfig | Unconfigured]:
    """Return the configuration of the Metrics API and of the Data API.

    An argument takes precedence over `provider`, that over the variables of single settings, and these over
    the variable CHAINAPI_PROVIDER. A service without an address, or without a key that it requires, is
    `Unconfigured`: a session may use only the other.

    Raises:
        ConfigurationError: a setting is given but cannot be used; the key is not shown.

    """
    sources = _Sources(*_provider(provider, environment), environment)
    metrics_url = sources.base_url("metrics_base_url", metrics_base_url)
    data_url = sources.base_url("data_base_url", data_base_url)
    key = _api_key(api_key, environment)
    header, paths = sources.header(), _checked_paths(sources.provider.paths)
    lifetime = _lifetime(sources.provider.page_token_lifetime)
    variables = tuple(name for name in environment if name.startswith("CHAINAPI_"))
    metrics: ServiceConfig | Unconfigured = Unconfigured("metrics_base_url", variables)
    if metrics_url is not None:
        metrics = ServiceConfig("metrics", metrics_url, None, None, paths, lifetime)
    if data_url is None:
        return metrics, Unconfigured("data_base_url", variables)
    if key is not None:
        _refuse_plain_http(data_url)
    elif sources.provider.api_key_required:
        return metrics, Unconfigured("api_key", variables)
    return metrics, ServiceConfig("data", data_url, None if key is None else header, key, paths, lifetime)


def plans(given: object, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the name of the published plan of each service that has one.

    The argument is one name for both, or maps services to names; None is the variable CHAINAPI_PLAN.

    Raises:
        ConfigurationError: a plan of that name is not published.

    """
    shown = "plan"
    if given is None:
        shown, given = _variable("plan"), environment.get(_variable("plan"), "").strip()
        if not given:
            return {}
    from chainapi._limits.view import PLANS  # most sessions name no plan

    named = given if isinstance(given, Mapping) else {"metrics": given, "data": given}
    if named.keys() <= {"metrics", "data"} and all(name in [*PLANS] for name in named.values()):
        return dict(named)
    raise ConfigurationError(
        f"{shown}={quoted(given)} is no published plan, nor maps 'metrics' or 'data' to one: the names are"
        f" {', '.join(PLANS)}"
    )


def _provider(given: object, environment: Mapping[str, str]) -> tuple[Provider, bool]:
    """Return the provider, and whether it is an argument."""
    if isinstance(given, Provider):
        return given, True
    name, shown = given, "provider"
    if given is None:
        name, shown = environment.get(_variable("provider"), "").strip(), _variable("provider")
        if not name:
            return Provider(), False
    if isinstance(name, str) and name in Provider.NAMES:
        return Provider.NAMES[name], given is not None
    if not isinstance(name, str):
        raise ConfigurationError(f"provider must be a Provider or the name of one, not {type(name).__name__}")
    names = ", ".join(Provider.NAMES)
    raise ConfigurationError(f"{shown}={name_text(name)} is no known deployment: the names are {names}")


def _checked_paths(paths: object) -> tuple[tuple[str, str], ...]:
    """Return the paths of a provider, checked: the key belongs to its addresses alone."""
    from chainapi._http.query import checked_path  # the import of a session loads no module of requests

    if not isinstance(paths, tuple) or not all(map(_is_pair, paths)):
        raise ConfigurationError(
            f"provider.paths={quoted(paths)} must be a tuple of pairs: path of a route, path there"
        )
    for route, path in paths:
        try:
            checked_path(path)
        except ConfigurationError as error:
            raise ConfigurationError(f"provider.paths is wrong: {error}") from None
        names = set(_NAME.findall(route))
        if set(_NAME.findall(path)) != names or re.search("[{}]", _NAME.sub("", path)):
            raise ConfigurationError(
                f"provider.paths has {quoted(path)} for {quoted(route)}: give it the same names in braces"
            )
    return paths


def _lifetime(value: object) -> float:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigurationError(f"provider.page_token_lifetime={quoted(value)} must be a timedelta above 0")
    return value.total_seconds()


def _is_pair(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(one, str) for one in pair)


class _Sources(Struct, frozen=True):
    """Sources of a setting: argument, provider, variable."""

    provider: Provider
    explicit: bool  # an argument, which takes precedence over variables
    environment: Mapping[str, str]

    def base_url(self, argument: str, given: str | None) -> str | None:
        """Return an address, checked; None without any."""
        name, url = self._first(argument, given)
        return None if url is None else _checked_url(name, url)

    def header(self) -> str:
        """Return the name of the header of the key, checked."""
        return _header_name(*self._first("api_key_header", None))

    def _first(self, argument: str, given: str | None) -> tuple[str, str | None]:
        """Return the setting that takes precedence: its name for an error, and its value."""
        variable = _variable(argument)
        provided = f"provider.{argument}", getattr(self.provider, argument)
        found = variable, self.environment.get(variable)
        sources = [(argument, given), *((provided, found) if self.explicit else (found, provided))]
        return next((source for source in sources if source[1] is not None), provided)


def trusted(
    given: ssl.SSLContext | None, environment: Mapping[str, str] = os.environ
) -> ssl.SSLContext | None:
    """Return the context of connections; None for the system's.

    Without `given` it trusts the authorities in the file SSL_CERT_FILE and the folder SSL_CERT_DIR, as
    OpenSSL does.

    Raises:
        ConfigurationError: `given` does not check certificates, or a variable names a path without any.

    """
    if given is not None:
        return _checked_context(given)
    file, folders = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    if folders and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise _without_certificates("SSL_CERT_DIR", folders, "there is no such folder")
    if not file:
        return ssl.create_default_context() if folders else None
    try:
        now = Path(file).stat()
        folders = folders or ssl.get_default_verify_paths().capath
        return _context_of(file, folders, (now.st_mtime_ns, now.st_size))
    except ssl.SSLError:
        raise _without_certificates("SSL_CERT_FILE", file, "no certificate in PEM format") from None
    except OSError as error:
        raise _without_certificates("SSL_CERT_FILE", file, str(error.strerror)) from None


@lru_cache(maxsize=4)
def _context_of(file: str, folders: str | None, changed: tuple[int, int]) -> ssl.SSLContext:
    """Return the context of a file of a time and size: it takes some 35 ms to read."""
    # Without cafile it would read the same file, and ignore a fault.
    return ssl.create_default_context(cafile=file, capath=folders)


def _checked_context(context: object) -> ssl.SSLContext:
    if not isinstance(context, ssl.SSLContext):
        raise ConfigurationError(f"ssl_context must be an ssl.SSLContext, not {type(context).__name__}")
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "ssl_context must check certificates and host names, or anybody on the way could take the API"
            " key: ssl.create_default_context(cafile=...) does, and trusts an authority of yours"
        )
    return context


def _without_certificates(name: str, place: str, fault: str) -> ConfigurationError:
    return ConfigurationError(f"{name} names no certificates: {place}: {fault}")


_SETTINGS = {
    "metrics_base_url": "the address of the Metrics API",
    "data_base_url": "the address of the Data API",
    "api_key": "the key of the Data API",
}


_OTHERS = ("api_key_header", "provider", "plan", "share", "share_dir")  # settings with a variable, too


def _variable(argument: str) -> str:
    return f"CHAINAPI_{argument.upper()}"


def _checked_url(name: str, url: str) -> str:
    """Return the address with an ASCII host and without a trailing slash.

    Its path prefix is kept.
    """
    if not _is_text(url):
        raise ConfigurationError(f"{name} must be a str, not {type(url).__name__}")
    if not url.strip():
        raise ConfigurationError(f"{name} is empty: expected an address such as https://example.com")
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise ConfigurationError(f"{name} has white space, a control character or a backslash in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if ":" in host:
            host = str(ipaddress.IPv6Address(host))
        else:
            # Twice: the first time may make dots of other characters, and so empty labels.
            host = host.encode("idna").decode().encode("idna").decode()
        path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._").rstrip("/")
    except ValueError:
        raise ConfigurationError(f"{name} is no valid address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(f"{name} must begin with https:// (or http://) and name a host")
    if "@" in parts.netloc or parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ConfigurationError(f"{name} must have no user, no query and no fragment")
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise ConfigurationError(f"{name} names a host with a character that no host has")
    if {".", ".."} & set(path.lower().replace("%2e", ".").split("/")):
        raise ConfigurationError(f"{name} has a dotted segment in its path")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def _api_key(given: str | None, environment: Mapping[str, str]) -> Secret | None:
    name, key = (
        ("api_key", given)
        if given is not None
        else (_variable("api_key"), environment.get("CHAINAPI_API_KEY"))
    )
    if key is None:
        return None
    if not _is_text(key):
        raise ConfigurationError(f"{name} must be a str, not {type(key).__name__}")
    if not key:
        raise ConfigurationError(f"{name} is empty: give the key, or leave it out")
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise ConfigurationError(
            f"{name} has a character that no HTTP header may carry, such as a line end, a space or a"
            " non-ASCII letter; was it read from a file with its line end?"
        )
    if len(key) > MAX_KEY_LENGTH:
        raise ConfigurationError(f"{name} is longer than {MAX_KEY_LENGTH} characters")
    return Secret(key)


def _header_name(name: str, header: str | None) -> str:
    if not is_header_name(header):
        raise ConfigurationError(f"{name} is no valid header name, such as x-data-api-key")
    return header.lower()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _refuse_plain_http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(
            "data_base_url (or CHAINAPI_DATA_BASE_URL) is http://, which would send the API key in the clear:"
            " use https:// (http:// is accepted for loopback addresses only)"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
