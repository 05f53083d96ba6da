"""Shared code of the three Transformers: forward context, packed batches, input checks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.protocol import Edits, Taps, one_each
from peasy.nn.cache import Cache, extend_places
from peasy.nn.embedding import Embedding
from peasy.nn.scene import Edit, Scene
from peasy.nn.sight import Sight
from peasy.nn.tap import Tap


def set_scene(
    embedding: Embedding,
    ids: Tensor,
    real: Tensor | None,
    *,
    causal: bool,
    cache: Cache | None = None,
    tap: Tap | None = None,
    edit: Edit | None = None,
) -> Scene:
    """Check the ids and build the forward context of one pass: positions, mask, KV cache, tap, intervention."""
    check_ids(ids, embedding.token.num_embeddings)
    batch, time = ids.shape
    embedding.check_length(time + (0 if cache is None else cache.length))
    query, key, real = extend_places(cache, batch, time, padding_or_none(real), ids.device)
    return Scene(Sight(query, key, causal, real), cache, tap, edit)


def stand_side_by_side(
    embedding: Embedding, texts: Sequence[Sequence[int]], memories: Sequence[Cache], tap: Taps, edit: Edits
) -> tuple[Tensor, Scene]:
    """Pack the new tokens of all sequences into `[1, total]`, with their context; check all before a state changes."""
    if not all(texts):
        raise InvalidInput("A sequence has no new token.", hint="Leave out sequences without new tokens.")
    tokens = [token for sequence in texts for token in sequence]
    check_range(min(tokens), max(tokens), embedding.token.num_embeddings)
    ids = torch.tensor([tokens], device=embedding.token.weight.device)
    for sequence, cache in zip(texts, memories, strict=True):
        embedding.check_length(cache.length + len(sequence))
    contexts = []
    for sequence, cache, sequence_tap, sequence_edit in zip(
        texts, memories, one_each(tap, len(texts)), one_each(edit, len(texts)), strict=True
    ):
        query, key, mask = extend_places(cache, 1, len(sequence), None, ids.device)
        contexts.append(Scene(Sight(query, key, True, mask), cache, sequence_tap, sequence_edit))
    positions = torch.cat([ctx.sight.query for ctx in contexts], dim=1)
    return ids, Scene(Sight(positions, positions, True), texts=tuple(contexts))


def last_or_every(hidden: Tensor, scene: Scene, every: bool, score: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the logits of each sequence of a packed batch, after its last token or after every token."""
    if every:
        return list(score(hidden)[0].split(scene.sizes))
    if max(scene.sizes) == 1:
        return list(score(hidden[0]).unbind())
    last = torch.tensor(scene.sizes, device=hidden.device).cumsum(0) - 1
    return list(score(hidden[0, last]).unbind())


def padding_or_none(real: Tensor | None) -> Tensor | None:
    """Return the padding mask as booleans, or None if there is no padding."""
    if real is None or torch.compiler.is_compiling():
        return None if real is None else real.bool()
    real = real.bool()
    return None if bool(real.all()) else real


def check_ids(ids: Tensor, vocabulary: int) -> None:
    """Raise if ids are not `[batch, time]` or outside the vocabulary."""
    if ids.ndim != 2 or not ids.shape[1]:
        raise InvalidInput(
            f"ids have the shape {tuple(ids.shape)}.",
            hint="Pass [batch, time] with at least one token, e.g. ids[None].",
        )
    if torch.compiler.is_compiling() or ids.device.type == "meta":
        return
    least, most = ids.aminmax()
    check_range(int(least), int(most), vocabulary)


def check_range(least: int, most: int, vocabulary: int) -> None:
    """Raise if ids are outside the vocabulary."""
    if least < 0 or most >= vocabulary:
        raise InvalidInput(
            f"Token id {least if least < 0 else most} is outside the vocabulary of this model, 0 to {vocabulary - 1}.",
            hint="Was the text tokenized with this model's own tokenizer?",
        )
