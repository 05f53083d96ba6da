"""A beam search as a document: the texts that were found, and every branch of the tree as a row."""

from dataclasses import dataclass

from peasy.views.attention import short_title
from peasy.views.document import Document, Paragraph, Table


@dataclass(frozen=True)
class Branch:
    """One token of a beginning: `parent` is the place of the branch before it, -1 at the root.

    `chance` is the token's own, `logprob` the whole beginning's. `fate`: went on, dropped, ended; one that ended has
    its `rank` among the texts. `best`: it is part of the text that won.
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
    """What was found first, then the tree."""
    listed = tuple((str(at + 1), text, score) for at, (text, score) in enumerate(found))
    texts = Table(("", "text", "score"), listed, "Found")
    each = enumerate(branches)
    rows = tuple((str(b.step), _beginning(branches, at), b.chance, b.logprob, _fate(b)) for at, b in each)
    tree = Table(("token", "beginning", "its chance", "log-probability", "what became of it"), rows, "Every branch")
    note = f"{width} beams: of all ways to go on, so many beginnings are kept at each step, the likeliest."
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
    return "won" if branch.rank == 0 else f"ended, rank {branch.rank + 1}"
