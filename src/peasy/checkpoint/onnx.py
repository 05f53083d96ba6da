"""ONNX export: a graph without KV cache, with dynamic batch size and sequence length."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from peasy.atomic import atomic_dir
from peasy.checkpoint.store import TOKENIZER_FILE, TokenizerSource, write_tokenizer
from peasy.errors import InvalidInput, MissingExtra
from peasy.extras import install_line
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.models.transformer import Decoder, EncoderDecoder

_ONNX_FILE = "model.onnx"
_MAX_INLINE_BYTES = 1_900_000_000
"""Larger weights go into an external data file: protobuf cannot hold more than 2 GB."""


class _DecoderGraph(nn.Module):
    model: Any
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    outputs: tuple[str, ...] = ("logits",)

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the next-token logits at every position."""
        return self.model(input_ids, padding_mask=attention_mask)


class _EncoderGraph(_DecoderGraph):
    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.has_logits = getattr(model, "lm_head", None) is not None
        self.outputs = ("last_hidden_state", "sentence_embedding", *(["logits"] if self.has_logits else []))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Return the hidden states, the pooled embedding and, if there is a head, the masked-LM logits."""
        hidden = self.model.hidden(input_ids, padding_mask=attention_mask)
        pooled = self.model.pool(hidden, attention_mask.bool())
        return (hidden, pooled, self.model.logits(hidden)) if self.has_logits else (hidden, pooled)


class _EncoderDecoderGraph(_DecoderGraph):
    inputs = ("input_ids", "attention_mask", "decoder_input_ids")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:  # type: ignore[override]
        """Return the next-token logits at every target position."""
        return self.model(decoder_input_ids, source=input_ids, source_padding_mask=attention_mask)


def write_onnx(folder: str | Path, model: Model, tokenizer: TokenizerSource = None) -> Path:
    """Write a new folder with `model.onnx` (float32) and the tokenizer, atomically.

    Inputs: input_ids and attention_mask (0 = padding), for an encoder-decoder also decoder_input_ids.
    Outputs: logits, for an encoder last_hidden_state and sentence_embedding.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> write_onnx("out", build(preset("ngram-tiny")))
    Traceback (most recent call last):
    peasy.errors.InvalidInput: ONNX export does not support models of kind ngram.
    """
    if find_spec("onnxscript") is None or find_spec("onnx") is None:
        raise MissingExtra("ONNX export needs onnx and onnxscript.", hint=install_line("export"))
    graph = _wrap_model(model)
    with atomic_dir(folder) as temporary:
        with _silence_exporter():
            program = torch.onnx.export(
                graph, _example_inputs(graph), dynamo=True, verbose=False, input_names=list(graph.inputs),
                output_names=list(graph.outputs), dynamic_shapes=_dynamic_shapes(graph),
            )  # fmt: skip
        assert program is not None
        program.save(temporary / _ONNX_FILE, external_data=model.weight_bytes() > _MAX_INLINE_BYTES)
        write_tokenizer(temporary / TOKENIZER_FILE, tokenizer)
    return Path(folder)


def _wrap_model(model: Model) -> _DecoderGraph:
    """Wrap the model with named ONNX inputs and outputs, in float32: not every runtime has 16-bit types."""
    wrappers = {Decoder: _DecoderGraph, EncoderDecoder: _EncoderDecoderGraph, Encoder: _EncoderGraph}
    wrapper = wrappers.get(type(model))
    if wrapper is None:
        supported = ", ".join(model_class.__name__ for model_class in wrappers)
        message = f"ONNX export does not support models of kind {model.config.kind}."
        raise InvalidInput(message, hint=f"Supported: {supported}.")
    if getattr(model, "classifier", None) is not None:
        hint = "Export it to Hugging Face and convert it there: optimum-cli export onnx --model FOLDER OUT"
        raise InvalidInput("ONNX export does not support classification heads.", hint=hint)
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        model = copy.deepcopy(model).float()
    return wrapper(model).eval()


def _example_inputs(graph: _DecoderGraph) -> tuple[Tensor, ...]:
    """Return example inputs: two sequences, one padded, all sizes different so that each axis stays dynamic."""
    ids = torch.zeros(2, 5, dtype=torch.int64)
    attention_mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    return (ids, attention_mask, torch.zeros(2, 4, dtype=torch.int64))[: len(graph.inputs)]


def _dynamic_shapes(graph: _DecoderGraph) -> tuple[dict[int, Any], ...]:
    """Return the dynamic shapes: batch and time are free, up to the number of learned positions."""
    embedding = graph.model.embedding
    max_length = embedding.max_seq_len if embedding.position is not None else None
    batch, source = Dim("batch", min=1), Dim("time", min=1, max=max_length)
    target = Dim("target_time", min=1, max=max_length)
    return ({0: batch, 1: source}, {0: batch, 1: source}, {0: batch, 1: target})[: len(graph.inputs)]


@contextlib.contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence the exporter's logs and warnings; a real failure is raised anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
