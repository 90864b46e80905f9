"""Faults of aiohttp as errors of chainapi, without headers and bytes of responses."""

from __future__ import annotations

import os
import re
import ssl

import aiohttp
from aiohttp.http import HttpProcessingError

from chainapi.errors import APIConnectionError, APITimeoutError, CertificateError, ConnectError

__all__ = ["TransportFault", "fault_of", "reason"]


# The message of aiohttp for an encoding whose package is not installed, so that no request accepts it.
_UNASKED = re.compile(r"content-encoding: \w+ \((\w+)\)\. Please install")


class TransportFault(Exception):  # noqa: N818 - never leaves the transport
    """Wrapper of an error on its way through aiohttp.

    aiohttp repeats a request after errors of its own.
    """

    def __init__(self, fault: APIConnectionError) -> None:
        super().__init__()
        self.fault = fault


def fault_of(error: Exception, url: str = "") -> APIConnectionError:
    """Return the error of chainapi for an error of aiohttp, or of its connection.

    A request to the `url` went through no proxy.
    """
    if isinstance(error, TimeoutError):
        return APITimeoutError("no answer in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateError(_distrust(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return ConnectError(reason(error) + _unused_proxy(url))
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ConnectError(f"the proxy refused the connection: {error.status} {error.message}")
    return APIConnectionError(reason(error))


def reason(error: Exception) -> str:
    """Return the cause of an error of aiohttp."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if packed := _UNASKED.search(str(error)):
        return (
            f"the answer is packed as {packed[1]}, which the request did not accept: check the server,"
            " and any proxy before it"
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut short or could not be unpacked"
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return f"the answer is not valid HTTP ({type(error).__name__})"
    if isinstance(error, OSError) and error.strerror:
        return f"the connection broke: {error.strerror}"
    return f"the connection broke ({type(error).__name__})"


def _unused_proxy(url: str) -> str:
    """Return advice if a variable names a proxy for a URL."""
    name = f"{url.partition(':')[0].upper()}_PROXY"
    if not url or not (os.environ.get(name) or os.environ.get(name.lower())):
        return ""
    return f"; {name} is set, but not read: give proxy= to AiohttpTransport"


def _distrust(error: aiohttp.ClientConnectorCertificateError) -> str:
    """Return why a certificate is not trusted, and what to do about it."""
    certificate = error.certificate_error
    why, code = str(certificate), None
    if isinstance(certificate, ssl.SSLCertVerificationError):
        why, code = certificate.verify_message, certificate.verify_code
    place = f"{error.host}:{error.port}"
    return f"cannot connect to {place}: its certificate is not trusted ({why}): {_advice(code)}"


def _advice(code: int | None) -> str:
    """Return advice about a certificate, by the verification error code of OpenSSL."""
    if code in (9, 10):  # not valid yet, not valid any more
        return "check this machine's clock; otherwise the operator of the server must renew it"
    if code in (62, 64):  # for another name, for another address
        return "check the base address, and whether a proxy of the network intercepts the connection"
    return (
        "a proxy of the network may intercept the connection; if an authority of your own signed the"
        " certificate, set the variable SSL_CERT_FILE, or give ssl_context= to AiohttpTransport"
    )
