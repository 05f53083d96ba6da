"""Model family: architecture names, config reader and writer, and weight map."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from peasy.checkpoint.huggingface.fields import ConfigFields
from peasy.checkpoint.huggingface.weight_map import WeightMap
from peasy.checkpoint.tensors import TensorInfo, TensorStore
from peasy.models.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, ModelConfig, SpecialTokensConfig
from peasy.nn.config import ActivationName

FROM_HF_ACTIVATION: dict[str, ActivationName] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "relu": "relu",
    "relu2": "relu-squared",
    "silu": "silu",
    "swish": "silu",
}
TO_HF_ACTIVATION: dict[ActivationName, str] = {
    "gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "relu-squared": "relu2", "silu": "silu",
}  # fmt: skip

IGNORED_FIELDS = """
    architectures model_type transformers_version _name_or_path name_or_path _commit_hash dtype torch_dtype torchscript
    use_bfloat16 use_cache output_attentions output_hidden_states output_past output_scores return_dict
    return_dict_in_generate gradient_checkpointing chunk_size_feed_forward initializer_range initializer_factor init_std
    _attn_implementation _attn_implementation_autoset attn_implementation attention_dropout classifier_dropout
    classif_dropout id2label label2id num_labels _num_labels problem_type finetuning_task task_specific_params
    tokenizer_class tf_legacy_loss prefix max_length min_length max_new_tokens num_beams num_beam_groups do_sample
    temperature top_k top_p typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences early_stopping forced_bos_token_id
    forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    sep_token_id cross_attention_hidden_size pretraining_tp transformers.js_config unsloth_fixed unsloth_version
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


class StoredWeights(Mapping[str, Tensor]):
    """Stored tensors under the names that the weight map uses.

    A base model is saved without the family's prefix, and very old files call a norm's weight gamma and its bias
    beta: both are normalized here.
    """

    def __init__(self, tensors: TensorStore, prefix: str = "") -> None:
        bare = not any(name.startswith(prefix) for name in tensors)
        self._tensors = tensors
        self._names = {_modern_name(prefix + name if bare else name): name for name in tensors}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # the default of Mapping would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def info(self, name: str) -> TensorInfo:
        """Return the header entry of a tensor."""
        return self._tensors.info(self._names[name])

    def differ(self, first: str, second: str) -> bool:
        """Return whether both are stored with different values."""
        if first not in self or second not in self:
            return False
        return self.info(first).shape != self.info(second).shape or not torch.equal(self[first], self[second])


@dataclass(frozen=True)
class ModelFamily:
    """One model family as data.

    `architectures` are its class names in transformers; `architecture_of` chooses one for a config, by default
    the first. A model without an LM head is stored without the `prefix`.

    `read_config` converts a Hugging Face config to peasy's, `write_config` the reverse.
    A family supports a model if writing and reading its config gives the same config.
    """

    name: str
    config_class: type[DecoderConfig] | type[EncoderConfig] | type[EncoderDecoderConfig]
    architectures: tuple[str, ...]
    read_config: Callable[[ConfigFields, WeightNames], ModelConfig]
    write_config: Callable[[Any], dict[str, object]]
    weight_map: Callable[[Any], WeightMap]
    prefix: str = ""
    architecture_of: Callable[[Any], str] | None = None


def read_special_tokens(fields: ConfigFields, *, decoder_start_field: str | None = None) -> SpecialTokensConfig:
    """Read the special token ids; `decoder_start_field` is the fallback field for decoder_start_token_id."""
    pad = fields.integer("pad_token_id", None, minimum=-1)
    bos = fields.integer("bos_token_id", None, minimum=-1)
    decoder_start = fields.integer("decoder_start_token_id", None, minimum=0)
    if decoder_start is None and decoder_start_field is not None:
        decoder_start = fields.integer(decoder_start_field, None, minimum=0)
    return SpecialTokensConfig(
        pad=pad if pad != -1 else None,
        bos=bos if bos != -1 else None,
        eos=fields.token_ids("eos_token_id"),
        decoder_start=decoder_start,
        unk=fields.integer("unk_token_id", None, minimum=0),
    )


def write_special_tokens(special: SpecialTokensConfig) -> dict[str, object]:
    """Return the config.json fields of the special token ids."""
    eos: object = None if not special.eos else special.eos[0] if len(special.eos) == 1 else list(special.eos)
    ids = {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": eos}
    return ids | ({} if special.decoder_start is None else {"decoder_start_token_id": special.decoder_start})


def _modern_name(name: str) -> str:
    if name.endswith("LayerNorm.gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith("LayerNorm.beta"):
        return name.removesuffix("beta") + "bias"
    return name
