"""Logit lens: the residual stream of every layer, decoded by the final norm and LM head."""

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
    """Return the top tokens of each layer at each position; the last layer is the model's own output."""
    stack: Any = getattr(model, default_stack(model), None)
    if not hasattr(stack, "blocks") or getattr(model, "head", None) is None:
        raise InvalidInput(f"{name or 'This model'} has no layers with an LM head: the logit lens needs both.")
    residuals: list[Seen] = []
    tap = Tap(residuals.append, steps=["residual"], parts=["stream"], stacks=[stack.name], rows=rows)
    run(model, reading, tap, edit)
    positions = rows if rows is not None else tuple(range(len(tokens)))
    decoded = [_read_layer(model, stack, residual.array, best) for residual in residuals]
    pieces = tuple(tuple(_pieces(row, tokenizer) for row in ids.tolist()) for ids, _ in decoded)
    probabilities = np.stack([layer_probabilities.cpu().numpy() for _, layer_probabilities in decoded])
    layers = tuple(residual.place.layer for residual in residuals)
    assert layers == tuple(range(widths_of(model).layers[stack.name] + 1))
    return LensTable(name, tokens, layers, tuple(p % len(tokens) for p in positions), pieces, probabilities)


def _read_layer(model: Model, stack: Any, residual: Tensor, best: int) -> tuple[Tensor, Tensor]:
    normed = residual if stack.norm is None else stack.norm(residual)
    probabilities = torch.softmax(model.scores(normed)[0].float(), dim=-1)
    top = probabilities.topk(best)
    return top.indices, top.values


def _pieces(ids: list[int], tokenizer: Tokenizer | None) -> tuple[str, ...]:
    return tuple(f"#{id}" if tokenizer is None else tokenizer.piece(id) for id in ids)
