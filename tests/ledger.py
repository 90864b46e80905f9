"""Ledger: a service with one list of numbered rows, which has a start and an end, and grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define, field

from chainapi import ROUTES
from chainapi.transport import Request, Response
from tests.documents import Maker

__all__ = ["ADDRESS", "Ledger", "block", "ids", "point", "transfer"]

ADDRESS = "0x" + "1" * 40
Row = dict[str, Any]

_TRANSFER: Row = Maker(1, whole=True).page(ROUTES["data.evm.erc20_transactions"], 1)["transactions"][0]
_BLOCK: Row = Maker(1, whole=True).page(ROUTES["data.evm.blocks"], 1)["blocks"][0]


def transfer(number: int, serial: int) -> Row:
    """Return an ERC-20 transfer of a block, which `serial` identifies."""
    return {**_TRANSFER, "blockNumber": str(number), "txHash": f"0x{serial}", "logIndex": serial}


def block(number: int, serial: int) -> Row:
    """Return a block of a time, which `serial` identifies."""
    return {**_BLOCK, "blockTimestamp": number, "blockHash": f"0x{serial}", "blockNumber": str(serial)}


def point(number: int, serial: int) -> Row:
    """Return a point of a metric at a time."""
    return {"timestamp": number, "value": serial}


def ids(rows: Sequence[Any]) -> list[int]:
    """Return what identifies each row: the serial that it was made of."""
    return [int(row.tx_hash[2:]) for row in rows]


@define(eq=False)
class Ledger:
    """Transport of a list with a start and an end.

    Attributes:
        numbers: number of each row, from the oldest row on; its place in the list is its serial.
        make: makes a row of its number and serial.
        items: name of the list field.
        size: rows of a page, unless the request names another size.
        first_in: whether the start belongs to the range.
        last_in: whether the end belongs to it.
        latency: seconds of a request.
        grows: times of the loop at which a row with a number is added, in order.
        lifetime: seconds until a page token expires.
        shifts: whether tokens count rows from the head, so that growth shifts the pages.
        scrolls: whether all pages have one token, which opens the page after the last one.
        statuses: statuses of the first requests, before they are answered; 200 answers, and 0 stays without
            a response.
        requests: parameters of each request that was answered.
        sent: times at which requests came.
        changed: serials that rows are made of in place of their own: rows that changed.
        gone: serials of rows that the list has no longer.
        by_number: whether rows are listed by their numbers, so that some come late; else by their serials.

    """

    numbers: list[int]
    make: Callable[[int, int], Row] = transfer
    items: str = "transactions"
    size: int = 10
    first_in: bool = True
    last_in: bool = False
    latency: float = 0.02
    grows: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    lifetime: float = 86_400.0
    shifts: bool = False
    scrolls: bool = False
    bounds: bool = True
    statuses: list[int] = field(factory=list[int])
    headers: Mapping[str, str] = field(factory=dict[str, str])
    requests: list[dict[str, str]] = field(factory=list[dict[str, str]])
    sent: list[float] = field(factory=list[float])
    changed: dict[int, Row] = field(factory=dict[int, Row])
    gone: set[int] = field(factory=set[int])
    by_number: bool = False
    _tokens: dict[str, tuple[float, int]] = field(factory=dict[str, tuple[float, int]])

    async def send(self, request: Request) -> Response:
        """Answer a request for a page."""
        self.sent.append(self.now)
        await asyncio.sleep(self.latency)
        while self.grows and self.grows[0][0] <= self.now:
            self.numbers.append(self.grows.pop(0)[1])
        status = self.statuses.pop(0) if self.statuses else 200
        if not status:
            await asyncio.get_running_loop().create_future()
        if status != 200:
            return Response(status, self.headers, b'{"message": "no", "error": "no", "statusCode": 0}')
        params = dict(parse_qsl(urlsplit(request.url).query))
        self.requests.append(params)
        body = self._page(params)
        if body is None:
            return Response(400, {}, b'{"message": "expired", "error": "Bad Request", "statusCode": 400}')
        return Response(200, {}, json.dumps(body).encode())

    async def aclose(self) -> None:
        """Close nothing."""

    @property
    def now(self) -> float:
        """Time of the loop in seconds."""
        return asyncio.get_running_loop().time()

    def _page(self, params: Mapping[str, str]) -> Row | None:
        ascending = params.get("sortOrder") == "asc"
        serials = sorted(
            [serial for serial, number in enumerate(self.numbers) if self._holds(number, params)],
            key=self._order,
            reverse=not ascending,
        )
        serials = [serial for serial in serials if serial not in self.gone]
        place = 0
        if (token := params.get("pageToken")) is not None:
            minted, behind = self._tokens[token]
            if self.now - minted >= self.lifetime:
                return None
            place = behind if self.shifts else self._place(serials, behind, ascending=ascending)
        size = int(params.get("pageSize", self.size))
        page = serials[place : place + size]
        body: Row = {self.items: [self._row(serial) for serial in page]}
        if place + size < len(serials):
            name = "token" if self.scrolls else f"token-{len(self._tokens)}"
            self._tokens[name] = self.now, place + size if self.shifts else page[-1]
            body["nextPageToken"] = name
        return body

    def _row(self, serial: int) -> Row:
        return {**self.make(self.numbers[serial], serial), **self.changed.get(serial, {})}

    def _holds(self, number: int, params: Mapping[str, str]) -> bool:
        if not self.bounds:
            return True
        start = params.get("startBlock", params.get("startTimestamp"))
        end = params.get("endBlock", params.get("endTimestamp"))
        above = start is None or number > int(start) or (self.first_in and number == int(start))
        return above and (end is None or number < int(end) or (self.last_in and number == int(end)))

    def _order(self, serial: int) -> tuple[int, int]:
        return self.numbers[serial] if self.by_number else 0, serial

    def _place(self, serials: Sequence[int], behind: int, *, ascending: bool) -> int:
        """Return the place after a row."""
        last = self._order(behind)
        return sum(
            self._order(serial) <= last if ascending else self._order(serial) >= last for serial in serials
        )
