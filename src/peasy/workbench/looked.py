"""Result of `look`: labelled attention weights by layer and head, and the analyses that start from them."""

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
"""Largest number of values written to JSON; more need .npz."""


@dataclass(frozen=True, eq=False)
class Heads:
    """One attention step of all captured layers: `heads[layer, head]` is a labelled matrix, `np.asarray` stacks them.

    `words` merges sub-words; `scaled` multiplies weights by the norm of their value vectors.
    """

    look: Look
    step: str
    stack: str
    part: str
    words: bool = False
    scaled: bool = False

    def _captures(self) -> dict[int, Capture]:
        all_captures = self.look.of(self.step)
        captures = {p.layer: c for p, c in all_captures.items() if (p.stack, p.part) == (self.stack, self.part)}
        if not captures:
            module = f"{self.stack} {self.part}".replace("_", "-")
            raise NotFound(f"No {self.step} of {module} were captured.", hint=f'Capture them: steps=["{self.step}"].')
        return captures

    @property
    def layers(self) -> tuple[int, ...]:
        """The captured layers."""
        return tuple(self._captures())

    @property
    def by_words(self) -> "Heads":
        """Weights by words: summed over the tokens of a key word, averaged over those of a query word."""
        return replace(self, words=True)

    def __getitem__(self, at: tuple[int, int]) -> Grid:
        if not isinstance(at, tuple) or len(at) != 2:
            raise InvalidInput("Index weights by layer and head.", hint="For example x.weights[2, 3].")
        layer, head = at
        captures = self._captures()
        if layer not in captures:
            raise NotFound(f"Layer {layer} was not captured.", hint=f"Captured layers: {_listed(captures)}.")
        capture = captures[layer]
        if head not in capture.heads:
            raise NotFound(f"Head {head} was not captured.", hint=f"Captured heads: {_listed(capture.heads)}.")
        return self._grid(capture, capture.heads.index(head), head)

    def _grid(self, capture: Capture, index: int, head: int) -> Grid:
        queries, keys = self.look.axes(capture.place)
        array = (capture.scaled() if self.scaled else capture.array)[index]
        name = f"layer {capture.place.layer}, head {head}"
        if self.step not in ("scores", "scaled", "masked", "weights"):
            of_keys = self.step in ("key", "value")
            rows = keys.pieces if of_keys else tuple(queries.pieces[row] for row in capture.rows or ())
            return Grid(array, rows, tuple(map(str, range(array.shape[-1]))), "token", "dimension", name)
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
    """Result of `look` on one text: views and analyses; `.look` holds the plain arrays with their labels.

    `.text` is the input text; `str(x)` is the displayed document.
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
        """Self-attention of the text, or of a translator's output: `x.weights[layer, head]`.

        A recurrent translator has no self-attention: this is then its cross-attention.
        """
        part = "attention" if any(not part.cross for part in self.look.parts) else "cross_attention"
        return Heads(self.look, "weights", self._stack, part)

    @property
    def contributions(self) -> Heads:
        """Norm-weighted attention: each weight times the norm of its value vector."""
        return replace(self.weights, scaled=True)

    @property
    def cross(self) -> Heads:
        """Cross-attention of a translator's output to the source."""
        return Heads(self.look, "weights", "decoder", "cross_attention")

    @property
    def source(self) -> Heads:
        """Self-attention of a translator's source."""
        return Heads(self.look, "weights", "encoder", "attention")

    def step(self, name: str, part: str = "attention", stack: str | None = None) -> Heads:
        """Return another step of the formula by layer and head: scores, scaled, masked, context, query, key, value."""
        return Heads(self.look, name, stack or self._stack, part)

    def stream(self, name: str = "residual", layer: int | None = None, part: str | None = None) -> Grid:
        """Return a capture outside attention `[token, dimension]`: residual, normed, activation, output, final, logits.

        None = the first captured layer and part of the decoder, or of the encoder of an encoder model.
        """
        captures = [c for c in self.look.captures if c.step == name and c.place.stack == self._stack]
        captures = captures or [c for c in self.look.captures if c.step == name]
        matching = [c for c in captures if layer in (None, c.place.layer) and (part is None or part in c.place.part)]
        if not matching:
            where = "" if layer is None else f" of layer {layer}"
            raise NotFound(f"No {name}{where} was captured.", hint=f'Capture it: steps=["{name}"].')
        first = matching[0]
        queries, _ = self.look.axes(first.place)
        rows = tuple(queries.pieces[row] for row in first.rows or range(len(queries)))
        columns = self._columns(name, first.array.shape[-1])
        return Grid(first.array, rows, columns, "token", "dimension", f"{name}, layer {first.place.layer}")

    def _columns(self, name: str, count: int) -> tuple[str, ...]:
        """Column labels: tokens of the vocabulary for logits, else dimension numbers."""
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        if name != "logits" or tokenizer is None:
            return tuple(map(str, range(count)))
        return tuple(tokenizer.piece(id) if id < len(tokenizer) else f"#{id}" for id in range(count))

    def heads(self, query: str | int, top: int = 5) -> Finding:
        """Return the `top` largest weights of a query word in every captured head."""
        lines = [
            line
            for place, capture in self.look.of("weights").items()
            for line in self._lines(place, capture, query, top)
        ]
        if not lines:
            raise NotFound(f'"{query}" is not among the captured rows.', hint="Call look without rows=.")
        record = QueryLook(self.look.model, str(query), tuple(lines), self.look.edits, self.scaled)
        return Finding(record, lambda: query_document(self.look, record))

    def _lines(self, place: Place, capture: Capture, query: str | int, top: int) -> Iterator[HeadLine]:
        queries, keys = self.look.axes(place)
        try:
            positions = find_word(queries, query)
        except InvalidInput:
            if len({p.stack for p in self.look.of("weights")}) > 1:
                return  # the word is on the other side of the translation
            raise
        indices = [index for index, row in enumerate(capture.rows or ()) if row in positions]
        if not indices:
            return
        array = (capture.scaled() if self.scaled else capture.array)[:, indices].astype(np.float32).mean(axis=1)
        by_word = np.stack([array[:, list(group)].sum(-1) for group in keys.groups], axis=-1)
        for index, head in enumerate(capture.heads):
            best = np.argsort(-by_word[index], kind="stable")[:top]
            yield HeadLine(
                place, head, tuple((keys.words[i], float(by_word[index, i])) for i in best if by_word[index, i] > 0)
            )

    def lens(self, rows: Iterable[str | int] | None = None, best: int = 3) -> Finding:
        """Logit lens: next-token predictions of every layer's hidden states, through the model's LM head."""
        from peasy.looking.lens import lens
        from peasy.views.lens import lens_document

        tokens = self.look.target or self.look.tokens
        positions = None if rows is None else tuple(position for word in rows for position in find_word(tokens, word))
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        table = lens(
            self.loaded.model, self.passage.reading, tokens, tokenizer,
            rows=positions, best=best, edit=self.change, name=self.loaded.name,
        )  # fmt: skip
        return Finding(table, lambda: lens_document(table))

    def rollout(self) -> Finding:
        """Attention rollout: the product of all layers' weights, with a caveat in its document."""
        from peasy.looking.rollout import roll_out
        from peasy.views.rollout import rollout_document

        array = roll_out(self.look, self._stack)
        queries, keys = self.look.axes(Place(self._stack, 0, "attention"))
        matrix = Grid(array, queries.pieces, keys.pieces, name="rollout")
        return Finding(matrix, lambda: rollout_document(self.look, matrix))

    def alignment(
        self,
        known: Iterable[tuple[int, int]] = (),
        layer: int | None = None,
        head: int | None = None,
        *,
        anchors: Iterable[tuple[int, int]] = (),
    ) -> Finding:
        """Word alignment from cross-attention, by the best head or by the given layer and head.

        Heads are scored on the `known` links; without any, the model card's head is used, else `anchors`: likely
        links, which are displayed.
        """
        from peasy.looking.alignment import align
        from peasy.views.alignment import alignment_document

        assert self.passage.written is not None or self.look.target is None
        place = None if layer is None else Place("decoder", layer, "cross_attention")
        written = self.passage.written or self.look.tokens
        links = tuple(known)
        card_head = None if links else aligning_head(self.loaded)
        alignment = align(self.look, written, links or tuple(anchors), place=place, head=head, trusted=card_head)
        return Finding(alignment, lambda: alignment_document(alignment))

    def work(self, layer: int, head: int, query: str | int | None = None, part: str = "attention") -> Finding:
        """Return one head step by step, as in a worked example, with its real numbers."""
        from peasy.views.head import head_document
        from peasy.workbench.look import look

        rows = () if query is None else find_word(self.look.target or self.look.tokens, query)
        steps = ("query", "key", "value", "weights")
        captured: LookResult = look(
            self.loaded,
            self.text or self.look.tokens.ids,
            self.answer,
            layers=layer,
            heads=head,
            steps=steps,
            edit=self.edits,
        )
        place = Place(self._stack, layer, part)
        return Finding(captured.look, lambda: head_document(captured.look, place, head, rows=rows))

    def against(self, other: "LookResult", *, words: Iterable[str] = (), data: Any = None, **how: Any) -> Finding:
        """Compare with another result on the same text: next token, `words`, and loss or BLEU on `data`."""
        from peasy.workbench.effect import compare_looks

        return compare_looks(self, other, tuple(words), data, **how)

    def brief(self, top: int = 3) -> Finding:
        """Return the strongest links between words in every captured head."""
        lines = [
            line for place, capture in self.look.of("weights").items() for line in self._strongest(place, capture, top)
        ]
        record = BriefLook(self.look.model, tuple(lines), self.look.edits, self.scaled)
        return Finding(record, lambda: brief_document(self.look, record))

    def _strongest(self, place: Place, capture: Capture, top: int) -> Iterator[HeadLine]:
        """Strongest links; those to the word itself or the first word (attention sink) only if there are no others."""
        queries, keys = self.look.axes(place)
        names = words_there(queries, capture.rows)
        for index, head in enumerate(capture.heads):
            array = merge((capture.scaled() if self.scaled else capture.array)[index], queries, keys, capture.rows)
            informative = array.copy()
            if place.part == "attention" and len(names) == len(keys.words):
                np.fill_diagonal(informative, 0)
                informative[:, 0] = 0
            best = np.argsort(-(informative if informative.any() else array), axis=None, kind="stable")[:top]
            pairs = [(*np.unravel_index(index, array.shape),) for index in best]
            yield HeadLine(place, head, tuple((f"{names[q]}→{keys.words[k]}", float(array[q, k])) for q, k in pairs))

    @property
    def answer(self) -> str | None:
        """A translator's output text; None for other models."""
        return None if self.look.target is None else self.look.target.text

    def document(self) -> Document:
        """Attention maps of all captured heads."""
        return look_document(self.look, words=self.words, scaled=self.scaled)

    def data(self) -> dict[str, Any]:
        """Tokens, attention modules, next-token candidates, and the arrays unless they are too large."""
        size = sum(capture.array.size for capture in self.look.captures)
        record = plain(replace(self.look, captures=()))
        record.pop("captures")
        if size <= MOST:
            return record | {"captures": plain(self.look.captures)}
        return record | {"captures": None, "left_out": f"{size:,} numbers: save them as .npz"}

    def __str__(self) -> str:
        return self._drawn("text")

    def __repr__(self) -> str:
        steps = ", ".join(sorted({capture.step for capture in self.look.captures}))
        edits = f", {len(self.edits)} interventions" if self.edits else ""
        return f"LookResult({self.look.model}: {len(self.look.tokens)} tokens, {steps}{edits})"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
