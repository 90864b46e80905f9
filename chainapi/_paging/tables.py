"""Tables: rows of a stream as Arrow, and as data frames of pandas and polars.

pyarrow and the modules on it are loaded in a thread, when a table is read for the first time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import define, field

from chainapi._http.threads import in_thread
from chainapi._paging.walk import Walk
from chainapi._tables.columns import columns_of
from chainapi._tables.types import A_MODEL, Amounts, checked_amounts
from chainapi.core.extras import missing_extra
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from chainapi._api.source import ListSource
    from chainapi._tables.build import TableBuilder
    from chainapi.models.invalid import Invalid

__all__ = ["Tables", "library", "pandas_frame"]


_LOADED: set[tuple[Any, Amounts]] = set()  # models whose columns are known: the next table needs no thread
_CACHED = 256  # models


@define(eq=False)
class ArrowBatch:
    """Rows that were taken for a record batch."""

    builder: TableBuilder
    reader: str

    @property
    def size(self) -> int:
        """Number of the rows of the table."""
        return self.builder.size

    def __len__(self) -> int:
        return self.builder.taken

    def take(self, walk: Walk, most: int | None) -> None:
        """Take the next rows of the open page, at most that many.

        Raises:
            ColumnValueError: a value does not fit its column; the walk stands where it stood.

        """
        indices, behind = walk.next_rows(most)
        rows = walk.page.rows
        self.builder.add(rows if len(indices) == len(rows) else [rows[at] for at in indices], indices)
        walk.move_to(behind)

    def given(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatch`."""
        from chainapi._tables.build import batch_of

        return batch_of(self.builder.table())

    def partial(self) -> Any:
        """Return the rows taken before an error: a table, or a list without a model."""
        return self.builder.partial()

    def split(self, count: int) -> None:
        """Return None: inferred types could differ from the types of the rest."""


class ArrowTable(ArrowBatch):
    """Rows that were taken for a table."""

    def given(self) -> Any:
        """Return the rows as a `pyarrow.Table`."""
        return self.builder.table()


@define(eq=False)
class Tables:
    """Maker of batches with the columns of one stream.

    Attributes:
        source: the list query.
        left_out: invalid rows are appended here.
        amounts: the form of amounts.

    """

    source: ListSource
    left_out: list[Invalid]
    amounts: Amounts = field(converter=checked_amounts)

    async def load(self, *, fixed: bool = False) -> None:
        """Load pyarrow and the model; with `fixed`, refuse rows without types.

        Raises:
            ConfigurationError: pyarrow is not installed, or the types are not known before the rows.

        """
        wanted = self.source.model, self.amounts
        builder = self._builder() if wanted in _LOADED else await in_thread(self._builder)
        if len(_LOADED) >= _CACHED:
            _LOADED.clear()
        _LOADED.add(wanted)
        if fixed and not builder.typed:
            raise ConfigurationError(
                f"arrow_batches() needs the types of the rows before the first one: pass {A_MODEL}, or read"
                " them all with to_arrow()"
            )

    @property
    def batches(self) -> str:
        """Method that gives the batches, with the form of amounts that they have."""
        return f"arrow_batches{self._arguments}"

    @property
    def whole(self) -> str:
        """Methods that give the whole table."""
        return f"to_arrow{self._arguments}, to_pandas{self._arguments} or to_polars{self._arguments}"

    @property
    def _arguments(self) -> str:
        return "()" if self.amounts == "text" else f"(amounts={self.amounts!r})"

    def begin(self) -> ArrowBatch:
        """Begin a batch."""
        return ArrowBatch(self._builder(), self.batches)

    def begin_whole(self) -> ArrowTable:
        """Begin a table."""
        return ArrowTable(self._builder(), self.whole)

    def _builder(self) -> TableBuilder:
        from chainapi._tables.build import builder_of

        source = self.source
        lenient = source.on_invalid == "raw"
        return builder_of(source.model, self.amounts, self.left_out, lenient=lenient)


def pandas_frame(pandas: Any, table: Any, model: Any) -> Any:
    """Return a table as a data frame, with Python ints for the amounts of a model."""
    frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    for column in () if model is None else columns_of(model):
        if column.kind == "digits":
            numbers = [None if text is None else int(text) for text in table[column.name].to_pylist()]
            frame[column.name] = pandas.Series(numbers, dtype=object, index=frame.index)
    return frame


async def library(name: str) -> Any:
    """Return pandas or polars, loaded in a thread.

    Raises:
        ConfigurationError: it is not installed.

    """
    try:
        return await in_thread(import_module, name)
    except ModuleNotFoundError as error:
        raise missing_extra(f"to_{name}() needs", error.name, name) from None
