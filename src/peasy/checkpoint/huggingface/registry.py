"""Registry of Hugging Face model families: by model_type for import, by matching config for export."""

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
    """Return the family of a config.json; the error for an unsupported one lists the supported ones.

    >>> recognise({"model_type": "gpt2"}).name
    'gpt2'
    """
    name, architectures = data.get("model_type"), data.get("architectures") or []
    if not isinstance(name, str) or name not in FAMILIES:
        given = name if isinstance(name, str) else ", ".join(map(str, architectures)) or "no model_type"
        near = did_you_mean(given, FAMILIES)
        hint = f"Supported: {', '.join(FAMILIES)}."
        raise InvalidInput(
            f"{where}: the architecture {given[:80]!r} is not supported.", hint=f"{near} {hint}" if near else hint
        )
    family = FAMILIES[name]
    if not isinstance(architectures, list) or not all(isinstance(item, str) for item in architectures):
        raise InvalidInput(f"{where}: architectures should be a list of names.")
    for architecture in architectures:
        if architecture not in family.architectures:
            hint = f"Supported for {name}: {', '.join(family.architectures)}."
            raise InvalidInput(f"{where}: the architecture {architecture[:80]!r} is not supported.", hint=hint)
    return family


def read_settings(family: Family, fields: Fields, parts: Parts) -> Config:
    """Convert a Hugging Face config to peasy's; every field is read, ignored by name, or refused by name."""
    fields.ignore(IGNORED)
    fields.only("auto_map", why="It refers to custom code, which peasy does not run.")
    fields.only("quantization_config", why="Quantised weights are not supported.")
    fields.only("pruned_heads", {}, why="Different numbers of heads per layer are not supported.")
    fields.only("tie_encoder_decoder", False, why="Encoder and decoder with shared weights are not supported.")
    try:
        config = family.read(fields, parts)
    except InvalidInput as error:  # errors of peasy's config classes do not name the file
        message = error.message if fields.where in error.message else f"{fields.where}: {error.message}"
        raise InvalidInput(message, hint=error.hint) from None
    fields.close()
    return config


def match(family: Family, config: Config, where: str = "config.json") -> tuple[list[Pair], dict[str, torch.Tensor]]:
    """Return the pairs of weight names, and the external weights as tensors on the meta device."""
    ours = build_empty(config, where).state_dict()
    pairs = pair(family.table(config), ours)
    return pairs, take_out(pairs, ours)


def family_for(config: Config) -> Family:
    """Return the family that represents a model of this config exactly."""
    reasons = []
    for family in FAMILIES.values():
        if isinstance(config, family.kind):
            differences = _differences(family, config)
            if not differences:
                return family
            reasons.append((len(differences), f"{family.name}: {', '.join(differences[:4])}"))
    if not reasons:
        raise InvalidInput(f"No Hugging Face family supports models of kind {config.kind}.")
    hint = f"Differences from the closest family, {min(reasons)[1]}."
    raise InvalidInput("No supported Hugging Face family matches this model.", hint=hint)


def _differences(family: Family, config: Config) -> list[str]:
    """Return the config keys that a write-read round trip would change; weights without a rule do not count."""
    try:
        reread = read_settings(family, Fields(family.write(config)), Promised(_their_names(family, config)))
    except InvalidInput as error:
        return [error.message.removesuffix(".")]
    before, after = _flat(_settled(config)), _flat(_settled(reread))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _their_names(family: Family, config: Config) -> list[str]:
    """Return the external names of weights with a one-to-one rule: enough to detect which parts exist."""
    weights = build_empty(config, "config").state_dict()
    names = []
    for weight in weights:
        with contextlib.suppress(InvalidInput):
            names += [name for resolved in pair(family.table(config), [weight]) for name in resolved.theirs]
    return names


def _settled(config: Any) -> Any:
    """Return the config with defaults made explicit, and without what config.json does not store."""
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
            flat[path] = value

    flat: dict[str, Any] = {}
    walk(plain(settings), "")
    return flat
