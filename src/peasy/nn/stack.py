"""Stack of Transformer blocks with shared position encoding and final norm."""

from collections.abc import Iterator

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.block import Block
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import make_norm
from peasy.nn.module_path import ModulePath
from peasy.nn.position import AlibiBias, RelativeBias, rope_cos_sin, rope_of_layer


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
        self.windows = [settings.attention.window_for_layer(layer) for layer in range(settings.num_layers)]
        self.rope_settings: list[nn_config.RotaryConfig | None] = []
        if isinstance(position, nn_config.RotaryConfig):
            self.rope_settings = [rope_of_layer(position, layer, window) for layer, window in enumerate(self.windows)]
        paths = (ModulePath(name, layer, "block") for layer in range(settings.num_layers))
        self.blocks = nn.ModuleList(Block(d_model, settings, path, cross, dropout) for path in paths)
        self.norm = None if settings.norm.placement == "post" else make_norm(settings.norm, d_model)
        heads = settings.attention.num_heads
        self.d_head = settings.attention.d_head or d_model // heads
        relative = position.relative if isinstance(position, nn_config.LearnedPositionConfig) else position
        self.relative = (
            RelativeBias(heads, relative, causal) if isinstance(relative, nn_config.RelativeBiasConfig) else None
        )
        self.alibi = AlibiBias(heads) if isinstance(position, nn_config.AlibiConfig) else None

    def summary(self) -> str:
        """Return a one-line summary."""
        placement = {"pre": "pre-norm", "post": "post-norm", "output": "norm on outputs", "around": "norms around"}
        return f"{len(self.blocks)} blocks, {placement[self.settings.norm.placement]}"

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Run all blocks and the final norm: `[batch, time, d_model]` to the same shape."""
        self._set_positions(ctx)
        for layer in range(len(self.blocks)):
            x = self._run_block(layer, x, ctx)
        return self._finish(x, ctx)

    def forward_steps(self, x: Tensor, ctx: ForwardContext) -> Iterator[Tensor]:
        """Yield the residual stream after each block, then the output: the same as `forward`, with pauses."""
        self._set_positions(ctx)
        for layer in range(len(self.blocks)):
            x = self._run_block(layer, x, ctx)
            yield x
        yield self._finish(x, ctx)

    def _set_positions(self, ctx: ForwardContext) -> None:
        for sequence in ctx.sequences or (ctx,):
            sequence.mask_spec.position_bias = self.relative or self.alibi
        if self.rope_settings:
            positions, kinds = ctx.mask_spec.query_positions, dict.fromkeys(self.rope_settings)
            cos_sin = {own: None if own is None else rope_cos_sin(positions, self.d_head, own) for own in kinds}
            ctx.rope = [cos_sin[own] for own in self.rope_settings]

    def _run_block(self, layer: int, x: Tensor, ctx: ForwardContext) -> Tensor:
        x = ctx.edit_and_record(ModulePath(self.name, layer, "stream"), "residual", x)
        output: Tensor = self.blocks[layer](x, ctx)
        return output

    def _finish(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        path = ModulePath(self.name, len(self.blocks), "stream")
        x = ctx.edit_and_record(path, "residual", x)
        x = x if self.norm is None else self.norm(x)
        if ctx.any_tap:
            ctx.record(path, "final", x)
        return x
