"""Checking what somebody worked out by hand: every table again, as far as what is given allows.

A cell is right when it agrees at its author's own number of decimals, counting from the exact inputs or from
the author's own earlier tables as they stand there, rounded. Which of the two was used is tried out, table by
table. An earlier table that holds mistakes counts twice: mended, and as it is; what agrees only with the
latter `follows` from the mistake and is not blamed for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import Content, Mark, Number
from peasy.worked.checking.name import CAPTIONS, PER_HEAD, caption
from peasy.worked.checking.route import Rules, routes
from peasy.worked.checking.row import reach_findings, sum_findings, unfit_findings
from peasy.worked.checking.slip import Slip, find_slip
from peasy.worked.checking.symbol import Symbols, judge_names, judge_shares, missing_findings
from peasy.worked.checking.table import INPUTS, KEY_COLUMNS, Placed, RowFinding, node_of, place
from peasy.worked.checking.verdict import Judged, Verdict, judge_hidden, judge_number
from peasy.worked.checking.version import Version, best, derive, knowing, readings, trimmed
from peasy.worked.example import Example
from peasy.worked.work import check_size, head_name

MOST_CELLS = 50_000
"""More written cells than this are not the work of a hand."""

GIVEN = {
    "x": "rows", "source": "source_x", "w_q": "w_q", "w_k": "w_k", "w_v": "w_v", "w_o": "w_o",
    "query": "q", "key": "k", "value": "v", "weights": "weights",
}  # fmt: skip
"""Where an example holds the tables that it gives."""


@dataclass(frozen=True)
class CheckedCell:
    """One cell: what is written, what is right, and why. `right` is None where only a mistaken table could say."""

    table: str
    row: str
    column: str
    written: str
    right: float | str | None
    verdict: Verdict
    why: str
    decimals: int | None = None
    says: str = ""


@dataclass(frozen=True)
class CheckedTable:
    """A written table with the verdict on each of its cells and why.

    A verdict is "" where nothing could be said and "blank" where there is no answer.
    """

    name: str
    says: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    written: tuple[tuple[str, ...], ...]
    verdicts: tuple[tuple[str, ...], ...]
    whys: tuple[tuple[str, ...], ...] = ()
    is_taken: bool = False
    """Whether something is written in it and none of that could be worked out from other tables."""


@dataclass(frozen=True)
class Checked:
    """Everything that was found in an example's written tables."""

    title: str
    tables: tuple[CheckedTable, ...]
    cells: tuple[CheckedCell, ...]
    rows: tuple[RowFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; a number that was cut off instead of rounded is no mistake."""
        return not self.rows and all(cell.verdict in ("right", "cut") for cell in self.cells)

    @property
    def taken(self) -> tuple[str, ...]:
        """Tables after the inputs that had to be taken as they are, because nothing written leads to them."""
        inputs = {CAPTIONS[step] for step in INPUTS}
        return tuple(dict.fromkeys(t.name for t in self.tables if t.is_taken and t.name not in inputs))

    def count(self, verdict: str) -> int:
        """How many cells have this verdict ("blank" and "" too)."""
        return sum(row.count(verdict) for table in self.tables for row in table.verdicts)


def check(example: Example) -> Checked:
    """Recompute every table that the author of `example` wrote.

    >>> from peasy.worked.example import read_example
    >>> notes = {"title": "t", "tokens": ["a"], "x": [[2, 3]], "written": [{"table": "scores", "cells": [["12"]]}]}
    >>> cell = check(read_example(notes)).cells[0]
    >>> cell.verdict, cell.right, cell.why
    ('wrong', 13.0, '2·2 + 3·3 = 13, not 12.')
    """
    check_size(example)
    if sum(len(row) for table in example.written for row in table.cells) > MOST_CELLS:
        raise InvalidInput(f"There are more than {MOST_CELLS:,} written cells.", hint="Check a smaller piece.")
    with np.errstate(all="ignore"):
        return _Desk(example).checked()


class _Desk:
    """The tables of one example, gone through in the order in which one comes from the others."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.rules = Rules.of(example)
        maps = [node_of(each, example) for each in example.written if each.table.strip().upper().startswith("W_")]
        self.written = [(node_of(each, example, maps), each) for each in example.written]
        given = {step for step, name in GIVEN.items() if getattr(example, name) is not None}
        self.routes = routes(example, given | {node for node, _ in self.written})
        self.symbols = Symbols.of(example.written, example.keys)
        self.versions: dict[str, list[Version]] = {}
        self.tables: list[CheckedTable] = []
        self.cells: list[CheckedCell] = []
        self.faults: list[RowFinding] = []

    def checked(self) -> Checked:
        for node in self.nodes():
            known = self.known(node)
            self.versions[node] = list(known)
            for _, written in filter(lambda pair: pair[0] == node, self.written):
                shape = known[0].values.shape if known else None
                table = place(written, node, self.example, shape, self.rules.may_look)
                self.versions[node] += self.judge(table, known)
            self.versions[node] = trimmed(self.versions[node])
        return Checked(self.example.title, tuple(self.tables), tuple(self.cells), tuple(self.faults))

    def nodes(self) -> Iterator[str]:
        """All tables, each after those it comes from."""
        heads = range(1, self.example.heads + 1) if self.example.heads > 1 else ()
        for step in CAPTIONS:
            yield step
            yield from (head_name(step, head) for head in heads if step in PER_HEAD)

    def known(self, node: str) -> list[Version]:
        """What the table is, by all that was given and written before it; the exact reading first."""
        given = getattr(self.example, GIVEN[node]) if node in GIVEN else None
        if given is not None:
            return [Version(np.asarray(given, dtype=float), clean=True)]
        found = derive(self.routes.get(node, []), self.versions)
        hides = node.rpartition(".")[2] in ("scaled", "masked")
        return [each for each in found if _is_finite(each, caption(node), hides)]

    def judge(self, table: Placed, known: list[Version]) -> list[Version]:
        """Note the verdict on every cell and row of a written table; give back its readings for what comes after."""
        judged = {at: self.judge_cell(table, *at, content, known) for at, content in table.cells.items()}
        slip = self.slip(table, judged)
        if slip:
            judged = {at: _after(each, slip) for at, each in judged.items()}
        verdicts: dict[tuple[int, int], str] = {at: each.verdict if each else "" for at, each in judged.items()}
        self.cells += [_cell(table, at, each) for at, each in judged.items() if each]
        faults = self.judge_rows(table, verdicts, known)
        self.faults += faults
        blanks = {at for at, content in table.cells.items() if content is Mark.BLANK and knowing(known, *at)}
        whys = {at: each.why for at, each in judged.items() if each}
        self.tables.append(_table(table, verdicts | dict.fromkeys(blanks, "blank"), whys))
        wrong = np.zeros((len(table.rows), len(table.columns)), dtype=bool)
        for at, verdict in verdicts.items():
            wrong[at] = verdict in ("wrong", "follows")
        if not known:  # of given weights nothing more can be known than that a row of them is doubtful
            doubtful = {fault.row for fault in faults if fault.finding == "sum"}
            wrong |= np.array([[label in doubtful] for label in table.rows])
        slipped = [Version(slip.values, clean=False, written=caption(table.node))] if slip else []
        return [*readings(caption(table.node), table.values(), wrong, known), *slipped]

    def slip(self, table: Placed, judged: dict[tuple[int, int], Judged | None]) -> Slip | None:
        """What happened where weights are wrong, if it has a name."""
        scores, scaled = best(self.before(table, "scores")), best(self.before(table, "scaled"))
        if table.step != "weights" or scaled is None:
            return None
        wrong = {at[0] for at, each in judged.items() if each and each.verdict == "wrong"}
        return find_slip(table, wrong, self.rules, (scores or scaled).values, scaled.values)

    def judge_cell(self, table: Placed, row: int, column: int, content: Content, known: list[Version]) -> Judged | None:
        if content is Mark.BLANK:
            return None
        if content is Mark.HIDDEN:
            sees = self.rules.may_look
            by_key = table.step in KEY_COLUMNS or table.columns == self.example.keys
            hidden = by_key and sees is not None and not sees[row, column]
            return judge_hidden((table.rows[row], table.columns[column]), hidden, known, row, column)
        if isinstance(content, Number):
            return judge_number(content, table.texts[row, column].strip(), known, row, column)
        assert isinstance(content, tuple)
        if table.step == "context":
            return judge_shares(table, row, column, content, self.symbols, self.before(table, "weights"))
        return judge_names(table, row, column, content, self.symbols)

    def judge_rows(self, table: Placed, verdicts: dict[tuple[int, int], str], known: list[Version]) -> list[RowFinding]:
        exact, faults = best(known), []
        faults += unfit_findings(table, None if exact is None else exact.values)
        if table.step == "weights" and self.example.normalise != "none":
            faults += sum_findings(table, verdicts)
        if table.step == "context":
            faults += missing_findings(table, self.symbols, self.before(table, "weights"))
            value = self.before(table, "value")
            if value and self.example.normalise == "softmax":
                faults += reach_findings(table, verdicts, value[0].values, self.rules.may_look)
        return faults

    def before(self, table: Placed, step: str) -> list[Version]:
        """The readings of an earlier table of the same head."""
        return self.versions.get(table.node.replace(table.step, step), [])


def _after(judged: Judged | None, slip: Slip) -> Judged | None:
    """The verdict on a wrong cell with the name of the slip."""
    if judged is None or judged.verdict != "wrong":
        return judged
    return replace(judged, why=f"{judged.why.removesuffix('.')}: {slip.says}.")


def _is_finite(version: Version, name: str, hides: bool) -> bool:
    """Whether a reading stays within what can be calculated; powers of e may leave it, but nothing needs them.

    A table that `hides` may hold minus infinity.
    """
    if not (np.isposinf if hides else np.isinf)(version.values).any():
        return True
    if version.clean and not name.endswith(CAPTIONS["powers"]):
        raise InvalidInput(
            f"The numbers of {name} grow beyond what can be calculated.", hint="Use numbers nearer to 1."
        )
    return False


def _cell(table: Placed, at: tuple[int, int], judged: Judged) -> CheckedCell:
    right, content = judged.right, table.cells[at]
    if isinstance(right, float):
        right = "x" if right == -np.inf else round(right, 12) + 0.0
    return CheckedCell(
        table=caption(table.node),
        row=table.rows[at[0]],
        column=table.columns[at[1]],
        written=table.texts[at].strip(),
        right=right,
        verdict=judged.verdict,
        why=judged.why,
        decimals=content.decimals if isinstance(content, Number) else None,
        says=table.says,
    )


def _table(table: Placed, verdicts: dict[tuple[int, int], str], whys: dict[tuple[int, int], str]) -> CheckedTable:
    """The table as it was written: rows in order, those of a wrong length too."""
    misfits = {len(table.rows) if row is None else row: texts for row, texts in table.misfits}
    used = sorted({row for row, _ in table.cells} | set(misfits))
    width = max([len(table.columns), *map(len, misfits.values())])

    def grid(of: dict[tuple[int, int], str]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(of.get((row, column), "").strip() for column in range(width)) for row in used)

    unfit = {(row, column): text for row, texts in misfits.items() for column, text in enumerate(texts)}
    return CheckedTable(
        name=caption(table.node),
        says=table.says,
        rows=tuple((*table.rows, "?")[row] for row in used),
        columns=(*table.columns, *("",) * width)[:width],
        written=grid(table.texts | unfit),
        verdicts=grid(verdicts),
        whys=grid(whys),
        is_taken=not any(verdicts.values()) and any(each is not Mark.BLANK for each in table.cells.values()),
    )
