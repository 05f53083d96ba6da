"""Convolutional language model: causal gated convolutions with growing dilation."""

from typing import Any

from torch import Tensor, nn

from peasy.models.config import ConvolutionConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_ids, padding_or_none
from peasy.nn.convolution import ConvolutionMemory, GatedConvolution
from peasy.nn.head import Head
from peasy.nn.scene import Edit
from peasy.nn.tap import Place, Tap, show


class ConvolutionModel(Model):
    """Convolutional language model: embedding, gated convolutions, norm, LM head."""

    config: ConvolutionConfig

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        self.blocks = nn.ModuleList(
            GatedConvolution(
                config.d_model,
                config.width,
                config.spread**layer,
                Place("decoder", layer, "convolution"),
                config.dropout,
            )
            for layer in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.head = Head(config.vocabulary, config.d_model, config.head)

    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> ConvolutionMemory:
        """Return an empty convolution state."""
        return ConvolutionMemory([None] * self.config.layers)

    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: ConvolutionMemory | None = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer."""
        check_ids(ids, self.config.vocabulary)
        real, x = padding_or_none(real), self.embedding(ids)
        inputs = [None] * len(self.blocks) if cache is None else cache.inputs
        for layer, block in enumerate(self.blocks):
            show(tap, Place("decoder", layer, "stream"), "residual", x)
            x, inputs[layer] = block(x, inputs[layer], real, tap)
        if cache is not None:
            cache.length += ids.shape[1]
        x = self.norm(x)
        show(tap, Place("decoder", len(self.blocks), "stream"), "final", x)
        return x

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.head(hidden, self.embedding.weight)
