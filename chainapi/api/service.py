"""Service: lists and resources by path, and by their endpoints."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from chainapi._text import quoted
from chainapi.api.endpoint import Endpoint
from chainapi.api.identity import deduplicator, key_names
from chainapi.api.options import NOT_SENT, Options, priority_of, refuse_misspelt
from chainapi.api.routes import Route, route_name
from chainapi.client.connection import Connection
from chainapi.client.pages import OnInvalid, Pages, Source
from chainapi.client.service import Service
from chainapi.core.arguments import deadline_of
from chainapi.core.call import Call, SentAt
from chainapi.core.paging.checkpoint import Checkpoint, query_fingerprint
from chainapi.core.url import Query, checked_page_size, checked_path, path_segment, query_params
from chainapi.errors import CheckpointError, ConfigurationError, DecodeError
from chainapi.models.codec import DecodedPage, PageDecoder, ResourceDecoder

if TYPE_CHECKING:
    from chainapi.core.limits.quota import QuotaSnapshot

__all__ = ["ServiceAPI"]

T = TypeVar("T")


class ServiceAPI:
    """One service of a session: `session.metrics` or `session.data`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of <Session {self._connection.describe()}>>"

    @property
    def quota(self) -> QuotaSnapshot:
        """Snapshot of the quota of the service; inside a running event loop.

        Raises:
            ConfigurationError: the service is not configured.

        """
        return self._connection.snapshot(self._service())

    @overload
    def list(
        self,
        path: str,
        *,
        items: str | None = None,
        model: type[T],
        page_size: int | None = None,
        key: str | Sequence[str] | None = None,
        descending_key: str | None = None,
        until: str | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        **params: object,
    ) -> Pages[T]: ...

    @overload
    def list(
        self,
        path: str,
        *,
        items: str | None = None,
        model: None = None,
        page_size: int | None = None,
        key: str | Sequence[str] | None = None,
        descending_key: str | None = None,
        until: str | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        **params: object,
    ) -> Pages[dict[str, Any]]: ...

    def list(
        self,
        path: str,
        *,
        items: str | None = None,
        model: type[Any] | None = None,
        page_size: int | None = None,
        key: str | Sequence[str] | None = None,
        descending_key: str | None = None,
        until: str | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
        **params: object,
    ) -> Pages[Any]:
        """Walk any list route (specification, section 4).

        Args:
            path: the route below the base address, such as ``/v1/chains/43114/blocks``.
            items: name of the list field; by default the only field of the first page with a list.
            model: class of the rows: attrs, or any other that msgspec or cattrs supports; by default dict.
            page_size: rows per page, 1 to 10,000 (most routes accept 1 to 100); None for the default.
            key: name of the row field (of a model: attribute), or names of the fields, that identify a row by
                the service's definition; dots lead into objects. Then a row that a shifted list repeats on
                the next page is dropped, and a row that changed is not returned again after a restart.
            descending_key: a row field (of a model: attribute) with a whole number that does not increase
                from row to row; then rows returned before a restart or a resume are dropped without memory. A
                page that breaks the order is detected: no row is lost.
            until: name of the query parameter with the upper bound of that number, to begin a restart at.
            resume: a checkpoint of the same query, with or without a model.
            on_invalid: "raise" raises DecodeError at a row that does not match `model`; "raw" returns it as
                an `Invalid` among the other rows.
            prefetch: pages to fetch ahead of the reader, 0 to 16.
            priority: requests of a higher priority are first in the queue for quota.
            deadline: seconds for each page with its waits and retries; by default the session's.
            params: query parameters by their names on the wire; None is left out, a list is joined by commas.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        if until is not None and descending_key is None:
            raise ConfigurationError(
                f"until={quoted(until)} needs descending_key=: give the row field that it bounds"
            )
        route = Route(checked_path(path), items, model, descending_key, until=until, key=key_names(key))
        return Pages(
            self._source(
                route,
                route.path,
                self._params(page_size, params),
                Options(resume, on_invalid, prefetch, priority, deadline),
            )
        )

    async def get(
        self,
        path: str,
        *,
        model: Any = None,
        priority: int = 0,
        deadline: float | None = None,
        **params: object,
    ) -> Any:
        """Return one resource, as plain JSON values or as `model`.

        Requests of a higher `priority` are first in the queue for quota. `deadline` is the seconds of the
        call with its waits and retries, by default the session's.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            ChainAPIError: any of chainapi's errors.

        """
        refuse_misspelt(params, "get")
        service = self._service()
        query = self._query(checked_path(path), query_params(params))
        call = Call(query, priority=priority_of(priority), deadline=deadline_of(deadline))
        resource, _ = await self._connection.call(service, call, ResourceDecoder(model))
        return resource

    @property
    def service(self) -> ServiceAPI:
        """The service itself: methods of services and of groups have the same attribute."""
        return self

    def walk_route(self, declared: Endpoint, given: Mapping[str, Any]) -> Any:
        """Return the stream of a list with the values `given` for its parameters.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        segments, params = declared.encode(given)
        route = declared.unloaded
        path = _filled(route.path, segments)
        options = Options(*(given[name] for name in NOT_SENT))
        return declared.stream(self._source(route, path, params, options, declared))

    async def get_route(self, declared: Endpoint, given: Mapping[str, Any]) -> Any:
        """Return a resource with the values `given` for its parameters.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            ChainAPIError: any of chainapi's errors.

        """
        segments, params = declared.encode(given)
        route = declared.unloaded
        query = self._query(_filled(route.path, segments), params, route.units)
        priority, deadline = priority_of(given["priority"]), deadline_of(given["deadline"])
        service, began = self._service(), self._connection.clock()
        call = Call(query, priority=priority, deadline=deadline)
        if not declared.loaded:
            await declared.load()
        resource, _ = await self._connection.call(service, call, declared.decoder(), began)
        return resource

    def _service(self) -> Service:
        return self._connection.service(self._name)

    def _query(self, path: str, params: tuple[tuple[str, str], ...], units: float | None = None) -> Query:
        return Query(path, params, route_name(self._name, path), units)

    @staticmethod
    def _params(page_size: int | None, params: dict[str, object]) -> tuple[tuple[str, str], ...]:
        refuse_misspelt(params, "list")
        size = checked_page_size(page_size)
        first = () if size is None else (("pageSize", str(size)),)
        return first + query_params(params)

    def _source(
        self,
        route: Route,
        path: str,
        params: tuple[tuple[str, str], ...],
        options: Options,
        declared: Endpoint | None = None,
    ) -> Source:
        connection, service = self._connection, self._service()
        query = self._query(path, params, route.units)
        start = _start(options.resume, query_fingerprint(service.endpoint.base_url, path, params), path)

        def shown(fault: DecodeError) -> DecodeError:
            return service.shown_fault(fault).changed(where=query.where)

        invalid = options.on_invalid == "raw"
        rows = _Rows(route, declared, shown if invalid else None)

        def fetch(
            page_token: str | None,
            bound: int | None,
            not_after: float,
            needed: Callable[[], bool] | None = None,
        ) -> Awaitable[tuple[DecodedPage, SentAt]]:
            asked = query if bound is None else query.bounded(route.until, bound)
            call = Call(asked, page_token, not_after, options.priority, needed, options.deadline)
            decoder = rows.decoder
            if decoder is None:
                return rows.load_and_call(connection, service, call)
            return connection.call(service, call, decoder)

        return Source(
            service=self._name,
            where=query.where,
            fetch=fetch,
            walk=connection.walk(start),
            seen=deduplicator(route, start, declared=declared is not None, invalid=invalid),
            start=start,
            clock=connection.clock,
            now=connection.now,
            emit=connection.emit,
            prefetch=options.prefetch,
            model=rows.model,
            bounded=route.until is not None and route.descending_key is not None,
            end=_whole_parameter(params, route.until),
            page_size=_whole_parameter(params, "pageSize"),
            price=lambda: service.price(query),
            limits=service.share.limits,
            others=tuple(name for name, _ in route.others),
        )


class _Rows:
    """The decoder of a stream, made at once or when the records are loaded."""

    def __init__(
        self, route: Route, declared: Endpoint | None, shown: Callable[[DecodeError], DecodeError] | None
    ) -> None:
        self._route = route
        self._declared = declared
        self._shown = shown
        self.decoder: Callable[[bytes], DecodedPage] | None = None
        if declared is None or declared.loaded:
            self._make()

    def model(self) -> Any:
        """Return the class of the rows."""
        return self._route.model if self._declared is None else self._declared.rows

    async def load_and_call(
        self, connection: Connection, service: Service, call: Call
    ) -> tuple[DecodedPage, SentAt]:
        """Load the records of the route, off the event loop, then send a request."""
        began = connection.clock()
        if self._declared is not None:
            await self._declared.load()
        return await connection.call(service, call, self.decoder or self._make(), began)

    def _make(self) -> Callable[[bytes], DecodedPage]:
        if self._declared is None:
            self.decoder = PageDecoder(self._route.model, self._route.items, shown=self._shown)
        else:
            self.decoder = self._declared.decoder(shown=self._shown)
        return self.decoder


def _whole_parameter(params: Sequence[tuple[str, str]], name: str | None) -> int | None:
    """Return the value of a query parameter; None where it is not given, or no whole number."""
    return next((int(value) for key, value in params if key == name and value.isdecimal()), None)


def _filled(path: str, segments: Mapping[str, tuple[str, object]]) -> str:
    """Return the path with its parameters filled in; each is one segment."""
    return re.sub(r"{(\w+)}", lambda match: path_segment(*segments[match[1]]), path)


def _start(resume: Checkpoint | None, fingerprint: str, path: str) -> Checkpoint:
    if resume is None:
        return Checkpoint(fingerprint, path)
    if not isinstance(resume, Checkpoint):
        raise ConfigurationError(
            f"resume= must be a Checkpoint, not {type(resume).__name__}: read it with Checkpoint.loads"
        )
    if resume.query != fingerprint:
        raise CheckpointError(
            f"the checkpoint belongs to another query ({resume.path or 'no path'}) than this one ({path})"
        )
    return resume
