"""Result of `look`: labelled attention weights by layer and head, and the analyses that start from them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, cast, overload

import numpy as np
from annotated_types import Ge
from numpy.typing import DTypeLike
from torch import Tensor, from_numpy

from peasy.commands.load import LoadedModel
from peasy.commands.model_input import LabelledInput, word_token_id
from peasy.commands.recipe_changes import DataSource
from peasy.commands.result import JsonDict, RecordResult, plain_data
from peasy.display import CheckedMethods
from peasy.errors import InvalidInput, NotFound
from peasy.inspection import results as records
from peasy.inspection.alignment import align
from peasy.inspection.analysis import attention_rollout, logit_lens
from peasy.inspection.apply_edits import IntervenedModel
from peasy.inspection.attribution import NORM_NOTE, attribute_logit
from peasy.inspection.edit import EditLike
from peasy.inspection.forward import forward_logits
from peasy.inspection.words import merge_words, strongest_links, token_piece, top_words_of_query, words_in_rows
from peasy.models.protocol import Model
from peasy.nn.intervention import Intervention
from peasy.nn.module_path import ModulePath
from peasy.parameters import Record
from peasy.render.figure import Figure
from peasy.views import attention as attention_views
from peasy.views import inspection as views
from peasy.views.document import Document, Heading, Paragraph, short_title
from peasy.views.worked import worked_document
from peasy.worked.solver import WorkedExample, solve

_MAX_JSON_VALUES = 250_000
"""Largest number of values written to JSON; more need .npz."""

_MAX_TOKENS = 40
"""Largest number of queries and keys of one head step by step; of a longer text, the last keys are shown."""


class HeadMatrices(CheckedMethods, Record, eq=False):
    """One attention step of all captured layers: `heads[layer, head]` is a labelled matrix, `np.asarray` stacks them.

    `merge_words` merges sub-words; `measure` "value" multiplies weights by the norm of their value vectors, "norm"
    by that of their value vectors through the output projection.
    """

    record: records.AttentionRecord
    step: str
    stack: str
    part: str
    merge_words: bool = False
    measure: records.AttentionMeasure = "weight"

    def _captures(self) -> dict[int, records.Capture]:
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

    def __getitem__(self, at: tuple[int, int]) -> records.LabelledMatrix:
        if not isinstance(at, tuple) or len(at) != 2 or not all(isinstance(index, Integral) for index in at):
            raise InvalidInput("Index weights by layer and head.", hint="For example x.weights[2, 3].")
        captures = self._captures()
        known = [(info.path, info.num_heads) for info in self.record.attentions if info.path.part == self.part]
        sizes = [(path.layer + 1, heads) for path, heads in known if path.stack == self.stack]
        counts = map(max, zip((0, 0), *sizes, strict=True))
        layer, head = (index + count * (index < 0) for index, count in zip(at, counts, strict=True))  # -1 is the last
        if layer not in captures:
            raise NotFound(f"Layer {layer} was not captured.", hint=f"Captured layers: {_join(captures)}.")
        capture = captures[layer]
        if head not in capture.heads:
            raise NotFound(f"Head {head} was not captured.", hint=f"Captured heads: {_join(capture.heads)}.")
        queries, keys = self.record.axes(capture.path)
        array = capture.measured(self.measure)[capture.heads.index(head)]
        rows, name = tuple(queries.pieces[row] for row in capture.rows or ()), f"layer {layer}, head {head}"
        if self.step not in ("scores", "scaled", "masked", "weights"):
            tokens = keys if self.step in ("key", "value") else queries
            rows = keys.pieces if self.step in ("key", "value") else rows
            columns = tuple(map(str, range(array.shape[-1])))
            return records.LabelledMatrix(array, rows, columns, "token", "dimension", name, tokens, None, capture.rows)
        if self.merge_words:
            merged = merge_words(array, queries, keys, capture.rows)
            return records.LabelledMatrix(merged, words_in_rows(queries, capture.rows), keys.words, name=name)
        tokens_of_axes = (queries, keys, capture.rows, self.step == "weights")
        return records.LabelledMatrix(array, rows, keys.pieces, "query", "key", name, *tokens_of_axes)

    def numpy(self) -> records.Array:
        """Return all matrices as one array `[layer, head, row, column]`."""
        return self.__array__()

    def torch(self) -> Tensor:
        """Return all matrices as one torch tensor `[layer, head, row, column]`."""
        return from_numpy(self.__array__())

    def __repr__(self) -> str:
        captures = self._captures()
        heads = _join(next(iter(captures.values())).heads)
        return f"HeadMatrices({self.step} of layers {_join(captures)}, heads {heads}: index by [layer, head])"

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> records.Array:
        return np.array([[self[layer, head] for head in c.heads] for layer, c in self._captures().items()], dtype=dtype)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((layer, head) for layer, capture in self._captures().items() for head in capture.heads)

    def __len__(self) -> int:
        return sum(len(capture.heads) for capture in self._captures().values())


class WordAttentionResult(RecordResult, eq=False):
    """Largest attention weights of one query word in every captured head."""

    model: str
    query: str
    heads: tuple[records.HeadTopWords, ...]
    interventions: tuple[str, ...]
    measure: records.AttentionMeasure
    record: records.AttentionRecord = field(repr=False)

    def document(self) -> Document:
        """One line for each head."""
        return attention_views.word_attention_document(self.record, self.query, self.heads, self.measure)


class StrongestLinksResult(RecordResult, eq=False):
    """Strongest attention links between words in every captured head."""

    model: str
    heads: tuple[records.HeadTopWords, ...]
    interventions: tuple[str, ...]
    measure: records.AttentionMeasure
    record: records.AttentionRecord = field(repr=False)

    def document(self) -> Document:
        """One line for each head, and the next-token candidates."""
        return attention_views.strongest_links_document(self.record, self.heads)


class LensResult(RecordResult, records.LensTable):
    """Logit lens: top tokens of each layer at each position, by the model's own LM head."""

    document = views.lens_document


class RolloutResult(RecordResult, records.LabelledMatrix, eq=False, kw_only=True):
    """Attention rollout: the product of all layers' weights, as a matrix with tokens as labels."""

    record: records.AttentionRecord = field(repr=False)

    def document(self) -> Document:
        """One heat map, with its caveat."""
        return views.rollout_document(self.record, self)


class AlignmentResult(RecordResult, records.Alignment):
    """Word alignment of a translation from one cross-attention head; `scores` rank all heads."""

    document = views.alignment_document


class AttributionResult(RecordResult, records.LogitAttribution):
    """Direct logit attribution: components that sum to the logit, by layer, head and source token."""

    document = views.attribution_document


class EffectResult(RecordResult, records.Effect):
    """Effect of an intervention; `.text` is the input text, `str(x)` the displayed document."""

    if TYPE_CHECKING:
        text: str  # type: ignore[assignment]

    document = views.effect_document


class LookResult(RecordResult, records.AttentionRecord, eq=False, kw_only=True):
    """Result of `look` on one text: captured arrays with their labels, views and analyses.

    `.text` is the input text; `str(x)` is the displayed document. `overviews` are empty unless an overview was asked
    for; `captures` are then the exact rows. `logits` are those of the next token.
    """

    loaded: LoadedModel = field(repr=False)
    labelled_input: LabelledInput = field(repr=False)
    edits: tuple[EditLike, ...] = field(default=(), repr=False)
    combined_intervention: Intervention | None = field(default=None, repr=False)
    logits: records.Array | None = field(default=None, repr=False)
    measure: records.AttentionMeasure = field(default="weight", repr=False)
    merge_words: bool = field(default=False, repr=False)

    @property
    def text(self) -> str:  # type: ignore[override]
        """The input text."""
        return self.tokens.text

    @property
    def target_text(self) -> str | None:
        """A translator's output text; None for other models."""
        return None if self.target is None else self.target.text

    @property
    def _stack(self) -> str:
        return "encoder" if self.kind == "encoder" else "decoder"

    @property
    def weights(self) -> HeadMatrices:
        """Self-attention of the text, or of a translator's output: `x.weights[layer, head]`.

        A recurrent translator has no self-attention: this is then its cross-attention.
        """
        part = "attention" if any(not part.cross for part in self.attentions) else "cross_attention"
        return HeadMatrices(self, "weights", self._stack, part)

    @property
    def value_weighted_attention(self) -> HeadMatrices:
        """Value-weighted attention: each weight times the norm of its value vector, weight · |v|."""
        return replace(self.weights, measure="value")

    @property
    def norm_based_attention(self) -> HeadMatrices:
        """Norm-based attention: the norm of what each key adds to the residual stream, |weight · v · W_O|."""
        return replace(self.weights, measure="norm")

    @property
    def cross_attention(self) -> HeadMatrices:
        """Cross-attention of a translator's output to the source."""
        return HeadMatrices(self, "weights", "decoder", "cross_attention")

    @property
    def source_attention(self) -> HeadMatrices:
        """Self-attention of a translator's source."""
        return HeadMatrices(self, "weights", "encoder", "attention")

    def step(self, name: str, part: str = "attention", stack: str | None = None) -> HeadMatrices:
        """Return another step of the formula by layer and head: scores, scaled, masked, context, query, key, value."""
        return HeadMatrices(self, name, stack or self._stack, part)

    def activations(
        self, name: str = "residual", layer: int | None = None, part: str | None = None
    ) -> records.LabelledMatrix:
        """Return a capture outside attention `[token, dimension]`: residual, normed, activation, output, final, logits.

        None = the first captured layer and part of the decoder, or of the encoder of an encoder model. The columns of
        logits are the tokens of the vocabulary.
        """
        captures = [c for c in self.captures if c.step == name and c.path.stack == self._stack]
        captures = captures or [c for c in self.captures if c.step == name]
        matching = [c for c in captures if layer in (None, c.path.layer) and (part is None or part in c.path.part)]
        if not matching:
            where = "" if layer is None else f" of layer {layer}"
            raise NotFound(f"No {name}{where} was captured.", hint=f'Capture it: steps=["{name}"].')
        first = matching[0]
        queries, _ = self.axes(first.path)
        rows = tuple(queries.pieces[row] for row in first.rows or range(len(queries)))
        tokenizer = (self.loaded.target_tokenizer or self.loaded.tokenizer) if name == "logits" else None
        columns = range(first.array.shape[-1])
        labels = tuple(map(str, columns) if tokenizer is None else (token_piece(tokenizer, id) for id in columns))
        title = f"{name}, layer {first.path.layer}"
        return records.LabelledMatrix(first.array, rows, labels, "token", "dimension", title, queries, None, first.rows)

    def heads(self, query: str | int, top: int = 5) -> WordAttentionResult:
        """Return the `top` largest weights of a query word in every captured head."""
        heads = top_words_of_query(self, query, top, self.measure)
        return WordAttentionResult(self.model, str(query), heads, self.interventions, self.measure, self)

    def summary(self, top: int = 3) -> StrongestLinksResult:
        """Return the strongest links between words in every captured head."""
        heads = strongest_links(self, top, self.measure)
        return StrongestLinksResult(self.model, heads, self.interventions, self.measure, self)

    def logit_lens(self, queries: Iterable[str | int] | None = None, top: Annotated[int, Ge(1)] = 3) -> LensResult:
        """Logit lens: next-token predictions of every layer's hidden states, through the model's LM head."""
        tokens = self.target or self.tokens
        positions = None if queries is None else tuple(at for word in queries for at in tokens.find(word))
        table = logit_lens(
            self.loaded.model, self.labelled_input.model_input, tokens,
            self.loaded.target_tokenizer or self.loaded.tokenizer,
            rows=positions, top_k=top, intervention=self.combined_intervention, name=self.loaded.name,
        )  # fmt: skip
        return LensResult.of(table)

    def attribution(
        self, token: str | int | None = None, against: str | int | None = None, position: str | int = -1
    ) -> AttributionResult:
        """Direct logit attribution: the logit of a token as a sum over heads, source tokens, MLPs and embedding.

        `token` is a word or an id, by default the most likely one; with `against` the difference of the two logits is
        explained. `position`: the word or position after which (in an encoder: at which) it is predicted.
        """
        tokens = self.target or self.tokens
        row = tokens.find(position)[-1]
        token = self._likeliest(row) if token is None else token
        given = [id for id in (token, against) if id is not None]
        ids = [id if isinstance(id, int) else word_token_id(self.loaded, id) for id in given]
        run = partial(attribute_logit, self.loaded.model, self.labelled_input.model_input, position=row)
        logits, components = zip(*(run(id, intervention=self.combined_intervention) for id in ids), strict=True)
        total, addends = logits[0], tuple(components[0])
        if against is not None:
            total -= logits[1]
            addends = tuple(
                replace(a, value=a.value - b.value, sources=None if a.sources is None else a.sources - b.sources)
                for a, b in zip(*components, strict=True)
            )
        paths = {info.path.part: info.path for info in self.attentions if info.path.stack == self._stack}
        tokenizer = self.loaded.target_tokenizer or self.loaded.tokenizer
        names = [token_piece(tokenizer, id) for id in ids]
        return AttributionResult(
            self.model, tokens, row, names[0], None if against is None else names[1], total, addends,
            {part: self.axes(path)[1] for part, path in paths.items()}, (NORM_NOTE,), self.interventions,
        )  # fmt: skip

    def _likeliest(self, row: int) -> int:
        """Return the id of the token with the largest logit after a position."""
        model, inputs = self.loaded.model, self.labelled_input.model_input
        logits = forward_logits(model, inputs, intervention=self.combined_intervention, all_positions=True)
        if logits is None:
            raise InvalidInput(f"{self.model} has no LM head: there are no logits to explain.")
        return int(logits[row].argmax())

    def plot(
        self, what: str = "pattern", *, layer: int = -1, head: int = 0, width_cm: float = 8.0, colour_bar: bool = True,
        title: str | None = None,
    ) -> Figure:  # fmt: skip
        """Return one panel as a figure for a paper: `x.plot("pattern", layer=1, head=2).save("pattern.pdf")`.

        `what`: pattern (attention weights), or another captured step of attention (scores, query, ...). Any labelled
        matrix makes a figure, too: `peasy.Figure(x.attribution().heads())`. `width_cm` is the width in centimetres.
        """
        matrix = self.step("weights" if what == "pattern" else what)[layer, head]
        return Figure(matrix, width_cm, colour_bar, title)

    def rollout(self) -> RolloutResult:
        """Attention rollout: the product of all layers' weights, with a caveat in its document."""
        queries, keys = self.axes(ModulePath(self._stack, 0, "attention"))
        weights = attention_rollout(self, self._stack)
        return RolloutResult(weights, queries.pieces, keys.pieces, name="rollout", record=self)

    def alignment(
        self,
        gold: Iterable[tuple[int, int]] = (),
        layer: int | None = None,
        head: int | None = None,
        *,
        anchors: Iterable[tuple[int, int]] = (),
    ) -> AlignmentResult:
        """Word alignment from cross-attention, by the best head or by the given layer and head.

        Heads are scored on the `gold` links; without any, the model card's head is used, else `anchors`: likely
        links, which are displayed.
        """
        from peasy.commands.align import read_alignment_head

        assert self.labelled_input.outputs is not None or self.target is None
        path = None if layer is None else ModulePath("decoder", layer, "cross_attention")
        outputs, links = self.labelled_input.outputs or self.tokens, tuple(gold)
        card_head = None if links else read_alignment_head(self.loaded)
        alignment = align(self, outputs, links or tuple(anchors), path=path, head=head, preferred_head=card_head)
        return AlignmentResult.of(alignment)

    def steps(self, layer: int, head: int, query: str | int | None = None, part: str = "attention") -> "HeadResult":
        """Return one head step by step, as in a worked example, with its real numbers."""
        from peasy.commands.look import look

        rows = () if query is None else (self.target or self.tokens).find(query)
        text, steps = self.text or self.tokens.ids, ("query", "key", "value", "weights")
        captured = look(self.loaded, text, self.target_text, layers=layer, heads=head, steps=steps, edit=self.edits)
        return HeadResult.of(captured, path=ModulePath(self._stack, layer, part), head=head, rows=rows)

    def compare(
        self,
        other: "LookResult",
        *,
        words: Iterable[str] = (),
        data: DataSource | None = None,
        split: str = "valid",
        max_samples: int | None = None,
        seq_len: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> EffectResult:
        """Compare with another result on the same text: next token, `words`, and loss or BLEU on `data`.

        `split`, `max_samples`, `seq_len` and `options` as in `evaluate`.
        """
        effect = _next_token_effect(self, other, tuple(words))
        if data is not None:
            from peasy.commands.evaluate import evaluate

            run = partial(evaluate, data=data, split=split, max_samples=max_samples, seq_len=seq_len, options=options)
            before, after = (run(intervened_model(result)).measures for result in (self, other))
            metrics = tuple((name, value, after[name]) for name, value in before.items() if name in after)
            effect = replace(effect, metrics=metrics)
        return EffectResult.of(effect)

    def document(self) -> Document:
        """Attention maps of all captured heads, or their overviews."""
        if self.overviews:
            return attention_views.tiled_document(self)
        return attention_views.attention_document(self, merge_subwords=self.merge_words, measure=self.measure)

    def data(self) -> JsonDict:
        """Tokens, attention modules, next-token candidates, and the arrays unless they are too large."""
        if self.overviews:
            names = ("model", "overviews", "exact_rows", "attentions", "interventions", "storage", "caveat")
            fields = {name: getattr(self, name) for name in names}
            tiled: JsonDict = plain_data(fields | {"tokens": self.target or self.tokens}, self.json_decimals)
            return tiled
        size = sum(capture.array.size for capture in self.captures)
        if size <= _MAX_JSON_VALUES:
            return super().data()
        without_arrays: JsonDict = plain_data(replace(self, captures=()), self.json_decimals)
        return without_arrays | {"captures": None, "omitted": f"{size:,} numbers: save them as .npz"}

    def __repr__(self) -> str:
        steps = ", ".join(sorted({capture.step for capture in self.captures}))
        edits = f", {len(self.edits)} interventions" if self.edits else ""
        return f"LookResult({self.model}: {len(self.tokens)} tokens, {steps}{edits})"


class LookBatch(RecordResult, Sequence["LookResult"], eq=False):
    """Results of `look` on several texts, in their order: `batch[0].weights[1, 2]`."""

    results: tuple[LookResult, ...]

    @overload
    def __getitem__(self, index: int) -> LookResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LookResult, ...]: ...
    def __getitem__(self, index: int | slice) -> LookResult | tuple[LookResult, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def document(self) -> Document:
        """The strongest links of each text, one after the other."""
        pages = [result.summary().document() for result in self.results]
        parts = tuple(part for page in pages for part in (Heading(page.title), *page.parts))
        return Document(f"{len(pages)} texts", parts)

    def data(self) -> JsonDict:
        """The data of each text."""
        return {"results": [result.data() for result in self.results]}

    def __repr__(self) -> str:
        shown = "\n".join(f"  {result!r}" for result in self.results[:3])
        return f"LookBatch({len(self)} texts:\n{shown}{' ...' if len(self) > 3 else ''})"


class HeadResult(LookResult, eq=False, kw_only=True):
    """One head step by step: its captured queries, keys, values and weights."""

    path: ModulePath = field(repr=False)
    head: int = field(repr=False)
    rows: Sequence[int] = field(default=(), repr=False)

    def worked(self) -> WorkedExample:
        """Return the head as a worked example: the chosen queries, or all, on the keys that they attend to."""
        from peasy.commands.model_example import capture_inputs, head_example

        model_input = self.labelled_input.model_input
        inputs = capture_inputs(self.loaded.model, model_input, self.path, self.combined_intervention)
        queries, keys = self.axes(self.path)
        rows = tuple(self.rows or range(len(queries)))[:_MAX_TOKENS]
        end = max(rows) + 1 if inputs.attention_mask.causal else len(keys)
        where = f"Layer {self.path.layer}, head {self.head}: {short_title(self.text, self.model)}"
        texts = {"title": where, "description": "The queries, keys and values of this head"}
        columns = slice(max(end - _MAX_TOKENS, 0), end)
        return solve(head_example(inputs, self.head, queries.pieces, keys.pieces, rows, columns, **texts))

    def document(self) -> Document:
        """The head as a worked example, after a comparison of its weights with those that the model used."""
        worked = self.worked()
        used, weights = self.by_path("weights")[self.path].array[0], worked.step("weights").values
        rows = list(self.rows or range(len(used)))[: len(weights)]
        notes = list(attention_views.opening_notes(self.interventions))
        if weights.shape[1] == used.shape[1]:
            difference = float(np.abs(weights - np.asarray(used, dtype=float)[rows]).max())
            same = f"Calculated here and used by the model: the same weights to within {max(difference, 1e-7):.0e}."
            other = f"The model does more than the formula: weights differ by {difference:.3f}."
            notes.append(Paragraph(same, "good") if difference <= 2e-3 else Paragraph(other, "bad"))
        page = worked_document(worked)
        return replace(page, parts=(*notes, *page.parts))

    def data(self) -> JsonDict:
        """Tokens, attention modules, next-token candidates, and all arrays of the head."""
        return RecordResult.data(self)


def _next_token_effect(before: LookResult, after: LookResult, words: tuple[str, ...] = ()) -> records.Effect:
    """Compare two results of `look` on the same text: next tokens, `words`, and the KL divergence in bits."""
    if before.tokens.ids != after.tokens.ids or before.loaded.model is not after.loaded.model:
        raise InvalidInput("Results of look can be compared only for the same text and the same model.")
    added = tuple(edit for edit in after.interventions if edit not in before.interventions)
    removed = tuple(f"not: {edit}" for edit in before.interventions if edit not in after.interventions)
    effect = records.Effect(before.model, before.text, (*added, *removed), (), ())
    if before.logits is None or after.logits is None or not before.next_tokens:
        return effect
    p, q = (np.exp(logits.astype(np.float64) - logits.max()) for logits in (before.logits, after.logits))
    p, q = p / p.sum(), q / q.sum()
    support = p > 0
    divergence = float(np.sum(p[support] * (np.log2(p[support]) - np.log2(np.maximum(q[support], 1e-300)))))
    ids = {word: word_token_id(before.loaded, word) for word in words}
    return replace(
        effect,
        before=before.next_tokens,
        after=after.next_tokens,
        tracked_words=tuple((word, float(p[id]), float(q[id])) for word, id in ids.items()),
        kl_divergence=max(divergence, 0.0),
        max_logit_change=float(np.abs(after.logits - before.logits).max()),
    )


def intervened_model(result: LookResult) -> LoadedModel:
    """Return the model under the result's interventions, usable in any command; cut words stay cut by position."""
    if result.combined_intervention is None:
        return result.loaded
    model = IntervenedModel(result.loaded.model, result.combined_intervention)
    return replace(result.loaded, model=cast(Model, model))


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
