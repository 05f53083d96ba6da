"""Strict reader of config.json: each field has a type and bounds, and is read, ignored or refused by name."""

import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from peasy.checkpoint.safe_folder import join_names, short_repr
from peasy.errors import InvalidInput, did_you_mean
from peasy.nn.config import ActivationName

T = TypeVar("T")

MAX_SIZE = 2**31 - 1
"""Largest plausible size in a model; a larger one means a damaged file."""

_MAX_LAYERS = 1000

REQUIRED: Any = object()
"""Default of a field that must be there."""

FROM_HF_ACTIVATION: dict[str, ActivationName] = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh",
    "relu": "relu", "relu2": "relu-squared", "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip
TO_HF_ACTIVATION = {ours: theirs for theirs, ours in reversed(FROM_HF_ACTIVATION.items())}
"""Of several names, the first."""

IGNORED_FIELDS = """
    architectures model_type transformers_version _name_or_path name_or_path _commit_hash dtype torch_dtype
    torchscript use_bfloat16 use_cache output_attentions output_hidden_states output_past output_scores return_dict
    return_dict_in_generate gradient_checkpointing chunk_size_feed_forward initializer_range initializer_factor
    init_std _attn_implementation _attn_implementation_autoset attn_implementation attention_dropout
    classifier_dropout classif_dropout id2label label2id num_labels _num_labels problem_type finetuning_task
    task_specific_params tokenizer_class tf_legacy_loss prefix max_length min_length max_new_tokens num_beams
    num_beam_groups do_sample temperature top_k top_p typical_p repetition_penalty length_penalty diversity_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences early_stopping
    forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens sep_token_id cross_attention_hidden_size pretraining_tp transformers.js_config
    unsloth_fixed unsloth_version author created_date license is_encoder_decoder summary_type summary_use_proj
    summary_activation summary_proj_to_labels summary_first_dropout summary_last_dropout activation_dropout
    hidden_dropout embed_dropout embd_pdrop resid_pdrop attn_pdrop attention_probs_dropout_prob embedding_dropout
    use_return_dict eos_token_ids sentence_transformers sbert_ce_default_activation_function dropout class_weights
    hidden_dropout_prob custom_pipelines attention_softmax_in_fp32 scale_attention_softmax_in_fp32 export_model_type
"""
"""Fields of training, sampling and the library; none changes what a forward pass computes."""


class WeightNames(Protocol):
    """Names of the weights in a checkpoint, which some config fields depend on."""

    def __contains__(self, name: object, /) -> bool: ...

    def differ(self, first: str, second: str) -> bool:
        """Return whether both exist with different values."""


class PlannedWeights(frozenset[str]):
    """Names of weights that will be written; two names are always different weights."""

    def differ(self, first: str, second: str) -> bool:
        """Return whether both exist."""
        return first in self and second in self


class ConfigFields:
    """Fields of one config.json, with a record of which were read."""

    def __init__(self, data: Mapping[str, object], where: str = "config.json") -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where} should be a JSON object, not {short_repr(data)}.")
        self.data, self.where = data, where
        self._seen: set[str] = set()

    def has(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        self._seen.add(name)
        return self.data.get(name) is not None

    def integer(self, name: str, default: object = REQUIRED, *, minimum: int = 1, maximum: int = MAX_SIZE) -> Any:
        """Read an integer between `minimum` and `maximum`."""
        value = self._get(name, default)
        if value is not default and (type(value) is not int or not minimum <= value <= maximum):
            raise self.invalid(name, f"an integer from {minimum} to {maximum}")
        return value

    def num_layers(self, name: str, default: object = REQUIRED) -> Any:
        """Read a number of layers."""
        return self.integer(name, default, maximum=_MAX_LAYERS)

    def number(self, name: str, default: object = REQUIRED, *, minimum: float = 0.0, maximum: float = 1e12) -> float:
        """Read a number between `minimum` and `maximum`."""
        value = self._get(name, default)
        if value is default:
            return typing.cast(float, value)
        if type(value) not in (int, float) or not (minimum <= value <= maximum and math.isfinite(value)):
            raise self.invalid(name, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def numbers(self, name: str, default: object = REQUIRED) -> tuple[float, ...]:
        """Read a list of positive numbers."""
        value = self._get(name, default)
        if not isinstance(value, list) or not all(type(item) in (int, float) and 0 < item < 1e12 for item in value):
            raise self.invalid(name, "a list of positive numbers")
        return tuple(float(item) for item in value)

    def boolean(self, name: str, default: object = REQUIRED) -> bool:
        """Read a boolean."""
        value = self._get(name, default)
        if value is not default and type(value) is not bool:
            raise self.invalid(name, "true or false")
        return typing.cast(bool, value)

    def choice(self, name: str, choices: Mapping[str, T], default: object = REQUIRED) -> T:
        """Read a string and return its value in `choices`."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            near = did_you_mean(value, choices) if isinstance(value, str) else None
            raise self.invalid(name, f"one of {', '.join(choices)}", near)
        return choices[value]

    def token_ids(self, name: str) -> tuple[int, ...]:
        """Read one token id or a list of them; a missing field gives an empty tuple."""
        value = self._get(name, None)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if len(ids) > 1000 or any(type(id) is not int or not 0 <= id <= MAX_SIZE for id in ids):
            raise self.invalid(name, f"a token id from 0 to {MAX_SIZE}, or a list of them")
        return tuple(ids)

    def probability(self, name: str, default: float) -> float:
        """Read a dropout probability."""
        return self.number(name, default, maximum=0.999)

    def activation(self, name: str, default: str) -> ActivationName:
        """Read the name of an activation function."""
        return self.choice(name, FROM_HF_ACTIVATION, default)

    def nested(self, name: str) -> "ConfigFields":
        """Return the fields of a nested object, empty if the field is missing."""
        value = self._get(name, {})
        if not isinstance(value, Mapping):
            raise self.invalid(name, "a JSON object")
        return ConfigFields(value, f"{self.where}: {name}")

    def require_value(self, name: str, *allowed: object, reason: str) -> None:
        """Refuse the field unless it is missing, null or one of `allowed`."""
        value = self._get(name, None)
        if value is not None and not any(type(value) is type(item) and value == item for item in allowed):
            message = f"{self.where}: {name} is {short_repr(value)}. {reason}"
            raise InvalidInput(message, hint=f"Supported: {', '.join(map(short_repr, allowed))}." if allowed else None)

    def ignore(self, names: str | Iterable[str]) -> None:
        """Mark fields that do not change what peasy computes; a string is a list of names separated by spaces."""
        self._seen.update(names.split() if isinstance(names, str) else names)

    def unknown(self) -> tuple[str, ...]:
        """Return the fields that were neither read nor ignored; null, false and 0 turn nothing on."""
        return tuple(str(name) for name, value in self.data.items() if value and name not in self._seen)

    def reject_unknown(self, hint: str | None = None) -> None:
        """Refuse every field that was neither read nor ignored."""
        if unknown := self.unknown():
            message = f"{self.where} has unknown fields: {join_names(unknown)}."
            raise InvalidInput(message, hint=f"They may change the results. {hint or ''}".strip())

    def invalid(self, name: str, allowed: str, hint: str | None = None) -> InvalidInput:
        """Return the error for a field with an invalid value."""
        value = short_repr(self.data.get(name))
        return InvalidInput(f"{self.where}: {name} should be {allowed}, not {value}.", hint=hint)

    def _get(self, name: str, default: object) -> Any:
        self._seen.add(name)
        value = self.data.get(name)
        if value is None and default is REQUIRED:
            raise InvalidInput(f"{self.where}: {name} is missing.")
        return default if value is None else value
