"""One number explained: its arithmetic line by line, or the chain of gradients from the loss to it, with a check.

Only displayed numbers are rounded: each line's value is computed from all digits.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, NotFound, UsageError, did_you_mean
from peasy.parameters import Record
from peasy.worked.builder import related_name
from peasy.worked.graph import ArithmeticLine
from peasy.worked.label import token_label
from peasy.worked.solver import WorkedExample, WorkedStep, contains_parts, suggest_nodes

_TARGET = re.compile(
    r"(?:d\s*(?P<loss>[\w.-]+)\s*/\s*d\s*)?(?P<node>[A-Za-z][\w.-]*)\s*\[(?P<row>\d+),\s*(?P<column>\d+)\]"
)

NUDGE = 1e-3
"""Change of a number by which its gradient is checked."""


class CellArithmetic(DisplayMixin, Record, repr=False):
    """Arithmetic of one cell; the last line gives its value."""

    step: str
    row: int
    column: int
    title: str
    lines: tuple[ArithmeticLine, ...]
    value: float

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines as text."""
        return tuple(line.text for line in self.lines)

    def __repr__(self) -> str:
        return "\n  ".join((self.title, *self.texts))


def arithmetic(
    worked: WorkedExample, step: str, row: int | str, column: int | str, decimals: int = 4
) -> CellArithmetic:
    """Return the arithmetic behind one cell of a step; `row` and `column` are positions or tokens.

    >>> from peasy.worked import load_example, solve
    >>> for line in arithmetic(solve(load_example("i-love-ai")), "weights", "I", "love").texts:
    ...     print(line)
    I: e^0 = 1
    love: e^0.7071 = 2.0281
    AI: e^0.7071 = 2.0281
    sum: 1 + 2.0281 + 2.0281 = 5.0562
    share: 2.0281 / 5.0562 = 0.4011
    """
    solved = worked.step(step)
    i = find_index(row, solved.rows, f"row of {solved.name}")
    j = find_index(column, solved.columns, f"column of {solved.name}")
    row_label, column_label = token_label(solved.rows[i]), token_label(solved.columns[j])
    title = f"{solved.name}: {solved.row_axis} {row_label}, {solved.column_axis} {column_label}"
    with np.errstate(all="ignore"):
        lines = tuple(worked.graph.lines(solved.name, i, j, worked.values, worked.labels, decimals))
    return CellArithmetic(solved.name, i, j, title, lines, float(solved.values[i, j]))


def find_index(token_or_index: int | str, labels: Sequence[str], kind: str) -> int:
    """Return the index of a label: a number counts from 0 (or from the end), anything else is a token, once there."""
    with suppress(ValueError):
        if len(str(token_or_index)) < 12 and -len(labels) <= int(token_or_index) < len(labels):
            return int(token_or_index) % len(labels)
    if isinstance(token_or_index, str):
        lowered = [label.lower() for label in labels]
        for known, wanted in ((list(labels), token_or_index), (lowered, token_or_index.lower())):
            if known.count(wanted) > 1:
                places = [str(index) for index, label in enumerate(known) if label == wanted]
                hint = f"Which one? Give its position: {', '.join(places[:-1])} or {places[-1]}."
                raise InvalidInput(f'"{token_label(token_or_index)}" is at {len(places)} positions.', hint=hint)
            if wanted in known:
                return known.index(wanted)
    shown = [token_label(label) for label in labels[:20]]
    near = did_you_mean(token_or_index, shown) if isinstance(token_or_index, str) else None
    ellipsis = ", ..." if len(labels) > 20 else ""
    hint = near or f"Positions 0 to {len(labels) - 1}: {', '.join(shown)}{ellipsis}."
    raise NotFound(f"There is no {kind} {token_label(str(token_or_index))!r}.", hint=hint)


class GradientChain(Record):
    """Gradients from the loss to one entry of a node, in order; the last one contains its value.

    `nudged_losses` are the losses with `NUDGE` less and more in the entry.
    """

    node: str
    row: int
    column: int
    steps: tuple[WorkedStep, ...]
    value: float
    loss_node: str
    nudged_losses: tuple[float, float]

    @property
    def title(self) -> str:
        """The gradient as written: `d loss / d w[0,1]`."""
        return f"d {self.loss_node.rpartition('.')[2]} / d {self.node}[{self.row},{self.column}]"


def follow(worked: WorkedExample, target: str) -> GradientChain:
    """Follow the chain rule to a number: `d loss / d w_q[0,1]`, or `w_q[0,1]`.

    >>> from peasy.worked import load_example, solve
    >>> [step.name for step in follow(solve(load_example("cross-entropy")), "d loss / d logits[0,1]").steps]
    ['loss.d_loss', 'loss.d_token_loss', 'd_logits']
    """
    match = _TARGET.fullmatch(target.strip())
    if match is None:
        raise UsageError(f'"{target}" is not a gradient.', hint='For example: --follow "d loss / d w_q[0,1]"')
    node = _find_node(worked, match["node"])
    row, column = int(match["row"]), int(match["column"])
    rows, columns = worked.values[node].shape
    if row >= rows or column >= columns:
        message = f"{node} has no entry [{row},{column}]."
        raise NotFound(message, hint=f"It has {rows} rows and {columns} columns, from 0.")
    wanted, names = {related_name("d", node)}, list(worked.graph.nodes)
    for name in reversed(names):
        if name in wanted:
            parents = (parent for route in worked.graph.nodes[name].routes[:1] for parent in route.inputs)
            wanted |= {parent for parent in parents if worked.kind(parent) == "gradients"}
    steps = tuple(worked.step(name) for name in names if name in wanted)
    loss = next(name for name in names if related_name("d", name) == steps[0].name)
    value = float(steps[-1].values[row, column])
    given = {name: worked.values[name] for name, other in worked.graph.nodes.items() if not other.routes}
    change = np.zeros((rows, columns))
    change[row, column] = NUDGE
    nudged = (worked.values[node] - change, worked.values[node] + change)
    less, more = (float(worked.graph.evaluate(given | {node: values})[loss][0, 0]) for values in nudged)
    return GradientChain(node, row, column, steps, value, loss, (less, more))


def _find_node(worked: WorkedExample, text: str) -> str:
    """Return the node that is meant, by its name or by parts of it; case does not matter."""
    nodes = [name for name in worked.values if related_name("d", name) in worked.names]
    if not nodes:
        raise InvalidInput("This example has no gradients.", hint='Add [train] with loss = "..." to it.')
    wanted = text.lower().split(".")
    found = [name for name in nodes if name.lower() == text.lower()] or [
        name for name in nodes if contains_parts(name.lower().split("."), wanted)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f'"{text}" is several matrices.', hint=f"Which one? {', '.join(found)}.")
    raise NotFound(f'There is no gradient of "{text}" in this example.', hint=suggest_nodes(text, nodes))
