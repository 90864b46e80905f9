"""ListSource: one list query of a session, from requests to decoded pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from chainapi.api.endpoint import Endpoint
from chainapi.api.options import Options
from chainapi.api.routes import Route
from chainapi.client.connection import Connection
from chainapi.client.service import Service
from chainapi.core.call import Call, SentAt
from chainapi.core.limits.limit import Limit
from chainapi.core.paging.walk import Fetch, ListQuery
from chainapi.core.url import Query
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.codec import DecodedPage, PageDecoder

if TYPE_CHECKING:
    from chainapi.core.limits.estimate import Estimate

__all__ = ["ListSource"]


class ListSource:
    """One list query (see `chainapi.client.source.Source`).

    Args:
        connection: sends the requests.
        service: the service of the list.
        route: the route, with its model where that is loaded.
        query: path and parameters.
        options: options of the walk.
        endpoint: the declared endpoint; None for a route that the caller names.

    """

    def __init__(
        self,
        connection: Connection,
        service: Service,
        route: Route,
        query: Query,
        options: Options,
        endpoint: Endpoint | None,
    ) -> None:
        self.emit = connection.emit
        self.clock = connection.clock
        self.now = connection.now
        self.prefetch = options.prefetch
        self.extra = tuple(name for name, _ in route.extra)
        self._connection = connection
        self._service = service
        self._route = route
        self._query = query
        self._options = options
        self._endpoint = endpoint
        self._decoder: Callable[[bytes], DecodedPage] | None = None
        if endpoint is None or endpoint.loaded:
            self._decoder = self._make_decoder()

    @property
    def model(self) -> Any:
        """Class of the rows; None where they are plain JSON values."""
        return self._route.model if self._endpoint is None else self._endpoint.rows

    @property
    def facts(self) -> ListQuery:
        """Facts about the query for its walk."""
        until = self._route.until
        return ListQuery(
            self._service.name,
            self._query.where,
            bounded=until is not None and self._route.descending_key is not None,
            end=_whole_parameter(self._query.params, until),
        )

    def fetch(
        self, fetch: Fetch, needed: Callable[[], bool] | None = None
    ) -> Awaitable[tuple[DecodedPage, SentAt]]:
        """Return a page, and when its request was sent; to be awaited at once.

        `needed` is called before each attempt: whether somebody still waits for the page.
        """
        query, options, bound = self._query, self._options, fetch.bound
        call = Call(
            query if bound is None else query.bounded(self._route.until, bound),
            None if fetch.token is None else fetch.token.value,
            fetch.not_after,
            options.priority,
            needed,
            options.deadline,
            options.tag,
        )
        if self._decoder is None:
            return self._load_and_call(call)
        return self._connection.call(self._service, call, self._decoder)

    def estimate(self, rows: int, limits: Sequence[Limit] | None, page_size: int | None) -> Estimate:
        """Return what fetching `rows` rows takes.

        Raises:
            ConfigurationError: a number is not above 0, or the page size is not known.

        """
        from chainapi.core.limits.estimate import estimate

        query, service = self._query, self._service
        size = _whole_parameter(query.params, "pageSize") if page_size is None else page_size
        if size is None:
            raise ConfigurationError(f"page_size is not known for {query.where}: pass page_size=")
        limits = service.member.limits if limits is None else tuple(limits)
        return estimate(rows, size, service.price(query), limits)

    async def _load_and_call(self, call: Call) -> tuple[DecodedPage, SentAt]:
        """Load the records of the route, off the event loop, then send a request."""
        began = self._connection.clock()
        if self._endpoint is not None:
            await self._endpoint.load()
        if self._decoder is None:
            self._decoder = self._make_decoder()
        return await self._connection.call(self._service, call, self._decoder, began)

    def _make_decoder(self) -> Callable[[bytes], DecodedPage]:
        shown = self._shown if self._options.on_invalid == "raw" else None
        if self._endpoint is None:
            return PageDecoder(self._route.model, self._route.items, shown=shown)
        return self._endpoint.decoder(shown=shown)

    def _shown(self, fault: DecodeError) -> DecodeError:
        """Return the error of an invalid row as it may be shown."""
        return self._service.shown_fault(fault).changed(where=self._query.where)


def _whole_parameter(params: Sequence[tuple[str, str]], name: str | None) -> int | None:
    """Return a query parameter as a whole number, or None."""
    return next((int(value) for key, value in params if key == name and value.isdecimal()), None)
