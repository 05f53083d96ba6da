"""A verb made for the tests: whatever function it is given becomes `peasy greet`."""

import sys
from types import ModuleType

import pytest

from peasy.cli import app, settings, usage
from peasy.cli.door import Answer, Flags, Page
from peasy.cli.verb import FIRST, VERBS, Verb
from peasy.views.document import Document, Paragraph


@pytest.fixture
def answer():
    return Answer(Page(Document("Greeting", (Paragraph("Hello Ada."),)), {"greeting": "Hello Ada."}))


@pytest.fixture
def verb(monkeypatch):
    """Put a function in as the verb `greet`."""

    def put(function):
        module = ModuleType("peasy.cli.greet")
        module.greet = function
        monkeypatch.setitem(sys.modules, "peasy.cli.greet", module)
        for place in (app, settings, usage):
            monkeypatch.setattr(place, "VERBS", (*VERBS, Verb("greet", "Greet somebody.", FIRST)))

    return put


@pytest.fixture
def raising(verb):
    """`greet` raises this error."""

    def put(error: BaseException):
        def greet(*, flags: Flags = Flags()) -> Answer:
            raise error

        verb(greet)

    return put
