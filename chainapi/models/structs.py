"""Private Structs of records and attrs classes, into which msgspec decodes.

There are two kinds. A strict decoder reads a `wire_type`; whole numbers may come as strings of digits, which
a pattern checks. A lax decoder reads a `fast_type`: it makes whole numbers of strings without a pattern. It
would also take 1.0 and 1e3 as whole numbers, rounded if they are large, and a string as a float. So the types
are unions with a type of the refused values: a constraint that no value meets refuses them. A lax decoder
reads the other types of the fast path like a strict one, except for null: it would accept the text "null"
too. So there are two fast types. The first accepts null in place of a text only. The second, with `nulls`,
accepts it for each optional type; it reads JSON without such a string alone (`may_hold_null_text`).
Constraints of `Annotated` are checked in the second step, on the model. Fields of numbers and strings without
constraints need no second step if their defaults are of their types (`direct_type`).

With `strict`, Structs refuse fields that the record does not name.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import attrs
import msgspec

from chainapi.core.numbers import DIGITS
from chainapi.models.hooks import is_hooked
from chainapi.models.in_place import in_place
from chainapi.models.native import has_native_numbers, is_misread
from chainapi.models.schema import Field, Kind, Type, fields_of, list_of, type_of
from chainapi.models.unions import Tag

__all__ = ["Decoded", "direct_type", "fast_struct", "fast_type", "may_hold_null_text", "wire_type"]

_NO_FLOAT: Any = Annotated[float, msgspec.Meta(ge=1, le=0)]
_NO_TEXT: Any = Annotated[str, msgspec.Meta(pattern="(?!)")]
# Types that a lax decoder is to refuse, for the kinds of fields that need no second step.
_REFUSED: Mapping[Kind, tuple[Any, ...]] = {"integer": (_NO_FLOAT,), "float": (_NO_TEXT,), "text": ()}


def _lax(kind: Kind, given: Any, *more: Any) -> Any:
    """Return a type for a lax decoder; `more` are further types of its union."""
    return typing.Union[(given, *_REFUSED[kind], *more)]


_FLOAT: Any = _lax("float", float)
_FAST: Mapping[Kind, Any] = {
    "any": Any,
    "boolean": Any,
    "decimal": str,  # a lax decoder would take the sign of "-0" away
    "float": _FLOAT,
    "integer": _lax("integer", int),
    "text": str,
}
_WHOLE: Any = int | Annotated[str, msgspec.Meta(pattern=DIGITS)]


class Decoded(msgspec.Struct):
    """Base of the Structs into which msgspec decodes.

    A row of a table has two values more than its record: the label of its source, and its unnamed fields. A
    Struct with both is converted from one without; msgspec would search each row for them, which is slow.
    """

    _label: ClassVar[msgspec.UnsetType] = msgspec.UNSET
    _unnamed: ClassVar[None] = None
    _extra: ClassVar[msgspec.UnsetType] = msgspec.UNSET  # of a record, likewise


def may_hold_null_text(content: bytes) -> bool:
    """Check JSON for a string that a lax decoder takes for null.

    It is "null" in any case, or with escapes.
    """
    # From the right: `in` takes more than twice as long on the JSON of a page.
    return b"\\" in content or content.lower().rfind(b'"null"') >= 0


def fast_type(model: Any, *, strict: bool, nulls: bool = False) -> Any:
    """Return the type of a model on the fast path; TypeError if it has none."""
    kind = type_of(model)
    if kind.optional:
        raise TypeError(f"{kind} is not on the fast path")
    return _fast_type(kind, strict, nulls)


def _nullable(kind: Type, strict: bool, nulls: bool) -> Any:
    """Return the type on the fast path.

    It has None for an optional text, and with `nulls` for any optional value.
    """
    fast = _fast_type(kind, strict, nulls)
    if not kind.optional or fast is Any or not (nulls or fast in (str, _FLOAT)):
        return fast
    return typing.Optional[fast]  # noqa: UP045 - made at run time


def _fast_type(kind: Type, strict: bool, nulls: bool) -> Any:
    """Return the type on the fast path, without None.

    Raises TypeError if the type has no fast path.
    """
    if kind.kind in _FAST:
        return _FAST[kind.kind]
    if kind.kind == "literal" and {*map(type, kind.choices)} == {str}:
        return str
    if kind.kind in ("list", "mapping"):
        item = _nullable(kind.item, strict, nulls)
        if kind.origin is list:
            return list_of(item)
        if kind.origin is dict and kind.key.hint is str:
            return types.GenericAlias(dict, (str, item))
    if attrs.has(kind.hint) and kind.kind == "record":
        return fast_struct(kind.hint, strict=strict, nulls=nulls)
    raise TypeError(f"{kind} is not on the fast path")


def fast_struct(model: type, tag: Tag | None = None, *, strict: bool, nulls: bool = False) -> Any:
    """Derive the Struct of the fast path; msgspec reads the field of a `tag`."""
    fields: list[Any] = []
    constants: dict[str, Any] = {}
    for field in fields_of(model):
        if tag is not None and field.wire == tag.path[0]:
            constants[field.name] = tag.value
            continue
        fields.append((field.name, _nullable(field.type, strict, nulls), _wire_field(field)))
    if tag is None:
        return _struct(model, fields, strict)
    return _struct(model, fields, strict, namespace=constants, tag_field=tag.path[0], tag=tag.value)


def direct_type(struct: Any, model: type, *, strict: bool, nulls: bool = False) -> Any:
    """Return the type on the fast path that needs no second step.

    Args:
        struct: a Struct with the attributes of the model; other attributes keep their defaults.
        model: the model.
        strict: as in `fast_type`.
        nulls: as in `fast_type`.

    Raises:
        TypeError: the second step has to check or change a value.

    """
    named = {field.name: field for field in fields_of(model)}
    entries = msgspec.structs.fields(struct)
    names = {entry.name for entry in entries}
    if not named.keys() <= names or names & {field.wire for field in named.values()} - named.keys():
        raise TypeError(f"{struct} has other attributes than {model}")
    fields: list[Any] = []
    for entry in entries:
        field = named.get(entry.name)
        if field is None:  # a row with this name in JSON is refused
            fields.append((entry.name, _NO_FLOAT, msgspec.field(name=entry.name, default=entry.default)))
            continue
        kind = type_of(entry.type)
        if not _stays(field.default, kind, entry.type):
            raise TypeError(f"the default of {field.name} needs a second step")
        fields.append((entry.name, _direct_type(kind, nulls), _wire_field(field)))
    return in_place(struct, fields, strict=strict)


def _stays(default: Any, kind: Type, hint: Any) -> bool:
    """Check that the second step neither refuses nor changes a default."""
    if default is attrs.NOTHING:
        return True
    if type(default) not in (kind.hint, types.NoneType):  # 0 of a float; a function that makes any value
        return False
    try:
        msgspec.convert(default, hint)
    except msgspec.ValidationError:
        return False
    return True


def _direct_type(kind: Type, nulls: bool) -> Any:
    """Return the type on the fast path for a field; its constraints stay."""
    if kind.kind not in _REFUSED:
        raise TypeError(f"{kind} needs a second step")
    constraints = [note for note in kind.notes if isinstance(note, msgspec.Meta)]
    given: Any = Annotated[(kind.hint, *constraints)] if constraints else kind.hint
    nothing = (None,) if kind.optional and (nulls or kind.kind != "integer") else ()
    return _lax(kind.kind, given, *nothing)


def _struct(model: type, fields: list[Any], strict: bool, **more: Any) -> Any:
    # Decoded JSON has no cycles: the garbage collector can skip it.
    return msgspec.defstruct(
        model.__name__,
        fields,
        bases=(Decoded,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=strict,
        **more,
    )


def _struct_of(model: type, within: tuple[type, ...], strict: bool) -> Any:
    """Derive the Struct of an attrs class; TypeError if only cattrs can make it."""
    if model in within or is_hooked(model):
        raise TypeError(f"{model.__name__} needs cattrs")
    fields: list[Any] = []
    for field in fields_of(model):
        if not field.direct or field.hint is None:
            raise TypeError(f"{model.__name__}.{field.name} needs cattrs")
        fields.append((field.name, _wire_type(field.type, (*within, model), strict), _wire_field(field)))
    return _struct(model, fields, strict)


def _wire_field(field: Field) -> Any:
    if field.required:
        return msgspec.field(name=field.wire)
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            raise TypeError(f"the default of {field.name} needs cattrs")
        return msgspec.field(name=field.wire, default_factory=default.factory)
    try:
        msgspec.convert(default, field.hint)
    except msgspec.ValidationError:  # `height: int = None`
        raise TypeError(f"the default of {field.name} is not of its type: it needs cattrs") from None
    return msgspec.field(name=field.wire, default=default)


def wire_type(model: Any, *, strict: bool = False) -> Any:
    """Return the type that msgspec decodes for a model.

    Raises TypeError if only cattrs can make the model.
    """
    return _wire_type(type_of(model), (), strict)


def _wire_type(kind: Type, within: tuple[type, ...], strict: bool) -> Any:
    """Return the type of a value on the wire."""
    given = _given_type(kind, within, strict)
    wire = typing.Optional[given] if kind.optional else given  # noqa: UP045 - made at run time
    if not all(_is_kept(value, wire) for value in kind.listed):
        raise TypeError(f"{kind} lists a value that the second step takes for another one: it needs cattrs")
    return wire


def _is_kept(value: Any, wire: Any) -> bool:
    """Check that the second step keeps what the first one makes of a listed value."""
    try:
        made = msgspec.convert(value, wire)
        return bool(msgspec.convert(made, wire, strict=False) == made)
    except msgspec.ValidationError:  # msgspec takes no member with a number for its class
        return False


def _given_type(kind: Type, within: tuple[type, ...], strict: bool) -> Any:
    """Return the type of a value that is not None."""
    if kind.kind == "integer" and not is_hooked(int):
        return _WHOLE
    if kind.kind == "record" and attrs.has(kind.hint):
        return _struct_of(kind.hint, within, strict)
    if kind.kind == "list":
        more = (...,) if kind.origin is tuple else ()
        return types.GenericAlias(kind.origin, (_wire_type(kind.item, within, strict), *more))
    if kind.kind == "mapping":
        # Keys are strings; msgspec makes numbers of them by itself.
        return types.GenericAlias(kind.origin, (kind.key.hint, _wire_type(kind.item, within, strict)))
    if kind.kind in ("tuple", "union"):
        wires = tuple(_wire_type(member, within, strict) for member in kind.members)
        return _wire_union(kind, wires) if kind.kind == "union" else types.GenericAlias(tuple, wires)
    if within and has_native_numbers(kind.hint):
        raise TypeError(f"{kind} needs cattrs")
    if is_hooked(kind.hint) or _is_foreign(msgspec.inspect.type_info(kind.hint)):
        raise TypeError(f"{kind} needs cattrs")
    return kind.hint


def _wire_union(kind: Type, wires: tuple[Any, ...]) -> Any:
    """Accept whole numbers of a union as strings, unless strings are among its types."""
    members = zip(kind.members, wires, strict=True)
    strict: Any = typing.Union[  # noqa: UP007 - made at run time
        tuple(int if member.kind == "integer" else wire for member, wire in members)
    ]
    if any(member.kind == "text" for member in kind.members):  # strings that are no numbers would be refused
        return strict
    if _WHOLE in wires and any(map(_is_collection, wires)):
        raise TypeError(f"{kind} needs cattrs: msgspec crashes on a pattern of strings beside a collection")
    lenient: Any = typing.Union[wires]  # noqa: UP007 - made at run time
    try:
        msgspec.json.Decoder(lenient)
    except TypeError:
        return strict
    return lenient


def _is_collection(wire: Any) -> bool:
    info = msgspec.inspect.type_info(wire)
    return isinstance(info, msgspec.inspect.CollectionType | msgspec.inspect.DictType)


def _is_foreign(info: object) -> bool:
    """Check for a type in a type that msgspec cannot make by itself.

    Those are foreign types, and classes that it would read wrongly.
    """
    stack, seen = [info], set[int]()
    while stack:
        entry = stack.pop()
        if isinstance(entry, msgspec.inspect.CustomType) or is_misread(getattr(entry, "cls", None)):
            return True
        if isinstance(entry, tuple):
            stack.extend(entry)
        elif isinstance(entry, msgspec.inspect.Type | msgspec.inspect.Field) and id(entry) not in seen:
            seen.add(id(entry))
            stack.extend(getattr(entry, name) for name in entry.__struct_fields__)
    return False
