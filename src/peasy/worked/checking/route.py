"""Derivations: how each table follows from earlier tables, and the arithmetic of one of its cells as text.

All numbers are computed by the functions of `formula`; this module only says which tables they are applied to.
Unknown cells are NaN, and only cells that depend on them become NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peasy.formula.arrays import mismatch
from peasy.formula.heads import merge, split
from peasy.formula.normalise import NORMALISATIONS, Normalisation
from peasy.formula.scoring import SCORINGS, Additive, Scoring
from peasy.worked.checking.name import caption
from peasy.worked.example import AdditiveScoring, Example
from peasy.worked.number import bracket, show
from peasy.worked.work import head_name, look_table

Array = Any
Say = Callable[[int, int, Sequence[Array]], str]


@dataclass(frozen=True)
class Route:
    """One derivation of a table: `compute` makes it from `parents`; `explain` returns the arithmetic of one cell
    without its result, or "" if the number is only copied."""

    parents: tuple[str, ...]
    compute: Callable[..., Array]
    say: Say


@dataclass(frozen=True)
class Rules:
    """Settings of an example as arguments of the formula."""

    scoring: Scoring
    normalise: Normalisation
    scale: float | None
    may_look: Array | None
    bias: Array | None

    @classmethod
    def of(cls, example: Example) -> "Rules":
        """Read the settings from an example."""
        setting = example.scoring
        scoring: Scoring
        if isinstance(setting, AdditiveScoring):
            scoring = Additive(np.asarray(setting.w), np.asarray(setting.u), np.asarray(setting.v))
        else:
            scoring = SCORINGS[setting]
        return cls(
            scoring=scoring,
            normalise=NORMALISATIONS[example.normalise],
            scale=example.scale,
            may_look=look_table(example),
            bias=None if example.bias is None else np.array(example.bias, dtype=float),
        )

    def factor(self, width: int) -> float:
        """Return the factor that scales the scores."""
        return self.scoring.scale(width) if self.scale is None else self.scale


def routes(example: Example, present: set[str]) -> dict[str, list[Route]]:
    """Return the derivations of every table by name. `present` are the tables that are given or written."""
    rules = Rules.of(example)
    source = "source" if example.source_tokens else "x"
    derivations = _projections(present, source, stated=example.x is not None)
    for head in range(example.heads):
        derivations |= _one_head(rules, head, example.heads)
    last_step = "context"
    if example.heads > 1:
        contexts = tuple(head_name("context", head + 1) for head in range(example.heads))
        derivations["concat"] = [Route(contexts, lambda *heads: merge(np, np.stack(heads)), _say_same_number)]
        last_step = "concat"
    derivations["output"] = [_product(last_step, "w_o")] if "w_o" in present else []
    return derivations


def multiply(left: Array, right: Array, names: tuple[str, str] = ("left", "right")) -> Array:
    """Return left · right with NaN as unknown: zero times NaN is zero, anything else times NaN is NaN."""
    if left.shape[-1] != right.shape[0]:
        raise mismatch(names, left.shape, right.shape)
    unknown = (np.isnan(left) @ (right != 0)) | ((left != 0) @ np.isnan(right))
    return np.where(unknown, np.nan, np.nan_to_num(left) @ np.nan_to_num(right))


def listed(parts: Sequence[Any] | Array, say: Callable[[Any], str] = str) -> str:
    """Format a sum; the middle of a long one is left out.

    >>> listed([1, 2, 3]), listed(range(100))
    ('1 + 2 + 3', '0 + 1 + 2 + … + 99')
    """
    if len(parts) <= 6:
        return " + ".join(map(say, parts))
    return " + ".join([*map(say, parts[:3]), "…", say(parts[-1])])


def _times(pair: tuple[float, float]) -> str:
    return f"{bracket(pair[0])}·{bracket(pair[1])}"


def _product(left: str, right: str) -> Route:
    names = caption(left), caption(right)
    return Route((left, right), lambda a, b: multiply(a, b, names), _say_product)


def _projections(present: set[str], source: str, stated: bool) -> dict[str, list[Route]]:
    """Derivations of queries, keys and values; without projection matrices they are the inputs, if `inputs_given`.

    In notes that show X beside Q, K and V but no matrices, the origin of Q, K and V is unknown.
    """
    made_from = {"query": ("x", "w_q"), "key": (source, "w_k"), "value": (source, "w_v")}
    written_separately = present & {"query", "key", "value", "key_transposed"}
    if not present & {"w_q", "w_k", "w_v"} and (stated or not written_separately):
        return {step: [Route(parents[:1], lambda x: x, _say_same_number)] for step, parents in made_from.items()}
    return {step: [_product(*parents)] if parents[1] in present else [] for step, parents in made_from.items()}


def _one_head(rules: Rules, head: int, heads: int) -> dict[str, list[Route]]:
    def node(step: str) -> str:
        return head_name(step, head + 1 if heads > 1 else 0)

    derivations: dict[str, list[Route]] = {}
    if heads > 1:
        for step, others in (("query", ()), ("key", ("query",)), ("value", ("query", "key"))):
            derivations[node(step)] = [Route((step, *others), _part_of(head, heads), _say_same_number)]
    derivations[node("key_transposed")] = [Route((node("key"),), np.transpose, _say_turned)]
    derivations[node("scores")] = [
        Route((node("query"), node("key")), lambda q, k: _score(rules, q, k), _say_scores(rules)),
        Route(
            (node("query"), node("key_transposed")), lambda q, k: _score(rules, q, k.T), _say_scores(rules, turned=True)
        ),
    ]
    derivations[node("scaled")] = [  # query and key have the same width
        Route((node("scores"), node(side)), lambda s, of: s * rules.factor(of.shape[-1]), _say_scaled(rules))
        for side in ("query", "key")
    ]
    if rules.scoring.scale(4) == 1 or rules.scale is not None:  # the width does not matter
        derivations[node("scaled")] += [Route((node("scores"),), lambda s: s * rules.factor(1), _say_scaled(rules))]
    derivations[node("masked")] = [Route((node("scaled"),), lambda s: mask_scores(rules, s), _say_masked(rules))]
    derivations[node("weights")] = [
        Route((node("masked"),), lambda m: rules.normalise.weigh(np, m), _say_weights(rules))
    ]
    if rules.normalise.name == "softmax":
        derivations[node("powers")] = [Route((node("masked"),), np.exp, lambda i, j, of: f"e^{bracket(of[0][i, j])}")]
        derivations[node("sums")] = [Route((node("powers"),), lambda p: p.sum(axis=-1, keepdims=True), _say_sum)]
        from_powers = Route((node("powers"), node("sums")), lambda p, s: p / s, _say_quotient)
        derivations[node("weights")] += [from_powers]
    derivations[node("context")] = [_product(node("weights"), node("value"))]
    return derivations


def _part_of(head: int, heads: int) -> Callable[..., Array]:
    """Return a function that selects the columns of one head; query heads may share a KV head (GQA)."""

    def select(whole: Array, query: Array | None = None, key: Array | None = None) -> Array:
        if query is None:
            return split(np, whole, heads)[head]
        reference = whole if key is None else key
        kv_heads = max(reference.shape[-1] * heads // query.shape[-1], 1)
        return split(np, whole, kv_heads)[head * kv_heads // heads]

    return select


def _score(rules: Rules, query: Array, key: Array) -> Array:
    if query.shape[-1] != key.shape[-1] and not isinstance(rules.scoring, Additive):
        raise mismatch(("Q", "K^T"), query.shape, key.T.shape)
    return rules.scoring.score(np, query, key)


def mask_scores(rules: Rules, scaled: Array) -> Array:
    """Add the bias M, and set masked scores to minus infinity."""
    biased = scaled if rules.bias is None else scaled + np.where(np.isinf(rules.bias), 0, rules.bias)
    return biased if rules.may_look is None else np.where(rules.may_look, biased, -np.inf)


def _say_product(i: int, j: int, of: Sequence[Array]) -> str:
    pairs = np.stack([of[0][i], of[1][:, j]], axis=1)
    return listed(pairs if len(pairs) <= 6 else pairs[pairs[:, 0] != 0], _times)


def _say_same_number(i: int, j: int, of: Sequence[Array]) -> str:
    return ""


def _say_turned(i: int, j: int, of: Sequence[Array]) -> str:
    return f"row {j + 1}, column {i + 1} of K"


def _say_scores(rules: Rules, turned: bool = False) -> Say:
    def explain(i: int, j: int, of: Sequence[Array]) -> str:
        query, key = of[0][i], (of[1][:, j] if turned else of[1][j])
        if isinstance(rules.scoring, Additive):
            return "v · tanh(q W + k U)"
        dot = listed(np.stack([query, key], axis=1), _times)
        if rules.scoring.name != "cosine":
            return dot
        lengths = [show(float(np.linalg.norm(vector))) for vector in (query, key)]
        return f"({dot}) / ({lengths[0]} · {lengths[1]})"

    return explain


def _say_scaled(rules: Rules) -> Say:
    def explain(i: int, j: int, of: Sequence[Array]) -> str:
        if rules.scale is None and rules.scoring.name == "scaled-dot":
            return f"{show(of[0][i, j])} / √{of[1].shape[-1]}"
        return f"{show(of[0][i, j])} · {bracket(rules.factor(1))}"

    return explain


def _say_masked(rules: Rules) -> Say:
    def explain(i: int, j: int, of: Sequence[Array]) -> str:
        if rules.may_look is not None and not rules.may_look[i, j]:
            return "this key is masked for this query"
        return show(of[0][i, j]) if rules.bias is None else f"{show(of[0][i, j])} + {bracket(rules.bias[i, j])}"

    return explain


def _say_weights(rules: Rules) -> Say:
    def explain(i: int, j: int, of: Sequence[Array]) -> str:
        row = of[0][i]
        if row[j] == -np.inf:
            return "a masked key has weight 0"
        if rules.normalise.name == "none":
            return f"the score {show(row[j])}, unchanged"
        power = "e^" if rules.normalise.name == "softmax" else ""
        return f"{power}{bracket(row[j])} / ({listed(row[row != -np.inf], lambda score: power + bracket(score))})"

    return explain


def _say_sum(i: int, j: int, of: Sequence[Array]) -> str:
    return listed(of[0][i], bracket)


def _say_quotient(i: int, j: int, of: Sequence[Array]) -> str:
    return f"{show(of[0][i, j])} / {show(of[1][i, 0])}"
