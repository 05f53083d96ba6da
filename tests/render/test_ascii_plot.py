"""ASCII plots: curves and names are at their coordinates, at any screen width."""

import math

from hypothesis import given
from hypothesis import strategies as st

from peasy.render.terminal import HEIGHT, MAX_TABLE_POINTS, ascii_plot, draw
from peasy.views.document import Curves, Document, Plane

FALLS = ("falls", tuple((float(step), 3.0 - step / 10) for step in range(21)))
RISES = ("rises", tuple((float(step), 1.0 + step / 10) for step in range(21)))
CURVES = Curves("Learning", (FALLS, RISES), "step", "loss")


def drawn(picture, width=80):
    lines = ascii_plot(picture, width, 4)
    assert lines is not None
    return lines


def test_curves_start_and_end_at_their_values():
    title, axis, *rows = drawn(CURVES)
    assert (title, axis.strip()) == ("Learning", "loss")
    inside = [row.split("│")[-1].split("┤")[-1] for row in rows[:HEIGHT]]
    assert inside[0].startswith("a")
    assert inside[0].endswith("b")
    assert inside[-1].startswith("b")
    assert inside[-1].endswith("a")
    assert rows[0].startswith("3 ┤")
    assert rows[HEIGHT - 1].startswith("1 ┤")
    assert rows[HEIGHT + 1].split() == ["0", "step", "20"]
    assert rows[-2:] == ["a  falls: from 3.0000 to 1.0000", "b  rises: from 1.0000 to 3.0000"]


def test_names_are_at_their_points_or_counted():
    points = (*tuple((f"w{n}", float(n), float(n)) for n in range(17)), ("w0 again", 0.0, 0.0))
    *rows, note = drawn(Plane("Words", points), 100)
    assert "w16" in rows[1]
    assert "w0" in rows[HEIGHT]
    assert note == "1 of 18 names do not fit; --out FILE.html shows all."


def test_few_points_are_a_table():
    few = Plane("Words", tuple((f"w{n}", float(n), 0.0) for n in range(MAX_TABLE_POINTS)))
    assert ascii_plot(few, 80, 4) is None
    assert "w3" in draw(Document("D", (few,)))
    assert ascii_plot(CURVES, 39, 4) is None


def test_non_finite_points_are_left_out():
    holed = Curves("Broken", (("line", (*FALLS[1], (21.0, math.nan), (22.0, math.inf))),), "step", "loss")
    assert drawn(holed)[-1] == "a  line: from 3.0000 to 1.0000"
    assert "none: no numbers" in drawn(Curves("Broken", (FALLS, ("none", ((1.0, math.nan),)))))[-1]


@given(
    st.lists(st.tuples(st.text(max_size=9), *[st.floats(-1e30, 1e30)] * 2), min_size=17, max_size=40),
    st.integers(40, 130),
)
def test_no_row_is_wider_than_the_screen(points, width):
    for picture in (Plane("T", tuple(points)), Curves("T", (("l", tuple(point[1:] for point in points)),))):
        assert max(map(len, ascii_plot(picture, width, 4)[1 : HEIGHT + 3])) <= width
