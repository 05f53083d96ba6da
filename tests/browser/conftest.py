"""Browser without network, and pages that record every request, dialog and console message."""

import pytest


class RecordedPage:
    """Page that records every request, dialog and console message."""

    def __init__(self, browser, path, ready="", **options):
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)  # a busy machine is slow, not wrong
        self.own = path.as_uri()
        self.requests, self.dialogs, self.console_messages = [], [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.on("console", lambda message: self.console_messages.append(message.text))
        self.page.on("pageerror", lambda error: self.console_messages.append(str(error)))
        self.page.goto(self.own)
        if ready:
            self.page.wait_for_selector(f"{ready}[data-ready]", state="attached")

    def assert_quiet(self):
        assert self.requests == [self.own]
        assert self.dialogs == []
        assert self.console_messages == []


@pytest.fixture
def opened(browser):
    """Function that opens a saved page; all are closed at the end of the test."""
    pages = []

    def open_page(path, ready="", **options):
        pages.append(RecordedPage(browser, path, ready, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()
