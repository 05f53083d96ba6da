"""What the three Transformers share: masks and places are made here, once, and handed down."""

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
    """The scene of one pass: checks the ids, then says where everybody stands and who may look at whom."""
    check_ids(ids, embedding.token.num_embeddings)
    batch, time = ids.shape
    embedding.check_length(time + (0 if cache is None else cache.length))
    query, key, real = extend_places(cache, batch, time, padding_or_none(real), ids.device)
    return Scene(Sight(query, key, causal, real), cache, tap, edit)


def stand_side_by_side(
    embedding: Embedding, texts: Sequence[Sequence[int]], memories: Sequence[Cache], tap: Taps, edit: Edits
) -> tuple[Tensor, Scene]:
    """The new tokens of all texts in one row, `[1, total]`, and its scene. All is checked before a memory changes."""
    if not all(texts):
        raise InvalidInput("A text has no new token.", hint="Leave out the texts that have nothing to be read.")
    row = [token for text in texts for token in text]
    check_range(min(row), max(row), embedding.token.num_embeddings)
    ids = torch.tensor([row], device=embedding.token.weight.device)
    for text, memory in zip(texts, memories, strict=True):
        embedding.check_length(memory.length + len(text))
    scenes = []
    for text, memory, watcher, change in zip(
        texts, memories, one_each(tap, len(texts)), one_each(edit, len(texts)), strict=True
    ):
        query, key, real = extend_places(memory, 1, len(text), None, ids.device)
        scenes.append(Scene(Sight(query, key, True, real), memory, watcher, change))
    places = torch.cat([scene.sight.query for scene in scenes], dim=1)
    return ids, Scene(Sight(places, places, True), texts=tuple(scenes))


def last_or_every(hidden: Tensor, scene: Scene, every: bool, score: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The scores of each text of a row, after its last token or after every one."""
    if every:
        return list(score(hidden)[0].split(scene.sizes))
    if max(scene.sizes) == 1:
        return list(score(hidden[0]).unbind())
    last = torch.tensor(scene.sizes, device=hidden.device).cumsum(0) - 1
    return list(score(hidden[0, last]).unbind())


def padding_or_none(real: Tensor | None) -> Tensor | None:
    """`real` as True and False, or None where nothing is padding."""
    if real is None or torch.compiler.is_compiling():
        return None if real is None else real.bool()
    real = real.bool()
    return None if bool(real.all()) else real


def check_ids(ids: Tensor, vocabulary: int) -> None:
    """Refuse what is not `[batch, time]` or has ids outside the vocabulary."""
    if ids.ndim != 2 or not ids.shape[1]:
        raise InvalidInput(
            f"ids have the shape {tuple(ids.shape)}.", hint="Give batch x time, with at least one token: ids[None]."
        )
    if torch.compiler.is_compiling() or ids.device.type == "meta":
        return
    least, most = ids.aminmax()
    check_range(int(least), int(most), vocabulary)


def check_range(least: int, most: int, vocabulary: int) -> None:
    """Refuse ids outside the vocabulary."""
    if least < 0 or most >= vocabulary:
        raise InvalidInput(
            f"There is no token {least if least < 0 else most}: this model knows 0 to {vocabulary - 1}.",
            hint="Was the text cut into tokens by this model's own tokenizer?",
        )
