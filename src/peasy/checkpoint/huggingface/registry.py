"""Registry of Hugging Face model families: by model_type for import, by matching config for export."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from peasy.checkpoint.huggingface import bert_families, config_fields, gpt, llama, marian, modernbert, t5
from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.huggingface.config_table import Settings, settings_of
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.sentence_transformers import DENSE
from peasy.checkpoint.huggingface.weight_map import TensorPair, export_weights, module_rules, pair_weights
from peasy.errors import InvalidInput
from peasy.models.build import build_on_meta
from peasy.models.config import ModelConfig

FAMILIES: dict[str, ModelFamily] = {
    family.name: family
    for family in (
        gpt.FAMILIES[0],
        *llama.FAMILIES,
        *gpt.FAMILIES[1:],
        *bert_families.FAMILIES,
        modernbert.FAMILY,
        *marian.FAMILIES,
        *t5.FAMILIES,
    )
}


_UNSUPPORTED = {
    "attention_chunk_size": "Its attention is chunked: a query sees only keys of its own chunk.",
    "num_local_experts": "It is a mixture of experts; a block of peasy has one MLP.",
    "num_experts": "It is a mixture of experts; a block of peasy has one MLP.",
}
"""Fields of config.json that tell why an architecture is not supported."""


_LANGUAGE_MODELS: dict[str, dict[str, object]] = {
    "gemma3": {"vocab_size": 262_208, "num_attention_heads": 8, "max_position_embeddings": 131_072},
    "mistral3": {},
}
"""Models of text and images whose text_config is a family of its own, and what transformers assumes in it."""

_QUANTISED = (
    "Quantised weights are not read: import the original model, or what model.dequantize() of transformers saves."
)


def language_model_config(data: Mapping[str, object]) -> Mapping[str, object]:
    """Return the config of the language model in one of text and images; any other config is returned unchanged."""
    name, text = data.get("model_type"), data.get("text_config")
    if not isinstance(name, str) or name not in _LANGUAGE_MODELS or not isinstance(text, dict):
        return data
    ids = {field: value for field, value in data.items() if field.endswith("_token_id")}
    tied = {field: data[field] for field in ("tie_word_embeddings",) if field in data}  # the head is the whole model's
    return {**_LANGUAGE_MODELS[name], **ids, **text, **tied, "architectures": []}


def detect_family(
    data: Mapping[str, object], where: str = "config.json", *, name: str | None = None, any_head: bool = False
) -> ModelFamily:
    """Return the family of a config.json; the error for an unsupported one lists the supported ones.

    `name`: the family, if config.json does not name it. `any_head`: its architecture may have an unknown head.

    >>> detect_family({"model_type": "gpt2"}).name
    'gpt2'
    """
    given, architectures = data.get("model_type"), data.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(item, str) for item in architectures):
        raise InvalidInput(f"{where}: architectures should be a list of names.")
    if given is None and name is None and not architectures:
        hint = "Name its family: peasy import FOLDER --as bert, or another of " + ", ".join(FAMILIES) + "."
        raise InvalidInput(f"{where} has no model_type.", hint=hint)
    if None not in (given, name) and given != name:
        hint = "--as names the family of a folder without a model_type: omit it."
        raise InvalidInput(f"{where} says {str(given)[:80]!r}, not {name!r}.", hint=hint)
    if given is None and name is None:  # older files: the class names the family
        name = next((family.name for family in FAMILIES.values() if set(architectures) & {*family.architectures}), None)
    name = name if given is None else given  # type: ignore[assignment]
    if not isinstance(name, str) or name not in FAMILIES:
        shown = name if isinstance(name, str) else ", ".join(architectures) or "no model_type"
        # Another architecture is no spelling mistake: mixtral is not mistral.
        near = next((known for known in FAMILIES if _spelling(known) == _spelling(shown)), None)
        hint = f"{f'Did you mean {near}? ' if near else ''}Supported: {', '.join(FAMILIES)}."
        text = data.get("text_config")
        fields = {**data, **text} if isinstance(text, dict) else data
        reason = next((f" {reason}" for field, reason in _UNSUPPORTED.items() if fields.get(field)), "")
        raise InvalidInput(f"{where}: the architecture {shown[:80]!r} is not supported.{reason}", hint=hint)
    family = FAMILIES[name]
    if not architectures:
        return family
    same_type = (other for other in FAMILIES.values() if other.model_type == name)
    family = next((other for other in same_type if architectures[0] in other.architectures), family)
    for architecture in architectures:
        if architecture not in family.architectures and not any_head:
            hint = f"Supported for {name}: {', '.join(family.architectures)}."
            hint += " To load it without its head: peasy import --ignore-extra."
            raise InvalidInput(f"{where}: the architecture {architecture[:80]!r} is not supported.", hint=hint)
    return family


def _spelling(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def read_hf_config(
    family: ModelFamily, fields: ConfigFields, weights: config_fields.WeightNames, *, ignore_extra: bool = False
) -> ModelConfig:
    """Convert a Hugging Face config to peasy's; every field is read, ignored by name, or refused by name.

    `ignore_extra`: unknown fields are left to the caller, as `fields.unknown()`.
    """
    fields.ignore(config_fields.IGNORED_FIELDS)
    if not family.has_custom_code:
        reason = "It refers to custom code, which peasy does not run; without that code, delete this field."
        fields.require_value("auto_map", reason=reason)
    fields.ignore(["auto_map"])
    fields.require_value("quantization_config", reason=_QUANTISED)
    fields.ignore("is_decoder" if family.kind == "decoder" else "")
    for name, reason in _UNSUPPORTED.items():
        fields.require_value(name, reason=reason)
    fields.require_value("pruned_heads", {}, reason="Different numbers of heads per layer are not supported.")
    fields.require_value(
        "tie_encoder_decoder", False, reason="Encoder and decoder with shared weights are not supported."
    )
    try:
        config = family.read_config(fields, weights)
    except InvalidInput as error:  # errors of peasy's config classes do not name the file
        message = error.message if fields.where in error.message else f"{fields.where}: {error.message}"
        raise InvalidInput(message, hint=error.hint) from None
    if not ignore_extra:
        fields.reject_unknown("If they do not: --ignore-extra loads the model without them.")
    return config


def write_hf_config(family: ModelFamily, config: ModelConfig) -> dict[str, object]:
    """Convert peasy's config to a Hugging Face config of this family."""
    kind: dict[str, object] = {"is_encoder_decoder": True} if config.kind == "encoder-decoder" else {}
    settings = family.write_config(config)
    names = {"architectures": [family.architecture(config)], "model_type": family.model_type or family.name}
    return names | kind | settings


def match_weights(
    family: ModelFamily, config: ModelConfig, where: str = "config.json"
) -> tuple[list[TensorPair], dict[str, torch.Tensor]]:
    """Return the pairs of weight names, and the external weights as tensors on the meta device."""
    internal = build_on_meta(config, where).state_dict()
    weight_map = family.weight_map(config)
    weight_map = replace(weight_map, rules=(*weight_map.rules, *module_rules("", "", {DENSE: DENSE})))
    pairs = pair_weights(weight_map, internal)
    return pairs, export_weights(pairs, internal)


def family_for(config: ModelConfig, preferred: str | None = None) -> ModelFamily:
    """Return the family that represents a model of this config exactly; if several do, the `preferred` one."""
    reasons = []
    for family in sorted(FAMILIES.values(), key=lambda family: family.name != preferred):
        if config.kind == family.kind:
            differences = _roundtrip_differences(family, config)
            if not differences:
                return family
            reasons.append((len(differences), f"{family.name}: {', '.join(differences[:4])}"))
    if not reasons:
        raise InvalidInput(f"No Hugging Face family supports models of kind {config.kind}.")
    hint = f"Differences from the closest family, {min(reasons)[1]}."
    if any(added in hint for added in ("stack.token_shift", "embedding.max_ngram")):
        hint += " This trains an exportable model: peasy train gpt --preset small --data ..."
    raise InvalidInput("No supported Hugging Face family matches this model.", hint=hint)


def _roundtrip_differences(family: ModelFamily, config: ModelConfig) -> list[str]:
    """Return the config keys that a write-read round trip would change; weights without a rule do not count."""
    try:
        names = config_fields.PlannedWeights(_external_names(family, config))
        reread = read_hf_config(family, ConfigFields(write_hf_config(family, config)), names)
    except InvalidInput as error:
        return [error.message.removesuffix(".")]
    before, after = _comparable(config), _comparable(reread)
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _external_names(family: ModelFamily, config: ModelConfig) -> Iterator[str]:
    """Iterate over the external names of weights with a one-to-one rule: enough to detect which parts exist."""
    for weight in build_on_meta(config, "config").state_dict():
        with contextlib.suppress(InvalidInput):
            for pair in pair_weights(family.weight_map(config), [weight]):
                yield from pair.external


_NOT_STORED = ("dropout", "special_tokens", "pooling", "normalise", "max_length", DENSE)


def _comparable(config: ModelConfig) -> Settings:
    """Return the settings that config.json stores; windows that no layer has, or all have, in one form."""
    settings = {path: value for path, value in settings_of(config).items() if not path.startswith(_NOT_STORED)}
    if settings.get("position.kind") != "learned":
        del settings["max_seq_len"]
    for name in ("stack", "encoder", "decoder"):
        if (stack := getattr(config, name, None)) is not None:
            windows = [stack.attention.window_for_layer(layer) for layer in range(stack.num_layers)]
            windowed = [layer for layer, window in enumerate(windows) if window is not None]
            settings[f"{name}.attention.window"] = stack.attention.window if windowed else None
            settings[f"{name}.attention.windowed_layers"] = windowed if len(windowed) < len(windows) else []
    return settings
