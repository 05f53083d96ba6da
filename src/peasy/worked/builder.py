"""Builder of a computation graph: given matrices, steps by name, gradients by the chain rule, parameter updates.

Blocks call `add` within a named scope, so `layer1.attention.weights` is the node `weights` of the scope
`layer1.attention`. The gradient of a node `x` is the node `d_x` of the same scope, its updated value `new_x`.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from peasy.errors import InvalidInput, PeasyError, did_you_mean
from peasy.formula.step import FormulaStep
from peasy.worked.example import Example
from peasy.worked.graph import Application, Graph, GraphNode, Route, Step
from peasy.worked.operations import Add, Constant, PlaceColumns
from peasy.worked.steps import Mask

_MAX_NODES, _MAX_CELLS = 20_000, 100_000_000
"""Maximum number of nodes, and of numbers that a node may have with the sizes of its inputs."""

_LOSS_SYMBOL = "L"
_TEX_NAMES = {
    "gain": r"\gamma", "bias": r"\beta", "mean": r"\mu", "variance": r"\sigma^2", "normalised": r"\hat{x}",
    "query": "Q", "key": "K", "value": "V", "scores": "S", "scaled": "S'", "masked": "S''", "weights": "A",
    "context": "C", "logits": "z", "probabilities": "p", "targets": "t", "loss": _LOSS_SYMBOL, "token_loss": r"\ell",
    "embedding": "X", "table": "E", "concat": "C", "hidden": "h", "activated": "a",
}  # fmt: skip
"""Symbols of nodes by the last part of their name."""


def related_name(prefix: str, name: str) -> str:
    """Return the name of a node that belongs to another: the gradient of `layer1.w` is `layer1.d_w`.

    >>> related_name("d", "layer1.w"), related_name("new", "w")
    ('layer1.d_w', 'new_w')
    """
    scope, dot, base = name.rpartition(".")
    return f"{scope}{dot}{prefix}_{base}"


def _symbol_of(name: str) -> str:
    """Return the TeX symbol of a node: a matrix is a capital letter, a bias or another name is small.

    >>> _symbol_of("layer1.w_q"), _symbol_of("x"), _symbol_of("forget_gate")
    ('W_{Q}', 'X', '\\\\text{forget gate}')
    """
    scope, _, base = name.rpartition(".")
    base = (scope.rpartition(".")[2] or base) if base == "output" else base
    if base in _TEX_NAMES:
        return _TEX_NAMES[base]
    if match := re.fullmatch(r"residual(\d+)", base):
        return f"R_{match[1]}"
    if match := re.fullmatch(r"([a-z])(?:_(\w{1,2}))?", base):
        letter, index = match.groups()
        is_vector = letter in "bchmv"
        letter, index = (letter, index) if is_vector else (letter.upper(), index and index.upper())
        return f"{letter}_{{{index}}}" if index else letter
    return rf"\text{{{base.replace('_', ' ')}}}"


class GraphBuilder:
    """Graph under construction: nodes with their values, computed as they are added.

    `scope` gives a builder for a part of the graph; all of them share nodes and values. `renamed` gives other nodes
    for some of the given ones, such as updated parameters; `prefix` starts every name of a second pass.
    """

    def __init__(self, given: Mapping[str, np.ndarray], labels: Mapping[str, Sequence[str]] | None = None) -> None:
        self.example = Example("", ("",))
        self.known = dict(given)
        self.labels = dict(labels or {})
        self.nodes: dict[str, GraphNode] = {}
        self.values: dict[str, np.ndarray] = {}
        self.parameters: dict[str, None] = {}
        self.outputs: dict[str, str] = {}
        self.prefix = self.path = self.given_path = ""
        self.renamed: dict[str, str] = {}
        self.listed = True

    @classmethod
    def from_example(cls, example: Example) -> "GraphBuilder":
        """Start the graph of an example: its given matrices, and the labels of its axes."""
        labels = {
            "token": example.tokens,
            "source": example.source_tokens,
            "vocabulary": example.vocabulary,
            **example.labels,
        }
        given = {name: np.asarray(rows, float) for name, rows in example.given_nodes.items()}
        builder = cls(given, {axis: names for axis, names in labels.items() if names})
        builder.example = example
        return builder

    def scope(self, name: str, share: str = "") -> "GraphBuilder":
        """Return the builder of a part of the graph, whose node names start with `name`.

        With `share`, the name of another part, it uses the given matrices of that one.
        """
        return self._view(path=f"{self.path}{name}.", given_path=f"{self.given_path}{share or name}.")

    def second_pass(self, prefix: str, renamed: Mapping[str, str]) -> "GraphBuilder":
        """Return a builder that computes the same again as unlisted nodes, with some given nodes replaced."""
        return self._view(prefix=f"{prefix}.", renamed=dict(renamed), listed=False, outputs={})

    def _view(self, **changes: object) -> "GraphBuilder":
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__ | changes)
        return view

    def has(self, name: str) -> bool:
        """True if a matrix of that name is given in this scope."""
        return f"{self.given_path}{name}" in self.known

    def given(self, name: str, axes: tuple[str, ...] | None = None, description: str = "", trained: bool = True) -> str:
        """Return the node of a given matrix, added at its first use; a vector is one row."""
        full = f"{self.given_path}{name}"
        if full in self.renamed:
            return self.renamed[full]
        if full in self.nodes:
            return full
        if full not in self.known:
            near = did_you_mean(full, [*self.known, *self.nodes])
            raise InvalidInput(f"{full} is not given.", hint=near or f"Give it under [given]: {full} = [[...]].")
        values = self.known[full]
        axes = axes or self._guess_axes(name, values)
        caption = FormulaStep(name, _symbol_of(full), description or "Given.", axes)
        self.nodes[full] = GraphNode(full, caption, symbol=_symbol_of(full))
        self.values[full] = values
        if trained:
            self.parameters[full] = None
        return full

    def given_or_node(self, name: str) -> str:
        """Return a node by its full name, or a given matrix."""
        return f"{self.prefix}{name}" if f"{self.prefix}{name}" in self.nodes else self.given(name)

    def row_labels(self, name: str) -> tuple[str, ...]:
        """Return the labels of a node's rows."""
        rows = len(self.values[name])
        labels = self.labels.get(self.nodes[name].caption.axes[-2], ())
        return tuple(labels) if len(labels) == rows else tuple(map(str, range(rows)))

    def add_one_hot(self, name: str, words: Sequence[str], why: str, axis: str = "token") -> str:
        """Add one-hot rows of words of the vocabulary; a row of "" is zero."""
        vocabulary = self.example.vocabulary
        for word in words:
            if word and word not in vocabulary:
                near = did_you_mean(word, vocabulary)
                raise InvalidInput(f"{word!r} is not in the vocabulary.", hint=near or "Add it to vocabulary = [...].")
        rows = np.asarray([[float(word == known) for known in vocabulary] for word in words])
        return self.add(name, Constant(rows, why, (axis, "vocabulary")))

    def optional(self, *names: str, axes: tuple[str, ...] | None = None, description: str = "") -> tuple[str, ...]:
        """Return the nodes of those matrices that are given, such as biases."""
        return tuple(self.given(name, axes, description) for name in names if self.has(name))

    def _guess_axes(self, name: str, values: np.ndarray) -> tuple[str, str]:
        """Return the axes whose labels fit a given matrix: that of its own name, such as `source`, or any other."""
        axes = ["row", "column"]
        for axis, size in enumerate(values.shape):
            fitting = [known for known, labels in self.labels.items() if len(labels) == size]
            axes[axis] = next(iter(sorted(fitting, key=lambda known: known != name)), axes[axis])
        rows = "bias" if len(values) == 1 and axes[0] == "row" else axes[0]
        return rows, axes[1] if axes[1] != rows else "column"

    def add(
        self, name: str, step: Step, *inputs: str, description: str = "", symbol: str = "",
        axes: tuple[str, ...] | None = None, listed: bool = True,
    ) -> str:  # fmt: skip
        """Add a node computed by `step` from other nodes, and return its full name."""
        full = f"{self.prefix}{self.path}{name}"
        symbol = symbol or _symbol_of(full)
        right = step.formula(*(self.nodes[parent].symbol for parent in inputs))
        axes = axes or step.axes(*(self.nodes[parent].caption.axes for parent in inputs))
        caption = FormulaStep(name, f"{symbol} = {right}" if right else symbol, description or step.sentence, axes)
        return self._insert(GraphNode(full, caption, (Route(step, inputs),), 0, listed and self.listed, symbol))

    def _insert(self, node: GraphNode) -> str:
        """Add a node and compute its values; an error names the node."""
        if node.name in self.nodes:
            raise InvalidInput(f"There are two steps {node.name}.", hint="Give every step its own name.")
        route = node.routes[0]
        sizes = sorted((size for parent in route.inputs for size in self.values[parent].shape), reverse=True)[:2]
        if len(self.nodes) >= _MAX_NODES or math.prod(sizes) > _MAX_CELLS:
            hint = f"At most {_MAX_NODES:,} steps, and {_MAX_CELLS:,} numbers in each, can be calculated."
            raise InvalidInput(f"The example is too large at {node.name}.", hint=hint)
        try:
            with np.errstate(all="ignore"):
                values = route.step.forward(np, *(self.values[parent] for parent in route.inputs))
        except PeasyError as error:
            raise type(error)(f"{node.name}: {error.message}", hint=error.hint) from None
        except ValueError:
            shapes = ", ".join(f"{parent} {'x'.join(map(str, self.values[parent].shape))}" for parent in route.inputs)
            raise InvalidInput(f"{node.name}: the shapes do not fit: {shapes}.") from None
        hidden = np.isneginf(values)  # masked scores, which no other step may make
        if node.listed and not np.all(np.isfinite(values) | (hidden & isinstance(route.step, Mask))):
            message = f"The numbers of {node.name} are not finite."
            raise InvalidInput(message, hint="Use smaller numbers, or an eps above 0.")
        self.nodes[node.name] = node
        self.values[node.name] = values
        return node.name

    def insert_graph(self, graph: Graph, bound: Mapping[str, str]) -> dict[str, str]:
        """Add the nodes of another graph to this scope, and return their names here by their names there.

        `bound` are nodes here that take the place of its inputs; their rows label its axes.
        """
        names, axes = dict(bound), {}
        for inner, axis in ((next(iter(bound)), "query"), (list(bound)[-1], "key")):
            labels = self.row_labels(bound[inner])
            other = f"{self.nodes[bound[inner]].caption.axes[-2]}_{axis}"  # several token lists have several names
            is_free = (
                tuple(self.labels.setdefault(axis, labels)) == labels or self.labels.setdefault(other, labels) != labels
            )
            axes[axis] = axis if is_free else other
        for name, node in graph.nodes.items():
            if name in bound:
                continue
            caption = replace(node.caption, axes=tuple(axes.get(axis, axis) for axis in node.caption.axes))
            if not node.routes and self.has(name):
                names[name] = self.given(name, caption.axes[-2:], caption.description)
            routes = tuple(
                Route(route.step, tuple(names[parent] for parent in route.inputs))
                for route in node.routes
                if all(parent in names for parent in route.inputs)
            )
            if routes:
                names[name] = f"{self.prefix}{self.path}{name}"
                node = replace(node, name=names[name], caption=caption, routes=routes, symbol=_symbol_of(names[name]))
                self._insert(replace(node, listed=node.listed and self.listed))
        return names

    def backward(self, loss: str, wanted: Iterable[str] | None = None) -> dict[str, str]:
        """Add the gradients of all nodes between `wanted` (else all given ones) and the loss; return them by node."""
        wanted = list(self.parameters if wanted is None else wanted)
        depends = set(wanted)  # nodes that depend on any of them
        for name, node in self.nodes.items():
            if any(parent in depends for route in node.routes[:1] for parent in route.inputs):
                depends.add(name)
        pending: dict[str, list[tuple[str, Route]]] = defaultdict(list)
        ones = Constant(np.ones_like(self.values[loss]), "The gradient of the loss with respect to itself is 1.",
                        self.nodes[loss].caption.axes[-2:])  # fmt: skip
        pending[loss].append((loss, Route(ones, ())))
        gradients: dict[str, str] = {}
        for name in reversed(list(self.nodes)):
            if name not in pending or name not in depends:
                continue
            gradients[name] = self._add_gradient(name, pending.pop(name))
            for route in self.nodes[name].routes[:1]:
                shapes = tuple(self.values[parent].shape for parent in route.inputs)
                at = Application(name, route.inputs, gradients[name], shapes)
                for parent, contribution in zip(route.inputs, route.step.gradients(at), strict=True):
                    if contribution is not None:
                        pending[parent].append((name, contribution))
        return gradients

    def _add_gradient(self, name: str, contributions: list[tuple[str, Route]]) -> str:
        """Add the gradient of a node: one contribution, or the sum over all nodes that use it."""
        node = self.nodes[name]
        symbol = rf"\frac{{\partial {_LOSS_SYMBOL}}}{{\partial {node.symbol}}}"
        about = f"The gradient of {name}. "
        own = related_name("d", name)
        axes = node.caption.axes[-2:]
        if len(contributions) > 1 and all(isinstance(route.step, PlaceColumns) for _, route in contributions):
            steps = [route.step for _, route in contributions if isinstance(route.step, PlaceColumns)]
            merged = PlaceColumns(tuple(start for step in steps for start in step.starts), steps[0].width)
            parts = tuple(parent for _, route in contributions for parent in route.inputs)
            contributions = [(name, Route(merged, parts))]
        if len(contributions) == 1:
            ((_, route),) = contributions
            return self.add(own, route.step, *route.inputs, description=about + route.step.sentence, symbol=symbol,
                            axes=axes)  # fmt: skip
        parts_of_sum = []
        for consumer, route in reversed(contributions):
            part = f"{own}_from_{consumer.replace('.', '_')}"
            part += "_again" if part in self.nodes else ""  # one node used twice by the same step
            through = f"The part of the gradient of {name} that comes through {consumer}. {route.step.sentence}"
            tex = rf"{symbol}\big|_{{{self.nodes[consumer].symbol}}}"
            parts_of_sum.append(self.add(part, route.step, *route.inputs, axes=axes, description=through, symbol=tex))
        description = about + "The sum over all nodes that use it."
        return self.add(own, Add(), *parts_of_sum, description=description, symbol=symbol, axes=axes)

    def graph(self) -> Graph:
        """Return the finished graph."""
        return Graph(list(self.nodes.values()))
