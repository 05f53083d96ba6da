"""The logit lens: the stream of every layer, read as if it were the last."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.part import default_stack, widths_of
from peasy.looking.reading import Reading, run
from peasy.looking.record import LensTable
from peasy.models.protocol import Model
from peasy.nn.edit import Edit
from peasy.nn.tap import Seen, Tap
from peasy.text import Tokenizer


@torch.inference_mode()
def lens(
    model: Model,
    reading: Reading,
    tokens: Tokens,
    tokenizer: Tokenizer | None,
    *,
    rows: tuple[int, ...] | None = None,
    best: int = 3,
    edit: Edit | None = None,
    name: str = "",
) -> LensTable:
    """What each layer would say at each row; the last line is what the model says."""
    stack: Any = getattr(model, default_stack(model), None)
    if not hasattr(stack, "blocks") or getattr(model, "head", None) is None:
        raise InvalidInput(f"{name or 'This model'} has no layers that could be read by a head.")
    seen: list[Seen] = []
    run(model, reading, Tap(seen.append, steps=["residual"], parts=["stream"], stacks=[stack.name], rows=rows), edit)
    places = rows if rows is not None else tuple(range(len(tokens)))
    found = [_read_layer(model, stack, one.array, best) for one in seen]
    pieces = tuple(tuple(_pieces(row, tokenizer) for row in ids.tolist()) for ids, _ in found)
    chances = np.stack([chances.cpu().numpy() for _, chances in found])
    layers = tuple(one.place.layer for one in seen)
    assert layers == tuple(range(widths_of(model).layers[stack.name] + 1))
    return LensTable(name, tokens, layers, tuple(p % len(tokens) for p in places), pieces, chances)


def _read_layer(model: Model, stack: Any, residual: Tensor, best: int) -> tuple[Tensor, Tensor]:
    final = residual if stack.norm is None else stack.norm(residual)
    chances = torch.softmax(model.scores(final)[0].float(), dim=-1)
    top = chances.topk(best)
    return top.indices, top.values


def _pieces(ids: list[int], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    return tuple(f"#{id}" if tokenizer is None else tokenizer.piece(id) for id in ids)
