"""Rows of a model: msgspec makes records, cattrs or Pydantic other classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import msgspec

from chainapi.errors import ConfigurationError
from chainapi.models.decode_errors import DECODING_ERRORS, finish_one, to_decode_error
from chainapi.models.direct import DirectDecoder, is_direct
from chainapi.models.exact_json import exact_number, json_list
from chainapi.models.kinds import KindReader, grouped
from chainapi.models.own import check_model, structure
from chainapi.models.pydantic_model import PydanticRows, is_pydantic
from chainapi.models.schema import list_of
from chainapi.models.unions import Tag, Unknown, tags_of

__all__ = ["Decoder", "RowDecoder", "row_decoder"]

Shape: TypeAlias = Callable[[Any], Any]  # from the type of a row to the type of the JSON around it
Finish: TypeAlias = Callable[[list[Any]], list[Any]]


class GeneralDecoder:
    """Decoder of JSON with rows of any model, like `DirectDecoder`.

    `finish` makes the rows of JSON values, or of the raw JSON of each.
    """

    def __init__(self, model: Any, shape: Shape) -> None:
        wire, finish = _maker_of(model)
        self.finish: Finish = finish
        decoder = msgspec.json.Decoder(shape(wire), float_hook=exact_number)
        self.decode: Callable[[bytes | msgspec.Raw], Any] = decoder.decode

    def several(self, rows: bytes, *, unnamed: bool = False) -> list[Any]:
        """Decode a list of rows."""
        return self.finish(self.decode(rows))


Decoder: TypeAlias = DirectDecoder | GeneralDecoder


class RowDecoder:
    """Decoder of the rows of a model, or of JSON values without one.

    Raises:
        ConfigurationError: the model cannot be made from JSON; the message names what is missing.

    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._direct = is_direct(model)
        self._one, self._several = self.of(lambda wire: wire), self.of(list_of)

    def of(self, shape: Shape) -> Decoder:
        """Return a decoder of JSON with rows, which refuses unnamed fields of records.

        `shape` is the function from the type of a row to the type of the JSON.
        """
        return (DirectDecoder if self._direct else GeneralDecoder)(self._model, shape)

    def one(self, raw: bytes | msgspec.Raw) -> Any:
        """Decode one row.

        Raises:
            DecodeError: it does not fit the model.

        """
        try:
            return finish_one(self._one.finish, self._one.decode(raw))
        except DECODING_ERRORS as error:
            fault = to_decode_error(error)
        if fault.malformed or not self._direct:
            raise fault
        return finish_one(self.several, raw)  # with fields that no record names

    def several(self, raws: Sequence[bytes | msgspec.Raw], *, unnamed: bool = False) -> list[Any]:
        """Decode rows; with `unnamed`, some have fields that no record names.

        Raises:
            DecodeError: one of them does not fit the model; the path begins with its number.

        """
        try:
            return self._several.several(json_list(raws), unnamed=unnamed)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None


def row_decoder(model: Any) -> RowDecoder:
    """Return the decoder of the rows of a model, one for all routes.

    Raises:
        ConfigurationError: the model cannot be made from JSON; the message names what is missing.

    """
    try:
        return _row_decoder(model)
    except TypeError as error:  # not even hashable
        raise ConfigurationError(
            f"model={model!r} is not a class that rows can be decoded into: {error}"
        ) from None


_row_decoder = lru_cache(maxsize=256)(RowDecoder)


def _maker_of(model: Any) -> tuple[Any, Finish]:
    """Return the type of a row in JSON, and the function that makes rows.

    Raises:
        ConfigurationError: the model cannot be made from JSON; the message names what is missing.

    """
    if tags := tags_of(model):
        return msgspec.Raw, _Union(tags)
    if is_pydantic(model):
        return msgspec.Raw, PydanticRows(model)
    check_model(model)
    return Any, partial(structure, model=model)


class _Union:
    """Maker of the rows of a union.

    It reads the kind of each row, then makes the rows of each kind together.
    """

    def __init__(self, tags: Sequence[Tag]) -> None:
        self._kinds = KindReader(tags)

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Make the rows; the path of a fault has the number of its row."""
        try:
            return self._make(rows)
        except DECODING_ERRORS:
            return [finish_one(self._make, row, f"$[{number}]") for number, row in enumerate(rows)]

    def _make(self, rows: list[Any]) -> list[Any]:
        return grouped(rows, self._kinds(rows), self._of)

    def _of(self, kind: type, raws: list[Any]) -> list[Any]:
        if kind is Unknown:
            return [Unknown(_OBJECT.decode(raw)) for raw in raws]
        return row_decoder(kind).several(raws)


_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number)
