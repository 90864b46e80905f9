"""Methods of services and groups, declared by their signatures alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from chainapi._api.endpoint import Endpoint
from chainapi._api.lazy import LazyGroup, misnamed
from chainapi._api.routes import Route
from chainapi._api.service import ServiceAPI
from chainapi._hints import to_await

__all__ = ["Group", "endpoint", "group"]

F = TypeVar("F", bound=Callable[..., Any])


class Group:
    """Group of routes of a service."""

    def __init__(self, service: ServiceAPI) -> None:
        self._service_api = service

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise misnamed(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service_api!r}>"

    @property
    def service(self) -> ServiceAPI:
        """Service that the routes belong to."""
        return self._service_api


def group(path: str) -> Any:
    """Declare a group by the path of its class.

    An example is ``"chainapi._api.groups.evm.EVM"``.
    """
    return LazyGroup(path)


def endpoint(route: Route) -> Callable[[F], F]:
    """Declare a method: a coroutine returns a resource, any other walks a list.

    Its last parameter has the options that are not sent: `ListOptions`, or `ResourceOptions`.
    """

    def declare(function: F) -> F:
        declared = Endpoint(route, function)

        @to_await
        @wraps(function)
        async def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return await self.service.get_route(declared, given)

        @wraps(function)
        def walk(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return self.service.walk_route(declared.for_call(given), given)

        method: Any = get if declared.single else walk
        method.endpoint, method.__signature__ = declared, declared.signature
        return cast("F", method)

    return declare
