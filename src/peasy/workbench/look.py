"""`look`: what any head of any model looked at, in words and pictures."""

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
    """Look into a model while it reads a text: a `LookResult` with `.weights[layer, head]` and more.

    `model` is a name, a folder, what `peasy.load` gave, or a model of transformers (with its `tokenizer`). `target` is
    a translator's answer; without one it writes its own. None = all layers, heads and rows; `rows` are words or places.
    `steps` are those of the formula (scores, scaled, masked, weights, context), query, key, value, and residual,
    normed, activation, output, final. `edit` changes something first: `peasy.off`, `cut`, `even`, `patch`. What would
    not fit the `budget` is refused before the run. With `overview` ("mean" or "max") a long text is shown in tiles of
    `tile` tokens, without ever holding the whole matrix, and `rows` are kept exactly.

    >>> look("no/such-model", "hello", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    from peasy.workbench.passage import open_passage

    loaded = _open(model, tokenizer, device=device, offline=offline, ask=ask)
    passage = open_passage(loaded, text, target)
    question = Question(_many(steps), _numbers(layers), _numbers(heads), _rows(rows, passage.target or passage.tokens))
    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    change = _change(loaded, passage, edits)
    if overview is not None:
        found = _look_long(loaded, passage, question, change, edits, overview, tile, scaled, read_bytes(budget))
        return Finding(found, lambda: long_document(found))
    record, scores = _look(loaded, passage, question, change, edits, read_bytes(budget), storage)
    return LookResult(record, loaded, passage, question, edits, change, scores, scaled)


def look_into_source(loaded: LoadedModel, text: str, written: Sequence[int]) -> LookResult:
    """Only where a translator looked in its source while it wrote these ids."""
    from peasy.workbench.passage import open_passage

    passage, question = open_passage(loaded, text, written), Question(parts=("cross_attention",))
    record, scores = _look(loaded, passage, question, None, (), read_bytes("512MB"), "auto")
    return LookResult(record, loaded, passage, question, (), None, scores)


def _open(model: Any, tokenizer: Any, **how: Any) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, str | Path) or hasattr(model, "save_pretrained"):
        return load(model, tokenizer=tokenizer, **how)
    from peasy.models.protocol import Model

    if isinstance(model, Model):
        return LoadedModel(type(model).__name__, model, tokenizer)
    raise InvalidInput(
        f"A {type(model).__name__} is no model that peasy can look into.",
        hint="Give a name, a folder, what peasy.load gave, or a model of transformers.",
    )


def _look(
    loaded: LoadedModel,
    passage: "Passage",
    question: Question,
    change: "Change | None",
    edits: tuple[Edit, ...],
    budget: int,
    storage: str,
) -> tuple[Look, np.ndarray | None]:
    """One pass: what was asked for, and the scores after the last token."""
    from peasy.looking.part import parts_of, widths_of
    from peasy.looking.reading import read
    from peasy.looking.recorder import Recorder

    parts, widths, lengths = parts_of(loaded.model), widths_of(loaded.model), passage.reading.lengths(loaded.model)
    question.check(loaded.name, parts, widths)
    kept = choose_storage(question.numbers(parts, widths, lengths), budget, storage)
    recorder = Recorder(question, lengths, kept)
    scores = read(loaded.model, passage.reading, recorder.tap(), change)
    found = Look(
        loaded.name, loaded.kind, passage.tokens, passage.target, recorder.captures(), parts,
        tuple(each.says() for each in edits), kept, candidates(loaded, scores),
    )  # fmt: skip
    return found, None if scores is None else scores.float().cpu().numpy()


def _look_long(
    loaded: LoadedModel,
    passage: "Passage",
    question: Question,
    change: "Change | None",
    edits: tuple[Edit, ...],
    how: str,
    tile: int | None,
    scaled: bool,
    budget: int,
) -> LongLook:
    """Tiles of the asked attentions of the text itself, and the asked rows exactly."""
    from peasy.looking.part import default_stack, parts_of, widths_of
    from peasy.looking.reading import run
    from peasy.looking.recorder import Recorder
    from peasy.looking.tiles import Tiler, choose_tile

    stack = default_stack(loaded.model)
    exact = replace(question, steps=("weights",), rows=question.rows or (), parts=LINES, stacks=(stack,))
    parts, widths, lengths = parts_of(loaded.model), widths_of(loaded.model), passage.reading.lengths(loaded.model)
    exact.check(loaded.name, parts, widths)
    size = tile or choose_tile(max(lengths.values()))
    shown = [part for part in parts if exact.wants(part)]
    cells = sum((len(question.heads) if question.heads else part.heads) for part in shown)
    numbers = exact.numbers(parts, widths, lengths) + cells * (-(-max(lengths.values()) // size)) ** 2
    kept = choose_storage(numbers, budget)
    tiler, recorder = Tiler(size, how, question.heads, scaled), Recorder(exact, lengths, kept)
    run(loaded.model, passage.reading, recorder.tap(tiler.examine), change)
    return LongLook(
        loaded.name, passage.target or passage.tokens, tuple(tiler.overviews), recorder.captures(), tuple(shown),
        tuple(each.says() for each in edits), kept,
    )  # fmt: skip


def candidates(loaded: LoadedModel, scores: Any, best: int = 5) -> tuple[Candidate, ...]:
    """The likeliest next tokens; an encoder's scores are about the last place, not about what comes next."""
    if scores is None or loaded.kind == "encoder":
        return ()
    import torch

    chances = torch.softmax(scores.float(), dim=-1)
    top = chances.topk(min(best, len(chances)))
    tokenizer = loaded.target_tokenizer or loaded.tokenizer
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(Candidate(f"#{id}" if tokenizer is None else tokenizer.piece(id), id, chance) for id, chance in pairs)


def _change(loaded: LoadedModel, passage: "Passage", edits: tuple[Edit, ...]) -> "Change | None":
    from peasy.looking.change import make_change
    from peasy.workbench.passage import open_passage

    return make_change(edits, loaded.model, passage.axes, lambda text: open_passage(loaded, text).reading)


def _many(steps: Iterable[str] | str) -> tuple[str, ...]:
    return (steps,) if isinstance(steps, str) else tuple(steps)


def _numbers(given: Iterable[int] | int | None) -> tuple[int, ...] | None:
    if given is None or given is ...:
        return None
    return (given,) if isinstance(given, int) else tuple(given)


def _rows(given: Iterable[Word] | Word | None, tokens: Tokens) -> tuple[int, ...] | None:
    """Words and places as places, in the order of the text."""
    from peasy.looking.words import find_word

    if given is None or given is ...:
        return None
    asked = (given,) if isinstance(given, str | int) else tuple(given)
    return tuple(sorted({place for word in asked for place in find_word(tokens, word)}))
