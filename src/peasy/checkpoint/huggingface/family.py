"""What every family's table says: its names, how its settings read and write, and the rules of its weights."""

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
"""Settings of training, of sampling and of the library; none changes what a forward pass computes."""


class Parts(Protocol):
    """Which weights a file has, as far as settings depend on it."""

    def __contains__(self, name: object, /) -> bool: ...

    def differ(self, one: str, other: str) -> bool:
        """Whether both are there and hold different numbers."""


class Promised(frozenset[str]):
    """The names of weights that will be written: each once, so that two of them are always different weights."""

    def differ(self, one: str, other: str) -> bool:
        """Whether both are there."""
        return one in self and other in self


class Stored(Mapping[str, Tensor]):
    """The tensors of a file under the names that the rules use.

    A bare model was saved without the family's prefix, and very old files call a norm's weight gamma and its bias
    beta: both are put right here, so that the tables need not know.
    """

    def __init__(self, tensors: Tensors, prefix: str = "") -> None:
        bare = not any(name.startswith(prefix) for name in tensors)
        self._tensors = tensors
        self._names = {_modern(prefix + name if bare else name): name for name in tensors}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # what a mapping does by itself would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def info(self, name: str) -> TensorInfo:
        """What the file's header says of a tensor."""
        return self._tensors.info(self._names[name])

    def differ(self, one: str, other: str) -> bool:
        """Whether both are stored and hold different numbers."""
        if one not in self or other not in self:
            return False
        return self.info(one).shape != self.info(other).shape or not torch.equal(self[one], self[other])


@dataclass(frozen=True)
class Family:
    """One family as data.

    `architectures` are the class names it is known by; `called` says which of them a model of ours is, where that is
    not the first. A model without a head is stored without the `prefix`.

    `read` makes our settings of theirs and of what is stored, `write` makes theirs of ours.
    A family can hold a model exactly when reading what it writes gives the same settings back.
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
    """The ids of special tokens; `start` names the field to take when there is no decoder_start_token_id."""
    padding = fields.whole("pad_token_id", None, least=-1)
    begin = fields.whole("bos_token_id", None, least=-1)
    first = fields.whole("decoder_start_token_id", None, least=0)
    if first is None and start is not None:
        first = fields.whole(start, None, least=0)
    return Special(
        padding=padding if padding != -1 else None,
        begin=begin if begin != -1 else None,
        end=fields.ids("eos_token_id"),
        start=first,
        unknown=fields.whole("unk_token_id", None, least=0),
    )


def write_special(special: Special) -> dict[str, Any]:
    """Their fields for the ids of special tokens."""
    end: Any = None if not special.end else special.end[0] if len(special.end) == 1 else list(special.end)
    ids = {"pad_token_id": special.padding, "bos_token_id": special.begin, "eos_token_id": end}
    return ids | ({} if special.start is None else {"decoder_start_token_id": special.start})


def _modern(name: str) -> str:
    if name.endswith("LayerNorm.gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith("LayerNorm.beta"):
        return name.removesuffix("beta") + "bias"
    return name
