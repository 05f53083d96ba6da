"""Grid layout: windows, labels, rounding."""

from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.render.grid import lay_out, shown_indices, table_text
from peasy.views.document import Matrix, Table


@settings(deadline=None)  # machines may be slow
@given(st.integers(0, 500), st.integers(2, 60))
def test_a_window_keeps_the_ends_and_the_order(count, most):
    places = shown_indices(count, most)
    shown = [place for place in places if place is not None]
    assert shown == sorted(set(shown))
    assert len(shown) == min(count, most)
    assert (None in places) == (count > most)
    if count:
        assert (shown[0], shown[-1]) == (0, count - 1)


def test_omitted_rows_are_announced():
    many = tuple(f"t{place}" for place in range(1000))
    grid = lay_out(Matrix("m", tuple((0.0,) * 3 for _ in many), many, ("a", "b", "c")), 4, 40)
    assert grid.notice == "960 of 1,000 rows are left out to keep this readable (⋯)."
    assert lay_out(Matrix("m", ((1.0,),), ("a",), ("b",)), 4, 40).notice == ""


def test_rows_of_a_wrong_length_are_shown_unchanged():
    grid = lay_out(Matrix("m", ((1.0, 2.0, 3.0), (1.0,)), ("a", "b"), ("x", "y")), 4, 40)
    assert [grid.column_label(column) for column in grid.columns] == ["x", "y", "3"]
    assert [grid.text(1, column) for column in grid.columns] == ["1", "", ""]


def test_a_table_rounds_column_by_column():
    table = Table(("kind", "loss", "steps"), (("gpt", 1 / 3, 100.0), ("rnn", 0.5, 20.0)))
    text = table_text(table, 2, 40)
    assert text.rows == [["gpt", "0.33", "100"], ["rnn", "0.50", "20"]]
    assert (text.header, text.numeric, text.notice) == (["kind", "loss", "steps"], [False, True, True], "")


def test_decimals_and_shades_depend_on_shown_cells_only():
    """No cell outside the window is read, so a thousand tokens cost as much as forty."""

    class Untouched(tuple):
        def __getitem__(self, place):
            assert place in (0, 1, 2, 999), f"{place} is not shown"
            return super().__getitem__(place)

        def __iter__(self):
            raise AssertionError("every cell is read")

    many = tuple(map(str, range(1000)))
    row = Untouched([1.0, 0.25, 2.0, *[1 / 3] * 996, 4.0])
    grid = lay_out(Matrix("m", (row,) * 1000, many, many, shaded=True), 4, 4)
    assert (grid.decimals, grid.scale.high) == (2, 4.0)
