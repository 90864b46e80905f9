"""Page: one page of a list, with the checkpoint after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

from attrs import define, field

from chainapi._http.response import RawResponse
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.walk import Walk
from chainapi.models.codec import decode_resource
from chainapi.models.shown import described

if TYPE_CHECKING:
    import pyarrow as pa

    from chainapi._tables.types import Amounts

__all__ = ["MetricPage", "Page"]

T = TypeVar("T")


@define(repr=False)
class Page(Generic[T]):
    """One page as the service sent it.

    Attributes:
        items: its rows, in the service's order; after a resume inside a page, the rest of them.
        next_page_token: the token to the next page; None on the last one.
        checkpoint: position after the page: it resumes with the next one.
        restarts: number of restarts of the stream before this page.
        extra: further fields that the route names, such as ``chain_info``.
        body: the response body as the service sent it.
        response: the response: status, headers, request id, seconds.
        model: class of the rows; None if they are plain JSON values.
        lenient: whether tables leave out rows with a value that does not fit its column.

    """

    items: list[T]
    next_page_token: str | None
    checkpoint: Checkpoint
    restarts: int
    extra: Mapping[str, Any] = field(factory=dict[str, Any], kw_only=True)
    body: bytes = field(default=b"{}", kw_only=True, eq=False)
    response: RawResponse = field(factory=RawResponse, kw_only=True, eq=False)
    model: Any = field(default=None, kw_only=True, eq=False)
    lenient: bool = field(default=False, kw_only=True, eq=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            rows = () if name.startswith("_") or name == "items" else self.items[:1]
            of_rows = any(hasattr(row, name) for row in rows)
            hint = "it is one of each row in `page.items`" if of_rows else "its rows are `page.items`"
            raise AttributeError(f"a page has no attribute {name!r}: {hint}")

        def __getitem__(self, place: object) -> NoReturn:
            raise TypeError("a page has no index: write `page.items[0]`")

    @property
    def raw(self) -> dict[str, Any]:
        """Decode the whole response as plain JSON, at each access.

        It has the fields that no model names as well.
        """
        return cast("dict[str, Any]", decode_resource(self.body))

    @classmethod
    def of(cls, walk: Walk, extra: Sequence[str], rows: list[T] | None = None) -> Self:
        """Return the open page of a walk.

        Args:
            walk: the walk.
            extra: names of the further fields.
            rows: its rows, if they are not all rows of the page.

        """
        page = walk.page
        return cls(
            page.rows if rows is None else rows,
            page.next_page_token,
            walk.end,
            walk.restarts,
            extra=dict(zip(extra, page.extra, strict=True)) if extra else {},
            body=page.body,
            response=walk.response or RawResponse(body=page.body),
        )

    def to_arrow(self, *, amounts: Amounts = "text") -> pa.Table:
        """Return the rows as a table of Arrow (see `Pages.to_arrow`).

        With ``on_invalid="raw"``, invalid rows, and rows with a value that does not fit its column, are left
        out; `items` has them.

        Raises:
            ConfigurationError: `amounts` is unknown, pyarrow is not installed, or rows without a model have
                values without a common type.
            ColumnValueError: a value does not fit its column.

        """
        from chainapi._tables.build import table_of

        return table_of(self.items, self.model, amounts, lenient=self.lenient)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as a stream of Arrow, for libraries that read its C interface.

        DuckDB, pandas, polars and pyarrow read a page by this method.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        token = "no page token" if self.next_page_token is None else "page token"
        return f"<{type(self).__name__}: {described(self.items)}, {token}>"

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


@define(repr=False)
class MetricPage(Page[T]):
    """One page of a metric (specification, section 2).

    Attributes:
        status: the status that the body repeats, 200; None if it is missing.
        last_run: Unix time in seconds when the data was last updated; None if it is missing.

    """

    status: int | None = None
    last_run: int | None = None

    @classmethod
    def of(cls, walk: Walk, extra: Sequence[str], rows: list[T] | None = None) -> Self:
        """Return the open page of a walk over a metric (see `Page.of`)."""
        page = super().of(walk, extra, rows)
        page.status, page.last_run = page.extra["status"], page.extra["last_run"]
        return page
