"""Routes as methods: a signature declares one, and the record beside it says the rest.

A declaration has no body. Its signature is read when it is first called: names and types of the parameters,
and what comes back. So nothing of the models is loaded before it is used.
"""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import evolve, frozen

from chainapi import models
from chainapi.config import refuse_unknown
from chainapi.routes import Route

if TYPE_CHECKING:
    from chainapi.parameters import Parameter
    from chainapi.service import ServiceAPI

__all__ = ["Declared", "Group", "declared_in", "gets", "group", "groups_of", "lists"]

F = TypeVar("F", bound=Callable[..., Any])

NOT_SENT = ("resume", "on_invalid", "prefetch", "priority")  # parameters that are for us


class Group:
    """Some routes of a service, under one name."""

    def __init__(self, service: ServiceAPI) -> None:
        self._service_api = service

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service_api!r}>"

    @property
    def service(self) -> ServiceAPI:
        """The service that the routes belong to."""
        return self._service_api


class _GroupAt:
    """Makes a group when it is first asked for; its module is not loaded before."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> type[Group]:
        """The class of the group."""
        module, _, name = self._place.rpartition(".")
        return cast("type[Group]", getattr(import_module(module), name))

    def __get__(self, service: ServiceAPI | None, owner: type) -> Any:
        if service is None:
            return self
        made = vars(service)[self._name] = self.kind(service)
        return made


def group(place: str) -> Any:
    """Declare a group of a service by the place of its class, such as ``"chainapi.groups.evm.EVM"``."""
    return _GroupAt(place)


@frozen(eq=False, repr=False)
class _Signature:
    """What a declaration says: the parameters that are sent, what it gives, and of which model."""

    parameters: tuple[Parameter, ...]
    gives: Any
    rows: Any


class Declared:
    """A route as it is declared: its record, and what its signature says."""

    def __init__(self, route: Route, function: Callable[..., Any], *, single: bool) -> None:
        self._route = route
        self.function = function
        self.single = single

    def __repr__(self) -> str:
        return f"<{self.function.__qualname__}: {self._route.path}>"

    @cached_property
    def route(self) -> Route:
        """The record, with the classes that it names."""
        others = tuple((name, self._resolve(kind)) for name, kind in self._route.others)
        model = None if self.rows is str else self.rows  # a text is decoded like any plain value
        return evolve(self._route, model=model, others=others)

    @property
    def rows(self) -> Any:
        """Class of the rows, or of the resource."""
        return self._read.rows

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are sent."""
        return self._read.parameters

    @property
    def page_size(self) -> Parameter | None:
        """The parameter that says how many rows a page has at most."""
        return next((one for one in self.parameters if one.wire == "pageSize"), None)

    @cached_property
    def _declared(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _read(self) -> _Signature:
        from chainapi.parameters import Parameter

        hints = self._hints()
        gives = hints.pop("return")
        parameters = [
            Parameter.read(declared, hints[name], self._route.path)
            for name, declared in self._declared.parameters.items()
            if name not in ("self", *NOT_SENT)
        ]
        if self.single:
            return _Signature(tuple(parameters), None, gives)
        (rows,) = typing.get_args(gives)
        return _Signature(tuple(parameters), typing.get_origin(gives), rows)

    def _hints(self) -> dict[str, Any]:
        texts = [text for text in self.function.__annotations__.values() if isinstance(text, str)]
        return typing.get_type_hints(self.function, localns=_names(texts), include_extras=True)

    @staticmethod
    def _resolve(kind: Any) -> Any:
        """Return the type that a record names, such as ``"list[str]"``."""

        def named() -> None: ...

        named.__annotations__["kind"] = kind
        return typing.get_type_hints(named, localns=_names([str(kind)]))["kind"]

    def stream(self, source: Any) -> Any:
        """Return the stream that the signature names."""
        return self._read.gives(source)

    def for_call(self, given: Mapping[str, Any]) -> Declared:
        """Return the declaration with its record as it holds for these values of the parameters.

        So an order that the caller turned round is never taken for the order of the list.
        """
        route = self.route.for_call(given)
        if route is self.route:
            return self
        called = copy(self)
        called.route = route
        return called

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the values of all parameters, defaults among them.

        Raises:
            ConfigurationError: there is no such parameter.
            TypeError: one is missing, or given twice.

        """
        names = [name for name in self._declared.parameters if name != "self"]
        unknown = [name for name in kwargs if name not in names]
        refuse_unknown(unknown, names, self.function.__name__, kwargs)
        try:
            bound = self._declared.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}(): {error}") from None
        bound.apply_defaults()
        return bound.arguments

    def asked(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
        """Return what goes into the path and what into the query.

        Raises:
            ConfigurationError: a value cannot be sent.

        """
        from chainapi.parameters import wire_parameters

        if self._route.deprecated:
            text = (
                f"{self.function.__qualname__} is deprecated: the service will take {self._route.path} away"
            )
            warnings.warn(text, DeprecationWarning, stacklevel=4)
        path, query = wire_parameters(self.parameters, given)
        wires = {parameter.name: parameter.wire for parameter in self.parameters}
        return {wires[name]: (name, value) for name, value in path.items()}, query


def lists(route: Route) -> Callable[[F], F]:
    """Declare a method that walks a list; its signature ends with `NOT_SENT`."""

    def declare(function: F) -> F:
        declared = Declared(route, function, single=False)

        @wraps(function)
        def walk(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return _api(self).walk_route(declared.for_call(given), given)

        walk.declared = declared  # type: ignore[attr-defined]
        return cast("F", walk)

    return declare


def gets(route: Route) -> Callable[[F], F]:
    """Declare a coroutine method that returns a single resource; its signature ends with ``priority``."""

    def declare(function: F) -> F:
        declared = Declared(route, function, single=True)

        @wraps(function)
        async def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return await _api(self).get_route(declared, given)

        get.declared = declared  # type: ignore[attr-defined]
        return cast("F", get)

    return declare


def declared_in(kind: type) -> dict[str, Declared]:
    """Return the routes that a class declares, by the names of their methods."""
    return {name: value.declared for name, value in vars(kind).items() if hasattr(value, "declared")}


def groups_of(kind: type) -> dict[str, type[Group]]:
    """Return the groups that a service declares, by the names of its attributes."""
    return {name: value.kind for name, value in vars(kind).items() if isinstance(value, _GroupAt)}


def _api(place: Any) -> ServiceAPI:
    return cast("ServiceAPI", place.service)


def _names(texts: Sequence[str]) -> dict[str, Any]:
    """Return what of the models and the parameters is named in annotations."""
    from chainapi import parameters
    from chainapi.models import enums

    words = {word for text in texts for word in re.findall(r"\w+", text)}
    named = {word: getattr(enums, word) for word in words if hasattr(enums, word)}
    named |= {word: getattr(parameters, word) for word in words & set(parameters.__all__)}
    return named | {word: getattr(models, word) for word in words & set(dir(models))}
