"""Solver for worked examples: computes every step that follows from the given matrices, with labels."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.formula import Additive
from peasy.formula.arrays import project, shape_mismatch
from peasy.formula.attention import attention_captions, combine_masks, lookup
from peasy.formula.axes import D_CONCAT, D_KEY, D_MODEL, D_VALUE, KEY, QUERY
from peasy.formula.heads import (
    CONCAT,
    OUTPUT,
    SOURCE,
    W_K,
    W_O,
    W_Q,
    W_V,
    X,
    attend_multi_head,
    merge_heads,
    projection_captions,
)
from peasy.formula.normalise import NORMALISATIONS
from peasy.formula.scoring import SCORINGS, Scoring
from peasy.formula.step import FormulaStep
from peasy.worked.example import AdditiveScoringConfig, Example, MatrixRows

MAX_SCORES = 1_000_000
"""Maximum number of scores of an example (1,000 queries by 1,000 keys)."""

STEP_ALIASES = {"q": "query", "k": "key", "v": "value", "x_source": "source", "z": "context", "qk^t": "scores"}
"""Aliases of step names as written on paper; case does not matter."""


@dataclass(frozen=True)
class WorkedStep:
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
        """Step name without the head prefix."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class WorkedExample:
    """Example with all its steps. `attention_mask[query, key]` is True where the query attends; None = no mask."""

    example: Example
    steps: tuple[WorkedStep, ...]
    attention_mask: np.ndarray | None = field(repr=False, compare=False)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Labels of the queries."""
        return self.example.tokens

    @property
    def keys(self) -> tuple[str, ...]:
        """Labels of the keys."""
        return self.example.keys

    @property
    def names(self) -> tuple[str, ...]:
        """Step names in order."""
        return tuple(step.name for step in self.steps)

    def step(self, name: str) -> WorkedStep:
        """Return the step of that name; aliases such as `Q`, `K`, `V` are accepted."""
        wanted = canonical_step_name(name)
        for step in self.steps:
            if step.name == wanted:
                return step
        hint = did_you_mean(wanted, self.names) or ""
        raise NotFound(
            f'There is no step "{name}" in this example.', hint=f"{hint} Steps: {', '.join(self.names)}.".strip()
        )

    def find_values(self, name: str, head: int = 0) -> np.ndarray | None:
        """Return the values of a step (of one head if there are several), or None if there is no such step."""
        wanted = {head_name(name, head), name}
        return next((step.values for step in self.steps if step.name in wanted), None)

    @property
    def heads(self) -> tuple[int, ...]:
        """Head numbers from 1; (0,) for a single head."""
        return tuple(sorted({step.head for step in self.steps} - {0})) or (0,)


def solve(example: Example) -> WorkedExample:
    """Compute every step that follows from what `example` gives.

    >>> from peasy.worked.example import load_example
    >>> solve(load_example("i-love-ai")).step("weights").values[0].round(4)
    array([0.1978, 0.4011, 0.4011])
    """
    check_size(example)
    with np.errstate(all="ignore"):
        numbered = tuple(_steps_from_weights(example) if example.weights is not None else _steps_from_inputs(example))
    if not numbered:
        raise InvalidInput(
            "The example gives nothing to compute.", hint="Give x, or q and k, or weights (and v for the context)."
        )
    steps = tuple(_label_steps(example, numbered))
    names = [step.base for step in steps]
    if example.last_step and example.last_step not in names:
        raise InvalidInput(
            f'last_step = "{example.last_step}" is not one of the steps.', hint=f"Steps: {', '.join(names)}."
        )
    last = len(names) - names[::-1].index(example.last_step) if example.last_step else len(names)
    return WorkedExample(example, steps[:last], build_attention_mask(example))


def canonical_step_name(name: str) -> str:
    """Return the step name for a table name as written on paper.

    >>> canonical_step_name("W_Q"), canonical_step_name("Q"), canonical_step_name("head-2.V")
    ('w_q', 'query', 'head-2.value')
    """
    head, dot, base = name.strip().lower().rpartition(".")
    return head + dot + STEP_ALIASES.get(base, base)


def head_name(name: str, head: int) -> str:
    """Return the name of a step within a head: `head-1.scores`; head 0 gives no prefix."""
    return f"head-{head}.{name}" if head else name


def check_size(example: Example) -> None:
    """Raise if the example has more than MAX_SCORES scores, before anything is computed."""
    scores = len(example.tokens) * len(example.keys) * example.heads
    if scores > MAX_SCORES:
        raise InvalidInput(
            f"{len(example.tokens):,} queries on {len(example.keys):,} keys make {scores:,} scores; "
            f"the maximum is {MAX_SCORES:,}.",
            hint="Use a shorter example: up to 1,000 tokens with one head.",
        )


def build_attention_mask(example: Example) -> np.ndarray | None:
    """Return the attention mask `[query, key]` from mask, bias, causal and window; None = no mask."""
    query, key = np.empty((len(example.tokens), 1)), np.empty((len(example.keys), 1))
    mask, bias = _mask_array(example.mask), _bias_array(example)
    allowed = combine_masks(np, query, key, mask, bias, example.causal, example.window)
    return None if allowed is None else np.broadcast_to(allowed, (len(query), len(key)))


StepArrays = Iterator[tuple[FormulaStep, np.ndarray]]
OptionalArray = np.ndarray | None


def _steps_from_weights(example: Example) -> StepArrays:
    """Steps of an example with given weights: only the weighted sum of the values remains."""
    assert example.weights is not None
    weights, value = _array(example.weights), _optional_array(example.v)
    if example.heads > 1:
        raise InvalidInput("Given weights belong to one head.", hint="Leave heads out, or give x and its matrices.")
    mask = build_attention_mask(example)
    if mask is not None and np.any(weights[~mask] != 0):
        raise InvalidInput("weights has a non-zero number for a masked key.", hint="Masked keys have weight 0.")
    has_mask = mask is not None or example.bias is not None
    step_captions = {
        step.name: step
        for step in attention_captions(_build_scoring(example), NORMALISATIONS[example.normalise], has_mask=has_mask)
    }
    if value is not None:
        yield step_captions["value"], value
    yield step_captions["weights"], weights
    if value is not None:
        yield step_captions["context"], project(weights, value, ("weights", "v"))


def _steps_from_inputs(example: Example) -> StepArrays:
    x, source = _optional_array(example.rows), _optional_array(example.source_x)
    key_inputs = source if example.source_tokens else x
    learned = not (example.w_q is example.w_k is example.w_v is None)
    query = _project(example.q, x, example.w_q, ("x", "w_q"), learned)
    key = _project(example.k, key_inputs, example.w_k, ("source_x" if source is not None else "x", "w_k"), learned)
    value = _project(example.v, key_inputs, example.w_v, ("source_x" if source is not None else "x", "w_v"), learned)
    for step, array in ((X, x), (SOURCE, source)):
        if array is not None:
            yield step, array
    for step, name in ((W_Q, "w_q"), (W_K, "w_k"), (W_V, "w_v")):
        if getattr(example, name) is not None:
            yield step, _array(getattr(example, name))
    yield from _attention_steps(example, query, key, value, learned)


def _attention_steps(
    example: Example, query: OptionalArray, key: OptionalArray, value: OptionalArray, has_projections: bool
) -> StepArrays:
    """Steps of the formula as far as query, key and value are available."""
    available = [array for array in (query, key) if array is not None]
    if not available and value is None:
        return
    width = (available[0] if available or value is None else value).shape[-1]
    query_or_zeros = np.zeros((len(example.tokens), width)) if query is None else query
    key_or_zeros = np.zeros((len(example.keys), width)) if key is None else key
    value_or_zeros = np.zeros((len(example.keys), key_or_zeros.shape[-1])) if value is None else value
    steps = attend_multi_head(
        np, query_or_zeros, key_or_zeros, value_or_zeros, example.heads, _attention_options(example, query_or_zeros)
    )
    given_names = {name for name, array in {"query": example.q, "key": example.k, "value": example.v}.items() if array}
    tex = projection_captions(example.source_x is not None, has_projections).items()
    steps = steps.with_captions({name: change for name, change in tex if name not in given_names})
    present = {"query": query is not None, "key": key is not None, "value": value is not None}
    scored = present["query"] and present["key"]
    present |= dict.fromkeys(("scores", "scaled", "weights"), scored)
    present |= {"masked": scored and _is_masked(example), "context": scored and present["value"]}
    yield from ((step, array) for step, array in steps.step_arrays() if present[step.name])
    if present["context"]:
        yield from _output_steps(example, steps.context, steps.step("context").tex)


def _output_steps(example: Example, context: np.ndarray, tex: str) -> StepArrays:
    """Concatenated heads and the output projection."""
    if example.heads > 1:
        context, tex = merge_heads(np, context), CONCAT.tex
        yield CONCAT, context
    if example.w_o is not None:
        w_o = _array(example.w_o)
        yield W_O, w_o
        output = FormulaStep(OUTPUT.name, OUTPUT.tex % tex, OUTPUT.description, OUTPUT.axes)
        yield output, project(context, w_o, ("concat" if example.heads > 1 else "context", "w_o"))


def _project(
    given: MatrixRows | None,
    inputs: OptionalArray,
    weights: MatrixRows | None,
    names: tuple[str, str],
    has_projections: bool,
) -> OptionalArray:
    """Query, key or value: given, or projected, or the inputs unchanged if no projection is given."""
    if given is not None:
        return _array(given)
    if inputs is None or (weights is None and has_projections):
        return None
    return inputs if weights is None else project(inputs, _array(weights), names)


def _attention_options(example: Example, query: np.ndarray) -> dict:
    scoring = _build_scoring(example)
    if isinstance(scoring, Additive):
        d_head = query.shape[-1] // example.heads
        for name, weights in (("w", scoring.w), ("u", scoring.u)):
            if len(weights) != d_head:
                raise shape_mismatch(("query" if name == "w" else "key", name), (len(query), d_head), weights.shape)
    return {
        "scoring": scoring, "normalise": example.normalise, "scale": example.scale, "causal": example.causal,
        "window": example.window, "mask": _mask_array(example.mask), "bias": _bias_array(example),
    }  # fmt: skip


def _build_scoring(example: Example) -> Scoring:
    if isinstance(example.scoring, AdditiveScoringConfig):
        return Additive(_array(example.scoring.w), _array(example.scoring.u), np.asarray(example.scoring.v, float))
    return lookup(example.scoring, SCORINGS, "scoring")


def _is_masked(example: Example) -> bool:
    mask = build_attention_mask(example)
    return example.bias is not None or (mask is not None and not bool(mask.all()))


def _array(matrix: MatrixRows) -> np.ndarray:
    return np.asarray(matrix, dtype=float)


def _optional_array(matrix: MatrixRows | None) -> np.ndarray | None:
    return None if matrix is None else _array(matrix)


def _mask_array(mask: tuple[tuple[bool, ...], ...] | None) -> np.ndarray | None:
    return None if mask is None else np.asarray(mask, dtype=bool)


def _bias_array(example: Example) -> np.ndarray | None:
    return None if example.bias is None else np.asarray(example.bias, dtype=float)


def _label_steps(example: Example, step_arrays: tuple[tuple[FormulaStep, np.ndarray], ...]) -> Iterator[WorkedStep]:
    """Yield labelled steps; per-head steps are grouped by head, as on paper."""
    per_head = [index for index, (_, array) in enumerate(step_arrays) if array.ndim == 3]
    first, last = (per_head[0], per_head[-1] + 1) if per_head else (len(step_arrays), len(step_arrays))
    shared_keys = _num_kv_heads(example, {step.name: array for step, array in step_arrays})
    for step, array in step_arrays[:first]:
        yield _labelled_step(example, step, array)
    for head in range(example.heads if per_head else 0):
        for step, array in step_arrays[first:last]:
            width = array.shape[-1]
            key_head = head if step.name == "query" or not shared_keys else head * shared_keys // example.heads
            yield _labelled_step(example, step, array[head], head + 1, key_head * width)
    for step, array in step_arrays[last:]:
        yield _labelled_step(example, step, array)


def _num_kv_heads(example: Example, arrays: dict[str, np.ndarray]) -> int:
    """Number of KV heads in grouped-query attention; 0 if unknown."""
    width = len(example.w_k[0]) if example.w_k else len(example.k[0]) if example.k else 0
    key = arrays.get("key")
    return width // key.shape[-1] if width and key is not None and key.ndim == 3 else 0


def _labelled_step(
    example: Example, step: FormulaStep, values: np.ndarray, head: int = 0, start: int = 0
) -> WorkedStep:
    if not np.all(np.isfinite(values) | (np.isneginf(values) & (step.name == "masked"))):
        raise InvalidInput(f"The numbers of {step.name} overflow.", hint="Use smaller numbers.")
    row_axis, column_axis = step.axes[-2:]
    rows = _labels(example, step.name, row_axis, values.shape[0], 0)
    columns = _labels(example, step.name, column_axis, values.shape[1], start)
    return WorkedStep(
        head_name(step.name, head), step.tex, step.description, rows, columns, row_axis, column_axis, values, head
    )


def _labels(example: Example, name: str, axis: str, size: int, start: int) -> tuple[str, ...]:
    """Labels of an axis: tokens, feature names as long as no projection mixed them, else numbers from 0."""
    if axis == QUERY:
        return example.tokens
    if axis == KEY:
        return example.keys
    pure = example.w_q is example.w_k is example.w_v is None and example.q is example.k is example.v is None
    of_inputs = name in ("x", "source") or (axis == D_MODEL and name in ("w_q", "w_k", "w_v"))
    unmixed = pure and axis in (D_KEY, D_VALUE, D_CONCAT) and name != "output" and name != "w_o"
    if example.features and (of_inputs or unmixed):
        return example.features[start : start + size]
    return tuple(str(start + index) for index in range(size))
