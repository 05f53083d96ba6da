"""Every room opens with its card: what lives here, what it may import, who imports it, in and out."""

import ast
import re

import pytest

CARD = re.compile(
    r"[A-Z][A-Z <>&-]+[A-Z]\b[^\n]*: [^\n]+\.\n"
    r"\n"
    r"May import: [^\n]+\. Imported by: [^\n]+\.\n"
    r"In: [^\n]+\. Out: [^\n]+\.(\n|\Z)"
)


def test_every_room_has_a_card(sources):
    rooms = [source for source in sources if source.path.name == "__init__.py" and source.name != "__init__.py"]
    assert len(rooms) >= 9
    without = [room.name for room in rooms if not CARD.match(ast.get_docstring(room.tree) or "")]
    assert not without


def test_every_file_says_what_it_is(sources):
    assert not [source.name for source in sources if not ast.get_docstring(source.tree)]


@pytest.mark.parametrize("card", ["", "Some words.", "ROOM: things.\n\nIn: a. Out: b.", "room: x.\n\nMay import: a."])
def test_other_forms_are_no_card(card):
    assert not CARD.match(card)
