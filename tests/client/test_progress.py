"""Progress of walks and exports: its text, its time left, and the places that show it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import Factory, define

from chainapi._limits.view import QuotaSnapshot, seconds_left
from chainapi._paging import progress as progress_module
from chainapi._paging.progress import (
    Notebook,
    display,
    progress_text,
)
from chainapi.errors import ServerError
from chainapi.export import export
from chainapi.simulator import Fault, Simulator
from tests.client.test_resume import BLOCKS
from tests.sessions import simulated


@define
class Seen:
    """A display that keeps all it is shown."""

    states: list[tuple[str, float | None]] = Factory(list[tuple[str, float | None]])
    closed: int = 0

    def update(self, text: str, share: float | None) -> None:
        """Keep a state."""
        self.states.append((text, share))

    def close(self) -> None:
        """Count."""
        self.closed += 1


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Return a display, in place of that of the program."""
    made = Seen()
    monkeypatch.setattr(progress_module, "display", lambda: made)
    return made


@pytest.mark.rule
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, None, 0.0, None), "0 rows · 0 rows/s"),
        ((1_500, None, 10.0, None), "1,500 rows · 150 rows/s"),
        ((500, 2_000, 10.0, 30.0), "500 of 2,000 rows (25%) · 50 rows/s · about 30 s left"),
        ((1, 2, 1.0, 7_200.0, 0.5), "1 of 2 rows (50%) · 1 rows/s · about 2 h left"),
        ((5, 10, 1.0, 0.0, 0.0, "about "), "5 of about 10 rows (50%) · 5 rows/s"),
        ((1, 2, 1.0, None, 150.0), "1 of 2 rows (50%) · 1 rows/s · next request in 2 min"),
    ],
)
def test_the_line(arguments: tuple[Any, ...], text: str) -> None:
    """The line has rows, their share, speed, time left, and a wait from a second on."""
    assert progress_text(*arguments) == text


@pytest.mark.rule
@pytest.mark.parametrize(
    ("requests", "quota", "seconds"),
    [
        (100, {}, 0.0),
        (100, {"stopped_for": 30.0}, 30.0),
        (10, {"limit": 20, "window": 60.0, "remaining": 20, "reset_in": 50.0}, 0.0),
        (11, {"limit": 20, "window": 60.0, "remaining": 20, "reset_in": 50.0}, 50.0),
        (20, {"limit": 20, "window": 60.0, "remaining": 20, "reset_in": 50.0}, 50.0),
        (21, {"limit": 20, "window": 60.0, "remaining": 20, "reset_in": 50.0}, 110.0),
        (1, {"limit": 20, "window": 60.0, "remaining": 0, "stopped_for": 90.0}, 90.0),
        (1, {"limit": 20, "window": 60.0, "remaining": 0}, 60.0),
    ],
)
def test_seconds_left_by_the_quota(requests: int, quota: dict[str, Any], seconds: float) -> None:
    """Requests of two units wait for the windows that they need, and for a stop."""
    assert seconds_left(requests, 2.0, QuotaSnapshot(100.0, **quota)) == seconds


async def test_collect_shows_rows_share_and_time_left(seen: Seen) -> None:
    """`collect(limit, progress=True)` shows each half second, with the wait that the gate knows."""
    simulator = Simulator(rows=500, limit=2, window=60.0, latency=0.1)
    async with simulated(simulator) as session:
        rows = await session.data.list(BLOCKS, page_size=100).collect(400, progress=True)
    assert len(rows) == 400
    texts = [text for text, _ in seen.states]
    assert seen.states[0] == ("0 of 400 rows (0%) · 0 rows/s", 0.0)
    assert any("200 of 400 rows (50%)" in text and "next request in 5" in text for text in texts)
    waited = next(text for text in texts if "(50%)" in text and " left" in text)
    assert "about 60 s left" in waited  # the rest of the window, not the pace of the first two pages
    assert texts[-1].startswith("400 of 400 rows (100%)")
    assert (seen.states[-1][1], seen.closed) == (1.0, 1)


async def test_a_walk_of_unknown_length(seen: Seen) -> None:
    """Without a limit rows and speed are shown, without a share and a time left."""
    async with simulated(Simulator(rows=250, latency=1.0)) as session:
        await session.data.list(BLOCKS, page_size=100).collect(progress=True)
    assert {share for _, share in seen.states} == {None}
    assert seen.states[-1][0] == "250 rows · 83 rows/s"


async def test_an_error_closes_the_display(seen: Seen) -> None:
    """An error of the walk passes unchanged, with its rows, after the display was closed."""
    simulator = Simulator(rows=250, faults=[Fault(at=2, status=500)])
    async with simulated(simulator, max_attempts=1) as session:
        with pytest.raises(ServerError) as caught:
            await session.data.list(BLOCKS, page_size=100).collect(progress=True)
    assert caught.value.partial is not None
    assert (len(caught.value.partial), seen.closed) == (100, 1)


async def test_exports_show_sources_rows_and_time_left(seen: Seen, tmp_path: Path) -> None:
    """`export(progress=True)` shows sources and rows, their share, and the time by the gate."""
    simulator = Simulator(rows=300, limit=3, window=60.0, latency=0.1)
    async with simulated(simulator) as session:
        out = tmp_path / "blocks.jsonl"
        await export(
            session.data.evm.blocks,
            [43114, 43113],
            out,
            limit=200,
            page_size=100,
            concurrency=1,
            progress=True,
        )
    texts = [text for text, _ in seen.states]
    assert texts[0].startswith("0 of 2 sources · 0 of 400 rows (0%)")
    assert any("1 of 2 sources · 300 of 400 rows (75%)" in text and "about 5" in text for text in texts)
    assert seen.states[-1][1] == 1.0
    assert texts[-1].startswith("2 of 2 sources · 400 of 400 rows (100%)")


async def test_a_broken_terminal_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A display that fails, such as a terminal that is gone, ends by itself."""

    class Gone(Seen):
        def update(self, text: str, share: float | None) -> None:
            raise OSError("gone")

    monkeypatch.setattr(progress_module, "display", Gone)
    async with simulated(Simulator(rows=5)) as session:
        assert len(await session.data.list(BLOCKS).collect(progress=True)) == 5


# Places


@pytest.mark.rule
def test_a_line_is_written_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain line stays on one line of a terminal, and is removed in the end; a file or pipe has none."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert display() is None
    stream = Terminal()
    line = display(stream)
    assert line is not None
    line.update("1 row", None)
    line.update("x" * 500, None)
    line.close()
    first, second, end = stream.getvalue().split("\r")[1:]
    assert (first, end) == ("1 row\x1b[K", "\x1b[K")
    assert "\n" not in stream.getvalue()
    assert len(second) < 200


@pytest.mark.rule
def test_a_notebook_updates_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kernel of a notebook the output of the cell is updated in place, as HTML and as text."""
    outputs: list[Any] = []
    handle = SimpleNamespace(update=outputs.append)

    def show(value: Any, display_id: bool) -> Any:
        assert display_id
        outputs.append(value)
        return handle

    shell = SimpleNamespace(kernel=object())
    modules = {"IPython": ModuleType("IPython"), "IPython.display": ModuleType("IPython.display")}
    modules["IPython"].get_ipython = lambda: shell  # type: ignore[attr-defined]
    modules["IPython.display"].display = show  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    place = display()
    assert isinstance(place, Notebook)
    place.update("7 rows", None)  # of unknown length: no bar
    assert outputs[-1]._repr_mimebundle_()["text/html"] == "<div>7 rows</div>"
    place.update("5 of 20 rows <b>", 0.25)
    place.close()
    assert outputs[-1]._repr_mimebundle_() == {
        "text/plain": "5 of 20 rows <b>",
        "text/html": '<div><progress value="0.2500"></progress> 5 of 20 rows &lt;b&gt;</div>',
    }
    shell.kernel = None  # a shell of IPython in a terminal
    assert not isinstance(display(Terminal()), Notebook)


async def test_a_quota_that_is_not_known_takes_no_time() -> None:
    """Before the first response nothing is known, and `seconds_left` is 0."""
    async with simulated(Simulator(limit=1, window=60.0)) as session:
        pages = session.data.list(BLOCKS, page_size=100)
        assert pages.seconds_left(5) == 0.0
        await pages.first()
        assert pages.seconds_left(5) == 60.0 + 4 * 60.0
