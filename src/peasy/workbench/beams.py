"""`beams`: beam search as a tree of all kept prefixes and the finished hypotheses."""

from dataclasses import asdict, dataclass
from math import exp
from typing import TYPE_CHECKING, Any, cast

from peasy.views.beams import Branch, beams_document
from peasy.views.document import Document
from peasy.workbench.load import LoadedModel
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.generation.beam import Hypothesis
    from peasy.looking.trace import Traced

Ids = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class BeamsResult(Result):
    """Beam search tree: `branches` with parents before children; `found` holds (text, score), best first."""

    model: str
    source: str
    width: int
    branches: tuple[Branch, ...]
    found: tuple[tuple[str, float], ...]

    @property
    def best(self) -> str:
        """The text with the best score."""
        return self.found[0][0]

    def document(self) -> Document:
        """The hypotheses, and every branch as a row."""
        return beams_document(self.source, self.model, self.width, self.branches, self.found)

    def data(self) -> dict[str, Any]:
        """Branches and hypotheses as plain data."""
        texts = [{"text": text, "score": score} for text, score in self.found]
        branches = [asdict(branch) for branch in self.branches]
        return {"model": self.model, "source": self.source, "width": self.width, "found": texts, "branches": branches}

    def __repr__(self) -> str:
        return f"BeamsResult({self.model}: {len(self.branches)} branches, {self.best!r})"


def beams(loaded: LoadedModel, text: str, *, beam: int = 4, max_tokens: int | None = None, **how: Any) -> BeamsResult:
    """Run beam search with `beam` beams and keep every prefix that was extended.

    `how`: length_penalty and patience. `max_tokens` defaults to 3 * prompt length + 16, within the model's context.
    """
    from peasy.generation.beam import Beams, search
    from peasy.looking.trace import Traced
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    context = getattr(loaded.model.config, "context", None) or 10**9
    max_new_tokens = max_tokens or min(3 * len(source or prompt) + 16, max(context - len(prompt), 1))
    traced = Traced(loaded.model, top=0, candidates=1, layers=[])
    settings = Beams(width=beam, n=beam, max_tokens=max_new_tokens, **how)
    source_ids = None if source is None else [list(source.ids)]
    result = search(cast(Any, traced), [list(prompt.ids)], settings, source=source_ids)[0]
    if result.error is not None:
        raise result.error
    tokenizer = loaded.answers()
    texts = tuple((tokenizer.decode(hypothesis.ids), hypothesis.score) for hypothesis in result.best)
    return BeamsResult(loaded.name, text, beam, grow(loaded, traced, prompt.ids, result.best), texts)


def grow(loaded: LoadedModel, traced: "Traced", start: Ids, found: "tuple[Hypothesis, ...]") -> tuple[Branch, ...]:
    """Return the tree of all prefixes that continue the prompt `start`, and of the finished hypotheses."""
    ranks = {hypothesis.ids: rank for rank, hypothesis in enumerate(found)}
    extended = [ids[len(start) :] for ids in traced.seen if len(ids) > len(start)]
    prefixes = sorted({*extended, *ranks}, key=lambda ids: (len(ids), ids))
    indices: dict[Ids, int] = {(): -1}
    best_ids = found[0].ids
    branches: list[Branch] = []
    totals: dict[Ids, float] = {(): 0.0}
    parents = {ids[:-1] for ids in prefixes}
    for ids in prefixes:
        logprob = float(traced.seen[(*start, *ids[:-1])].logs[ids[-1]])
        totals[ids], indices[ids] = totals[ids[:-1]] + logprob, len(branches)
        rank = ranks.get(ids)
        fate = "ended" if rank is not None else "went on" if ids in parents else "dropped"
        is_best = ids == best_ids[: len(ids)]
        piece = loaded.answers().piece(ids[-1])
        branches.append(Branch(indices[ids[:-1]], len(ids), piece, exp(logprob), totals[ids], fate, rank, is_best))
    return tuple(branches)
