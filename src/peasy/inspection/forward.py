"""Forward pass of one input through any model, with optional tap and intervention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.inspection.introspect import default_stack, dims_of
from peasy.models.protocol import Model
from peasy.nn.intervention import InterventionLike
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Activation, Tap


@dataclass(frozen=True)
class ModelInput:
    """Token ids of one input; for an encoder-decoder model, `ids` is the source and `target` the decoder input."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Ids of the stack that gives the logits: the target, or the only sequence."""
        return self.ids if self.target is None else self.target

    def lengths(self, model: Model) -> dict[str, int]:
        """Return the sequence length of each stack."""
        if model.is_encoder_decoder:
            return {"encoder": len(self.ids), "decoder": len(self.target or ())}
        return {"encoder" if type(model.config).kind == "encoder" else "decoder": len(self.ids)}


def check_input(model: Model, model_input: ModelInput) -> None:
    """Raise if the input is empty, too long, or has a missing or unexpected target."""
    if not model_input.ids:
        raise InvalidInput("The text is empty.", hint="Give at least one word.")
    if model.is_encoder_decoder and not model_input.target:
        raise InvalidInput("This encoder-decoder model needs a target.", hint="Give target=.")
    if not model.is_encoder_decoder and model_input.target is not None:
        raise InvalidInput("Only an encoder-decoder model has a target.", hint="Leave out target=.")
    context = getattr(model.config, "max_seq_len", None)
    longest = max(len(model_input.ids), len(model_input.target or ()))
    if context is not None and longest > context:
        raise InvalidInput(
            f"The text has {longest:,} tokens; this model reads at most {context:,}.", hint="Give a shorter text."
        )


@torch.inference_mode()
def forward_logits(
    model: Model,
    model_input: ModelInput,
    tap: Tap | None = None,
    intervention: InterventionLike | None = None,
    *,
    all_positions: bool = False,
) -> Any:
    """Return the logits after the last token `[vocab_size]`, or after each; None without an LM head."""
    hidden = forward_hidden(model, model_input, tap, intervention)
    if tap is not None and "logits" in tap.steps:
        _record_logits(model, hidden, tap)
    if getattr(model, "lm_head", True) is None:
        return None
    logits = model.logits(hidden if all_positions else hidden[:, -1:])[0]
    return logits if all_positions else logits[-1]


@torch.inference_mode()
def forward_hidden(
    model: Model, model_input: ModelInput, tap: Tap | None = None, intervention: InterventionLike | None = None
) -> Tensor:
    """Return the final hidden states `[1, time, d_model]`."""
    return model.hidden(
        _ids_tensor(model, model_input.output_ids),
        tap=tap,
        intervention=intervention,
        **_source_argument(model, model_input),
    )


def _record_logits(model: Model, hidden: Tensor, tap: Tap) -> None:
    """Pass the logits of the requested rows to the tap, whichever layers were requested."""
    if getattr(model, "lm_head", True) is None:
        raise InvalidInput("This model has no LM head: there are no logits.", hint='Choose steps=["final"].')
    rows = tap.resolve_rows(hidden.shape[1])
    path = ModulePath(default_stack(model), dims_of(model).num_layers.get(default_stack(model), 0), "stream")
    tap.callback(Activation(path, "logits", model.logits(hidden[:, list(rows)]), rows=rows))


def _source_argument(model: Model, model_input: ModelInput) -> dict[str, Tensor]:
    return {"source": _ids_tensor(model, model_input.ids)} if model.is_encoder_decoder else {}


def _ids_tensor(model: Model, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.device)
