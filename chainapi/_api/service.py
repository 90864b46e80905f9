"""Service: lists and resources by path, and by their endpoints."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from inspect import signature
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec.structs import replace

from chainapi._api.endpoint import Endpoint
from chainapi._api.identity import attribute_path, key_names, name_of
from chainapi._api.lazy import misnamed
from chainapi._api.options import (
    CALL_OPTIONS,
    OPTIONS,
    Options,
    call_options,
    changed_options,
    is_misspelt,
)
from chainapi._api.routes import Route, route_name, units_of
from chainapi._api.source import ListSource, open_list
from chainapi._hints import to_await
from chainapi._http.connection import Connection
from chainapi._http.options import Attempt, Call, CallOptions
from chainapi._http.query import Query, checked_page_size, checked_path, query_params
from chainapi._http.response import RawResponse
from chainapi._http.service import Service
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.pages import OnInvalid, Pages
from chainapi._paging.walk import Walk
from chainapi._text import quoted
from chainapi.core.arguments import refuse_unknown
from chainapi.errors import ConfigurationError
from chainapi.models.codec import ResourceDecoder

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from chainapi._limits.view import QuotaSnapshot

    Row = TypeVarWithDefault("Row", default=dict[str, Any])
    Resource = TypeVarWithDefault("Resource", default=Any)
else:
    Row, Resource = TypeVar("Row"), TypeVar("Resource")

__all__ = ["ServiceAPI"]

T = TypeVar("T")

_not_sent = itemgetter(*Options.__struct_fields__)


class ServiceAPI:
    """One service of a session: `session.metrics` or `session.data`."""

    def __init__(self, connection: Connection, name: str, options: CallOptions) -> None:
        self._connection = connection
        self._name = name
        self._options = options

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise misnamed(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of <Session {self._connection.describe()}>>"

    @property
    def name(self) -> str:
        """Name of the service: ``metrics`` or ``data``."""
        return self._name

    @property
    def quota(self) -> QuotaSnapshot:
        """Snapshot of the quota of the service; inside a running event loop.

        Raises:
            ConfigurationError: the service is not configured.

        """
        return self._connection.snapshot(self._service())

    def list(
        self,
        path: str,
        *,
        items: str | None = None,
        model: type[Row] | None = None,
        page_size: int | None = None,
        key: str | Sequence[str] | None = None,
        descending_key: str | None = None,
        until: str | None = None,
        resume: Checkpoint | None = None,
        page_token: str | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int | None = None,
        deadline: float | None = None,
        tag: str | None = None,
        params: Mapping[str, object] | None = None,
        **given: object,
    ) -> Pages[Row]:
        """Read any list route (specification, section 4).

        Args:
            path: the route below the base address, such as ``/v1/chains/43114/blocks``.
            items: name of the list field; by default the only field of the first page with a list.
            model: class of the rows: attrs, or any other that msgspec or cattrs supports; by default dict.
            page_size: rows per page, 1 to 10,000 (most routes accept 1 to 100); None for the default.
            key: name of the row field, in JSON or in Python, or names of the fields, that identify a row by
                the service's definition; dots lead into objects. Then a row that a shifted list repeats on
                the next page is dropped, and a row that changed is not returned again after a restart.
            descending_key: a row field, by either name, with a whole number that does not increase
                from row to row; then rows returned before a restart or a resume are dropped without memory. A
                page that breaks the order is detected: no row is lost.
            until: name of the query parameter with the upper bound of that number, to begin a restart at.
            resume: a checkpoint of the same query, with or without a model.
            page_token: a bare token to begin at its page; unlike a checkpoint, it has no age and no count of
                rows.
            on_invalid: "raise" raises DecodeError at a row that does not match `model`; "raw" returns it as
                an `Invalid` among the other rows.
            prefetch: pages to fetch ahead of the reader, 0 to 16.
            priority: requests of a higher priority are first in the queue for quota; by default the view's.
            deadline: seconds for each page with its waits and retries; by default the view's.
            tag: name of the spender in `quota.spenders`; by default the view's.
            params: query parameters by their names on the wire; None is left out, a list is joined by commas.
            given: query parameters too, and options of a view such as `timeout`, which are not sent.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        if until is not None and descending_key is None:
            raise ConfigurationError(
                f"until={quoted(until)} needs descending_key=: give the row field that it bounds"
            )
        order = name_of("descending_key", descending_key, "row field") or ""
        route = Route(
            checked_path(path),
            items,
            model,
            descending_key=attribute_path(order, model) or None,
            until=name_of("until", until, "query parameter"),
            key=tuple(attribute_path(name, model) for name in key_names(key)),
        )
        options = Options(resume, page_token, on_invalid, prefetch, priority, deadline, tag)
        view, query = self._options_and_query(self.list, given, params, page_size)
        return Pages(*self._walk(route, self._query(route.path, query), options, view=view))

    @to_await
    async def get(
        self,
        path: str,
        *,
        model: type[Resource] | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        tag: str | None = None,
        params: Mapping[str, object] | None = None,
        **given: object,
    ) -> Resource:
        """Return one resource, as plain JSON values or as `model`.

        Requests of a higher `priority` are first in the queue for quota. `deadline` is the seconds of the
        call with its waits and retries, and `tag` is the name of the spender in `quota.spenders`. By default
        they are as in the session, or the view of it. Other options of a view, such as `timeout`, hold
        for this call. `params` and all further arguments are query parameters by their names on the wire.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            ChainAPIError: any of chainapi's errors.

        """
        view, query = self._options_and_query(self.get, given, params)
        options = call_options(view, {"priority": priority, "deadline": deadline, "tag": tag})
        resource: Resource
        resource, _ = await self._get(path, query, options, ResourceDecoder(model))
        return resource

    @to_await
    async def get_response(
        self,
        path: str,
        *,
        priority: int | None = None,
        deadline: float | None = None,
        tag: str | None = None,
        params: Mapping[str, object] | None = None,
        **given: object,
    ) -> RawResponse:
        """Return the response of a GET as it was received, its body not decoded.

        The arguments are as in `get`. Waits, retries and errors are the same too, so that its status is
        200 to 299; only the body may be other than JSON.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            ChainAPIError: any of chainapi's errors.

        """
        view, query = self._options_and_query(self.get_response, given, params)
        options = call_options(view, {"priority": priority, "deadline": deadline, "tag": tag})
        _, attempt = await self._get(path, query, options, len, raw=True)
        return self._service().received(attempt)

    def _options_and_query(
        self,
        method: Callable[..., object],
        given: dict[str, Any],
        params: Mapping[str, object] | None,
        page_size: int | None = None,
    ) -> tuple[CallOptions, tuple[tuple[str, str], ...]]:
        """Split arguments into options and query parameters.

        An argument that looks misspelt is refused: parameters of the services have no underscore. `params`
        has any names.
        """
        for name in given:
            if name not in OPTIONS and is_misspelt(name):
                known = {*signature(method).parameters, *OPTIONS} - {"given"}
                refuse_unknown([name], known, method.__name__, given)
        own = {name: given.pop(name) for name in OPTIONS if name in given}
        if not isinstance(params, Mapping | None):
            raise ConfigurationError(f"params={quoted(params)} must be a mapping of query parameters")
        if page_size is not None:
            given = {"pageSize": checked_page_size(page_size), **given}
        for name in given.keys() & (params or {}):
            raise ConfigurationError(f"the query parameter {name!r} is given twice")
        options = changed_options(self._connection, self._options, own) if own else self._options
        return options, query_params({**given, **(params or {})})

    def _get(
        self,
        path: str,
        params: tuple[tuple[str, str], ...],
        options: CallOptions,
        decode: Callable[[bytes], T],
        *,
        raw: bool = False,
    ) -> Coroutine[Any, Any, tuple[T, Attempt]]:
        query = self._query(checked_path(path), params)
        return self._connection.call(self._service(), Call(query, options=options, raw=raw), decode)

    @property
    def service(self) -> ServiceAPI:
        """Service itself: methods of services and of groups have the same attribute."""
        return self

    def walk_route(self, endpoint: Endpoint, given: Mapping[str, Any]) -> Any:
        """Return the stream of a list with the values `given` for its parameters.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            CheckpointError: `resume` belongs to another query.

        """
        query = self._encoded(endpoint, given)
        options = Options(*_not_sent(given))
        return endpoint.stream(*self._walk(endpoint.unloaded, query, options, endpoint))

    async def get_route(self, endpoint: Endpoint, given: Mapping[str, Any]) -> Any:
        """Return a resource, or the answer of a write, with its parameters `given`.

        Raises:
            ConfigurationError: an argument is invalid; nothing was sent.
            OutcomeUnknownError: a write may have been carried out.
            ChainAPIError: any of chainapi's errors.

        """
        query = self._encoded(endpoint, given)
        options = call_options(self._options, {name: given[name] for name in CALL_OPTIONS})
        service, began = self._service(), self._connection.clock()
        call = Call(query, options=options)
        if not endpoint.loaded:
            await endpoint.load()
        resource, _ = await self._connection.call(service, call, endpoint.decoder(), began)
        return resource

    def _service(self) -> Service:
        return self._connection.service(self._name)

    def _query(
        self,
        path: str,
        params: tuple[tuple[str, str], ...],
        units: float | None = None,
        template: str = "",
    ) -> Query:
        return Query(path, params, route_name(self._name, path), units, template)

    def _encoded(self, endpoint: Endpoint, given: Mapping[str, Any]) -> Query:
        """Return the query of a declared route."""
        segments, params, body = endpoint.encode(given)
        route = endpoint.unloaded
        path = self._service().endpoint.path(route.path).format_map(segments)
        query = self._query(path, params, units_of(self._name, route), route.path)
        if route.method == "GET":
            return query
        return replace(
            query,
            route=route_name(self._name, path, route.method),
            method=route.method,
            body=body,
            token_in_body="pageToken" in route.body,
            idempotency=route.idempotency,
            lookup=route.lookup,
            bodiless=endpoint.bodiless,
        )

    def _walk(
        self,
        route: Route,
        query: Query,
        options: Options,
        endpoint: Endpoint | None = None,
        *,
        view: CallOptions | None = None,
    ) -> tuple[Walk, ListSource]:
        """Return the walk of a list query, and the source of its pages."""
        own = call_options(view or self._options, {name: getattr(options, name) for name in CALL_OPTIONS})
        return open_list(self._connection, self._service(), route, query, options, own, endpoint)
