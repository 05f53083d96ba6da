"""All families by the name that their config.json carries, and which of them a model of ours can leave as."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from peasy.checkpoint.huggingface import bert, gpt2, llama, marian, t5
from peasy.checkpoint.huggingface.family import IGNORED, Family, Parts, Promised
from peasy.checkpoint.huggingface.fields import Fields
from peasy.checkpoint.huggingface.rule import Pair, pair, take_out
from peasy.checkpoint.model import build_empty
from peasy.config import plain
from peasy.errors import InvalidInput, did_you_mean
from peasy.models.config import Config
from peasy.nn.part import Learned

FAMILIES: dict[str, Family] = {
    family.name: family for family in (gpt2.FAMILY, *llama.FAMILIES, *bert.FAMILIES, *marian.FAMILIES, t5.FAMILY)
}


def recognise(data: Mapping[str, Any], where: str = "config.json") -> Family:
    """The family of a config.json; an unknown one is named, with those that are known.

    >>> recognise({"model_type": "gpt2"}).name
    'gpt2'
    """
    name, architectures = data.get("model_type"), data.get("architectures") or []
    if not isinstance(name, str) or name not in FAMILIES:
        said = name if isinstance(name, str) else ", ".join(map(str, architectures)) or "no model_type"
        near = did_you_mean(said, FAMILIES)
        hint = f"Supported: {', '.join(FAMILIES)}."
        raise InvalidInput(
            f"{where}: the architecture {said[:80]!r} is not supported.", hint=f"{near} {hint}" if near else hint
        )
    family = FAMILIES[name]
    if not isinstance(architectures, list) or not all(isinstance(each, str) for each in architectures):
        raise InvalidInput(f"{where}: architectures should be a list of names.")
    for each in architectures:
        if each not in family.architectures:
            hint = f"Supported for {name}: {', '.join(family.architectures)}."
            raise InvalidInput(f"{where}: the architecture {each[:80]!r} is not supported.", hint=hint)
    return family


def read_settings(family: Family, fields: Fields, parts: Parts) -> Config:
    """Our settings from theirs; every field was read, is ignored by name, or is refused by name."""
    fields.ignore(IGNORED)
    fields.only("auto_map", why="It names code of its own, which peasy does not run.")
    fields.only("quantization_config", why="Quantised weights are not read.")
    fields.only("pruned_heads", {}, why="Heads of different number in each layer are not supported.")
    fields.only("tie_encoder_decoder", False, why="Encoder and decoder with the same weights are not supported.")
    try:
        config = family.read(fields, parts)
    except InvalidInput as error:  # our own settings know nothing of the file that they were read from
        said = error.message if fields.where in error.message else f"{fields.where}: {error.message}"
        raise InvalidInput(said, hint=error.hint) from None
    fields.close()
    return config


def match(family: Family, config: Config, where: str = "config.json") -> tuple[list[Pair], dict[str, torch.Tensor]]:
    """Our weights paired with theirs, and the shapes of theirs as tensors without memory."""
    ours = build_empty(config, where).state_dict()
    pairs = pair(family.table(config), ours)
    return pairs, take_out(pairs, ours)


def family_for(config: Config) -> Family:
    """The family that can hold a model of these settings exactly."""
    reasons = []
    for family in FAMILIES.values():
        if isinstance(config, family.kind):
            differences = _differences(family, config)
            if not differences:
                return family
            reasons.append((len(differences), f"{family.name}: {', '.join(differences[:4])}"))
    if not reasons:
        raise InvalidInput(f"A model of kind {config.kind} has no place in any Hugging Face family.")
    hint = f"What differs from the nearest, {min(reasons)[1]}."
    raise InvalidInput("No supported Hugging Face family is built like this model.", hint=hint)


def _differences(family: Family, config: Config) -> list[str]:
    """Where what the family would write reads back as something else; weights without a rule do not matter here."""
    try:
        again = read_settings(family, Fields(family.write(config)), Promised(_their_names(family, config)))
    except InvalidInput as error:
        return [error.message.removesuffix(".")]
    before, after = _flat(_settled(config)), _flat(_settled(again))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _their_names(family: Family, config: Config) -> list[str]:
    """Their names of those of our weights that have one each: enough to know which parts there are."""
    ours = build_empty(config, "config").state_dict()
    known = []
    for name in ours:
        with contextlib.suppress(InvalidInput):
            known += [their for found in pair(family.table(config), [name]) for their in found.theirs]
    return known


def _settled(config: Any) -> Any:
    """The same settings with what goes without saying said, and what a config.json does not carry left out."""
    changes: dict[str, Any] = {"dropout": 0.0, "special": type(config.special)()}
    if not isinstance(config.position, Learned):
        changes["context"] = None
    if config.kind == "encoder":
        changes |= {"pooling": "mean", "normalise": True, "longest": None}
    for side in ("stack", "encoder", "decoder"):
        if hasattr(config, side):
            changes[side] = _settled_stack(getattr(config, side), config.d_model)
    return dataclasses.replace(config, **changes)


def _settled_stack(stack: Any, d_model: int) -> Any:
    attention = stack.attention
    windowed = [layer for layer in range(stack.layers) if attention.window_of(layer) is not None]
    attention = dataclasses.replace(
        attention,
        key_heads=attention.key_heads or attention.heads,
        d_head=attention.d_head or d_model // attention.heads,
        scale=attention.scale or (attention.d_head or d_model // attention.heads) ** -0.5,
        window=attention.window if windowed else None,
        windowed=None if len(windowed) in (0, stack.layers) else tuple(windowed),
    )
    return dataclasses.replace(stack, attention=attention)


def _flat(settings: Any) -> dict[str, Any]:
    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else key)
        else:
            found[path] = value

    found: dict[str, Any] = {}
    walk(plain(settings), "")
    return found
