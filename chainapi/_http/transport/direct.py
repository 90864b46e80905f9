"""DirectSender: sends requests over the connections of aiohttp's client.

`ClientSession.request` looks for cookies, redirects, proxies, credentials, middlewares and traces, and makes
a dozen objects: a third of the CPU of a page of 10 rows. A client that the transport made has none of them.
Its pool of connections and the parser of aiohttp are enough.

aiohttp does not publish them. So only the releases in `TESTED` are used like this; another one, or one that
lacks something that is used here, sends through its client, with one warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from msgspec import Struct
from yarl import URL

from chainapi._http.message import Request, Response
from chainapi._http.transport.connector import NO_TIMEOUT
from chainapi._http.transport.responses import Responses
from chainapi.core.private import Private

__all__ = ["DirectSender"]

TESTED = ("3.14.",)  # releases of aiohttp whose connections `nox -s aiohttp` uses

# Tools that record, fake or trace the requests of a program replace this method: then it has to be called.
_REQUEST = vars(aiohttp.ClientSession)["_request"]


class Origin(Struct):
    """Scheme, host and port of URLs.

    Attributes:
        request: a request to it, by which the connector finds connections.
        defaults: headers of each request to it, unless the request has others.
        names: names of the headers of the last request.
        template: its header lines with a place for each of its values, which may be secrets; None if only
            the client can send them.

    """

    request: aiohttp.ClientRequest
    defaults: dict[str, str]
    names: tuple[str, ...] = ()
    template: str | None = None

    def header_lines(self, headers: Mapping[str, str]) -> str | None:
        """Return the header lines of a request; None if only the client can send them.

        Nearly all requests have headers of the same names as the last one.
        """
        names, values = tuple(headers), tuple(headers.values())
        if names != self.names:
            self.names, self.template = names, _template(names, self.defaults)
        return None if self.template is None or not _is_plain("".join(values)) else self.template % values


class Message(Private, Struct, frozen=True):
    """Head of a request, and the origin that it is sent to."""

    origin: Origin
    head: bytes


class DirectSender:
    """Sends plain GET requests over the connections of a client.

    Args:
        client: a client without cookies, proxies, credentials and middlewares.
        responses: makes the responses.

    """

    def __init__(self, client: aiohttp.ClientSession, responses: Responses) -> None:
        connector = client.connector
        assert connector is not None  # noqa: S101 - the client is open
        self._client = client
        self._connector = connector
        self._responses = responses
        self._origins: dict[str, Origin] = {}
        self._usable = not client.trace_configs  # a client with traces has to see its requests
        if not aiohttp.__version__.startswith(TESTED):
            self._give_up("chainapi was not tested with this release")

    def _give_up(self, reason: str) -> None:
        """Send through the client from now on."""
        self._usable = False
        warnings.warn(
            f"aiohttp {aiohttp.__version__}: requests cost more CPU, because {reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    def message(self, request: Request) -> Message | None:
        """Return the message of a request; None for one that needs the client.

        The client sends what is no plain GET. All of a message is printable ASCII, so that no value ends a
        line.
        """
        if not self._usable or vars(aiohttp.ClientSession)["_request"] is not _REQUEST:
            return None
        url = request.url
        if request.method != "GET" or request.body is not None or not _is_plain(url):
            return None
        end = url.find("/", 8)
        if end < 0 or "#" in url:
            return None
        text = url[:end]
        origin = self._origins.get(text) or self._add_origin(text)
        if origin is None or (lines := origin.header_lines(request.headers)) is None:
            return None
        return Message(origin, f"GET {url[end:]} HTTP/1.1\r\n{lines}\r\n".encode())

    def _add_origin(self, text: str) -> Origin | None:
        """Return the origin of URLs that begin with a text.

        None if only the client can send them.
        """
        if not text.startswith(("http://", "https://")) or "@" in text:
            return None
        try:
            request = aiohttp.ClientRequest("GET", URL(text, encoded=True), session=self._client)
        except (AttributeError, TypeError) as error:
            self._give_up(f"its requests changed ({error})")
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        origin = self._origins[text] = Origin(request, headers)
        return origin

    async def warm(self, url: str) -> None:
        """Open a connection to the origin of a URL, which the next request uses."""
        text = url[: url.find("/", 8)]
        origin = self._origins.get(text) or self._add_origin(text) if self._usable else None
        if origin is not None:
            (await self._connector.connect(origin.request, [], NO_TIMEOUT)).release()

    async def send(self, message: Message) -> Response | None:
        """Send a message once, and return the response.

        None if only the client can send it.

        Raises:
            ClientError: and other errors of aiohttp and of sockets, as `ClientSession.request` raises them.
            HttpProcessingError: the response is not valid HTTP.

        """
        connection: Connection | None = None
        try:
            connection = await self._connector.connect(message.origin.request, [], NO_TIMEOUT)
            protocol = _written(connection, message)
            head, content = await protocol.read()
            while 100 <= head.code < 200 and head.code != 101:  # informational: the response follows
                head, content = await protocol.read()
            response = await self._responses.read(head.code, head.headers, content, connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if not isinstance(error, AttributeError | TypeError):
                raise
            self._give_up(f"its connections changed ({error})")
            return None
        connection.release()
        return response


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _template(names: Sequence[str], defaults: Mapping[str, str]) -> str | None:
    """Return the lines of headers with these names, a place for each value.

    The lines of default headers are whole. The result is None for names that only the client can send.
    """
    joined = "".join(names)
    if not joined.islower() or not _is_plain(joined):
        return None
    others = "".join([f"{name}: {value}\r\n" for name, value in defaults.items() if name not in names])
    return others.replace("%", "%%") + "".join([f"{name.replace('%', '%%')}: %s\r\n" for name in names])


def _written(connection: Connection, message: Message) -> ResponseHandler:
    """Write a message to a connection; return the protocol that reads the response."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None:
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(read_until_eof=True)
    transport.write(message.head)
    return protocol
