"""Prompt preparation: bos or decoder-start token, vocabulary check, truncation to the context, token limit."""

from collections.abc import Sequence
from typing import Literal

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import SamplingParams
from peasy.models.protocol import Model
from peasy.nn.config import LearnedPositionConfig

TokenIds = Sequence[Sequence[int]]
Truncation = Literal["error", "left"]
"""How to treat a prompt longer than the context: raise an error, or drop tokens on the left and keep the last ones."""


def prepare_prompts(model: Model, prompts: TokenIds | None, source: TokenIds | None) -> list[list[int]]:
    """Return the initial ids of each sequence: its prompt, or bos / decoder-start if that is empty; raise if neither.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> prepare_prompts(build(preset("gpt-tiny"), seed=1), [[3, 4]], None)
    [[3, 4]]
    """
    return [prepare_prompt(model, prompts[row] if prompts else ()) for row in range(count_sequences(prompts, source))]


def count_sequences(prompts: TokenIds | None, source: TokenIds | None) -> int:
    """Return the number of sequences; prompts and sources must agree."""
    if not (prompts or source) or (prompts is not None and not prompts):
        raise empty_prompt_error()
    if prompts is not None and source is not None and len(source) != len(prompts):
        raise InvalidInput(
            f"There are {len(source)} sources and {len(prompts)} prompts.", hint="Give equally many of both."
        )
    return len(prompts or source or ())


def prepare_prompt(model: Model, prompt: Sequence[int]) -> list[int]:
    """Return the initial ids of one sequence."""
    special = model.config.special_tokens
    first = special.decoder_start if model.is_encoder_decoder else special.bos
    if not prompt and first is None:
        raise empty_prompt_error()
    return [int(id) for id in prompt] or [first]  # type: ignore[list-item]  # not None here


def empty_prompt_error() -> InvalidInput:
    """Return the error for an empty prompt of a model without a bos token."""
    return InvalidInput("The prompt is empty, and the model has no bos token.", hint="Give at least one token id.")


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise if an id is outside the vocabulary."""
    for id in ids:
        if not 0 <= id < vocab_size:
            raise InvalidInput(
                f"There is no token {id}: the vocabulary has ids 0 to {vocab_size - 1}.",
                hint="Was the text tokenized with this model's own tokenizer?",
            )


def max_positions(model: Model) -> int | None:
    """Return the maximum sequence length, or None: only learned position embeddings have one."""
    learned = isinstance(getattr(model.config, "position", None), LearnedPositionConfig)
    return getattr(model.config, "max_seq_len", None) if learned else None


def fit_to_context(
    model: Model, ids: list[int], sampling: SamplingParams, truncation: Truncation = "error"
) -> list[int]:
    """Return the prompt if it fits the context; a longer one raises or is truncated on the left.

    A truncated prompt leaves space for `max_tokens` new tokens where possible.
    """
    context = max_positions(model)
    if context is None or len(ids) <= context:
        return ids
    if truncation == "left":
        return ids[-max(context - sampling.max_tokens + 1, 1) :]
    raise InvalidInput(
        f"The prompt has {len(ids)} tokens; this model reads at most {context}.",
        hint="Shorten the text, keep only its end (truncate=left), or choose a model with a longer context.",
    )


def new_token_limit(model: Model, sampling: SamplingParams, prompt_length: int) -> int:
    """Return how many tokens can be generated: `max_tokens`, or fewer if learned positions run out."""
    context = max_positions(model)
    return sampling.max_tokens if context is None else min(sampling.max_tokens, max(context - prompt_length + 1, 1))


def output_vocab_size(model: Model) -> int:
    """Return the size of the output vocabulary; an encoder-decoder may have another one for its source."""
    return getattr(model.config, "target_vocab_size", None) or model.config.vocab_size
