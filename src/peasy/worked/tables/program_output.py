"""Output of a program as calculations: printed arrays are grouped so that each follows from the ones before it.

A notebook often calculates attention several times: without projections, with them, with a mask. Each array is tried
with the arrays before it, under the usual conventions; if nothing gives it, and no known mistake does, it belongs to
a calculation that is not shown, and it is listed as not read rather than called wrong.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.cell import read_number
from peasy.worked.checking.checker import MAX_DECIMALS, TableChecker
from peasy.worked.checking.recognition import NOT_SCALED, name_tables
from peasy.worked.checking.step_aliases import parse_caption, table_caption
from peasy.worked.checking.table import UNKNOWN_ROW, table_name
from peasy.worked.example import Example, WrittenTable
from peasy.worked.tables.sheet import Sheet, comes_before

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

_MAX_WIDTH = 1024
"""Maximum width of keys that is found from scores and weights if the keys are not shown."""

_MAX_ARRAYS = 200
"""Maximum number of printed arrays that are compared."""


def group_calculations(sheet: Sheet, title: str) -> tuple[Example, ...]:
    """Return the calculations that a program printed, each an example whose tables agree or have a known mistake."""
    output = _ProgramOutput(sheet, title)
    for table in sheet.tables[:_MAX_ARRAYS]:
        has_projection = table.table != "output" or any(other.table == "w_o" for other in sheet.tables)
        output.add(table if has_projection else replace(table, table="context"))
    return output.examples()


class _ProgramOutput:
    """Tables of a program: the calculations so far, the current one, and what was printed last under each name.

    A table that nothing explains may be the result of numbers that are not shown: tables after it are tried with it.
    """

    def __init__(self, sheet: Sheet, title: str) -> None:
        self.sheet, self.title = sheet, title
        self.groups: list[Example] = []
        self.fragments: list[Example] = []
        self.tables: list[WrittenTable] = []
        self.printed: dict[str, WrittenTable] = {}
        self.unexplained: dict[WrittenTable, bool] = {}
        self.mistaken: frozenset[str] = frozenset()

    def add(self, table: WrittenTable) -> None:
        """Add a table to the calculation that it follows from."""
        named = parse_caption(table.table)
        caption = table_caption(named[0]) if named else ""
        mistaken = self.mistaken - {caption}
        all_tables, *fewer = _contexts(self.tables, table)
        found = self.first_fit(table, [all_tables], mistaken)
        if named is None or named[0] not in ("query", "key", "value"):  # it may be calculated without projections
            found = found or self.first_fit(table, fewer, mistaken)
        if found is None and (example := self.with_mistake(table, mistaken)):
            found, self.mistaken = (self.tables, example), self.mistaken | {caption}
        found = found or self.first_fit(table, fewer, mistaken)
        if found is not None:
            before, example = found
            self.groups[-1 if self.groups and before == self.tables else len(self.groups) :] = [example]
            self.tables = list(example.written)
        elif fragment := self.from_printed(table):
            is_longer = self.fragments and set(self.fragments[-1].written) < set(fragment.written)
            self.fragments[-1 if is_longer else len(self.fragments) :] = [fragment]
            used = {given.cells for given in fragment.written}
            left = ((each, differs) for each, differs in self.unexplained.items() if differs or each.cells not in used)
            self.unexplained = dict(left)
        else:  # True if its inputs are shown, and give other numbers
            self.unexplained[table] = not all(map(_is_input, self.tables))
        if table.table and UNKNOWN_ROW not in table.rows:
            self.printed[table.table] = table

    def examples(self) -> tuple[Example, ...]:
        """Return the calculations; tables that belong to none are listed in the last one."""
        rest = [replace(each, table="", description=each.description or each.table) for each in self.unexplained]
        rest = [table for table in rest if not _belongs_to(self.groups, table)]
        groups = [*self.groups, *self.fragments]
        if len(groups) > 1:
            groups = [replace(group, title=f"{self.title}, part {n + 1}") for n, group in enumerate(groups)]
        if rest and groups:
            groups[-1] = replace(groups[-1], written=(*groups[-1].written, *rest))
        return tuple(groups)

    def built(
        self, tables: list[WrittenTable], conventions: Iterable[dict[str, object]], is_named: bool = False
    ) -> Iterator[Example]:
        """Yield the example of some tables under each convention that fits; tables are named unless `is_named`."""
        with suppress(PeasyError):
            plain = self.sheet.build(self.title, tables)
            for convention in conventions:
                with suppress(PeasyError):
                    example = replace(plain, **convention)  # type: ignore[arg-type]
                    yield example if is_named else name_tables(example, only_last=True)

    def first_fit(
        self, table: WrittenTable, contexts: Iterable[list[WrittenTable]], mistaken: frozenset[str]
    ) -> tuple[list[WrittenTable], Example] | None:
        """Return the tables that a new one follows from, and the example with it; None if it fits nowhere."""
        if not table.table and not any(len(other.cells) == len(table.cells) for other in self.tables):
            return None
        for before in contexts:
            for example in self.built([*before, table], self.conventions(table)):
                step = parse_caption(example.written[-1].table)
                is_start = before is self.tables or (step is not None and step[0] in _GIVEN)
                if step is not None and _is_explained(example, mistaken, must_judge=not is_start):
                    return before, example
        return None

    def with_mistake(self, table: WrittenTable, mistaken: frozenset[str]) -> Example | None:
        """Return the current calculation with a table that has a known mistake, or mistakes in few of its cells."""
        named = parse_caption(table.table)
        if named is None or not self.tables or (UNKNOWN_ROW in table.rows and len(self.tables[-1].cells) > 1):
            return None
        is_typed = table.cells in {each.cells for each in self.sheet.literals}
        is_given = is_typed or len({cell for row in table.cells for cell in row}) == 1
        if is_given or (named[1] and not any(" head " in other.table for other in self.tables)):
            return None  # typed in, not calculated, or of other axes
        if any(comes_before(other, table) for other in self.unexplained):
            return None  # its inputs may be those that are not shown
        has_steps = not all(map(_is_input, self.tables))  # from X alone the projections are not known
        usual, *others = self.conventions(table)  # a mask that nothing before it has is no mistake
        same_mask = [convention for convention in others if convention["causal"] == usual["causal"]]
        for example in self.built([*self.tables, table], [usual, *same_mask], is_named=True):
            if not _is_explained(replace(example, written=example.written[:-1]), mistaken):
                continue
            checker, caption = TableChecker.best(example), table_caption(named[0])
            if checker.coarse_tables:  # almost anything agrees with rounded inputs; those of a program are exact
                with np.errstate(all="ignore"):
                    checker = TableChecker(example, exact_decimals=MAX_DECIMALS).run()
            wrong = [cell.table for cell in checker.cells if cell.verdict == "wrong" and cell.table not in mistaken]
            own = next((each for each in reversed(checker.tables) if each.name == caption), None)
            judged = sum(verdict != "" for row in own.verdicts for verdict in row) if own else 0
            is_known = (has_steps and named[0] in checker.slips) or len(wrong) <= _FEW_WRONG * judged
            is_known |= table in self.sheet.adjacent and has_steps
            if set(wrong) == {caption} and not checker.unread and is_known:
                return example
        return None

    def from_printed(self, table: WrittenTable) -> Example | None:
        """Return a calculation of a table from the tables printed last that it may be calculated from directly."""
        named = parse_caption(table.table)
        head = f" head {named[1]}" if named and named[1] else ""
        choices = _PARENTS.get(named[0], ()) if named else chain(*_PARENTS.values())
        names = [[name if name == "x" else name + head for name in parents] for parents in choices]
        before = [list(fragment.written) for fragment in self.fragments[-1:]]
        before += [[self.printed[each] for each in parents] for parents in names if set(parents) <= set(self.printed)]
        before = [parents for parents in before if len(parents[0].cells) == len(table.cells)]
        # masked scores need not be scaled
        before += [[replace(one, table=one.table.replace("masked", "scores")) for one in parents] for parents in before]
        for parents in before:
            scales = _scales(parents[-1], table) if not any(name.startswith("key") for name in self.printed) else []
            conventions = [*_CONVENTIONS]
            conventions += [{"scale": scale, "causal": causal} for scale in scales for causal in (False, True)]
            for example in self.built([*parents, table], conventions):
                if example.written[-1].table and _is_explained(example, must_judge=True):
                    return example
        return None

    def conventions(self, table: WrittenTable) -> list[dict[str, object]]:
        """Return the conventions to try, the current one first; only weights and later tables need more."""
        usual: dict[str, object] = dict(_CONVENTIONS[0])
        if self.groups:
            current = self.groups[-1]
            usual = {"scoring": current.scoring, "causal": current.causal, "note": current.note}
        step = (parse_caption(table.table) or ("",))[0]
        if step in (*_GIVEN, "scores", "key_transposed"):
            return [usual]
        others = [each for each in (usual, *_CONVENTIONS) if step != "scaled" or each["scoring"] != "dot"]
        return [convention for index, convention in enumerate(others) if convention not in others[:index]]


def _scales(scores: WrittenTable, table: WrittenTable) -> list[float]:
    """Return the scale 1/√d_k that turns scores into a table of scaled scores or weights, if there is one.

    Of weights, differences of logarithms are those of the scaled scores.
    """
    if {len(row) for row in scores.cells} != {len(row) for row in table.cells} or len(scores.cells[0]) < 2:
        return []
    before, after = (
        np.array([[number.value if (number := read_number(str(cell))) else np.nan for cell in row] for row in each])
        for each in (scores.cells, table.cells)
    )
    scales = []
    with np.errstate(all="ignore"):
        for quotient in (after / before, np.diff(np.log(after)) / np.diff(before)):
            usable = quotient[np.isfinite(quotient) & (quotient > 0)]
            width = round(float(np.median(usable)) ** -2) if usable.size else 1
            scales += [width**-0.5] if 1 < width <= _MAX_WIDTH else []
    return scales


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
        checker = TableChecker.best(example, names_slips=False, first=checker)
        last = table_caption(table_name(example.written[-1], example, [table.table for table in example.written]))
    is_judged = not must_judge or any(cell.table == last for cell in checker.cells)
    return is_judged and last not in checker.coarse_tables and _agrees(checker, mistaken)


def _agrees(checker: TableChecker, mistaken: frozenset[str]) -> bool:
    cells = [cell for cell in checker.cells if cell.table not in mistaken]
    right = all(
        cell.verdict in ("right", "follows") or (cell.verdict == "truncated" and bool(cell.decimals)) for cell in cells
    )
    return right and not checker.unread and all(row.table in mistaken for row in checker.row_findings)
