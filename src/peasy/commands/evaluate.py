"""`evaluate`: evaluate a model on a validation split, with the metrics of its kind."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.recipe_changes import DataSource
from peasy.commands.result import JsonDict, OnProgress, Result
from peasy.commands.runs import recipe_of
from peasy.datasets import Corpus, DataProblems, LabelledText, Sample, TextPair, open_corpus, sample_texts
from peasy.errors import InvalidInput
from peasy.parameters import Record
from peasy.views.document import Document, DocumentPart, Heading, Paragraph, Table

if TYPE_CHECKING:
    from peasy.metrics.scores import AccuracyCounter, TokenPredictionStats

T = TypeVar("T")

_SPLIT_NAMES = {"valid": "validation split", "train": "training split", "test": "test split", "all": "all data"}
_DEFAULT_SEQ_LEN = 256
"""Window length in tokens for models without a maximum of their own."""

_MAX_PROBES = 2_000
"""Maximum number of endings to choose between, unless `max_samples` is given."""


class EvaluationMetric(Record):
    """Metric: name, value and description; `is_fraction`: a fraction of 1, shown in percent."""

    name: str
    value: float
    description: str
    is_fraction: bool = False

    @property
    def short(self) -> str:
        """The value in percent, or with four decimals."""
        return format(self.value, ".2%" if self.is_fraction else ".4f")

    @property
    def text(self) -> str:
        """The value in percent, or with fewer decimals if it is large."""
        return f"{self.value:,.2f}" if abs(self.value) >= 10 else self.short


class EvaluateResult(Result):
    """Result of `evaluate`: `result["loss"]` is one measure, `data()` has all of them.

    `categories` are (name, correct, count); `errors` are (source, reference, output).
    """

    model: str
    dataset: str
    split: str
    sample_count: str
    metrics: tuple[EvaluationMetric, ...]
    categories: tuple[tuple[str, int, int], ...] = ()
    errors: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return self.measures[name]

    @property
    def measures(self) -> dict[str, float]:
        """All measures by name."""
        return {metric.name: metric.value for metric in self.metrics}

    def document(self) -> Document:
        """The measures, each with an explanation, the categories, and some wrong outputs."""
        rows = tuple((metric.name, metric.text, metric.description) for metric in self.metrics)
        parts: list[DocumentPart] = [
            Paragraph(f"{self.dataset}, {_SPLIT_NAMES.get(self.split, self.split)}: {self.sample_count}."),
            Table(("metric", "value", "description"), rows),
        ]
        if len(self.categories) > 1:
            rates = tuple((name or "other", f"{n / of:.1%}", f"{n:,} of {of:,}") for name, n, of in self.categories)
            parts += [Heading("By category"), Table(("category", "accuracy", "count"), rates)]
        if self.errors:
            errors = tuple(tuple(text if len(text) <= 60 else f"{text[:59]}…" for text in row) for row in self.errors)
            parts += [Heading("Wrong outputs"), Table(("source", "reference", "output"), errors)]
        return Document(f"{self.model} on {self.dataset}", (*parts, *(Paragraph(note, "note") for note in self.notes)))

    def data(self) -> JsonDict:
        return {
            "model": self.model,
            "data": self.dataset,
            "split": self.split,
            "sample_count": self.sample_count,
            "measures": {name: value if math.isfinite(value) else None for name, value in self.measures.items()},
            "description": {metric.name: metric.description for metric in self.metrics},
            "categories": {name: {"correct": correct, "count": count} for name, correct, count in self.categories},
            "wrong": [dict(zip(("source", "reference", "output"), row, strict=True)) for row in self.errors],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        measures = ", ".join(f"{name} {value:.4g}" for name, value in self.measures.items())
        return f"EvaluateResult({self.model} on {self.dataset}: {measures})"


def evaluate(
    model: str | Path | LoadedModel,
    data: DataSource,
    *,
    split: str = "valid",
    max_samples: Annotated[int, Ge(1)] | None = None,
    seq_len: int | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    on_progress: OnProgress | None = None,
) -> EvaluateResult:
    """Evaluate a model on the validation split, or on another `split`: train, test or all.

    Language models: loss, perplexity, bits per byte and accuracy over all tokens, and the choice of endings if the
    corpus has them. Translators: BLEU, chrF and exact match of greedy translations. Encoders: Spearman correlation
    with the scores of a three-column .tsv (STS); otherwise retrieval of partners or labels, or masked-token loss.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        split: Data split: valid, train, test or all.
        max_samples: Maximum number of samples.
        seq_len: Sequence length in tokens; default: as in training.
        options: Options of the dataset, as for `open_corpus`.

    >>> import tempfile
    >>> from peasy.commands.train import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    ...     evaluate(run.model, "copy", max_samples=10)["accuracy"] > 0
    True
    """
    loaded = load(model, device=device, offline=offline, confirm=confirm)
    if max_samples is not None and max_samples < 1:
        raise InvalidInput(f"max_samples is {max_samples}.", hint="max_samples must be 1 or more.")
    from peasy.evaluation.embedding import find_sts_file

    if loaded.kind == "encoder" and (sts_file := find_sts_file(data)) is not None:
        return _evaluate_sts(loaded, sts_file, max_samples, on_progress)
    corpus = open_corpus(data, **dict(options or {}))
    if split not in (*corpus.splits, "all"):
        hint = f"There are {', '.join((*corpus.splits, 'all'))}."
        raise InvalidInput(f'{corpus.name} has no split "{split}".', hint=hint)
    return _Evaluation(loaded, corpus, split, max_samples, seq_len, on_progress).run()


class _Evaluation(Record):
    loaded: LoadedModel
    corpus: Corpus
    split: str
    max_samples: int | None
    seq_len: int | None
    on_progress: OnProgress | None

    def run(self) -> EvaluateResult:
        """Evaluate with the metrics that fit the model and the data."""
        has_pairs = self.corpus.kind == "pairs"
        if self.loaded.model.is_encoder_decoder:
            if not has_pairs:
                raise InvalidInput(f"{self.loaded.name} is a translator, but {self.corpus.name} has no pairs of texts.")
            return self._evaluate_translations()
        if self.loaded.kind == "encoder":
            return self._evaluate_masked() if self.corpus.kind == "text" else self._evaluate_retrieval()
        if self.corpus.kind == "chat":
            hint = "The validation loss of a run is that of its answers: peasy runs"
            raise InvalidInput(f"{self.corpus.name} has conversations, which only training measures.", hint=hint)
        if has_pairs:
            raise InvalidInput(f"{self.loaded.name} continues texts, but {self.corpus.name} has pairs of texts.")
        return self._evaluate_text()

    def _evaluate_text(self) -> EvaluateResult:
        from peasy.evaluation.language import ending_accuracy, text_loss

        seq_len, (begin, _) = self._window_length(), self.loaded.require_tokenizer().added_ids
        pieces = self._read(self.corpus.pieces)
        stats, num_unknown = text_loss(self.loaded, pieces, seq_len, self._progress("characters"))
        unit = f"Non-overlapping windows of {seq_len:,} tokens."
        if begin:
            start = " ".join(self.loaded.require_tokenizer().pieces(begin))
            unit = f"One text at a time, each after {start}, as the model reads a prompt."
        notes = [unit]
        if num_unknown:
            share = num_unknown / stats.tokens
            notes.append(f"{share:.1%} of the tokens are unknown tokens, which are easier to predict than words.")
        if getattr(self.loaded.model.config, "task", None) == "skip-gram":
            notes.append("The model was trained on neighbours on both sides; here it predicts only the next word.")
        metrics, correct = _token_metrics(stats), None
        all_probes = () if self.loaded.kind == "words" else self._read(self.corpus.probes)
        if probes := list(islice(all_probes, self.max_samples or _MAX_PROBES)):
            advance = _cumulative(self.on_progress, len(probes))
            correct = ending_accuracy(self.loaded, probes, self.loaded.max_seq_len, advance)
            meaning = "right ending likelier than the wrong one; chance is 50 %"
            meaning = meaning if probes[0].wrong else "endings generated without a mistake"
            metrics.append(EvaluationMetric("ending accuracy", correct.accuracy, meaning, is_fraction=True))
        return self._result(f"{stats.tokens:,} tokens", metrics, notes, correct)

    def _evaluate_masked(self) -> EvaluateResult:
        from peasy.evaluation.language import masked_token_loss

        pieces, advance = self._read(self.corpus.pieces), self._progress("characters")
        stats = masked_token_loss(self.loaded, pieces, self._window_length(), advance)
        note = "About every seventh token is masked, the same ones each time; the model attends to both sides."
        return self._result(f"{stats.tokens:,} masked tokens", _token_metrics(stats), [note])

    def _evaluate_translations(self) -> EvaluateResult:
        from peasy.evaluation.language import translation_scores

        truncation = _Truncation(self.loaded)
        samples = truncation.count(self._samples())
        scores = translation_scores(self.loaded, samples, self._progress("documents"))
        metrics = [EvaluationMetric(name, score, signature) for name, score, signature in scores.metrics.scores()]
        meaning = "translations that equal the reference"
        metrics.append(EvaluationMetric("exact match", scores.exact.accuracy, meaning, is_fraction=True))
        metrics += [metric for metric in _token_metrics(scores.stats) if metric.name != "bits per byte"]
        notes = ["Greedy decoding, at most three times the length of the source.", *truncation.notes]
        return self._result(f"{scores.exact.count:,} pairs", metrics, notes, scores.exact, tuple(scores.wrong))

    def _evaluate_retrieval(self) -> EvaluateResult:
        from peasy.evaluation.embedding import MAX_CANDIDATES, retrieval_accuracy

        truncation = _Truncation(self.loaded)
        correct = retrieval_accuracy(self.loaded, truncation.count(self._samples()), self._progress("documents"))
        name, meaning = "nearest-neighbour accuracy", "nearest neighbour has the same label"
        if self.corpus.kind == "pairs":
            name, meaning = "retrieval accuracy", "nearest text is the partner"
        metric = EvaluationMetric(name, correct.accuracy, meaning, is_fraction=True)
        notes = [f"Neighbours are searched among at most {MAX_CANDIDATES} texts at a time.", *truncation.notes]
        return self._result(f"{correct.count:,} texts", [metric], notes, correct)

    def _result(
        self,
        sample_count: str,
        metrics: list[EvaluationMetric],
        notes: list[str],
        correct: "AccuracyCounter | None" = None,
        wrong: tuple[tuple[str, str, str], ...] = (),
    ) -> EvaluateResult:
        names = self.loaded.name, self.corpus.name, self.split
        categories = correct.by_category() if correct is not None else ()
        return EvaluateResult(*names, sample_count, tuple(metrics), categories, wrong, tuple(notes))

    def _splits(self) -> tuple[str, ...]:
        return self.corpus.splits if self.split == "all" else (self.split,)

    def _read(self, read: Callable[[str], Iterator[T]]) -> Iterator[T]:
        return chain.from_iterable(map(read, self._splits()))

    def _samples(self) -> Iterator[Sample]:
        return islice(self._read(self.corpus.documents), self.max_samples)

    def _progress(self, unit: Literal["characters", "documents"]) -> Callable[[int], object]:
        """Return a progress counter; the total is computed only if there is a callback, since it reads the corpus."""
        if self.on_progress is None:
            return bool
        total = sum(getattr(self.corpus.cached_survey.sizes[split], unit) for split in self._splits())
        limited = unit == "documents" and self.max_samples is not None
        return _cumulative(self.on_progress, min(total, self.max_samples or total) if limited else total)

    def _window_length(self) -> int:
        """Window length in tokens: as given, else the smaller of the model's and its recipe's, else the default."""
        max_seq_len = self.loaded.max_seq_len
        if self.seq_len is not None:
            if self.seq_len < 1 or (max_seq_len is not None and self.seq_len > max_seq_len):
                hint = f"Choose 1 to {max_seq_len}." if max_seq_len else "Choose 1 or more."
                raise InvalidInput(f"This model cannot read windows of {self.seq_len} tokens.", hint=hint)
            return self.seq_len
        sizes = max_seq_len, recipe_of(self.loaded.folder).get("seq_len")
        return min((size for size in sizes if isinstance(size, int) and size), default=_DEFAULT_SEQ_LEN)


@dataclass
class _Truncation:
    """Counter of the texts that are longer than what the model reads of them."""

    loaded: LoadedModel
    num_texts: int = 0
    num_cut: int = 0

    def count(self, samples: Iterable[T]) -> Iterator[T]:
        """Yield the samples (pairs, texts with labels, rows of an STS file) and count their texts."""
        for sample in samples:
            if isinstance(sample, TextPair | LabelledText):
                texts = sample_texts(sample)
            else:
                texts = sample[:2] if isinstance(sample, tuple) else ()
            self.num_texts += len(texts)
            self.num_cut += self.loaded.num_truncated(texts)
            yield sample

    @property
    def notes(self) -> list[str]:
        """The note, if texts were cut."""
        note = self.loaded.truncation_note(self.num_cut, self.num_texts)
        return [note] if note else []


def _cumulative(on_progress: OnProgress | None, total: int) -> Callable[[int], object]:
    """Return a callback for each step's amount, which reports the sum so far."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if on_progress is not None:
            on_progress(min(done, total), total)

    return add


def _token_metrics(stats: "TokenPredictionStats") -> list[EvaluationMetric]:
    metrics = [
        EvaluationMetric("loss", stats.loss, "nats per token"),
        EvaluationMetric("perplexity", stats.perplexity, "exp(loss): equally likely tokens to choose between"),
    ]
    if stats.bits_per_byte is not None:
        metrics.append(EvaluationMetric("bits per byte", stats.bits_per_byte, "comparable across tokenizers"))
    meaning = "tokens where the model's top prediction is right"
    return [*metrics, EvaluationMetric("accuracy", stats.accuracy, meaning, is_fraction=True)]


def _evaluate_sts(
    loaded: LoadedModel, path: Path, max_samples: int | None, on_progress: OnProgress | None
) -> EvaluateResult:
    from peasy.evaluation.embedding import read_sts_rows, sts_correlation

    problems = DataProblems()
    rows = read_sts_rows(path, problems, _cumulative(on_progress, path.stat().st_size))
    truncation = _Truncation(loaded)
    correlation, count = sts_correlation(loaded, truncation.count(islice(rows, max_samples)))
    notes = ["Cosines of the model's vectors against human scores.", *truncation.notes]
    if problems:
        where, why = problems.listed[0]
        notes.append(f"{problems.count:,} rows could not be used, the first: {where}: {why}.")
    meaning = "rank correlation: 1 = same order as the human scores, 0 = none"
    metric = EvaluationMetric("STS Spearman", correlation, meaning)
    return EvaluateResult(loaded.name, str(path), "all", f"{count:,} pairs", (metric,), notes=tuple(notes))
