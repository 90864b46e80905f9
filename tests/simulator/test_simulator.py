"""Simulator: answers, limits, page tokens and faults."""

from __future__ import annotations

import asyncio
import gc
import re
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from chainapi import Limit, LimiterOptions, Provider, Session
from chainapi.errors import (
    APIConnectionError,
    AuthenticationError,
    QueueFullError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Settings, Simulator, World
from chainapi.transport import Request, Response
from tests.simulator import test_routes as routes
from tests.simulator.test_routes import loads, request

BLOCKS = "/v1/chains/43114/blocks"
TRANSACTIONS = "/v1/chains/43114/transactions"
UTXOS = "/v1/networks/mainnet/blockchains/p-chain/utxos"
TPS = "/v1/avg_tps/43114"
DAY = 86_400.0

Json = dict[str, Any]


class Caller(routes.Caller):
    """Calls a simulator with the settings that it has by itself."""

    defaults: ClassVar[Json] = {}


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the simulator has no event for what a test may wait for
            await asyncio.sleep(0)


def refused(response: Response) -> tuple[int, str, list[str]]:
    """Return status, phrase and messages of an error body with the right status."""
    error = loads(response.body)
    assert set(error) == {"message", "error", "statusCode"}
    assert error["statusCode"] == response.status
    return response.status, error["error"], error["message"]


# What the lists hold


def test_series_is_daily_descending_key_and_its_pages_end_without_a_token() -> None:
    """A series has a value with at most two decimals for each day, newest first, and ignores a page size."""
    caller = Caller(points=250, metrics_page_size=100)
    first = caller.body(TPS, pageSize="many", foo=1)
    points = caller.walk(TPS)
    stamps = [point["timestamp"] for point in points]

    assert list(first) == ["results", "status", "lastRun", "nextPageToken"]
    assert (first["status"], first["lastRun"], len(first["results"])) == (200, 1_767_225_600, 100)
    assert stamps == [1_767_225_600 - 86_400 * day for day in range(250)]
    assert all(set(point) == {"timestamp", "value"} for point in points)
    assert all(point["value"] > 0 and round(point["value"], 2) == point["value"] for point in points)
    assert len({point["value"] for point in points}) > 50


def test_blocks_are_chained_and_add_up() -> None:
    """Blocks chain: each parent hash, number, time and total agrees with the next row."""
    blocks = Caller(rows=100).walk(BLOCKS, pageSize=30)
    assert len(blocks) == 100
    for newer, older in pairwise(blocks):
        assert newer["parentHash"] == older["blockHash"]
        assert int(newer["blockNumber"]) == int(older["blockNumber"]) + 1
        assert newer["blockTimestamp"] == older["blockTimestamp"] + 2
        total = int(older["cumulativeTransactions"]) + newer["txCount"]
        assert int(newer["cumulativeTransactions"]) == total
        assert (newer["gasUsed"] == "0") == (newer["txCount"] == 0)
    assert {block["txCount"] for block in blocks} == {0, 1, 2, 3, 4}


def test_transactions_lie_in_the_blocks_that_count_them() -> None:
    """Transactions of a block match its count, at indexes from 0."""
    caller = Caller(rows=60)
    blocks = {block["blockHash"]: block for block in caller.walk(BLOCKS)}
    places: dict[str, list[int]] = {}
    rows = caller.walk(TRANSACTIONS)
    for row in rows:
        block = blocks[row["blockHash"]]
        assert (row["blockNumber"], row["blockTimestamp"]) == (block["blockNumber"], block["blockTimestamp"])
        places.setdefault(row["blockHash"], []).append(row["blockIndex"])
    oldest = rows[-1]["blockHash"]
    for name, indexes in places.items():
        complete = list(reversed(range(blocks[name]["txCount"])))
        assert indexes == (complete[: len(indexes)] if name == oldest else complete)
    assert len({row["txHash"] for row in rows}) == 60


def test_chains_come_all_at_once_unless_a_page_size_is_given() -> None:
    """Chains come in their given order, in one page unless a size is given.

    Each chain has a record of its own.
    """
    caller = Caller(chains=[43113, 7, 43114])
    whole = caller.body("/v1/chains")
    assert "nextPageToken" not in whole
    assert [chain["chainId"] for chain in whole["chains"]] == ["43113", "7", "43114"]
    assert [chain["isTestnet"] for chain in whole["chains"]] == [True, False, False]
    assert caller.walk("/v1/chains", pageSize=2) == whole["chains"]
    assert caller.body("/v1/chains/7") == whole["chains"][1]


@given(rows=st.integers(0, 40), size=st.integers(1, 100), inserted=st.lists(st.integers(0, 3), max_size=40))
def test_walk_gives_each_row_once_whatever_is_added_at_the_head(
    rows: int, size: int, inserted: list[int]
) -> None:
    """Rows that are added during a walk do not move it; a new walk begins with them."""
    caller = Caller(rows=rows)
    before = caller.walk(BLOCKS)
    query: dict[str, object] = {"pageSize": size}
    met: list[Json] = []
    for count in (*inserted, *[0] * 50):
        page = caller.body(BLOCKS, **query)
        met += page["blocks"]
        assert len(page["blocks"]) <= size
        if "nextPageToken" not in page:
            break
        caller.sim.insert(BLOCKS, count)
        query["pageToken"] = page["nextPageToken"]
    assert met == before
    assert caller.walk(BLOCKS)[-rows or None :][:rows] == before


def test_lists_grow_with_time() -> None:
    """Lists other than that of the chains gain a row per interval with grow_every."""
    caller = Caller(rows=5, points=5, grow_every=60.0)
    old = {path: caller.walk(path) for path in (BLOCKS, TPS)}
    chains = caller.body("/v1/chains")
    caller.now += 179.0
    grown = caller.walk(BLOCKS)
    points = caller.body(TPS)
    assert (len(grown), grown[2:]) == (7, old[BLOCKS])
    assert points["results"][2:] == old[TPS]
    assert points["lastRun"] == 1_767_225_600 + 2 * 86_400
    assert caller.body("/v1/chains") == chains


def test_rows_cannot_be_inserted_where_no_list_grows() -> None:
    """Insertion outside of a growing list raises ValueError with the path."""
    others = ("/v1/chains", "/v1/chains/43114", "/v1/nothing", "/v2/chains", f"{BLOCKS}/1/transactions")
    for path, count in [(BLOCKS, -1), *((other, 1) for other in others)]:
        with pytest.raises(ValueError, match=path):
            Caller().sim.insert(path, count)


# What a request must bring


def test_data_needs_a_valid_key() -> None:
    """A missing or invalid key of the Data API gets 401; the Metrics API needs none and has no limits."""
    for key in (None, "", "another", "simulated-key "):
        response = Caller(limit=10).response(BLOCKS, key=key)
        assert refused(response)[:2] == (401, "Unauthorized"), key
        assert set(response.headers) == {"content-type"}
    response = Caller(limit=10, metrics_limit=10).response(TPS, key=None)
    assert (response.status, set(response.headers)) == (200, {"content-type"})


def test_key_may_travel_in_another_header() -> None:
    """api_key_header sets the header's name, in any case of letters."""
    caller = Caller(api_key_header="X-Other-Key", api_key="k")
    asked = Request("GET", "http://any/data/v1/chains", {"x-other-key": "k"})
    assert caller.world.answer(caller.world.sent(asked, 0.0), 0.0).response.status == 200
    assert caller.response("/v1/chains", key="k").status == 401


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/apiUsageMetrics", 403, "Forbidden"),
        ("/v1/nothing", 404, "Not Found"),
        ("/v1/chains/", 400, "Bad Request"),
        ("/v1/chains/1", 404, "Not Found"),
        ("/v1/chains/1/blocks", 404, "Not Found"),
        ("/v1/chains/043114/blocks", 404, "Not Found"),
        ("/v1/avg_tps/1", 404, "Not Found"),
        ("/v1/avg_tps/43114/blocks", 404, "Not Found"),
        ("/v1/networks/moon/blockchains/p-chain/utxos", 400, "Bad Request"),
        ("/v1/networks/mainnet/blockchains/z-chain/utxos", 400, "Bad Request"),
        ("/v1/avg_tps/mainnet", 400, "Bad Request"),
        ("/v1/chains/43114%2Fblocks", 400, "Bad Request"),
        ("/v1/chains/" + "9" * 5000, 400, "Bad Request"),
    ],
)
def test_what_does_not_exist_is_refused_with_an_error_body(path: str, status: int, error: str) -> None:
    """Unknown, forbidden and malformed paths get their status and spend the limit."""
    caller = Caller(limit=10)
    response = caller.response(path)
    assert refused(response)[:2] == (status, error)
    assert ("ratelimit-remaining" in response.headers) == (not path.startswith("/v1/avg_tps/"))


def test_forbidden_paths_are_of_the_data_api() -> None:
    """`forbidden` affects Data API paths alone; the Metrics API has no privileges."""
    caller = Caller(forbidden=[BLOCKS, TPS])
    assert [caller.response(path).status for path in (BLOCKS, TPS, TRANSACTIONS)] == [403, 200, 200]


def test_other_paths_and_methods_do_not_exist() -> None:
    """A path of no service gets 404, and a method that a path does not have 405."""
    world = World(Settings())
    call = world.sent(Request("GET", "https://simulator.invalid/v1/chains"), 0.0)
    response = world.answer(call, 0.0).response
    assert refused(response)[:2] == (404, "Not Found")
    assert world.stats.requests == 1
    for method in ("POST", "HEAD", "DELETE"):
        assert refused(Caller().response(f"{method} {BLOCKS}"))[:2] == (405, "Method Not Allowed")


def test_escaped_path_is_the_same_list() -> None:
    """Paths are compared after decoding: a token and a fault work with either spelling."""
    caller = Caller(faults=[Fault(route=BLOCKS, status=500, at=3)])
    token = caller.body(BLOCKS)["nextPageToken"]
    assert caller.rows("/v1/chains/%343114/blocks", pageToken=token)
    assert caller.response("/v1/chains/%343114/blocks").status == 500


# Page tokens


def test_token_lives_for_its_lifetime_and_may_be_used_again() -> None:
    """A token gives the same rows for 24 hours and is refused from then on."""
    caller = Caller()
    token = caller.body(BLOCKS)["nextPageToken"]
    first = caller.body(BLOCKS, pageToken=token)
    caller.now += DAY - 1
    assert caller.rows(BLOCKS, pageToken=token) == first["blocks"]
    caller.now += 1
    assert refused(caller.response(BLOCKS, pageToken=token)) == (
        400,
        "Bad Request",
        ["pageToken has expired"],
    )
    assert caller.rows(BLOCKS, pageToken=caller.body(BLOCKS)["nextPageToken"]) == first["blocks"]
    assert (caller.world.stats.tokens_expired, caller.world.stats.tokens_minted) == (1, 5)


def test_expired_token_may_get_another_status() -> None:
    """An expired token gets expired_status after token_lifetime."""
    for status in (404, 410, 422, 499):
        caller = Caller(expired_status=status, token_lifetime=5.0)
        token = caller.body(TPS)["nextPageToken"]
        caller.now += 5
        assert refused(caller.response(TPS, pageToken=token))[0] == status


def test_token_is_bound_to_its_query() -> None:
    """A token that was never given out, or of another path or parameters, is a 400; each is given once."""
    caller = Caller()
    for unknown in ("", "5", "null", "x" * 100_000, "00000000-0000-4000-8000-000000000000"):
        assert refused(caller.response(BLOCKS, pageToken=unknown))[:2] == (400, "Bad Request")
    token = caller.body(BLOCKS, pageSize=10)["nextPageToken"]
    others: list[tuple[str, Json]] = [
        (BLOCKS, {"pageSize": 11}),
        (BLOCKS, {}),
        (BLOCKS, {"pageSize": 10, "status": "x"}),
        (TRANSACTIONS, {"pageSize": 10}),
        ("/v1/chains/43113/blocks", {"pageSize": 10}),
        (TPS, {"pageSize": 10}),
    ]
    for path, query in others:
        assert refused(caller.response(path, pageToken=token, **query))[:2] == (400, "Bad Request")
    tokens = [caller.body(path)["nextPageToken"] for path in (BLOCKS, BLOCKS, TPS, TRANSACTIONS)]
    assert len({token, *tokens}) == 5


# What is kept


def memory_of(requests: Callable[[], None]) -> int:
    """Return how many bytes more are kept after requests, when as many were made before."""
    kept: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(2):
            requests()
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return kept[1] - kept[0]


def test_dead_tokens_take_no_memory() -> None:
    """Expired page tokens are forgotten, and refused as before."""
    caller = Caller(token_lifetime=60.0, expired_status=410)
    first = caller.body(BLOCKS)["nextPageToken"]
    second = caller.body(BLOCKS, pageToken=first)["nextPageToken"]

    def requests() -> None:
        for _ in range(4_000):
            caller.now += 1
            caller.body(BLOCKS)

    assert memory_of(requests) < 200_000
    caller.world.settings.faults = (Fault(page=3, at=1, status=503),)
    for token, status in ((first, 410), (second, 503), (second, 410)):
        assert refused(caller.response(BLOCKS, pageToken=token))[0] == status
    assert refused(caller.response(BLOCKS, pageToken=first))[2] == ["pageToken has expired"]
    assert caller.world.stats.tokens_expired == 3


def test_many_lists_take_bounded_memory() -> None:
    """Lists of ever more addresses keep no more memory than some of them."""
    caller = Caller(rows=0)
    addresses = iter(range(10**6))

    def requests() -> None:
        for _ in range(2_000):
            caller.body(f"/v1/chains/43114/addresses/0x{next(addresses)}/transactions")
            caller.body(f"/v1/chains/43114/addresses/0x{next(addresses)}/balances:getNative")

    assert memory_of(requests) < 4 * 2**20


# Limits


def limits(response: Response) -> dict[str, str]:
    """Return the headers about limits."""
    return {name: value for name, value in response.headers.items() if name != "content-type"}


def test_limit_headers_are_those_of_the_specification() -> None:
    """Limit headers have policy, limit and remaining on every answer with a key.

    Refusals and later answers have reset and retry-after too.
    """
    caller = Caller(limit=2)
    policy = {"ratelimit-policy": "2;w=60", "ratelimit-limit": "2"}
    assert limits(caller.response(BLOCKS)) == {**policy, "ratelimit-remaining": "1"}
    caller.now += 30.5
    assert limits(caller.response(BLOCKS)) == {**policy, "ratelimit-remaining": "0"}
    answer = caller.response(BLOCKS)
    assert refused(answer)[:2] == (429, "Too Many Requests")
    reset = {"ratelimit-reset": "30", "retry-after": "30"}
    assert limits(answer) == {**policy, "ratelimit-remaining": "0", **reset}
    caller.now += 29.5
    assert limits(caller.response(BLOCKS)) == {**policy, "ratelimit-remaining": "1"}


def test_window_begins_with_the_first_request_in_it() -> None:
    """The next request after a window has ended opens a new one."""
    caller = Caller(limit=1, window=10.0)
    assert caller.response(BLOCKS).status == 200
    caller.now += 17
    assert caller.response(BLOCKS).status == 200
    caller.now += 9
    assert caller.response(BLOCKS).headers["retry-after"] == "1"


@example(start=4.4, window=60.0, passed=0.0)  # float sums make it a little more than 60
@given(start=st.floats(0, 1e9), window=st.floats(0.001, 1e6), passed=st.floats(0, 0.999))
def test_waiting_for_retry_after_is_always_enough(start: float, window: float, passed: float) -> None:
    """A client that waits exactly retry-after seconds, at least one, is served."""
    caller = Caller(limit=1, window=window)
    caller.now = start
    caller.response(BLOCKS)
    caller.now += window * passed
    answer = caller.response(BLOCKS)
    if answer.status == 429:
        caller.now += int(answer.headers["retry-after"])
        assert int(answer.headers["retry-after"]) >= 1
        assert caller.response(BLOCKS).status == 200
    assert caller.world.stats.sent_while_stopped == 0


def test_metrics_limit_has_no_headers() -> None:
    """The Metrics API refuses with 429, without a header about the wait."""
    caller = Caller(metrics_limit=1, metrics_window=10.0)
    caller.response(TPS, key=None)
    answer = caller.response(TPS, key=None)
    assert (refused(answer)[0], limits(answer)) == (429, {})
    assert caller.response(BLOCKS).status == 200
    caller.now += 10
    assert caller.response(TPS, key=None).status == 200
    assert caller.world.stats.refused == 1


async def test_a_day_has_a_limit_beside_the_minute() -> None:
    """A session keeps to the day's window too, whose headers it gets when fewer requests are left in it."""
    caller = Caller(limit=2, day_limit=3)
    headers = [limits(caller.response(BLOCKS)) for _ in range(2)]
    assert headers[1]["ratelimit-policy"] == "2;w=60, 3;w=86400"
    caller.now += 60
    headers += [limits(caller.response(BLOCKS)) for _ in range(2)]
    assert [one["ratelimit-limit"] for one in headers] == ["2", "2", "3", "3"]
    assert (headers[3]["ratelimit-remaining"], headers[3]["retry-after"]) == ("0", str(86_400 - 60))

    sim = Simulator(limit=10, day_limit=25, metrics_day_limit=2)
    async with Session(**sim.arguments()) as session:
        for _ in range(60):
            await session.data.get("/v1/chains/43114")
        assert 2 * DAY <= asyncio.get_running_loop().time() < 2 * DAY + 1_000
        assert sim.stats.sent_while_stopped == 0
        assert sim.stats.refused <= 3
    transport = sim.transport()
    assert [(await transport.send(request(TPS))).status for _ in range(3)] == [200, 200, 429]


async def test_who_goes_on_after_a_refusal_is_blocked() -> None:
    """With `block` three requests in a stop get a key blocked, and no other key; a session never is."""
    caller = Caller(limit=1, block=600.0, other_keys=["second"])
    waits = [caller.response(BLOCKS).headers.get("retry-after") for _ in range(6)]
    assert waits == [None, "60", "60", "60", "600", "600"]
    assert caller.response(BLOCKS, key="second").status == 200
    caller.now += 599
    assert caller.response(BLOCKS).headers["retry-after"] == "1"
    caller.now += 1
    assert caller.response(BLOCKS).status == 200

    sim = Simulator(limit=5, window=10.0, block=3_600.0, latency=0.1)
    async with Session(**sim.arguments()) as session:
        calls = (session.data.get("/v1/chains/43114") for _ in range(40))
        await asyncio.gather(*calls)
    assert sim.stats.refused > 0
    assert asyncio.get_running_loop().time() < 120


async def test_units_are_counted_by_a_session_too() -> None:
    """`weighted` charges the units of a route of the Metrics API, which a session counts alike."""
    sim = Simulator(metrics_limit=250, weighted=True, points=500)
    limit = Limit(250, per=60.0, units=True)
    async with Session(**sim.arguments(), limits={"metrics": [limit]}) as session:
        rows = await session.metrics.chains.metric(43114, "txCount", page_size=100).collect()
    assert (len(rows), sim.stats.refused) == (500, 0)
    assert asyncio.get_running_loop().time() >= 120


def test_limit_may_change_while_it_runs() -> None:
    """The limit may change at any request; one lowered below the use leaves 0."""
    caller = Caller(limit=10)
    caller.response(BLOCKS)
    caller.response(BLOCKS)
    caller.world.settings.limit = 1
    assert limits(caller.response(BLOCKS))["ratelimit-remaining"] == "0"
    caller.world.settings.limit = None
    assert limits(caller.response(BLOCKS)) == {}
    long = Caller(limit=1, window=2_592_000.0).response(BLOCKS)
    assert limits(long)["ratelimit-policy"] == "1;w=2592000"


# What is counted


def test_counts_go_by_status() -> None:
    """Requests are counted, and answers by their status."""
    caller = Caller(limit=2)
    for path, key in [(BLOCKS, "simulated-key"), (BLOCKS, None), (TPS, None), (TPS + "0", "simulated-key")]:
        caller.response(path, key=key)
    caller.response("/v1/chains")
    caller.response("/v1/chains")
    stats = caller.world.stats
    assert (stats.requests, dict(stats.answered)) == (6, {200: 3, 401: 1, 404: 1, 429: 1})
    assert stats.refused == 1


def test_requests_sent_before_the_refusal_arrived_are_excused() -> None:
    """Requests after a delivered 429 and before its end count as sent in a stop.

    Requests sent before the 429 arrived do not count.
    """
    world = World(Settings(limit=1, other_keys=("second",)))
    asked, other = request(BLOCKS), request(BLOCKS, key="second")
    world.answer(world.sent(asked, 0.0), 0.0)
    call = world.sent(asked, 1.0)
    answer = world.answer(call, 2.0)
    world.sent(asked, 2.9)
    world.delivered(call, answer.response, 3.0)
    assert (answer.response.headers["retry-after"], world.stats.sent_while_stopped) == ("58", 0)
    world.sent(asked, 3.0)
    world.sent(other, 3.0)
    world.sent(request(TPS), 3.0)
    world.sent(asked, 60.9)
    assert world.stats.sent_while_stopped == 2
    world.sent(asked, 60.999_999_9)
    assert world.stats.sent_while_stopped == 2


def test_second_refusal_never_shortens_the_stop() -> None:
    """A second refusal never shortens the stop; grace counts from the first alone."""
    world = World(Settings(faults=[Fault(every=1, status=429, headers={"Retry-After": "10"})]))
    asked = request(BLOCKS)
    call = world.sent(asked, 0.0)
    world.delivered(call, world.answer(call, 0.0).response, 0.0, grace=1.0)
    world.sent(asked, 0.5)
    assert world.stats.sent_while_stopped == 0
    world.settings.faults = (Fault(every=1, status=429, headers={"retry-after": "1"}),)
    world.delivered(call, world.answer(call, 2.0).response, 2.0, grace=1.0)
    world.sent(asked, 2.5)
    world.sent(asked, 9.5)
    world.sent(asked, 10.0)
    assert world.stats.sent_while_stopped == 2


# Faults


@pytest.mark.parametrize(
    ("fault", "met"),
    [
        (Fault(at=3, status=500), [3]),
        (Fault(every=3, status=500), [3, 6, 9]),
        (Fault(at=2, every=4, status=500), [2, 6, 10]),
        (Fault(at=5, every=1, times=2, status=500), [5, 6]),
    ],
)
def test_faults_keep_their_schedule(fault: Fault, met: list[int]) -> None:
    """Faults hit the requests given by at, every and times."""
    caller = Caller(faults=[fault])
    statuses = [caller.response(BLOCKS).status for _ in range(10)]
    assert [ordinal for ordinal, status in enumerate(statuses, 1) if status == 500] == met


def test_fault_needs_a_time_and_an_effect() -> None:
    """A fault without a time or with other than one effect is a ValueError."""
    stall, late = {"at": 1, "stall": True}, {"at": 1, "slow": 1.0}
    wrongs: list[dict[str, Any]] = [
        *({"status": 500}, {"at": 1}, {**stall, "at": 0}, {**stall, "truncate": True}),
        *({**late, "slow": seconds} for seconds in (-1.0, 0.0, float("inf"), float("nan"))),
        *({"at": 1, "status": 500, "stall_body": True}, {"at": 1, "truncate": True, "body": b""}),
        *({**stall, "messages": ["later"]}, {**late, "headers": {"retry-after": "1"}}),
        *({"at": 1, "expire": True, "malformed": True}, {"page": 0, "stall": True}),
        *({"after_page": 0, "stall": True}, {"share": 0.0, "stall": True}, {"share": 1.1, "stall": True}),
        *({"share": 0.5, "times": 2, "stall": True}, {"at": 1, "status": 199}, {"at": 1, "status": 600}),
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"fault|must be|need a status|in place of"):
            Fault(**wrong)


@pytest.mark.parametrize(
    ("route", "met"),
    [
        (BLOCKS, [BLOCKS]),
        ("/v1/chains/{chainId}/blocks", [BLOCKS]),
        ("/v1/chains/*/*", [BLOCKS, TRANSACTIONS]),
        ("data.evm.blocks", [BLOCKS]),
        ("data.evm.*", [BLOCKS, TRANSACTIONS]),
        ("data.*", [BLOCKS, TRANSACTIONS, UTXOS]),
        ("metrics.*", [TPS]),
        ("metrics.avg_tps", [TPS]),
        ("/v1/chains/43113/blocks", []),
        (None, [BLOCKS, TRANSACTIONS, UTXOS, TPS]),
    ],
)
def test_faults_are_aimed_at_routes(route: str | None, met: list[str]) -> None:
    """Faults on routes hit the requests to one route, some by name, or all."""
    caller = Caller(faults=[Fault(route=route, status=500, every=1)])
    paths = [BLOCKS, TRANSACTIONS, UTXOS, TPS]
    assert [path for path in paths if caller.response(path).status == 500] == met
    outside = caller.world.answer(
        caller.world.sent(Request("GET", "https://simulator.invalid" + BLOCKS), 0.0), 0.0
    ).response
    assert (outside.status == 500) == (route is None)


def test_aimed_faults_count_the_requests_to_their_route() -> None:
    """Faults on a route count the requests to that route alone in at, every and times."""
    caller = Caller(
        faults=[
            Fault(route="data.evm.blocks", every=2, times=2, status=500),
            Fault(route="data.evm.blocks", at=3, status=501),
            Fault(route="data.evm.transactions", status=502),
            Fault(at=9, status=503),
        ]
    )
    paths = [TPS, BLOCKS, BLOCKS, TRANSACTIONS, BLOCKS, BLOCKS, TRANSACTIONS, BLOCKS, TPS, BLOCKS]
    statuses = [caller.response(path).status for path in paths]
    assert statuses == [200, 200, 500, 502, 501, 500, 502, 200, 503, 200]


def test_pages_beyond_one_are_refused_in_the_words_of_the_service() -> None:
    """`after_page` refuses later pages with any token, up to `times` requests."""
    fault = Fault(
        route="data.evm.blocks", after_page=2, times=3, status=422, messages=["under maintenance until 17:00"]
    )
    caller = Caller(faults=[fault])
    token = caller.body(BLOCKS, pageToken=caller.body(BLOCKS)["nextPageToken"])["nextPageToken"]
    again = caller.body(BLOCKS, pageToken=caller.body(BLOCKS)["nextPageToken"])["nextPageToken"]
    for tried in (token, again, token):
        answer = caller.response(BLOCKS, pageToken=tried)
        assert refused(answer) == (422, "Unprocessable Entity", ["under maintenance until 17:00"])
    assert refused(caller.response(BLOCKS, pageToken="5"))[2] == ["pageToken must be a UUID"]
    assert len(caller.rows(BLOCKS, pageToken=token)) == 10


def test_one_page_is_refused() -> None:
    """`page` counts the requests for one page, with any token."""
    caller = Caller(faults=[Fault(page=2, at=2, status=503), Fault(page=1, at=4, status=500)])
    token = caller.body(BLOCKS)["nextPageToken"]
    third = caller.body(BLOCKS, pageToken=token)["nextPageToken"]
    again = caller.body(BLOCKS)["nextPageToken"]
    statuses = [caller.response(BLOCKS, pageToken=name).status for name in (third, again, token)]
    assert statuses == [200, 503, 200]
    assert [caller.response(path).status for path in (TPS, BLOCKS)] == [200, 500]


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_share_of_the_requests_meets_a_fault(share: float) -> None:
    """`share` chooses about that share of the counted requests by the seed; two faults choose others."""

    def met(seed: int, *faults: Fault) -> list[bool]:
        caller = Caller(seed=seed, faults=faults)
        return [caller.response("/v1/chains/43114").status == 500 for _ in range(400)]

    fault = Fault(route="data.chain", share=share, status=500)
    first = met(1, fault)
    assert 400 * share * 0.7 <= sum(first) <= 400 * share * 1.3
    assert first == met(1, fault)
    assert (first == met(2, fault)) == (share == 1.0)
    assert not any(met(1, Fault(route="metrics.*", share=share, status=500)))
    caller = Caller(faults=[Fault(share=0.5, status=500), Fault(share=0.5, status=501)])
    assert {caller.response("/v1/chains/43114").status for _ in range(50)} == {200, 500, 501}


def test_token_can_expire_early() -> None:
    """`expire` lets a page token die at a request, for good; first pages do not count."""
    caller = Caller(expired_status=410, faults=[Fault(expire=True, at=2)])
    token = caller.body(BLOCKS)["nextPageToken"]
    later = caller.body(BLOCKS, pageToken=token)["nextPageToken"]
    for _ in range(2):
        assert refused(caller.response(BLOCKS, pageToken=later))[::2] == (410, ["pageToken has expired"])
    assert len(caller.rows(BLOCKS, pageToken=token)) == 10
    assert caller.world.stats.tokens_expired == 2


def test_one_row_of_a_page_is_malformed() -> None:
    """`malformed` changes one row of the page, and no other row; errors stay as they are."""
    caller, sane = Caller(faults=[Fault(page=1, malformed=True)]), Caller()
    page, wanted = caller.body(BLOCKS), sane.body(BLOCKS)
    changed = [row for row, right in zip(page["blocks"], wanted["blocks"], strict=True) if row != right]
    assert len(changed) == 1
    assert refused(caller.response(BLOCKS, pageSize="x"))[0] == 400
    assert caller.body("/v1/chains/43114") != sane.body("/v1/chains/43114")
    assert Caller(rows=0, faults=[Fault(every=1, malformed=True)]).rows(BLOCKS) == []


def test_dead_tokens_are_of_their_page() -> None:
    """A request with a dead token counts as one for a later page."""
    caller = Caller(token_lifetime=5.0, faults=[Fault(after_page=1, at=2, status=503)])
    token = caller.body(BLOCKS)["nextPageToken"]
    caller.now += 5
    statuses = [caller.response(BLOCKS, pageToken=token).status for _ in range(3)]
    assert statuses == [400, 503, 400]


# Faults written as text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("data.evm.blocks=status:503", Fault(route="data.evm.blocks", status=503, every=1)),
        ("/v1/of/my/own=status:500", Fault(route="/v1/of/my/own", status=500, every=1)),
        (
            "/v1/chains/*/blocks=status:429,retry-after:30,every:3,times:2",
            Fault(route="/v1/chains/*/blocks", status=429, headers={"retry-after": "30"}, every=3, times=2),
        ),
        (
            "*=after-page:3, status:422, message:under maintenance: until 17:00",
            Fault(after_page=3, status=422, messages=["under maintenance: until 17:00"], every=1),
        ),
        ("*=slow:1.5,at:4", Fault(slow=1.5, at=4)),
        ("metrics.*=stall,at:2,every:5", Fault(route="metrics.*", stall=True, at=2, every=5)),
        ("*=truncate", Fault(truncate=True, every=1)),
        ("*=stall-body,slow:2", Fault(stall_body=True, slow=2.0, every=1)),
        ("*=disconnect", Fault(disconnect=True, every=1)),
        (
            "data.evm.*=expire,page:3,times:1",
            Fault(route="data.evm.*", expire=True, page=3, every=1, times=1),
        ),
        ("*=malformed,share:0.25", Fault(malformed=True, share=0.25)),
        (
            "/v1/chains/7/addresses/0x1/balances:getNative=status:500",
            Fault(route="/v1/chains/7/addresses/0x1/balances:getNative", status=500, every=1),
        ),
    ],
)
def test_faults_can_be_written(text: str, fault: Fault) -> None:
    """ROUTE=KEY:VALUE,... is parsed to the fault that it describes."""
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("status:503", "cannot read the fault 'status:503': write ROUTE=KEY:VALUE,..."),
        ("=status:503", "cannot read the fault"),
        ("*=", "a fault has no part '': use at:VALUE"),
        ("*=status", "a fault has no part 'status'"),
        ("*=stall:1", "a fault has no part 'stall'"),
        ("*=stall_body", "a fault has no part 'stall_body'"),
        ("*=messages:x", "a fault has no part 'messages'"),
        ("*=status:x", "status:x has no number"),
        ("*=slow:", "slow: has no number"),
        ("*=status:99", "'status' must be >= 200: 99"),
        ("*=every:2", "a fault has one effect: give one of status, disconnect"),
        ("*=stall,status:500", "a fault has one effect: give one of status, disconnect"),
        ("data.nothing=stall", "no route is named 'data.nothing'"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, said: str) -> None:
    """Texts that are no fault raise ValueError with the reason."""
    with pytest.raises(ValueError, match=re.escape(said)):
        Fault.parse(text)


def test_scripted_status_never_meets_the_limit() -> None:
    """A scripted status spends no quota and has an error body unless one is given."""
    caller = Caller(
        limit=10,
        faults=[
            Fault(at=1, status=503, headers={"Retry-After": "2"}),
            Fault(at=2, status=502, body=b"<html>"),
            Fault(at=3, status=599),
        ],
    )
    answers = [caller.response(BLOCKS) for _ in range(4)]
    assert refused(answers[0])[:2] == (503, "Service Unavailable")
    assert limits(answers[0]) == {"retry-after": "2"}
    assert (answers[1].body, answers[1].headers["content-type"]) == (b"<html>", "text/html")
    assert refused(answers[2])[:2] == (599, "Error")
    assert answers[3].headers["ratelimit-remaining"] == "9"


# In memory, in virtual time


async def test_round_trip_takes_its_latency() -> None:
    """A round trip takes its latency: the decision half-way, the arrival at its end."""
    loop = asyncio.get_running_loop()
    sim = Simulator(latency=3.0, limit=1, window=2.0)
    transport = sim.transport()
    began = loop.time()
    first = asyncio.create_task(transport.send(request(BLOCKS)))
    await asyncio.sleep(1.9)
    second = await transport.send(request(BLOCKS))
    assert loop.time() - began == pytest.approx(4.9)
    assert (await first).status == 200
    assert (second.status, second.headers["retry-after"]) == (429, "1")
    assert sim.stats.sent_while_stopped == 0
    await transport.send(request(BLOCKS))
    assert sim.stats.sent_while_stopped == 1


async def test_latency_may_be_drawn_and_the_clock_given() -> None:
    """A latency function gets a generator that depends on the seed alone; now= replaces the loop's clock."""

    async def spent(seed: int) -> float:
        began = asyncio.get_running_loop().time()
        await Simulator(seed, latency=lambda random: random.uniform(1, 9)).transport().send(request(BLOCKS))
        return round(asyncio.get_running_loop().time() - began, 6)

    assert await spent(1) == await spent(1) != await spent(2)
    sim = Simulator(limit=1, now=lambda: 5.0, rows=3)
    sim.insert(BLOCKS, 2)
    assert len(loads((await sim.transport().send(request(BLOCKS))).body)["blocks"]) == 5
    await asyncio.sleep(1_000)
    assert (await sim.transport().send(request(BLOCKS))).status == 429


async def test_clock_can_be_moved() -> None:
    """Advancing the simulated clock ages tokens and ends windows while no time passes."""
    sim = Simulator(limit=2)
    transport = sim.transport()
    token = loads((await transport.send(request(BLOCKS))).body)["nextPageToken"]
    sim.advance(DAY)
    assert sim.time() == asyncio.get_running_loop().time() + DAY
    assert (await transport.send(request(BLOCKS, pageToken=token))).status == 400
    assert sim.stats.tokens_expired == 1
    with pytest.raises(ValueError, match="backwards"):
        sim.advance(-1)


@pytest.mark.parametrize("fault", [Fault(at=1, disconnect=True), Fault(at=1, truncate=True)])
async def test_broken_connections_raise_in_memory(fault: Fault) -> None:
    """Broken connections raise APIConnectionError after the service did the work."""
    sim = Simulator(limit=5, latency=1.0, faults=[fault])
    with pytest.raises(APIConnectionError):
        await sim.transport().send(request(BLOCKS))
    assert (sim.stats.requests, sim.stats.broken, dict(sim.stats.answered)) == (1, 1, {})
    assert (await sim.transport().send(request(BLOCKS))).headers["ratelimit-remaining"] == "3"


async def test_stalled_request_waits_for_ever() -> None:
    """A stalled request, or one whose body stalls, ends only by cancellation."""
    for fault in (Fault(at=1, stall=True), Fault(at=1, stall_body=True)):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1e6):
                await Simulator(faults=[fault]).transport().send(request(BLOCKS))


@pytest.mark.parametrize("effect", [{}, {"status": 503}, {"truncate": True}])
async def test_slow_answers_are_late(effect: dict[str, Any]) -> None:
    """A slow answer is late by its seconds and latency, after prompt receipt."""
    sim = Simulator(latency=2.0, faults=[Fault(at=1, slow=30.0, **effect)])
    loop = asyncio.get_running_loop()
    began = loop.time()
    task = asyncio.create_task(sim.transport().send(request(BLOCKS)))
    await asyncio.sleep(1.5)
    assert sim.stats.requests == 1
    await asyncio.wait([task])
    assert loop.time() - began == pytest.approx(32.0)
    assert (task.exception() is not None) == ("truncate" in effect)
    await sim.transport().send(request(BLOCKS))
    assert loop.time() - began == pytest.approx(34.0)


async def test_closed_transport_sends_nothing() -> None:
    """A closed transport raises SessionClosedError; other transports still work."""
    sim = Simulator()
    closed = sim.transport()
    await closed.aclose()
    await closed.aclose()
    with pytest.raises(SessionClosedError):
        await closed.send(request(BLOCKS))
    assert (await sim.transport().send(request(BLOCKS))).status == 200


# The simulator as a whole


def test_impossible_settings_are_refused() -> None:
    """Impossible settings raise ValueError with their name."""
    wrongs: list[tuple[str, Any]] = [
        *(("latency", -1.0), ("latency", float("nan")), ("limit", -1), ("window", 0.0), ("rows", -1)),
        *(("day_limit", -1), ("metrics_day_limit", -1), ("block", 0.0)),
        *(("chains", []), ("chains", [1, 1]), ("metrics_page_size", 0), ("grow_every", 0.0)),
        *(("token_lifetime", 0.0), ("expired_status", 200), ("expired_status", 600)),
        *(("api_key_header", "x y"), ("api_key_header", "")),
    ]
    for name, value in wrongs:
        with pytest.raises(ValueError, match=name):
            Simulator(**{name: value})


def test_key_is_in_no_repr() -> None:
    """Reprs of the simulator and its parts contain no key."""
    sim = Simulator(api_key="s3cret-1", other_keys=["s3cret-2"])
    shown = repr((sim, sim.stats, sim.transport(), sim._world, sim._world.settings))
    assert "s3cret" not in shown


def test_without_a_server_the_addresses_lead_nowhere() -> None:
    """Base URLs of a simulator without a server have a name that cannot be resolved."""
    assert Simulator(api_key="k").environment() == {
        "CHAINAPI_METRICS_BASE_URL": "https://simulator.invalid/metrics",
        "CHAINAPI_DATA_BASE_URL": "https://simulator.invalid/data",
        "CHAINAPI_API_KEY": "k",
    }


async def test_session_of_a_simulator_needs_only_its_arguments() -> None:
    """The arguments reach both services in memory, with any key and header; the variables name them too."""
    sim = Simulator(api_key="k", api_key_header="X-Own")
    async with Session(**sim.arguments()) as session:
        assert (await session.data.get("/v1/chains/43114"))["chainId"] == "43114"
        assert len(await session.metrics.avg_tps(43114).collect(limit=2)) == 2
    assert sim.stats.answered == {200: 2}
    assert sim.environment()["CHAINAPI_API_KEY_HEADER"] == "x-own"


async def test_the_public_services_are_simulated_with_and_without_a_key() -> None:
    """Without `api_key_required` sessions without a key have answers, and a quota of their own."""
    sim = Simulator(api_key_header="x-glacier-api-key", api_key_required=False, limit=1, log=True)
    public = {
        **sim.arguments(),
        "provider": Provider.PUBLIC,
        "api_key": None,
        "max_waiting": 0,
        "limiter": LimiterOptions(isolated=True),
    }
    async with Session(**public) as session:
        assert (await session.data.get("/v1/chains/43114"))["chainId"] == "43114"
        assert len(await session.metrics.avg_tps(43114).collect(limit=2)) == 2
        with pytest.raises(QueueFullError):
            await session.data.get("/v1/chains/43114")
    async with Session(**{**public, "api_key": sim.api_key}) as session:
        assert (await session.data.get("/v1/chains/43114"))["chainId"] == "43114"
    async with Session(**{**public, "api_key": "wrong"}) as session:
        with pytest.raises(AuthenticationError):
            await session.data.get("/v1/chains/43114")
    places = [(one.quota, one.path) for one in sim.requests]
    chain = "/v1/chains/43114"
    assert places[:2] == [("data, no key", chain), ("metrics", "/v2/chains/43114/metrics/avgTps")]
    assert places[2] == ("data", chain)


# On a port


@pytest.mark.adapter
@pytest.mark.real_time
async def test_server_gives_what_memory_gives() -> None:
    """The server sends the status, headers and bytes of the transport in memory."""
    settings: dict[str, Any] = {"seed": 5, "limit": 3, "now": lambda: 7.0}
    memory = Simulator(**settings).transport()
    async with Simulator(**settings) as sim, aiohttp.ClientSession() as client:
        assert sim.data_base_url.startswith("http://127.0.0.1:")
        for path in (BLOCKS, "/v1/chains/43114%2Fblocks?pageSize=5&x=%26", TPS, TRANSACTIONS, BLOCKS):
            base = sim.metrics_base_url if path == TPS else sim.data_base_url
            wanted = await memory.send(request(path))
            url = URL(base + path, encoded=True)
            async with client.get(url, headers={"X-Data-API-Key": sim.api_key}) as answer:
                assert (answer.status, await answer.read()) == (wanted.status, wanted.body)
                got = {name.lower(): value for name, value in answer.headers.items()}
                assert {name: got[name] for name in wanted.headers} == wanted.headers
        assert dict(sim.stats.answered) == {200: 3, 400: 1, 429: 1}


@pytest.mark.adapter
@pytest.mark.real_time
async def test_server_breaks_connections_for_real() -> None:
    """The server closes connections early or within the body, stalls them, or delays one of them."""
    effects: list[Json] = [{"disconnect": True}, {"truncate": True}, {"stall": True}, {"slow": 1_000.0}]
    faults = [Fault(at=number, **effect) for number, effect in enumerate(effects, 1)]
    async with Simulator(faults=faults) as sim, aiohttp.ClientSession() as client:
        address = sim.metrics_base_url + TPS
        tasks = len(asyncio.all_tasks())
        # Not GET: aiohttp's client repeats a GET by itself when the connection breaks.
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.post(address)
        with pytest.raises(aiohttp.ClientPayloadError):
            async with client.post(address) as answer:
                await answer.read()
        stalled = asyncio.create_task(client.post(address))
        await until(lambda: sim.stats.requests == 3)
        assert not stalled.done()
        stalled.cancel()
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        slow = asyncio.create_task(client.get(address))
        await until(lambda: sim.stats.requests == 4)
        async with client.get(address) as answer:
            assert answer.status == 200
        assert not slow.done()
        slow.cancel()
        assert (sim.stats.broken, dict(sim.stats.answered)) == (3, {200: 2})


@pytest.mark.adapter
@pytest.mark.real_time
async def test_server_stalls_in_the_body_for_real() -> None:
    """The server stalls within the body until the client leaves."""
    async with Simulator(faults=[Fault(at=1, stall_body=True)]) as sim, aiohttp.ClientSession() as client:
        tasks = len(asyncio.all_tasks())
        async with client.get(sim.metrics_base_url + TPS) as answer:
            length = int(answer.headers["content-length"])
            assert len(await answer.content.readexactly(length // 2)) > 1_000
            async with client.get(sim.metrics_base_url + TPS) as other:
                assert len(await other.read()) == length
            assert (answer.content.read_nowait(), answer.content.at_eof()) == (b"", False)
            answer.close()
        await client.close()
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert sim.stats.broken == 1


@pytest.mark.adapter
@pytest.mark.real_time
async def test_server_counts_what_is_sent_after_a_refusal() -> None:
    """The server counts requests after a refusal and its grace, on simulated time."""
    async with Simulator(limit=1, now=lambda: 0.0) as sim, aiohttp.ClientSession() as client:
        headers = {"x-data-api-key": sim.api_key}
        for second, wanted in [(0, 0), (0, 0), (0, 0), (59, 1), (1, 1)]:
            sim.advance(second)
            async with client.get(sim.data_base_url + BLOCKS, headers=headers) as answer:
                await answer.read()
            assert sim.stats.sent_while_stopped == wanted
        assert sim.stats.refused == 3


@pytest.mark.adapter
@pytest.mark.real_time
async def test_server_closes_at_once_and_frees_its_port() -> None:
    """The server closes at once despite open connections, and frees its port."""
    sim = Simulator(faults=[Fault(every=2, stall=True)])
    async with aiohttp.ClientSession() as client:
        async with sim:
            sim_port = int(sim.data_base_url.rsplit(":", 1)[1].partition("/")[0])
            await (await client.get(sim.metrics_base_url + TPS)).read()
            stalled = asyncio.create_task(client.get(sim.metrics_base_url + TPS))
            await until(lambda: sim.stats.requests == 2)
            async with asyncio.timeout(10):
                await sim.__aexit__(None, None, None)
        with pytest.raises(aiohttp.ClientError):
            await stalled
    assert sim.data_base_url == "https://simulator.invalid/data"
    async with Simulator(port=sim_port) as again:
        assert again.data_base_url == f"http://127.0.0.1:{sim_port}/data"
        with pytest.raises(OSError, match=str(sim_port)):
            await Simulator(port=sim_port).__aenter__()
        with pytest.raises(RuntimeError, match="already"):
            await again.__aenter__()
