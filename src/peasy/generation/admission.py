"""Admission of a request: the one place that validates it, prepares its prompt and estimates its tokens and bytes."""

import math
from collections.abc import Callable, Sequence

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.generation.footprint import StateFootprint
from peasy.generation.limits import EngineLimits
from peasy.generation.request import AttentionQuery, Truncation
from peasy.generation.request_queue import ResponseStream
from peasy.models.config import RecurrentTranslatorConfig
from peasy.models.protocol import Model
from peasy.models.transformer import check_token_range
from peasy.nn.config import LearnedPositionConfig
from peasy.tokenization import Tokenizer

_SMALL_PART = 16
"""A short request takes at most one part in so many of the memory, and its prompt fits into one prefill chunk."""


def admit(
    model: Model,
    tokenizer: Tokenizer | None,
    response: ResponseStream,
    limits: EngineLimits,
    footprint: Callable[[], StateFootprint],
) -> None:
    """Set the prompt and the resource estimate of a request, or raise an error that says what to change."""
    request = response.request
    if request.num_sequences > limits.max_num_seqs:
        name = "n" if request.beam_search is None else "num_beams"
        raise InvalidInput(f"{name} is {request.num_sequences}.", hint=f"Request at most {limits.max_num_seqs}.")
    if request.sampling.stop and tokenizer is None:
        raise InvalidInput("Stop strings need a tokenizer, and there is none.", hint="Give tokenizer=.")
    if request.attention_query is not None:
        _check_attention_query(request.attention_query, model)
    if model.is_encoder_decoder and not request.source:
        hint = "Give source=ids, with at least one id for each sequence."
        raise InvalidInput("This encoder-decoder model needs a source.", hint=hint)
    if request.source and not model.is_encoder_decoder:
        raise InvalidInput("This model takes no source.", hint="Give the ids as the prompt.")
    source, context = request.source or (), _max_positions(model)
    prompt = fit_to_context(model, prepare_prompt(model, request.prompt), request.max_tokens, request.truncation)
    check_token_range(source, model.config.vocab_size)
    # An encoder-decoder may have another vocabulary for its output.
    check_token_range(prompt, getattr(model.config, "target_vocab_size", None) or model.config.vocab_size)
    max_new_tokens = request.max_tokens
    if context is not None:
        max_new_tokens = min(max_new_tokens, max(context - len(prompt) + 1, 1))
    response.prompt, response.max_new_tokens = tuple(prompt), max_new_tokens
    response.prompt_logprobs = [None] * len(prompt) if request.scores_prompt else []
    response.total_tokens = len(source) + len(prompt) + request.num_sequences * max_new_tokens
    if limits.kv_cache_bytes is not None and request.use_cache:
        per_sequence = footprint().max_bytes(len(prompt) + max_new_tokens, len(source))
        response.state_bytes = request.num_sequences * per_sequence
        if response.state_bytes > limits.kv_cache_bytes:
            raise ResourceUnavailable(
                f"This request may need {response.state_bytes:,} bytes of memory; "
                f"the engine has {limits.kv_cache_bytes:,}.",
                hint="Request fewer tokens or choices, or give the engine more memory.",
            )
    is_small = _SMALL_PART * response.state_bytes <= (limits.kv_cache_bytes or math.inf)
    response.is_short = len(prompt) + len(source) <= limits.prefill_chunk and is_small
    if response.total_tokens > limits.max_queued_tokens:
        raise ResourceUnavailable(
            f"This request has up to {response.total_tokens:,} tokens; the engine takes {limits.max_queued_tokens:,}.",
            hint="Request fewer tokens or choices.",
        )


def _check_attention_query(query: AttentionQuery, model: Model) -> None:
    """Raise if the decoder does not have these layers or heads."""
    config = model.config
    stack = getattr(config, "stack", None) or getattr(config, "decoder", None)
    shape = (0, 0) if stack is None else (stack.num_layers, stack.attention.num_heads)
    layers, heads = (1, 1) if isinstance(config, RecurrentTranslatorConfig) else shape
    for what, indices, count in (("layer", query.layers, layers), ("head", query.heads, heads)):
        for index in indices or ():
            if not 0 <= index < count:
                hint = f"Choose from 0 to {count - 1}." if count else "This model has no attention."
                raise InvalidInput(f"The decoder has no {what} {index}.", hint=hint)


def prepare_prompt(model: Model, prompt: Sequence[int]) -> list[int]:
    """Return the initial ids of a sequence: its prompt, or bos / decoder-start if that is empty; raise if neither."""
    special = model.config.special_tokens
    bos = [] if special.bos is None else [special.bos]
    first = special.decoder_prompt if model.is_encoder_decoder else bos
    if prompt:
        return [int(id) for id in prompt]
    if not first:
        raise empty_prompt_error()
    return first


def empty_prompt_error() -> InvalidInput:
    """Return the error for an empty prompt of a model without a bos token."""
    return InvalidInput("The prompt is empty, and the model has no bos token.", hint="Give at least one token id.")


def fit_to_context(model: Model, ids: list[int], max_tokens: int, truncation: Truncation = "error") -> list[int]:
    """Return the prompt if it fits the context; a longer one raises or is truncated on the left.

    A truncated prompt leaves space for `max_tokens` new tokens where possible.
    """
    context = _max_positions(model)
    if context is None or len(ids) <= context:
        return ids
    if truncation == "left":
        return ids[-max(context - max_tokens + 1, 1) :]
    raise InvalidInput(
        f"The prompt has {len(ids)} tokens; this model reads at most {context}.",
        hint="Shorten the text, keep only its end (truncate=left), or choose a model with a longer context.",
    )


def _max_positions(model: Model) -> int | None:
    """Return the maximum sequence length, or None: only learned position embeddings have one."""
    learned = isinstance(getattr(model.config, "position", None), LearnedPositionConfig)
    return getattr(model.config, "max_seq_len", None) if learned else None
