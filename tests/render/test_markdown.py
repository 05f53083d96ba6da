"""Markdown output, read back by an independent Markdown parser."""

import re

import pytest
from markdown_it import MarkdownIt
from tests.render.conftest import HOSTILE, every_part, matrix

from peasy.render import markdown
from peasy.views.document import Document, Heading, Matrix, Paragraph, Table

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")
ALLOWED = {
    "heading_open", "paragraph_open", "inline", "table_open", "thead_open", "tbody_open", "tr_open", "th_open",
    "td_open",
    "blockquote_open", "code_block",
}  # fmt: skip


def tables_of(text):
    """Parse the tables of a Markdown text into cells."""
    tables, row = [], None
    tokens = PARSER.parse(text)
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            row = []
            tables[-1].append(row)
        elif token.type in {"th_open", "td_open"}:
            row.append("".join(child.content for child in tokens[place + 1].children))
    return tables


def test_a_matrix_follows_its_name_in_bold():
    drawn = markdown.draw(Document("t", (matrix(marks=frozenset()),)))
    assert "\n\n**weights**\n\n" in drawn
    assert tables_of(drawn) == [
        [
            ["query ↓ key →", "I", "love", "AI"],
            ["I", "0.1978", "0.4011", "0.4011"],
            ["love", "0.2483", "0.2483", "0.5035"],
            ["AI", "0.1400", "0.2840", "0.5760"],
        ]
    ]


@pytest.mark.parametrize("name", ["W_Q", "scores", "head-2.weights", "X"])
def test_a_name_is_written_exactly(name):
    assert f"\n**{name}**\n" in markdown.draw(Document("t", (matrix(name),)))


def test_negative_numbers_stay_numbers():
    drawn = markdown.draw(Document("t", (Matrix("m", ((-1.5, float("-inf")),), ("a",), ("x", "y")),)))
    assert tables_of(drawn)[0][1] == ["a", "-1.5", "−∞"]
    assert "| a | -1.5 |" in drawn


def test_hostile_strings_are_text_and_never_markup():
    rows = tuple((word, "end") for word in HOSTILE)
    for part in (Table(("word", "last"), rows), Matrix("m", rows, HOSTILE, ("word", "last"))):
        table = tables_of(markdown.draw(Document("t", (part,))))[0]
        shown = [row for row in table[1:] if row[0] != "⋯"]
        assert len(shown) >= 200
        assert {len(row) for row in shown} == {len(table[0])}
        assert {row[-1] for row in shown} == {"end"}


@pytest.mark.parametrize("word", HOSTILE[::5])
def test_a_hostile_string_makes_no_element_anywhere(word):
    drawn = markdown.draw(Document(word, every_part(word)))
    for token in PARSER.parse(drawn):
        assert token.type in ALLOWED or token.type.endswith("_close"), token
        for child in token.children or ():
            assert child.type in {
                "text",
                "text_special",
                "strong_open",
                "strong_close",
                "em_open",
                "em_close",
                "softbreak",
            }, child
    assert "{{" not in re.sub(r"\$\$.*?\$\$|^    .*?$", "", drawn, flags=re.DOTALL | re.MULTILINE)


def test_without_the_escape_it_would(monkeypatch):
    monkeypatch.setattr(markdown, "escape", lambda text: text)
    drawn = markdown.draw(Document("t", (Paragraph("<img src=x onerror=alert(1)>"),)))
    assert any(child.type == "html_inline" for token in PARSER.parse(drawn) for child in token.children or ()) or any(
        token.type == "html_block" for token in PARSER.parse(drawn)
    )


def test_headings_are_numbered_and_sentences_are_not_lists():
    drawn = markdown.draw(
        Document("Title", (Heading("Scores", 3), Paragraph("1. not a list"), Paragraph("- nor this")))
    )
    assert "## 3. Scores" in drawn
    kinds = [token.type for token in PARSER.parse(drawn)]
    assert "ordered_list_open" not in kinds
    assert "bullet_list_open" not in kinds
