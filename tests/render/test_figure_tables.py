"""Attention figures in every format: drawn, described, and readable as tables."""

import io
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.render.conftest import looking

from peasy import render
from peasy.render import svg
from peasy.render.figure_tables import tables_of
from peasy.render.plot import PlotPoint, label_points
from peasy.views.document import CacheFigure, Document, Links, Maps, Matrix, Plane, Rows

WORDS = ("I", "love", "AI")
WEIGHTS = np.array([[1.0, np.nan, np.nan], [0.25, 0.75, np.nan], [0.2, 0.3, 0.5]])


def maps(**changes):
    given = {"rows": WORDS, "columns": WORDS, "down": ("2",), "across": ("0", "3"), "selected": (0, 1)}
    return Maps("Weights", np.stack([WEIGHTS, WEIGHTS**2])[None], **(given | changes))


@pytest.mark.parametrize("format", render.FORMATS)
def test_every_figure_is_drawn_in_every_format(format):
    assert render.draw(Document("Figures", looking()), format)


def test_the_selected_map_is_the_table():
    matrix, table = tables_of(maps())
    assert matrix.name == "layer 2, head 3"
    assert matrix.values[1] == (0.0625, 0.5625, None)
    assert table.rows == (("2", "0", 1.0, "I", "I"), ("2", "3", 1.0, "I", "I"))


def test_tiles_are_labelled_and_exact_rows_come_first():
    tiled = Maps("Long", WEIGHTS[None, None], WORDS * 2, WORDS * 2, tile_size=2, reduction="mean")
    [matrix] = tables_of(tiled)
    assert matrix.rows == ("0–1", "2–3", "4–5")
    assert "the mean of 2 by 2 tokens" in matrix.description
    exact = Maps("Long", WEIGHTS[None, None], WORDS * 2, WORDS * 2, tile_size=2, reduction="max",
                 exact_rows=Rows((4,), np.full((1, 1, 1, 6), 0.5)))  # fmt: skip
    assert tables_of(exact)[0].rows == ("4 love",)


def test_links_are_listed_strongest_first_with_gold_links_marked():
    [table] = tables_of(Links("Head", WORDS, WORDS, WEIGHTS, gold=((2, 2),)))
    assert [row[2] for row in table.rows] == [1.0, 0.75, 0.5, 0.3, 0.25, 0.2]
    assert [row[3] for row in table.rows] == ["", "", "yes", "", "", ""]


def test_the_cache_adds_up():
    [table] = tables_of(CacheFigure("Cache", WORDS, ((0, 2), (2, 1))))
    assert table.rows[0] == ("1", "love", "0", "2", "2")
    assert table.rows[-1] == ("all", "", "2", "3", "5")


def test_svg_contains_every_map_link_and_step():
    drawn = ElementTree.fromstring(svg.draw(Document("t", (maps(),))))
    space = "{http://www.w3.org/2000/svg}"
    assert len(list(drawn.iter(f"{space}image"))) == 2
    links = svg.draw(Document("t", (Links("Head", WORDS, WORDS, WEIGHTS),)))
    assert links.count('class="link"') == 6
    ribbons = svg.draw(Document("t", (Links("Words", WORDS, WORDS, WEIGHTS, ribbons=True, gold=((0, 0),)),)))
    assert ribbons.count('class="ribbon"') == 6
    assert ribbons.count('class="known"') == 1
    cache = svg.draw(Document("t", (CacheFigure("Cache", WORDS, ((0, 2), (2, 1))),)))
    assert cache.count('class="reused"') == 2 + 1, "two cells and the legend"
    assert cache.count('class="computed"') == 3 + 1


def test_large_maps_are_images_with_some_of_their_tokens():
    count = 200
    words = tuple(f"w{place}" for place in range(count))
    drawn = svg.draw(Document("t", (Maps("m", np.random.default_rng(0).random((1, 1, count, count)), words, words),)))
    assert drawn.count("<image") == 1
    assert drawn.count("<rect") < 60
    assert "0 w0" in drawn


def test_long_alignments_are_drawn_in_columns():
    words = tuple(f"word{place}" for place in range(60))
    drawn = svg.draw(Document("t", (Links("long", words, words, np.eye(60), ribbons=True),)))
    assert 'class="ribbon"' not in drawn
    assert drawn.count('class="link"') == 60


def test_point_labels_do_not_overlap():
    dots = [PlotPoint(f"word{place}", 100 + place % 5, 100 + place // 5, 0) for place in range(30)]
    assert 0 < len(list(label_points(dots, 0, 600))) < 30
    spread = [PlotPoint(f"word{place}", 100, 100 + 40 * place, 0) for place in range(10)]
    assert len(list(label_points(spread, 0, 600))) == 10


def test_points_at_one_place_keep_their_labels():
    """Training brings similar words together: their names are listed around the place."""
    dots = [PlotPoint(word, 300 + place % 3, 200 + 2 * place, 0) for place, word in enumerate("abcdefgh")]
    assert len(list(label_points(dots, 0, 312))) == 8


def test_labels_stay_between_the_edges():
    dots = [PlotPoint("a long word", 70, 100, 0), PlotPoint("a long word", 500, 300, 0)]
    assert len(list(label_points(dots, 56, 600))) == 2
    assert 'x="508' in "".join(label_points(dots[1:], 56, 600))
    assert 'x="508' not in "".join(label_points(dots[1:], 56, 506))
    assert not list(label_points(dots[:1], 56, 100))


def test_groups_differ_in_shape():
    plane = Plane("p", (("a", 0.0, 0.0), ("b", 1.0, 1.0)), groups=("x", "y"))
    drawn = svg.draw(Document("t", (plane,)))
    shapes = {line.split('"')[0] for line in drawn.split('<path d="')[1:] if 'class="point"' in line.split("/>")[0]}
    assert len(shapes) == 2


def test_text_cells_can_have_their_own_shades():
    lens = Matrix("lens", (("a", "b"),), ("0",), ("x", "y"), shaded=True, shades=((0.0, 1.0),))
    page = render.draw(Document("t", (lens,)), "html")
    assert '<td class="s0">a</td>' in page
    assert '<td class="s24">b</td>' in page
    assert "b █" in render.draw(Document("t", (lens,)))


def test_numpy_gets_arrays_with_their_labels():
    data = np.load(
        io.BytesIO(render.draw(Document("t", (maps(), maps(), Links("Head", WORDS, WORDS, WEIGHTS))), "npz"))
    )
    assert np.allclose(data["Weights"][0, 0], WEIGHTS, equal_nan=True)
    assert data["Weights.across"].tolist() == ["0", "3"]
    assert data["Weights_2.rows"].tolist() == list(WORDS)
    assert data["Head.left"].tolist() == list(WORDS)


def test_json_holds_every_number():
    import json

    part = json.loads(render.draw(Document("t", (maps(),)), "json"))["parts"][0]
    assert part["kind"] == "maps"
    assert part["values"][0][0][1] == [0.25, 0.75, "nan"]
