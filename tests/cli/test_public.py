"""Public services: a transport in memory records what would be sent to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chainapi import Provider, Session
from chainapi.errors import AuthenticationError, ConfigurationError
from tests.cli.recorder import KEY, Recorder
from tests.cli.terminal import FAILED, WRONG_USAGE, chainapi
from tests.cli.terminal import environment as environment

METRICS, DATA = "https://metrics.avax.network", "https://data-api.avax.network"
POINTS = {"results": [{"timestamp": 86_400, "value": 1.5}], "nextPageToken": ""}
CHAINS = {"chains": [{"chainId": "43114", "chainName": "C-Chain"}]}


@pytest.fixture
def keyless(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the key from the environment."""
    monkeypatch.delenv("CHAINAPI_API_KEY")


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize("provider", [Provider.PUBLIC, "public"], ids=["preset", "name"])
async def test_public_services_answer_without_a_key(provider: Provider | str) -> None:
    """Both services are reached at their addresses, and no request has a header of the key."""
    recorder = Recorder({**POINTS, **CHAINS})
    async with Session(provider=provider, transport=recorder) as session:
        await session.data.list("/v1/chains", items="chains").collect()
        await session.metrics.chains.metric(43114, "avgTps").collect()
    assert recorder.places == [f"{DATA}/v1/chains", f"{METRICS}/v2/chains/43114/metrics/avgTps"]
    for request in recorder.requests:
        assert not {name for name in request.headers if "key" in name}


async def test_public_data_has_the_key_in_its_own_header() -> None:
    """With a key, the Data API gets it in x-glacier-api-key, and the Metrics API does not get it."""
    recorder = Recorder({**POINTS, **CHAINS})
    async with Session(provider=Provider.PUBLIC, api_key=KEY, transport=recorder) as session:
        await session.data.list("/v1/chains", items="chains").collect()
        await session.metrics.chains.metric(43114, "avgTps").collect()
    assert recorder.keys == [{"x-glacier-api-key": KEY}, {}]


async def test_a_route_that_the_public_service_has_elsewhere() -> None:
    """The route of the specification is at its public path, for pages, checkpoints and rows alike."""
    recorder = Recorder(POINTS)
    async with Session(provider="public", transport=recorder) as session:
        pages = session.metrics.avg_tps(43114)
        assert [point.value async for point in pages.items()] == [1.5]
        assert pages.checkpoint.path == "/v2/chains/43114/metrics/avgTps"
    assert recorder.places == [f"{METRICS}/v2/chains/43114/metrics/avgTps"]


@pytest.mark.usefixtures("keyless")
async def test_the_specification_demands_a_key() -> None:
    """Without a key the Data API of any other deployment is not reached."""
    recorder = Recorder(CHAINS)
    async with Session(transport=recorder) as session:
        with pytest.raises(ConfigurationError, match="the key of the Data API is not set"):
            session.data.list("/v1/chains", items="chains")
    assert recorder.requests == []


async def test_a_key_that_the_public_service_refuses_is_an_error() -> None:
    """A wrong key is not retried without one."""
    recorder = Recorder({"message": "no", "error": "Unauthorized", "statusCode": 401}, 401)
    async with Session(provider="public", api_key=KEY, transport=recorder) as session:
        with pytest.raises(AuthenticationError):
            await session.data.get("/v1/chains/43114")
    assert len(recorder.requests) == 1


# --- the command line -----------------------------------------------------------------------------


def export_to(folder: Path) -> tuple[str, ...]:
    """Return the words of an export."""
    return ("export", "/v1/chains", "--items", "chains", "--out", str(folder / "chains.jsonl"))


COMMANDS: dict[str, tuple[Callable[[Path], tuple[str, ...]], str, object]] = {
    "tps": (lambda _: ("tps", "43114"), f"{METRICS}/v2/chains/43114/metrics/avgTps", POINTS),
    "list": (lambda _: ("list", "/v1/chains", "--items", "chains"), f"{DATA}/v1/chains", CHAINS),
    "route": (lambda _: ("list", "data.chains"), f"{DATA}/v1/chains", {"chains": []}),
    "export": (export_to, f"{DATA}/v1/chains", CHAINS),
}
every_command = pytest.mark.parametrize(("words", "place", "body"), COMMANDS.values(), ids=COMMANDS.keys())


@every_command
@pytest.mark.parametrize("by", ["option", "variable"])
def test_commands_reach_the_public_services(
    words: Callable[[Path], tuple[str, ...]],
    place: str,
    body: object,
    by: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--provider public` and CHAINAPI_PROVIDER=public give address and header, with a key or without."""
    options = ["--provider", "public"]
    if by == "variable":
        options.clear()
        monkeypatch.setenv("CHAINAPI_PROVIDER", "public")
        monkeypatch.delenv("CHAINAPI_METRICS_BASE_URL")
        monkeypatch.delenv("CHAINAPI_DATA_BASE_URL")
    for key in (KEY, None):
        recorder = Recorder(body)
        if key is None:
            monkeypatch.delenv("CHAINAPI_API_KEY")
        outcome = chainapi(*words(tmp_path / ("keyed" if key else "keyless")), *options, transport=recorder)
        assert (outcome.code, set(recorder.places)) == (0, {place}), outcome.err
        expected = {"x-glacier-api-key": key} if key and place.startswith(DATA) else {}
        assert recorder.keys == [expected] * len(recorder.requests)
        assert KEY not in outcome.out + outcome.err


def test_the_header_of_the_key_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHAINAPI_API_KEY_HEADER authenticates at any other deployment."""
    recorder = Recorder(CHAINS)
    monkeypatch.setenv("CHAINAPI_API_KEY_HEADER", "X-Own-Key")
    outcome = chainapi("list", "/v1/chains", "--items", "chains", transport=recorder)
    assert (outcome.code, recorder.keys) == (0, [{"x-own-key": KEY}])


def test_an_interrupted_export_is_continued_with_its_provider(tmp_path: Path) -> None:
    """The command that is printed to continue an export names the deployment too."""
    recorder = Recorder({"message": "no", "error": "Forbidden", "statusCode": 403}, 403)
    outcome = chainapi(*export_to(tmp_path), "--provider", "public", transport=recorder)
    assert outcome.code == FAILED
    assert "--provider public" in outcome.err


def test_an_unknown_deployment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists the names, of an option and of the variable alike, and nothing is sent."""
    recorder = Recorder(CHAINS)
    outcome = chainapi("list", "data.chains", "--provider", "pubic", transport=recorder)
    assert outcome.code == WRONG_USAGE
    for name in Provider.NAMES:
        assert name in outcome.err
    monkeypatch.setenv("CHAINAPI_PROVIDER", "pubic")
    outcome = chainapi("list", "data.chains", transport=recorder)
    assert outcome.code == WRONG_USAGE
    assert (
        "CHAINAPI_PROVIDER='pubic' is no known deployment: the names are specification, public" in outcome.err
    )
    assert recorder.requests == []


def test_options_know_each_deployment() -> None:
    """The command line has the names of the library, and no option for the key."""
    for command in ("tps", "list", "export", "quota"):
        text = " ".join(chainapi(command, "--help").out.replace("│", " ").split())
        assert f"[choices: {', '.join(Provider.NAMES)}]" in text
        assert "--provider" in text
        assert "--api-key " not in text
