"""Untracked records: the garbage collector skips them while they hold scalars.

The collector visits each object that may be part of a reference cycle, again and again while it is young. A
walk over pages of thousands of small rows spends as much time there as on their decoding. A msgspec Struct
without ``gc`` has no place for the collector's links, and msgspec decodes JSON into it directly.

To their users such records stay attrs classes: attrs, cattrs, pickle and copy take them as such, and a class
derived from one is an attrs class with all freedom. A record with fields that no record names is an object of
the attrs class itself, which keeps them: it is an instance of the Struct too, and equal to one.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn, TypeVar, cast

import attrs
import msgspec
from attrs.exceptions import FrozenInstanceError
from msgspec.structs import asdict, astuple

from chainapi.models.records import SET_EXTRA, AnyRecord

__all__ = ["class_with_extra", "is_untracked", "untracked"]

T = TypeVar("T", bound=AnyRecord)

# Parts of an attrs class that concern its slots; a Struct has its own.
_OF_SLOTS = frozenset(
    {"__attrs_init__", "__delattr__", "__dict__", "__eq__", "__getstate__", "__init__", "__ne__"}
    | {"__setattr__", "__setstate__", "__slots__", "__weakref__", "_extra"}
)


class _UntrackedMeta(msgspec.StructMeta):
    """Type of untracked records.

    A class derived from one is derived from its attrs class instead.
    """

    _tracked: type  # the attrs class

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _UntrackedMeta:
        """Make an untracked record, or a class derived from one."""
        tracked = tuple(map(class_with_extra, bases))
        if tracked == bases:
            return super().__new__(mcs, name, bases, namespace, **options)
        made = types.new_class(name, tracked, options, lambda given: given.update(namespace))
        return cast("_UntrackedMeta", made)

    def __instancecheck__(cls, instance: object) -> bool:
        """Return whether an object is such a record, or of a class derived from it."""
        return type.__instancecheck__(cls, instance) or isinstance(instance, cls._tracked)

    def __subclasscheck__(cls, kind: type) -> bool:
        """Return whether a class is this one, or derived from it."""
        return type.__subclasscheck__(cls, kind) or issubclass(kind, cls._tracked)


def is_untracked(model: object) -> bool:
    """Check for a class of untracked records."""
    return isinstance(model, _UntrackedMeta)


def class_with_extra(model: type) -> type:
    """Return the class of records that keep fields that no record names."""
    return model._tracked if isinstance(model, _UntrackedMeta) else model  # noqa: SLF001 - of this module


def untracked(record: type[T]) -> type[T]:
    """Return a frozen attrs record as a class of untracked objects.

    The fields have no converters, and no defaults that a function makes.
    """
    fields = attrs.fields(cast("type[attrs.AttrsInstance]", record))
    names = [field.name for field in fields]
    hints = {name: record.__annotations__[name] for name in names}
    namespace = {name: value for name, value in vars(record).items() if name not in _OF_SLOTS | {*names}}
    namespace |= {field.name: field.default for field in fields if field.default is not attrs.NOTHING}
    namespace |= _METHODS | {"__annotations__": hints, "_tracked": record}
    keywords = any(field.kw_only for field in fields)
    made = _UntrackedMeta(
        record.__name__,
        (msgspec.Struct, AnyRecord),
        namespace,
        gc=False,
        kw_only=keywords,
        forbid_unknown_fields=True,
    )
    _as_instances(record, made)
    # Where pickle finds it. Classes of `__main__` that are derived from it go to other processes by value.
    record.__qualname__ += "._tracked"
    return cast("type[T]", made)


def _refuse(record: Any, *_: object) -> NoReturn:
    raise FrozenInstanceError


def _reduce(record: Any) -> tuple[Any, ...]:
    return _restored, (type(record), asdict(record), {})


def _restored(kind: Any, values: Mapping[str, Any], extra: dict[str, Any]) -> Any:
    record = kind(**values)
    return _with_extra(record, extra) if extra else record


def _with_extra(record: Any, extra: bytes | dict[str, Any]) -> Any:
    """Return an object of the attrs class with the fields of a record and its JSON."""
    kind: Any = type(record)
    tracked = class_with_extra(kind)(**asdict(record))
    return tracked._with_extra(extra)  # noqa: SLF001 - of a record


def _all_with_extra(kind: Any, records: Sequence[Any], extras: Iterable[bytes]) -> list[Any]:
    """Return objects of the attrs class with the fields of records and their JSON.

    Setting field by field takes half the time of the `__init__` of a frozen class.
    """
    tracked = class_with_extra(kind)
    made: list[Any] = [*map(object.__new__, repeat(tracked, len(records)))]
    for name, values in zip(kind.__struct_fields__, zip(*map(astuple, records), strict=True), strict=False):
        _run(map(getattr(tracked, name).__set__, made, values))
    _run(map(SET_EXTRA, made, extras))
    return made


def _run(calls: Iterable[object]) -> None:
    deque(calls, maxlen=0)  # a loop in C


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}


def _copy(record: Any) -> Any:
    make, arguments = _reduce(record)
    return make(*arguments)


def _rich_repr(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that `rich` shows: that of a Struct would show secrets too."""
    return ((field.name, getattr(record, field.name)) for field in attrs.fields(type(record)) if field.repr)


_METHODS = {
    "__copy__": _copy,
    "__delattr__": _refuse,
    "__reduce__": _reduce,
    "__repr__": AnyRecord.__repr__,
    "__rich_repr__": _rich_repr,
    "__setattr__": _refuse,
    "_all_with_extra": classmethod(_all_with_extra),
    "_with_extra": _with_extra,
}


def _as_instances(record: Any, made: Any) -> None:
    """Have objects of an attrs class compared and pickled like those of its Struct."""
    is_equal, reduce = record.__eq__, record.__reduce__

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807 - becomes a method
        if type(self) is record and type(other) is made:
            return _values(self) == asdict(other)
        return is_equal(self, other)

    def __reduce__(self: Any) -> tuple[Any, ...]:  # noqa: N807 - becomes a method
        if type(self) is record:
            return _restored, (made, _values(self), dict(self.extra))
        given: tuple[Any, ...] = reduce(self)
        return given

    record.__eq__, record.__reduce__ = __eq__, __reduce__
