"""Texts on pages: no word is broken in the middle, and none is missing where a sentence was joined from pieces."""

import re
from pathlib import Path

import pytest

import peasy
from peasy.server.static import list_files

pytestmark = pytest.mark.browser

NOTES = r"""# Notes

**X**

|      | A_1 | A_2 |
|------|----:|----:|
| I    |   1 |   0 |
| love |   0 |   1 |
| AI   |   1 |   1 |

$$W_Q = \begin{bmatrix} 1 & 0 \\ 1 & 1 \end{bmatrix}, W_K = \begin{bmatrix} 0 & 1 \\ 1 & 0 \end{bmatrix}$$

**scores**

|      | I | love | AI |
|------|--:|-----:|---:|
| I    | 0 |    1 |  1 |
| love | 1 |    1 |  3 |
| AI   | 1 |    2 |  3 |

**scaled**

|      |    I |   love |   AI |
|------|-----:|-------:|-----:|
| I    |    0 |   0.71 | 1/√2 |
| love | 0.71 |   0.71 | 2.12 |
| AI   | 0.71 |    1.4 | 2.12 |
"""

BROKEN_WORDS = """(main) => {
    const found = [];
    const nodes = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
        const node = nodes.currentNode;
        if (node.parentElement.closest("script, style, noscript, math, svg")) continue;
        for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
            if (lines.size > 1) found.push(word[0]);
        }
    }
    return found;
}"""


@pytest.mark.parametrize("width", [390, 768, 1366])
def test_the_check_page_breaks_no_word(opened, tmp_path, width):
    (tmp_path / "notes.md").write_text(NOTES, encoding="utf-8")
    peasy.check(tmp_path / "notes.md").save(tmp_path / "check.html")
    page = opened(tmp_path / "check.html", viewport={"width": width, "height": 768}).page
    main = page.locator("main")
    assert "consistent with the mistake in scores" in main.inner_text()
    assert main.evaluate(BROKEN_WORDS) == []
    narrow = "(cell) => Object.assign(cell.style, { wordBreak: 'break-all', maxWidth: '3rem' })"
    main.evaluate(f"(main) => main.querySelectorAll('td').forEach({narrow})")
    assert main.evaluate(BROKEN_WORDS), "broken words would be found"


def seams(source):
    """What stands at both sides of each + between two texts, which a formatter may have put on two lines."""
    return re.findall(r"""(\S?)["`] \+\s*["`](\S?)""", source)


def test_sentences_that_are_joined_from_pieces_keep_their_spaces():
    for name, file in list_files().items():
        if name.endswith(".js"):
            missing = [
                seam for seam in seams(file.read_text(encoding="utf-8")) if all(map(str.isalnum, seam)) and all(seam)
            ]
            assert not missing, f"{name}: {missing}"
    assert seams('"one " + "two"; "three" +\n\t"four"') == [("", "t"), ("e", "f")]


def test_texts_of_the_studio_have_no_doubled_words():
    doubled = re.compile(r"\b(the|a|an|of|to|is|it|in|and|that|for|with|are)\s+\1\b", re.IGNORECASE)
    routes = Path(peasy.__file__).parent / "server" / "routes"
    files = [*list_files().values(), *routes.glob("*.py")]
    found = {file.name: doubled.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {name: words for name, words in found.items() if words} == {}
    assert doubled.findall("a token of of the text") == ["of"]
