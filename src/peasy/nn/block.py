"""Transformer block: attention and MLP, each with a norm and a residual connection."""

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.attention import Attention, CrossAttention
from peasy.nn.embedding import token_shift
from peasy.nn.feedforward import FeedForward
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import make_norm
from peasy.nn.module_path import ModulePath

_OUTPUT_NORMS = {"output": "norm", "around": "output_norm"}
"""Placements with a norm on the output of a sublayer, and how the name of that norm ends."""


class Block(nn.Module):
    """Self-attention, optional cross-attention and MLP, each with a residual connection.

    They run one after the other, or in parallel on the same input. Norms stand before a sublayer, after its residual
    sum, on its output, or around it: before it and on its output.
    """

    def __init__(
        self, d_model: int, settings: nn_config.StackConfig, path: ModulePath, cross: bool, dropout: float
    ) -> None:
        super().__init__()
        self.placement, self.token_shift = settings.norm.placement, settings.token_shift
        self.parallel, self.residual_scale = settings.parallel, settings.residual_scale
        self.shared_norm = settings.shared_norm
        self.sublayers = ("attention", "cross_attention", "feedforward") if cross else ("attention", "feedforward")
        self.attention = Attention(d_model, settings.attention, settings.norm, path._replace(part="attention"))
        has_norm = settings.first_norm or path.layer > 0
        self._add_norms("attention", settings.norm if has_norm else None, d_model)
        self.cross_attention = None
        if cross:
            cross_path = path._replace(part="cross_attention")
            self.cross_attention = CrossAttention(d_model, settings.attention, settings.norm, cross_path)
            self._add_norms("cross_attention", settings.norm, d_model)
        self.feedforward = FeedForward(d_model, settings.feedforward, path._replace(part="feedforward"))
        self._add_norms("feedforward", None if settings.shared_norm else settings.norm, d_model)
        self.dropout = nn.Dropout(dropout)

    def _add_norms(self, sublayer: str, norm: nn_config.NormConfig | None, d_model: int) -> None:
        self.add_module(f"{sublayer}_norm", None if norm is None else make_norm(norm, d_model))
        if norm is not None and norm.placement == "around":
            self.add_module(f"{sublayer}_output_norm", make_norm(norm, d_model))

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        if self.parallel:
            outputs = [self._run(name, x, ctx) for name in self.sublayers]
            return sum(outputs, x)
        for name in self.sublayers:
            x = x + self._run(name, x, ctx)
            if self.placement == "post":
                x = getattr(self, f"{name}_norm")(x)
        return x

    def _run(self, name: str, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Return what a sublayer adds to x, with the norms before it and on its output."""
        sublayer, norm = getattr(self, name), getattr(self, f"{'attention' if self.shared_norm else name}_norm")
        inputs = norm(x) if norm is not None and self.placement in ("pre", "around") else x
        if self.token_shift and name != "cross_attention":
            inputs = token_shift(inputs, ctx, sublayer.path)
        if ctx.any_tap:
            ctx.record(sublayer.path, "normed", inputs)
        outputs = sublayer(inputs, ctx)
        if self.placement in _OUTPUT_NORMS and (output_norm := self.output_norm(name)) is not None:
            outputs = output_norm(outputs)
        if self.residual_scale != 1:
            outputs = outputs * self.residual_scale
        outputs = ctx.edit_and_record(sublayer.path, "output", outputs)
        return self.dropout(outputs) if self.training else outputs

    def output_norm(self, name: str) -> nn.Module | None:
        """Return the norm on the output of a sublayer, before it is added; None = it has none."""
        return getattr(self, f"{name}_{_OUTPUT_NORMS[self.placement]}") if self.placement in _OUTPUT_NORMS else None

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Return the submodules by name, in the order of the forward pass."""
        before = self.placement in ("pre", "around")
        names = []
        for name in self.sublayers:
            names += [f"{name}_norm", name] if before else [name, f"{name}_norm"]
            names += [f"{name}_output_norm"] if self.placement == "around" else []
        return [(name, module) for name in names if (module := getattr(self, name)) is not None]

    def summary(self) -> str:
        """Return a one-line summary."""
        sublayer = "shift, sublayer" if self.token_shift else "sublayer"
        orders = {"pre": "norm, %s, add", "post": "%s, add, norm", "output": "%s, norm, add"}
        order = orders.get(self.placement, "norm, %s, norm, add") % sublayer
        return f"{order}; attention and MLP in parallel" if self.parallel else order

    def output_projections(self) -> list[nn.Linear]:
        """Return the output projection of each sublayer, whose result is added to the residual stream."""
        attentions = [module for module in (self.attention, self.cross_attention) if module is not None]
        return [*(module.output for module in attentions), self.feedforward.down]
