"""One pass of one text through a model of any kind, watched or edited, and the scores of what comes next."""

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
    """The ids of a text; for a model that answers a source, `ids` is the source and `target` the answer."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def writes(self) -> tuple[int, ...]:
        """What the model's scores are about."""
        return self.ids if self.target is None else self.target

    def lengths(self, model: Model) -> dict[str, int]:
        """How many tokens each stack reads."""
        if model.reads_source:
            return {"encoder": len(self.ids), "decoder": len(self.target or ())}
        return {"encoder" if type(model.config).kind == "encoder" else "decoder": len(self.ids)}


def check_reading(model: Model, reading: Reading) -> None:
    """Refuse a text the model cannot read: none, too long, or a target that is missing or not wanted."""
    if not reading.ids:
        raise InvalidInput("There is no text to look at.", hint="Give at least one word.")
    if model.reads_source and not reading.target:
        raise InvalidInput("This model answers a source: there is no answer to look at.", hint="Give target=.")
    if not model.reads_source and reading.target is not None:
        raise InvalidInput("Only a model that answers a source has a target.", hint="Leave out target=.")
    context = getattr(model.config, "context", None)
    longest = max(len(reading.ids), len(reading.target or ()))
    if context is not None and longest > context:
        raise InvalidInput(
            f"The text has {longest:,} tokens, and this model reads {context:,} at most.", hint="Give a shorter text."
        )


@torch.inference_mode()
def read(
    model: Model, reading: Reading, tap: Tap | None = None, edit: Edit | None = None, *, every: bool = False
) -> Any:
    """Run the text; the scores after its last token `[vocabulary]`, with `every` after each, or None without a head."""
    hidden = run(model, reading, tap, edit)
    if tap is not None and "logits" in tap.steps:
        _hand_logits(model, hidden, tap)
    if getattr(model, "head", True) is None:
        return None
    scores = model.scores(hidden if every else hidden[:, -1:])[0]
    return scores if every else scores[-1]


@torch.inference_mode()
def run(model: Model, reading: Reading, tap: Tap | None = None, edit: Edit | None = None) -> Tensor:
    """The last vector of every token, `[1, time, d_model]`."""
    return model.hidden(_ids(model, reading.writes), tap=tap, edit=edit, **_source(model, reading))


def _hand_logits(model: Model, hidden: Tensor, tap: Tap) -> None:
    """The scores of the asked rows: no layer has them, so they are there whichever layers were asked for."""
    if getattr(model, "head", True) is None:
        raise InvalidInput("This model has no head: there are no logits.", hint='Ask for steps=["final"].')
    rows = tap.rows_of(hidden.shape[1])
    last = Place(default_stack(model), widths_of(model).layers.get(default_stack(model), 0), "stream")
    tap.hand(Seen(last, "logits", model.scores(hidden[:, list(rows)]), rows=rows))


def _source(model: Model, reading: Reading) -> dict[str, Tensor]:
    return {"source": _ids(model, reading.ids)} if model.reads_source else {}


def _ids(model: Model, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.device)
