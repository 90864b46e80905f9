"""The carrier over Redis, against a real server: its options, addresses, and errors that say what to do."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.redis import RedisCarrier
from tests.ports import free_port
from tests.raw_server import until
from tests.share.redis.processes import Process, connected, processes
from tests.share.redis.server import RedisServer

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]


async def test_one_of_many_becomes_the_host(url: str, name: str) -> None:
    """Of eight machines that connect at once, one hosts the quota, for the sessions of all."""
    async with processes(8, url, name) as them:
        ends = await asyncio.gather(*(process.connect() for process in them))
        assert {(await end.state()).processes for end in ends} == {8}


async def test_prefixes_keep_apart(own_server: RedisServer, name: str) -> None:
    """Machines with another prefix share nothing; all keys have the prefix, and expire."""
    async with (
        processes(1, own_server.url, name) as (one,),
        processes(1, own_server.url, name, prefix="other") as (other,),
    ):
        ends = [await one.connect(stopped=100.0), await other.connect(stopped=100.0)]
        assert [(await end.state()).processes for end in ends] == [1, 1]
        script = "local found = {{}} for _, key in ipairs(redis.call('KEYS', '{}*')) do"
        script += " found[#found + 1] = redis.call('PTTL', key) > 0 and 'dies' or key end"
        script += " return table.concat(found, ' ')"

        def found(prefix: str) -> list[str]:
            return own_server.command("EVAL", script.format(prefix), "0").split()

        await until(lambda: len(found("")) == 4)  # the lock and the memory of each
        assert [found("chainapi:"), found("other:"), found("")] == [["dies"] * 2, ["dies"] * 2, ["dies"] * 4]


async def test_a_host_on_a_former_primary_ends(
    own_server: RedisServer, server: RedisServer, name: str, tmp_path: Path
) -> None:
    """A host whose Redis became a read-only replica ends, and connects to where the address leads by then."""
    primary = tmp_path / "now.sock"
    primary.symlink_to(own_server.socket)
    async with processes(1, f"unix://{primary}", name, ttl=1.0) as (host,):
        end = await host.connect()
        assert own_server.command("REPLICAOF", "127.0.0.1", "1") == "+OK"
        await end.broken.wait()
        with pytest.raises(ShareUnavailableError, match=r"ReadOnlyError.*the address of the primary"):
            await host.connect()
        primary.unlink()
        primary.symlink_to(server.socket)
        assert (await (await host.connect()).state()).processes == 1


# Redis that goes away


async def test_a_connection_that_redis_closes_breaks_the_links(own_server: RedisServer, name: str) -> None:
    """A connection is never replaced in silence: a message may be missing."""
    async with processes(2, own_server.url, name) as (host, guest):
        ends = await connected(host, guest)
        own_server.command("CLIENT", "KILL", "TYPE", "pubsub")
        for end in ends:
            await end.broken.wait()
        assert (await (await guest.connect()).state()).processes == 1


async def test_redis_that_is_not_there(name: str) -> None:
    """The error of a Redis that cannot be reached names host and port, and no password."""
    port = free_port()
    process = Process(f"redis://user:hunter2@127.0.0.1:{port}/0", name)
    carrier = process.carrier
    with pytest.raises(ShareUnavailableError, match=f"127.0.0.1:{port}") as caught:
        await process.connect()
    assert "hunter2" not in f"{caught.value!r} {caught.value} {carrier!r} {vars(caught.value)}"


async def test_redis_that_hangs(own_server: RedisServer, name: str) -> None:
    """A Redis that answers nothing breaks links by silence, and is an error for who connects, old or new."""
    async with processes(3, own_server.url, name, silence=0.3, timeout=0.2) as (host, guest, new):
        _, end = await connected(host, guest)
        own_server.pause()
        await end.broken.wait()
        for process in (guest, new):
            with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.2 s"):
                await process.connect()
        own_server.resume()
        assert (await (await guest.connect()).state()).processes == 1


# Who may do what


async def test_processes_with_the_secret_share(url: str, name: str) -> None:
    """Machines with the same secret share a quota; another gets no link."""
    async with (
        processes(2, url, name, secret=b"one", ttl=0.3, silence=0.3) as (host, guest),
        processes(1, url, name, secret=b"another", ttl=0.3, silence=0.3) as (other,),
    ):
        _, end = await connected(host, guest)
        with pytest.raises(ShareUnavailableError, match=r"does not answer.* same secret"):
            await other.connect()
        assert (await end.state()).processes == 2


def test_the_secret_of_a_carrier(url: str, name: str) -> None:
    """A secret of the carrier replaces the one that sessions derive from their key."""
    carrier, own = RedisCarrier(url), RedisCarrier(url, secret=b"own")
    assert [one.remote(name, b"derived").secret for one in (carrier, own)] == [b"derived", b"own"]


# Errors of the server, and addresses


@pytest.fixture
async def refusing() -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Return the function that starts a server that answers each command with one error."""
    servers = []

    async def start(answer: str) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(1_000):
                writer.write(answer.encode() + b"\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        return f"redis://user:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("-LOADING Redis is loading the dataset in memory", "it is still loading"),
        ("-WRONGPASS invalid username-password pair", "another user name or password"),
        ("-MOVED 3999 127.0.0.1:6381", "another node of the cluster"),
        ("-DENIED Redis is running in protected mode", "it refused a command: look into its log"),
        ("-ERR max number of clients reached", "it cannot be reached, or ended"),
        ("HTTP/1.1 400 Bad Request", "something else than Redis does: correct"),
    ],
)
async def test_a_server_that_refuses(
    answer: str, advice: str, name: str, refusing: Callable[[str], Awaitable[str]]
) -> None:
    """Each refusal is an error that names the remedy, and shows neither password nor the server's text."""
    process = Process(await refusing(answer), name)
    with pytest.raises(ShareUnavailableError, match=advice) as caught:
        await process.connect()
    assert "hunter2" not in str(caught.value)
    assert answer.split(maxsplit=1)[1] not in str(caught.value)


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        (["CONFIG SET requirepass x"], "AuthenticationError"),
        (["CONFIG SET maxmemory 1"], "OutOfMemoryError"),
        (["REPLICAOF 127.0.0.1 1"], "ReadOnlyError"),
        (["ACL SETUSER default resetchannels"], "NoPermissionError"),
        (["ACL SETUSER default -publish"], "NoPermissionError"),
        (["ACL SETUSER default resetkeys"], "NoPermissionError"),
    ],
)
async def test_a_configuration_that_refuses(
    commands: list[str], error: str, own_server: RedisServer, name: str
) -> None:
    """A command that a real server does not permit is an error with its name and with advice."""
    async with processes(2, own_server.url, name) as (host, guest):
        if error == "NoPermissionError":
            await host.connect()
        for command in commands:
            assert own_server.command(*command.split()) == "+OK"
        with pytest.raises(ShareUnavailableError, match=rf"\({error}\): (?!.*look into)"):
            await guest.connect()


PERMISSIONS = (
    "~chainapi:* &chainapi:* +client|setname +select +ping +publish +subscribe +unsubscribe +pubsub|numsub "
    "+get +set +pttl +pexpire +del +evalsha +script|load"
)


async def test_a_user_with_the_documented_permissions(own_server: RedisServer, name: str) -> None:
    """A user of Redis with the permissions that the docs list, and no others, shares a quota."""
    documented = (Path(__file__).parents[3] / "docs" / "processes.md").read_text("utf-8")
    assert PERMISSIONS in " ".join(documented.split())
    own_server.command(*f"ACL SETUSER app on >p@ss resetchannels {PERMISSIONS}".split())
    url = f"redis://app:p%40ss@127.0.0.1:{own_server.port}/2"
    async with processes(2, url, name, ttl=1.0) as (host, guest):
        await host.connect(stopped=100.0)
        end = await guest.connect()
        assert (await end.state()).processes == 2
        renewals = "return string.match(redis.call('INFO', 'commandstats'), 'pexpire:calls=(%d+)') or '0'"
        await until(lambda: int(own_server.command("EVAL", renewals, "0")) > 5)  # after more than a lease
        await host.aclose()
        await end.broken.wait()
        assert (await (await guest.connect()).state()).stopped > 90.0


async def test_a_unix_socket(own_server: RedisServer, name: str) -> None:
    """A URL may name a Unix socket."""
    async with processes(2, f"unix://{own_server.socket}?db=1", name) as them:
        _, end = await connected(*them)
        assert (await end.state()).processes == 2
        assert str(own_server.socket) in repr(them[0].carrier)


async def test_tls(own_server: RedisServer, name: str, tmp_path: Path) -> None:
    """`rediss://` verifies the certificate, by the authority that the URL names, and then shares a quota."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with _tls_proxy(own_server.port, context) as port:
        base = f"rediss://localhost:{port}"
        async with processes(2, f"{base}?ssl_ca_certs={tmp_path / 'ca.pem'}", name) as them:
            _, end = await connected(*them)
            assert (await end.state()).processes == 2
        stranger = Process(base, name)
        with pytest.raises(ShareUnavailableError, match="cannot be reached"):
            await stranger.connect()


@asynccontextmanager
async def _tls_proxy(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, forth), pump(back, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "localhost", 0, ssl=context, family=2)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_a_node_of_a_cluster(cluster: RedisServer, name: str) -> None:
    """A node of a cluster serves quotas as any server does."""
    await until(lambda: "cluster_state:ok" in cluster.command("CLUSTER", "INFO"))
    async with processes(2, cluster.url, name) as them:
        _, end = await connected(*them)
        assert (await end.state()).processes == 2


def test_malformed_addresses() -> None:
    """A URL that redis-py refuses is a ConfigurationError that does not repeat it."""
    for address in (
        "http://hunter2",
        "redis://:hunter2@h:port",
        "redis://h?hunter2=1",
        "redis://h?db=hunter2",
    ):
        with pytest.raises(ConfigurationError, match="use redis://") as caught:
            RedisCarrier(address)
        assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__!r}"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without redis-py the error names the extra."""
    monkeypatch.delitem(sys.modules, "chainapi.share.machines")
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"needs redis.*pip install 'chainapi\[redis\]'"):
        RedisCarrier("redis://localhost")
