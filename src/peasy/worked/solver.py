"""Solver for worked examples: computes every step that follows from the given matrices, with labels."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.formula.step import D_CONCAT, D_KEY, D_MODEL, D_SOURCE, D_VALUE, KEY, QUERY, TOKEN
from peasy.parameters import Record
from peasy.worked.attention_graph import FormulaSettings, attention_graph, given_matrices, head_name
from peasy.worked.builder import related_name
from peasy.worked.example import Example, check_size
from peasy.worked.graph import Graph, GraphNode
from peasy.worked.step_lines import build_example
from peasy.worked.steps import SelectHead

_STEP_ALIASES = {"q": "query", "k": "key", "v": "value", "x_source": "source", "z": "context", "qk^t": "scores"}
"""Aliases of step names as written on paper; case does not matter."""


StepKind = Literal["forward", "gradients", "update"]
"""Part of one training step that a step belongs to."""

_MAX_NAMED = 16
"""Number of steps that an error lists; a whole network has many more."""


class WorkedStep(Record):
    """One computed step: caption, labels and values `[row, column]`."""

    name: str
    tex: str
    description: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str
    column_axis: str
    values: np.ndarray = field(repr=False, compare=False)
    head: int = 0

    @property
    def base(self) -> str:
        """Last part of the name: `weights` of `layer1.attention.weights`."""
        return self.name.rpartition(".")[2]

    @property
    def scope(self) -> str:
        """Name without its last part: the block or head that the step belongs to."""
        return self.name.rpartition(".")[0]

    @property
    def rows_or_masked(self) -> list[list[float | None]]:
        """Values as lists; None for a masked score."""
        return [[None if value == -np.inf else value for value in row] for row in self.values.tolist()]


class WorkedExample(Record):
    """Example with all its steps. `attention_mask[query, key]` is True where the query attends; None = no mask."""

    example: Example
    steps: tuple[WorkedStep, ...]
    attention_mask: np.ndarray | None = field(repr=False, compare=False)
    graph: Graph = field(repr=False, compare=False)
    values: dict[str, np.ndarray] = field(repr=False, compare=False)
    """Values of every node of the graph, also of those that are not listed as steps."""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False, compare=False)
    """Labels of the axes by name; others are numbered from 0."""
    max_columns: int | None = field(default=None, compare=False)
    """Number of numbered rows and columns of a table that are shown; None = all. Tokens are always shown."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Labels of the queries."""
        return self.example.tokens

    @property
    def keys(self) -> tuple[str, ...]:
        """Labels of the keys."""
        return self.example.keys

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Step names in order."""
        return tuple(step.name for step in self.steps)

    def step(self, name: str) -> WorkedStep:
        """Return the step of that name; aliases such as `Q`, `K`, `V` are accepted."""
        head, dot, base = name.strip().lower().rpartition(".")
        wanted = head + dot + _STEP_ALIASES.get(base, base)
        by_name = {step.name.lower(): step for step in self.steps}
        for known in (name.strip().lower(), wanted):
            if known in by_name:
                return by_name[known]
        parts = wanted.split(".")
        near = [own for own in by_name if own.split(".")[-1] == parts[-1] and contains_parts(own.split("."), parts)]
        if len(near) == 1:
            return by_name[near[0]]
        shown = [*self.names[:_MAX_NAMED], *(["..."] if len(self.names) > _MAX_NAMED else [])]
        hint = did_you_mean(wanted, self.names) or f"Steps: {', '.join(shown)}."
        raise NotFound(f'There is no step "{name}" in this example.', hint=hint)

    def node_step(self, name: str) -> WorkedStep:
        """Return any node of the graph as a step, also one that is not listed."""
        if name in self.names:
            return self.step(name)
        return _labelled_node(self.graph.nodes[name], self.values, self.labels)

    def find_step(self, name: str, scope: str = "") -> WorkedStep | None:
        """Return a step of a scope or of the nearest one around it, or None if there is no such step."""
        while scope and f"{scope}.{name}" not in self.names:
            scope = scope.rpartition(".")[0]
        wanted = f"{scope}.{name}" if scope else name
        return next((step for step in self.steps if step.name == wanted), None)

    def find_values(self, name: str, scope: str = "") -> np.ndarray | None:
        """Return the values of a step of a scope or of the nearest one around it, or None."""
        step = self.find_step(name, scope)
        return None if step is None else step.values

    @cached_property
    def attention_scopes(self) -> tuple[str, ...]:
        """Scopes that have attention weights: "" of a single head, else `head-1` or `layer1.attention.head-1`."""
        return tuple(step.scope for step in self.steps if step.base == "weights") or ("",)

    def kind(self, name: str) -> StepKind:
        """Return the part of a training step that a node belongs to, by the prefix of its name."""
        scope, _, base = name.rpartition(".")
        if self.example.train is None:
            return "forward"
        if scope.startswith("after") or base.startswith(("new_", "m_", "v_", "old_")):
            return "update"
        return "gradients" if base.startswith("d_") else "forward"

    def select(self, only: str = "", kind: StepKind | None = None) -> tuple[WorkedStep, ...]:
        """Return the steps of a kind whose names contain the parts of `only` in order: `attention.weights`."""
        head, dot, base = only.strip().lower().rpartition(".")
        wanted = [part for part in (head + dot + _STEP_ALIASES.get(base, base)).split(".") if part]
        steps = [step for step in self.steps if kind in (None, self.kind(step.name))]
        found = [step for step in steps if contains_parts(step.name.split("."), wanted)]
        if not found:  # the gradient or update of a node, by the name of the node: d_w, m_hat_w, new_w
            owners = [re.sub(r"^(d|new|old|m|v)_(hat_|m_|v_)?", "", step.base) for step in steps]
            pairs = zip(steps, owners, strict=True)
            found = [step for step, owner in pairs if contains_parts([*step.name.split("."), owner], wanted)]
        if not found:
            what = f'no step "{only}"' if only else f"nothing of {kind}"
            hint = suggest_nodes(only, self.names) if only else "It has no [train]."
            raise NotFound(f"There is {what} in this example.", hint=hint)
        return tuple(found)


def suggest_nodes(text: str, names: Sequence[str]) -> str:
    """Return the hint after an unknown name: the nearest name or part of a name, or the first names.

    >>> suggest_nodes("atention", ["gpt.attention.weights", "loss"])
    'Did you mean attention?'
    """
    parts = {part: None for name in names for part in (name, *name.split("."))}
    listed = f"Steps: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}."
    return did_you_mean(text, parts) or did_you_mean(text.rpartition(".")[2], parts) or listed


def find_node(text: str, names: Iterable[str]) -> str | None:
    """Return the only node that is meant by a name, or by parts of it; case does not matter.

    >>> find_node("Gain", ["norm.gain", "norm.bias"]), find_node("norm", ["norm.gain", "norm.bias"])
    ('norm.gain', None)
    """
    wanted = text.strip().lower()
    names = list(names)
    exact = [name for name in names if name.lower() == wanted or (wanted.endswith("…") and name.startswith(text[:-1]))]
    parts = wanted.split(".")
    near = exact or [
        name for name in names if name.lower().endswith(parts[-1]) and contains_parts(name.lower().split("."), parts)
    ]
    near = near if len(near) == 1 else [name for name in near if not name.startswith("after.")]
    return near[0] if len(near) == 1 else None


def contains_parts(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """True if the wanted parts occur in this order."""
    rest = iter(parts)
    return all(part in rest for part in wanted)


def solve(example: Example) -> WorkedExample:
    """Compute every step that follows from what `example` gives.

    >>> from peasy.worked.example import load_example
    >>> solve(load_example("i-love-ai")).step("weights").values[0].round(4)
    array([0.1978, 0.4011, 0.4011])
    """
    if example.steps:
        return _solve_steps(example)
    check_size(example)
    settings = FormulaSettings.from_example(example)
    _check_given_weights(example, settings)
    graph = attention_graph(example, settings)
    given = given_matrices(example)
    if example.weights is not None:
        given = {name: given[name] for name in ("value", "weights", "w_o", "b_o") if name in given}
    with np.errstate(all="ignore"):
        values = graph.evaluate(given)
    labels = {QUERY: example.tokens, TOKEN: example.tokens, KEY: example.keys}
    unused = {"w_o", "b_o"} if "output" not in values else set()  # an output projection without a context
    listed = [node for node in graph.nodes.values() if node.listed and node.name in values and node.name not in unused]
    for node in listed:
        if not np.all(np.isfinite(values[node.name]) | (np.isneginf(values[node.name]) & (node.base == "masked"))):
            raise InvalidInput(f"The numbers of {node.base} overflow.", hint="Use smaller numbers.")
    steps = tuple(
        _labelled_node(node, values, labels | _feature_labels(example, node.base), _first_column(node, graph, values))
        for node in listed
    )
    if not steps:
        message = "The example gives nothing to compute."
        raise InvalidInput(message, hint="Give x, or q and k, or weights (and v for the context).")
    names = [step.base for step in steps]
    if example.last_step and example.last_step not in names:
        message = f'last_step = "{example.last_step}" is not one of the steps.'
        raise InvalidInput(message, hint=f"Steps: {', '.join(names)}.")
    last = len(names) - names[::-1].index(example.last_step) if example.last_step else len(names)
    return WorkedExample(example, steps[:last], settings.attention_mask, graph, values, labels)


def _solve_steps(example: Example) -> WorkedExample:
    """Compute an example that is described by `steps`, with gradients and update if it is trained."""
    builder = build_example(example)
    graph, values = builder.graph(), builder.values
    labels = {QUERY: example.tokens, KEY: example.keys, **builder.labels}
    steps = tuple(_labelled_node(node, values, labels) for node in graph.nodes.values() if node.listed)
    return WorkedExample(example, steps, None, graph, values, labels)


def train_steps(example: Example, steps: int) -> Iterator[WorkedExample]:
    """Train an example step by step: each worked example starts from the parameters and moments of the one before.

    >>> from peasy.worked.example import load_example
    >>> losses = [worked.values["loss.loss"][0, 0] for worked in train_steps(load_example("tiny-gpt-step"), 3)]
    >>> losses == sorted(losses, reverse=True)
    True
    """
    if example.train is None or example.train.optimizer == "none":
        raise InvalidInput("The example has no optimizer.", hint='Give one: [train] optimizer = "sgd".')
    for _ in range(steps):
        worked = solve(example)
        yield worked
        given = {name: np.asarray(rows) for name, rows in example.given_nodes.items()}
        for name in tuple(given):
            for new, old in (("new", ""), ("m", "old_m"), ("v", "old_v")):
                if related_name(new, name) in worked.values:
                    given[related_name(old, name) if old else name] = worked.values[related_name(new, name)]
        train = replace(example.train, step=example.train.step + 1)
        example = replace(example, given={name: values.tolist() for name, values in given.items()}, train=train)


def _labelled_node(
    node: GraphNode, arrays: Mapping[str, np.ndarray], labels: Mapping[str, Sequence[str]], first_column: int = 0
) -> WorkedStep:
    """Return a node as a step; an axis without labels is numbered, the single entry of a sum or bias has its name."""
    values, caption, axes = arrays[node.name], node.caption, node.caption.axes[-2:]
    sides = []
    for axis, size, start in zip(axes, values.shape, (0, first_column), strict=True):
        is_width = axis.startswith("d_")
        known = labels.get(axis, ())[start : start + size if is_width else None]
        single = (axis,) if size == 1 and not is_width else ()
        numbered = tuple(str(start + index) for index in range(size))
        sides.append(next(tuple(names) for names in (known, single, numbered) if len(names) == size))
    rows, columns = sides
    return WorkedStep(node.name, caption.tex, caption.description, rows, columns, axes[0], axes[1], values, node.head)


def _feature_labels(example: Example, name: str) -> dict[str, Sequence[str]]:
    """Return the axes of a step that are the features: those of the inputs, others until they are mixed."""
    axes: tuple[str, ...] = ()
    if name in ("x", "source", "w_q", "w_k", "w_v"):
        axes = (D_MODEL,) if name.startswith("w_") else (D_MODEL, D_SOURCE)
    elif name not in ("output", "w_o") and example.w_q is example.w_k is example.w_v is None:
        axes = (D_KEY, D_VALUE, D_CONCAT) if example.q is example.k is example.v is None else ()
    return dict.fromkeys(axes, example.features)


def _first_column(node: GraphNode, graph: Graph, values: dict[str, np.ndarray]) -> int:
    """Return the number of the node's first column in the matrix of all heads; a context has those of its values."""
    source = graph.nodes[head_name("value", node.head)] if node.base == "context" else node
    for route in source.routes:
        if isinstance(route.step, SelectHead):
            return route.step.first_column([values[parent] for parent in route.inputs])[0]
    return 0


def _check_given_weights(example: Example, settings: FormulaSettings) -> None:
    if example.weights is None:
        return
    if example.heads > 1:
        raise InvalidInput("Given weights belong to one head.", hint="Leave heads out, or give x and its matrices.")
    mask = settings.attention_mask
    if mask is not None and np.any(np.asarray(example.weights, float)[~mask] != 0):
        raise InvalidInput("weights has a non-zero number for a masked key.", hint="Masked keys have weight 0.")
