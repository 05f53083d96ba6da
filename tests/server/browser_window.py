"""Browser window on the studio that records every request, dialog and console error."""

import json
import os
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

_ROOT = Path(__file__).parents[2]
ARTEFACTS = (_ROOT if os.access(_ROOT, os.W_OK) else Path(tempfile.gettempdir())) / "artefacts" / "studio"

VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => {
    (window.__violations ??= []).push(`${event.violatedDirective}: ${event.blockedURI}`);
});"""


class BrowserWindow:
    """One window on the studio at `port`; other addresses are blocked."""

    def __init__(self, browser, port, *, width=1440, height=900, **options):
        self.origin = f"http://127.0.0.1:{port}"
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.origin)
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)  # a busy machine is slow, not wrong
        self.external_requests, self.dialogs, self.console_errors = [], [], []
        self.context.route(lambda url: not url.startswith((self.origin, "blob:", "data:")), self._block)
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.on("console", lambda message: message.type in ("error", "warning") and self._record(message.text))
        self.page.on("pageerror", lambda error: self._record(str(error)))
        self.expected_errors = ()

    def _block(self, route):
        self.external_requests.append(route.request.url)
        route.abort()

    def _record(self, text):
        if not any(expected in text for expected in self.expected_errors):
            self.console_errors.append(text)

    def open(self, path):
        """Load a page and wait until it is idle."""
        self.page.goto(self.origin + path)
        self.page.wait_for_selector("#place > *", state="attached")
        return self.wait_until_idle()

    def navigate(self, path):
        """Go there without reloading, as the back button does."""
        self.page.evaluate(
            "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
        )
        return self.wait_until_idle()

    def wait_until_idle(self):
        """Wait until no request is open, and none follows for a moment."""
        for _ in range(2):
            self.page.wait_for_selector('html[data-waiting="0"]', state="attached")
            self.page.wait_for_timeout(30)
        return self.page

    def press(self, *keys):
        """Press keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)
        return self.wait_until_idle()

    def request(self, command, **body):
        """Return the server's result of a command, without the page."""
        request = urllib.request.Request(
            f"{self.origin}/api/{command}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["result"]

    @property
    def state(self):
        """Parameters of the URL."""
        return self.page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")

    def screenshot(self, name):
        """Save a screenshot for later inspection."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)

    def assert_clean(self):
        """Assert no external request, dialog, console error or policy violation."""
        violations = self.page.evaluate("window.__violations ?? []")
        problems = {
            "external requests": self.external_requests,
            "dialogs": self.dialogs,
            "console errors": self.console_errors,
            "violations": violations,
        }
        assert not any(problems.values()), problems


def matrix_texts(page, name):
    """Return the cell texts of a matrix drawn by the page, row by row; of inputs, their values."""
    return page.locator(f'[data-matrix="{name}"]').last.evaluate(
        "(figure) => [...figure.querySelectorAll('tbody tr')].map((row) => [...row.querySelectorAll('td')]"
        ".map((cell) => cell.querySelector('input')?.value ?? cell.textContent))"
    )


def serious_violations(page):
    """Return the serious and critical accessibility violations that axe finds."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        (violation["id"], violation["nodes"][0]["html"])
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
    ]


def assert_hostile_texts_are_inert(window, address, texts, most=300, scripts="script:not([type])"):
    """Show texts together, at most so many letters, since each page takes long; those refused together, alone."""
    groups = [[]]
    for text in filter(str.strip, texts):
        if sum(map(len, groups[-1])) + len(text) > most:
            groups.append([])
        groups[-1].append(text)
    for group in groups:  # it grows
        window.navigate(address + quote(" ".join(group)[:400], errors="replace"))
        assert window.page.locator(f"#place {scripts}, #place img, #place iframe").count() == 0, group
        if len(group) > 1 and window.page.get_by_role("alert").count():
            groups.extend([text] for text in group)
    assert window.page.evaluate("window.hacked") is None


@contextmanager
def browser_windows(browser, port):
    """Yield a function that opens windows on a studio; at the end each must be clean, and is closed."""
    windows = []

    def open_window(path=None, **options):
        windows.append(BrowserWindow(browser, port, **options))
        if path is not None:
            windows[-1].open(path)
        return windows[-1]

    yield open_window
    for window in windows:
        window.assert_clean()
        window.context.close()
