"""Take the picture of live.md in headless Chromium: ``python docs/live.py``."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

# The root of the project is on the path from here on.
from PIL import Image
from playwright.async_api import Page, async_playwright

from tests.programs import CHROMIUM, find, lacks

APP = Path(__file__).parent / "examples" / "live" / "app.py"
WAITS = "parseInt(document.getElementById('countdown').textContent.slice(2)) >= 2"  # seconds


async def main() -> None:
    """Run the example, and take a picture while it waits for quota amid the lists."""
    executable = find(*CHROMIUM) or sys.exit(lacks("chromium"))
    serving = await asyncio.create_subprocess_exec(sys.executable, str(APP), stdout=asyncio.subprocess.PIPE)
    assert serving.stdout is not None
    try:
        address = (await serving.stdout.readline()).decode().split()[1]
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=executable)
            # The condition below is evaluated in the page, which its security policy forbids.
            page = await browser.new_page(viewport={"width": 1000, "height": 740}, bypass_csp=True)
            await take(page, address)
            await browser.close()
    finally:
        serving.terminate()
        await serving.wait()


async def take(page: Page, address: str) -> None:
    """Take the picture, with a day marked."""
    await page.emulate_media(color_scheme="dark" if "--dark" in sys.argv else "light")
    await page.goto(address)
    await page.wait_for_function(WAITS)
    await page.mouse.move(620, 300)
    await page.wait_for_selector("#chart .dot")
    with Image.open(BytesIO(await page.screenshot())) as picture:
        picture.quantize(128).save(Path(__file__).with_suffix(".png"), optimize=True)  # a third of the bytes


if __name__ == "__main__":
    asyncio.run(main())
