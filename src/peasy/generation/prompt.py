"""What a text begins with, and how far it can go: what cannot be written on from is refused before any work."""

from collections.abc import Sequence
from typing import Literal

from peasy.errors import InvalidInput
from peasy.generation.sampling import Sampling
from peasy.models.protocol import Model
from peasy.nn.part import Learned

Ids = Sequence[Sequence[int]]
Long = Literal["refuse", "last"]
"""What to do with a prompt that is longer than the model's context: refuse it, or keep its last tokens."""


def begin(model: Model, prompts: Ids | None, source: Ids | None) -> list[list[int]]:
    """What each text begins with: its prompt; where that is empty, the model's begin or start id; an error if none.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> begin(build(preset("gpt-tiny"), seed=1), [[3, 4]], None)
    [[3, 4]]
    """
    return [begin_one(model, prompts[row] if prompts else ()) for row in range(count_texts(prompts, source))]


def count_texts(prompts: Ids | None, source: Ids | None) -> int:
    """How many texts are to be written: as many as there are prompts or sources, and of both alike."""
    if not (prompts or source) or (prompts is not None and not prompts):
        raise nothing()
    if prompts is not None and source is not None and len(source) != len(prompts):
        raise InvalidInput(f"There are {len(source)} sources and {len(prompts)} prompts.", hint="Give as many of each.")
    return len(prompts or source or ())


def begin_one(model: Model, prompt: Sequence[int]) -> list[int]:
    """The same for one text."""
    special = model.config.special
    first = special.start if model.reads_source else special.begin
    if not prompt and first is None:
        raise nothing()
    return [int(id) for id in prompt] or [first]  # type: ignore[list-item]  # it is not None here


def nothing() -> InvalidInput:
    """The error of an empty prompt that nothing can stand in for."""
    return InvalidInput("There is nothing to write on from.", hint="Give at least one id in every prompt.")


def check_ids(ids: Sequence[int], vocabulary: int) -> None:
    """Refuse ids outside the vocabulary."""
    for id in ids:
        if not 0 <= id < vocabulary:
            raise InvalidInput(
                f"There is no token {id}: this model knows 0 to {vocabulary - 1}.",
                hint="Was the text cut into tokens by this model's own tokenizer?",
            )


def places(model: Model) -> int | None:
    """How many tokens a text can have at most: only learned places run out."""
    learned = isinstance(getattr(model.config, "position", None), Learned)
    return getattr(model.config, "context", None) if learned else None


def fit(model: Model, ids: list[int], sampling: Sampling, long: Long = "refuse") -> list[int]:
    """The prompt if the model can read it; a longer one is refused, or cut to its last tokens so that all that is to be
    written has a place too, where it can."""
    context = places(model)
    if context is None or len(ids) <= context:
        return ids
    if long == "last":
        return ids[-max(context - sampling.max_tokens + 1, 1) :]
    raise InvalidInput(
        f"The text has {len(ids)} tokens; this model reads at most {context}.",
        hint="Shorten the text, keep only its end (long=last), or choose a model with a longer context.",
    )


def most_tokens(model: Model, sampling: Sampling, length: int) -> int:
    """How many tokens can be written after `length`: learned places may run out before."""
    context = places(model)
    return sampling.max_tokens if context is None else min(sampling.max_tokens, max(context - length + 1, 1))


def writing_vocabulary(model: Model) -> int:
    """How many ids there are for what is written: a translator's may be others than those of its source."""
    return getattr(model.config, "target_vocabulary", None) or model.config.vocabulary
