"""Chain rule of one number: all gradients from the loss to one entry of a matrix, and a check by a small change."""

import re

import numpy as np

from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.parameters import Record
from peasy.worked.builder import related_name
from peasy.worked.solver import WorkedExample, WorkedStep, contains_parts, suggest_nodes

_TARGET = re.compile(
    r"(?:d\s*(?P<loss>[\w.-]+)\s*/\s*d\s*)?(?P<node>[A-Za-z][\w.-]*)\s*\[(?P<row>\d+),\s*(?P<column>\d+)\]"
)

NUDGE = 1e-3
"""Change of a number by which its gradient is checked."""


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
