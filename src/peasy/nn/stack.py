"""Blocks on top of each other, and what they share: the bias of places, the turns, the last norm."""

from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.block import Block
from peasy.nn.norm import make_norm
from peasy.nn.position import AlibiBias, RelativeBias, turns
from peasy.nn.scene import Scene
from peasy.nn.tap import Place


class Stack(nn.Module):
    """An encoder (looks both ways) or a decoder (`causal`, with `cross` if it answers an encoder)."""

    def __init__(
        self,
        name: str,
        d_model: int,
        settings: part.Stack,
        position: part.Position | None,
        *,
        causal: bool,
        cross: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.name, self.settings, self.position, self.causal = name, settings, position, causal
        self.blocks = nn.ModuleList(
            Block(d_model, settings, Place(name, layer, "block"), cross, dropout) for layer in range(settings.layers)
        )
        self.norm = make_norm(settings.norm, d_model) if settings.norm.place == "before" else None
        heads = settings.attention.heads
        self.d_head = settings.attention.d_head or d_model // heads
        self.relative = RelativeBias(heads, position, causal) if isinstance(position, part.Relative) else None
        self.alibi = AlibiBias(heads) if isinstance(position, part.Alibi) else None

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer: what a cache needs to know."""
        return [self.settings.attention.window_of(layer) for layer in range(self.settings.layers)]

    def says(self) -> str:
        """What it is, in words."""
        return f"{len(self.blocks)} blocks, norm {self.settings.norm.place}"

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """`[batch, time, d_model]` to the same, after the last norm."""
        for each in scene.texts or (scene,):
            each.sight.bias = self.relative or self.alibi
        if isinstance(self.position, part.Rotary):
            scene.turn = turns(scene.sight.query, self.d_head, self.position)
        for layer, block in enumerate(self.blocks):
            x = scene.hand_on(Place(self.name, layer, "stream"), "residual", x)
            x = block(x, scene)
        last = Place(self.name, len(self.blocks), "stream")
        x = scene.hand_on(last, "residual", x)
        x = x if self.norm is None else self.norm(x)
        scene.show(last, "final", x)
        return x
