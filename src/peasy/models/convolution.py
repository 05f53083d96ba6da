"""Convolutional language model: causal gated convolutions with growing dilation."""

from typing import Any

from torch import Tensor, nn

from peasy.models.config import ConvolutionConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.convolution import ConvolutionState, GatedConvolution
from peasy.nn.forward_context import InterventionLike
from peasy.nn.lm_head import LMHead
from peasy.nn.tap import ModulePath, Tap, record_step


class ConvolutionModel(Model):
    """Convolutional language model: embedding, gated convolutions, norm, LM head."""

    config: ConvolutionConfig

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(
            GatedConvolution(
                config.d_model,
                config.kernel_size,
                config.dilation**layer,
                ModulePath("decoder", layer, "convolution"),
                config.dropout,
            )
            for layer in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def new_state(self, batch: int = 1, *, capacity: int = 0, **source: Any) -> ConvolutionState:
        """Return an empty convolution state."""
        return ConvolutionState([None] * self.config.num_layers)

    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: ConvolutionState | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer."""
        check_token_ids(ids, self.config.vocab_size)
        padding_mask, x = normalize_padding_mask(padding_mask), self.embedding(ids)
        inputs = [None] * len(self.blocks) if cache is None else cache.layer_inputs
        for layer, block in enumerate(self.blocks):
            record_step(tap, ModulePath("decoder", layer, "stream"), "residual", x)
            x, inputs[layer] = block(x, inputs[layer], padding_mask, tap)
        if cache is not None:
            cache.length += ids.shape[1]
        x = self.norm(x)
        record_step(tap, ModulePath("decoder", len(self.blocks), "stream"), "final", x)
        return x

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.embedding.weight)
