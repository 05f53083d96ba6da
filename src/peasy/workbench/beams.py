"""`beams`: a beam search as a tree: every beginning that was kept, what became of it, and the texts it ended in."""

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
    """The tree: `branches` with parents before children, and the texts that were found, best first."""

    model: str
    source: str
    width: int
    branches: tuple[Branch, ...]
    found: tuple[tuple[str, float], ...]

    @property
    def best(self) -> str:
        """The text that won."""
        return self.found[0][0]

    def document(self) -> Document:
        """What was found, and every branch as a row."""
        return beams_document(self.source, self.model, self.width, self.branches, self.found)

    def data(self) -> dict[str, Any]:
        """Branches and texts as plain data."""
        found = [{"text": text, "score": score} for text, score in self.found]
        branches = [asdict(each) for each in self.branches]
        return {"model": self.model, "source": self.source, "width": self.width, "found": found, "branches": branches}

    def __repr__(self) -> str:
        return f"BeamsResult({self.model}: {len(self.branches)} branches, {self.best!r})"


def beams(loaded: LoadedModel, text: str, *, beam: int = 4, max_tokens: int | None = None, **how: Any) -> BeamsResult:
    """Search with `beam` beams, and keep every beginning that was ever gone on with.

    `how`: length_penalty and patience. A translator may write three times as many tokens as its source has, and a few.
    """
    from peasy.generation.beam import Beams, search
    from peasy.looking.trace import Traced
    from peasy.workbench.trace import start_of

    source, prompt = start_of(loaded, text)
    context = getattr(loaded.model.config, "context", None) or 10**9
    most = max_tokens or min(3 * len(source or prompt) + 16, max(context - len(prompt), 1))
    traced = Traced(loaded.model, top=0, candidates=1, layers=[])
    settings = Beams(width=beam, n=beam, max_tokens=most, **how)
    given = None if source is None else [list(source.ids)]
    found = search(cast(Any, traced), [list(prompt.ids)], settings, source=given)[0]
    if found.error is not None:
        raise found.error
    words = loaded.answers()
    texts = tuple((words.decode(one.ids), one.score) for one in found.best)
    return BeamsResult(loaded.name, text, beam, grow(loaded, traced, prompt.ids, found.best), texts)


def grow(loaded: LoadedModel, traced: "Traced", start: Ids, found: "tuple[Hypothesis, ...]") -> tuple[Branch, ...]:
    """The tree of all that was read after `start`, and of the texts that ended."""
    ended = {one.ids: rank for rank, one in enumerate(found)}
    read = [ids[len(start) :] for ids in traced.seen if len(ids) > len(start)]
    alive = sorted({*read, *ended}, key=lambda ids: (len(ids), ids))
    places: dict[Ids, int] = {(): -1}
    winner = found[0].ids
    branches: list[Branch] = []
    totals: dict[Ids, float] = {(): 0.0}
    parents = {ids[:-1] for ids in alive}
    for ids in alive:
        log = float(traced.seen[(*start, *ids[:-1])].logs[ids[-1]])
        totals[ids], places[ids] = totals[ids[:-1]] + log, len(branches)
        rank = ended.get(ids)
        fate = "ended" if rank is not None else "went on" if ids in parents else "dropped"
        best = ids == winner[: len(ids)]
        piece = loaded.answers().piece(ids[-1])
        branches.append(Branch(places[ids[:-1]], len(ids), piece, exp(log), totals[ids], fate, rank, best))
    return tuple(branches)
