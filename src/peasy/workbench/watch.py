"""Generation stream with attention, next-token probabilities before and after sampling, and savings of the KV cache."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from peasy.looking.label import CAVEAT
from peasy.looking.record import Candidate, TraceStep
from peasy.views.document import Document, Paragraph, Table
from peasy.views.writing import CacheStep, cache_parts
from peasy.workbench.load import LoadedModel
from peasy.workbench.result import Result


@dataclass(frozen=True, eq=False)
class Start:
    """First event: pieces and ids before the first generated token, and the pieces of a translator's source."""

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    source: tuple[str, ...] = ()
    caveat: str = CAVEAT


@dataclass(frozen=True)
class Stop:
    """Last event. Reason: the model ended the text ("end") or the maximum length was reached ("length")."""

    reason: str


def watch(
    loaded: LoadedModel,
    text: str,
    *,
    written: Sequence[int] = (),
    max_tokens: int = 20,
    top: int | None = 8,
    candidates: int = 8,
    **sampling: Any,
) -> Iterator[Start | TraceStep | Stop]:
    """Generate after a prompt and `written` tokens, yielding each token with its attention; closing it stops.

    The `top` keys of each head are reported, None = all. `sampling` as in generate: temperature, top_k, top_p, ...
    """
    from peasy.generation.decode import decode
    from peasy.generation.request import Ended, Token
    from peasy.generation.sampling import Sampling
    from peasy.looking.trace import Traced
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    traced = Traced(loaded.model, top=top, candidates=candidates)
    context, score = (*prompt.ids, *written), 0.0
    yield Start(_pieces(loaded, context), context, () if source is None else source.pieces)
    source_ids = None if source is None else [list(source.ids)]
    params = Sampling(max_tokens=max_tokens, **sampling)
    for event in decode(cast(Any, traced), [list(context)], params, source=source_ids):
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            yield Stop(event.reason)
        elif isinstance(event, Token):
            step = _step(loaded, traced, context, event.chosen.id, score)
            context, score = (*context, event.chosen.id), step.score
            yield step


def _step(loaded: LoadedModel, traced: Any, read: tuple[int, ...], id: int, score: float) -> TraceStep:
    from math import exp

    step, tokenizer = traced.seen.pop(read), loaded.answers()
    logprob = float(step.logs[id])
    best = tuple(Candidate(tokenizer.piece(other), other, exp(value)) for other, value in step.best)
    attention = (step.looked, step.computed, step.reused)
    return TraceStep(id, tokenizer.piece(id), exp(logprob), score + logprob, best, *attention)


def _pieces(loaded: LoadedModel, ids: Sequence[int]) -> tuple[str, ...]:
    tokenizer = loaded.answers()
    return tuple(tokenizer.piece(id) for id in ids)


@dataclass(frozen=True)
class Choice:
    """Candidate for the next token: its probability before and after temperature, top-k and top-p; 0 = cut off."""

    piece: str
    id: int
    chance: float
    bent: float


@dataclass(frozen=True)
class ChancesResult(Result):
    """Most likely next tokens before and after temperature, top-k and top-p; `kept` tokens can still be sampled."""

    name: str
    choices: tuple[Choice, ...]
    kept: int
    vocabulary: int
    rest: tuple[float, float]

    def document(self) -> Document:
        """Return a table with one row per token."""
        rows = tuple((choice.piece, choice.chance, choice.bent) for choice in self.choices)
        columns = ("token", "model probability", "sampling probability")
        table = Table(columns, (*rows, ("all others", *self.rest)))
        kept = f"{self.kept:,} of {self.vocabulary:,} tokens can be sampled."
        return Document(f"Next token of {self.name}", (table, Paragraph(kept)))

    def data(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self) | {"rest": list(self.rest)}


def weigh(
    loaded: LoadedModel, text: str, *, written: Sequence[int] = (), best: int = 12, **sampling: Any
) -> ChancesResult:
    """Return the probabilities of the next token after a prompt and `written` tokens, before and after `sampling`."""
    import torch

    from peasy.generation.sampling import Chooser, Sampling

    logits = _scores(loaded, text, written).float().cpu()
    before = torch.softmax(logits.double(), dim=-1)
    after = Chooser(Sampling(**sampling)).probabilities(logits)
    top = before.topk(min(best, len(before))).indices.tolist()
    tokenizer = loaded.answers()
    choices = tuple(Choice(tokenizer.piece(id), id, float(before[id]), float(after[id])) for id in top)
    rest = (max(0.0, 1 - sum(one.chance for one in choices)), max(0.0, 1 - sum(one.bent for one in choices)))
    return ChancesResult(loaded.name, choices, int((after > 0).sum()), len(before), rest)


def _scores(loaded: LoadedModel, text: str, written: Sequence[int]) -> Any:
    """Return the next-token logits after a prompt: one forward pass, nothing sampled."""
    import torch

    from peasy.generation.prompt import check_ids, fit, writing_vocabulary
    from peasy.generation.sampling import Sampling
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    model, ids = loaded.model, [*prompt.ids, *written]
    check_ids(ids, writing_vocabulary(model))
    with torch.inference_mode():
        encoder_inputs: dict[str, Any] = (
            {} if source is None else {"source": torch.tensor([source.ids], device=model.device)}
        )
        return model.read([fit(model, ids, Sampling(max_tokens=1))], [model.start(**encoder_inputs)])[0]


@dataclass(frozen=True)
class CacheResult(Result):
    """Each generated token with and without the KV cache: work, time, and the largest difference of the logits."""

    name: str
    prompt: tuple[str, ...]
    steps: tuple[CacheStep, ...]

    def document(self) -> Document:
        """Return the cache as a figure and a table, and its savings in a sentence."""
        return Document(f"Savings of the KV cache: {self.name}", cache_parts(self.prompt, self.steps))

    def data(self) -> dict[str, Any]:
        """Return the steps and their totals."""
        total = {
            name: sum(getattr(step, name) for step in self.steps)
            for name in ("work", "work_without", "ms", "ms_without", "computed", "reused")
        }
        difference = max((step.apart for step in self.steps), default=0.0)
        return {"steps": [asdict(step) for step in self.steps], "total": total | {"apart": difference}}


def saving(loaded: LoadedModel, text: str, written: Sequence[int]) -> CacheResult:
    """Run prompt and generated tokens again, each step once with and once without the KV cache."""
    from peasy.errors import InvalidInput
    from peasy.generation.prompt import begin_one, check_ids
    from peasy.generation.saving import compare

    if not written:
        raise InvalidInput("Nothing was generated yet.", hint="Generate some tokens first.")
    prompt = begin_one(loaded.model, loaded.prompt(text))
    check_ids([*prompt, *written], loaded.model.config.vocabulary)
    pieces = _pieces(loaded, written)
    steps = tuple(
        CacheStep(
            piece, step.kept, step.new, step.work, step.work_without, 1e3 * step.seconds, 1e3 * step.seconds_without,
            step.apart,
        )
        for piece, step in zip(pieces, compare(loaded.model, prompt, written), strict=True)
    )  # fmt: skip
    return CacheResult(loaded.name, _pieces(loaded, prompt), steps)
