"""`sweep`: one intervention for each head, attention pattern or position, and a metric of each: a heat map."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Literal, get_args

import numpy as np
from torch import Tensor

from peasy.commands.load import LoadedModel, ModelSource, load
from peasy.commands.model_input import LabelledInput, edit_context, make_input, word_token_id
from peasy.commands.result import OnProgress, RecordResult
from peasy.errors import InvalidInput, lookup
from peasy.inspection import sweep as sweeps
from peasy.inspection.edit import TextOrIds, Texts
from peasy.inspection.forward import ModelInput, forward_logits
from peasy.inspection.results import Array, LabelledMatrix, Tokens
from peasy.parameters import Record
from peasy.views.document import Document
from peasy.views.inspection import sweep_document

SweepAxis = Literal["heads", "layers×positions", "patterns"]
SweepMethod = Literal["patch", "zero", "mean"]


class LogitDifference(Record):
    """Metric: logit of one word minus that of another, after the last token."""

    first: str
    second: str

    def of(self, loaded: LoadedModel) -> Callable[[Tensor], Tensor]:
        """Return the metric as a function of logits `[..., vocab_size]`."""
        first, second = (word_token_id(loaded, word) for word in (self.first, self.second))
        return lambda logits: logits[..., first] - logits[..., second]

    def __str__(self) -> str:
        return f"logit of {self.first} - logit of {self.second}"


def logit_difference(first: str, second: str) -> LogitDifference:
    """Metric of a sweep: the logit of the word `first` minus that of `second`, after the last token.

    >>> str(logit_difference("Mary", "John"))
    'logit of Mary - logit of John'
    """
    return LogitDifference(first, second)


class SweepResult(RecordResult, LabelledMatrix, eq=False, kw_only=True):
    """Metric of each variant as a labelled matrix; `clean` and `corrupt` are those of the two texts without a change.

    `corrupt` is None for ablations, which change the clean text.
    """

    model: str
    metric: str
    method: str
    clean: float
    corrupt: float | None
    text: str  # type: ignore[assignment]
    tokens: Tokens = field(repr=False)

    @property
    def normalised(self) -> Array:
        """For patches: 0 = as in the corrupt text, 1 = as in the clean one. For ablations: the change."""
        if self.corrupt is None:
            return self.values - self.clean
        span = self.clean - self.corrupt
        return (self.values - self.corrupt) / span if span else np.full_like(self.values, np.nan)

    def document(self) -> Document:
        """Heat map of the variants."""
        return sweep_document(self, self.model, self.text, self.metric, self.method, self.clean, self.corrupt)

    def __repr__(self) -> str:
        return f"SweepResult({self.method} of {self.name}: {len(self.rows)} x {len(self.columns)}, {self.metric})"


def sweep(
    model: ModelSource,
    clean: TextOrIds,
    corrupt: TextOrIds | None = None,
    *,
    metric: LogitDifference | Callable[[Tensor], Tensor],
    over: SweepAxis = "heads",
    method: SweepMethod = "patch",
    data: Texts | None = None,
    on_progress: OnProgress | None = None,
) -> SweepResult:
    """Change one head, pattern or position after the other, and measure a metric of the logits after the last token.

    Args:
        model: The model.
        clean: Text, or its token ids.
        corrupt: For patches: the text that runs, with one activation from `clean` at a time; as many tokens.
        metric: `peasy.logit_difference("a", "b")`, or a function of logits `[variant, vocab_size]`.
        over: heads (their outputs), patterns (their attention weights), or layers×positions of the residual stream.
        method: patch from the clean text, or ablate in the clean text: zero, or mean over the texts of `data`.
        data: Texts or data set of the mean.
        on_progress: Called with the number of variants done and their total.

    >>> result = sweep("stories", "The pizza was", "The river was", metric=logit_difference("good", "long"))
    >>> result.shape, result.row_axis, result.column_axis
    ((3, 3), 'layer', 'head')
    """
    loaded = load(model)
    lookup(over, dict.fromkeys(get_args(SweepAxis)), "sweep over")
    lookup(method, dict.fromkeys(get_args(SweepMethod)), "method")
    clean_input = make_input(loaded, clean)
    base = _base_text(loaded, clean_input, corrupt, method)
    tokens = base.target or base.tokens
    if over == "layers×positions":
        rows, columns = sweeps.position_variants(loaded.model, len(tokens)), tokens.pieces
    else:
        rows = sweeps.head_variants(loaded.model, "context" if over == "heads" else "weights")
        columns = tuple(map(str, range(len(rows[0]))))
    variants = [variant for row in rows for variant in row]
    addresses = list(dict.fromkeys(variant.address for variant in variants))
    texts = _mean_texts(loaded, data) if method == "mean" else ()
    replacements = sweeps.make_replacements(loaded.model, addresses, clean_input.model_input, method, texts)
    measure = metric.of(loaded) if isinstance(metric, LogitDifference) else metric
    values: list[float] = []
    unchanged = 0.0
    for logits in sweeps.run_variants(loaded.model, base.model_input, variants, replacements):
        measured = measure(logits.float())
        if getattr(measured, "shape", None) != logits.shape[:1]:
            hint = "For example lambda logits: logits[:, 5] - logits[:, 6], of the ids 5 and 6."
            raise InvalidInput("The metric should return one number for each row of logits.", hint=hint)
        unchanged, *changed = measured.tolist()
        values += changed
        if on_progress is not None:
            on_progress(len(values), len(variants))
    is_patch = base is not clean_input
    return SweepResult(
        np.array(values).reshape(len(rows), -1), tuple(str(row[0].address.layer) for row in rows), columns, "layer",
        "position" if over == "layers×positions" else "head", over,
        model=loaded.name, metric=str(metric) if isinstance(metric, LogitDifference) else "metric", method=method,
        clean=_measure_text(loaded, clean_input.model_input, measure) if is_patch else unchanged,
        corrupt=unchanged if is_patch else None, text=tokens.text, tokens=tokens,
    )  # fmt: skip


def _base_text(loaded: LoadedModel, clean: LabelledInput, corrupt: TextOrIds | None, method: str) -> LabelledInput:
    """Return the text that runs: the corrupt one of patches, the clean one of ablations."""
    if (method == "patch") != (corrupt is not None):
        hint = "Patches go from the clean text into the corrupt one; ablations change the clean text alone."
        raise InvalidInput(f"{method} {'needs' if corrupt is None else 'takes no'} corrupt text.", hint=hint)
    if corrupt is None:
        return clean
    base = make_input(loaded, corrupt)
    first, second = len(clean.model_input.output_ids), len(base.model_input.output_ids)
    if first != second:
        hint = "A patch needs texts with equally many tokens; see them with peasy tokenize."
        raise InvalidInput(f"The clean text has {first} tokens, the corrupt one {second}.", hint=hint)
    return base


def _mean_texts(loaded: LoadedModel, data: Texts | None) -> Sequence[ModelInput]:
    if not data:
        raise InvalidInput("The method mean needs data.", hint="Give data=: texts, or the name of a data set.")
    read_texts = edit_context(loaded).read_texts
    assert read_texts is not None
    return read_texts(data)


def _measure_text(loaded: LoadedModel, text: ModelInput, measure: Callable[[Tensor], Tensor]) -> float:
    logits = forward_logits(loaded.model, text)
    assert logits is not None
    return float(measure(logits.float()[None])[0])
