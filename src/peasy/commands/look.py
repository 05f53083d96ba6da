"""`look`: capture attention and activations of one forward pass, under optional interventions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.checkpoint.hub import Confirm
from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel, load
from peasy.commands.look_result import CaptureSpec, LookResult
from peasy.inspection.budget import choose_storage, parse_bytes
from peasy.inspection.interventions import InterventionSpec
from peasy.inspection.label import TokenProbability, Tokens
from peasy.inspection.results import AttentionRecord, TiledAttention
from peasy.views.attention import tiled_document

if TYPE_CHECKING:
    from peasy.commands.model_input import LabelledInput
    from peasy.nn.intervention import Intervention

ATTENTION_PARTS = ("attention", "cross_attention")
WordOrPosition = str | int


def look(
    model: Any,
    text: str | Sequence[int],
    target: str | None = None,
    *,
    layers: Iterable[int] | int | None = None,
    heads: Iterable[int] | int | None = None,
    queries: Iterable[WordOrPosition] | WordOrPosition | None = None,
    steps: Iterable[str] | str = ("weights",),
    edit: InterventionSpec | Sequence[InterventionSpec] | None = None,
    max_memory: str | int = "512MB",
    overview: str | None = None,
    tile_size: int | None = None,
    value_weighted: bool = False,
    storage: str = "auto",
    tokenizer: Any = None,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
) -> Any:
    """Capture one forward pass: a `LookResult` with `.weights[layer, head]` and more.

    `model` is a name, a folder, a loaded model, or a transformers model (with its `tokenizer`). `target` is the output
    of a translator; without one it translates greedily. None = all layers, heads and queries; `queries` are words or
    positions. `steps` are those of the formula (scores, scaled, masked, weights, context), query, key, value, and
    residual, normed, activation, output, final. `edit` is an intervention: `peasy.off`, `cut`, `even`, `patch`.
    Captures larger than `max_memory` are refused before the run. With `overview` ("mean" or "max") a long text is
    shown in tiles of `tile_size` tokens, without ever holding the whole matrix, and `queries` are kept exactly.
    `value_weighted` multiplies each weight by the norm of its value vector.

    >>> look("no/such-model", "hello", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    from peasy.commands.model_input import make_input

    loaded = load(model, tokenizer=tokenizer, device=device, offline=offline, confirm=confirm)
    inputs = make_input(loaded, text, target)
    spec = CaptureSpec(
        _as_tuple(steps),
        _as_indices(layers),
        _as_indices(heads),
        _query_positions(queries, inputs.target or inputs.tokens),
    )
    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    intervention = _make_intervention(loaded, inputs, edits)
    if overview is not None:
        tiled = _capture_tiles(
            loaded, inputs, spec, intervention, edits, overview, tile_size, value_weighted, parse_bytes(max_memory)
        )
        return AnalysisResult(tiled, lambda: tiled_document(tiled))
    record, logits = _capture(loaded, inputs, spec, intervention, edits, parse_bytes(max_memory), storage)
    return LookResult(record, loaded, inputs, spec, edits, intervention, logits, value_weighted)


def look_cross_attention(loaded: LoadedModel, text: str, target_ids: Sequence[int]) -> LookResult:
    """Capture only the cross-attention of a translator, for these output ids."""
    from peasy.commands.model_input import make_input

    inputs, spec = make_input(loaded, text, target_ids), CaptureSpec(parts=("cross_attention",))
    record, logits = _capture(loaded, inputs, spec, None, (), parse_bytes("512MB"), "auto")
    return LookResult(record, loaded, inputs, spec, (), None, logits)


def _capture(
    loaded: LoadedModel,
    inputs: "LabelledInput",
    spec: CaptureSpec,
    intervention: "Intervention | None",
    edits: tuple[InterventionSpec, ...],
    max_bytes: int,
    storage: str,
) -> tuple[AttentionRecord, np.ndarray | None]:
    """Run one forward pass; return the captures and the next-token logits."""
    from peasy.inspection.forward import forward_logits
    from peasy.inspection.introspect import attentions_of, dims_of
    from peasy.inspection.recorder import Recorder

    parts, dims, lengths = attentions_of(loaded.model), dims_of(loaded.model), inputs.model_input.lengths(loaded.model)
    spec.check(loaded.name, parts, dims)
    dtype = choose_storage(spec.count_values(parts, dims, lengths), max_bytes, storage)
    recorder = Recorder(spec, lengths, dtype)
    logits = forward_logits(loaded.model, inputs.model_input, recorder.tap(), intervention)
    record = AttentionRecord(
        loaded.name, loaded.kind, inputs.tokens, inputs.target, recorder.captures(), parts,
        tuple(edit.summary() for edit in edits), dtype, top_candidates(loaded, logits),
    )  # fmt: skip
    return record, None if logits is None else logits.float().cpu().numpy()


def _capture_tiles(
    loaded: LoadedModel,
    inputs: "LabelledInput",
    spec: CaptureSpec,
    intervention: "Intervention | None",
    edits: tuple[InterventionSpec, ...],
    reduction: str,
    tile_size: int | None,
    value_weighted: bool,
    max_bytes: int,
) -> TiledAttention:
    """Capture self-attention reduced to tiles, and the selected rows exactly."""
    from peasy.inspection.forward import forward_hidden
    from peasy.inspection.introspect import attentions_of, default_stack, dims_of
    from peasy.inspection.recorder import Recorder
    from peasy.inspection.tiles import Tiler, choose_tile

    stack = default_stack(loaded.model)
    row_spec = replace(spec, steps=("weights",), rows=spec.rows or (), parts=ATTENTION_PARTS, stacks=(stack,))
    parts, dims, lengths = attentions_of(loaded.model), dims_of(loaded.model), inputs.model_input.lengths(loaded.model)
    row_spec.check(loaded.name, parts, dims)
    size = tile_size or choose_tile(max(lengths.values()))
    selected = [part for part in parts if row_spec.includes(part)]
    num_heads = sum((len(spec.heads) if spec.heads else part.num_heads) for part in selected)
    numbers = row_spec.count_values(parts, dims, lengths) + num_heads * (-(-max(lengths.values()) // size)) ** 2
    dtype = choose_storage(numbers, max_bytes)
    tiler, recorder = Tiler(size, reduction, spec.heads, value_weighted), Recorder(row_spec, lengths, dtype)
    forward_hidden(loaded.model, inputs.model_input, recorder.tap(tiler.on_attention), intervention)
    return TiledAttention(
        loaded.name, inputs.target or inputs.tokens, tuple(tiler.overviews), recorder.captures(), tuple(selected),
        tuple(edit.summary() for edit in edits), dtype,
    )  # fmt: skip


def top_candidates(loaded: LoadedModel, logits: Any, top: int = 5) -> tuple[TokenProbability, ...]:
    """Return the likeliest next tokens; none for an encoder, whose logits do not predict the next token."""
    if logits is None or loaded.kind == "encoder":
        return ()
    import torch

    probabilities = torch.softmax(logits.float(), dim=-1)
    best = probabilities.topk(min(top, len(probabilities)))
    tokenizer = loaded.target_tokenizer or loaded.tokenizer
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(TokenProbability(f"#{id}" if tokenizer is None else tokenizer.piece(id), id, p) for id, p in pairs)


def _make_intervention(
    loaded: LoadedModel, inputs: "LabelledInput", edits: tuple[InterventionSpec, ...]
) -> "Intervention | None":
    from peasy.commands.model_input import make_input
    from peasy.inspection.apply_interventions import make_intervention

    return make_intervention(
        edits, loaded.model, inputs.attention_axes, lambda text: make_input(loaded, text).model_input
    )


def _as_tuple(steps: Iterable[str] | str) -> tuple[str, ...]:
    return (steps,) if isinstance(steps, str) else tuple(steps)


def _as_indices(indices: Iterable[int] | int | None) -> tuple[int, ...] | None:
    if indices is None or indices is ...:
        return None
    return (indices,) if isinstance(indices, int) else tuple(indices)


def _query_positions(
    queries: Iterable[WordOrPosition] | WordOrPosition | None, tokens: Tokens
) -> tuple[int, ...] | None:
    """Return words and positions as sorted positions."""
    from peasy.inspection.words import find_word

    if queries is None or queries is ...:
        return None
    words = (queries,) if isinstance(queries, str | int) else tuple(queries)
    return tuple(sorted({position for word in words for position in find_word(tokens, word)}))
