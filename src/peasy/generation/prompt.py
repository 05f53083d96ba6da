"""Prompt preparation: bos or decoder-start token, vocabulary check, truncation to the context, token limit."""

from collections.abc import Sequence
from typing import Literal

from peasy.errors import InvalidInput
from peasy.generation.sampling import Sampling
from peasy.models.protocol import Model
from peasy.nn.part import Learned

Ids = Sequence[Sequence[int]]
Long = Literal["refuse", "last"]
"""How to treat a prompt longer than the context: raise an error, or keep its last tokens."""


def begin(model: Model, prompts: Ids | None, source: Ids | None) -> list[list[int]]:
    """Return the initial ids of each sequence: its prompt, or bos / decoder-start if that is empty; raise if neither.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> begin(build(preset("gpt-tiny"), seed=1), [[3, 4]], None)
    [[3, 4]]
    """
    return [begin_one(model, prompts[row] if prompts else ()) for row in range(count_texts(prompts, source))]


def count_texts(prompts: Ids | None, source: Ids | None) -> int:
    """Return the number of sequences; prompts and sources must agree."""
    if not (prompts or source) or (prompts is not None and not prompts):
        raise nothing()
    if prompts is not None and source is not None and len(source) != len(prompts):
        raise InvalidInput(
            f"There are {len(source)} sources and {len(prompts)} prompts.", hint="Give equally many of both."
        )
    return len(prompts or source or ())


def begin_one(model: Model, prompt: Sequence[int]) -> list[int]:
    """Return the initial ids of one sequence."""
    special = model.config.special
    first = special.start if model.reads_source else special.begin
    if not prompt and first is None:
        raise nothing()
    return [int(id) for id in prompt] or [first]  # type: ignore[list-item]  # not None here


def nothing() -> InvalidInput:
    """Return the error for an empty prompt of a model without a bos token."""
    return InvalidInput("The prompt is empty, and the model has no bos token.", hint="Give at least one token id.")


def check_ids(ids: Sequence[int], vocabulary: int) -> None:
    """Raise if an id is outside the vocabulary."""
    for id in ids:
        if not 0 <= id < vocabulary:
            raise InvalidInput(
                f"There is no token {id}: the vocabulary has ids 0 to {vocabulary - 1}.",
                hint="Was the text tokenized with this model's own tokenizer?",
            )


def places(model: Model) -> int | None:
    """Return the maximum sequence length, or None: only learned position embeddings have one."""
    learned = isinstance(getattr(model.config, "position", None), Learned)
    return getattr(model.config, "context", None) if learned else None


def fit(model: Model, ids: list[int], sampling: Sampling, long: Long = "refuse") -> list[int]:
    """Return the prompt if it fits the context; a longer one raises, or keeps its last tokens and leaves room for
    `max_tokens` new ones where possible."""
    context = places(model)
    if context is None or len(ids) <= context:
        return ids
    if long == "last":
        return ids[-max(context - sampling.max_tokens + 1, 1) :]
    raise InvalidInput(
        f"The prompt has {len(ids)} tokens; this model reads at most {context}.",
        hint="Shorten the text, keep only its end (long=last), or choose a model with a longer context.",
    )


def most_tokens(model: Model, sampling: Sampling, length: int) -> int:
    """Return how many tokens can be generated: `max_tokens`, or fewer if learned positions run out."""
    context = places(model)
    return sampling.max_tokens if context is None else min(sampling.max_tokens, max(context - length + 1, 1))


def writing_vocabulary(model: Model) -> int:
    """Return the size of the output vocabulary; an encoder-decoder may have another one for its source."""
    return getattr(model.config, "target_vocabulary", None) or model.config.vocabulary
