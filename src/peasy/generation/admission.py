"""Admission control: validates a request and estimates its tokens and bytes before it is queued."""

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.generation.attention_topk import check_attention_query
from peasy.generation.footprint import StateFootprint
from peasy.generation.limits import EngineLimits
from peasy.generation.prompt import check_ids, fit_to_context, new_token_limit, output_vocab_size, prepare_prompt
from peasy.generation.request import Request
from peasy.generation.request_queue import QueuedRequest
from peasy.generation.response_stream import ResponseStream
from peasy.models.protocol import Model
from peasy.tokenization import Tokenizer


def admit(
    model: Model, tokenizer: Tokenizer | None, response: ResponseStream, limits: EngineLimits, footprint: StateFootprint
) -> QueuedRequest:
    """Return the request with its resource estimate, or raise an error that says what to change."""
    request = response.request
    if request.n > limits.max_n or request.n > limits.max_num_seqs:
        raise InvalidInput(
            f"n is {request.n}.", hint=f"Request at most {min(limits.max_n, limits.max_num_seqs)} choices."
        )
    if request.sampling.stop and tokenizer is None:
        raise InvalidInput("Stop strings need a tokenizer, and the engine has none.", hint="Give the engine one.")
    if request.attention_query is not None:
        check_attention_query(request.attention_query, model)
    source = request.source or ()
    prompt = _prepare_prompt(model, request)
    max_new_tokens = new_token_limit(model, request.sampling, len(prompt))
    entry = QueuedRequest(
        response, prompt, max_new_tokens,
        total_tokens=len(source) + len(prompt) + request.n * max_new_tokens,
        state_bytes=request.n * footprint.max_bytes(len(prompt) + max_new_tokens, len(source)),
    )  # fmt: skip
    _check_capacity(entry, limits)
    return entry


def _prepare_prompt(model: Model, request: Request) -> tuple[int, ...]:
    if model.is_encoder_decoder != bool(request.source):
        raise InvalidInput(
            "This encoder-decoder model needs a source." if model.is_encoder_decoder else "This model takes no source.",
            hint="Give source=ids." if model.is_encoder_decoder else "Give the ids as the prompt.",
        )
    prompt = fit_to_context(model, prepare_prompt(model, request.prompt), request.sampling)
    check_ids(request.source or (), model.config.vocab_size)
    check_ids(prompt, output_vocab_size(model))
    return tuple(prompt)


def _check_capacity(queued: QueuedRequest, limits: EngineLimits) -> None:
    if queued.state_bytes > limits.kv_cache_bytes:
        raise ResourceUnavailable(
            f"This request may need {queued.state_bytes:,} bytes of memory; the engine has {limits.kv_cache_bytes:,}.",
            hint="Request fewer tokens or choices, or give the engine more memory.",
        )
    if queued.total_tokens > limits.max_queued_tokens:
        raise ResourceUnavailable(
            f"This request has up to {queued.total_tokens:,} tokens; the engine takes {limits.max_queued_tokens:,}.",
            hint="Request fewer tokens or choices.",
        )
