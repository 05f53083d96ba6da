"""Output of a program as calculations: printed arrays are grouped so that each follows from the ones before it.

A notebook often calculates attention several times: without projections, with them, with a mask. Each array is tried
with the arrays before it, under the usual conventions; if nothing gives it, and no known mistake does, it belongs to
a calculation that is not shown, and it is listed as not read rather than called wrong.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.checker import TableChecker
from peasy.worked.checking.recognition import NOT_SCALED, name_tables
from peasy.worked.checking.step_aliases import parse_caption, table_caption
from peasy.worked.example import Example, WrittenTable
from peasy.worked.tables.sheet import UNKNOWN_ROW, Sheet, comes_before

_CONVENTIONS: tuple[dict[str, object], ...] = (
    {"scoring": "scaled-dot", "causal": False, "note": ""}, {"scoring": "dot", "causal": False, "note": NOT_SCALED},
    {"scoring": "scaled-dot", "causal": True, "note": ""}, {"scoring": "dot", "causal": True, "note": NOT_SCALED},
)  # fmt: skip
_GIVEN = ("x", "source", "w_q", "w_k", "w_v", "query", "key", "value")
_FEW_WRONG = 0.25
"""Share of wrong cells up to which a printed table is the calculated one with mistakes, and not another calculation."""

_PARENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "scores": (("query", "key"),), "scaled": (("scores",),), "masked": (("scaled",), ("scores",)),
    "weights": (("masked",), ("scaled",), ("scores",)), "context": (("weights", "value"), ("weights", "x")),
}  # fmt: skip
"""Tables that a table may be calculated from directly."""

_WIDTHS = (2, 3, 4, 8, 16, 32, 64)
"""Widths of keys that are tried if the keys are not shown."""

_MAX_ARRAYS = 200
"""Maximum number of printed arrays that are compared."""


def group_calculations(sheet: Sheet, title: str) -> tuple[Example, ...]:
    """Return the calculations that a program printed, each an example whose tables agree or have a known mistake.

    A table that nothing explains may be the result of numbers that are not shown: tables after it are tried with it.
    """
    groups: list[Example] = []
    fragments: list[Example] = []
    unexplained: dict[WrittenTable, bool] = {}
    printed: dict[str, WrittenTable] = {}
    tables: list[WrittenTable] = []
    mistaken: frozenset[str] = frozenset()
    for table in sheet.tables[:_MAX_ARRAYS]:
        if table.table == "output" and not any(other.table == "w_o" for other in sheet.tables):
            table = replace(table, table="context")
        current, caption = groups[-1] if groups else None, _caption(table)
        found = _first_fit(sheet, title, tables, table, current, mistaken - {caption})
        if found is None and (example := _with_mistake(sheet, title, tables, table, current, mistaken - {caption})):
            found, mistaken = (tables, example), mistaken | {caption}
        if found is not None:
            before, example = found
            groups[-1 if groups and before == tables else len(groups) :] = [example]
            tables = list(example.written)
        elif fragment := _from_printed(sheet, title, printed, fragments[-1:], table):
            is_longer = fragments and set(fragments[-1].written) < set(fragment.written)
            fragments[-1 if is_longer else len(fragments) :] = [fragment]
            used = {given.cells for given in fragment.written}
            unexplained = {
                other: differs for other, differs in unexplained.items() if differs or other.cells not in used
            }
        else:
            unexplained[table] = not all(map(_is_input, tables))  # its own inputs are shown, and give other numbers
        if table.table and UNKNOWN_ROW not in table.rows:
            printed[table.table] = table
    rest = [replace(table, table="", description=table.description or table.table) for table in unexplained]
    rest = [table for table in rest if not _belongs_to(groups, table)]
    groups += fragments
    titled = [replace(group, title=f"{title}, part {n + 1}") for n, group in enumerate(groups)]
    examples = titled if len(titled) > 1 else groups
    if rest and examples:
        examples[-1] = replace(examples[-1], written=(*examples[-1].written, *rest))
    return tuple(examples)


def _from_printed(
    sheet: Sheet, title: str, printed: dict[str, WrittenTable], fragments: list[Example], table: WrittenTable
) -> Example | None:
    """Return a calculation of a table from the tables printed last that it may be calculated from directly."""
    named = parse_caption(table.table)
    choices = _PARENTS.get(named[0], ()) if named else tuple(chain(*_PARENTS.values()))
    before = [list(fragment.written) for fragment in fragments]
    head = f" head {named[1]}" if named and named[1] else ""
    choices = tuple(tuple(name if name == "x" else name + head for name in names) for names in choices)
    before += [[printed[name] for name in names] for names in choices if all(name in printed for name in names)]
    scales: list[dict[str, object]] = []
    if not any(name.startswith("key") for name in printed):
        scales = [{"scale": width**-0.5, "causal": causal} for width in _WIDTHS for causal in (False, True)]
    for parents in before:
        # masked scores need not be scaled
        for step in ("masked", "scores") if any(parent.table.startswith("masked") for parent in parents) else ("",):
            given = [replace(parent, table=parent.table.replace("masked", step)) for parent in parents]
            for convention in (*_CONVENTIONS, *scales):
                try:
                    example = replace(sheet.build(title, [*given, table]), **convention)  # type: ignore[arg-type]
                    example = name_tables(example)
                except PeasyError:
                    continue
                if example.written[-1].table and _is_explained(example, must_judge=True):
                    return example
    return None


def _belongs_to(groups: list[Example], table: WrittenTable) -> bool:
    """Add a table to the first calculation that gives its numbers, although it was printed before it."""
    named = parse_caption(table.description)
    candidate = replace(table, table=named[0]) if named else table
    for index, group in enumerate(groups):
        example = name_tables(replace(group, written=(*group.written, candidate)))
        if example.written[-1].table and _is_explained(example, must_judge=True):
            groups[index] = example
            return True
    return False


def _caption(table: WrittenTable) -> str:
    """Return the caption of a table in findings, "" if its name is unknown."""
    named = parse_caption(table.table)
    return table_caption(named[0]) if named else ""


def _first_fit(
    sheet: Sheet,
    title: str,
    tables: list[WrittenTable],
    table: WrittenTable,
    current: Example | None,
    mistaken: frozenset[str],
) -> tuple[list[WrittenTable], Example] | None:
    """Return the tables that a new one follows from, and the example with it; None if it fits nowhere."""
    if not table.table and not any(len(other.cells) == len(table.cells) for other in tables):
        return None
    for before in _contexts(tables, table):
        for convention in _conventions(current, table):
            try:
                example = replace(sheet.build(title, [*before, table]), **convention)  # type: ignore[arg-type]
                named = name_tables(example)
            except PeasyError:
                continue
            step = parse_caption(named.written[-1].table)
            is_start = before is tables or (step is not None and step[0] in _GIVEN)
            if step is not None and _is_explained(named, mistaken, must_judge=not is_start):
                return before, named
    return None


def _with_mistake(
    sheet: Sheet,
    title: str,
    tables: list[WrittenTable],
    table: WrittenTable,
    current: Example | None,
    mistaken: frozenset[str],
) -> Example | None:
    """Return the current calculation with a table that has a known mistake, or mistakes in few of its cells."""
    named = parse_caption(table.table)
    if named is None or not tables or (UNKNOWN_ROW in table.rows and len(tables[-1].cells) > 1):
        return None
    has_steps = not all(map(_is_input, tables))  # from X alone the projections are not known
    for convention in _conventions(current, table):
        try:
            example = replace(sheet.build(title, [*tables, table]), **convention)  # type: ignore[arg-type]
        except PeasyError:
            continue
        if not _is_explained(replace(example, written=example.written[:-1]), mistaken):
            continue
        checker, caption = TableChecker.best(example), table_caption(named[0])
        wrong = [cell.table for cell in checker.cells if cell.verdict == "wrong" and cell.table not in mistaken]
        if not wrong or checker.unread or set(wrong) != {caption}:
            continue
        judged = sum(cell.table == caption for cell in checker.cells)
        if (has_steps and named[0] in checker.slips) or len(wrong) <= _FEW_WRONG * judged:
            return example
    return None


def _conventions(current: Example | None, table: WrittenTable) -> list[dict[str, object]]:
    """Return the conventions to try, that of the current calculation first; only weights and later tables need more."""
    usual: dict[str, object] = dict(_CONVENTIONS[0])
    if current is not None:
        usual = {"scoring": current.scoring, "causal": current.causal, "note": current.note}
    named = parse_caption(table.table)
    if named is not None and named[0] in (*_GIVEN, "scores", "key_transposed"):
        return [usual]
    scaled_only = named is not None and named[0] == "scaled"
    return [
        convention for convention in (usual, *(other for other in _CONVENTIONS if other != usual))
        if not scaled_only or convention["scoring"] != "dot"
    ]  # fmt: skip


def _contexts(tables: list[WrittenTable], table: WrittenTable) -> Iterator[list[WrittenTable]]:
    """Yield the earlier tables that a new one may belong to: all, those before it in the calculation, inputs, none."""
    yield tables
    if not table.table:
        return
    earlier = [other for other in tables if comes_before(other, table)]
    inputs = [other for other in tables if _is_input(other)]
    named = parse_caption(table.table)
    is_given = named is not None and named[0] in _GIVEN
    for fewer in (earlier, inputs, *([[]] if is_given else [])):
        if len(fewer) < len(tables):
            yield fewer


def _is_input(table: WrittenTable) -> bool:
    named = parse_caption(table.table)
    return named is not None and named[0] == "x"


@lru_cache(maxsize=_MAX_ARRAYS)
def _is_explained(example: Example, mistaken: frozenset[str] = frozenset(), must_judge: bool = False) -> bool:
    """True if no cell outside of the mistaken tables is wrong; if `must_judge`, the last table must be calculated."""
    with np.errstate(all="ignore"):
        checker = TableChecker(example, names_slips=False).run()
        if not _agrees(checker, mistaken):  # what is wrong if the inputs were rounded is wrong if they are exact
            return False
        checker = TableChecker.best(example, names_slips=False)
    if must_judge and not any(cell.verdict for cell in checker.cells if cell.table == checker.tables[-1].name):
        return False
    return _agrees(checker, mistaken)


def _agrees(checker: TableChecker, mistaken: frozenset[str]) -> bool:
    right = all(
        cell.verdict in ("right", "truncated", "follows") for cell in checker.cells if cell.table not in mistaken
    )
    return right and not checker.unread and all(row.table in mistaken for row in checker.row_findings)
