"""`look`: capture attention and activations of one forward pass, under optional interventions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.ram import format_bytes, parse_amount
from peasy.commands.load import LoadedModel, ModelSource, TokenizerSource, load
from peasy.commands.look_result import LookBatch, LookResult
from peasy.commands.model_input import LabelledInput, as_edits, edit_context, make_input
from peasy.commands.result import RecordResult
from peasy.errors import InvalidInput
from peasy.inspection.activation_store import ActivationStore, write_activations
from peasy.inspection.apply_edits import make_intervention
from peasy.inspection.capture import CaptureSpec, Recorder, output_weights_of
from peasy.inspection.edit import EditLike, TextOrIds, TokenRef, edit_summary
from peasy.inspection.forward import attentions_of, default_stack, forward_hidden, forward_logits, likeliest_tokens
from peasy.inspection.results import CAVEAT, LOOK_CAVEAT, MAX_MEMORY, Array, AttentionMeasure
from peasy.inspection.tiles import Tiler, choose_tile
from peasy.views.document import Document, Paragraph

if TYPE_CHECKING:
    from torch import Tensor

    class LookOptions(TypedDict, total=False):
        """Keyword arguments of `look`, for the overloads."""

        layers: Iterable[int] | int | None
        heads: Iterable[int] | int | None
        queries: Iterable[TokenRef] | TokenRef | None
        steps: Iterable[str] | str
        parts: Sequence[str] | None
        edit: EditLike | Sequence[EditLike] | None
        max_memory: str | int
        overview: str | None
        tile_size: int | None
        measure: AttentionMeasure
        merge_words: bool
        add_special_tokens: bool
        storage: str
        padding_mask: "Tensor | Array | Sequence[Sequence[int]] | None"
        tokenizer: TokenizerSource | None
        device: str
        offline: bool
        confirm: Confirm | None


@overload
def look(  # type: ignore[overload-overlap]
    model: ModelSource, text: TextOrIds, target: TextOrIds | None = None, **options: "Unpack[LookOptions]"
) -> LookResult: ...
@overload
def look(
    model: ModelSource,
    text: Sequence[TextOrIds],
    target: Sequence[TextOrIds] | None = None,
    **options: "Unpack[LookOptions]",
) -> LookBatch: ...
@overload
def look(
    model: ModelSource, text: "Tensor | Array", target: None = None, **options: "Unpack[LookOptions]"
) -> LookResult | LookBatch: ...
def look(
    model: ModelSource,
    text: "TextOrIds | Sequence[TextOrIds] | Tensor | Array",
    target: TextOrIds | Sequence[TextOrIds] | None = None,
    *,
    layers: Iterable[int] | int | None = None,
    heads: Iterable[int] | int | None = None,
    queries: Iterable[TokenRef] | TokenRef | None = None,
    steps: Iterable[str] | str = ("weights",),
    parts: Sequence[str] | None = None,
    edit: EditLike | Sequence[EditLike] | None = None,
    max_memory: str | int = MAX_MEMORY,
    overview: str | None = None,
    tile_size: int | None = None,
    measure: AttentionMeasure = "weight",
    merge_words: bool = False,
    add_special_tokens: bool = True,
    storage: str = "auto",
    padding_mask: "Tensor | Array | Sequence[Sequence[int]] | None" = None,
    tokenizer: TokenizerSource | None = None,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
) -> LookResult | LookBatch:
    """Capture the forward pass of a text: a `LookResult` with `.weights[layer, head]["word", "word"]` and more.

    `model` is a name, a folder, a loaded model, or a transformers model (with its `tokenizer`). `text` is a text, its
    token ids, a list of these, or a tensor `[time]` or `[batch, time]`, padded where `padding_mask` is 0; several give
    a `LookBatch`. `target` is the output of a translator; without one it translates greedily. None = all layers, heads
    and queries; -1 is the last layer or head; `queries` are words or positions. `steps` are those of the formula
    (scores, scaled, masked, weights, context), query, key, value, and residual, normed, activation, output, final.
    `edit` is an edit of `peasy.edit`, a function of (address, tensor), or several. Captures larger than `max_memory`
    are refused before the run. With `overview` ("mean" or "max") a long text is shown in tiles of `tile_size` tokens,
    without ever holding the whole matrix, and `queries` are kept exactly. `measure` "value" multiplies each weight by
    the norm of its value vector, "norm" by the norm of what that adds to the residual stream (norm-based attention).
    `merge_words` shows words, not tokens. `add_special_tokens` False leaves out the special tokens that the model
    expects around a text, such as `<bos>`.

    >>> look("no/such-model", "hello", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    loaded = load(model, tokenizer=tokenizer, device=device, offline=offline, confirm=confirm)
    edits, kind, budget = as_edits(edit), loaded.kind, int(parse_amount(max_memory))
    spec = CaptureSpec(
        (steps,) if isinstance(steps, str) else tuple(steps), _as_tuple(layers), _as_tuple(heads),
        parts=None if parts is None else tuple(parts),
    ).resolved(loaded.model, loaded.name)  # fmt: skip

    def run(text: TextOrIds, target: TextOrIds | None) -> LookResult:
        inputs = make_input(loaded, text, target, add_special_tokens=add_special_tokens)
        chosen, attentions, logits, tiler = spec, attentions_of(loaded.model), None, None
        if queries is not None:
            words, tokens = (queries,) if isinstance(queries, str | int) else queries, inputs.target or inputs.tokens
            chosen = replace(spec, rows=tuple(sorted({at for word in words for at in tokens.find(word)})))
        intervention = make_intervention(edits, edit_context(loaded, inputs)) if edits else None
        if overview is None:
            recorder = Recorder.for_input(loaded.model, inputs.model_input, chosen, budget, storage)
            logits = forward_logits(loaded.model, inputs.model_input, recorder.tap(), intervention)
        else:
            recorder, tiler = _tile_recorder(loaded, inputs, chosen, overview, tile_size, measure, budget)
            attentions = tuple(part for part in attentions if recorder.spec.includes(part))
            forward_hidden(loaded.model, inputs.model_input, recorder.tap(tiler.on_attention), intervention)
        candidates = () if logits is None or kind == "encoder" else likeliest_tokens(loaded, logits, 5)
        return LookResult(
            loaded.name, kind, inputs.tokens, inputs.target, tuple(recorder.captured.values()), attentions,
            tuple(map(edit_summary, edits)), recorder.storage, candidates,
            overviews=() if tiler is None else tuple(tiler.overviews),
            caveat=CAVEAT if kind == "encoder" else LOOK_CAVEAT,
            loaded=loaded, labelled_input=inputs, edits=edits, combined_intervention=intervention,
            logits=None if logits is None else logits.float().cpu().numpy(),
            measure=measure, merge_words=merge_words,
        )  # fmt: skip

    rows, targets = _split_rows(text, padding_mask), None if target is None else _split_rows(target)
    if isinstance(rows, _OneText):
        if isinstance(targets, list):
            raise InvalidInput("There is one text but a list of targets.", hint="Give one target.")
        return run(rows.text, None if targets is None else targets.text)
    if isinstance(targets, _OneText) or (targets is not None and len(targets) != len(rows)):
        raise InvalidInput(f"There are {len(rows)} texts but not as many targets.", hint="Give one for each text.")
    return LookBatch(tuple(map(run, rows, targets or repeat(None))))


class _OneText(NamedTuple):
    """A single text, not a batch of one."""

    text: TextOrIds


def _split_rows(
    text: "TextOrIds | Sequence[TextOrIds] | Tensor | Array", padding_mask: object = None
) -> "_OneText | list[TextOrIds]":
    """Return the texts of a batch without their padding, or the one text."""
    if padding_mask is not None:
        try:
            ids, mask = (np.asarray(array) for array in (text, padding_mask))
        except (ValueError, TypeError):  # rows of different lengths, or arrays that are not NumPy's
            raise InvalidInput("text and padding_mask should be tables of numbers with equally long rows.") from None
        if ids.shape != mask.shape or ids.ndim not in (1, 2):
            message = f"padding_mask has the shape {mask.shape}, the ids {ids.shape}."
            raise InvalidInput(message, hint="Both must agree.")
        rows = [row[keep.astype(bool)].tolist() for row, keep in zip(*map(np.atleast_2d, (ids, mask)), strict=True)]
        return _OneText(rows[0]) if ids.ndim == 1 else rows
    if isinstance(text, str):
        return _OneText(text)
    if not isinstance(text, Iterable):
        raise InvalidInput(f"{type(text).__name__} is no text.", hint="Give a text, token ids, or a list of them.")
    plain: list[Any] = text.tolist() if hasattr(text, "tolist") else list(text)
    plain = plain if isinstance(plain, list) else [plain]
    if plain and all(isinstance(part, int) for part in plain):
        return _OneText(plain)
    if not plain or not all(isinstance(part, str | list | tuple) or hasattr(part, "tolist") for part in plain):
        raise InvalidInput("There is no text.", hint="Give a text, token ids, or a list of them.")
    return [part if isinstance(part, str) else np.asarray(part).tolist() for part in plain]


def _as_tuple(indices: Iterable[int] | int | None) -> tuple[int, ...] | None:
    return None if indices is None else (indices,) if isinstance(indices, int) else tuple(indices)


def _tile_recorder(
    loaded: LoadedModel, inputs: LabelledInput, spec: CaptureSpec, reduction: str, tile_size: int | None,
    measure: AttentionMeasure, budget: int,
) -> tuple[Recorder, Tiler]:  # fmt: skip
    """Return the recorder of the exact rows, and the tiler that reduces the attention of the default stack."""
    parts, stacks = ("attention", "cross_attention"), (default_stack(loaded.model),)
    spec = CaptureSpec(("weights",), spec.layers, spec.heads, spec.rows or (), parts, stacks)
    longest = max(inputs.model_input.lengths(loaded.model).values())
    size = tile_size or choose_tile(longest)
    tiler = Tiler(size, reduction, spec.heads, measure, output_weights_of(loaded.model))
    selected = [part for part in attentions_of(loaded.model) if spec.includes(part)]
    num_heads = sum(len(spec.heads) if spec.heads else part.num_heads for part in selected)
    num_tiles, model_input = num_heads * math.ceil(longest / size) ** 2, inputs.model_input
    recorder = Recorder.for_input(loaded.model, model_input, spec, budget, extra_values=num_tiles)
    return recorder, tiler


class SavedActivationsResult(RecordResult, ActivationStore, eq=False, kw_only=True):
    """Activations of several texts, saved to a folder."""

    steps: tuple[str, ...] = field(repr=False)
    storage: str = field(repr=False)

    def document(self) -> Document:
        """Size of the saved activations, and the code to read them."""
        size = f"{', '.join(self.steps)} of {self.num_sequences:,} texts: {format_bytes(self.nbytes)} as {self.storage}"
        module, text = "peasy.inspection.activation_store", f"{size}, in {self.num_files:,} files in {self.folder}."
        code = f'from {module} import read_activations; next(read_activations("{self.folder}"))'
        return Document("Saved activations", (Paragraph(text), Paragraph(code, "note")))


def save_activations(
    loaded: LoadedModel,
    texts: Iterable[str],
    folder: str | Path,
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    steps: Iterable[str] = ("weights",),
    max_memory: str | int = MAX_MEMORY,
    storage: str = "float16",
    add_special_tokens: bool = True,
) -> SavedActivationsResult:
    """Capture every text and write the activations to `folder`; `activation_store.read_activations` reads them."""
    spec = CaptureSpec(tuple(steps), _as_tuple(layers), _as_tuple(heads))
    inputs = (make_input(loaded, text, add_special_tokens=add_special_tokens).model_input for text in texts)
    store = write_activations(loaded.model, inputs, spec, folder, budget=int(parse_amount(max_memory)), storage=storage)
    return SavedActivationsResult.of(store, steps=spec.steps, storage=storage)
