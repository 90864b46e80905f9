"""Timestamps of records: fields in whole seconds, properties as datetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Self, overload

__all__ = ["OptionalUTCDatetime", "UTCDatetime", "utc_datetime"]


def utc_datetime(timestamp: int) -> datetime:
    """Return Unix time in seconds as an aware datetime in UTC.

    Raises:
        ValueError: the timestamp lies outside the years 1 to 9999.

    """
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"timestamp {timestamp} is outside the years 1 to 9999") from None


class UTCDatetime:
    """Property of a record: a field in Unix seconds as an aware datetime in UTC.

    Raises:
        ValueError: when it is read, and the timestamp lies outside the years 1 to 9999.

    """

    def __init__(self, field: str) -> None:
        self.field = field

    @overload
    def __get__(self, record: None, kind: type) -> Self: ...

    @overload
    def __get__(self, record: object, kind: type) -> datetime: ...

    def __get__(self, record: Any, kind: type) -> Self | datetime:
        return self if record is None else utc_datetime(getattr(record, self.field))


class OptionalUTCDatetime:
    """Property like `UTCDatetime` of an optional field; it is None if the field is."""

    def __init__(self, field: str) -> None:
        self.field = field

    @overload
    def __get__(self, record: None, kind: type) -> Self: ...

    @overload
    def __get__(self, record: object, kind: type) -> datetime | None: ...

    def __get__(self, record: Any, kind: type) -> Self | datetime | None:
        if record is None:
            return self
        timestamp = getattr(record, self.field)
        return None if timestamp is None else utc_datetime(timestamp)
