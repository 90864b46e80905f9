"""Pydantic classes as models: Pydantic itself reads the rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from chainapi.errors import DecodeError
from chainapi.models.decode_errors import finish_one, guarded, missing_field
from chainapi.models.exact_json import json_list
from chainapi.models.schema import list_of, type_of

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["PydanticRows", "is_pydantic"]


def is_pydantic(model: Any) -> bool:
    """Check whether a model is a Pydantic class, or a list of one.

    It does not load Pydantic.
    """
    return any(hasattr(part.hint, "__pydantic_validator__") for part in type_of(model).parts())


class PydanticRows:
    """Maker of rows of a model that Pydantic reads."""

    def __init__(self, model: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[list[Any]] = TypeAdapter(list_of(model))

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Make rows of their JSON.

        Raises:
            DecodeError: Pydantic refuses a row; the path begins with its number.

        """
        try:
            made: list[Any] = guarded(self._validate, json_list(rows))
        except DecodeError as error:
            fault = error
        else:
            return made
        if fault.path == "$":  # JSON that Pydantic cannot read, such as a number of more digits
            if len(rows) == 1:
                raise fault.changed(path="$[0]")
            return [finish_one(self, row, f"$[{number}]") for number, row in enumerate(rows)]
        raise fault

    def _validate(self, content: bytes) -> list[Any]:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(content)
        except ValidationError as error:
            raise _fault_of(error) from None


def _fault_of(error: ValidationError) -> DecodeError:
    """Return the first fault of a validation."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    names = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]]
    missing = first["type"] == "missing"
    reason = missing_field(str(first["loc"][-1])) if missing else re.sub(r"\s+", " ", first["msg"])
    return DecodeError(reason, path="$" + "".join(names))
