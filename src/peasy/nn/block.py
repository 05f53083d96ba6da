"""Transformer block: attention and MLP, each with a norm and a residual connection."""

from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.norm import make_norm
from peasy.nn.scene import Scene
from peasy.nn.shift import shift
from peasy.nn.tap import Place


class Block(nn.Module):
    """Self-attention, optional cross-attention and MLP, each with a residual connection."""

    def __init__(self, d_model: int, settings: part.Stack, place: Place, cross: bool, dropout: float) -> None:
        super().__init__()
        self.before, self.shift = settings.norm.place == "before", settings.shift
        self.attention = Attention(d_model, settings.attention, settings.norm, place._replace(part="attention"))
        self.attention_norm = make_norm(settings.norm, d_model)
        self.cross_attention = self.cross_attention_norm = None
        if cross:
            cross_path = place._replace(part="cross_attention")
            self.cross_attention = Attention(d_model, settings.attention, settings.norm, cross_path)
            self.cross_attention_norm = make_norm(settings.norm, d_model)
        self.feedforward = FeedForward(d_model, settings.feedforward, place._replace(part="feedforward"))
        self.feedforward_norm = make_norm(settings.norm, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        x = self.add(x, self.attention, self.attention_norm, scene)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x = self.add(x, self.cross_attention, self.cross_attention_norm, scene)
        return self.add(x, self.feedforward, self.feedforward_norm, scene)

    def add(self, x: Tensor, sublayer: Attention | FeedForward, norm: nn.Module, scene: Scene) -> Tensor:
        """Add the sublayer's output to x; with the norm before the sublayer (pre-norm) or after the sum (post-norm)."""
        inputs = norm(x) if self.before else x
        if self.shift and sublayer.place.part != "cross_attention":
            inputs = shift(inputs, scene, sublayer.place)
        scene.show(sublayer.place, "normed", inputs)
        outputs = sublayer(inputs, scene)
        outputs = scene.hand_on(sublayer.place, "output", outputs)
        x = x + (self.dropout(outputs) if self.training else outputs)
        return x if self.before else norm(x)

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Return the submodules by name, in the order of the forward pass."""
        names = (
            ["attention", "cross_attention", "feedforward"] if self.cross_attention else ["attention", "feedforward"]
        )
        order = [(f"{name}_norm", name) if self.before else (name, f"{name}_norm") for name in names]
        return [(name, getattr(self, name)) for pair in order for name in pair]

    def says(self) -> str:
        """Return a one-line summary."""
        sublayer = "shift, sublayer" if self.shift else "sublayer"
        return f"norm, {sublayer}, add" if self.before else f"{sublayer}, add, norm"

    def adding(self) -> list[nn.Linear]:
        """Return the output projection of each sublayer, whose result is added to the residual stream."""
        attentions = [module for module in (self.attention, self.cross_attention) if module is not None]
        return [*(module.output for module in attentions), self.feedforward.down]
