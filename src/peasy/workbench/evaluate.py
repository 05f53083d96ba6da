"""`evaluate`: how good a model is on held-out data, measured as its kind is measured."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.hub import Ask
from peasy.corpora import Corpus, Probe, Problems, Sample, open_corpus
from peasy.corpora.encoding import read_lines
from peasy.errors import InvalidInput
from peasy.views.document import Document
from peasy.views.evaluation import EvaluationFacts, Measure, evaluation_document
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result
from peasy.workbench.runs import RECIPE

if TYPE_CHECKING:
    from peasy.training.metric import Right, Tally

Data = str | Path | Sequence[str | Path] | Corpus
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


_WINDOW = 256
"""A model that has no context of its own reads so many tokens at once."""


@dataclass(frozen=True, repr=False)
class EvaluateResult(Result):
    """What was measured; `result["loss"]` is one number, `data()` all of them."""

    facts: EvaluationFacts

    def __getitem__(self, name: str) -> float:
        """A measure by its name."""
        return self.measures[name]

    @property
    def measures(self) -> dict[str, float]:
        """Every measure by its name."""
        return {measure.name: measure.value for measure in self.facts.measures}

    def document(self) -> Document:
        """The measures with what each one says."""
        return evaluation_document(self.facts)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        facts = self.facts
        return {
            "model": facts.model,
            "data": facts.data,
            "split": facts.split,
            "counted": facts.counted,
            "measures": {m.name: m.value if math.isfinite(m.value) else None for m in facts.measures},
            "says": {measure.name: measure.says for measure in facts.measures},
            "categories": {name: {"right": right, "asked": asked} for name, right, asked in facts.categories},
            "wrong": [dict(zip(("source", "wanted", "written"), row, strict=True)) for row in facts.wrong],
            "notes": list(facts.notes),
        }

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {value:.4g}" for name, value in self.measures.items())
        return f"EvaluateResult({self.facts.model} on {self.facts.data}: {told})"


def evaluate(
    model: str | Path | LoadedModel,
    data: Data,
    *,
    split: str = "valid",
    limit: int | None = None,
    context: int | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
    progress: Progress | None = None,
) -> EvaluateResult:
    """Measure a model on data that was held out, or on another `split`: train, test or all.

    Language models: loss, perplexity, bits per byte and accuracy over all tokens, and the endings of a corpus that
    asks for them. Translators: BLEU, chrF and exact matches of greedy translations. Encoders: Spearman's correlation
    with the scores of a .tsv of three columns; else partners or labels found, or covered words guessed.

    `limit` takes only the first so many pairs, endings or sentences. `context` is how much is read at once. `options`
    say how the data are read, as for `open_corpus`.

    >>> import tempfile
    >>> from peasy.workbench.train import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train("ngram", "copy", preset="tiny", steps=2, run=f"{folder}/pairs")
    ...     evaluate(run.model, "copy", limit=10)["accuracy"] > 0
    True
    """
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device, offline=offline, ask=ask)
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit is {limit}.", hint="limit must be 1 or more.")
    if loaded.kind == "encoder" and (scored := find_scored(data)) is not None:
        return EvaluateResult(_scored_facts(loaded, scored, limit, progress))
    corpus = open_corpus(data, **dict(options or {}))
    asked = _Asked(loaded, corpus, _known(corpus, split), limit, context, progress)
    return EvaluateResult(asked.facts())


@dataclass(frozen=True)
class _Asked:
    """One evaluation: which model, on what, how much of it."""

    loaded: LoadedModel
    corpus: Corpus
    split: str
    limit: int | None
    context: int | None
    progress: Progress | None

    def facts(self) -> EvaluationFacts:
        """What fits the model and the data."""
        pairs = self.corpus.kind == "pairs"
        if self.loaded.model.reads_source:
            if not pairs:
                raise InvalidInput(f"{self.loaded.name} translates, and {self.corpus.name} has no pairs of texts.")
            return self._translations()
        if self.loaded.kind == "encoder":
            return self._masked() if self.corpus.kind == "text" else self._partners()
        if pairs:
            raise InvalidInput(f"{self.loaded.name} continues texts, and {self.corpus.name} has pairs of them.")
        return self._text()

    def _text(self) -> EvaluationFacts:
        from peasy.workbench.measure import measure_endings, measure_text

        context, whole = self._context(), self._trained("rows") == "documents"
        tally, unknown = measure_text(self.loaded, self._pieces(), context, self._hear(self._characters), whole)
        said = "Text by text, as it was trained." if whole else f"Windows of {context:,} tokens that do not overlap."
        measures, notes = _tallied(tally), [said]
        if unknown:
            share = unknown / tally.tokens
            notes.append(f"{share:.1%} of the tokens are unknown to the tokenizer: they are easier than real ones.")
        if getattr(self.loaded.model.config, "task", None) == "skip-gram":
            notes.append("The model learned from neighbours on both sides; here it is asked for the next word alone.")
        right: Right | None = None
        if probes := self._probes():
            longest = getattr(self.loaded.model.config, "context", None)
            right = measure_endings(self.loaded, probes, longest, self._hear(lambda: len(probes)))
            measures.append(_endings(right, choice=bool(probes[0].wrong)))
        return self._made(f"{tally.tokens:,} tokens", measures, right, notes=tuple(notes))

    def _masked(self) -> EvaluationFacts:
        from peasy.workbench.measure import measure_masked

        tally = measure_masked(self.loaded, self._pieces(), self._context(), self._hear(self._characters))
        said = "Every seventh word or so was covered, the same ones each time; the model sees both sides."
        return self._made(f"{tally.tokens:,} covered tokens", _tallied(tally), notes=(said,))

    def _translations(self) -> EvaluationFacts:
        from peasy.workbench.measure import measure_translations

        pairs, hear = islice(self._samples(), self.limit), self._hear(self._count)
        tally, scores, exact, wrong = measure_translations(self.loaded, pairs, hear)
        measures = [Measure(name, score, signature) for name, score, signature in scores.scores()]
        measures.append(Measure("exact match", exact.share, "translations that equal the reference", share=True))
        measures += [m for m in _tallied(tally) if m.name != "bits per byte"]
        note = "Translated greedily, at most three times as long as the source."
        return self._made(f"{exact.count:,} pairs", measures, exact, tuple(wrong), (note,))

    def _partners(self) -> EvaluationFacts:
        from peasy.workbench.measure import measure_partners

        samples = islice(self._samples(), self.limit)
        right = measure_partners(self.loaded, samples, self._hear(self._count))
        pairs = self.corpus.kind == "pairs"
        says = "texts whose partner" if pairs else "texts whose nearest neighbour has their label,"
        says += " is the nearest of all" if pairs else " text by text"
        measure = Measure("partner found" if pairs else "label found", right.share, says, share=True)
        note = "Among at most 256 texts at a time."
        return self._made(f"{right.count:,} texts", [measure], right, notes=(note,))

    def _made(
        self,
        counted: str,
        measures: list[Measure],
        right: "Right | None" = None,
        wrong: tuple[tuple[str, str, str], ...] = (),
        notes: tuple[str, ...] = (),
    ) -> EvaluationFacts:
        categories = right.by_category() if right is not None else ()
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
        """Endings to be chosen; a corpus that has none gives none. They are few by design, or made few by `limit`."""
        if self.loaded.kind == "words":
            return []
        return list(islice(chain.from_iterable(map(self.corpus.probes, self._splits())), self.limit or 2_000))

    def _count(self) -> int:
        sizes = self.corpus.surveyed.sizes
        count = sum(sizes[split].documents for split in self._splits())
        return count if self.limit is None else min(count, self.limit)

    def _characters(self) -> int:
        sizes = self.corpus.surveyed.sizes
        return sum(sizes[split].characters for split in self._splits())

    def _hear(self, total: Callable[[], int]) -> Callable[[int], None]:
        """Adds up what was done and tells it; the whole is only counted where somebody listens."""
        return _adding(self.progress, total()) if self.progress is not None else lambda done: None

    def _context(self) -> int:
        """What was asked for; else what the model was trained with, else what it can read, else some."""
        own = getattr(self.loaded.model.config, "context", None)
        if self.context is not None:
            if self.context < 1 or (own is not None and self.context > own):
                raise InvalidInput(f"A context of {self.context} is not possible here.", hint=f"1 to {own or 'any'}.")
            return self.context
        known = [size for size in (own, self._trained("context")) if size]
        return min(known, default=_WINDOW)

    def _trained(self, setting: str) -> Any:
        """What the recipe says, where the model is the checkpoint of a run or came with its recipe."""
        own = self.loaded.folder
        found = next((each for each in (own, own.parent.parent) if (each / RECIPE).is_file()), None) if own else None
        return Folder(found).read_json(RECIPE).get(setting) if found is not None else None


def _adding(progress: Progress, total: int) -> Callable[[int], None]:
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(min(done, total), total)

    return add


def _tallied(tally: "Tally") -> list[Measure]:
    found = [
        Measure("loss", tally.loss, "nats for each token"),
        Measure("perplexity", tally.perplexity, "equally likely tokens to choose between"),
        Measure("accuracy", tally.accuracy, "tokens that the model would have chosen", share=True),
    ]
    if tally.bits_per_byte is not None:
        found.insert(2, Measure("bits per byte", tally.bits_per_byte, "comparable whatever the tokenizer"))
    return found


def _endings(right: "Right", choice: bool) -> Measure:
    if choice:
        return Measure("endings", right.share, "right ending likelier than the other; chance is 50 %", share=True)
    return Measure("endings", right.share, "endings written without one mistake", share=True)


def _known(corpus: Corpus, split: str) -> str:
    if split == "all" or split in corpus.splits:
        return split
    raise InvalidInput(
        f'{corpus.name} has no split "{split}".', hint=f"There are {', '.join((*corpus.splits, 'all'))}."
    )


def _scored_facts(loaded: LoadedModel, path: Path, limit: int | None, progress: Progress | None) -> EvaluationFacts:
    from peasy.workbench.measure import measure_sts

    problems, total = Problems(), path.stat().st_size
    hear = (lambda done: None) if progress is None else _adding(progress, total)
    found, count = measure_sts(loaded, islice(read_scored(path, problems, hear), limit), lambda done: None)
    notes = ["Cosines of the model's vectors against people's scores."]
    if problems:
        where, why = problems.named[0]
        notes.append(f"{problems.count:,} rows could not be used, the first: {where}: {why}.")
    measure = Measure("STS Spearman", found, "1 = the order people give, 0 = none")
    return EvaluationFacts(loaded.name, str(path), "all", f"{count:,} pairs", (measure,), notes=tuple(notes))


def find_scored(data: Data) -> Path | None:
    """The path, if this is a file of two sentences and a score in each row."""
    if not isinstance(data, str | Path) or Path(data).suffix.lower() not in (".tsv", ".jsonl"):
        return None
    path = Path(data)
    if not path.is_file():
        return None
    first = next((line for _, line in read_lines(path, Problems()) if line), "")
    return path if _row(path, first) is not None or first.split("\t")[2:3] == ["score"] else None


def read_scored(path: Path, problems: Problems, hear: Callable[[int], None]) -> Iterator[tuple[str, str, float]]:
    """The rows of such a file: two sentences and a number; `hear` is told how many bytes were read."""
    for number, line in read_lines(path, problems):
        hear(len((line or "").encode()) + 1)
        row = _row(path, line) if line and line.strip() else None
        if row is not None:
            yield row
        elif line and line.strip() and not (number == 1 and line.split("\t")[2:3] == ["score"]):
            problems.add(f"{path}:{number}", "the row is not two sentences and a score")


def _row(path: Path, line: str) -> tuple[str, str, float] | None:
    try:
        if path.suffix.lower() == ".tsv":
            left, right, score = line.split("\t")
        else:
            row = json.loads(line)
            left, right, score = row["source"], row["target"], row["score"]
        number = float(score)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    good = isinstance(left, str) and isinstance(right, str) and left.strip() and right.strip()
    return (left, right, number) if good and math.isfinite(number) else None
