"""Derivations: how each table follows from earlier tables, and the arithmetic of one of its cells as text.

All numbers are computed by the functions of `formula`; this module only states which tables they are applied to.
Unknown cells are NaN, and only cells that depend on them become NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from peasy.formula.arrays import shape_mismatch
from peasy.formula.heads import merge_heads, split_heads
from peasy.formula.scoring import Additive
from peasy.worked.checking.step_aliases import table_caption
from peasy.worked.example import Example
from peasy.worked.label import format_number, format_operand
from peasy.worked.solver import FormulaSettings, head_name

Array = np.ndarray
_ExplainCell = Callable[[int, int, Sequence[Array]], str]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Derivation:
    """One derivation of a table: `compute` makes it from `parents`; `explain` returns the arithmetic of one cell
    without its result, or "" if the number is only copied."""

    parents: tuple[str, ...]
    compute: Callable[..., Array]
    explain: _ExplainCell


def build_derivations(example: Example, rules: FormulaSettings, present: set[str]) -> dict[str, list[Derivation]]:
    """Return the derivations of every table by name. `present` are the tables that are given or written."""
    source = "source" if example.source_tokens else "x"
    derivations = _projections(present, source, inputs_given=example.x is not None)
    for head in range(example.heads):
        derivations |= _head_derivations(rules, head, example.heads)
    last_step = "context"
    if example.heads > 1:
        contexts = tuple(head_name("context", head + 1) for head in range(example.heads))
        derivations["concat"] = [Derivation(contexts, lambda *heads: merge_heads(np, np.stack(heads)), _explain_copy)]
        last_step = "concat"
    derivations["output"] = [_matrix_product(last_step, "w_o")] if "w_o" in present else []
    return derivations


def _multiply_with_unknowns(left: Array, right: Array, names: tuple[str, str] = ("left", "right")) -> Array:
    """Return left · right with NaN as unknown: zero times NaN is zero, anything else times NaN is NaN."""
    if left.shape[-1] != right.shape[0]:
        raise shape_mismatch(names, left.shape, right.shape)
    unknown = (np.isnan(left) @ (right != 0)) | ((left != 0) @ np.isnan(right))
    return np.where(unknown, np.nan, np.nan_to_num(left) @ np.nan_to_num(right))


def format_sum(parts: Sequence[_T] | Array, format_term: Callable[[_T], str] = str) -> str:
    """Format a sum; the middle of a long one is left out.

    >>> format_sum([1, 2, 3]), format_sum(range(100))
    ('1 + 2 + 3', '0 + 1 + 2 + … + 99')
    """
    if len(parts) <= 6:
        return " + ".join(map(format_term, parts))
    return " + ".join([*map(format_term, parts[:3]), "…", format_term(parts[-1])])


def _format_product(pair: tuple[float, float]) -> str:
    return f"{format_operand(pair[0])}·{format_operand(pair[1])}"


def _matrix_product(left: str, right: str) -> Derivation:
    names = table_caption(left), table_caption(right)
    return Derivation((left, right), lambda a, b: _multiply_with_unknowns(a, b, names), _explain_product)


def _projections(present: set[str], source: str, inputs_given: bool) -> dict[str, list[Derivation]]:
    """Derivations of queries, keys and values; without projection matrices they are the inputs, if `inputs_given`.

    In notes that show X beside Q, K and V but no matrices, the origin of Q, K and V is unknown.
    """
    made_from = {"query": ("x", "w_q"), "key": (source, "w_k"), "value": (source, "w_v")}
    written_separately = present & {"query", "key", "value", "key_transposed"}
    if not present & {"w_q", "w_k", "w_v"} and (inputs_given or not written_separately):
        return {step: [Derivation(parents[:1], lambda x: x, _explain_copy)] for step, parents in made_from.items()}
    return {step: [_matrix_product(*parents)] if parents[1] in present else [] for step, parents in made_from.items()}


def _head_derivations(rules: FormulaSettings, head: int, heads: int) -> dict[str, list[Derivation]]:
    def node(step: str) -> str:
        return head_name(step, head + 1 if heads > 1 else 0)

    derivations: dict[str, list[Derivation]] = {}

    def add(step: str, parents: Sequence[str], compute: Callable[..., Array], explain: _ExplainCell) -> None:
        nodes = tuple(map(node, parents))
        derivations.setdefault(node(step), []).append(Derivation(nodes, compute, explain))

    if heads > 1:
        for step, others in (("query", ()), ("key", ("query",)), ("value", ("query", "key"))):
            derivations[node(step)] = [Derivation((step, *others), _head_columns(head, heads), _explain_copy)]
    add("key_transposed", ["key"], np.transpose, lambda i, j, of: f"row {j + 1}, column {i + 1} of K")
    add("scores", ["query", "key"], lambda q, k: _score(rules, q, k), partial(_explain_scores, rules))
    transposed = partial(_explain_scores, rules, transposed=True)
    add("scores", ["query", "key_transposed"], lambda q, k: _score(rules, q, k.T), transposed)
    explain_scaled = partial(_explain_scaled, rules)
    for side in ("query", "key"):  # both have the same width
        add("scaled", ["scores", side], lambda s, of: s * rules.scale_factor(of.shape[-1]), explain_scaled)
    if rules.scoring.scale(4) == 1 or rules.scale is not None:  # the width does not matter
        add("scaled", ["scores"], lambda s: s * rules.scale_factor(1), explain_scaled)
    add("masked", ["scaled"], lambda s: mask_scores(rules, s), partial(_explain_masked, rules))
    add("weights", ["masked"], lambda m: rules.normalise.apply(np, m), partial(_explain_weights, rules))
    if rules.normalise.name == "softmax":
        add("powers", ["masked"], np.exp, lambda i, j, of: f"e^{format_operand(of[0][i, j])}")
        row_sums = partial(np.sum, axis=-1, keepdims=True)
        add("sums", ["powers"], row_sums, lambda i, j, of: format_sum(of[0][i], format_operand))
        add("weights", ["powers", "sums"], np.divide, _explain_quotient)
    derivations[node("context")] = [_matrix_product(node("weights"), node("value"))]
    return derivations


def _head_columns(head: int, heads: int) -> Callable[..., Array]:
    """Return a function that selects the columns of one head; query heads may share a KV head (GQA)."""

    def select(whole: Array, query: Array | None = None, key: Array | None = None) -> Array:
        if query is None:
            return np.asarray(split_heads(np, whole, heads)[head])
        reference = whole if key is None else key
        kv_heads = max(reference.shape[-1] * heads // query.shape[-1], 1)
        return np.asarray(split_heads(np, whole, kv_heads)[head * kv_heads // heads])

    return select


def _score(rules: FormulaSettings, query: Array, key: Array) -> Array:
    if query.shape[-1] != key.shape[-1] and not isinstance(rules.scoring, Additive):
        raise shape_mismatch(("Q", "K^T"), query.shape, key.T.shape)
    return np.asarray(rules.scoring.score(np, query, key))


def mask_scores(rules: FormulaSettings, scaled: Array) -> Array:
    """Add the bias M, and set masked scores to minus infinity."""
    biased = scaled if rules.bias is None else scaled + np.where(np.isinf(rules.bias), 0, rules.bias)
    return biased if rules.attention_mask is None else np.where(rules.attention_mask, biased, -np.inf)


def _explain_product(i: int, j: int, of: Sequence[Array]) -> str:
    pairs = np.stack([of[0][i], of[1][:, j]], axis=1)
    return format_sum(pairs if len(pairs) <= 6 else pairs[pairs[:, 0] != 0], _format_product)


def _explain_quotient(i: int, j: int, of: Sequence[Array]) -> str:
    return f"{format_number(of[0][i, j])} / {format_number(of[1][i, 0])}"


def _explain_copy(i: int, j: int, of: Sequence[Array]) -> str:
    return ""


def _explain_scores(rules: FormulaSettings, i: int, j: int, of: Sequence[Array], transposed: bool = False) -> str:
    query, key = of[0][i], (of[1][:, j] if transposed else of[1][j])
    if isinstance(rules.scoring, Additive):
        return "v · tanh(q W + k U)"
    dot = format_sum(np.stack([query, key], axis=1), _format_product)
    if rules.scoring.name != "cosine":
        return dot
    lengths = [format_number(float(np.linalg.norm(vector))) for vector in (query, key)]
    return f"({dot}) / ({lengths[0]} · {lengths[1]})"


def _explain_scaled(rules: FormulaSettings, i: int, j: int, of: Sequence[Array]) -> str:
    if rules.scale is None and rules.scoring.name == "scaled-dot":
        return f"{format_number(of[0][i, j])} / √{of[1].shape[-1]}"
    return f"{format_number(of[0][i, j])} · {format_operand(rules.scale_factor(1))}"


def _explain_masked(rules: FormulaSettings, i: int, j: int, of: Sequence[Array]) -> str:
    if rules.attention_mask is not None and not rules.attention_mask[i, j]:
        return "this key is masked for this query"
    bias = "" if rules.bias is None else f" + {format_operand(rules.bias[i, j])}"
    return format_number(of[0][i, j]) + bias


def _explain_weights(rules: FormulaSettings, i: int, j: int, of: Sequence[Array]) -> str:
    row = of[0][i]
    if row[j] == -np.inf:
        return "a masked key has weight 0"
    if rules.normalise.name == "none":
        return f"the score {format_number(row[j])}, unchanged"
    power = "e^" if rules.normalise.name == "softmax" else ""
    total = format_sum(row[row != -np.inf], lambda score: power + format_operand(score))
    return f"{power}{format_operand(row[j])} / ({total})"
