"""Model family: architecture names, config reader and writer, and weight map."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from peasy.checkpoint.huggingface.fields import Fields
from peasy.checkpoint.huggingface.rule import Table
from peasy.checkpoint.tensors import TensorInfo, Tensors
from peasy.models.config import Config, DecoderConfig, EncoderConfig, EncoderDecoderConfig, Special
from peasy.nn.part import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "relu": "relu",
    "relu2": "relu-squared",
    "silu": "silu",
    "swish": "silu",
}
THEIR_ACTIVATIONS: dict[Activation, str] = {
    "gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "relu-squared": "relu2", "silu": "silu",
}  # fmt: skip

IGNORED = """
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


class Parts(Protocol):
    """Names of the weights in a checkpoint, which some config fields depend on."""

    def __contains__(self, name: object, /) -> bool: ...

    def differ(self, one: str, other: str) -> bool:
        """Return whether both exist with different values."""


class Promised(frozenset[str]):
    """Names of weights that will be written; two names are always different weights."""

    def differ(self, one: str, other: str) -> bool:
        """Return whether both exist."""
        return one in self and other in self


class Stored(Mapping[str, Tensor]):
    """Stored tensors under the names that the weight map uses.

    A base model is saved without the family's prefix, and very old files call a norm's weight gamma and its bias
    beta: both are normalized here.
    """

    def __init__(self, tensors: Tensors, prefix: str = "") -> None:
        bare = not any(name.startswith(prefix) for name in tensors)
        self._tensors = tensors
        self._names = {_modern(prefix + name if bare else name): name for name in tensors}

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

    def differ(self, one: str, other: str) -> bool:
        """Return whether both are stored with different values."""
        if one not in self or other not in self:
            return False
        return self.info(one).shape != self.info(other).shape or not torch.equal(self[one], self[other])


@dataclass(frozen=True)
class Family:
    """One model family as data.

    `architectures` are its class names in transformers; `called` chooses one for a config if it is not the first.
    A model without an LM head is stored without the `prefix`.

    `read` converts a Hugging Face config to peasy's, `write` the reverse.
    A family supports a model if writing and reading its config gives the same config.
    """

    name: str
    kind: type[DecoderConfig] | type[EncoderConfig] | type[EncoderDecoderConfig]
    architectures: tuple[str, ...]
    read: Callable[[Fields, Parts], Config]
    write: Callable[[Any], dict[str, Any]]
    table: Callable[[Any], Table]
    prefix: str = ""
    called: Callable[[Any], str] | None = None


def read_special(fields: Fields, *, start: str | None = None) -> Special:
    """Read the special token ids; `start` is the fallback field for decoder_start_token_id."""
    padding = fields.whole("pad_token_id", None, least=-1)
    bos = fields.whole("bos_token_id", None, least=-1)
    decoder_start = fields.whole("decoder_start_token_id", None, least=0)
    if decoder_start is None and start is not None:
        decoder_start = fields.whole(start, None, least=0)
    return Special(
        padding=padding if padding != -1 else None,
        begin=bos if bos != -1 else None,
        end=fields.ids("eos_token_id"),
        start=decoder_start,
        unknown=fields.whole("unk_token_id", None, least=0),
    )


def write_special(special: Special) -> dict[str, Any]:
    """Return the config.json fields of the special token ids."""
    eos: Any = None if not special.end else special.end[0] if len(special.end) == 1 else list(special.end)
    ids = {"pad_token_id": special.padding, "bos_token_id": special.begin, "eos_token_id": eos}
    return ids | ({} if special.start is None else {"decoder_start_token_id": special.start})


def _modern(name: str) -> str:
    if name.endswith("LayerNorm.gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith("LayerNorm.beta"):
        return name.removesuffix("beta") + "bias"
    return name
