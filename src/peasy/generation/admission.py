"""Admission of a request: the one place that validates it, prepares its prompt and estimates its tokens and bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.generation.footprint import StateFootprint
from peasy.generation.limits import EngineLimits
from peasy.generation.request import AttentionQuery
from peasy.generation.request_queue import ResponseStream
from peasy.generation.sampling_params import LongPrompt
from peasy.models.config import RecurrentTranslatorConfig, can_extend_context
from peasy.models.protocol import Model
from peasy.models.transformer import check_token_range
from peasy.tokenization import Tokenizer

_SMALL_PART = 16
"""A short request takes at most one part in so many of the memory, and its prompt fits into one prefill chunk."""


def admit(
    model: Model, tokenizer: Tokenizer | None, response: ResponseStream, limits: EngineLimits,
    footprint: Callable[[], StateFootprint],
) -> None:  # fmt: skip
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
    source, context = _fit_source(model, request.source or (), request.long), _context_limit(model, request.long)
    prompt = prepare_prompt(model, request.prompt, request.max_tokens, request.long)
    check_token_range(source, model.config.vocab_size)
    # An encoder-decoder may have another vocabulary for its output.
    check_token_range(prompt, getattr(model.config, "target_vocab_size", None) or model.config.vocab_size)
    max_new_tokens = request.max_tokens
    if context is not None:
        max_new_tokens = min(max_new_tokens, max(context - len(prompt) + 1, 1))
    response.prompt, response.max_new_tokens = tuple(prompt), max_new_tokens
    response.prompt_logprobs = [None] * len(prompt) if request.scores_prompt else []
    if len(source) < len(request.source or ()):
        response.request = replace(request, source=tuple(source))
    response.total_tokens = len(source) + len(prompt) + request.num_sequences * max_new_tokens
    if limits.kv_cache_bytes is not None and request.use_cache:
        per_sequence = footprint().max_bytes(len(prompt) + max_new_tokens, len(source))
        response.state_bytes = request.num_sequences * per_sequence
        if response.state_bytes > limits.kv_cache_bytes:
            needed = f"This request may need {response.state_bytes:,} bytes of memory"
            hint = "Request fewer tokens or choices, or give the engine more memory."
            raise ResourceUnavailable(f"{needed}; the engine has {limits.kv_cache_bytes:,}.", hint=hint)
    is_small = _SMALL_PART * response.state_bytes <= (limits.kv_cache_bytes or math.inf)
    response.is_short = len(prompt) + len(source) <= limits.prefill_chunk and is_small
    if response.total_tokens > limits.max_queued_tokens:
        needed = f"This request has up to {response.total_tokens:,} tokens"
        hint = "Request fewer tokens or choices."
        raise ResourceUnavailable(f"{needed}; the engine takes {limits.max_queued_tokens:,}.", hint=hint)


def _check_attention_query(query: AttentionQuery, model: Model) -> None:
    config = model.config
    stack = getattr(config, "stack", None) or getattr(config, "decoder", None)
    shape = (0, 0) if stack is None else (stack.num_layers, stack.attention.num_heads)
    layers, heads = (1, 1) if isinstance(config, RecurrentTranslatorConfig) else shape
    for what, indices, count in (("layer", query.layers, layers), ("head", query.heads, heads)):
        if indices == ():
            raise InvalidInput(f"No {what} is given.", hint=f"Name one, or leave {what}s out for all of them.")
        for index in indices or ():
            if not 0 <= index < count:
                hint = f"Choose from 0 to {count - 1}." if count else "This model has no attention."
                raise InvalidInput(f"The decoder has no {what} {index}.", hint=hint)


def prepare_prompt(
    model: Model, prompt: Sequence[int], max_tokens: int | None = None, long: LongPrompt = "refuse"
) -> list[int]:
    """Return the initial ids of a sequence: its prompt, or bos / decoder-start if that is empty; raise if neither.

    With `max_tokens`, a prompt longer than the context raises, or is cut on the left: it keeps its bos token, and
    leaves space for `max_tokens` new tokens where possible.
    """
    special = model.config.special_tokens
    first = special.decoder_prompt if model.is_encoder_decoder else [] if special.bos is None else [special.bos]
    ids = [int(id) for id in prompt] or first
    if not ids:
        raise empty_prompt_error()
    context = None if max_tokens is None else _context_limit(model, long)
    if max_tokens is None or context is None or len(ids) <= context:
        return ids
    if long != "cut":
        raise _long_text_error(model, len(ids), "prompt")
    begin = ids[:1] if ids[0] == special.bos and context > 1 else []
    return begin + ids[-max(context - max(max_tokens, 1) + 1 - len(begin), 1) :]


def empty_prompt_error() -> InvalidInput:
    """Return the error for an empty prompt of a model without a bos token."""
    return InvalidInput("The prompt is empty, and the model has no bos token.", hint="Give at least one token id.")


def _context_limit(model: Model, long: LongPrompt = "refuse") -> int | None:
    """Return the most tokens of a sequence: the one place that decides; None: unlimited."""
    return None if long == "extend" and can_extend_context(model.config) else model.config.max_seq_len


def _fit_source(model: Model, ids: Sequence[int], long: LongPrompt = "refuse") -> Sequence[int]:
    """Return the source of a translation if it fits the context; a longer one raises, or loses its end but not eos."""
    context = _context_limit(model, long)
    if context is None or len(ids) <= context:
        return ids
    if long != "cut":
        raise _long_text_error(model, len(ids), "source")
    ends = ids[-1:] if ids[-1] in model.config.special_tokens.eos else ids[:0]
    return [*ids[: context - len(ends)], *ends]


def _long_text_error(model: Model, count: int, what: str) -> InvalidInput:
    """Return the error for a text that is longer than the context."""
    extend = ", go beyond it (long=extend)" if can_extend_context(model.config) else ""
    return InvalidInput(
        f"The {what} has {count:,} tokens; this model reads at most {model.config.max_seq_len:,}.",
        hint=f"Shorten it, let it be cut (long=cut){extend}, or choose a model with a longer context.",
    )


def long_text_note(model: Model, count: int, max_tokens: int, long: LongPrompt) -> str | None:
    """Return what is done about a prompt of `count` tokens that leaves no space for `max_tokens` more, if so."""
    context = model.config.max_seq_len
    if context is None or model.is_encoder_decoder or count + max_tokens - 1 <= context:
        return None
    if _context_limit(model, long) is None:
        return f"The text may go beyond the {context:,} tokens that the model was made for: expect worse text there."
    if count > context:
        kept = len(prepare_prompt(model, [0] * count, max_tokens, "cut"))
        return f"The prompt was cut to its last {kept:,} of {count:,} tokens: the model reads at most {context:,}."
    return f"At most {context - count + 1:,} new tokens fit: the model reads at most {context:,}."
