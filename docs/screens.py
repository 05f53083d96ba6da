"""Screenshots of the studio for the README: `python docs/screens.py` opens every page in Chromium.

Needs Chromium and the extra `dev`; uses the built-in models.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent / "pictures"
PIZZA = "The pizza came out of the oven and it"
PAGES = {
    "home": "",
    "work": urlencode({"s": 3, "c": "scores,1,2"}),
    "look": urlencode({"m": "stories", "t": PIZZA, "l": 1, "h": 0, "q": 9}),
    "generate": urlencode({"m": "stories", "t": PIZZA}),
    "translate": urlencode({"t": "Sunday, November 15, 2026"}),
    "meaning": "",
    "experiments": "",
    "train": "",
    "models": urlencode({"m": "stories"}),
}


def main() -> None:
    """Start the studio in a temporary home, take the screenshots, stop it."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"PEASY_HOME": home, "HF_HUB_CACHE": f"{home}/hub"}
        command = [sys.executable, "-m", "peasy", "studio", "--no-browser"]
        studio = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            assert studio.stderr is not None
            address = re.search(r"http://\S+", studio.stderr.readline())
            assert address, "the studio did not open"
            take_screenshots(address[0].rstrip("/"))
        finally:
            studio.terminate()
            studio.wait(300)


def take_screenshots(address: str) -> None:
    """Save a screenshot of each page, at the size of a small laptop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.set_default_timeout(600_000)  # a busy machine is slow
        for name, state in PAGES.items():
            page.goto(f"{address}/{name}?{state}")
            page.wait_for_load_state("networkidle")
            settle(page, name)
            page.screenshot(path=PICTURES / f"studio-{name}.png")
            print(f"docs/pictures/studio-{name}.png")
        browser.close()


def settle(page: Page, name: str) -> None:
    """Wait until the page has loaded its results."""
    if name == "generate":
        page.get_by_role("button", name="Generate", exact=True).click()
        page.get_by_role("heading", name="With and without the KV cache").wait_for()
        for _ in range(8):  # back to the first word, with the candidates at its position
            page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(4_000)
    page.wait_for_load_state("networkidle")


if __name__ == "__main__":
    main()
