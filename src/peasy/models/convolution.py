"""Convolutional language model: causal gated convolutions with growing dilation."""

from torch import Tensor, nn

from peasy.models.config import ConvolutionConfig
from peasy.models.protocol import Model, ModelInputs
from peasy.models.transformer import check_token_ids, normalize_padding_mask
from peasy.nn.convolution import ConvolutionState, GatedConvolution
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import record_step


class ConvolutionModel(Model[ConvolutionState]):
    """Convolutional language model: embedding, gated convolutions, norm, LM head."""

    config: ConvolutionConfig

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(
            GatedConvolution(config.d_model, config.kernel_size, config.dilation**layer, path, config.dropout)
            for layer in range(config.num_layers)
            for path in [ModulePath("decoder", layer, "convolution")]
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.lm_head = LMHead(config.vocab_size, config.d_model, config.lm_head)

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> ConvolutionState:
        return ConvolutionState([None] * self.config.num_layers)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[ConvolutionState]) -> Tensor:
        check_token_ids(ids, self.config.vocab_size)
        padding_mask, x, cache = normalize_padding_mask(inputs.padding_mask), self.embedding(ids), inputs.cache
        left_contexts = [None] * len(self.blocks) if cache is None else cache.layer_inputs
        for layer, block in enumerate(self.blocks):
            record_step(inputs.tap, ModulePath("decoder", layer, "stream"), "residual", x)
            x, left_contexts[layer] = block(x, left_contexts[layer], padding_mask, inputs.tap)
        if cache is not None:
            cache.length += ids.shape[1]
        x = self.norm(x)
        record_step(inputs.tap, ModulePath("decoder", len(self.blocks), "stream"), "final", x)
        return x

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return self.lm_head(hidden_states, self.embedding.weight)
