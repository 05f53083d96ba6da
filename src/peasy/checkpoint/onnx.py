"""Models as ONNX graphs, without cache: any batch and any length, for whoever runs ONNX."""

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

from peasy.checkpoint.store import TOKENIZER, write_tokenizer
from peasy.commit import committed
from peasy.errors import InvalidInput, MissingPart
from peasy.models.decoder import Decoder
from peasy.models.encoder import Encoder
from peasy.models.encoder_decoder import EncoderDecoder
from peasy.models.protocol import Model

GRAPH = "model.onnx"
ONE_FILE = 1_900_000_000
"""Above so many bytes of weights ONNX cannot hold them in the graph's own file."""


class _Decoder(nn.Module):
    model: Any
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    outputs: tuple[str, ...] = ("logits",)

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Scores of the next token after each."""
        return self.model(input_ids, real=attention_mask)


class _Encoder(_Decoder):
    outputs: tuple[str, ...] = ("last_hidden_state", "sentence_embedding")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """The vectors of the tokens and of the text."""
        hidden = self.model.hidden(input_ids, real=attention_mask)
        return hidden, self.model.pool(hidden, attention_mask.bool())


class _MaskedWords(_Encoder):
    outputs = ("last_hidden_state", "sentence_embedding", "logits")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """The same, and scores of the word at each place."""
        hidden, pooled = super().forward(input_ids, attention_mask)
        return hidden, pooled, self.model.scores(hidden)


class _EncoderDecoder(_Decoder):
    inputs = ("input_ids", "attention_mask", "decoder_input_ids")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:  # type: ignore[override]
        """Scores of the next target token after each."""
        return self.model(decoder_input_ids, source=input_ids, source_real=attention_mask)


def write_onnx(folder: str | Path, model: Model, tokenizer: Any = None) -> Path:
    """Write a new folder with `model.onnx` (float32) and the tokenizer; there whole or not at all.

    Inputs are called input_ids and attention_mask (1 = a real token), for an encoder-decoder decoder_input_ids too;
    outputs logits, for an encoder last_hidden_state and sentence_embedding.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> write_onnx("out", build(preset("ngram-tiny")))
    Traceback (most recent call last):
    peasy.errors.InvalidInput: A model of kind ngram has no ONNX graph yet.
    """
    if find_spec("onnxscript") is None or find_spec("onnx") is None:
        raise MissingPart("ONNX export needs onnx and onnxscript.", hint="pip install 'peasy[export]'")
    graph = _graph(model)
    with committed(folder) as part:
        with _quiet():
            program = torch.onnx.export(
                graph,
                _sample(graph),
                dynamo=True,
                verbose=False,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=_axes(graph),
            )
        assert program is not None
        program.save(part / GRAPH, external_data=model.memory() > ONE_FILE)
        write_tokenizer(part / TOKENIZER, tokenizer)
    return Path(folder)


def _graph(model: Model) -> _Decoder:
    """The model behind inputs and outputs that ONNX can name, in float32: not every runtime has the short types."""
    kinds = {Decoder: _Decoder, EncoderDecoder: _EncoderDecoder, Encoder: _Encoder}
    kind = kinds.get(type(model))
    if kind is None:
        known = ", ".join(each.__name__ for each in kinds)
        raise InvalidInput(f"A model of kind {model.config.kind} has no ONNX graph yet.", hint=f"These have: {known}.")
    if isinstance(model, Encoder) and model.head is not None:
        kind = _MaskedWords
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        model = copy.deepcopy(model).float()
    return kind(model).eval()


def _sample(graph: _Decoder) -> tuple[Tensor, ...]:
    """Two texts, one of them padded: no length stands for another, so that each axis stays free."""
    ids = torch.zeros(2, 5, dtype=torch.int64)
    real = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    return (ids, real, torch.zeros(2, 4, dtype=torch.int64))[: len(graph.inputs)]


def _axes(graph: _Decoder) -> tuple[dict[int, Any], ...]:
    """Batch and time are free, up to the places that a model with learned ones has."""
    embedding = graph.model.embedding
    most = embedding.context if embedding.position is not None else None
    batch, source = Dim("batch", min=1), Dim("time", min=1, max=most)
    target = Dim("target_time", min=1, max=most)
    return ({0: batch, 1: source}, {0: batch, 1: source}, {0: batch, 1: target})[: len(graph.inputs)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells of its own attempts on three channels; what fails in the end is raised anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
