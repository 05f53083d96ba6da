"""Recurrent steps and additive attention (2015) on paper, every gate a node.

A gate has the matrices `w_*` (for the input), `u_*` (for the state) and the biases `b_*`, `c_*`, as far as given.
"""

from typing import Literal

from peasy.formula.activations import FUNCTIONS
from peasy.worked.blocks import SOFTMAX, GraphBlock
from peasy.worked.builder import GraphBuilder
from peasy.worked.operations import Add, Apply, Multiply, Project, TransposeMatrix

_SIGMOID, _TANH = Apply(FUNCTIONS["sigmoid"]), Apply(FUNCTIONS["tanh"])


def _product(g: GraphBuilder, x: str, kind: Literal["input", "state"], gate: str) -> str:
    """Add the part of a gate that comes from the input or from the state."""
    matrix, bias = ("w", "b") if kind == "input" else ("u", "c")
    weights = g.given(f"{matrix}_{gate}", ("d_input" if kind == "input" else "d_state", "d_hidden"))
    inputs = (x, weights, *g.optional(f"{bias}_{gate}", axes=("bias", "d_hidden")))
    return g.add(f"{gate}_{kind}", Project(f"{kind} · {matrix}_{gate}"), *inputs)


def _gate(g: GraphBuilder, x: str, state: str, gate: str, name: str, step: Apply, about: str) -> str:
    """Add a gate: activation of (x W + h U + b)."""
    total = g.add(f"{gate}_sum", Add(), _product(g, x, "input", gate), _product(g, state, "state", gate))
    return g.add(name, step, total, description=about, symbol=gate)


class RnnStep(GraphBlock):
    """One step of a plain recurrent network: h' = tanh(x W_h + h U_h + b_h); inputs are x and h."""

    def build(self, g: GraphBuilder, x: str, h: str) -> str:
        """Add the sums and state."""
        return _gate(g, x, h, "h", "state", _TANH, "The new state, from the input and the state before.")


class GruStep(GraphBlock):
    """One step of a GRU: reset r, update z, candidate n, h' = (1 - z) n + z h; inputs are x and h.

    The reset gate multiplies the state after its product with U_n, or, as in the paper of 2014, before.
    """

    reset: Literal["after", "before"] = "after"

    def build(self, g: GraphBuilder, x: str, h: str) -> str:
        """Add gates, candidate and state."""
        r = _gate(g, x, h, "r", "reset_gate", _SIGMOID, "How much of the old state the candidate sees.")
        z = _gate(g, x, h, "z", "update_gate", _SIGMOID, "How much of the old state is kept.")
        if self.reset == "after":
            seen = g.add("reset_state", Multiply(), r, _product(g, h, "state", "n"))
        else:
            seen = _product(g, g.add("reset_state", Multiply(), r, h), "state", "n")
        total = g.add("n_sum", Add(), _product(g, x, "input", "n"), seen)
        candidate = g.add("candidate", _TANH, total, symbol="n", description="The proposed new state.")
        fresh = g.add("complement", Apply(FUNCTIONS["complement"]), z, symbol="1 - z")
        new = g.add("new_part", Multiply(), fresh, candidate)
        return g.add("state", Add(), new, g.add("kept_part", Multiply(), z, h), symbol="h'")


class LstmStep(GraphBlock):
    """One step of an LSTM: input, forget and output gate, candidate, cell, state; inputs are x, h and the cell c."""

    def build(self, g: GraphBuilder, x: str, h: str, c: str) -> str:
        """Add gates, candidate, cell and state."""
        i = _gate(g, x, h, "i", "input_gate", _SIGMOID, "How much of the candidate is written to the cell.")
        f = _gate(g, x, h, "f", "forget_gate", _SIGMOID, "How much of the old cell is kept.")
        candidate = _gate(g, x, h, "g", "candidate", _TANH, "The proposed content of the cell.")
        o = _gate(g, x, h, "o", "output_gate", _SIGMOID, "How much of the cell is shown.")
        kept, written = g.add("kept", Multiply(), f, c), g.add("written", Multiply(), i, candidate)
        cell = g.add("cell", Add(), kept, written, symbol="c'", description="The new cell: kept plus written.")
        shown = g.add("cell_tanh", _TANH, cell)
        return g.add("state", Multiply(), o, shown, symbol="h'", description="The new state.")


class AdditiveAttentionBlock(GraphBlock):
    """Additive attention (2015): scores v · tanh(q W + k U) of one query; inputs are query and keys (also values)."""

    def build(self, g: GraphBuilder, query: str, keys: str) -> str:
        """Add the projections, their tanh, scores, weights and context."""
        query_axes, key_axes = (g.nodes[name].caption.axes for name in (query, keys))
        asked = g.add("projected_query", Project("q · W"), query, g.given("w", (query_axes[-1], "d_hidden")))
        offered = g.add("projected_keys", Project("k · U"), keys, g.given("u", (key_axes[-1], "d_hidden")))
        total = g.add("added", Add(), offered, asked, description="The projected query is added to each key.")
        activated = g.add("activated", _TANH, total)
        v = g.given("v", ("bias", "d_hidden"), "The vector that makes one score of each row.")
        column = g.add("energies", Project("tanh · v", transposed="right"), activated, v, symbol="e")
        scores = g.add("scores", TransposeMatrix("the energies"), column)
        weights = g.add("weights", SOFTMAX, scores, description="Softmax: the share of each key.")
        return g.add("context", Project("weights · keys"), weights, keys, description="The weighted sum of the keys.")
