"""Headless Chromium, driven by Playwright, for the tests of pages.

Playwright is imported when the browser starts: `nox -s browser` installs it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio
from attrs import define, field

from tests.programs import CHROMIUM, program

if TYPE_CHECKING:  # the packages of `nox -s types` need not have it
    from playwright.async_api import Browser, CDPSession, Page  # type: ignore[import-not-found, unused-ignore]

PATIENCE = 15_000.0  # milliseconds for a condition of the page, on a busy machine


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
    from playwright.async_api import async_playwright  # type: ignore[import-not-found, unused-ignore]

    executable = program(*CHROMIUM)
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
