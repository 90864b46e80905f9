"""Endpoint: a route with the signature of its method.

The method has no body. Its signature is read at the first call: names and types of the parameters, and the
class of the rows. Until then no model is loaded.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields, replace

from chainapi import models
from chainapi._api.identity import identity_of
from chainapi._api.options import OPTIONS, ListOptions, Options, ResourceOptions
from chainapi._api.routes import Route
from chainapi._http.threads import in_thread
from chainapi._paging.rows import Identity
from chainapi.core.arguments import refuse_unknown
from chainapi.core.idempotency import Idempotency
from chainapi.models.codec import PageDecoder, ResourceDecoder, Stepwise
from chainapi.models.metrics import MetricPoint
from chainapi.models.records import Record

if TYPE_CHECKING:
    from chainapi._api.parameters import Parameter

__all__ = ["Endpoint"]

# Rows whose classes are loaded at once, unlike the models.
_BASES = {"MetricPoint": MetricPoint, "str": None}

# Arguments that users expect of a list, with what to do instead.
_NOT_OF_LISTS = {
    "limit": "limit= belongs to the reader: .items(limit=...) or .collect(limit=...)",
    "page_size": "the pages of this route have no size to choose: leave it out",
    "model": "the rows of a route have its own class: session.data.list(path, model=...) takes another",
}


_PARAMETERS = [
    inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=one.default,
        annotation=Options.__annotations__[one.name],
    )
    for one in fields(Options)
]


class Endpoint:
    """Route with the signature of its method: parameters, rows, decoder.

    The signature is read, and its models are loaded, when they are needed.
    """

    def __init__(self, route: Route, function: Callable[..., Any]) -> None:
        self.record = route
        self.function = function
        self.single: bool = inspect.iscoroutinefunction(function)
        self._stream, _, rest = str(function.__annotations__["return"]).partition("[")
        self._rows = self._stream if self.single else rest.removesuffix("]")
        self._others: dict[Route, Endpoint] = {}  # of calls that do not meet a condition
        self._loading: asyncio.Future[object] | None = None

    def __repr__(self) -> str:
        return f"<{self.function.__qualname__}: {self.record.place}>"

    @cached_property
    def route(self) -> Route:
        """Record of the route, with its model and the classes of its further fields."""
        extra = tuple(_types_of(dict(self.record.extra), {}).items())
        model = None if self.rows is str else self.rows  # a string is decoded like any plain value
        return replace(self.record, model=model, extra=extra)

    @cached_property
    def unloaded(self) -> Route:
        """Record of the route before its models are loaded.

        A base class stands in place of the model.
        """
        return replace(self.record, model=_BASES.get(self._rows, Record))

    @cached_property
    def rows(self) -> Any:
        """Class of the rows, or of the resource; None for an answer without a body."""
        name = self._rows.removesuffix(" | None")  # None is the answer of a repeated DELETE
        found = _types_of({"rows": name}, self.function.__globals__)["rows"]
        return None if found is type(None) else found

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters that are sent."""
        from chainapi._api.parameters import Parameter

        ours = ("return", "options")
        texts = {name: text for name, text in self.function.__annotations__.items() if name not in ours}
        hints = _types_of(texts, self.function.__globals__)
        return tuple(
            Parameter.read(parameter, hints[name], self.record.path, self.record.body)
            for name, parameter in self.signature.parameters.items()
            if name in hints
        )

    @property
    def page_size(self) -> Parameter | None:
        """Parameter of the page size, if there is one."""
        return next((one for one in self.parameters if one.wire == "pageSize"), None)

    @property
    def loaded(self) -> bool:
        """Check whether the models of the route are loaded."""
        return "rows" in vars(self)

    async def load(self) -> None:
        """Load the models of the route and its decoder, once and in a thread."""
        if self._loading is None or self._loading.get_loop() is not asyncio.get_running_loop():
            self._loading = in_thread(self.decoder)
            self._loading.add_done_callback(self._forget)
        await asyncio.shield(self._loading)

    def _forget(self, loading: asyncio.Future[object]) -> None:
        """Release the future of a load that ended, and with it its event loop."""
        if self._loading is loading:
            self._loading = None

    def decoder(self) -> Stepwise[Any]:
        """Return the decoder of the responses."""
        return ResourceDecoder(self.route.model) if self.single else self.page_decoder

    @cached_property
    def page_decoder(self) -> PageDecoder:
        """Decoder of pages that streams share, for a route that names its list field."""
        route = self.route
        return PageDecoder(route.model, route.items, route.extra)

    @cached_property
    def identity(self) -> Identity:
        """Readers of what identifies a row."""
        return identity_of(self.unloaded, declared=True)

    def stream(self, walk: Any, source: Any) -> Any:
        """Return the stream that the signature names."""
        return self.function.__globals__[self._stream](walk, source)

    def for_call(self, given: Mapping[str, Any]) -> Endpoint:
        """Return the endpoint for a call with these values of its parameters.

        The route may have an order or a key under a condition only, such as ``sort_order="desc"``.
        """
        route = self.record.for_call(given)
        if route is self.record:
            return self
        if route not in self._others:
            self._others[route] = Endpoint(route, self.function)
        return self._others[route]

    @cached_property
    def signature(self) -> inspect.Signature:
        """Signature of the method, with a parameter for each option."""
        declared = inspect.signature(self.function)
        *own, _ = declared.parameters.values()
        taken = (ResourceOptions if self.single else ListOptions).__annotations__
        options = [one for one in _PARAMETERS if one.name in taken]
        return declared.replace(parameters=[*own, *options])

    @cached_property
    def _layout(self) -> tuple[tuple[str, ...], Mapping[str, Any], frozenset[str]]:
        """Names that may be positional, defaults of all, and names of required parameters."""
        parameters = self.signature.parameters.values()
        positional = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
        defaults = {one.name: one.default for one in parameters}
        return positional, defaults, frozenset(one.name for one in parameters if one.default is one.empty)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the values of all parameters, with defaults.

        Raises:
            ConfigurationError: an argument is unknown.
            TypeError: an argument is missing, or given twice.

        """
        positional, defaults, required = self._layout
        given = dict(zip(positional, args, strict=False))
        if len(given) == len(args) and given.keys().isdisjoint(kwargs) and defaults.keys() >= kwargs.keys():
            given |= kwargs
            if given.keys() >= required:
                return {**defaults, **given}
        return self._bound(args, kwargs)  # with the error that Python raises

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Bind arguments as Python does, with its errors."""
        names = [name for name in self.signature.parameters if name != "self"]
        unknown = [name for name in kwargs if name not in names]
        advice = {name: f"{name}= is an option of session.with_options()" for name in OPTIONS}
        advice |= {} if self.single else _NOT_OF_LISTS
        refuse_unknown(unknown, names, self.function.__name__, kwargs, advice)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}(): {error}") from None
        bound.apply_defaults()
        return bound.arguments

    @property
    def reads(self) -> bool:
        """Check whether the route only reads."""
        return self.record.idempotency is Idempotency.SAFE

    @property
    def bodiless(self) -> bool:
        """Check whether the answer has no body."""
        return self._rows == "None"

    def encode(
        self, given: Mapping[str, Any]
    ) -> tuple[dict[str, str], tuple[tuple[str, str], ...], bytes | None]:
        """Return segments of the path, query parameters, and body (see `wire_parameters`).

        Raises:
            ConfigurationError: a value is invalid.

        """
        from chainapi._api.parameters import wire_parameters

        if self.record.deprecated:
            warning = self.record.deprecation(self.function.__qualname__)
            warnings.warn(warning, DeprecationWarning, stacklevel=5)
        return *wire_parameters(self.parameters, given), self._body(given)

    def _body(self, given: Mapping[str, Any]) -> bytes | None:
        if self.record.method == "GET":
            return None
        from chainapi._api.parameters import wire_body

        return wire_body(self.parameters, given)


def _types_of(annotations: Mapping[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the types that annotations such as ``"list[str]"`` name."""
    named = SimpleNamespace(__annotations__=annotations)
    try:
        return typing.get_type_hints(named, known, _names(annotations.values(), known), include_extras=True)
    except NameError as error:
        raise NameError(
            f"{error} in chainapi.models: a declared route uses it. Run `nox -s generate`"
            ' (docs/contributing.md, "Add a route")'
        ) from error


def _names(annotations: Iterable[Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the models, enumerations and types of parameters that annotations name.

    `known` has the names of the module of the annotations.
    """
    from chainapi._api import parameters

    words = {word for one in annotations for word in re.findall(r"\w+", str(one))}
    named = {word: getattr(parameters, word) for word in words & set(parameters.__all__)}
    named |= {word: getattr(models, word) for word in words & set(dir(models))}
    others = words - named.keys() - known.keys() - vars(builtins).keys()
    if not others:
        return named
    from chainapi.models import enums  # imported here: its hundreds of values take longer than a route

    return {word: getattr(enums, word) for word in others if hasattr(enums, word)} | named
