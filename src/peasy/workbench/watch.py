"""Writing, watched: each token as it comes, with its candidates and where each head looked; the chances that a person
bends before one is drawn; and what the cache saved."""

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
    """What stands before the first written token: its `pieces` and ids, and those of a translator's source."""

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    source: tuple[str, ...] = ()
    caveat: str = CAVEAT


@dataclass(frozen=True)
class Stop:
    """Why the text ended: the model ended it ("end") or it is as long as it may be ("length")."""

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
    """Write on after a text and `written` tokens, telling every token as it comes; closing the iterator stops the work.

    `top` keys of each head are told, None = all. `sampling` as in generate: temperature, top_k, top_p, seed, ...
    """
    from peasy.generation.decode import decode
    from peasy.generation.request import Ended, Token
    from peasy.generation.sampling import Sampling
    from peasy.looking.trace import Traced
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    traced = Traced(loaded.model, top=top, candidates=candidates)
    read, score = (*prompt.ids, *written), 0.0
    yield Start(_pieces(loaded, read), read, () if source is None else source.pieces)
    asked = None if source is None else [list(source.ids)]
    chosen = Sampling(max_tokens=max_tokens, **sampling)
    for event in decode(cast(Any, traced), [list(read)], chosen, source=asked):
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            yield Stop(event.reason)
        elif isinstance(event, Token):
            step = _step(loaded, traced, read, event.chosen.id, score)
            read, score = (*read, event.chosen.id), step.score
            yield step


def _step(loaded: LoadedModel, traced: Any, read: tuple[int, ...], id: int, score: float) -> TraceStep:
    from math import exp

    glimpse, answers = traced.seen.pop(read), loaded.answers()
    log = float(glimpse.logs[id])
    best = tuple(Candidate(answers.piece(each), each, exp(value)) for each, value in glimpse.best)
    looked = (glimpse.looked, glimpse.computed, glimpse.reused)
    return TraceStep(id, answers.piece(id), exp(log), score + log, best, *looked)


def _pieces(loaded: LoadedModel, ids: Sequence[int]) -> tuple[str, ...]:
    tokenizer = loaded.answers()
    return tuple(tokenizer.piece(id) for id in ids)


@dataclass(frozen=True)
class Choice:
    """A token that could come next: the model's own chance, and the chance after it was bent; 0 = cut off."""

    piece: str
    id: int
    chance: float
    bent: float


@dataclass(frozen=True)
class ChancesResult(Result):
    """The likeliest next tokens, before and after temperature, top-k and top-p; `kept` tokens can still be drawn."""

    name: str
    choices: tuple[Choice, ...]
    kept: int
    vocabulary: int
    rest: tuple[float, float]

    def document(self) -> Document:
        """One row for each token."""
        rows = tuple((each.piece, each.chance, each.bent) for each in self.choices)
        listed = Table(("token", "the model's chance", "chance after"), (*rows, ("all others", *self.rest)))
        said = f"{self.kept:,} of {self.vocabulary:,} tokens can be drawn."
        return Document(f"What {self.name} could say next", (listed, Paragraph(said)))

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"rest": list(self.rest)}


def weigh(
    loaded: LoadedModel, text: str, *, written: Sequence[int] = (), best: int = 12, **sampling: Any
) -> ChancesResult:
    """What could come after a text and `written` tokens, and what `sampling` makes of it."""
    import torch

    from peasy.generation.sampling import Chooser, Sampling

    scores = _scores(loaded, text, written).float().cpu()
    chances = torch.softmax(scores.double(), dim=-1)
    bent = Chooser(Sampling(**sampling)).probabilities(scores)
    top = chances.topk(min(best, len(chances))).indices.tolist()
    answers = loaded.answers()
    choices = tuple(Choice(answers.piece(id), id, float(chances[id]), float(bent[id])) for id in top)
    rest = (max(0.0, 1 - sum(each.chance for each in choices)), max(0.0, 1 - sum(each.bent for each in choices)))
    return ChancesResult(loaded.name, choices, int((bent > 0).sum()), len(chances), rest)


def _scores(loaded: LoadedModel, text: str, written: Sequence[int]) -> Any:
    """The scores of all tokens after a text: one pass, nothing chosen."""
    import torch

    from peasy.generation.prompt import check_ids, fit, writing_vocabulary
    from peasy.generation.sampling import Sampling
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    model, ids = loaded.model, [*prompt.ids, *written]
    check_ids(ids, writing_vocabulary(model))
    with torch.inference_mode():
        given: dict[str, Any] = {} if source is None else {"source": torch.tensor([source.ids], device=model.device)}
        return model.read([fit(model, ids, Sampling(max_tokens=1))], [model.start(**given)])[0]


@dataclass(frozen=True)
class CacheResult(Result):
    """Each written token with and without the cache: what was computed, how long it took, whether the scores agree."""

    name: str
    prompt: tuple[str, ...]
    steps: tuple[CacheStep, ...]

    def document(self) -> Document:
        """The cache as a picture and a table, and what it saved in a sentence."""
        return Document(f"What the cache of {self.name} saves", cache_parts(self.prompt, self.steps))

    def data(self) -> dict[str, Any]:
        """Steps, and their sums."""
        total = {
            name: sum(getattr(step, name) for step in self.steps)
            for name in ("work", "work_without", "ms", "ms_without", "computed", "reused")
        }
        apart = max((step.apart for step in self.steps), default=0.0)
        return {"steps": [asdict(step) for step in self.steps], "total": total | {"apart": apart}}


def saving(loaded: LoadedModel, text: str, written: Sequence[int]) -> CacheResult:
    """Read a text and what was written after it again, each step once with the cache and once without."""
    from peasy.errors import InvalidInput
    from peasy.generation.prompt import begin_one, check_ids
    from peasy.generation.saving import compare

    if not written:
        raise InvalidInput("Nothing was written yet.", hint="Let the model write some tokens first.")
    prompt = begin_one(loaded.model, loaded.prompt(text))
    check_ids([*prompt, *written], loaded.model.config.vocabulary)
    pieces = _pieces(loaded, written)
    told = tuple(
        CacheStep(
            piece, step.kept, step.new, step.work, step.work_without, 1e3 * step.seconds, 1e3 * step.seconds_without,
            step.apart,
        )
        for piece, step in zip(pieces, compare(loaded.model, prompt, written), strict=True)
    )  # fmt: skip
    return CacheResult(loaded.name, _pieces(loaded, prompt), told)
