"""Beam search tree as a document: the hypotheses found, and every branch as a row."""

from dataclasses import dataclass

from peasy.views.attention import short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class BeamNode:
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


def beams_document(
    source: str, model: str, num_beams: int, branches: tuple[BeamNode, ...], hypotheses: tuple[tuple[str, float], ...]
) -> Document:
    """Document with the hypotheses, then the tree."""
    hypothesis_rows = tuple((str(index + 1), text, score) for index, (text, score) in enumerate(hypotheses))
    texts = Table(("", "text", "score"), hypothesis_rows, "Hypotheses")
    rows = tuple(
        (str(branch.step), _prefix(branches, index), branch.probability, branch.logprob, _outcome(branch))
        for index, branch in enumerate(branches)
    )
    tree = Table(("token", "hypothesis", "probability", "log-probability", "outcome"), rows, "Every branch")
    note = f"{num_beams} beams: at each step, only the {num_beams} most likely prefixes are kept."
    return Document(short_title(source, model), (Paragraph(note, "note"), texts, tree))


def _prefix(branches: tuple[BeamNode, ...], index: int) -> str:
    pieces: list[str] = []
    while index >= 0:
        pieces.append(branches[index].piece)
        index = branches[index].parent
    return "".join(reversed(pieces))


def _outcome(branch: BeamNode) -> str:
    if branch.rank is None:
        return branch.status
    return "best" if branch.rank == 0 else f"finished, rank {branch.rank + 1}"
