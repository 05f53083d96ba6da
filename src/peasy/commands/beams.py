"""`beams`: beam search as a tree of all kept prefixes and the finished hypotheses."""

from dataclasses import asdict
from math import exp
from typing import Annotated, Literal

from annotated_types import Ge, Le

from peasy.commands.load import LoadedModel
from peasy.commands.result import JsonDict, Result
from peasy.commands.trace import RecordedSteps, prompt_tokens, record_steps
from peasy.generation.request import Ended, Hypothesis, Request
from peasy.generation.sampling_params import BeamSearchParams
from peasy.parameters import Record
from peasy.views.document import Cell, Document, Paragraph, Table, short_title

_TokenIds = tuple[int, ...]


class BeamNode(Record):
    """Node of the beam search tree: one token; `parent` is the index of the previous node, -1 at the root.

    `probability` is that of the token, `logprob` the log-probability of the whole prefix. `status`: extended, pruned or
    finished; a finished hypothesis has a `rank`. `is_best`: part of the best hypothesis.
    """

    parent: int
    step: int
    piece: str
    probability: float
    logprob: float
    status: str
    rank: int | None = None
    is_best: bool = False


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
        ranked = tuple((str(index), text, score) for index, (text, score) in enumerate(self.hypotheses, 1))
        rows: list[tuple[Cell, ...]] = []
        prefixes: dict[int, str] = {-1: ""}  # a parent comes before its children
        for index, one in enumerate(self.branches):
            prefixes[index] = prefixes[one.parent] + one.piece
            outcome = "best" if one.rank == 0 else f"finished, rank {one.rank + 1}" if one.rank else one.status
            rows.append((str(one.step), prefixes[index], one.probability, one.logprob, outcome))
        columns = ("token", "hypothesis", "probability", "log-probability", "outcome")
        tables = Table(("", "text", "score"), ranked, "Hypotheses"), Table(columns, tuple(rows), "Every branch")
        beams = self.num_beams
        note = f"{beams} beams: at each step, only the {beams} most likely prefixes are kept."
        return Document(short_title(self.source, self.model), (Paragraph(note, "note"), *tables))

    def data(self) -> JsonDict:
        """Branches and hypotheses as plain data."""
        texts = [{"text": text, "score": score} for text, score in self.hypotheses]
        return vars(self) | {"hypotheses": texts, "branches": [asdict(branch) for branch in self.branches]}

    def __repr__(self) -> str:
        return f"BeamTreeResult({self.model}: {len(self.branches)} branches, {self.best!r})"


def beams(
    model: LoadedModel,
    text: str,
    *,
    num_beams: Annotated[int, Ge(1)] = 4,
    max_tokens: Annotated[int, Ge(1)] | None = None,
    length_penalty: Annotated[float, Ge(-10), Le(10)] = 1.0,
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic",
) -> BeamTreeResult:
    """Run beam search and keep every prefix that was extended, as a tree of all hypotheses.

    Args:
        model: The model.
        text: Text to translate or continue.
        num_beams: Number of beams.
        max_tokens: Maximum number of tokens; default: 3 * prompt length + 16, within the context.
        length_penalty: Length penalty; above 0 favours longer texts.
        early_stopping: Stop at the first finished hypotheses, by a heuristic, or only when no better one is possible.
    """
    source, prompt = prompt_tokens(model, text)
    context = model.max_seq_len or 10**9
    max_new_tokens = max_tokens or min(3 * len(source or prompt) + 16, max(context - len(prompt), 1))
    params = BeamSearchParams(num_beams, max_new_tokens, length_penalty, num_beams, early_stopping)
    request = Request(prompt.ids, source=None if source is None else source.ids, beam_search=params)
    steps: RecordedSteps = {}
    (ended,) = (event for event in record_steps(model, request, steps) if isinstance(event, Ended))
    tokenizer = model.output_tokenizer()
    texts = tuple((tokenizer.decode_continuation(prompt.ids, one.ids), one.score) for one in ended.hypotheses)
    tree = _build_beam_tree(model, steps, prompt.ids, ended.hypotheses)
    return BeamTreeResult(model.name, text, num_beams, tree, texts)


def _build_beam_tree(
    loaded: LoadedModel, steps: RecordedSteps, prompt_ids: _TokenIds, hypotheses: tuple[Hypothesis, ...]
) -> tuple[BeamNode, ...]:
    """Return the tree of all prefixes that continue the prompt, and of the finished hypotheses."""
    ranks = {hypothesis.ids: rank for rank, hypothesis in enumerate(hypotheses)}
    extended = [ids[len(prompt_ids) :] for ids in steps if len(ids) > len(prompt_ids)]
    prefixes = sorted({*extended, *ranks}, key=lambda ids: (len(ids), ids))
    indices: dict[_TokenIds, int] = {(): -1}
    best_ids = hypotheses[0].ids
    branches: list[BeamNode] = []
    totals: dict[_TokenIds, float] = {(): 0.0}
    parents = {ids[:-1] for ids in prefixes}
    for ids in prefixes:
        logprob = float(steps[(*prompt_ids, *ids[:-1])].logits[ids[-1]])
        totals[ids], indices[ids] = totals[ids[:-1]] + logprob, len(branches)
        rank = ranks.get(ids)
        status = "finished" if rank is not None else "extended" if ids in parents else "pruned"
        is_best = ids == best_ids[: len(ids)]
        piece = loaded.output_tokenizer().piece(ids[-1])
        branches.append(BeamNode(indices[ids[:-1]], len(ids), piece, exp(logprob), totals[ids], status, rank, is_best))
    return tuple(branches)
