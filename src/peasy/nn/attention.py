"""Attention with weights: the one place that calls the fused kernel.

Projects, turns by place, takes cache and mask, and runs fused. Steps that a tap asks for are computed by the
formula for the asked rows and heads; what leaves the module is always the kernel's, so looking changes no bit.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import part
from peasy.nn.cache import LayerCache
from peasy.nn.edit import edit_context, edit_look
from peasy.nn.norm import make_norm
from peasy.nn.position import turn
from peasy.nn.scene import Scene
from peasy.nn.sight import Sight, Visible
from peasy.nn.tap import Place
from peasy.nn.watch import Look, watch


class Looker(Protocol):
    """Looks for all texts of a pass at once."""

    def __call__(
        self,
        query: Tensor,
        new: tuple[Tensor, Tensor] | None,
        known: Sequence[tuple[Tensor, Tensor, int]],
        sizes: Sequence[int],
        how: tuple[float, bool, int | None],
    ) -> Tensor:
        """What the queries of all texts, side by side, find, heads joined: `[1, all new tokens, heads * d_head]`.

        `known` are each text's keys and values, `[1, key_head, time, d_head]`, and how many of them count; where `new`
        ones are given, they are written behind those held before. `how` is (scale, is it causal, window).
        """


class Attention(nn.Module):
    """Multi-head attention over the text itself, or (part "cross_attention") over a source.

    For decoding, `joined` may hold the maps to queries, keys and values as one product, and `apart` lets every query
    look alone at exactly the keys it sees: its bits then do not depend on who is read in the same pass. A `looker`
    does that for all texts of a pass at once, where the scores are nothing but scaled products.
    """

    def __init__(self, d_model: int, settings: part.Attention, norm: part.Norm, place: Place) -> None:
        super().__init__()
        self.place, self.cross = place, place.part == "cross_attention"
        self.joined: nn.Module | None = None
        self.apart = False
        self.looker: Looker | None = None
        self.heads, self.key_heads = settings.heads, settings.key_heads or settings.heads
        self.d_head = settings.d_head or d_model // settings.heads
        self.scale = self.d_head**-0.5 if settings.scale is None else settings.scale
        self.softcap = settings.softcap
        self.window = None if self.cross else settings.window_of(place.layer)
        self.query = nn.Linear(d_model, self.heads * self.d_head, bias=settings.bias)
        self.key = nn.Linear(d_model, self.key_heads * self.d_head, bias=settings.bias)
        self.value = nn.Linear(d_model, self.key_heads * self.d_head, bias=settings.bias)
        self.output = nn.Linear(self.heads * self.d_head, d_model, bias=settings.output_bias)
        self.query_norm = make_norm(norm, self.d_head) if settings.norm_heads else None
        self.key_norm = make_norm(norm, self.d_head) if settings.norm_heads else None

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """`[batch, time, d_model]` to the same."""
        new = self._project(x, scene)
        if self.looker is not None and len(x) == 1 and self._plain(scene):
            return self.output(self._look_at_once(scene, *new))
        if not scene.texts:
            return self.output(self._look(scene, *new))
        if len(scene.texts) == 1:
            return self.output(self._look(scene.texts[0], *new))
        apart = zip(*(array.split(scene.sizes, dim=2) for array in new), strict=True)
        found = [self._look(text, *own) for text, own in zip(scene.texts, apart, strict=True)]
        return self.output(torch.cat(found, dim=1))

    def _look_at_once(self, scene: Scene, query: Tensor, *new: Tensor) -> Tensor:
        """The same for all texts by one call."""
        assert self.looker is not None
        texts, sizes = scene.texts or (scene,), scene.sizes or [query.shape[2]]
        how, memories = (self.scale, not self.cross, self.window), [self._memory(text) for text in texts]
        if self.cross:
            sources = [self._source(text) for text in texts]
            return self.looker(query, None, [(key, value, key.shape[2]) for key, value in sources], sizes, how)
        if memories[0] is None:
            return self.looker(query, None, [(*new, query.shape[2])], sizes, how)  # type: ignore[list-item]
        known = [each.make_room(size, *new) for each, size in zip(memories, sizes, strict=True) if each is not None]
        return self.looker(query, (new[0], new[1]), known, sizes, how)

    def _plain(self, scene: Scene) -> bool:
        """Can all texts be looked up at once? Nobody watches or edits, and nothing is hidden or added."""
        for text in scene.texts or (scene,):
            sight = text.source_sight if self.cross else text.sight
            if text.tap is not None or text.edit is not None or sight is None or not self._bare(sight):
                return False
        return True

    def _bare(self, sight: Sight) -> bool:
        """Are the scores nothing but scaled products with all keys up to the own one, or of a whole source?"""
        return sight.real is None and sight.bias is None and sight.causal is not self.cross

    def _look(self, scene: Scene, query: Tensor, *new: Tensor) -> Tensor:
        """What the queries find, heads joined: `[batch, time, heads * d_head]`."""
        key, value = self._source(scene) if self.cross else self._remember(scene, *new)
        sight = scene.source_sight if self.cross else scene.sight
        assert sight is not None, "cross-attention needs a source"
        look = Look(query, key, value, sight.visible(self.window, key.shape[2]), self.scale, self.softcap)
        look = edit_look(scene.edit, self.place, look, sight)
        context = self._attend(sight, look)
        if scene.tap is not None and scene.tap.wants(self.place):
            watch(scene.tap, self.place, look, context)
        context = edit_context(scene.edit, self.place, context, sight.query)
        return context.transpose(1, 2).flatten(2)

    def says(self) -> str:
        """What it is, in words."""
        own_text = "looks back" if self.place.stack == "decoder" else "looks both ways"
        way = "looks at the source" if self.cross else own_text
        shared = f" sharing {self.key_heads}" if self.key_heads != self.heads else ""
        near = f", {self.window} places" if self.window else ""
        return f"{self.heads} heads of {self.d_head}{shared}, {way}{near}"

    def _project(self, x: Tensor, scene: Scene) -> list[Tensor]:
        """Queries, and of the own text keys and values: by heads, and turned by their places."""
        if self.cross:
            return [self._queries(self.query(x))]
        if self.joined is None:
            query, (key, value) = self._queries(self.query(x)), self._keys_and_values(self.key(x), self.value(x))
        else:
            query, key, value = self._together(x)
        return [query, key, value] if scene.turn is None else [turn(query, scene.turn), turn(key, scene.turn), value]

    def _together(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same from one product: cut into heads once, then told apart."""
        assert self.joined is not None
        heads = _split(self.joined(x), self.heads + 2 * self.key_heads)
        query, key, value = heads.split_with_sizes([self.heads, self.key_heads, self.key_heads], dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value

    def _queries(self, query: Tensor) -> Tensor:
        query = _split(query, self.heads)
        return query if self.query_norm is None else self.query_norm(query)

    def _keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        key, value = _split(key, self.key_heads), _split(value, self.key_heads)
        return (key if self.key_norm is None else self.key_norm(key)), value

    def _attend(self, sight: Sight, look: Look) -> Tensor:
        if not self._alone(sight, look):
            return attend_fused(look)
        if self.looker is None or not self._bare(sight) or len(look.query) > 1:
            return attend_apart(look, self.window, sight.causal)
        size, how = look.query.shape[2], (self.scale, sight.causal, self.window)
        known = [(look.key, look.value, look.key.shape[2])]
        return _split(self.looker(look.query, None, known, [size], how), self.heads)

    def _alone(self, sight: Sight, look: Look) -> bool:
        """Does every query look alone? Not in an encoder, nor where there is padding or an edit has cut edges."""
        if not self.apart or sight.real is not None or not (sight.causal or self.cross):
            return False
        return look.visible is sight.visible(self.window, look.key.shape[2])

    def _remember(self, scene: Scene, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        memory = self._memory(scene)
        return (key, value) if memory is None else memory.extend(key, value)

    def _source(self, scene: Scene) -> tuple[Tensor, Tensor]:
        memory = self._memory(scene)
        if memory is not None and memory.source is not None:
            return memory.source
        assert scene.source is not None, "cross-attention needs a source"
        found = self._keys_and_values(self.key(scene.source), self.value(scene.source))
        if memory is not None:
            memory.source = found
        return found

    def _memory(self, scene: Scene) -> LayerCache | None:
        return None if scene.cache is None else scene.cache.layers[self.place.layer]


def attend_fused(look: Look) -> Tensor:
    """The context of every query, `[batch, head, query, d_value]`: fused, or by the formula where the kernel cannot.

    The kernel has no soft cap, and a NaN behind a mask would spoil rows that never look at it.
    """
    query, key, value = look.query, look.key, look.value
    if look.softcap or (look.visible.hides and not _finite(key, value)):
        return look.calculate().context.to(query.dtype)
    mask, causal = look.visible.for_kernel(query)
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=look.scale, enable_gqa=grouped
    )


def attend_apart(look: Look, window: int | None, causal: bool) -> Tensor:
    """The same with every query alone and exactly the keys it sees, however many are read in one pass."""
    query, time, n_key = look.query, look.query.shape[2], look.key.shape[2]
    if time == 1 and not look.visible.hides:
        return attend_fused(look)
    found = []
    for row in range(time):
        last = n_key - time + row + 1 if causal else n_key
        first = 0 if window is None else max(last - window, 0)
        bias = None if look.visible.bias is None else look.visible.bias[:, :, row : row + 1, first:last]
        key, value = look.key[:, :, first:last], look.value[:, :, first:last]
        one = Look(query[:, :, row : row + 1], key, value, Visible(bias=bias), look.scale, look.softcap)
        found.append(attend_fused(one))
    return found[0] if time == 1 else torch.cat(found, dim=2)


def _split(x: Tensor, heads: int) -> Tensor:
    """`[batch, time, heads * width]` to `[batch, head, time, width]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _finite(key: Tensor, value: Tensor) -> bool:
    """Is every number finite? A sum is the cheapest question; it overflows only where care is due anyway."""
    if torch.compiler.is_compiling():
        return True
    total = key.detach().sum(dtype=torch.float32) + value.detach().sum(dtype=torch.float32)
    return bool(torch.isfinite(total))
