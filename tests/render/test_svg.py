"""SVG output, parsed as XML."""

import xml.etree.ElementTree as ElementTree

import pytest
from tests.render.conftest import HOSTILE, TOKENS, every_part, matrix

from peasy.render import svg
from peasy.views.document import Curves, Document, Heading, Matrix, Paragraph, Plane

SVG = "{http://www.w3.org/2000/svg}"


def tree_of(document, **options):
    return ElementTree.fromstring(svg.draw(document, **options))


def texts_of(tree):
    return ["".join(element.itertext()) for element in tree.iter(f"{SVG}text")]


def test_a_heat_map_has_its_labels_its_numbers_and_a_title():
    tree = tree_of(Document("I love AI", (matrix(),)))
    texts = texts_of(tree)
    for text in ("I love AI", "weights", "query ↓ key →", *TOKENS, "0.1978", "0.5760"):
        assert text in texts
    assert tree.find(f"{SVG}title").text == "I love AI"
    assert "Each row becomes shares of 1." in tree.find(f"{SVG}desc").text
    assert [element for element in tree.iter(f"{SVG}rect") if element.get("class") == "marked"]


def test_shades_grow_with_the_numbers():
    tree = tree_of(Document("t", (matrix(marks=frozenset()),)))
    fills = [element.get("fill") for element in tree.iter(f"{SVG}rect") if element.get("fill")]
    assert len(fills) == 9
    assert fills[8] == "#fee838"
    assert fills[1] == fills[2] != fills[0]


def test_everything_is_inside_the_canvas(everything, worked):
    for document in (everything, worked):
        tree = tree_of(document)
        width, height = float(tree.get("width")), float(tree.get("height"))
        for group in tree.findall(f"{SVG}g"):
            left, top = map(float, group.get("transform").removeprefix("translate(").removesuffix(")").split())
            for rect in group.iter(f"{SVG}rect"):
                assert left + float(rect.get("x")) + float(rect.get("width")) <= width
                assert top + float(rect.get("y")) + float(rect.get("height")) <= height


def test_numbered_steps_are_joined_by_arrows(worked):
    arrows = [element for element in tree_of(worked).iter(f"{SVG}path") if element.get("class") == "arrow"]
    assert arrows
    headings = [text for text in texts_of(tree_of(worked)) if text[0].isdigit() and ". " in text]
    assert headings == [f"{n}. {h.text}" for n, h in enumerate((p for p in worked.parts if isinstance(p, Heading)), 1)]


def test_dark_theme_is_optional(worked):
    assert "prefers-color-scheme:dark" in svg.draw(worked)
    assert "prefers-color-scheme" not in svg.draw(worked, dark=False)


def test_a_large_matrix_has_a_scale_and_a_tooltip_for_each_cell():
    names = tuple(f"token{place}" for place in range(100))
    tree = tree_of(Document("t", (Matrix("m", tuple((0.25,) * 100 for _ in names), names, names, shaded=True),)))
    texts = texts_of(tree)
    assert {"0.00", "0.25"} <= set(texts)
    assert any("36 of 100 rows" in text for text in texts)
    tips = [
        element.find(f"{SVG}title") for element in tree.iter(f"{SVG}rect") if element.find(f"{SVG}title") is not None
    ]
    assert tips[1].text == "token0, token1: 0.25"
    cells = [rect for rect in tree.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert {(rect.get("class") or rect.get("fill") or "none") for rect in cells} != {"none"}, "no empty grid"


@pytest.mark.parametrize("shaded", [True, False])
def test_a_matrix_without_room_for_numbers_is_no_empty_grid(shaded):
    names = tuple(f"token{place}" for place in range(17))
    values = tuple(tuple(float(row * column) for column in range(17)) for row in range(17))
    tree = tree_of(Document("t", (Matrix("m", values, names, names, shaded=shaded),)))
    shades = {rect.find(f"{SVG}title").text: rect.get("fill") for rect in tree.iter(f"{SVG}rect") if len(rect)}
    assert len(shades) == 17 * 17
    assert None not in shades.values()
    assert shades["token0, token0: 0"] != shades["token16, token16: 256"]
    few = tree_of(
        Document("t", (Matrix("m", tuple(row[:16] for row in values[:16]), names[:16], names[:16], shaded=shaded),))
    )
    assert {"9", "225"} <= set(texts_of(few)), "up to 16 columns, numbers are written"


def test_planes_and_curves_name_what_they_show():
    plane = Plane("Words", (("Orange", 0.0, 3.0), ("Apple", 2.0, 2.0)), "Tech", "Fruit", arrows=True)
    curves = Curves("Loss", (("gpt", ((0.0, 4.0), (1.0, 2.0))), ("rnn", ((0.0, 5.0), (1.0, 3.0)))), "step", "loss")
    tree = tree_of(Document("t", (plane, curves)))
    assert {"Orange", "Apple", "Tech", "Fruit", "gpt", "rnn", "step", "loss"} <= set(texts_of(tree))
    dashes = [element.get("stroke-dasharray") for element in tree.iter(f"{SVG}path") if element.get("stroke-dasharray")]
    assert len(set(dashes)) == 2, "curves must differ in more than colour"


@pytest.mark.parametrize(
    "points",
    [(), ((0.0, 0.0),), ((float("nan"), 1.0),), ((1e300, 1e300), (-1e300, 0.0)), ((5.0, 5.0), (5.0, 5.0)), ((1e-300,
     1.0), (2e-300, 2.0))],
)  # fmt: skip
def test_degenerate_points_are_drawn_or_counted(points):
    plane = Plane("p", tuple(("a", *point) for point in points))
    curves = Curves("c", (("a", points),))
    text = svg.draw(Document("t", (plane, curves)))
    ElementTree.fromstring(text)
    assert "nan" not in text
    assert ("not drawn" in text) == any(x != x for x, _ in points)


def test_a_document_without_figures_is_drawn_as_text():
    assert "All is well" in "".join(texts_of(tree_of(Document("t", (Paragraph("All is well", "good"),)))))
    assert not svg.has_figure(Document("t", (Paragraph("x"),)))
    tree_of(Document("", ()))


def test_a_verdict_is_drawn_with_the_figures():
    verdict, note = Paragraph("Supported: " + "with numbers " * 20, "good"), Paragraph("An introduction")
    drawn = svg.draw(Document("t", (note, verdict, matrix())))
    assert "✓ Supported" in drawn
    assert "An introduction" not in drawn
    widths = [len(text) for text in texts_of(ElementTree.fromstring(drawn)) if "with numbers" in text]
    assert len(widths) > 1, "a long verdict has several lines"
    assert max(widths) <= 120


def test_hostile_strings_are_text_and_nothing_else():
    allowed = {"svg", "title", "desc", "style", "rect", "g", "text", "tspan", "path", "circle", "image"}
    for word in HOSTILE:
        tree = tree_of(Document(word, every_part(word)))
        assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= allowed
        for element in tree.iter():
            named = {name: value for name, value in element.attrib.items() if name.startswith("on") or "href" in name}
            assert all(
                name == "href" and element.tag == f"{SVG}image" and value.startswith("data:image/png;base64,")
                for name, value in named.items()
            )


def test_the_file_is_self_contained(worked):
    text = svg.draw(worked)
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text
    assert text.count("http") == 1, "the namespace and nothing else"
