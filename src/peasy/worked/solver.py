"""Solver for worked examples: computes every step that follows from the given matrices, with labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.formula import Additive
from peasy.formula.arrays import project, shape_mismatch
from peasy.formula.attention import AttentionOptions, attention_captions
from peasy.formula.heads import SOURCE, W_K, W_O, W_Q, W_V, X, attend_multi_head, output_steps, projection_captions
from peasy.formula.masks import combine_masks
from peasy.formula.normalise import NORMALISATIONS, Normalisation
from peasy.formula.scoring import SCORINGS, Scoring
from peasy.formula.step import D_CONCAT, D_KEY, D_MODEL, D_VALUE, KEY, QUERY, FormulaStep
from peasy.worked.example import AdditiveScoringConfig, Example

_MAX_SCORES = 1_000_000
"""Maximum number of scores of an example (1,000 queries by 1,000 keys)."""

_STEP_ALIASES = {"q": "query", "k": "key", "v": "value", "x_source": "source", "z": "context", "qk^t": "scores"}
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

    @property
    def rows_or_masked(self) -> list[list[float | None]]:
        """Values as lists; None for a masked score."""
        return [[None if value == -np.inf else value for value in row] for row in self.values.tolist()]


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
        head, dot, base = name.strip().lower().rpartition(".")
        wanted = head + dot + _STEP_ALIASES.get(base, base)
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
    settings = FormulaSettings.from_example(example)
    with np.errstate(all="ignore"):
        compute = _steps_from_inputs if example.weights is None else _steps_from_weights
        numbered = tuple(compute(example, settings))
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
    return WorkedExample(example, steps[:last], settings.attention_mask)


def head_name(name: str, head: int) -> str:
    """Return the name of a step within a head: `head-1.scores`; head 0 gives no prefix."""
    return f"head-{head}.{name}" if head else name


def check_size(example: Example) -> None:
    """Raise if the example has more than _MAX_SCORES scores, before anything is computed."""
    scores = len(example.tokens) * len(example.keys) * example.heads
    if scores > _MAX_SCORES:
        raise InvalidInput(
            f"{len(example.tokens):,} queries on {len(example.keys):,} keys make {scores:,} scores; "
            f"the maximum is {_MAX_SCORES:,}.",
            hint="Use a shorter example: up to 1,000 tokens with one head.",
        )


@dataclass(frozen=True)
class FormulaSettings:
    """Settings of an example as arguments of the formula; `attention_mask` combines mask, bias, causal and window."""

    scoring: Scoring
    normalise: Normalisation
    scale: float | None
    attention_mask: np.ndarray | None
    bias: np.ndarray | None

    @classmethod
    def from_example(cls, example: Example) -> "FormulaSettings":
        """Read the settings from an example."""
        scoring: Scoring
        if isinstance(example.scoring, AdditiveScoringConfig):
            w, u, v = (np.asarray(array, float) for array in (example.scoring.w, example.scoring.u, example.scoring.v))
            scoring = Additive(w, u, v)
        else:
            scoring = SCORINGS[example.scoring]
        query, key = np.empty((len(example.tokens), 1)), np.empty((len(example.keys), 1))
        mask = None if example.mask is None else np.asarray(example.mask, dtype=bool)
        bias = _array(example.bias)
        allowed = combine_masks(np, query, key, mask, bias, example.causal, example.window)
        attention_mask = None if allowed is None else np.broadcast_to(allowed, (len(query), len(key)))
        return cls(scoring, NORMALISATIONS[example.normalise], example.scale, attention_mask, bias)

    def scale_factor(self, width: int) -> float:
        """Return the factor that scales the scores."""
        return self.scoring.scale(width) if self.scale is None else self.scale


_StepArrays = Iterator[tuple[FormulaStep, np.ndarray]]


def _array(matrix: Sequence[Sequence[float | str]] | None) -> np.ndarray | None:
    return None if matrix is None else np.asarray(matrix, dtype=float)


def _steps_from_weights(example: Example, settings: FormulaSettings) -> _StepArrays:
    """Steps of an example with given weights: only the weighted sum of the values remains."""
    weights, value, mask = _array(example.weights), _array(example.v), settings.attention_mask
    assert weights is not None
    if example.heads > 1:
        raise InvalidInput("Given weights belong to one head.", hint="Leave heads out, or give x and its matrices.")
    if mask is not None and np.any(weights[~mask] != 0):
        raise InvalidInput("weights has a non-zero number for a masked key.", hint="Masked keys have weight 0.")
    has_mask = mask is not None or example.bias is not None
    captions = attention_captions(settings.scoring, settings.normalise, has_mask=has_mask)
    step = {caption.name: caption for caption in captions}
    if value is not None:
        yield step["value"], value
    yield step["weights"], weights
    if value is not None:
        yield step["context"], project(weights, value, ("weights", "v"))


def _steps_from_inputs(example: Example, settings: FormulaSettings) -> _StepArrays:
    x, source = _array(example.rows), _array(example.source_x)
    from_source = (source if example.source_tokens else x, "x" if source is None else "source_x")
    learned = not (example.w_q is example.w_k is example.w_v is None)
    projected = {}
    for name, letter, (inputs, inputs_name) in (
        ("query", "q", (x, "x")), ("key", "k", from_source), ("value", "v", from_source),
    ):  # fmt: skip
        given, weights = _array(getattr(example, letter)), _array(getattr(example, f"w_{letter}"))
        if given is not None or inputs is None:
            projected[name] = given
        elif weights is not None:
            projected[name] = project(inputs, weights, (inputs_name, f"w_{letter}"))
        else:  # without any projection, the inputs unchanged
            projected[name] = None if learned else inputs
    given_arrays = {X: x, SOURCE: source} | {w: _array(getattr(example, w.name)) for w in (W_Q, W_K, W_V)}
    yield from ((step, array) for step, array in given_arrays.items() if array is not None)
    yield from _attention_steps(example, settings, projected, learned)


def _attention_steps(
    example: Example, settings: FormulaSettings, projected: dict[str, np.ndarray | None], learned: bool
) -> _StepArrays:
    """Steps of the formula as far as query, key and value are available."""
    available = [array for array in projected.values() if array is not None]
    if not available:
        return
    width = available[0].shape[-1]
    query, key, value = projected["query"], projected["key"], projected["value"]
    query_or_zeros = np.zeros((len(example.tokens), width)) if query is None else query
    key_or_zeros = np.zeros((len(example.keys), width)) if key is None else key
    value_or_zeros = np.zeros((len(example.keys), key_or_zeros.shape[-1])) if value is None else value
    if isinstance(settings.scoring, Additive):
        num_queries, d_head = len(query_or_zeros), query_or_zeros.shape[-1] // example.heads
        for name, weights, side in (("w", settings.scoring.w, "query"), ("u", settings.scoring.u, "key")):
            if len(weights) != d_head:
                raise shape_mismatch((side, name), (num_queries, d_head), weights.shape)
    options: AttentionOptions = {
        "scoring": settings.scoring, "normalise": settings.normalise, "scale": settings.scale,
        "mask": settings.attention_mask, "bias": settings.bias,
    }  # fmt: skip
    steps = attend_multi_head(np, query_or_zeros, key_or_zeros, value_or_zeros, example.heads, options)
    given = {"query": example.q, "key": example.k, "value": example.v}
    tex = projection_captions(example.source_x is not None, learned).items()
    steps = steps.with_captions({name: change for name, change in tex if not given[name]})
    mask = settings.attention_mask
    is_masked = example.bias is not None or (mask is not None and not bool(mask.all()))
    scored = query is not None and key is not None
    missing = {name for name, array in projected.items() if array is None}
    missing |= set() if scored and is_masked else {"masked"}
    missing |= set() if scored else {"scores", "scaled", "weights"}
    missing |= set() if scored and value is not None else {"context"}
    yield from ((step, array) for step, array in steps.step_arrays() if step.name not in missing)
    if "context" not in missing:
        w_o = _array(example.w_o)
        for step, array in output_steps(np, steps, example.heads, w_o):
            if step.name == "output" and w_o is not None:
                yield W_O, w_o
            yield step, array


def _label_steps(example: Example, step_arrays: tuple[tuple[FormulaStep, np.ndarray], ...]) -> Iterator[WorkedStep]:
    """Yield labelled steps; per-head steps are grouped by head, as on paper."""
    per_head = [index for index, (_, array) in enumerate(step_arrays) if array.ndim == 3]
    first, last = (per_head[0], per_head[-1] + 1) if per_head else (len(step_arrays), len(step_arrays))
    key_rows = example.w_k or example.k  # with grouped-query attention, several query heads share one of its heads
    key = next((array for step, array in step_arrays if step.name == "key" and array.ndim == 3), None)
    num_kv_heads = example.heads if key_rows is None or key is None else len(key_rows[0]) // key.shape[-1]
    for step, array in step_arrays[:first]:
        yield _labelled_step(example, step, array)
    for head in range(example.heads if per_head else 0):
        for step, array in step_arrays[first:last]:
            column_head = head if step.name == "query" else head * num_kv_heads // example.heads
            yield _labelled_step(example, step, array[head], head + 1, column_head * array.shape[-1])
    for step, array in step_arrays[last:]:
        yield _labelled_step(example, step, array)


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
