"""Headless Chromium, driven by Playwright, for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from attrs import define, field
from playwright.async_api import Browser, CDPSession, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")  # as in .ci/chromium
PATIENCE = 15_000.0  # milliseconds for a condition of the page, on a busy machine


REASON = "Chromium is not installed: run `apt-get install chromium` (Debian), or put it on PATH"


def find_chromium() -> str | None:
    """Return the path of Chromium; None where it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def chromium() -> str:
    """Return the path of Chromium; without one the test fails in CI, and is skipped elsewhere."""
    if place := find_chromium():
        return place
    if os.environ.get("CHAINAPI_REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"{REASON}; CHAINAPI_REQUIRE_CHROMIUM=1 forbids to skip this test")
    pytest.skip(REASON)


@define(eq=False)
class Tab:
    """Tab of the browser.

    Attributes:
        page: the page in it.
        network: events of its network traffic.
        errors: uncaught exceptions, refusals of the content security policy, and errors on the console.
        urls: addresses that it requested.

    """

    page: Page
    network: CDPSession
    errors: list[str] = field(factory=list[str])
    urls: list[str] = field(factory=list[str])

    def listen(self) -> None:
        """Record errors and requests from now on."""
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        self.page.on(
            "console",
            lambda message: (
                self.errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        self.page.on("request", lambda request: self.urls.append(request.url))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium; the tests of a module share it, and its event loop."""
    executable = chromium()
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=executable, args=["--disable-dev-shm-usage"]
        )
        try:
            yield launched
        finally:
            await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    """Open a tab that has nothing in common with those of other tests."""
    context = await browser.new_context(viewport={"width": 1000, "height": 720})
    try:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        network = await context.new_cdp_session(page)
        await network.send("Network.enable")
        opened = Tab(page, network)
        opened.listen()
        yield opened
    finally:
        await context.close()
