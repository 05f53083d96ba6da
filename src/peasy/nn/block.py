"""Transformer block: attention and MLP, each with a norm and a residual connection."""

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.attention import Attention, CrossAttention
from peasy.nn.embedding import token_shift
from peasy.nn.feedforward import FeedForward
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import make_norm
from peasy.nn.module_path import ModulePath


class Block(nn.Module):
    """Self-attention, optional cross-attention and MLP, each with a residual connection."""

    def __init__(
        self, d_model: int, settings: nn_config.StackConfig, path: ModulePath, cross: bool, dropout: float
    ) -> None:
        super().__init__()
        self.pre_norm, self.token_shift = settings.norm.placement == "pre", settings.token_shift
        self.attention = Attention(d_model, settings.attention, settings.norm, path._replace(part="attention"))
        self.attention_norm = make_norm(settings.norm, d_model)
        self.cross_attention = self.cross_attention_norm = None
        if cross:
            cross_path = path._replace(part="cross_attention")
            self.cross_attention = CrossAttention(d_model, settings.attention, settings.norm, cross_path)
            self.cross_attention_norm = make_norm(settings.norm, d_model)
        self.feedforward = FeedForward(d_model, settings.feedforward, path._replace(part="feedforward"))
        self.feedforward_norm = make_norm(settings.norm, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        x = self._residual(x, self.attention, self.attention_norm, ctx)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x = self._residual(x, self.cross_attention, self.cross_attention_norm, ctx)
        return self._residual(x, self.feedforward, self.feedforward_norm, ctx)

    def _residual(self, x: Tensor, sublayer: Attention | FeedForward, norm: nn.Module, ctx: ForwardContext) -> Tensor:
        """Add the sublayer's output to x; with the norm before the sublayer (pre-norm) or after the sum (post-norm)."""
        inputs = norm(x) if self.pre_norm else x
        if self.token_shift and sublayer.path.part != "cross_attention":
            inputs = token_shift(inputs, ctx, sublayer.path)
        ctx.record(sublayer.path, "normed", inputs)
        outputs = sublayer(inputs, ctx)
        outputs = ctx.edit_and_record(sublayer.path, "output", outputs)
        x = x + (self.dropout(outputs) if self.training else outputs)
        return x if self.pre_norm else norm(x)

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Return the submodules by name, in the order of the forward pass."""
        names = (
            ["attention", "cross_attention", "feedforward"] if self.cross_attention else ["attention", "feedforward"]
        )
        order = [(f"{name}_norm", name) if self.pre_norm else (name, f"{name}_norm") for name in names]
        return [(name, getattr(self, name)) for pair in order for name in pair]

    def summary(self) -> str:
        """Return a one-line summary."""
        sublayer = "shift, sublayer" if self.token_shift else "sublayer"
        return f"norm, {sublayer}, add" if self.pre_norm else f"{sublayer}, add, norm"

    def output_projections(self) -> list[nn.Linear]:
        """Return the output projection of each sublayer, whose result is added to the residual stream."""
        attentions = [module for module in (self.attention, self.cross_attention) if module is not None]
        return [*(module.output for module in attentions), self.feedforward.down]
