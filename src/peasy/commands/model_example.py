"""Worked example of one attention head of a model: its own queries, keys, values, scale and mask for a text."""

import numpy as np
import torch

from peasy.commands.load import LoadedModel, ModelSource, load
from peasy.commands.model_input import make_input
from peasy.errors import InvalidInput, NotFound
from peasy.inspection.forward import ModelInput, attentions_of, default_stack, forward_hidden
from peasy.nn.capture import AttentionInputs
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Tap
from peasy.worked.example import Example, read_example

_MAX_TOKENS = 64
"""Maximum number of tokens: every number is listed."""

_NOTE = (
    "The numbers of the model itself: queries and keys after projection and position, as they enter the formula. "
    "Scores, weights and context are calculated from them in double precision."
)


def model_example(model: ModelSource, text: str, layer: int, head: int) -> Example:
    """Return the self-attention of one head for a text as an example, for every model that has attention."""
    loaded = load(model)
    stack = default_stack(loaded.model)
    infos = {
        info.path.layer: info
        for info in attentions_of(loaded.model)
        if info.path.stack == stack and info.path.part == "attention"
    }
    if layer not in infos:
        hint = f"Layers: 0 to {max(infos)}." if infos else "Choose a Transformer."
        raise NotFound(f"{loaded.name} has no self-attention in layer {layer}.", hint=hint)
    if not 0 <= head < infos[layer].num_heads:
        raise NotFound(f"Layer {layer} has no head {head}.", hint=f"Heads: 0 to {infos[layer].num_heads - 1}.")
    labelled = make_input(loaded, text)
    tokens = labelled.model_input.output_ids
    if len(tokens) > _MAX_TOKENS:
        raise InvalidInput(f"The text has {len(tokens)} tokens.", hint=f"At most {_MAX_TOKENS} can be explained.")
    inputs = _capture(loaded, labelled.model_input, stack, layer)
    labels = labelled.tokens.pieces if len(labelled.tokens.pieces) == len(tokens) else tuple(map(str, tokens))
    return _head_example(inputs, head, tuple(labels), f"{loaded.name}, layer {layer}, head {head}: {text}")


def _capture(loaded: LoadedModel, model_input: ModelInput, stack: str, layer: int) -> AttentionInputs:
    captured: list[AttentionInputs] = []

    def keep(path: ModulePath, inputs: AttentionInputs) -> None:
        captured.append(inputs)

    tap = Tap(lambda _: None, layers=[layer], parts=["attention"], stacks=[stack], on_attention=keep)
    with torch.inference_mode():
        forward_hidden(loaded.model, model_input, tap)
    return captured[-1]


def _head_example(inputs: AttentionInputs, head: int, tokens: tuple[str, ...], title: str) -> Example:
    """Return the example of one head; raise if its formula has parts that an example cannot describe."""
    if inputs.softcap is not None or inputs.sinks is not None:
        raise InvalidInput(
            "This attention has a soft cap or sinks, which an example cannot describe.",
            hint="peasy look shows its weights.",
        )
    rows = tuple(range(inputs.query.shape[2]))
    own = inputs.select((head,), rows)
    query, key, value = (array[0, 0].double().cpu().numpy() for array in (own.query, own.key, own.value))
    mask, bias = own.attention_mask.mask, own.attention_mask.bias
    data: dict[str, object] = {
        "title": title, "tokens": list(tokens), "q": query, "k": key, "v": value, "note": _NOTE,
        "scale": float(own.scale), "causal": bool(own.attention_mask.causal),
    }  # fmt: skip
    if mask is not None:
        data["mask"] = np.broadcast_to(_last_axes(mask), (len(query), len(key))).copy()
    if bias is not None:
        data["bias"] = np.broadcast_to(_last_axes(bias.double()), (len(query), len(key))).copy()
    return read_example(data)


def _last_axes(array: torch.Tensor) -> np.ndarray:
    """Return the last two axes of a mask of one sequence and head."""
    return array.reshape(-1, *array.shape[-2:])[0].cpu().numpy()
