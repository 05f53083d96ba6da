"""The block of figure 1: attention and feed-forward, each with its residual path and its norm."""

from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.attention import Attention
from peasy.nn.feedforward import FeedForward
from peasy.nn.norm import make_norm
from peasy.nn.scene import Scene
from peasy.nn.shift import shift
from peasy.nn.tap import Place


class Block(nn.Module):
    """Look, (look at the source,) think: each adds to the stream."""

    def __init__(self, d_model: int, settings: part.Stack, place: Place, cross: bool, dropout: float) -> None:
        super().__init__()
        self.before, self.shift = settings.norm.place == "before", settings.shift
        self.attention = Attention(d_model, settings.attention, settings.norm, place._replace(part="attention"))
        self.attention_norm = make_norm(settings.norm, d_model)
        self.cross_attention = self.cross_attention_norm = None
        if cross:
            there = place._replace(part="cross_attention")
            self.cross_attention = Attention(d_model, settings.attention, settings.norm, there)
            self.cross_attention_norm = make_norm(settings.norm, d_model)
        self.feedforward = FeedForward(d_model, settings.feedforward, place._replace(part="feedforward"))
        self.feedforward_norm = make_norm(settings.norm, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """`[batch, time, d_model]` to the same."""
        x = self.add(x, self.attention, self.attention_norm, scene)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x = self.add(x, self.cross_attention, self.cross_attention_norm, scene)
        return self.add(x, self.feedforward, self.feedforward_norm, scene)

    def add(self, x: Tensor, sublayer: Attention | FeedForward, norm: nn.Module, scene: Scene) -> Tensor:
        """What the sublayer found, added to what was there; the norm stands before the sublayer or after the sum."""
        read = norm(x) if self.before else x
        if self.shift and sublayer.place.part != "cross_attention":
            read = shift(read, scene, sublayer.place)
        scene.show(sublayer.place, "normed", read)
        found = sublayer(read, scene)
        found = scene.hand_on(sublayer.place, "output", found)
        x = x + (self.dropout(found) if self.training else found)
        return x if self.before else norm(x)

    def parts(self) -> list[tuple[str, nn.Module]]:
        """Its parts in the order a token meets them."""
        names = (
            ["attention", "cross_attention", "feedforward"] if self.cross_attention else ["attention", "feedforward"]
        )
        order = [(f"{name}_norm", name) if self.before else (name, f"{name}_norm") for name in names]
        return [(name, getattr(self, name)) for pair in order for name in pair]

    def says(self) -> str:
        """What it is, in words."""
        part = "shift, part" if self.shift else "part"
        return f"norm, {part}, add" if self.before else f"{part}, add, norm"

    def adding(self) -> list[nn.Linear]:
        """The last map of each sublayer: what they give is added to the stream."""
        looks = [each.output for each in (self.attention, self.cross_attention) if each is not None]
        return [*looks, self.feedforward.down]
