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
    """Of eight processes that connect at once, one is elected, and serves a link of each."""
    async with processes(8, url, name) as them:
        ends = await asyncio.gather(*(process.connect() for process in them))
        assert sum(len(process.elections) for process in them) == 1
        answers = [await end.ask(b"%d" % place) for place, end in enumerate(ends)]
        assert answers == [b"echo %d" % place for place in range(8)]


async def test_prefixes_keep_apart(own_server: RedisServer, name: str) -> None:
    """Processes with another prefix share nothing, and all keys have the prefix."""
    async with (
        processes(1, own_server.url, name) as (one,),
        processes(1, own_server.url, name, prefix="other") as (other,),
    ):
        await one.connect()
        await other.connect()
        assert len(one.elections) == len(other.elections) == 1
        script = "local found = {{}} for _, key in ipairs(redis.call('KEYS', '{}*')) do"
        script += " found[#found + 1] = redis.call('PTTL', key) > 0 and 'dies' or key end"
        script += " return table.concat(found, ' ')"
        prefixes = [
            own_server.command("EVAL", script.format(prefix), "0") for prefix in ("chainapi:", "other:", "")
        ]
        assert [text.split() for text in prefixes] == [["dies"] * 2, ["dies"] * 2, ["dies"] * 4]


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
        primary.unlink()
        primary.symlink_to(server.socket)
        with pytest.raises(ShareUnavailableError, match="READONLY"):
            await host.connect()
        assert await (await host.connect()).ask(b"x") == b"echo x"


# Redis that goes away


async def test_a_connection_that_redis_closes_breaks_the_links(own_server: RedisServer, name: str) -> None:
    """A connection is never replaced in silence: a message may be missing."""
    async with processes(2, own_server.url, name) as (host, participant):
        _, end = await connected(host, participant)
        await host.served.get()
        served = await host.served.get()
        own_server.command("CLIENT", "KILL", "TYPE", "pubsub")
        await end.broken.wait()
        await served.broken.wait()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


async def test_redis_that_is_not_there(name: str) -> None:
    """The error of a Redis that cannot be reached names host and port, and no password."""
    port = free_port()
    process = Process(f"redis://user:hunter2@127.0.0.1:{port}/0", name)
    carrier = process.carrier
    with pytest.raises(ShareUnavailableError, match=f"127.0.0.1:{port}") as caught:
        await process.connect()
    assert "hunter2" not in f"{caught.value!r} {caught.value} {carrier!r} {vars(caught.value)}"
    await process.aclose()


async def test_redis_that_hangs(own_server: RedisServer, name: str) -> None:
    """A Redis that answers nothing breaks links by silence, and is an error for who connects, old or new."""
    async with processes(2, own_server.url, name, silence=0.3, timeout=0.2) as (host, participant):
        _, end = await connected(host, participant)
        own_server.pause()
        await end.broken.wait()
        with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.2 s"):
            await participant.connect()
        with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.2 s"):
            await participant.connect()
        own_server.resume()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


# Who may do what


async def test_processes_with_the_secret_share(url: str, name: str) -> None:
    """Processes with the same secret, of the carrier or of the quota, share; another gets no link."""
    async with (
        processes(1, url, name, secret=b"one", ttl=0.3, silence=0.3) as (host,),
        processes(2, url, name, ttl=0.3, silence=0.3) as (participant, other),
    ):
        host.secret = b"another"  # without effect beside a secret of its own
        await host.connect()
        participant.secret = b"one"
        assert await (await participant.connect()).ask(b"x") == b"echo x"
        other.secret = b"another"
        with pytest.raises(ShareUnavailableError, match="does not answer"):
            await other.connect()
        assert host.served.qsize() == 2


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
        ("-LOADING Redis is loading the dataset in memory", r"\(LOADING\): it is still loading"),
        ("-WRONGPASS invalid username-password pair", r"\(WRONGPASS\): the user name or the password"),
        ("-MOVED 3999 127.0.0.1:6381", r"\(MOVED\): another node of the cluster"),
        ("-DENIED Redis is running in protected mode", r"\(DENIED\): it accepts local clients only"),
        ("-NOPROTO unsupported protocol version", r"\(NOPROTO\): .* Redis 6 or newer"),
        (
            "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `user`, `hunter2`",
            "Redis 6 or newer",
        ),
        ("-ERR max number of clients reached", r"\(ERR\): look into its log"),
        ("HTTP/1.1 400 Bad Request", "was lost: the server sent something else than Redis does; correct"),
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
    assert "args" not in str(caught.value)
    await process.aclose()


async def test_messages_out_of_order_are_ignored(
    name: str, refusing: Callable[[str], Awaitable[str]]
) -> None:
    """Notices of the server, and answers to nothing, are not taken for answers to commands."""
    notice = ">2\r\n$6\r\nnotice\r\n:1\r\n"
    process = Process(await refusing(f"{notice}%1\r\n+proto\r\n:3\r\n:7\r\n{notice}:8"), name, timeout=0.1)
    with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.1 s"):
        await process.connect()
    await process.aclose()


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        (["CONFIG SET requirepass x"], "NOAUTH"),
        (["CONFIG SET maxmemory 1"], "OOM"),
        (["REPLICAOF 127.0.0.1 1"], "READONLY"),
        (["ACL SETUSER default resetchannels"], "NOPERM"),
        (["ACL SETUSER default -publish"], "NOPERM"),
        (["ACL SETUSER default resetkeys"], "NOPERM"),
    ],
)
async def test_a_configuration_that_refuses(
    commands: list[str], code: str, own_server: RedisServer, name: str
) -> None:
    """A command that a real server does not permit is an error with its code and with advice."""
    async with processes(2, own_server.url, name) as (host, participant):
        if code == "NOPERM":
            await host.connect()
        for command in commands:
            assert own_server.command(*command.split()) == "+OK"
        with pytest.raises(ShareUnavailableError, match=rf"\({code}\): (?!look)"):
            await participant.connect()


PERMISSIONS = (
    "~chainapi:* &chainapi:* +hello +client|setname +select +ping +eval +publish +subscribe +unsubscribe "
    "+pubsub|numsub +get +set +del +pexpire +time +hmget +hset"
)


async def test_a_user_with_the_documented_permissions(own_server: RedisServer, name: str) -> None:
    """A user of Redis with the permissions that the docs list, and no others, shares a quota."""
    documented = (Path(__file__).parents[3] / "docs" / "redis.md").read_text("utf-8")
    assert PERMISSIONS in " ".join(documented.split())
    own_server.command(*f"ACL SETUSER app on >p@ss resetchannels {PERMISSIONS}".split())
    url = f"redis://app:p%40ss@127.0.0.1:{own_server.port}/2"
    async with processes(2, url, name) as (host, participant):
        _, end = await connected(host, participant)
        assert await end.ask(b"x") == b"echo x"
        host.peer.store(name, b"memory")
        await host.aclose()
        await participant.connect()
        assert participant.elections[0][0] == b"memory"


async def test_a_unix_socket(own_server: RedisServer, name: str) -> None:
    """A URL may name a Unix socket."""
    async with processes(2, f"unix://{own_server.socket}?db=1", name) as them:
        _, end = await connected(*them)
        assert await end.ask(b"x") == b"echo x"
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
            assert await end.ask(bytes(200_000)) == b"echo " + bytes(200_000)
        stranger = Process(base, name)
        with pytest.raises(ShareUnavailableError, match="cannot connect"):
            await stranger.connect()
        await stranger.aclose()


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
        assert await end.ask(b"x") == b"echo x"


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
    for module in [module for module in sys.modules if module.startswith("chainapi.share.redis.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(ConfigurationError, match=r"needs hiredis.*pip install 'chainapi\[redis\]'"):
        RedisCarrier("redis://localhost")
