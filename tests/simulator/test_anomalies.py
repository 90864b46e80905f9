"""Anomalies of simulated lists: each has its effect, and walks match `rows_of`."""

from __future__ import annotations

import functools
import json
from collections import Counter
from contextlib import suppress
from itertools import groupby, islice, pairwise
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import ROUTES
from chainapi.errors import DecodeError
from chainapi.models.codec import PageDecoder
from chainapi.simulator import Anomalies, Settings
from chainapi.simulator.rows import encode
from tests.simulator import test_routes as routes
from tests.simulator.test_routes import LISTS, SINGLES, fields_of, loads, needed_by, path_of, short

BLOCKS = "/data/v1/chains/7/blocks"
TRANSACTIONS = "/data/v1/chains/7/transactions"
ALL_TRANSACTIONS = "/data/v1/transactions"
TPS = "/metrics/v1/avg_tps/7"
SIZED = [name for name in LISTS if ROUTES[name].page_size is not None]
EPOCH = Settings().epoch

Json = dict[str, Any]


class Caller(routes.Caller):
    """Calls a simulator with longer lists, of some anomalies."""

    defaults: ClassVar[Json] = {**routes.Caller.defaults, "rows": 60, "points": 60}

    def held(self, place: str, **query: Any) -> list[Any]:
        """Return the rows that the service has, as sent."""
        rows: list[Any] = loads(encode(self.sim.rows_of(short(place), **query)))
        return rows


def texts(rows: list[Any]) -> list[str]:
    """Return rows as countable texts."""
    return [json.dumps(row, sort_keys=True, default=str) for row in rows]


def without(row: Json, *names: str) -> Json:
    """Return a row without some fields."""
    return {name: value for name, value in row.items() if name not in names}


shares = st.sampled_from([0.0, 0.3, 1.0])
anomalies_of_any_kind = st.builds(
    Anomalies,
    ties=st.integers(1, 4),
    equal=st.integers(1, 4),
    replays=st.integers(1, 3),
    order=st.sampled_from(["descending", "swapped", "shuffled", "ascending"]),
    moved=shares,
    changing=st.sampled_from(["never", "pass"]),
    malformed=shares,
    unknown_fields=shares,
    unknown_values=shares,
    paging=st.sampled_from(["cursor", "offset"]),
)


# What holds for all of them


@settings(max_examples=15)
@given(anomalies_of_any_kind, st.sampled_from(SIZED), st.integers(1, 30), st.integers(0, 40))
def test_a_walk_gives_what_the_service_holds(anomalies: Anomalies, name: str, size: int, rows: int) -> None:
    """A walk yields the rows of `rows_of` in order, for any page size, every time."""
    caller = Caller(anomalies, rows=rows, points=rows)
    for _ in range(2):
        assert caller.walk(name, pageSize=size) == caller.held(name, **needed_by(name))


def test_another_seed_meets_other_rows() -> None:
    """The seed determines the rows that an anomaly affects."""
    shares: tuple[Json, ...] = ({"malformed": 0.5}, {"unknown_fields": 0.5}, {"unknown_values": 0.5})
    orders: tuple[Json, ...] = ({"order": "shuffled"}, {"order": "swapped"})
    for setting in (*orders, *shares):
        met: list[list[int]] = []
        for seed in (1, 2):
            sane, odd = Caller(seed=seed), Caller(Anomalies(**setting), seed=seed)
            pairs = zip(sane.walk(TRANSACTIONS), odd.walk(TRANSACTIONS), strict=True)
            met.append([number for number, (a, b) in enumerate(pairs) if a != b])
        assert met[0], setting
        assert met[0] != met[1], setting


@settings(max_examples=10)
@given(anomalies_of_any_kind)
def test_no_anomaly_moves_another_one(anomalies: Anomalies) -> None:
    """Malformed rows are the same under any other anomaly."""
    combined = attrs.evolve(anomalies, ties=1, equal=1, unknown_fields=0.0, unknown_values=0.0)
    sane, alone = Caller().walk(BLOCKS), Caller(Anomalies(malformed=0.4)).walk(BLOCKS)
    odd = [row for row in alone if row not in sane]
    rows = [
        without(row, "confirmations") for row in Caller(attrs.evolve(combined, malformed=0.4)).walk(BLOCKS)
    ]
    assert sorted(texts(odd)) == sorted(texts([row for row in rows if row not in sane]))


def test_anomalies_are_aimed_at_routes() -> None:
    """A list has the anomalies of the first record whose route matches, or none."""
    caller = Caller(
        Anomalies(route=short(BLOCKS), order="ascending"),
        Anomalies(route="data.evm.blocks", equal=3),
        Anomalies(route="metrics.*", equal=2),
    )
    sane = Caller()
    assert caller.walk(BLOCKS) == sane.walk(BLOCKS)[::-1]
    other = "/data/v1/chains/43114/blocks"
    assert len(set(texts(caller.walk(other)))) == len(sane.walk(other)) / 3
    assert len(set(texts(caller.walk(TPS)))) == 30
    assert caller.walk(TRANSACTIONS) == sane.walk(TRANSACTIONS)


# Ties, equal rows, replays


@settings(max_examples=15)
@given(st.integers(1, 7), st.integers(1, 30), st.sampled_from([(BLOCKS, "blockNumber"), (TPS, "timestamp")]))
def test_tied_rows_share_the_number_of_the_list(ties: int, size: int, of: tuple[str, str]) -> None:
    """Tied rows share a descending number or time and differ in all else."""
    path, field = of
    rows = Caller(Anomalies(ties=ties), metrics_page_size=size).walk(path, pageSize=size)
    numbers = [int(row[field]) for row in rows]
    assert numbers == sorted(numbers, reverse=True)
    assert [len([*tied]) for _, tied in groupby(numbers[::-1])] == group_sizes(len(rows), ties)
    hidden = ("blockNumber", "blockTimestamp", "timestamp")
    assert [without(row, *hidden) for row in rows] == [
        without(row, *hidden) for row in Caller().walk(path, pageSize=100)
    ]


def group_sizes(rows: int, size: int) -> list[int]:
    """Return how many rows each group has, from the oldest on."""
    return [min(size, rows - first) for first in range(0, rows, size)]


def test_tied_transactions_lie_in_one_block() -> None:
    """Tied transactions name one block, also in nested rows."""
    rows = Caller(Anomalies(ties=5)).walk(TRANSACTIONS)
    blocks = Counter((row["blockNumber"], row["blockHash"], row["blockTimestamp"]) for row in rows)
    assert set(blocks.values()) == {5}
    address = "/data/v1/chains/7/addresses/0x1/transactions"
    inner = [row["nativeTransaction"] for row in Caller(Anomalies(ties=5)).walk(address)]
    assert set(Counter((row["blockNumber"], row["blockHash"]) for row in inner).values()) == {5}


@settings(max_examples=20)
@given(
    st.builds(
        Anomalies,
        ties=st.integers(1, 5),
        equal=st.integers(1, 3),
        order=st.sampled_from(["descending", "swapped", "shuffled", "ascending"]),
        moved=shares,
        paging=st.sampled_from(["cursor", "offset"]),
    ),
    st.integers(-3, 30),
    st.integers(-3, 30),
    st.integers(1, 9),
    st.sampled_from(["asc", "desc"]),
)
def test_bounds_take_in_what_lies_within(
    anomalies: Anomalies, first: int, last: int, size: int, order: str
) -> None:
    """Bounds of a query select exactly the rows of the list within them, as shown."""
    path = path_of("data.primary_network.staking_transactions")
    start, end = EPOCH - 5 * first, EPOCH - 5 * last
    caller = Caller(anomalies, rows=27)
    inside = [row for row in caller.held(path) if start <= row["blockTimestamp"] <= end]
    rows = caller.walk(path, pageSize=size, startTimestamp=start, endTimestamp=end, sortOrder=order)
    assert rows == (inside[::-1] if order == "asc" else inside)


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(1, 30))
def test_equal_rows_are_equal_byte_for_byte(equal: int, size: int) -> None:
    """Equal rows repeat byte for byte, also across the border of a page."""
    rows = texts(Caller(Anomalies(equal=equal)).walk(BLOCKS, pageSize=size))
    assert [len([*same]) for _, same in groupby(rows[::-1])] == group_sizes(60, equal)


def test_replays_have_one_hash_on_several_chains() -> None:
    """Replays have one hash on several chains, in lists over all chains only."""
    balances = "/data/v1/chains/7/addresses/0x1/balances:listErc20"
    for equal in (1, 2):
        caller, alone = Caller(Anomalies(replays=3, equal=equal)), Caller(Anomalies(equal=equal))
        rows = caller.walk(ALL_TRANSACTIONS)
        places = {(row["txHash"], row["chainId"]) for row in rows}
        assert len(places) == len(rows) / equal
        assert set(Counter(name for name, _ in places).values()) == {3}
        for path in (TRANSACTIONS, balances, "/data/v1/networks/fuji/validators"):
            assert caller.walk(path) == alone.walk(path)


# Order


def positions(rows: list[Any], of: list[Any]) -> list[int]:
    """Return the positions of a list's rows in another list."""
    places = {text: place for place, text in enumerate(texts(of))}
    return [places[text] for text in texts(rows)]


@settings(max_examples=15)
@given(st.integers(0, 30), st.integers(0, 120))
def test_swapped_rows_are_neighbours(seed: int, rows: int) -> None:
    """Swapped rows have their own position or that of a neighbour."""
    sane, swapped = (
        Caller(seed=seed, rows=rows).walk(BLOCKS),
        Caller(Anomalies(order="swapped"), seed=seed, rows=rows),
    )
    places = positions(swapped.walk(BLOCKS), sane)
    assert sorted(places) == list(range(rows))
    assert all(abs(place - number) <= 1 for number, place in enumerate(places))


def test_shuffled_rows_are_anywhere() -> None:
    """A shuffled list has all rows, hardly one in place, and added rows at its head."""
    caller = Caller(Anomalies(order="shuffled"), rows=500)
    sane = Caller(rows=500).walk(BLOCKS, pageSize=100)
    rows = caller.walk(BLOCKS, pageSize=100)
    places = positions(rows, sane)
    assert sorted(places) == list(range(500))
    assert sum(a < b for a, b in pairwise(places)) in range(200, 300)
    caller.sim.insert(short(BLOCKS), 2)
    assert caller.walk(BLOCKS, pageSize=100)[2:] == rows


def test_an_ascending_list_grows_at_its_end() -> None:
    """An ascending list begins with the oldest row and grows at its end."""
    caller = Caller(Anomalies(order="ascending"))
    sane = Caller().walk(BLOCKS)
    pages = caller.pages(BLOCKS)
    rows = next(pages)
    caller.sim.insert(short(BLOCKS), 3)
    rows += [row for page in pages for row in page]
    assert (rows[:60], len(rows)) == (sane[::-1], 63)


@settings(max_examples=8)
@given(st.integers(0, 20), st.sampled_from([0.05, 0.5, 1.0]))
def test_moved_rows_stand_elsewhere_in_each_later_pass(seed: int, moved: float) -> None:
    """Moved rows have the true order in the first pass and another in each later one."""
    caller = Caller(Anomalies(moved=moved), seed=seed, rows=100)
    passes = [texts(caller.walk(BLOCKS, pageSize=30)) for _ in range(3)]
    assert passes[0] == texts(Caller(seed=seed, rows=100).walk(BLOCKS))
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert passes[0] != passes[1] != passes[2] != passes[0]


def test_a_walk_stays_in_its_pass() -> None:
    """Pages of one walk share a pass, even if another walk begins in between."""
    caller = Caller(Anomalies(moved=1.0, changing="pass"))
    pages = caller.pages(BLOCKS)
    rows = next(pages)
    other = caller.walk(BLOCKS)
    rows += [row for page in pages for row in page]
    assert [row["blockHash"] for row in rows] == [row["blockHash"] for row in Caller().walk(BLOCKS)]
    assert {row["confirmations"] for row in rows} == {0}
    assert {row["confirmations"] for row in other} == {1}
    assert caller.held(BLOCKS) == other


def test_the_order_of_a_long_list_costs_nothing_until_requested() -> None:
    """Moved rows stay within runs of 10,000, so a page of any list is fast."""
    rows = 10**12 + 5_000
    newest = int(Caller(rows=rows).rows(BLOCKS)[0]["blockNumber"])
    caller = Caller(Anomalies(order="shuffled"), rows=rows)
    pages = [*islice(caller.pages(BLOCKS, pageSize=100), 51)]
    numbers = [newest - int(row["blockNumber"]) for rows in pages for row in rows]
    assert sorted(numbers[:5_000]) == list(range(5_000))
    assert all(5_000 <= number < 15_000 for number in numbers[5_000:])


# What changes


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/data/v1/chains/7/addresses/0x1/balances:listErc20", "price"),
        ("/data/v1/chains/7/addresses/0x1/balances:listErc20", "logoUri"),
        ("/data/v1/chains/7/nfts/collections/0x1/tokens", "indexStatus"),
        ("/data/v1/networks/fuji/rewards:listPending", "progress"),
        ("/data/v1/networks/fuji/validators?validationStatus=active", "uptimePerformance"),
        (BLOCKS, "confirmations"),
    ],
)
@pytest.mark.parametrize("changing", ["pass", "answer"])
def test_fields_change(path: str, field: str, changing: Any) -> None:
    """Changing fields differ by pass or by answer, and no other field does."""
    path, _, question = path.partition("?")
    query = dict(part.split("=") for part in question.split("&") if part)
    caller = Caller(Anomalies(changing=changing))
    versions = [caller.rows(path, **query) for _ in range(3)]
    seen = [[(name, value) for name, value in all_fields(rows) if name == field] for rows in versions]
    assert seen[0]
    assert seen[0] != seen[1] != seen[2] != seen[0]
    constant = [[*filter(keeps, fields_of(rows))] for rows in versions]
    assert constant[0] == constant[1] == constant[2]
    sane = Caller().rows(path, **query)
    assert [without(row, "confirmations") for row in versions[0]] == sane


def all_fields(value: Any) -> list[tuple[str, Any]]:
    """Return each field of a JSON value at any depth, objects too."""
    if isinstance(value, list):
        return [field for entry in value for field in all_fields(entry)]
    if not isinstance(value, dict):
        return []
    return [*value.items(), *(field for entry in value.values() for field in all_fields(entry))]


def keeps(field: tuple[str, Any]) -> bool:
    """Return whether a field never changes; a price's field is its value."""
    changes = ("value", "logoUri", "indexStatus", "progress", "uptimePerformance", "confirmations")
    return field[0] not in changes


def test_fields_change_within_a_walk_with_each_answer_only() -> None:
    """Pages of a walk share a version, or have one each; resources change with each answer in both modes."""
    changing: Any
    for changing, numbers in (("pass", [0, 0, 0]), ("answer", [0, 1, 2])):
        caller = Caller(Anomalies(changing=changing), rows=30)
        pages = [*caller.pages(BLOCKS)]
        assert [{row["confirmations"] for row in rows} for rows in pages] == [{one} for one in numbers]
        assert {row["confirmations"] for row in caller.held(BLOCKS)} == {numbers[-1]}
        caller = Caller(Anomalies(changing=changing))
        bodies = [caller.body(f"{BLOCKS}/77") for _ in range(2)]
        assert [body.pop("confirmations") for body in bodies] == [0, 1]
        assert bodies[0] == bodies[1] == Caller().body(f"{BLOCKS}/77")


# What cannot be read, and what is in no document


@functools.cache
def decoder(name: str) -> Any:
    """Return the decoder of the pages of a list."""
    return PageDecoder(ROUTES[name].route.model, ROUTES[name].route.items or "rows")


def decodes(name: str, row: Any) -> bool:
    """Return whether a row of a list fits its model."""
    try:
        decoder(name).decode(encode({ROUTES[name].route.items or "rows": [row]}))
    except DecodeError:
        return False
    return True


def test_malformed_rows_cannot_be_read() -> None:
    """Malformed rows and resources fit no model on any route, and the other rows are unchanged."""
    wrong = list[str]()
    for name in LISTS:
        if ROUTES[name].route.model is None:
            continue
        anomalies: list[list[Anomalies]] = [[], [Anomalies(malformed=0.5)]]
        sane, odd = (Caller(*several, rows=24, points=24).walk(name) for several in anomalies)
        pairs = [*zip(sane, odd, strict=True)]
        right = [decodes(name, after) == (before == after) for before, after in pairs]
        few = [len(before.keys() - after.keys()) <= 1 for before, after in pairs]
        everything = Caller(Anomalies(malformed=1.0)).rows(name)
        if not all(right) or not all(few) or any(decodes(name, row) for row in everything):
            wrong.append(name)
    for name in SINGLES:
        body = Caller(Anomalies(malformed=1.0)).content(name)
        with suppress(DecodeError):
            ROUTES[name].decoder()(body)
            wrong.append(name)
    assert wrong == []


def test_rows_are_malformed_in_every_way() -> None:
    """Malformed fields are empty, of the wrong type, null, or missing."""
    sane = {row["blockHash"]: row for row in Caller(rows=1_000).walk(BLOCKS, pageSize=100)}
    odd = Caller(Anomalies(malformed=0.2), rows=1_000).walk(BLOCKS, pageSize=100)
    ways: Counter[str] = Counter()
    for row, before in zip(odd, sane.values(), strict=True):
        if row != before:
            (name,) = [name for name in before if row.get(name, ...) != before[name]]
            ways[name if row.get(name) == "" else f"{row.get(name, 'missing')}"] += 1
    assert 150 < sum(ways.values()) < 250
    assert {"gasUsed", "txCount", "5", "None", "missing"} <= set(ways)


def test_malformed_plain_values_are_objects() -> None:
    """Malformed rows of a list of plain values are objects."""
    odd = Anomalies(malformed=0.5, unknown_fields=1.0, unknown_values=1.0, changing="pass")
    rows = Caller(odd).walk("data.webhooks.addresses")
    assert {type(row) for row in rows} == {str, dict}


def test_unknown_fields_are_additions() -> None:
    """Unknown fields are added to a share of the rows, nested records and each page."""
    caller = Caller(Anomalies(unknown_fields=0.5), rows=400)
    rows = caller.walk(TRANSACTIONS, pageSize=100)
    sane = Caller(rows=400).walk(TRANSACTIONS, pageSize=100)
    assert 150 < sum(row != before for row, before in zip(rows, sane, strict=True)) < 250
    assert [pruned(row) for row in rows] == sane
    names = {name for row in rows for name in row if name.startswith("new")}
    inner = {name for row in rows for value in row.values() if isinstance(value, dict) for name in value}
    assert len(names) == len({name for name in inner if name.startswith("new")}) == 7
    assert caller.body(TRANSACTIONS)["newField"] == "simulated"


def pruned(value: Any) -> Any:
    """Return a JSON value without the fields that no document names."""
    if isinstance(value, dict):
        return {name: pruned(entry) for name, entry in value.items() if not name.startswith("new")}
    return value


def test_unknown_numbers_have_more_digits_than_a_float() -> None:
    """Numbers too precise for a float are sent with all their digits."""
    body = Caller(Anomalies(unknown_fields=1.0), rows=400).content(BLOCKS, pageSize=100)
    for digits in (b":0.1234567890123456789", b":12345678901234567890.5", b":1180591620717411303424"):
        assert digits in body


def test_resources_have_unknown_fields() -> None:
    """A single resource with unknown fields still fits its model."""
    for name in SINGLES:
        body = Caller(Anomalies(unknown_fields=1.0)).content(name)
        assert [field for field in loads(body) if field.startswith("new")], name
        ROUTES[name].decoder()(body)


def test_unknown_values_are_of_fields_that_list_theirs() -> None:
    """Unknown values replace one listed value in a row, also inside of lists; nothing else changes."""
    for name in ("data.evm.transactions", "data.icm.messages", "data.chains", "data.evm.blocks"):
        rows = Caller(Anomalies(unknown_values=1.0), rows=200).walk(name)
        for before, after in zip(Caller(rows=200).walk(name), rows, strict=True):
            fields = zip(fields_of(before), fields_of(after), strict=True)
            changed = [str(new[1]) for old, new in fields if old != new]
            assert len(changed) == (name != "data.evm.blocks")
            assert all(text.startswith("UNHEARD_OF_") for text in changed)
    rows = Caller(Anomalies(unknown_values=1.0), chains=range(1, 60)).walk("/data/v1/chains")
    assert any("UNHEARD_OF" in text for row in rows for text in row["enabledFeatures"])


# Tokens


@settings(max_examples=20)
@given(
    st.integers(1, 9),
    st.lists(st.integers(0, 4), max_size=20),
    st.sampled_from(["descending", "swapped", "shuffled"]),
)
def test_counted_tokens_repeat_rows_when_the_list_grows(size: int, added: list[int], order: Any) -> None:
    """Position tokens yield all rows in order, some repeated, when the list grows.

    Some of the added rows are among them.
    """
    caller = Caller(Anomalies(paging="offset", order=order), rows=40)
    before = caller.held(BLOCKS)
    rows: list[Any] = []
    growth = iter(added)
    for page in caller.pages(BLOCKS, pageSize=size):
        rows += page
        caller.sim.insert(short(BLOCKS), next(growth, 0))
    old = [row for number, row in enumerate(rows) if row in before and row not in rows[:number]]
    assert old == before


def test_the_last_page_comes_for_ever() -> None:
    """The last page, even an empty one, has a token that leads back to it, a fresh one each time."""
    for paging in ("cursor", "offset"):
        caller = Caller(Anomalies(repeat_pages="last", paging=paging), rows=25)
        pages = [*islice(caller.pages(BLOCKS), 8)]
        assert [len(rows) for rows in pages] == [10, 10, 5, 5, 5, 5, 5, 5]
        assert all(rows == pages[2] for rows in pages[3:])
        assert caller.sim.stats.tokens_minted == 8
        assert len(caller.held(BLOCKS)) == 25
    caller = Caller(Anomalies(repeat_pages="last"), rows=0)
    assert [*islice(caller.pages(BLOCKS), 3)] == [[], [], []]


def test_the_first_pages_come_again_and_again() -> None:
    """Repeated pages begin again at the first, under a fresh token, after their number or the last page."""
    for repeated, length in ((1, 1), (2, 2), (9, 3)):
        caller = Caller(Anomalies(repeat_pages=repeated), rows=25)
        pages = [*islice(caller.pages(BLOCKS), 10)]
        assert pages == ([*Caller(rows=25).pages(BLOCKS)][:length] * 10)[:10]


# What the service holds


def test_rows_are_held_whatever_was_paged() -> None:
    """`rows_of` counts no request and advances no walk."""
    caller = Caller(Anomalies(moved=1.0, changing="answer"))
    held = caller.held(BLOCKS)
    assert held == caller.held(BLOCKS)
    assert [row["blockHash"] for row in held] == [row["blockHash"] for row in Caller().walk(BLOCKS)]
    assert caller.sim.stats.requests == 0
    assert caller.walk(BLOCKS)[0]["confirmations"] == 0


def test_rows_are_held_as_of_now() -> None:
    """Rows added by hand or with time are in `rows_of` at once."""
    caller = Caller(grow_every=10.0)
    caller.rows(BLOCKS)
    assert len(caller.held(BLOCKS)) == 60
    caller.now += 35
    caller.sim.insert(short(BLOCKS), 2)
    assert len(caller.held(BLOCKS)) == 65
    assert caller.held(BLOCKS) == caller.walk(BLOCKS)


def test_rows_are_held_for_a_query() -> None:
    """`rows_of` applies filters and sort order like the pages."""
    path = "/metrics/v2/chains/7/metrics/txCount"
    query = {"startTimestamp": EPOCH - 5 * 86_400, "timeInterval": "day"}
    held = Caller().sim.rows_of(short(path), **query)
    assert held == Caller().walk(path, **query)
    assert len(held) == 6


def test_what_is_no_list_holds_no_rows() -> None:
    """`rows_of` raises ValueError for a path without a list and for a refused query."""
    for path in ("/v1/nothing", "/v1/chains/7", "POST /v2/chains"):
        with pytest.raises(ValueError, match=f"no list at '{path}'"):
            Caller().sim.rows_of(path)
    with pytest.raises(ValueError, match="timeInterval must be one of"):
        Caller().sim.rows_of("/v2/chains/7/metrics/txCount", timeInterval="year")


# Settings


def test_impossible_anomalies_are_refused() -> None:
    """Impossible anomalies raise ValueError with their name; one record needs no list."""
    wrongs: list[tuple[str, Any]] = [
        *(("ties", 0), ("equal", 0), ("replays", 0), ("order", "random"), ("moved", 1.1)),
        *(("malformed", -0.1), ("unknown_fields", 2), ("unknown_values", float("nan"))),
        *(("changing", "always"), ("paging", "page"), ("repeat_pages", 0), ("repeat_pages", "first")),
        ("route", "data.evm.bloks"),
    ]
    for name, value in wrongs:
        with pytest.raises(ValueError, match=name):
            Anomalies(**{name: value})
    one = Anomalies(ties=2)
    assert Settings(anomalies=one).anomalies == Settings(anomalies=[one]).anomalies == (one,)
