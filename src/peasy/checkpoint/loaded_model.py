"""Model bundle: a model with its tokenizers, name and folder, opened from a folder; encodes prompts, embeds texts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from peasy.checkpoint.paths import ResolvedModel
from peasy.checkpoint.safe_folder import SafeFolder, hint_for_folder
from peasy.checkpoint.store import CONFIG_FILE, is_checkpoint, read_checkpoint
from peasy.checkpoint.tensors import TensorStore
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.errors import InvalidInput, NotFound
from peasy.tokenization import Encoding, Tokenizer

if TYPE_CHECKING:
    from peasy.models.protocol import Model
    from peasy.tokenization.chat_template import ChatMessage

Pooling = Literal["mean", "cls", "last"]
"""How hidden states become one vector: their mean, the first one or the last one."""

STORED_NOTE = "stored"
"""Manifest note of a checkpoint stored in lower precision than it runs in."""

_BATCH_SIZE = 32
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False, eq=False)
class ModelBundle:
    """A model with its tokenizer, or two tokenizers if its output has another vocabulary than its input."""

    name: str
    model: "Model"
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None = None
    folder: Path | None = None
    family: str | None = None
    unused_weights: tuple[str, ...] = ()
    unused_fields: tuple[str, ...] = ()
    packed_models: "dict[str, Model]" = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the packed models: their weights are in a layout that cannot be copied, and are packed again."""
        return self.__dict__ | {"packed_models": {}}

    @property
    def kind(self) -> str:
        """decoder, encoder, encoder-decoder, recurrent, ..."""
        return type(self.model.config).kind

    @property
    def max_seq_len(self) -> int | None:
        """Longest sequence of the model in tokens; None: unlimited."""
        return self.model.config.max_seq_len

    @property
    def max_text_tokens(self) -> int | None:
        """Number of tokens to which texts are truncated before they are embedded; None: unlimited."""
        return getattr(self.model.config, "max_length", None) or self.max_seq_len

    def max_translation_tokens(self, source_length: int) -> int:
        """Return the most tokens of a translation: three times those of its source plus 16, within the context."""
        return max(min(3 * source_length + 16, (self.max_seq_len or 10**9) - 1), 1)

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, or raise if the model has none."""
        if self.tokenizer is None:
            raise NotFound(f"{self.name} has no tokenizer: it takes only token ids, through `.model`.")
        return self.tokenizer

    def output_tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the model's output."""
        return self.target_tokenizer or self.require_tokenizer()

    def encode_prompt(self, text: str | Sequence[int], *, add_special_tokens: bool = True) -> list[int]:
        """Encode a text as the model reads it: the one place that turns a prompt into ids. Token ids stay as they are.

        The special tokens around it are those of the tokenizer's template, which training writes and imported models
        bring along. An empty prompt becomes [bos].
        """
        if isinstance(text, list | tuple) and text and all(type(id) is int for id in text):
            size = self.model.config.vocab_size
            if unknown := [id for id in text if not 0 <= id < size]:
                raise InvalidInput(f"There is no token {unknown[0]}: the vocabulary has ids 0 to {size - 1}.")
            return list(text)
        if not isinstance(text, str):
            raise InvalidInput(f"A prompt should be a text, or a list of token ids, not {type(text).__name__}.")
        tokenizer = self.require_tokenizer()
        ids, bos = tokenizer.encode_ids(text, add_special_tokens=add_special_tokens), tokenizer.special_tokens.bos
        return ids if ids or bos is None else [bos]

    def encode_text(self, text: str, *, add_special_tokens: bool = True) -> Encoding:
        """Encode a text as `encode_prompt` does, with the pieces and their places in the text."""
        return self.require_tokenizer().encode(text, add_special_tokens=add_special_tokens)

    def encode_chat(self, messages: "Sequence[ChatMessage]", *, add_generation_prompt: bool = True) -> list[int]:
        """Encode a conversation: the chat template writes the special tokens itself."""
        from peasy.tokenization.chat_template import apply_chat_template

        self.require_chat_template()
        tokenizer = self.require_tokenizer()
        text = apply_chat_template(tokenizer, messages, add_generation_prompt=add_generation_prompt)
        return self.encode_prompt(text, add_special_tokens=False)

    def require_chat_template(self) -> None:
        """Raise if the model was not trained for conversation."""
        name, template = self.name, self.require_tokenizer().chat_template
        if self.model.is_encoder_decoder or template is None:
            hint = f'Let it continue a text instead: POST /v1/completions, or peasy generate {name} "..."'
            raise InvalidInput(f"{name} has no chat template: it was not trained for conversation.", hint=hint)

    def embed_texts(
        self, texts: str | Sequence[str], *, pooling: Pooling | None = None, bfloat16: bool = False
    ) -> NDArray[np.float32]:
        """Return the vectors of texts: `[texts, d_model]`, or `[d_model]` of a single text; longer ones are truncated.

        An encoder uses the pooling it was trained with; `pooling` "mean", "cls" or "last" takes the mean, the first or
        the last hidden state and is required for other kinds of model. `bfloat16` multiplies in that format: faster on
        CPUs with bfloat16 instructions, accurate to about four digits.
        """
        if self.kind != "encoder" and (pooling is None or self.model.is_encoder_decoder or self.kind == "ngram"):
            hint = "Give pooling: mean or last." if self.kind in ("decoder", "recurrent", "convolution") else None
            raise InvalidInput(f"{self.name} is a {self.kind}: only an encoder embeds without pooling.", hint=hint)
        if not texts and not isinstance(texts, str):
            raise InvalidInput("There is no text to embed.")
        if pooling not in (None, "mean", "cls", "last"):
            raise InvalidInput(f'There is no pooling "{pooling}".', hint="Choose mean, cls or last.")
        many = [texts] if isinstance(texts, str) else list(texts)
        ids = [self.truncate_ids(sequence) for sequence in self.require_tokenizer().encode_batch_ids(many)]
        vectors = _embed_with(self.model, ids, pooling, bfloat16)
        return vectors[0] if isinstance(texts, str) else vectors

    def num_truncated(self, texts: Sequence[str]) -> int:
        """Return how many of these texts are longer than what the model reads of a text."""
        longest = self.max_text_tokens
        rows = () if longest is None else self.require_tokenizer().encode_batch_ids(texts)
        return sum(len(ids) > (longest or 0) for ids in rows)

    def truncation_note(self, num_cut: int, num_texts: int) -> str | None:
        """Return the sentence that says how many texts were truncated, if any were."""
        which = "The text was" if num_texts == 1 else f"{num_cut:,} of {num_texts:,} texts were"
        return (
            f"{which} cut to the first {self.max_text_tokens:,} tokens: the model reads no more." if num_cut else None
        )

    def truncate_ids(self, ids: list[int]) -> list[int]:
        """Truncate the ids of a text that is read whole; a final eos is kept, because an encoder expects it."""
        if not ids:
            raise InvalidInput("An empty text has no tokens to embed.")
        longest, eos = self.max_text_tokens, self.require_tokenizer().special_tokens.eos
        if longest is None or len(ids) <= longest:
            return ids
        return [*ids[: longest - 1], ids[-1]] if ids[-1] == eos else ids[:longest]


def open_model(
    resolved: ResolvedModel, *, family: str | None = None, ignore_extra: bool = False,
    tensors: TensorStore | None = None,
) -> ModelBundle:  # fmt: skip
    """Open a resolved folder: a peasy checkpoint or a Hugging Face folder, there with the options of `read_folder`.

    `tensors` are the weights of a Hugging Face folder that has only config.json.
    """
    path, parent = resolved.folder, resolved.folder.parent
    if path.is_file():
        hint = f"Give its folder: {parent}" if (parent / CONFIG_FILE).is_file() else hint_for_folder(parent)
        raise InvalidInput(f"{path} is a file, not a model.", hint=hint)
    _LOG.info("loading %s from %s", resolved.name, path)
    unused: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
    if is_checkpoint(path):
        from peasy.checkpoint.model import load_model

        checkpoint = read_checkpoint(path, verified=resolved.verified)
        model, folder, family = load_model(checkpoint), checkpoint.folder, checkpoint.manifest.notes.get("family")
        model = model.float() if STORED_NOTE in checkpoint.manifest.notes else model
    else:
        from peasy.checkpoint import huggingface

        folder = SafeFolder(path)
        if not folder.has(CONFIG_FILE):
            raise NotFound(f"{path} is not a model: it has no {CONFIG_FILE}.", hint=hint_for_folder(path))
        imported = huggingface.read_folder(path, tensors=tensors, family=family, ignore_extra=ignore_extra)
        model, family = huggingface.load_model(imported), imported.family
        unused = imported.unused, imported.unused_fields
    tokenizers = read_tokenizer(folder), read_tokenizer(folder, target=True)
    return ModelBundle(resolved.name, model, *tokenizers, folder.path, family, *unused)


def _embed_with(
    model: "Model", sequences: list[list[int]], pooling: Pooling | None, bfloat16: bool
) -> NDArray[np.float32]:
    """Embed sequences in batches of similar length; without `pooling` with that of the encoder."""
    import torch

    from peasy.models.encoder import Encoder, pad_sequences

    if pooling is None:
        assert isinstance(model, Encoder)
        return model.embed_batch(sequences, bfloat16=bfloat16).float().cpu().numpy()
    pooled: list[NDArray[np.float32]] = []
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    for start in range(0, len(order), _BATCH_SIZE):
        rows = [sequences[row] for row in order[start : start + _BATCH_SIZE]]
        ids, padding_mask = (tensor.to(model.device) for tensor in pad_sequences(rows))
        with torch.inference_mode():
            hidden = model.hidden(ids, padding_mask=padding_mask).float()
            lengths = padding_mask.sum(dim=1)
            if pooling == "mean":
                vectors = hidden.masked_fill(~padding_mask[:, :, None], 0).sum(dim=1) / lengths[:, None]
            else:
                vectors = hidden[:, 0] if pooling == "cls" else hidden[range(len(hidden)), lengths - 1]
            pooled.append(vectors.cpu().numpy())
    embeddings = np.concatenate(pooled)[np.argsort(order)]
    unit: NDArray[np.float32] = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    return unit
