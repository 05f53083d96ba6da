"""Beam search tree as a document: the hypotheses found, and every branch as a row."""

from dataclasses import dataclass

from peasy.views.attention import short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class Branch:
    """Node of the beam search tree: one token; `parent` is the index of the previous branch, -1 at the root.

    `chance` is the probability of the token, `logprob` the log-probability of the whole prefix. `fate`: went on,
    dropped, ended; a finished hypothesis has a `rank`. `best`: part of the best hypothesis.
    """

    parent: int
    step: int
    piece: str
    chance: float
    logprob: float
    fate: str
    rank: int | None = None
    best: bool = False


def beams_document(
    source: str, model: str, width: int, branches: tuple[Branch, ...], found: tuple[tuple[str, float], ...]
) -> Document:
    """Document with the hypotheses, then the tree."""
    hypothesis_rows = tuple((str(index + 1), text, score) for index, (text, score) in enumerate(found))
    texts = Table(("", "text", "score"), hypothesis_rows, "Hypotheses")
    rows = tuple(
        (str(branch.step), _beginning(branches, index), branch.chance, branch.logprob, _fate(branch))
        for index, branch in enumerate(branches)
    )
    tree = Table(("token", "hypothesis", "probability", "log-probability", "outcome"), rows, "Every branch")
    note = f"{width} beams: at each step, only the {width} most likely prefixes are kept."
    return Document(short_title(source, model), (Paragraph(note, "note"), texts, tree))


def _beginning(branches: tuple[Branch, ...], at: int) -> str:
    pieces: list[str] = []
    while at >= 0:
        pieces.append(branches[at].piece)
        at = branches[at].parent
    return "".join(reversed(pieces))


def _fate(branch: Branch) -> str:
    if branch.rank is None:
        return branch.fate
    return "best" if branch.rank == 0 else f"finished, rank {branch.rank + 1}"
