"""`beams`: beam search as a tree of all kept prefixes and the finished hypotheses."""

from dataclasses import asdict, dataclass
from math import exp
from typing import TYPE_CHECKING, Any, cast

from peasy.commands.load import LoadedModel
from peasy.commands.result import Result
from peasy.errors import check_keywords
from peasy.views.beams import BeamNode, beams_document
from peasy.views.document import Document

if TYPE_CHECKING:
    from peasy.generation.beam_search import Hypothesis
    from peasy.inspection.trace import TracingModel

TokenIds = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class BeamTreeResult(Result):
    """Beam search tree: `branches` with parents before children; `hypotheses` are (text, score), best first."""

    model: str
    source: str
    num_beams: int
    branches: tuple[BeamNode, ...]
    hypotheses: tuple[tuple[str, float], ...]

    @property
    def best(self) -> str:
        """The text with the best score."""
        return self.hypotheses[0][0]

    def document(self) -> Document:
        """The hypotheses, and every branch as a row."""
        return beams_document(self.source, self.model, self.num_beams, self.branches, self.hypotheses)

    def data(self) -> dict[str, Any]:
        """Branches and hypotheses as plain data."""
        texts = [{"text": text, "score": score} for text, score in self.hypotheses]
        branches = [asdict(branch) for branch in self.branches]
        return {
            "model": self.model,
            "source": self.source,
            "num_beams": self.num_beams,
            "hypotheses": texts,
            "branches": branches,
        }

    def __repr__(self) -> str:
        return f"BeamTreeResult({self.model}: {len(self.branches)} branches, {self.best!r})"


def beams(
    loaded: LoadedModel, text: str, *, num_beams: int = 4, max_tokens: int | None = None, **options: Any
) -> BeamTreeResult:
    """Run beam search with `num_beams` beams and keep every prefix that was extended.

    `options`: length_penalty and early_stopping. `max_tokens` defaults to 3 * prompt length + 16, within the context.
    """
    from peasy.commands.trace import prompt_tokens
    from peasy.generation.beam_search import BeamSearchParams, beam_search
    from peasy.inspection.trace import TracingModel

    source, prompt = prompt_tokens(loaded, text)
    context = getattr(loaded.model.config, "max_seq_len", None) or 10**9
    max_new_tokens = max_tokens or min(3 * len(source or prompt) + 16, max(context - len(prompt), 1))
    traced = TracingModel(loaded.model, top_keys=0, top_tokens=1, layers=[])
    check_keywords("beams", options, ("num_beams", "max_tokens", "length_penalty", "early_stopping"))
    settings = BeamSearchParams(num_beams=num_beams, n=num_beams, max_tokens=max_new_tokens, **options)
    source_ids = None if source is None else [list(source.ids)]
    result = beam_search(cast(Any, traced), [list(prompt.ids)], settings, source=source_ids)[0]
    if result.error is not None:
        raise result.error
    tokenizer = loaded.output_tokenizer()
    texts = tuple((tokenizer.decode(hypothesis.ids), hypothesis.score) for hypothesis in result.hypotheses)
    return BeamTreeResult(
        loaded.name, text, num_beams, build_beam_tree(loaded, traced, prompt.ids, result.hypotheses), texts
    )


def build_beam_tree(
    loaded: LoadedModel, model: "TracingModel", prompt_ids: TokenIds, hypotheses: "tuple[Hypothesis, ...]"
) -> tuple[BeamNode, ...]:
    """Return the tree of all prefixes that continue the prompt, and of the finished hypotheses."""
    ranks = {hypothesis.ids: rank for rank, hypothesis in enumerate(hypotheses)}
    extended = [ids[len(prompt_ids) :] for ids in model.steps if len(ids) > len(prompt_ids)]
    prefixes = sorted({*extended, *ranks}, key=lambda ids: (len(ids), ids))
    indices: dict[TokenIds, int] = {(): -1}
    best_ids = hypotheses[0].ids
    branches: list[BeamNode] = []
    totals: dict[TokenIds, float] = {(): 0.0}
    parents = {ids[:-1] for ids in prefixes}
    for ids in prefixes:
        logprob = float(model.steps[(*prompt_ids, *ids[:-1])].logprobs[ids[-1]])
        totals[ids], indices[ids] = totals[ids[:-1]] + logprob, len(branches)
        rank = ranks.get(ids)
        status = "finished" if rank is not None else "extended" if ids in parents else "pruned"
        is_best = ids == best_ids[: len(ids)]
        piece = loaded.output_tokenizer().piece(ids[-1])
        branches.append(BeamNode(indices[ids[:-1]], len(ids), piece, exp(logprob), totals[ids], status, rank, is_best))
    return tuple(branches)
