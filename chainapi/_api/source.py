"""ListSource: one list query of a session, from requests to decoded pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from chainapi._api.endpoint import Endpoint
from chainapi._api.identity import Numbered, cursor_of, descending_number, given_by, number_reader
from chainapi._api.options import Options
from chainapi._api.ranges import ListRanges, Part, can_be_split
from chainapi._api.routes import Route
from chainapi._http.call import GivenUp
from chainapi._http.connection import Connection
from chainapi._http.emitter import Emitter
from chainapi._http.options import Attempt, Call, CallOptions
from chainapi._http.query import Query
from chainapi._http.service import Service
from chainapi._paging.checkpoint import Checkpoint, query_fingerprint
from chainapi._paging.cursor import Cursor
from chainapi._paging.ranges import Interval
from chainapi._paging.walk import Answer, Fetch, Fetched, ListQuery, Walk
from chainapi.errors import (
    ChainAPIError,
    CheckpointError,
    ConfigurationError,
    DecodeError,
    PageTokenExpiredError,
    PagingError,
)
from chainapi.models.codec import DecodedPage, OnInvalid, PageDecoder

if TYPE_CHECKING:
    from chainapi._limits.view import Estimate, Limit

__all__ = ["ListSource", "open_list"]

_WHOLE = Interval()
LOWEST = -1_000_000  # priority of requests that take no quota that others wait for


def open_list(
    connection: Connection,
    service: Service,
    route: Route,
    query: Query,
    options: Options,
    call_options: CallOptions,
    endpoint: Endpoint | None,
) -> tuple[Walk, ListSource]:
    """Return the walk of a list query, and the source of its pages.

    Raises:
        CheckpointError: the checkpoint to resume from belongs to another query.

    """
    start = _start(options.resume, beginning_of(service.endpoint.base_url, query))
    if (token := options.page_token) is not None:  # as if the service had just returned it
        start = replace(start, token=token, minted_at=service.member.now())
    source = ListSource(connection, service, route, query, options, call_options, endpoint, start.range)
    known = replace(start, watermark=None, rows=0) if start.following else start
    given = given_by(route, known, None if endpoint is None else endpoint.identity)
    lifetime, on_expired = service.endpoint.page_token_lifetime, connection.on_expired
    return Walk(source.facts, given, start, lifetime, on_expired), source


def beginning_of(address: str, query: Query) -> Checkpoint:
    """Return the position before the first page of a list."""
    fingerprint = query_fingerprint(address, query.path, query.params, query.method, query.body)
    return Checkpoint(fingerprint, query.path if query.method == "GET" else query.where)


Decode: TypeAlias = Callable[[bytes], DecodedPage]


class ListSource:
    """One list query of one service, as the stream of its pages needs it.

    Args:
        connection: sends the requests.
        service: the service of the list.
        route: the route, with its model where that is loaded.
        query: path and parameters of the whole list.
        options: options of the walk.
        call_options: options of the calls for its pages.
        endpoint: the declared endpoint; None for a route that the caller names.
        within: the interval of a range; None for the whole list.

    Raises:
        CheckpointError: the list has no ranges.

    """

    def __init__(
        self,
        connection: Connection,
        service: Service,
        route: Route,
        query: Query,
        options: Options,
        call_options: CallOptions,
        endpoint: Endpoint | None,
        within: Interval | None = None,
    ) -> None:
        self.emit: Emitter = service.events.emit
        self.prefetch: int = options.prefetch
        self.on_invalid: OnInvalid = options.on_invalid
        self.extra: tuple[str, ...] = tuple(name for name, _ in route.extra)
        self._connection = connection
        self._service = service
        self._route = route
        self._whole = query
        self._within = within or _WHOLE
        self._part = None if within is None else Part(query, route.ranged, within)
        self._query = query if self._part is None else self._part.query
        self._options = options
        self._call_options = call_options
        self._endpoint = endpoint
        self._decoder: Decode | None = None
        if endpoint is None or endpoint.loaded:
            self._decoder = self._make_decoder()

    @property
    def model(self) -> Any:
        """Class of the rows; None if they are plain JSON values."""
        return self._route.model if self._endpoint is None else self._endpoint.rows

    @property
    def ranges(self) -> ListRanges | None:
        """Ranges of the list; None if it has none."""
        ranged, query, endpoint = self._route.ranged, self._whole, self._endpoint
        if ranged is None or endpoint is None or not self._route.since or not can_be_split(query):
            return None
        names = frozenset(parameter.wire for parameter in endpoint.parameters)
        return ListRanges(ranged, query, self._within, self._beginning, names, self._open)

    @cached_property
    def _beginning(self) -> Checkpoint:
        """Position before the first page of the whole list."""
        return beginning_of(self.address, self._whole)

    @property
    def address(self) -> str:
        """Base address of the service."""
        return self._service.endpoint.base_url

    @property
    def cursor(self) -> Cursor | None:
        """Cursor of the list (see `Pages.cursor`)."""
        return cursor_of(self._route)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the number that shows new rows (see `Pages.number_names`)."""
        descending = self._route.descending_key
        return self._route.numbers if descending is None else (descending,)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the query without its page size (see `Pages.fingerprint`)."""
        return beginning_of(self.address, self._query.unsized()).query

    @property
    def numbered(self) -> Numbered | None:
        """Number of the rows that a start bounds, or that grows; None without."""
        ranges, route, cursor = self.ranges, self._route, self.cursor
        if ranges is not None:
            names = ranges.ranged.number
            return Numbered(" or ".join(names), number_reader(names), names == (route.descending_key,))
        if route.descending_key is not None:
            return Numbered(route.descending_key, descending_number(route), True)
        return None if cursor is None else Numbered(" or ".join(route.numbers), cursor.number, False)

    @property
    def facts(self) -> ListQuery:
        """Facts about the query for its walk."""
        until = self._route.until
        return ListQuery(
            self._service.name,
            self._query.where,
            bounded=until is not None and self._route.descending_key is not None,
            end=None if until is None else self._query.whole(until),
            tag=self._service.tag(self._call_options),
        )

    @property
    def quota_wait(self) -> float:
        """Seconds of the wait for quota (see `Pages.quota_wait`)."""
        connection, service = self._connection, self._service
        announced = service.events.waits_until - connection.clock()
        return max(announced, connection.snapshot(service).stopped_for, 0.0)

    def poll(self, since: int | None) -> tuple[Walk, ListSource]:
        """Return a walk from the head of the list, at the lowest priority.

        A list with a start begins at the number `since`; its source then has ranges.
        """
        ranges, start = self.ranges, self._beginning
        first = None if ranges is None else ranges.ends.start
        if since is None or ranges is None or since <= max(0, first or 0):
            within = None if self._part is None else self._within
        else:
            within = Interval(since, self._within.end)
        options = replace(self._options, resume=replace(start, range=within), page_token=None, prefetch=0)
        calls = self._call_options
        priority = LOWEST if options.priority is None and not calls.priority else calls.priority
        calls = replace(calls, priority=priority, cache=None)
        args = self._connection, self._service, self._route, self._whole, options, calls, self._endpoint
        return open_list(*args)

    def times(self) -> tuple[float, float]:
        """Return the time of the running loop and Unix time, in seconds."""
        return self._connection.clock(), self._service.member.now()

    async def fetch(self, fetch: Fetch, needed: Callable[[], bool] | None = None) -> Answer:
        """Return the page, or the error in its place.

        `needed` is called before each attempt: whether somebody still waits for the page. The answer is None
        once nobody does.
        """
        began = self._connection.clock()
        try:
            if began >= fetch.not_after:
                raise PageTokenExpiredError("the page token has reached its lifetime")
            decode = self._decoder or await self._load()
            call, service = self._call(fetch, needed), self._service
            page, attempt = await self._connection.call(service, call, decode, began)
            if self._part is not None:
                page = self._own_rows(self._part, page, attempt)
        except ChainAPIError as error:
            return error.with_traceback(None)  # its frames refer to the reader, and that to the error
        except GivenUp:
            return None
        return Fetched(page, attempt.sent, service.received(attempt))

    def _own_rows(self, part: Part, page: DecodedPage, attempt: Attempt) -> DecodedPage:
        """Return a page without the rows of neighboring ranges.

        Raises:
            PagingError: as `Part.own_rows` raises, with the call and the request of the page.

        """
        try:
            return part.own_rows(page)
        except PagingError as error:
            self._service.identified(error, attempt.sent.call, attempt.outcome)
            raise

    def seconds_left(self, requests: float) -> float:
        """Return the least seconds until further requests have left, by the quota."""
        from chainapi._limits.view import seconds_left

        service = self._service
        return seconds_left(requests, service.price(self._query), self._connection.snapshot(service))

    def estimate(self, rows: int, limits: Sequence[Limit] | None, page_size: int | None) -> Estimate:
        """Return what fetching `rows` rows takes.

        Raises:
            ConfigurationError: an argument is invalid, the page size is not known, or a limit is below the
                cost of a request.

        """
        from chainapi._limits.view import estimate, limits_of

        query, service = self._query, self._service
        size = query.page_size if page_size is None else page_size
        if size is None:
            raise ConfigurationError(f"page_size is not known for {query.where}: pass page_size=")
        limits = service.member.limits if limits is None else limits_of("limits", limits)
        return estimate(rows, size, service.price(query), limits)

    def _open(self, query: Query, start: Checkpoint | None) -> tuple[Walk, ListSource]:
        """Return the walk and the source of a query with the options of this one."""
        connection, service, route = self._connection, self._service, self._route
        options = replace(self._options, resume=start, page_token=None)
        return open_list(connection, service, route, query, options, self._call_options, self._endpoint)

    def _call(self, fetch: Fetch, needed: Callable[[], bool] | None) -> Call:
        query, bound, until = self._query, fetch.bound, self._route.until
        return Call(
            query if bound is None or until is None else query.replaced(until, bound),
            None if fetch.token is None else fetch.token.value,
            fetch.not_after,
            needed,
            self._call_options,
            fetch.fresh,
        )

    async def _load(self) -> Decode:
        """Load the records of the route, off the event loop, and return their decoder."""
        if self._endpoint is not None:
            await self._endpoint.load()
        if self._decoder is None:
            self._decoder = self._make_decoder()
        return self._decoder

    def _make_decoder(self) -> Decode:
        shown = self._shown if self.on_invalid == "raw" else None
        endpoint = self._endpoint
        route = self._route if endpoint is None else endpoint.route
        if endpoint is not None and route.items is not None and shown is None:
            return endpoint.page_decoder
        likely = route.path.rpartition("/")[2]
        return PageDecoder(route.model, route.items, route.extra, shown=shown, likely=likely)

    def _shown(self, fault: DecodeError) -> DecodeError:
        """Return the error of an invalid row as it may be shown."""
        return self._service.shown_fault(fault).changed(where=self._query.where)


def _start(resume: Checkpoint | None, first: Checkpoint) -> Checkpoint:
    """Return the position at which a walk begins.

    Raises:
        ConfigurationError: `resume` is no checkpoint.
        CheckpointError: it belongs to another query.

    """
    if resume is None:
        return first
    if not isinstance(resume, Checkpoint):
        raise ConfigurationError(
            f"resume= must be a Checkpoint, not {type(resume).__name__}: read it with Checkpoint.loads"
        )
    if resume.query != first.query:
        other = f"the checkpoint belongs to another query ({resume.path or 'no path'})"
        if resume.path != first.path:
            raise CheckpointError(f"{other} than this one ({first.path})")
        raise CheckpointError(
            f"{other} with the path of this one: pass the parameters, the page size and the address of the"
            " service with which it was taken"
        )
    return resume
