"""Converter of cattrs for aliases, foreign types and hooks.

It makes the models that msgspec cannot make.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from chainapi.core.numbers import is_of, whole_of
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.native import with_numbers
from chainapi.models.schema import fields_of, type_of

if TYPE_CHECKING:
    import cattrs

__all__ = ["check_cattrs", "converter", "is_hooked", "structure"]

_own_hooks: set[Any] = set()


@cache
def converter() -> cattrs.Converter:
    """Return the one cattrs converter, for structure hooks of your own.

    Register them before a model is first used. The converter is stricter than the default one: null is not a
    text, 3.5 is not a whole number, true is not a number.
    """
    import cattrs.gen

    made = cattrs.Converter(structure_fallback_factory=_by_msgspec)
    made.register_structure_hook(int, _own(_whole))
    for primitive, accepted in ((float, (float, int)), (str, (str,)), (bool, (bool,))):
        made.register_structure_hook(primitive, _own(_strict(primitive, accepted)))

    def from_wire(cls: Any) -> Callable[[Any, Any], Any]:
        attrs.resolve_types(typing.get_origin(cls) or cls)
        names: dict[str, Any] = {
            field.name: cattrs.gen.override(rename=field.wire) for field in fields_of(cls)
        }
        make = cattrs.gen.make_dict_structure_fn(cls, made, **names)

        def from_object(value: Any, kind: Any) -> Any:
            if not isinstance(value, dict):
                raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
            return make(value, kind)

        return _own(from_object)

    made.register_structure_hook_factory(attrs.has, from_wire)
    return made


def _own(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    _own_hooks.add(hook)
    return hook


def is_hooked(kind: Any) -> bool:
    """Check whether a user has registered a hook for a class."""
    if not converter.cache_info().currsize or not isinstance(kind, type):
        return False
    import cattrs

    try:
        hook = converter().get_structure_hook(kind, cache_result=False)
    except (cattrs.StructureHandlerNotFoundError, NameError):  # no hook for it, or a name in it is undefined
        return False
    # Hooks of cattrs itself, such as those for enumerations, make the same values as msgspec.
    of_cattrs = (getattr(hook, "__module__", None) or "cattrs").startswith("cattrs")
    return hook not in _own_hooks and (attrs.has(kind) or not of_cattrs)


def _by_msgspec(kind: Any) -> Callable[[Any, Any], Any]:
    """Make types without a hook: dates, decimals, UUIDs, Structs."""
    import cattrs

    try:
        foreign = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:
        foreign = True
    if foreign:
        message = f"{kind!r} has no structure hook: register one with chainapi.models.converter()"
        raise cattrs.StructureHandlerNotFoundError(message, kind)
    return _own(lambda value, _: msgspec.convert(with_numbers(type_of(kind), value), kind))


def _strict(primitive: type, accepted: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    def checked(value: Any, _: Any) -> Any:
        if not is_of(value, accepted):
            raise TypeError(f"Expected `{primitive.__name__}`, got `{type(value).__name__}`")
        return primitive(value)

    return checked


def _whole(value: Any, _: Any) -> int:
    if (whole := whole_of(value)) is None:
        raise TypeError(f"Expected `int`, got `{type(value).__name__}`")
    return whole


def check_cattrs(model: Any) -> None:
    """Check that cattrs can make rows of a model, before a request is sent.

    Raises:
        ConfigurationError: it cannot.

    """
    import cattrs

    try:
        converter().get_structure_hook(model)
    except (cattrs.StructureHandlerNotFoundError, NameError) as error:
        raise ConfigurationError(f"model={model!r} cannot be made from JSON: {error}") from None


def structure(rows: Sequence[Any], model: Any) -> list[Any]:
    """Make objects of JSON values.

    Raises:
        DecodeError: one of them does not fit the model; its path begins with the number of the row.

    """
    import cattrs

    several: Any = types.GenericAlias(list, (model,))
    try:
        made: list[Any] = converter().structure(rows, several)
    except cattrs.BaseValidationError as error:
        reason, path = _first_fault(error)
        raise DecodeError(reason, path=f"${path}") from None
    return made


def _first_fault(error: BaseException) -> tuple[str, str]:
    """Return the first fault that cattrs found, and its JSON path."""
    import cattrs

    path, name = "", ""
    while isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        kind = error.cl
        noted, bare = error.group_exceptions()
        if not noted:
            error = bare[0]
            continue
        error, note = noted[0]
        if isinstance(note, cattrs.IterableValidationNote):
            path += f"[{note.index!r}]"
            continue
        wires = {field.name: field.wire for field in fields_of(kind)}
        name = wires.get(note.name, note.name)
        path += f".{name}"
    if isinstance(error, KeyError) and error.args == (name,):
        return "missing", path
    return str(error) or type(error).__name__, path
