"""Stack of Transformer blocks with shared position encoding and final norm."""

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.block import Block
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import make_norm
from peasy.nn.module_path import ModulePath
from peasy.nn.position import AlibiBias, RelativeBias, rope_cos_sin


class Stack(nn.Module):
    """Encoder stack (bidirectional) or decoder stack (`causal`, with `cross` for cross-attention to an encoder)."""

    def __init__(
        self,
        name: str,
        d_model: int,
        settings: nn_config.StackConfig,
        position: nn_config.PositionConfig | None,
        *,
        causal: bool,
        cross: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.name, self.settings, self.position, self.causal = name, settings, position, causal
        self.blocks = nn.ModuleList(
            Block(d_model, settings, ModulePath(name, layer, "block"), cross, dropout)
            for layer in range(settings.num_layers)
        )
        self.norm = make_norm(settings.norm, d_model) if settings.norm.placement == "pre" else None
        heads = settings.attention.num_heads
        self.d_head = settings.attention.d_head or d_model // heads
        self.relative = (
            RelativeBias(heads, position, causal) if isinstance(position, nn_config.RelativeBiasConfig) else None
        )
        self.alibi = AlibiBias(heads) if isinstance(position, nn_config.AlibiConfig) else None

    @property
    def windows(self) -> list[int | None]:
        """Attention window of each layer, for the KV cache."""
        return [self.settings.attention.window_for_layer(layer) for layer in range(self.settings.num_layers)]

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"{len(self.blocks)} blocks, {'pre' if self.settings.norm.placement == 'pre' else 'post'}-norm"

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Run all blocks and the final norm: `[batch, time, d_model]` to the same shape."""
        for sequence in ctx.sequences or (ctx,):
            sequence.mask_spec.position_bias = self.relative or self.alibi
        if isinstance(self.position, nn_config.RotaryConfig):
            ctx.cos_sin = rope_cos_sin(ctx.mask_spec.query_positions, self.d_head, self.position)
        for layer, block in enumerate(self.blocks):
            x = ctx.edit_and_record(ModulePath(self.name, layer, "stream"), "residual", x)
            x = block(x, ctx)
        final_path = ModulePath(self.name, len(self.blocks), "stream")
        x = ctx.edit_and_record(final_path, "residual", x)
        x = x if self.norm is None else self.norm(x)
        ctx.record(final_path, "final", x)
        return x
