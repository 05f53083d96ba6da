"""`evaluate`: evaluate a model on a validation split, with the metrics of its kind."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import Result
from peasy.commands.runs import RECIPE
from peasy.datasets import Corpus, DataProblems, Probe, Sample, open_corpus
from peasy.datasets.charset import read_lines
from peasy.errors import InvalidInput
from peasy.views.document import Document
from peasy.views.evaluation import EvaluationFacts, EvaluationMetric, evaluation_document

if TYPE_CHECKING:
    from peasy.training.metric import AccuracyCounter, TokenPredictionStats

DataSource = str | Path | Sequence[str | Path] | Corpus
OnProgress = Callable[[int, int], None]
"""Called with the amount done and the total."""


_DEFAULT_SEQ_LEN = 256
"""Window length in tokens for models without a maximum of their own."""


@dataclass(frozen=True, repr=False)
class EvaluateResult(Result):
    """Result of `evaluate`: `result["loss"]` is one measure, `data()` has all of them."""

    facts: EvaluationFacts

    def __getitem__(self, name: str) -> float:
        """Return a measure by name."""
        return self.measures[name]

    @property
    def measures(self) -> dict[str, float]:
        """All measures by name."""
        return {measure.name: measure.value for measure in self.facts.metrics}

    def document(self) -> Document:
        """The measures, each with an explanation."""
        return evaluation_document(self.facts)

    def data(self) -> dict[str, Any]:
        """The evaluation as plain data."""
        facts = self.facts
        return {
            "model": facts.model,
            "data": facts.data,
            "split": facts.split,
            "sample_count": facts.sample_count,
            "measures": {m.name: m.value if math.isfinite(m.value) else None for m in facts.metrics},
            "description": {measure.name: measure.description for measure in facts.metrics},
            "categories": {name: {"correct": correct, "count": count} for name, correct, count in facts.categories},
            "wrong": [dict(zip(("source", "reference", "output"), row, strict=True)) for row in facts.errors],
            "notes": list(facts.notes),
        }

    def __repr__(self) -> str:
        measures = ", ".join(f"{name} {value:.4g}" for name, value in self.measures.items())
        return f"EvaluateResult({self.facts.model} on {self.facts.data}: {measures})"


def evaluate(
    model: str | Path | LoadedModel,
    data: DataSource,
    *,
    split: str = "valid",
    max_samples: int | None = None,
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

    `max_samples` takes only the first pairs, endings or sentences. `seq_len` is the window length in tokens.
    `options` are those of `open_corpus`.

    >>> import tempfile
    >>> from peasy.commands.train import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    ...     evaluate(run.model, "copy", max_samples=10)["accuracy"] > 0
    True
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, confirm=confirm)
    if max_samples is not None and max_samples < 1:
        raise InvalidInput(f"max_samples is {max_samples}.", hint="max_samples must be 1 or more.")
    if loaded.kind == "encoder" and (sts_file := find_sts_file(data)) is not None:
        return EvaluateResult(_evaluate_sts(loaded, sts_file, max_samples, on_progress))
    corpus = open_corpus(data, **dict(options or {}))
    evaluation = _Evaluation(loaded, corpus, _check_split(corpus, split), max_samples, seq_len, on_progress)
    return EvaluateResult(evaluation.run())


@dataclass(frozen=True)
class _Evaluation:
    """One evaluation: model, corpus, split and limits."""

    loaded: LoadedModel
    corpus: Corpus
    split: str
    max_samples: int | None
    seq_len: int | None
    on_progress: OnProgress | None

    def run(self) -> EvaluationFacts:
        """Evaluate with the metrics that fit the model and the data."""
        has_pairs = self.corpus.kind == "pairs"
        if self.loaded.model.is_encoder_decoder:
            if not has_pairs:
                raise InvalidInput(f"{self.loaded.name} is a translator, but {self.corpus.name} has no pairs of texts.")
            return self._evaluate_translations()
        if self.loaded.kind == "encoder":
            return self._evaluate_masked() if self.corpus.kind == "text" else self._evaluate_retrieval()
        if has_pairs:
            raise InvalidInput(f"{self.loaded.name} continues texts, but {self.corpus.name} has pairs of texts.")
        return self._evaluate_text()

    def _evaluate_text(self) -> EvaluationFacts:
        from peasy.commands.metrics import ending_accuracy, text_loss

        seq_len, per_text = self._window_length(), self._recipe_setting("sample_unit") == "documents"
        tally, unknown = text_loss(
            self.loaded, self._pieces(), seq_len, self._progress_counter(self._num_characters), per_text
        )
        unit = "One text at a time, as in training." if per_text else f"Non-overlapping windows of {seq_len:,} tokens."
        measures, notes = _tally_measures(tally), [unit]
        if unknown:
            share = unknown / tally.tokens
            notes.append(f"{share:.1%} of the tokens are unknown tokens, which are easier to predict than words.")
        if getattr(self.loaded.model.config, "task", None) == "skip-gram":
            notes.append("The model was trained on neighbours on both sides; here it predicts only the next word.")
        right: AccuracyCounter | None = None
        if probes := self._probes():
            max_length = getattr(self.loaded.model.config, "max_seq_len", None)
            right = ending_accuracy(self.loaded, probes, max_length, self._progress_counter(lambda: len(probes)))
            measures.append(_ending_measure(right, choice=bool(probes[0].wrong)))
        return self._make_facts(f"{tally.tokens:,} tokens", measures, right, notes=tuple(notes))

    def _evaluate_masked(self) -> EvaluationFacts:
        from peasy.commands.metrics import masked_token_loss

        tally = masked_token_loss(
            self.loaded, self._pieces(), self._window_length(), self._progress_counter(self._num_characters)
        )
        note = "About every seventh token is masked, the same ones each time; the model attends to both sides."
        return self._make_facts(f"{tally.tokens:,} masked tokens", _tally_measures(tally), notes=(note,))

    def _evaluate_translations(self) -> EvaluationFacts:
        from peasy.commands.metrics import translation_scores

        pairs, advance = islice(self._samples(), self.max_samples), self._progress_counter(self._num_samples)
        tally, scores, exact, wrong = translation_scores(self.loaded, pairs, advance)
        measures = [EvaluationMetric(name, score, signature) for name, score, signature in scores.scores()]
        measures.append(
            EvaluationMetric("exact match", exact.accuracy, "translations that equal the reference", is_fraction=True)
        )
        measures += [m for m in _tally_measures(tally) if m.name != "bits per byte"]
        note = "Greedy decoding, at most three times the length of the source."
        return self._make_facts(f"{exact.count:,} pairs", measures, exact, tuple(wrong), (note,))

    def _evaluate_retrieval(self) -> EvaluationFacts:
        from peasy.commands.metrics import retrieval_accuracy

        samples = islice(self._samples(), self.max_samples)
        right = retrieval_accuracy(self.loaded, samples, self._progress_counter(self._num_samples))
        has_pairs = self.corpus.kind == "pairs"
        meaning = "nearest text is the partner" if has_pairs else "nearest neighbour has the same label"
        measure = EvaluationMetric(
            "retrieval accuracy" if has_pairs else "nearest-neighbour accuracy",
            right.accuracy,
            meaning,
            is_fraction=True,
        )
        note = "Neighbours are searched among at most 256 texts at a time."
        return self._make_facts(f"{right.count:,} texts", [measure], right, notes=(note,))

    def _make_facts(
        self,
        counted: str,
        measures: list[EvaluationMetric],
        correct: "AccuracyCounter | None" = None,
        wrong: tuple[tuple[str, str, str], ...] = (),
        notes: tuple[str, ...] = (),
    ) -> EvaluationFacts:
        categories = correct.by_category() if correct is not None else ()
        return EvaluationFacts(
            self.loaded.name, self.corpus.name, self.split, counted, tuple(measures), categories, wrong, notes
        )

    def _splits(self) -> tuple[str, ...]:
        return self.corpus.splits if self.split == "all" else (self.split,)

    def _pieces(self) -> Iterator[tuple[Sample, bool]]:
        return chain.from_iterable(map(self.corpus.pieces, self._splits()))

    def _samples(self) -> Iterator[Sample]:
        return chain.from_iterable(map(self.corpus.documents, self._splits()))

    def _probes(self) -> list[Probe]:
        """Endings to choose between, at most `max_samples` or 2,000; empty if the corpus has none."""
        if self.loaded.kind == "words":
            return []
        return list(islice(chain.from_iterable(map(self.corpus.probes, self._splits())), self.max_samples or 2_000))

    def _num_samples(self) -> int:
        sizes = self.corpus.cached_survey.sizes
        count = sum(sizes[split].documents for split in self._splits())
        return count if self.max_samples is None else min(count, self.max_samples)

    def _num_characters(self) -> int:
        sizes = self.corpus.cached_survey.sizes
        return sum(sizes[split].characters for split in self._splits())

    def _progress_counter(self, total: Callable[[], int]) -> Callable[[int], None]:
        """Return a progress counter; the total is computed only if there is a callback."""
        return _cumulative(self.on_progress, total()) if self.on_progress is not None else lambda done: None

    def _window_length(self) -> int:
        """Window length in tokens: as given, else the smaller of the model's and its recipe's, else the default."""
        max_seq_len = getattr(self.loaded.model.config, "max_seq_len", None)
        if self.seq_len is not None:
            if self.seq_len < 1 or (max_seq_len is not None and self.seq_len > max_seq_len):
                hint = f"Choose 1 to {max_seq_len}." if max_seq_len else "Choose 1 or more."
                raise InvalidInput(f"This model cannot read windows of {self.seq_len} tokens.", hint=hint)
            return self.seq_len
        sizes = [size for size in (max_seq_len, self._recipe_setting("seq_len")) if size]
        return min(sizes, default=_DEFAULT_SEQ_LEN)

    def _recipe_setting(self, setting: str) -> Any:
        """Return a setting of the training recipe beside the checkpoint or in its run folder, or None."""
        folder = self.loaded.folder
        if folder is None:
            return None
        run = next((parent for parent in (folder, folder.parent.parent) if (parent / RECIPE).is_file()), None)
        return SafeFolder(run).read_json(RECIPE).get(setting) if run is not None else None


def _cumulative(on_progress: OnProgress, total: int) -> Callable[[int], None]:
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        on_progress(min(done, total), total)

    return add


def _tally_measures(tally: "TokenPredictionStats") -> list[EvaluationMetric]:
    measures = [
        EvaluationMetric("loss", tally.loss, "nats per token"),
        EvaluationMetric("perplexity", tally.perplexity, "exp(loss): equally likely tokens to choose between"),
        EvaluationMetric(
            "accuracy", tally.accuracy, "tokens where the model's top prediction is right", is_fraction=True
        ),
    ]
    if tally.bits_per_byte is not None:
        measures.insert(2, EvaluationMetric("bits per byte", tally.bits_per_byte, "comparable across tokenizers"))
    return measures


def _ending_measure(correct: "AccuracyCounter", choice: bool) -> EvaluationMetric:
    if choice:
        return EvaluationMetric(
            "ending accuracy",
            correct.accuracy,
            "right ending likelier than the wrong one; chance is 50 %",
            is_fraction=True,
        )
    return EvaluationMetric(
        "ending accuracy", correct.accuracy, "endings generated without a mistake", is_fraction=True
    )


def _check_split(corpus: Corpus, split: str) -> str:
    if split == "all" or split in corpus.splits:
        return split
    raise InvalidInput(
        f'{corpus.name} has no split "{split}".', hint=f"There are {', '.join((*corpus.splits, 'all'))}."
    )


def _evaluate_sts(
    loaded: LoadedModel, path: Path, max_samples: int | None, on_progress: OnProgress | None
) -> EvaluationFacts:
    from peasy.commands.metrics import sts_correlation

    problems, total = DataProblems(), path.stat().st_size
    advance = (lambda done: None) if on_progress is None else _cumulative(on_progress, total)
    correlation, count = sts_correlation(
        loaded, islice(read_sts_rows(path, problems, advance), max_samples), lambda done: None
    )
    notes = ["Cosines of the model's vectors against human scores."]
    if problems:
        where, why = problems.listed[0]
        notes.append(f"{problems.count:,} rows could not be used, the first: {where}: {why}.")
    measure = EvaluationMetric(
        "STS Spearman", correlation, "rank correlation: 1 = same order as the human scores, 0 = none"
    )
    return EvaluationFacts(loaded.name, str(path), "all", f"{count:,} pairs", (measure,), notes=tuple(notes))


def find_sts_file(data: DataSource) -> Path | None:
    """Return the path if this is an STS file, with two sentences and a score in each row, else None."""
    if not isinstance(data, str | Path) or Path(data).suffix.lower() not in (".tsv", ".jsonl"):
        return None
    path = Path(data)
    if not path.is_file():
        return None
    first = next((line for _, line in read_lines(path, DataProblems()) if line), "")
    return path if _parse_sts_row(path, first) is not None or first.split("\t")[2:3] == ["score"] else None


def read_sts_rows(
    path: Path, problems: DataProblems, on_bytes_read: Callable[[int], None]
) -> Iterator[tuple[str, str, float]]:
    """Yield the rows of an STS file: two sentences and a score; `on_bytes_read` is called with the number of bytes."""
    for number, line in read_lines(path, problems):
        on_bytes_read(len((line or "").encode()) + 1)
        row = _parse_sts_row(path, line) if line and line.strip() else None
        if row is not None:
            yield row
        elif line and line.strip() and not (number == 1 and line.split("\t")[2:3] == ["score"]):
            problems.add(f"{path}:{number}", "the row is not two sentences and a score")


def _parse_sts_row(path: Path, line: str) -> tuple[str, str, float] | None:
    try:
        if path.suffix.lower() == ".tsv":
            left, right, score = line.split("\t")
        else:
            row = json.loads(line)
            left, right, score = row["source"], row["target"], row["score"]
        number = float(score)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    valid = isinstance(left, str) and isinstance(right, str) and left.strip() and right.strip()
    return (left, right, number) if valid and math.isfinite(number) else None
