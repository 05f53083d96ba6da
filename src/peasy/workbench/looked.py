"""What a look gives back: weights by layer and head with their words, and everything that can be asked of them next."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.errors import InvalidInput, NotFound
from peasy.looking.edit import Edit
from peasy.looking.label import Grid
from peasy.looking.question import Question
from peasy.looking.record import Capture, Look
from peasy.looking.words import find_word, merge, words_there
from peasy.nn.place import Place
from peasy.views.attention import look_document
from peasy.views.document import Document
from peasy.views.query import BriefLook, HeadLine, QueryLook, brief_document, query_document
from peasy.workbench.aligner import aligning_head
from peasy.workbench.finding import Finding, plain
from peasy.workbench.load import LoadedModel
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.nn.edit import Change
    from peasy.workbench.passage import Passage

MOST = 250_000
"""So many numbers of weights go into JSON; more are left to .npz."""


@dataclass(frozen=True, eq=False)
class Heads:
    """One step of one attention: `heads[layer, head]` is a labelled table, `np.asarray(heads)` all of them stacked.

    `words` merges sub-words, `scaled` multiplies weights by the size of the values they carry.
    """

    look: Look
    step: str
    stack: str
    part: str
    words: bool = False
    scaled: bool = False

    def _captures(self) -> dict[int, Capture]:
        there = self.look.of(self.step)
        found = {p.layer: capture for p, capture in there.items() if (p.stack, p.part) == (self.stack, self.part)}
        if not found:
            where = f"{self.stack} {self.part}".replace("_", "-")
            raise NotFound(f"No {self.step} of {where} were looked at.", hint=f'Ask for them: steps=["{self.step}"].')
        return found

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that were looked at."""
        return tuple(self._captures())

    @property
    def by_words(self) -> "Heads":
        """The same by words: summed over the tokens of a key, averaged over those of a query."""
        return replace(self, words=True)

    def __getitem__(self, at: tuple[int, int]) -> Grid:
        if not isinstance(at, tuple) or len(at) != 2:
            raise InvalidInput("Weights are asked for by layer and head.", hint="For example x.weights[2, 3].")
        layer, head = at
        captures = self._captures()
        if layer not in captures:
            raise NotFound(f"Layer {layer} was not looked at.", hint=f"There is {_listed(captures)}.")
        capture = captures[layer]
        if head not in capture.heads:
            raise NotFound(f"Head {head} was not looked at.", hint=f"There is {_listed(capture.heads)}.")
        return self._grid(capture, capture.heads.index(head), head)

    def _grid(self, capture: Capture, index: int, head: int) -> Grid:
        queries, keys = self.look.axes(capture.place)
        array = (capture.scaled() if self.scaled else capture.array)[index]
        name = f"layer {capture.place.layer}, head {head}"
        if self.step not in ("scores", "scaled", "masked", "weights"):
            own = keys.pieces if self.step in ("key", "value") else tuple(queries.pieces[r] for r in capture.rows or ())
            return Grid(array, own, tuple(map(str, range(array.shape[-1]))), "token", "dimension", name)
        if self.words:
            merged = merge(array, queries, keys, capture.rows)
            return Grid(merged, words_there(queries, capture.rows), keys.words, name=name)
        return Grid(array, tuple(queries.pieces[row] for row in capture.rows or ()), keys.pieces, name=name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([[self[layer, head] for head in c.heads] for layer, c in self._captures().items()], dtype=dtype)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((layer, head) for layer, capture in self._captures().items() for head in capture.heads)

    def __len__(self) -> int:
        return sum(len(capture.heads) for capture in self._captures().values())


class LookResult(Result):
    """What was asked of one text through one model. The plain arrays are in `.look`, with all that labels them.

    `.text` is the sentence; `str(x)` is the drawing.
    """

    text: str  # type: ignore[assignment]

    def __init__(
        self,
        look: Look,
        loaded: LoadedModel,
        passage: "Passage",
        question: Question,
        edits: tuple[Edit, ...],
        change: "Change | None",
        scores: np.ndarray | None,
        scaled: bool = False,
        words: bool = False,
    ) -> None:
        self.look, self.loaded, self.passage, self.question = look, loaded, passage, question
        self.edits, self.change, self.scores = edits, change, scores
        self.scaled, self.words = scaled, words
        self.text = look.tokens.text

    @property
    def _stack(self) -> str:
        return "encoder" if self.look.kind == "encoder" else "decoder"

    @property
    def weights(self) -> Heads:
        """Self-attention of the text, or of a translator's answer: `x.weights[layer, head]`.

        A recurrent translator has none: there it is the attention to the source.
        """
        part = "attention" if any(not part.cross for part in self.look.parts) else "cross_attention"
        return Heads(self.look, "weights", self._stack, part)

    @property
    def contributions(self) -> Heads:
        """The same weights, each times the length of the value that it carries."""
        return replace(self.weights, scaled=True)

    @property
    def cross(self) -> Heads:
        """Where a translator's answer looked into the source."""
        return Heads(self.look, "weights", "decoder", "cross_attention")

    @property
    def source(self) -> Heads:
        """Self-attention of a translator's source."""
        return Heads(self.look, "weights", "encoder", "attention")

    def step(self, name: str, part: str = "attention", stack: str | None = None) -> Heads:
        """Another step of the formula, by layer and head: scores, scaled, masked, context, query, key, value."""
        return Heads(self.look, name, stack or self._stack, part)

    def stream(self, name: str = "residual", layer: int | None = None, part: str | None = None) -> Grid:
        """A step outside attention, `[token, dimension]`: residual, normed, activation, output, final, logits.

        None = the first layer and part that were looked at, of the text that the model writes on.
        """
        steps = [c for c in self.look.captures if c.step == name and c.place.stack == self._stack]
        steps = steps or [c for c in self.look.captures if c.step == name]
        found = [c for c in steps if layer in (None, c.place.layer) and (part is None or part in c.place.part)]
        if not found:
            where = "" if layer is None else f" of layer {layer}"
            raise NotFound(f"No {name}{where} was looked at.", hint=f'Ask for it: steps=["{name}"].')
        first = found[0]
        queries, _ = self.look.axes(first.place)
        rows = tuple(queries.pieces[row] for row in first.rows or range(len(queries)))
        columns = self._columns(name, first.array.shape[-1])
        return Grid(first.array, rows, columns, "token", "dimension", f"{name}, layer {first.place.layer}")

    def _columns(self, name: str, count: int) -> tuple[str, ...]:
        """Scores are of words, everything else has only numbers."""
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        if name != "logits" or tokenizer is None:
            return tuple(map(str, range(count)))
        return tuple(tokenizer.piece(id) if id < len(tokenizer) else f"#{id}" for id in range(count))

    def heads(self, query: str | int, top: int = 5) -> Finding:
        """What a word looked at, in every head that was looked at: its `top` largest weights."""
        lines = [
            line
            for place, capture in self.look.of("weights").items()
            for line in self._lines(place, capture, query, top)
        ]
        if not lines:
            raise NotFound(f'"{query}" was not among the rows that were looked at.', hint="Look again without rows=.")
        found = QueryLook(self.look.model, str(query), tuple(lines), self.look.edits, self.scaled)
        return Finding(found, lambda: query_document(self.look, found))

    def _lines(self, place: Place, capture: Capture, query: str | int, top: int) -> Iterator[HeadLine]:
        queries, keys = self.look.axes(place)
        try:
            asked = find_word(queries, query)
        except InvalidInput:
            if len({p.stack for p in self.look.of("weights")}) > 1:
                return  # the word stands on the other side of a translation
            raise
        at = [i for i, row in enumerate(capture.rows or ()) if row in asked]
        if not at:
            return
        array = (capture.scaled() if self.scaled else capture.array)[:, at].astype(np.float32).mean(axis=1)
        by_word = np.stack([array[:, list(group)].sum(-1) for group in keys.groups], axis=-1)
        for index, head in enumerate(capture.heads):
            best = np.argsort(-by_word[index], kind="stable")[:top]
            yield HeadLine(
                place, head, tuple((keys.words[i], float(by_word[index, i])) for i in best if by_word[index, i] > 0)
            )

    def lens(self, rows: Iterable[str | int] | None = None, best: int = 3) -> Finding:
        """What each layer would say next, read by the model's own head."""
        from peasy.looking.lens import lens
        from peasy.views.lens import lens_document

        tokens = self.look.target or self.look.tokens
        asked = None if rows is None else tuple(place for word in rows for place in find_word(tokens, word))
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        found = lens(
            self.loaded.model, self.passage.reading, tokens, tokenizer,
            rows=asked, best=best, edit=self.change, name=self.loaded.name,
        )  # fmt: skip
        return Finding(found, lambda: lens_document(found))

    def rollout(self) -> Finding:
        """Weights of all layers multiplied, a `Grid`; what it is drawn as says what it is not."""
        from peasy.looking.rollout import roll_out
        from peasy.views.rollout import rollout_document

        array = roll_out(self.look, self._stack)
        queries, keys = self.look.axes(Place(self._stack, 0, "attention"))
        found = Grid(array, queries.pieces, keys.pieces, name="rollout")
        return Finding(found, lambda: rollout_document(self.look, found))

    def alignment(
        self,
        known: Iterable[tuple[int, int]] = (),
        layer: int | None = None,
        head: int | None = None,
        *,
        anchors: Iterable[tuple[int, int]] = (),
    ) -> Finding:
        """Which source words the answer's words were written from, by the head that aligns best (or the one named).

        Heads are judged by the `known` pairs; without any, by what the model's card says of them, else by `anchors`:
        pairs that are likely, and are shown.
        """
        from peasy.looking.alignment import align
        from peasy.views.alignment import alignment_document

        assert self.passage.written is not None or self.look.target is None
        place = None if layer is None else Place("decoder", layer, "cross_attention")
        written = self.passage.written or self.look.tokens
        told = tuple(known)
        trusted = None if told else aligning_head(self.loaded)
        found = align(self.look, written, told or tuple(anchors), place=place, head=head, trusted=trusted)
        return Finding(found, lambda: alignment_document(found))

    def work(self, layer: int, head: int, query: str | int | None = None, part: str = "attention") -> Finding:
        """One head step by step, as on paper, with its real numbers."""
        from peasy.views.head import head_document
        from peasy.workbench.look import look

        rows = () if query is None else find_word(self.look.target or self.look.tokens, query)
        steps = ("query", "key", "value", "weights")
        again = look(
            self.loaded,
            self.text or self.look.tokens.ids,
            self.answer,
            layers=layer,
            heads=head,
            steps=steps,
            edit=self.edits,
        )
        place = Place(self._stack, layer, part)
        return Finding(again.look, lambda: head_document(again.look, place, head, rows=rows))

    def against(self, other: "LookResult", *, words: Iterable[str] = (), data: Any = None, **how: Any) -> Finding:
        """What changed between two looks at the same text: the next word, some `words`, and on `data` loss or BLEU."""
        from peasy.workbench.effect import compare_looks

        return compare_looks(self, other, tuple(words), data, **how)

    def brief(self, top: int = 3) -> Finding:
        """The strongest links of every head that was looked at, in words."""
        lines = [
            line for place, capture in self.look.of("weights").items() for line in self._strongest(place, capture, top)
        ]
        found = BriefLook(self.look.model, tuple(lines), self.look.edits, self.scaled)
        return Finding(found, lambda: brief_document(self.look, found))

    def _strongest(self, place: Place, capture: Capture, top: int) -> Iterator[HeadLine]:
        """A word that looks at itself or at the first word says little: such links are told only if nothing else is."""
        queries, keys = self.look.axes(place)
        names = words_there(queries, capture.rows)
        for index, head in enumerate(capture.heads):
            array = merge((capture.scaled() if self.scaled else capture.array)[index], queries, keys, capture.rows)
            shown = array.copy()
            if place.part == "attention" and len(names) == len(keys.words):
                np.fill_diagonal(shown, 0)
                shown[:, 0] = 0
            best = np.argsort(-(shown if shown.any() else array), axis=None, kind="stable")[:top]
            pairs = [(*np.unravel_index(at, array.shape),) for at in best]
            yield HeadLine(place, head, tuple((f"{names[q]}→{keys.words[k]}", float(array[q, k])) for q, k in pairs))

    @property
    def answer(self) -> str | None:
        """A translator's answer."""
        return None if self.look.target is None else self.look.target.text

    def document(self) -> Document:
        """All captured heads as maps; one of them in words."""
        return look_document(self.look, words=self.words, scaled=self.scaled)

    def data(self) -> dict[str, Any]:
        """Tokens, facts about heads, what comes next, and the arrays unless they are too large."""
        size = sum(capture.array.size for capture in self.look.captures)
        told = plain(replace(self.look, captures=()))
        told.pop("captures")
        if size <= MOST:
            return told | {"captures": plain(self.look.captures)}
        return told | {"captures": None, "left_out": f"{size:,} numbers: save them as .npz"}

    def __str__(self) -> str:
        return self._drawn("text")

    def __repr__(self) -> str:
        kept = ", ".join(sorted({capture.step for capture in self.look.captures}))
        edited = f", {len(self.edits)} edits" if self.edits else ""
        return f"LookResult({self.look.model}: {len(self.look.tokens)} tokens, {kept}{edited})"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
