"""HTML output, parsed again: structure, content security policy, and no injection."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tests.render.conftest import HOSTILE, TOKENS, every_part, looking, matrix

from peasy.render import html
from peasy.views.document import Arithmetic, Document, Matrix, Paragraph

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Tree(HTMLParser):
    """Elements with attributes and text; wrong nesting fails."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts = [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, place in self.open:
            self.texts[place] = self.texts.get(place, "") + data

    def all(self, tag):
        return [
            (attributes, self.texts.get(n, "")) for n, (name, attributes) in enumerate(self.elements) if name == tag
        ]


def test_tables_are_labelled_and_captioned():
    tree = Tree(html.draw(Document("t", (matrix(),))))
    heads = tree.all("th")
    assert [text for attributes, text in heads if attributes["scope"] == "col"] == list(TOKENS)
    assert [text for attributes, text in heads if attributes["scope"] == "row"] == list(TOKENS)
    (_, caption) = tree.all("caption")[0]
    assert caption.startswith("weights")
    assert "Each row becomes shares of 1." in caption
    assert len(tree.all("math")) == 1
    cells = [text for attributes, text in tree.all("td") if "data-cell" in attributes]
    assert cells[:3] == ["0.1978", "0.4011", "0.4011"]
    assert cells[5] == "0.5035 (marked)"


def test_shading_is_a_class_and_the_cell_contains_the_number():
    tree = Tree(html.draw(Document("t", (matrix(marks=frozenset()),))))
    shaded = [(attributes["class"], text) for attributes, text in tree.all("td") if "data-cell" in attributes]
    levels = [int(name.removeprefix("s")) for name, _ in shaded]
    numbers = [float(text) for _, text in shaded]
    assert sorted(range(9), key=numbers.__getitem__)[-1] == levels.index(max(levels))
    assert all(
        (a < b) <= (x <= y) for a, x in zip(numbers, levels, strict=True) for b, y in zip(numbers, levels, strict=True)
    )


def test_arithmetic_of_every_cell_is_stored_as_json(worked):
    page = html.draw(worked)
    tree = Tree(page)
    stored = json.loads(
        next(text for attributes, text in tree.all("script") if attributes["type"] == "application/json")
    )
    places = [attributes["data-cell"] for attributes, _ in tree.all("td") if "data-cell" in attributes]
    assert places
    assert set(places) == set(stored)
    assert len(places) == sum(len(row) for m in worked.matrices() for row in m.values)
    for place, (_, text) in zip(places, [cell for cell in tree.all("td") if "data-cell" in cell[0]], strict=True):
        assert stored[place][-1].startswith("= ")
        if text[-1].isdigit():
            assert float(stored[place][-1][2:]) == pytest.approx(float(text), abs=1e-4)


def test_the_policy_allows_exactly_what_is_in_the_page(worked):
    page = html.draw(worked)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    style, script = (
        re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1],
        re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)[1],
    )
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_no_external_references(everything):
    for page in (html.draw(everything), html.fragment(everything)):
        for tag, attributes in Tree(page).elements:
            assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "a"}
            if tag == "image":  # a data URI
                assert attributes.pop("href").startswith("data:image/png;base64,")
            assert not {"src", "href", "action", "srcdoc"} & set(attributes)
            assert not [name for name in attributes if name.startswith("on")]
        assert "url(" not in page
        assert "@import" not in page


def test_notebook_fragment_has_no_script(everything):
    assert "<script" not in html.fragment(everything)
    assert Tree(html.fragment(everything)).all("table")


def test_every_inline_style_of_the_notebook_fragment_is_used(everything):
    names = tuple(map(str, range(100)))
    long = Matrix("m", tuple((0.5,) for _ in names), names, ("a",))
    raw = html._PageRenderer(Document("t", (*everything.parts, long)), standalone=False).body()
    assert [sheet for sheet in html.INLINE_STYLES if sheet not in raw] == []
    assert "class=" not in html.fragment(Document("t", (matrix(),))).replace('class="formula"', "").replace(
        'class="matrix"', ""
    ).replace('class="name"', "")


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["draw", "fragment"])
def test_hostile_strings_make_no_element_and_no_attribute(form, step):
    drawn = getattr(html, form)
    tame = shape(Tree(drawn(Document("love", every_part("love")))))
    for word in filter(None, HOSTILE[::step]):
        assert shape(Tree(drawn(Document(word, every_part(word))))) == tame, word


def shape(tree):
    """Elements and attributes, without those that depend on text length."""
    layout = {"x", "y", "width", "height", "viewbox", "transform", "d", "cx", "cy"}
    return [
        (tag, sorted((name, value) for name, value in attributes.items() if name not in layout | {"content"}))
        for tag, attributes in tree.elements
        if tag not in {"text", "figcaption", "caption", "b", "tspan", "th"}
    ]


def test_without_the_escape_they_would(monkeypatch):
    monkeypatch.setattr(html, "escape", lambda text: text)
    assert Tree(html.draw(Document("t", (Matrix("m", ((1.0,),), ("<img>",), ("c",)),)))).all("img")


def test_the_stored_json_cannot_end_its_element():
    how = Arithmetic("</script><script>alert(1)</script>", ("<!--", "\u2028"))
    page = html.draw(Document("t", (matrix(explain=lambda row, column: how),)))
    assert "alert(1)</script>" not in page
    stored = json.loads(re.search(r'id="arithmetic">(.*?)</script>', page, re.DOTALL)[1])
    assert stored["1-0-0"][0] == how.title


def test_a_long_input_is_windowed_with_a_notice():
    names = tuple(f"t{place}" for place in range(1000))
    tall = html.draw(Document("t", (Matrix("m", tuple((0.5,) * 20 for _ in names), names, names[:20]),)))
    assert "800 of 1,000 rows are left out to keep this readable" in tall
    wide = html.draw(Document("t", (Matrix("m", tuple((0.5,) * 300 for _ in names), names, names[:300]),)))
    assert "rows are left out and" in wide
    assert "of 300 columns are left out" in wide
    assert wide.count("<td") < 1.1 * html.MAX_CELLS


def test_many_large_matrices_share_the_cell_limit():
    names = tuple(map(str, range(200)))
    big = Matrix("m", tuple((0.5,) * 200 for _ in names), names, names)
    assert html.draw(Document("t", (big,) * 6)).count("<td") < 2 * html.MAX_CELLS


def test_a_page_with_arithmetic_says_that_cells_can_be_clicked(worked):
    assert "Click an underlined cell" in html.draw(worked)
    assert "td[data-cell]{cursor:help;text-decoration:underline dotted" in html.style_sheet()
    assert "Click an underlined cell" not in html.draw(Document("t", (Paragraph("no numbers"),)))


def test_stored_arithmetic_is_bounded(monkeypatch):
    monkeypatch.setattr(html, "MAX_ARITHMETIC_CHARS", 100)
    page = html.draw(Document("t", (matrix(),)))
    assert 0 < page.count("data-cell=") < 9
    assert "The arithmetic of the other cells" in page


def test_modules_are_inlined_without_imports():
    joined = html.page_script(Document("t", looking()))
    assert not re.search(r"^\s*(import|export)\b", joined, re.MULTILINE)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(", joined)
    names = re.findall(r"^(?:function|const) (\w+)", joined, re.MULTILINE)
    assert len(names) == len(set(names))
