"""Lists and resources by path: what is sent, and what is an option of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chainapi.errors import APITimeoutError, ConfigurationError
from chainapi.transport import Request
from tests.sessions import Answering, reaching


def queries(requests: list[Request]) -> list[str]:
    """Return the query strings of requests."""
    return [request.url.partition("?")[2] for request in requests]


def calls(session: Any, **arguments: Any) -> list[Callable[[], Any]]:
    """Return a call of each method that takes a path, with some arguments."""
    return [
        lambda: session.data.get("/v1/chains", **arguments),
        lambda: session.data.get_response("/v1/chains", **arguments),
        lambda: session.data.list("/v1/chains", items="chains", **arguments).collect(),
    ]


async def test_names_of_options_are_never_sent() -> None:
    """An option of a call by path holds for the call, and is no parameter of its request."""
    slow = Answering(body=b'{"chains": []}', seconds=5.0)
    async with reaching(slow, max_attempts=1, timeout=30.0) as session:
        for call in calls(session, timeout=2.0, headers={"x-trace": "7"}, network="mainnet"):
            began = asyncio.get_running_loop().time()
            with pytest.raises(APITimeoutError):
                await call()
            assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
    assert queries(slow.requests) == ["network=mainnet"] * 3
    assert [request.headers["x-trace"] for request in slow.requests] == ["7"] * 3


async def test_params_are_sent_whatever_their_names() -> None:
    """`params=` sends names that are arguments, options, or look like misspelt ones."""
    service = Answering(body=b'{"chains": []}')
    params = {"timeout": 3, "page_sze": "x", "model": None, "tag": ["a", "b"]}
    async with reaching(service) as session:
        for call in calls(session, params=params, network="mainnet"):
            await call()
    assert queries(service.requests) == ["network=mainnet&timeout=3&page_sze=x&tag=a%2Cb"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": -1}, "^timeout="),
        ({"timeut": 1}, "'timeut'; did you mean 'timeout'"),
        ({"params": [("a", 1)]}, r"^params=.* must be a mapping"),
        ({"params": {"network": "a"}, "network": "b"}, "'network' is given twice"),
        ({"params": {"pageToken": "a"}}, "pageToken is set by the walk"),
        ({"params": {"": "a"}}, "no name of a query parameter"),
    ],
)
async def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    """An invalid option or parameter is refused with what to do; nothing is sent."""
    service = Answering(body=b'{"chains": []}')
    async with reaching(service) as session:
        for call in calls(session, **arguments):
            with pytest.raises(ConfigurationError, match=message):
                await call()
    assert service.requests == []


async def test_a_page_size_is_given_once() -> None:
    """`page_size=` and `pageSize` of `params=` together are refused."""
    async with reaching(Answering()) as session:
        with pytest.raises(ConfigurationError, match="'pageSize' is given twice"):
            session.data.list("/v1/chains", page_size=5, params={"pageSize": 6})
