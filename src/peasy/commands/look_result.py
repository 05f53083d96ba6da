"""Result of `look`: labelled attention weights by layer and head, and the analyses that start from them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.commands.alignment_head import read_alignment_head
from peasy.commands.analysis_result import AnalysisResult, to_plain
from peasy.commands.load import LoadedModel
from peasy.commands.result import Result
from peasy.errors import InvalidInput, NotFound
from peasy.inspection.capture_spec import CaptureSpec
from peasy.inspection.interventions import InterventionSpec
from peasy.inspection.label import LabelledMatrix
from peasy.inspection.results import AttentionRecord, Capture
from peasy.inspection.words import find_word, merge_words, words_in_rows
from peasy.nn.module_path import ModulePath
from peasy.views.attention import attention_document
from peasy.views.document import Document
from peasy.views.query import (
    HeadTopWords,
    StrongestLinks,
    WordAttention,
    strongest_links_document,
    word_attention_document,
)

if TYPE_CHECKING:
    from peasy.commands.model_input import LabelledInput
    from peasy.nn.intervention import Intervention

MAX_JSON_VALUES = 250_000
"""Largest number of values written to JSON; more need .npz."""


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """One attention step of all captured layers: `heads[layer, head]` is a labelled matrix, `np.asarray` stacks them.

    `merge_words` merges sub-words; `value_weighted` multiplies weights by the norm of their value vectors.
    """

    record: AttentionRecord
    step: str
    stack: str
    part: str
    merge_words: bool = False
    value_weighted: bool = False

    def _captures(self) -> dict[int, Capture]:
        all_captures = self.record.by_path(self.step)
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
    def by_words(self) -> "HeadMatrices":
        """Weights by words: summed over the tokens of a key word, averaged over those of a query word."""
        return replace(self, merge_words=True)

    def __getitem__(self, at: tuple[int, int]) -> LabelledMatrix:
        if not isinstance(at, tuple) or len(at) != 2:
            raise InvalidInput("Index weights by layer and head.", hint="For example x.weights[2, 3].")
        layer, head = at
        captures = self._captures()
        if layer not in captures:
            raise NotFound(f"Layer {layer} was not captured.", hint=f"Captured layers: {_join(captures)}.")
        capture = captures[layer]
        if head not in capture.heads:
            raise NotFound(f"Head {head} was not captured.", hint=f"Captured heads: {_join(capture.heads)}.")
        return self._labelled_matrix(capture, capture.heads.index(head), head)

    def _labelled_matrix(self, capture: Capture, index: int, head: int) -> LabelledMatrix:
        queries, keys = self.record.axes(capture.path)
        array = (capture.value_weighted() if self.value_weighted else capture.array)[index]
        name = f"layer {capture.path.layer}, head {head}"
        if self.step not in ("scores", "scaled", "masked", "weights"):
            of_keys = self.step in ("key", "value")
            rows = keys.pieces if of_keys else tuple(queries.pieces[row] for row in capture.rows or ())
            return LabelledMatrix(array, rows, tuple(map(str, range(array.shape[-1]))), "token", "dimension", name)
        if self.merge_words:
            merged = merge_words(array, queries, keys, capture.rows)
            return LabelledMatrix(merged, words_in_rows(queries, capture.rows), keys.words, name=name)
        return LabelledMatrix(array, tuple(queries.pieces[row] for row in capture.rows or ()), keys.pieces, name=name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([[self[layer, head] for head in c.heads] for layer, c in self._captures().items()], dtype=dtype)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((layer, head) for layer, capture in self._captures().items() for head in capture.heads)

    def __len__(self) -> int:
        return sum(len(capture.heads) for capture in self._captures().values())


class LookResult(Result):
    """Result of `look` on one text: views and analyses; `.record` holds the plain arrays with their labels.

    `.text` is the input text; `str(x)` is the displayed document.
    """

    text: str  # type: ignore[assignment]

    def __init__(
        self,
        record: AttentionRecord,
        loaded: LoadedModel,
        labelled_input: "LabelledInput",
        capture_spec: CaptureSpec,
        interventions: tuple[InterventionSpec, ...],
        combined_intervention: "Intervention | None",
        logits: np.ndarray | None,
        value_weighted: bool = False,
        merge_words: bool = False,
    ) -> None:
        self.record, self.loaded, self.labelled_input, self.capture_spec = record, loaded, labelled_input, capture_spec
        self.interventions, self.combined_intervention, self.logits = interventions, combined_intervention, logits
        self.value_weighted, self.merge_words = value_weighted, merge_words
        self.text = record.tokens.text

    @property
    def _stack(self) -> str:
        return "encoder" if self.record.kind == "encoder" else "decoder"

    @property
    def weights(self) -> HeadMatrices:
        """Self-attention of the text, or of a translator's output: `x.weights[layer, head]`.

        A recurrent translator has no self-attention: this is then its cross-attention.
        """
        part = "attention" if any(not part.cross for part in self.record.attentions) else "cross_attention"
        return HeadMatrices(self.record, "weights", self._stack, part)

    @property
    def contributions(self) -> HeadMatrices:
        """Value-weighted attention: each weight times the norm of its value vector."""
        return replace(self.weights, value_weighted=True)

    @property
    def cross_attention(self) -> HeadMatrices:
        """Cross-attention of a translator's output to the source."""
        return HeadMatrices(self.record, "weights", "decoder", "cross_attention")

    @property
    def source_attention(self) -> HeadMatrices:
        """Self-attention of a translator's source."""
        return HeadMatrices(self.record, "weights", "encoder", "attention")

    def step(self, name: str, part: str = "attention", stack: str | None = None) -> HeadMatrices:
        """Return another step of the formula by layer and head: scores, scaled, masked, context, query, key, value."""
        return HeadMatrices(self.record, name, stack or self._stack, part)

    def activations(self, name: str = "residual", layer: int | None = None, part: str | None = None) -> LabelledMatrix:
        """Return a capture outside attention `[token, dimension]`: residual, normed, activation, output, final, logits.

        None = the first captured layer and part of the decoder, or of the encoder of an encoder model.
        """
        captures = [c for c in self.record.captures if c.step == name and c.path.stack == self._stack]
        captures = captures or [c for c in self.record.captures if c.step == name]
        matching = [c for c in captures if layer in (None, c.path.layer) and (part is None or part in c.path.part)]
        if not matching:
            where = "" if layer is None else f" of layer {layer}"
            raise NotFound(f"No {name}{where} was captured.", hint=f'Capture it: steps=["{name}"].')
        first = matching[0]
        queries, _ = self.record.axes(first.path)
        rows = tuple(queries.pieces[row] for row in first.rows or range(len(queries)))
        columns = self._column_labels(name, first.array.shape[-1])
        return LabelledMatrix(first.array, rows, columns, "token", "dimension", f"{name}, layer {first.path.layer}")

    def _column_labels(self, name: str, count: int) -> tuple[str, ...]:
        """Column labels: tokens of the vocabulary for logits, else dimension numbers."""
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        if name != "logits" or tokenizer is None:
            return tuple(map(str, range(count)))
        return tuple(tokenizer.piece(id) if id < len(tokenizer) else f"#{id}" for id in range(count))

    def heads(self, query: str | int, top: int = 5) -> AnalysisResult:
        """Return the `top` largest weights of a query word in every captured head."""
        lines = [
            line
            for path, capture in self.record.by_path("weights").items()
            for line in self._query_lines(path, capture, query, top)
        ]
        if not lines:
            raise NotFound(f'"{query}" is not among the captured queries.', hint="Call look without queries=.")
        record = WordAttention(
            self.record.model, str(query), tuple(lines), self.record.interventions, self.value_weighted
        )
        return AnalysisResult(record, lambda: word_attention_document(self.record, record))

    def _query_lines(self, path: ModulePath, capture: Capture, query: str | int, top: int) -> Iterator[HeadTopWords]:
        queries, keys = self.record.axes(path)
        try:
            positions = find_word(queries, query)
        except InvalidInput:
            if len({p.stack for p in self.record.by_path("weights")}) > 1:
                return  # the word is on the other side of the translation
            raise
        indices = [index for index, row in enumerate(capture.rows or ()) if row in positions]
        if not indices:
            return
        array = (
            (capture.value_weighted() if self.value_weighted else capture.array)[:, indices]
            .astype(np.float32)
            .mean(axis=1)
        )
        by_word = np.stack([array[:, list(group)].sum(-1) for group in keys.word_positions], axis=-1)
        for index, head in enumerate(capture.heads):
            best = np.argsort(-by_word[index], kind="stable")[:top]
            yield HeadTopWords(
                path, head, tuple((keys.words[i], float(by_word[index, i])) for i in best if by_word[index, i] > 0)
            )

    def logit_lens(self, queries: Iterable[str | int] | None = None, top: int = 3) -> AnalysisResult:
        """Logit lens: next-token predictions of every layer's hidden states, through the model's LM head."""
        from peasy.inspection.logit_lens import logit_lens
        from peasy.views.logit_lens import lens_document

        tokens = self.record.target or self.record.tokens
        positions = None if queries is None else tuple(at for word in queries for at in find_word(tokens, word))
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        table = logit_lens(
            self.loaded.model, self.labelled_input.model_input, tokens, tokenizer,
            rows=positions, top_k=top, intervention=self.combined_intervention, name=self.loaded.name,
        )  # fmt: skip
        return AnalysisResult(table, lambda: lens_document(table))

    def rollout(self) -> AnalysisResult:
        """Attention rollout: the product of all layers' weights, with a caveat in its document."""
        from peasy.inspection.rollout import attention_rollout
        from peasy.views.rollout import rollout_document

        array = attention_rollout(self.record, self._stack)
        queries, keys = self.record.axes(ModulePath(self._stack, 0, "attention"))
        matrix = LabelledMatrix(array, queries.pieces, keys.pieces, name="rollout")
        return AnalysisResult(matrix, lambda: rollout_document(self.record, matrix))

    def alignment(
        self,
        gold: Iterable[tuple[int, int]] = (),
        layer: int | None = None,
        head: int | None = None,
        *,
        anchors: Iterable[tuple[int, int]] = (),
    ) -> AnalysisResult:
        """Word alignment from cross-attention, by the best head or by the given layer and head.

        Heads are scored on the `gold` links; without any, the model card's head is used, else `anchors`: likely
        links, which are displayed.
        """
        from peasy.inspection.alignment import align
        from peasy.views.alignment import alignment_document

        assert self.labelled_input.outputs is not None or self.record.target is None
        path = None if layer is None else ModulePath("decoder", layer, "cross_attention")
        outputs = self.labelled_input.outputs or self.record.tokens
        links = tuple(gold)
        card_head = None if links else read_alignment_head(self.loaded)
        alignment = align(self.record, outputs, links or tuple(anchors), path=path, head=head, preferred_head=card_head)
        return AnalysisResult(alignment, lambda: alignment_document(alignment))

    def steps(self, layer: int, head: int, query: str | int | None = None, part: str = "attention") -> AnalysisResult:
        """Return one head step by step, as in a worked example, with its real numbers."""
        from peasy.commands.look import look
        from peasy.views.head import head_document

        rows = () if query is None else find_word(self.record.target or self.record.tokens, query)
        steps = ("query", "key", "value", "weights")
        captured: LookResult = look(
            self.loaded,
            self.text or self.record.tokens.ids,
            self.target_text,
            layers=layer,
            heads=head,
            steps=steps,
            edit=self.interventions,
        )
        path = ModulePath(self._stack, layer, part)
        return AnalysisResult(captured.record, lambda: head_document(captured.record, path, head, rows=rows))

    def compare(
        self, other: "LookResult", *, words: Iterable[str] = (), data: Any = None, **options: Any
    ) -> AnalysisResult:
        """Compare with another result on the same text: next token, `words`, and loss or BLEU on `data`.

        `options` are those of `evaluate`.
        """
        from peasy.commands.effect import compare_look_results

        return compare_look_results(self, other, tuple(words), data, **options)

    def summary(self, top: int = 3) -> AnalysisResult:
        """Return the strongest links between words in every captured head."""
        lines = [
            line
            for path, capture in self.record.by_path("weights").items()
            for line in self._strongest_links(path, capture, top)
        ]
        record = StrongestLinks(self.record.model, tuple(lines), self.record.interventions, self.value_weighted)
        return AnalysisResult(record, lambda: strongest_links_document(self.record, record))

    def _strongest_links(self, path: ModulePath, capture: Capture, top: int) -> Iterator[HeadTopWords]:
        """Strongest links; those to the word itself or the first word (attention sink) only if there are no others."""
        queries, keys = self.record.axes(path)
        names = words_in_rows(queries, capture.rows)
        for index, head in enumerate(capture.heads):
            array = merge_words(
                (capture.value_weighted() if self.value_weighted else capture.array)[index], queries, keys, capture.rows
            )
            informative = array.copy()
            if path.part == "attention" and len(names) == len(keys.words):
                np.fill_diagonal(informative, 0)
                informative[:, 0] = 0
            best = np.argsort(-(informative if informative.any() else array), axis=None, kind="stable")[:top]
            pairs = [(*np.unravel_index(index, array.shape),) for index in best]
            yield HeadTopWords(path, head, tuple((f"{names[q]}→{keys.words[k]}", float(array[q, k])) for q, k in pairs))

    @property
    def target_text(self) -> str | None:
        """A translator's output text; None for other models."""
        return None if self.record.target is None else self.record.target.text

    def document(self) -> Document:
        """Attention maps of all captured heads."""
        return attention_document(self.record, merge_subwords=self.merge_words, value_weighted=self.value_weighted)

    def data(self) -> dict[str, Any]:
        """Tokens, attention modules, next-token candidates, and the arrays unless they are too large."""
        size = sum(capture.array.size for capture in self.record.captures)
        record = to_plain(replace(self.record, captures=()))
        record.pop("captures")
        if size <= MAX_JSON_VALUES:
            return record | {"captures": to_plain(self.record.captures)}
        return record | {"captures": None, "omitted": f"{size:,} numbers: save them as .npz"}

    def __str__(self) -> str:
        return self._render("text")

    def __repr__(self) -> str:
        steps = ", ".join(sorted({capture.step for capture in self.record.captures}))
        edits = f", {len(self.interventions)} interventions" if self.interventions else ""
        return f"LookResult({self.record.model}: {len(self.record.tokens)} tokens, {steps}{edits})"


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
