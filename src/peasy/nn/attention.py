"""Multi-head attention: projections, RoPE, KV cache, mask and the fused kernel.

Steps requested by a tap are recomputed by the formula; the module's output always comes from the kernel, so a tap
changes no bit of it.
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
    """Attention backend for a packed batch of sequences of different lengths."""

    def __call__(
        self,
        query: Tensor,
        new: tuple[Tensor, Tensor] | None,
        known: Sequence[tuple[Tensor, Tensor, int]],
        sizes: Sequence[int],
        how: tuple[float, bool, int | None],
    ) -> Tensor:
        """Return the concatenated head outputs of all sequences: `[1, all new tokens, heads * d_head]`.

        `kv` has for each sequence the buffers of its keys and values, `[1, kv_head, time, d_head]`, and their
        length; `new_kv`, if given, is written to the end of them. `options` is (scale, causal, window).
        """


class Attention(nn.Module):
    """Multi-head self-attention, or (part "cross_attention") cross-attention to an encoder.

    For decoding, `qkv_proj` may hold the three projections as one packed linear layer. With `batch_invariant` each
    query attends separately to exactly its keys, so its bits do not depend on the other sequences of the pass;
    `backend` does so for all sequences at once, if there is no bias or padding.
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
        """Map `[batch, time, d_model]` to the same shape."""
        qkv = self._project(x, scene)
        if self.looker is not None and len(x) == 1 and self._plain(scene):
            return self.output(self._look_at_once(scene, *qkv))
        if not scene.texts:
            return self.output(self._look(scene, *qkv))
        if len(scene.texts) == 1:
            return self.output(self._look(scene.texts[0], *qkv))
        split_qkv = zip(*(array.split(scene.sizes, dim=2) for array in qkv), strict=True)
        contexts = [self._look(sequence, *arrays) for sequence, arrays in zip(scene.texts, split_qkv, strict=True)]
        return self.output(torch.cat(contexts, dim=1))

    def _look_at_once(self, scene: Scene, query: Tensor, *new: Tensor) -> Tensor:
        """Attend for all sequences in one call of the backend."""
        assert self.looker is not None
        sequences, seq_lens = scene.texts or (scene,), scene.sizes or [query.shape[2]]
        options, caches = (self.scale, not self.cross, self.window), [self._memory(sequence) for sequence in sequences]
        if self.cross:
            cross_kv = [self._source(sequence) for sequence in sequences]
            return self.looker(query, None, [(key, value, key.shape[2]) for key, value in cross_kv], seq_lens, options)
        if caches[0] is None:
            return self.looker(query, None, [(*new, query.shape[2])], seq_lens, options)  # type: ignore[list-item]
        kv = [cache.make_room(n, *new) for cache, n in zip(caches, seq_lens, strict=True) if cache is not None]
        return self.looker(query, (new[0], new[1]), kv, seq_lens, options)

    def _plain(self, scene: Scene) -> bool:
        """Return True if the backend can be used: no tap, intervention, padding or bias."""
        for sequence in scene.texts or (scene,):
            mask_spec = sequence.source_sight if self.cross else sequence.sight
            if sequence.tap is not None or sequence.edit is not None or mask_spec is None:
                return False
            if not self._bare(mask_spec):
                return False
        return True

    def _bare(self, sight: Sight) -> bool:
        """Return True if there is neither padding nor bias: plainly causal, or all keys of an encoder."""
        return sight.real is None and sight.bias is None and sight.causal is not self.cross

    def _look(self, scene: Scene, query: Tensor, *new: Tensor) -> Tensor:
        """Attend for one sequence or a padded batch; heads are concatenated: `[batch, time, heads * d_head]`."""
        key, value = self._source(scene) if self.cross else self._remember(scene, *new)
        mask_spec = scene.source_sight if self.cross else scene.sight
        assert mask_spec is not None, "cross-attention needs an encoder output"
        mask = mask_spec.visible(self.window, key.shape[2])
        inputs = Look(query, key, value, mask, self.scale, self.softcap)
        inputs = edit_look(scene.edit, self.place, inputs, mask_spec)
        context = self._attend(mask_spec, inputs)
        if scene.tap is not None and scene.tap.wants(self.place):
            watch(scene.tap, self.place, inputs, context)
        context = edit_context(scene.edit, self.place, context, mask_spec.query)
        return context.transpose(1, 2).flatten(2)

    def says(self) -> str:
        """Return a one-line summary."""
        direction = "causal" if self.place.stack == "decoder" else "bidirectional"
        kind = "cross-attention" if self.cross else direction
        grouped = f", {self.key_heads} KV heads" if self.key_heads != self.heads else ""
        window = f", window {self.window}" if self.window else ""
        return f"{self.heads} heads of {self.d_head}{grouped}, {kind}{window}"

    def _project(self, x: Tensor, scene: Scene) -> list[Tensor]:
        """Return queries and, in self-attention, keys and values: split into heads, with RoPE applied."""
        if self.cross:
            return [self._queries(self.query(x))]
        if self.joined is None:
            query, (key, value) = self._queries(self.query(x)), self._keys_and_values(self.key(x), self.value(x))
        else:
            query, key, value = self._together(x)
        return [query, key, value] if scene.turn is None else [turn(query, scene.turn), turn(key, scene.turn), value]

    def _together(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values with the packed projection."""
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
        n_query, options = look.query.shape[2], (self.scale, sight.causal, self.window)
        kv = [(look.key, look.value, look.key.shape[2])]
        return _split(self.looker(look.query, None, kv, [n_query], options), self.heads)

    def _alone(self, sight: Sight, look: Look) -> bool:
        """Return True if each query attends separately; not in an encoder, with padding, or where edges were cut."""
        if not self.apart or sight.real is not None or not (sight.causal or self.cross):
            return False
        return look.visible is sight.visible(self.window, look.key.shape[2])

    def _remember(self, scene: Scene, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        cache = self._memory(scene)
        return (key, value) if cache is None else cache.extend(key, value)

    def _source(self, scene: Scene) -> tuple[Tensor, Tensor]:
        cache = self._memory(scene)
        if cache is not None and cache.source is not None:
            return cache.source
        assert scene.source is not None, "cross-attention needs an encoder output"
        cross_kv = self._keys_and_values(self.key(scene.source), self.value(scene.source))
        if cache is not None:
            cache.source = cross_kv
        return cross_kv

    def _memory(self, scene: Scene) -> LayerCache | None:
        return None if scene.cache is None else scene.cache.layers[self.place.layer]


def attend_fused(look: Look) -> Tensor:
    """Return the context of every query, `[batch, head, query, d_value]`, by the fused kernel or the formula.

    The formula is used for a soft cap, which the kernel lacks, and where the kernel would let a NaN through the mask.
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
    """Attend with one kernel call per query over exactly its keys: bits do not depend on the number of queries."""
    query, time, n_key = look.query, look.query.shape[2], look.key.shape[2]
    if time == 1 and not look.visible.hides:
        return attend_fused(look)
    contexts = []
    for row in range(time):
        last = n_key - time + row + 1 if causal else n_key
        first = 0 if window is None else max(last - window, 0)
        bias = None if look.visible.bias is None else look.visible.bias[:, :, row : row + 1, first:last]
        key, value = look.key[:, :, first:last], look.value[:, :, first:last]
        row_inputs = Look(query[:, :, row : row + 1], key, value, Visible(bias=bias), look.scale, look.softcap)
        contexts.append(attend_fused(row_inputs))
    return contexts[0] if time == 1 else torch.cat(contexts, dim=2)


def _split(x: Tensor, heads: int) -> Tensor:
    """Split heads: `[batch, time, heads * width]` to `[batch, head, time, width]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _finite(key: Tensor, value: Tensor) -> bool:
    """Return True if all numbers are finite; by a sum, as an overflow only means the slower, equally correct path."""
    if torch.compiler.is_compiling():
        return True
    total = key.detach().sum(dtype=torch.float32) + value.detach().sum(dtype=torch.float32)
    return bool(torch.isfinite(total))
