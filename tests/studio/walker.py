"""A person at the studio in a real browser: every request, dialog and complaint is written down."""

import json
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "studio"

VIOLATIONS = """addEventListener("securitypolicyviolation", (event) => {
    (window.__violations ??= []).push(`${event.violatedDirective}: ${event.blockedURI}`);
});"""


class Walker:
    """One window on the studio at `port`; nothing but that port can be reached."""

    def __init__(self, browser, port, *, width=1440, height=900, **options):
        self.home = f"http://127.0.0.1:{port}"
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.home)
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)  # a busy machine is slow, not wrong
        self.abroad, self.dialogs, self.complaints, self.asked = [], [], [], []
        self.context.route(lambda url: not url.startswith((self.home, "blob:", "data:")), self._refuse)
        self.page.on("request", lambda request: self.asked.append(request.url.removeprefix(self.home)))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.on("console", lambda message: message.type in ("error", "warning") and self._hear(message.text))
        self.page.on("pageerror", lambda error: self._hear(str(error)))
        self.expected = ()

    def _refuse(self, route):
        self.abroad.append(route.request.url)
        route.abort()

    def _hear(self, text):
        if not any(each in text for each in self.expected):
            self.complaints.append(text)

    def open(self, path):
        """Go there and wait until it stands still."""
        self.page.goto(self.home + path)
        self.page.wait_for_selector("#place > *", state="attached")
        return self.settle()

    def move(self, path):
        """Go there without loading the page again, as the back button does."""
        self.page.evaluate(
            "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
        )
        return self.settle()

    def settle(self):
        """Wait until no question is open, and stays so for a moment."""
        for _ in range(2):
            self.page.wait_for_selector('html[data-waiting="0"]', state="attached")
            self.page.wait_for_timeout(30)
        return self.page

    def press(self, *keys):
        """Press keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)
        return self.settle()

    def ask(self, verb, **body):
        """The server's own answer, past the page."""
        request = urllib.request.Request(
            f"{self.home}/api/{verb}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["result"]

    @property
    def state(self):
        """The parameters of the address."""
        return self.page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")

    def keep(self, name):
        """A picture for who wants to look at it later."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)

    def assert_clean(self):
        """Nothing left the machine, nothing popped up, nobody complained, no rule was broken."""
        broken = self.page.evaluate("window.__violations ?? []")
        found = {"abroad": self.abroad, "dialogs": self.dialogs, "complaints": self.complaints, "broken": broken}
        assert not any(found.values()), found


def numbers_of(page, name):
    """What stands in the cells of a matrix that the page drew, row by row; fields by what is typed in them."""
    return page.locator(f'[data-matrix="{name}"]').last.evaluate(
        "(figure) => [...figure.querySelectorAll('tbody tr')].map((row) => [...row.querySelectorAll('td')]"
        ".map((cell) => cell.querySelector('input')?.value ?? cell.textContent))"
    )


def serious(page):
    """What axe finds that keeps somebody out."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in {"serious", "critical"}]


@contextmanager
def windows(browser, port):
    """Opens windows on a studio; where the test ends each must be clean, and is closed."""
    walkers = []

    def open_window(path=None, **options):
        walkers.append(Walker(browser, port, **options))
        if path is not None:
            walkers[-1].open(path)
        return walkers[-1]

    yield open_window
    for each in walkers:
        each.assert_clean()
        each.context.close()
