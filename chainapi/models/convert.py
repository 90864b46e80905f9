"""From JSON values to the classes of a user: fast through msgspec where it can, else through cattrs.

A model is an attrs class whose fields are named as on the wire or as Python names them (`block_number` is
read from `blockNumber`). msgspec decodes into a private Struct with the names of the wire, derived from the
class once, and makes the objects from it; a whole number may come as a string of digits. What msgspec cannot
do (converters, aliases, foreign types, recursion) goes through the one cattrs converter, where users register
hooks for types of their own. Dataclasses, TypedDicts and msgspec's Structs are read by their own names.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import attrs
import msgspec
from attrs import frozen

from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.metrics import MetricPoint
from chainapi.models.unions import Tag, Unknown, tags_of, wire_name

if TYPE_CHECKING:
    import cattrs

__all__ = ["DIGITS", "NULL", "RowType", "converter", "row_type", "wire_name"]

# How a whole number looks where it comes as a string; Python reads no longer ones.
DIGITS = r"^-?(?:0|[1-9][0-9]{0,4299})\Z"
NULL = msgspec.Raw(b"null")
_WHOLE: Any = int | Annotated[str, msgspec.Meta(pattern=DIGITS)]

# Models of ours whose fields are on the wire as they are here: decoded without a detour.
_AS_ON_THE_WIRE: frozenset[type] = frozenset({MetricPoint})


Finish: TypeAlias = Callable[[list[Any]], list[Any]]


@frozen(eq=False, repr=False)
class RowType:
    """How rows are made: msgspec decodes each to `wire`, `finish` makes the objects of a list of them.

    `quick` is a shorter way of the same kind, where there is one. It takes nothing that the other refuses;
    what it refuses, the other way may take, or else tells what is wrong.
    """

    wire: Any
    finish: Finish | None = None
    quick: tuple[Any, Finish] | None = None


def row_type(model: Any) -> RowType:
    """Return how to make rows of `model`; None stands for plain JSON values.

    Raises:
        ConfigurationError: nothing can make rows of it; the reason says what is missing.

    """
    try:
        return _row_type(model)
    except TypeError as error:  # not even hashable
        raise ConfigurationError(f"model={model!r} is no class to make rows of: {error}") from None


@lru_cache(maxsize=256)
def _row_type(model: Any) -> RowType:
    if model is None:
        return RowType(Any)
    if model in _AS_ON_THE_WIRE:
        return RowType(model)
    if tags := tags_of(model):
        return RowType(msgspec.Raw, _Union(tags), _tagged_way(tags))
    try:
        wire = _wire_type(model)
        msgspec.json.Decoder(types.GenericAlias(list, (wire,)))
    except (TypeError, NameError, ValueError):  # msgspec cannot take a type, a name or a pair of names
        _check_cattrs(model)
        return RowType(Any, lambda rows: _structure(rows, model))
    if wire is model:
        return RowType(model)
    return RowType(wire, lambda rows: _convert(rows, model), _quick_way(model))


# The quick way. A lax decoder makes whole numbers of strings without looking at each with a pattern; what it
# would take for one by mistake (1.0, 1e3) it takes for a float, which the strict second step refuses. All
# other types are those that a lax decoder reads like a strict one, or `Any`, and null is not among them,
# because it would find that in texts too.


def _quick_way(model: Any) -> tuple[Any, Finish] | None:
    """Return the quick way to rows of a class of ours or a user's, or None where there is none."""
    try:
        wire = _quick_type(model)
        msgspec.json.Decoder(types.GenericAlias(list, (wire,)), strict=False)
    except TypeError:
        return None
    return wire, _quick_finish(model)


def _quick_finish(model: Any) -> Finish:
    several: Any = types.GenericAlias(list, (model,))

    def finish(rows: list[Any]) -> list[Any]:
        made: list[Any] = msgspec.convert(rows, several, from_attributes=True)
        return made

    return finish


def _tagged_way(tags: Sequence[Tag]) -> tuple[Any, Finish] | None:
    """Return the quick way to rows of several kinds, where one field tells them all by its value."""
    if len({tag.path for tag in tags}) > 1 or len(tags[0].path) > 1 or None in {tag.value for tag in tags}:
        return None
    if any(row_type(tag.kind).quick is None for tag in tags):
        return None
    makers = {_quick_struct(tag.kind, tag): _quick_finish(tag.kind) for tag in tags}

    def finish(rows: list[Any]) -> list[Any]:
        return _grouped(rows, map(type, rows), lambda kind, several: makers[kind](several))

    return typing.Union[tuple(makers)], finish  # noqa: UP007 - made at run time


def _grouped(rows: list[Any], kinds: Iterable[Any], make: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Make the rows of each kind together; they stay in their order."""
    numbers: dict[Any, list[int]] = {}
    for number, kind in enumerate(kinds):
        numbers.setdefault(kind, []).append(number)
    made: list[Any] = [None] * len(rows)
    for kind, places in numbers.items():
        for number, row in zip(places, make(kind, [rows[at] for at in places]), strict=True):
            made[number] = row
    return made


def _quick_type(hint: Any) -> Any:
    if hint is int:
        return int | float
    if hint in (bool, float, Any):
        return Any
    if hint in (str, Decimal):  # a lax decoder would take the sign of "-0" away
        return str
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and arguments[0] is str:
        if any(isinstance(note, msgspec.Meta) for note in arguments[1:]):
            raise TypeError("constraints take the other way")
        return str
    if origin is typing.Literal and all(isinstance(value, str) for value in arguments):
        return str
    if origin is list:
        return types.GenericAlias(list, (_quick_type(arguments[0]),))
    if origin is dict and arguments[0] is str:
        return types.GenericAlias(dict, (str, _quick_type(arguments[1])))
    if origin is None and attrs.has(hint):
        return _quick_struct(hint)
    raise TypeError(f"{hint!r} takes the other way")


def _quick_struct(model: type, tag: Tag | None = None) -> Any:
    """Derive the private Struct of the quick way; msgspec itself reads the field of a `tag`."""
    hints = typing.get_type_hints(model, include_extras=True)
    fields: list[Any] = []
    constants: dict[str, Any] = {}
    for attribute in attrs.fields(model):
        if tag is not None and wire_name(attribute.name) == tag.path[0]:
            constants[attribute.name] = tag.value
            continue
        hint = hints[attribute.name]
        arguments = set(typing.get_args(hint)) if typing.get_origin(hint) in _UNIONS else {hint}
        given = arguments - {type(None)}
        if len(given) != 1 or (given != arguments and attribute.default is not None):
            raise TypeError(f"{hint!r} takes the other way")
        quick = _quick_type(*given)
        # A text stays a text. Elsewhere null is left to the other way, and only a missing field is None.
        wire = str | None if quick is str and given != arguments else quick
        fields.append((attribute.name, wire, _wire_field(attribute, hint)))
    if tag is None:
        return msgspec.defstruct(model.__name__, fields, kw_only=True)
    return msgspec.defstruct(
        model.__name__, fields, kw_only=True, namespace=constants, tag_field=tag.path[0], tag=tag.value
    )


_UNIONS = (typing.Union, types.UnionType)


def _convert(rows: list[Any], model: Any) -> list[Any]:
    """Make the objects from private Structs; lax, because a whole number may have come as a string."""
    made: list[Any] = msgspec.convert(
        rows, types.GenericAlias(list, (model,)), from_attributes=True, strict=False
    )
    return made


def several_of(rows: RowType) -> Callable[[Sequence[msgspec.Raw]], list[Any]]:
    """Return what makes rows of JSON: the quick way where that goes for all of them, else the other."""
    decode = msgspec.json.Decoder(rows.wire).decode
    quick = None
    if rows.quick is not None:
        quick = msgspec.json.Decoder(rows.quick[0], strict=False).decode, rows.quick[1]

    def make(raws: Sequence[msgspec.Raw]) -> list[Any]:
        if quick is not None:
            quickly, finish = quick
            try:
                return finish([quickly(raw) for raw in raws])
            except msgspec.ValidationError:
                pass
        made = [decode(raw) for raw in raws]
        return made if rows.finish is None else rows.finish(made)

    return make


class _Union:
    """Makes rows of several kinds: a look at what tells them apart, then those of each kind together."""

    def __init__(self, tags: Sequence[Tag]) -> None:
        heads = {head: f"f{number}" for number, head in enumerate(dict.fromkeys(tag.path[0] for tag in tags))}
        # A field that only has to be there is passed over, not read.
        read = {tag.path[0] for tag in tags if tag.value is not None or len(tag.path) > 1}
        fields = [
            (name, Any if head in read else msgspec.Raw, msgspec.field(name=head, default=None))
            for head, name in heads.items()
        ]
        self._rules = [(heads[tag.path[0]], tag) for tag in tags]
        self._look: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct("Look", fields))
        self._makers: dict[type, Callable[[Sequence[msgspec.Raw]], list[Any]]] = {}

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Make the rows; the path of what is wrong with one has its number."""
        try:
            return self._make(rows)
        except (msgspec.ValidationError, DecodeError):
            return [self._alone(number, row) for number, row in enumerate(rows)]

    def _make(self, rows: list[Any]) -> list[Any]:
        kinds = map(self._kind, map(self._look.decode, rows))
        return _grouped(rows, kinds, lambda kind, several: self._of(kind)(several))

    def _alone(self, number: int, row: Any) -> Any:
        try:
            return self._make([row])[0]
        except msgspec.ValidationError as error:
            reason, at, place = str(error).partition(" - at `$")
            path = f"$[{number}]{place.removeprefix('[0]') if at else '`'}"
            raise msgspec.ValidationError(f"{reason} - at `{path}") from None
        except DecodeError as error:
            raise DecodeError(error.reason, path=f"$[{number}]{error.path.removeprefix('$[0]')}") from None

    def _kind(self, look: Any) -> type:
        for name, tag in self._rules:
            head = getattr(look, name)
            if head is None or head == NULL:
                continue
            if tag.fits({tag.path[0]: head}) if len(tag.path) > 1 else tag.value in (None, head):
                return tag.kind
        return Unknown

    def _of(self, kind: type) -> Callable[[Sequence[msgspec.Raw]], list[Any]]:
        if kind not in self._makers:
            self._makers[kind] = _unknown if kind is Unknown else several_of(row_type(kind))
        return self._makers[kind]


def _unknown(raws: Sequence[msgspec.Raw]) -> list[Any]:
    return [Unknown(_PLAIN.decode(raw)) for raw in raws]


_PLAIN: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def _struct_of(model: type, within: tuple[type, ...]) -> Any:
    """Derive the private Struct of an attrs class; TypeError where cattrs has to do it."""
    if model in within or _is_hooked(model):
        raise TypeError(f"{model.__name__} needs cattrs")
    hints = typing.get_type_hints(model, include_extras=True)
    fields: list[Any] = []
    for attribute in attrs.fields(model):
        if not attribute.init or attribute.converter is not None or attribute.alias != attribute.name:
            raise TypeError(f"{model.__name__}.{attribute.name} needs cattrs")
        if attribute.name not in hints:
            raise TypeError(f"{model.__name__}.{attribute.name} has no annotation: it needs cattrs")
        hint = hints[attribute.name]
        fields.append((attribute.name, _wire_type(hint, (*within, model)), _wire_field(attribute, hint)))
    return msgspec.defstruct(model.__name__, fields, kw_only=True)


def _wire_field(attribute: attrs.Attribute[Any], hint: Any) -> Any:
    name = wire_name(attribute.name)
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return msgspec.field(name=name)
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            raise TypeError(f"the default of {attribute.name} needs cattrs")
        return msgspec.field(name=name, default_factory=default.factory)
    try:
        msgspec.convert(default, hint)
    except msgspec.ValidationError:  # `height: int = None`
        raise TypeError(f"the default of {attribute.name} is not of its type: it needs cattrs") from None
    return msgspec.field(name=name, default=default)


def _wire_type(hint: Any, within: tuple[type, ...] = ()) -> Any:
    """Return the type that msgspec decodes for a field of type `hint`."""
    origin: Any = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is int and not _is_hooked(int):
        return _WHOLE
    if origin in (typing.Union, types.UnionType):
        return _wire_union(arguments, within)
    if origin is Annotated:
        inner, *notes = arguments
        return hint if inner is int else Annotated[(_wire_type(inner, within), *notes)]
    if attrs.has(origin or hint):
        if origin is not None:
            raise TypeError(f"{hint!r} is generic and needs cattrs")
        return _struct_of(hint, within)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        # The keys of an object are texts of which msgspec makes numbers as it is.
        kept = 1 if issubclass(origin, Mapping) else 0
        wires = (entry if entry is ... else _wire_type(entry, within) for entry in arguments[kept:])
        return types.GenericAlias(origin, (*arguments[:kept], *wires))
    if _is_hooked(hint) or _is_foreign(msgspec.inspect.type_info(hint)):
        raise TypeError(f"{hint!r} needs cattrs")
    return hint


def _wire_union(arguments: tuple[Any, ...], within: tuple[type, ...]) -> Any:
    """Let whole numbers of a union come as strings, unless strings mean something else in it."""
    wires = tuple(argument if argument is int else _wire_type(argument, within) for argument in arguments)
    plain: Any = typing.Union[wires]  # noqa: UP007 - made at run time
    if int not in arguments or str in arguments:  # a text that is no number would be refused
        return plain
    lenient: Any = plain | _WHOLE
    try:
        msgspec.json.Decoder(lenient)
    except TypeError:
        return plain
    return lenient


def _is_foreign(info: object) -> bool:
    """Tell whether msgspec's description of a type has one in it that it cannot make by itself.

    Those are foreign types, and attrs classes, of which it does not know the names on the wire.
    """
    stack, seen = [info], set[int]()
    while stack:
        entry = stack.pop()
        if isinstance(entry, msgspec.inspect.CustomType):
            return True
        if isinstance(entry, msgspec.inspect.DataclassType) and attrs.has(entry.cls):
            return True
        if isinstance(entry, tuple):
            stack.extend(entry)
        elif isinstance(entry, msgspec.inspect.Type | msgspec.inspect.Field) and id(entry) not in seen:
            seen.add(id(entry))
            if not isinstance(entry, msgspec.inspect.StructType):  # msgspec's own: there is no other way
                stack.extend(getattr(entry, name) for name in entry.__struct_fields__)
    return False


# cattrs: for what msgspec cannot do.

_own_hooks: set[Any] = set()


@cache
def converter() -> cattrs.Converter:
    """Return the one cattrs converter: register structure hooks on it, before a model is first used.

    It is stricter than a plain one: null is no text, 3.5 is no whole number, true is no number.
    """
    import cattrs.gen

    made = cattrs.Converter(structure_fallback_factory=_by_msgspec)
    for primitive, accepted in ((int, (int, str)), (float, (float, int)), (str, (str,)), (bool, (bool,))):
        made.register_structure_hook(primitive, _own(_strict(primitive, accepted)))

    def from_wire(cls: Any) -> Callable[[Any, Any], Any]:
        attrs.resolve_types(typing.get_origin(cls) or cls)
        names: dict[str, Any] = {
            a.name: cattrs.gen.override(rename=_name_on_wire(a)) for a in attrs.fields(cls)
        }
        make = cattrs.gen.make_dict_structure_fn(cls, made, **names)

        def structure(value: Any, kind: Any) -> Any:
            if not isinstance(value, dict):
                raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
            return make(value, kind)

        return _own(structure)

    made.register_structure_hook_factory(attrs.has, from_wire)
    return made


def _own(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    _own_hooks.add(hook)
    return hook


def _is_hooked(kind: Any) -> bool:
    """Tell whether a user has registered a hook for a class; without a converter nobody has."""
    if not converter.cache_info().currsize or not isinstance(kind, type):
        return False
    import cattrs

    try:
        hook = converter().get_structure_hook(kind, cache_result=False)
    except (cattrs.StructureHandlerNotFoundError, NameError):  # nothing knows it, or what it is made of
        return False
    # Hooks of cattrs itself, for enumerations and the like, do what msgspec does.
    of_cattrs = (getattr(hook, "__module__", None) or "cattrs").startswith("cattrs")
    return hook not in _own_hooks and (attrs.has(kind) or not of_cattrs)


def _name_on_wire(attribute: attrs.Attribute[Any]) -> str:
    """Return the name on the wire: an alias as it is, else as Python's name says (`_block_number` too)."""
    plain = attribute.name.lstrip("_")
    return wire_name(plain) if attribute.alias in (plain, attribute.name) else str(attribute.alias)


def _by_msgspec(kind: Any) -> Callable[[Any, Any], Any]:
    """Make what neither cattrs nor a user has a hook for: dates, decimals, UUIDs, Structs."""
    import cattrs

    try:
        foreign = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:
        foreign = True
    if foreign:
        message = f"{kind!r} is unknown: register a structure hook for it with chainapi.models.converter()"
        raise cattrs.StructureHandlerNotFoundError(message, kind)
    return _own(lambda value, _: msgspec.convert(value, kind))


def _strict(primitive: type, accepted: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        digits = primitive is not int or type(value) is int or re.match(DIGITS, str(value))
        if type(value) not in accepted or not digits:
            raise TypeError(f"Expected `{primitive.__name__}`, got `{type(value).__name__}`")
        return primitive(value)

    return structure


def _check_cattrs(model: Any) -> None:
    """Find out before anything is sent whether cattrs can make rows of a model."""
    import cattrs

    try:
        converter().get_structure_hook(model)
    except (cattrs.StructureHandlerNotFoundError, NameError) as error:
        raise ConfigurationError(f"model={model!r} cannot be made from JSON: {error}") from None


def _structure(rows: Sequence[Any], model: Any) -> list[Any]:
    import cattrs

    several: Any = types.GenericAlias(list, (model,))
    try:
        made: list[Any] = converter().structure(rows, several)
    except cattrs.BaseValidationError as error:
        reason, path = _first_fault(error)
        raise DecodeError(reason, path=f"${path}") from None
    return made


def _first_fault(error: BaseException) -> tuple[str, str]:
    """Return what is wrong first among all that cattrs found, and its JSON path."""
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
        fields = attrs.fields_dict(kind) if attrs.has(kind) else {}
        name = _name_on_wire(fields[note.name]) if note.name in fields else note.name
        path += f".{name}"
    if isinstance(error, KeyError) and error.args == (name,):
        return "missing", path
    return str(error) or type(error).__name__, path
