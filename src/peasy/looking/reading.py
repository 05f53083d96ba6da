"""Forward pass of one input through any model, with optional tap and intervention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.looking.part import default_stack, widths_of
from peasy.models.protocol import Model
from peasy.nn.edit import Edit
from peasy.nn.place import Place
from peasy.nn.tap import Seen, Tap


@dataclass(frozen=True)
class Reading:
    """Token ids of one input; for an encoder-decoder model, `ids` is the source and `target` the decoder input."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def writes(self) -> tuple[int, ...]:
        """Ids of the stack that gives the logits: the target, or the only sequence."""
        return self.ids if self.target is None else self.target

    def lengths(self, model: Model) -> dict[str, int]:
        """Return the sequence length of each stack."""
        if model.reads_source:
            return {"encoder": len(self.ids), "decoder": len(self.target or ())}
        return {"encoder" if type(model.config).kind == "encoder" else "decoder": len(self.ids)}


def check_reading(model: Model, reading: Reading) -> None:
    """Raise if the input is empty, too long, or has a missing or unexpected target."""
    if not reading.ids:
        raise InvalidInput("The text is empty.", hint="Give at least one word.")
    if model.reads_source and not reading.target:
        raise InvalidInput("This encoder-decoder model needs a target.", hint="Give target=.")
    if not model.reads_source and reading.target is not None:
        raise InvalidInput("Only an encoder-decoder model has a target.", hint="Leave out target=.")
    context = getattr(model.config, "context", None)
    longest = max(len(reading.ids), len(reading.target or ()))
    if context is not None and longest > context:
        raise InvalidInput(
            f"The text has {longest:,} tokens; this model reads at most {context:,}.", hint="Give a shorter text."
        )


@torch.inference_mode()
def read(
    model: Model, reading: Reading, tap: Tap | None = None, edit: Edit | None = None, *, every: bool = False
) -> Any:
    """Return the logits after the last token `[vocab_size]`, or after each; None without an LM head."""
    hidden = run(model, reading, tap, edit)
    if tap is not None and "logits" in tap.steps:
        _hand_logits(model, hidden, tap)
    if getattr(model, "head", True) is None:
        return None
    logits = model.scores(hidden if every else hidden[:, -1:])[0]
    return logits if every else logits[-1]


@torch.inference_mode()
def run(model: Model, reading: Reading, tap: Tap | None = None, edit: Edit | None = None) -> Tensor:
    """Return the final hidden states `[1, time, d_model]`."""
    return model.hidden(_ids(model, reading.writes), tap=tap, edit=edit, **_source(model, reading))


def _hand_logits(model: Model, hidden: Tensor, tap: Tap) -> None:
    """Pass the logits of the requested rows to the tap, whichever layers were requested."""
    if getattr(model, "head", True) is None:
        raise InvalidInput("This model has no LM head: there are no logits.", hint='Choose steps=["final"].')
    rows = tap.rows_of(hidden.shape[1])
    path = Place(default_stack(model), widths_of(model).layers.get(default_stack(model), 0), "stream")
    tap.hand(Seen(path, "logits", model.scores(hidden[:, list(rows)]), rows=rows))


def _source(model: Model, reading: Reading) -> dict[str, Tensor]:
    return {"source": _ids(model, reading.ids)} if model.reads_source else {}


def _ids(model: Model, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.device)
