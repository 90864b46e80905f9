"""Writes of a session against the simulator: effects, faults, quotas, and POST lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint, Session
from chainapi.errors import (
    BadRequestError,
    CheckpointError,
    ConfigurationError,
    NotFoundError,
    OutcomeUnknownError,
    PermissionDeniedError,
    SessionClosedError,
)
from chainapi.events import Event, RequestSent
from chainapi.models import (
    AllTimeNativeBalanceQuery,
    BalanceThresholdFilter,
    DateRangeMinBalance,
    EvmAddressWebhookMetadata,
    EvmAddressWebhookRequest,
    EvmExportOptions,
    EvmTransactionExport,
    PrimaryNetworkAddressSubEvents,
    PrimaryNetworkAddressWebhook,
    PrimaryNetworkAddressWebhookMetadata,
    PrimaryNetworkAddressWebhookRequest,
    Unknown,
)
from chainapi.simulator import Fault, Simulator
from tests.sessions import simulated
from tests.test_session import reply, scripted, session_of

WEBHOOK = EvmAddressWebhookRequest(
    url="https://example.org/hook",
    chain_id="43114",
    name="mine",
    metadata=EvmAddressWebhookMetadata(addresses=["0xa", "0xb"]),
)


def balance(name: str) -> AllTimeNativeBalanceQuery:
    """Return a subquery."""
    params = DateRangeMinBalance(
        first_date="2026-01-01", last_date="2026-01-31", min_balance="1", evm_chain_id=name
    )
    return AllTimeNativeBalanceQuery(id=name, params=params)


# Effects


SOCKET = pytest.param(True, marks=[pytest.mark.adapter, pytest.mark.real_time], id="socket")


@asynccontextmanager
async def reached(simulator: Simulator, socket: bool) -> AsyncIterator[Session]:
    """Yield a session that reaches a simulator in memory, or over a socket."""
    async with (
        simulator if socket else nullcontext(),
        simulated(simulator, **({"transport": None} if socket else {})) as session,
    ):
        yield session


@pytest.mark.parametrize("socket", [False, SOCKET])
async def test_a_webhook_lives(socket: bool) -> None:
    """A webhook is created, listed, changed and deactivated, and its addresses change."""
    async with reached(Simulator(rows=5), socket) as session:
        webhooks = session.data.webhooks
        made = await webhooks.create(WEBHOOK)
        assert not isinstance(made, Unknown)
        assert (made.name, made.status, made.url) == ("mine", "active", WEBHOOK.url)
        rows = await webhooks.list().collect()
        assert (len(rows), rows[0]) == (6, made)
        changed = await webhooks.update(made.id, name="ours", include_logs=True)
        assert (changed.name, changed.include_logs) == ("ours", True)  # type: ignore[union-attr]
        grown = await webhooks.add_addresses(made.id, addresses=["0xc"])
        assert set(grown.metadata.addresses) == {"0xa", "0xb", "0xc"}
        assert await webhooks.addresses(made.id).collect() == ["0xc", "0xb", "0xa"]
        shrunk = await webhooks.remove_addresses(made.id, addresses=["0xa"])
        assert shrunk is not None
        assert set(shrunk.metadata.addresses) == {"0xb", "0xc"}
        gone = await webhooks.deactivate(made.id)
        assert gone is not None
        assert gone.status == "inactive"
        assert gone == await webhooks.get(made.id)
        assert made.id in {row.id for row in await webhooks.list(status="inactive").collect()}
        with pytest.raises(NotFoundError):
            await webhooks.deactivate(made.id)


async def test_the_other_writes() -> None:
    """The shared secret changes, an export runs and ends, and a token is reindexed once an hour."""
    sim = Simulator()
    async with simulated(sim) as session:
        first = await session.data.webhooks.shared_secret()
        second = await session.data.webhooks.rotate_shared_secret()
        assert first != second == await session.data.webhooks.shared_secret()
        options = EvmExportOptions(addresses=["0xa"], include_chains=["43114"])
        begun = await session.data.export_transactions(EvmTransactionExport(options=options))
        assert (begun.operation_status, begun.operation_type) == ("RUNNING", "TRANSACTION_EXPORT_EVM")
        sim.advance(60)
        assert (await session.data.operation(begun.operation_id)).operation_status == "COMPLETED"
        await session.data.nfts.reindex(43114, "0xabc", 7)
        with pytest.raises(BadRequestError, match="once an hour"):
            await session.data.nfts.reindex(43114, "0xabc", 7)
        sim.advance(3_600)
        await session.data.nfts.reindex(43114, "0xabc", 7)


async def test_numbers_in_a_body_are_sent_as_the_service_reads_them() -> None:
    """Amounts are sent as texts, lists as lists, and missing fields are left out."""
    request = PrimaryNetworkAddressWebhookRequest(
        url="https://example.org/hook",
        network="fuji",
        chain_id="p-chain",
        metadata=PrimaryNetworkAddressWebhookMetadata(
            key_type="addresses",
            keys=["P-fuji1x"],
            sub_events=PrimaryNetworkAddressSubEvents(address_activity_sub_events=["balance_threshold"]),
            balance_threshold_filter=BalanceThresholdFilter(
                balance_type="unlockedUnstaked", balance_threshold=2**70
            ),
        ),
    )
    sim = Simulator()
    async with simulated(sim) as session:
        made = await session.data.webhooks.create(request)
    assert isinstance(made, PrimaryNetworkAddressWebhook)
    assert made.metadata == request.metadata
    transport = scripted(lambda _: reply({"eventType": "new"}))
    async with session_of(transport) as session:
        await session.data.webhooks.create(request)
    (sent,) = transport.requests
    assert json.loads(sent.body or b"")["metadata"]["balanceThresholdFilter"]["balanceThreshold"] == str(
        2**70
    )
    assert b"description" not in (sent.body or b"")


def nested(depth: int) -> dict[str, Any]:
    """Return an object in as many others."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


WRONG: dict[str, Callable[[Any], Any]] = {
    "webhook must be EvmAddressWebhookRequest or": lambda data: data.webhooks.create({"url": "x"}),
    "status='odd' is not known": lambda data: data.webhooks.update("id", status="odd"),
    "did you mean 'name'?": lambda data: data.webhooks.update("id", nam="x"),
    "cannot be part of a path": lambda data: data.webhooks.update("a/b", name="x"),
    "addresses must be str, not int": lambda data: data.webhooks.add_addresses("id", addresses=[5]),
    "must be int, not float": lambda data: data.aggregate_signatures("fuji", quorum_percentage=1.5),
    "nested too deeply": lambda data: data.webhooks.create(Unknown(nested(5_000))),
}


async def test_wrong_arguments_are_refused_before_a_request() -> None:
    """A write with a wrong argument sends nothing."""
    transport = scripted(lambda _: reply({}))
    async with session_of(transport) as session:
        for said, call in WRONG.items():
            with pytest.raises(ConfigurationError) as caught:
                await call(session.data)
            assert said in str(caught.value)
    assert transport.requests == []


async def test_a_new_kind_is_sent_as_it_is() -> None:
    """`Unknown` carries a body of a kind that this version has no record for."""
    transport = scripted(lambda _: reply({"eventType": "new"}))
    async with session_of(transport) as session:
        await session.data.webhooks.create(Unknown({"eventType": "new", "url": "x"}))
    assert json.loads(transport.requests[0].body or b"") == {"eventType": "new", "url": "x"}


# Faults


@pytest.mark.parametrize(
    ("fault", "socket"),
    [
        *(({"disconnect": True}, False), ({"status": 502}, False), ({"stall": True}, False)),
        pytest.param({"disconnect": True}, *SOCKET.values, marks=SOCKET.marks),
    ],
)
async def test_a_lost_answer_creates_one_webhook(fault: dict[str, Any], socket: bool) -> None:
    """After a lost answer there is at most one webhook, and the list shows whether there is one."""
    sim = Simulator(rows=3, faults=[Fault(route="data.webhooks.create", at=1, **fault)])
    async with reached(sim, socket) as session:
        view = session.with_options(timeout=5.0)
        with pytest.raises(OutcomeUnknownError, match=r"session\.data\.webhooks\.list\(\)"):
            await view.data.webhooks.create(WEBHOOK)
        assert sim.stats.requests == 1  # no repetition of aiohttp
        rows = await session.data.webhooks.list().collect()
    assert len(rows) == (3 if "status" in fault else 4)


@pytest.mark.parametrize("fault", [{"disconnect": True}, {"status": 503}])
async def test_a_deactivation_is_repeated(fault: dict[str, Any]) -> None:
    """A deactivation without an answer is repeated; None says that the lost one did it."""
    sim = Simulator(rows=3, faults=[Fault(route="data.webhooks.deactivate", at=1, **fault)])
    async with simulated(sim) as session:
        made = await session.data.webhooks.create(WEBHOOK)
        gone = await session.data.webhooks.deactivate(made.id)
        assert (gone is None) == ("disconnect" in fault)
        assert (await session.data.webhooks.get(made.id)).status == "inactive"


async def test_a_refused_write_is_repeated_in_time() -> None:
    """Writes pass the gate: a 429 is waited out and repeated, and one webhook a call is made."""
    sim = Simulator(rows=0, limit=2, window=10.0)
    async with simulated(sim) as session:
        await asyncio.gather(*(session.data.webhooks.create(WEBHOOK) for _ in range(5)))
        assert len(await session.data.webhooks.list().collect()) == 5
    assert sim.stats.sent_while_stopped == 0
    assert asyncio.get_running_loop().time() >= 20.0


async def test_only_get_is_coalesced_and_cached() -> None:
    """A view that coalesces and caches sends each write, and each POST that reads."""
    sim = Simulator(rows=0)
    async with simulated(sim) as session:
        view = session.with_options(coalesce=True)
        made = await asyncio.gather(*(view.data.webhooks.create(WEBHOOK) for _ in range(3)))
        assert len({webhook.id for webhook in made}) == 3
        before = sim.stats.requests
        network = view.data.primary_network
        calls = (network.last_activity_v2("fuji", "p-chain", addresses="P-fuji1x") for _ in range(2))
        await asyncio.gather(*calls)
        assert sim.stats.requests == before + 2


async def test_a_closed_session_says_that_a_write_may_be_done() -> None:
    """A session that is closed during a write says so, and not during a read."""
    sim = Simulator(latency=10.0)
    session = simulated(sim)
    calls = [
        asyncio.ensure_future(session.data.webhooks.create(WEBHOOK)),
        asyncio.ensure_future(session.data.chain(43114)),
    ]
    await asyncio.sleep(1.0)
    await session.aclose()
    write, read = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(write, SessionClosedError)
    assert isinstance(read, SessionClosedError)
    assert str(write).endswith("POST /v1/webhooks: the service may have carried it out")
    assert "carried" not in str(read)


# POST lists


async def test_events_and_errors_name_the_method() -> None:
    """Events and errors of a POST say POST, and nothing of its body."""
    heard: list[Event] = []
    sim = Simulator(faults=[Fault(route="data.primary_network.utxos_v2", at=2, status=403)])
    async with simulated(sim, on_event=heard.append) as session:
        pages = session.data.primary_network.utxos_v2(
            "fuji", "x-chain", addresses=["X-fuji1abc"], page_size=5
        )
        await anext(pages)
        with pytest.raises(
            PermissionDeniedError, match="for POST /v1/networks/fuji/blockchains/x-chain/utxos"
        ):
            await pages.collect()
    assert {event.where for event in heard if isinstance(event, RequestSent)} == {
        "POST /v1/networks/fuji/blockchains/x-chain/utxos"
    }
    assert "X-fuji1abc" not in repr(heard)


@settings(deadline=None, max_examples=12)
@given(
    size=st.integers(3, 30),
    places=st.sets(st.integers(1, 40), min_size=1, max_size=3),
    dying=st.booleans(),
    in_body=st.booleans(),
)
async def test_post_lists_are_resumed_and_restarted(
    size: int, places: set[int], dying: bool, in_body: bool
) -> None:
    """Walks with POST that resume or restart at any row lose and repeat none, wherever the token is."""
    sim = Simulator(rows=40)
    rows: list[Any] = []
    saved = ""
    stops, deaths = (set[int](), places) if dying else (places, set[int]())
    async with simulated(sim) as session:

        def walk(resume: Checkpoint | None) -> Any:
            if in_body:
                looking = session.metrics.looking_glass
                return looking.composite_query(
                    queries=[balance("1"), balance("2")], operator="OR", page_size=size, resume=resume
                )
            return session.data.primary_network.utxos_v2(
                "fuji", "p-chain", addresses="P-fuji1x", page_size=size, resume=resume
            )

        pages = walk(None)
        finished = False
        while not finished:
            finished = True
            async for row in pages.items():
                rows.append(row)
                if len(rows) in deaths:
                    sim.advance(25 * 3_600)
                if len(rows) in stops:
                    stops = stops - {len(rows)}
                    saved = pages.checkpoint.dumps()
                    finished = False
                    break
            if not finished:
                await pages.aclose()
                pages = walk(Checkpoint.loads(saved))
        held = await walk(None).collect()
    assert rows == held
    assert len(held) > 25


async def test_a_checkpoint_belongs_to_its_method_and_body() -> None:
    """A checkpoint of a POST list opens the same body alone, not the GET list of the same path."""
    async with simulated(Simulator(rows=30)) as session:
        network = session.data.primary_network
        checkpoint = (
            await anext(network.utxos_v2("fuji", "p-chain", addresses="P-fuji1x", page_size=5))
        ).checkpoint
        assert checkpoint.path == "POST /v1/networks/fuji/blockchains/p-chain/utxos"
        network.utxos_v2("fuji", "p-chain", addresses=["P-fuji1x"], page_size=5, resume=checkpoint)
        with pytest.raises(CheckpointError, match="belongs to another query"):
            network.utxos_v2("fuji", "p-chain", addresses="P-fuji1y", page_size=5, resume=checkpoint)
        with pytest.raises(CheckpointError, match="belongs to another query"):
            network.utxos("fuji", "p-chain", addresses="P-fuji1x", page_size=5, resume=checkpoint)


async def test_tokens_in_a_body_are_in_no_address() -> None:
    """The token of a composite query is sent in the body, and nowhere in the URL."""
    pages = iter([{"nextPageToken": "tok-1"}, {}])
    rest = {"subQueryCounts": {}, "totalCount": 1, "addresses": ["0xa"]}
    transport = scripted(lambda _: reply({**rest, **next(pages)}))
    async with session_of(transport) as session:
        walk = session.metrics.looking_glass.composite_query(queries=[balance("1")], operator="AND")
        assert await walk.collect() == ["0xa", "0xa"]
    first, second = (json.loads(request.body or b"") for request in transport.requests)
    assert second == {**first, "pageToken": "tok-1"}
    assert first["pageSize"] == 10_000
    assert not any("?" in request.url for request in transport.requests)


async def test_composite_queries_combine_their_subqueries() -> None:
    """AND gives the addresses of all subqueries, OR those of any; the counts are those of each."""
    async with simulated(Simulator(rows=200)) as session:
        looking = session.metrics.looking_glass

        async def found(*names: str, operator: Any = "AND") -> set[str]:
            walk = looking.composite_query(queries=list(map(balance, names)), operator=operator)
            return set(await walk.collect())

        one, two = await found("1"), await found("2")
        assert await found("1", "2") == one & two
        assert await found("1", "2", operator="OR") == one | two
        page = await anext(looking.composite_query(queries=[balance("1"), balance("2")], operator="AND"))
        assert page.extra["sub_query_counts"] == {"1": len(one), "2": len(two)}
        assert page.extra["total_count"] == len(one & two)


def test_an_estimate_knows_the_page_size_in_a_body() -> None:
    """The estimate of a POST list takes the page size from its body."""
    session = session_of(scripted(lambda _: reply({})))
    walk = session.metrics.looking_glass.composite_query(queries=[balance("1")], operator="AND")
    assert walk.estimate(rows=25_000).requests == 3
