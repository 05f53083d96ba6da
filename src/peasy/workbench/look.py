"""`look`: capture attention and activations of one forward pass, under optional interventions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.checkpoint.hub import Ask
from peasy.errors import InvalidInput
from peasy.looking.budget import choose_storage, read_bytes
from peasy.looking.edit import Edit
from peasy.looking.label import Candidate, Tokens
from peasy.looking.record import LongLook, Look
from peasy.views.attention import long_document
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.looked import LookResult, Question

if TYPE_CHECKING:
    from peasy.nn.edit import Change
    from peasy.workbench.passage import Passage

LINES = ("attention", "cross_attention")
Word = str | int


def look(
    model: Any,
    text: str | Sequence[int],
    target: str | None = None,
    *,
    layers: Iterable[int] | int | None = None,
    heads: Iterable[int] | int | None = None,
    rows: Iterable[Word] | Word | None = None,
    steps: Iterable[str] | str = ("weights",),
    edit: Edit | Sequence[Edit] | None = None,
    budget: str | int = "512MB",
    overview: str | None = None,
    tile: int | None = None,
    scaled: bool = False,
    storage: str = "auto",
    tokenizer: Any = None,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
) -> Any:
    """Capture one forward pass: a `LookResult` with `.weights[layer, head]` and more.

    `model` is a name, a folder, a loaded model, or a transformers model (with its `tokenizer`). `target` is the output
    of a translator; without one it translates greedily. None = all layers, heads and rows; `rows` are words or
    positions. `steps` are those of the formula (scores, scaled, masked, weights, context), query, key, value, and
    residual, normed, activation, output, final. `edit` is an intervention: `peasy.off`, `cut`, `even`, `patch`.
    Captures larger than the `budget` are refused before the run. With `overview` ("mean" or "max") a long text is
    shown in tiles of `tile` tokens, without ever holding the whole matrix, and `rows` are kept exactly.

    >>> look("no/such-model", "hello", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    from peasy.workbench.passage import open_passage

    loaded = _open(model, tokenizer, device=device, offline=offline, ask=ask)
    inputs = open_passage(loaded, text, target)
    spec = Question(_many(steps), _numbers(layers), _numbers(heads), _rows(rows, inputs.target or inputs.tokens))
    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    intervention = _change(loaded, inputs, edits)
    if overview is not None:
        tiled = _look_long(loaded, inputs, spec, intervention, edits, overview, tile, scaled, read_bytes(budget))
        return Finding(tiled, lambda: long_document(tiled))
    record, logits = _look(loaded, inputs, spec, intervention, edits, read_bytes(budget), storage)
    return LookResult(record, loaded, inputs, spec, edits, intervention, logits, scaled)


def look_into_source(loaded: LoadedModel, text: str, written: Sequence[int]) -> LookResult:
    """Capture only the cross-attention of a translator, for these output ids."""
    from peasy.workbench.passage import open_passage

    inputs, spec = open_passage(loaded, text, written), Question(parts=("cross_attention",))
    record, logits = _look(loaded, inputs, spec, None, (), read_bytes("512MB"), "auto")
    return LookResult(record, loaded, inputs, spec, (), None, logits)


def _open(model: Any, tokenizer: Any, **how: Any) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, str | Path) or hasattr(model, "save_pretrained"):
        return load(model, tokenizer=tokenizer, **how)
    from peasy.models.protocol import Model

    if isinstance(model, Model):
        return LoadedModel(type(model).__name__, model, tokenizer)
    raise InvalidInput(
        f"{type(model).__name__} is not a model that peasy can inspect.",
        hint="Give a name, a folder, a model loaded by peasy.load, or a transformers model.",
    )


def _look(
    loaded: LoadedModel,
    inputs: "Passage",
    spec: Question,
    intervention: "Change | None",
    edits: tuple[Edit, ...],
    budget: int,
    storage: str,
) -> tuple[Look, np.ndarray | None]:
    """Run one forward pass; return the captures and the next-token logits."""
    from peasy.looking.part import parts_of, widths_of
    from peasy.looking.reading import read
    from peasy.looking.recorder import Recorder

    parts, dims, lengths = parts_of(loaded.model), widths_of(loaded.model), inputs.reading.lengths(loaded.model)
    spec.check(loaded.name, parts, dims)
    dtype = choose_storage(spec.numbers(parts, dims, lengths), budget, storage)
    recorder = Recorder(spec, lengths, dtype)
    logits = read(loaded.model, inputs.reading, recorder.tap(), intervention)
    record = Look(
        loaded.name, loaded.kind, inputs.tokens, inputs.target, recorder.captures(), parts,
        tuple(edit.says() for edit in edits), dtype, candidates(loaded, logits),
    )  # fmt: skip
    return record, None if logits is None else logits.float().cpu().numpy()


def _look_long(
    loaded: LoadedModel,
    inputs: "Passage",
    spec: Question,
    intervention: "Change | None",
    edits: tuple[Edit, ...],
    reduction: str,
    tile: int | None,
    scaled: bool,
    budget: int,
) -> LongLook:
    """Capture self-attention reduced to tiles, and the selected rows exactly."""
    from peasy.looking.part import default_stack, parts_of, widths_of
    from peasy.looking.reading import run
    from peasy.looking.recorder import Recorder
    from peasy.looking.tiles import Tiler, choose_tile

    stack = default_stack(loaded.model)
    row_spec = replace(spec, steps=("weights",), rows=spec.rows or (), parts=LINES, stacks=(stack,))
    parts, dims, lengths = parts_of(loaded.model), widths_of(loaded.model), inputs.reading.lengths(loaded.model)
    row_spec.check(loaded.name, parts, dims)
    size = tile or choose_tile(max(lengths.values()))
    selected = [part for part in parts if row_spec.wants(part)]
    num_heads = sum((len(spec.heads) if spec.heads else part.heads) for part in selected)
    numbers = row_spec.numbers(parts, dims, lengths) + num_heads * (-(-max(lengths.values()) // size)) ** 2
    dtype = choose_storage(numbers, budget)
    tiler, recorder = Tiler(size, reduction, spec.heads, scaled), Recorder(row_spec, lengths, dtype)
    run(loaded.model, inputs.reading, recorder.tap(tiler.examine), intervention)
    return LongLook(
        loaded.name, inputs.target or inputs.tokens, tuple(tiler.overviews), recorder.captures(), tuple(selected),
        tuple(edit.says() for edit in edits), dtype,
    )  # fmt: skip


def candidates(loaded: LoadedModel, scores: Any, best: int = 5) -> tuple[Candidate, ...]:
    """Return the likeliest next tokens; none for an encoder, whose logits do not predict the next token."""
    if scores is None or loaded.kind == "encoder":
        return ()
    import torch

    probabilities = torch.softmax(scores.float(), dim=-1)
    top = probabilities.topk(min(best, len(probabilities)))
    tokenizer = loaded.target_tokenizer or loaded.tokenizer
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(Candidate(f"#{id}" if tokenizer is None else tokenizer.piece(id), id, p) for id, p in pairs)


def _change(loaded: LoadedModel, inputs: "Passage", edits: tuple[Edit, ...]) -> "Change | None":
    from peasy.looking.change import make_change
    from peasy.workbench.passage import open_passage

    return make_change(edits, loaded.model, inputs.axes, lambda text: open_passage(loaded, text).reading)


def _many(steps: Iterable[str] | str) -> tuple[str, ...]:
    return (steps,) if isinstance(steps, str) else tuple(steps)


def _numbers(indices: Iterable[int] | int | None) -> tuple[int, ...] | None:
    if indices is None or indices is ...:
        return None
    return (indices,) if isinstance(indices, int) else tuple(indices)


def _rows(rows: Iterable[Word] | Word | None, tokens: Tokens) -> tuple[int, ...] | None:
    """Return words and positions as sorted positions."""
    from peasy.looking.words import find_word

    if rows is None or rows is ...:
        return None
    words = (rows,) if isinstance(rows, str | int) else tuple(rows)
    return tuple(sorted({position for word in words for position in find_word(tokens, word)}))
