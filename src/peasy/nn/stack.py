"""Stack of Transformer blocks with shared position encoding and final norm."""

from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.block import Block
from peasy.nn.norm import make_norm
from peasy.nn.position import AlibiBias, RelativeBias, turns
from peasy.nn.scene import Scene
from peasy.nn.tap import Place


class Stack(nn.Module):
    """Encoder stack (bidirectional) or decoder stack (`causal`, with `cross` for cross-attention to an encoder)."""

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
        """Attention window of each layer, for the KV cache."""
        return [self.settings.attention.window_of(layer) for layer in range(self.settings.layers)]

    def says(self) -> str:
        """Return a one-line summary."""
        return f"{len(self.blocks)} blocks, {'pre' if self.settings.norm.place == 'before' else 'post'}-norm"

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """Run all blocks and the final norm: `[batch, time, d_model]` to the same shape."""
        for sequence in scene.texts or (scene,):
            sequence.sight.bias = self.relative or self.alibi
        if isinstance(self.position, part.Rotary):
            scene.turn = turns(scene.sight.query, self.d_head, self.position)
        for layer, block in enumerate(self.blocks):
            x = scene.hand_on(Place(self.name, layer, "stream"), "residual", x)
            x = block(x, scene)
        final_path = Place(self.name, len(self.blocks), "stream")
        x = scene.hand_on(final_path, "residual", x)
        x = x if self.norm is None else self.norm(x)
        scene.show(final_path, "final", x)
        return x
