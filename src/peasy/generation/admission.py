"""Admission control: validates a request and estimates its tokens and bytes before it is queued."""

from peasy.errors import InvalidInput, NoRoom
from peasy.generation.answer import Answer
from peasy.generation.footprint import Footprint
from peasy.generation.glance import check_watch
from peasy.generation.limit import Limits
from peasy.generation.prompt import begin_one, check_ids, fit, most_tokens, writing_vocabulary
from peasy.generation.request import Request
from peasy.generation.waiting import Entry
from peasy.models.protocol import Model
from peasy.text import Tokenizer


def admit(model: Model, tokenizer: Tokenizer | None, answer: Answer, limits: Limits, footprint: Footprint) -> Entry:
    """Return the request with its resource estimate, or raise an error that says what to change."""
    request = answer.request
    if request.n > limits.choices or request.n > limits.rows:
        raise InvalidInput(f"n is {request.n}.", hint=f"Request at most {min(limits.choices, limits.rows)} choices.")
    if request.sampling.stop and tokenizer is None:
        raise InvalidInput("Stop strings need a tokenizer, and the engine has none.", hint="Give the engine one.")
    if request.watch is not None:
        check_watch(request.watch, model)
    source = request.source or ()
    prompt = _prompt(model, request)
    max_new_tokens = most_tokens(model, request.sampling, len(prompt))
    entry = Entry(
        answer, prompt, max_new_tokens,
        tokens=len(source) + len(prompt) + request.n * max_new_tokens,
        bytes=request.n * footprint.bytes(len(prompt) + max_new_tokens, len(source)),
    )  # fmt: skip
    _check_room(entry, limits)
    return entry


def _prompt(model: Model, request: Request) -> tuple[int, ...]:
    if model.reads_source != bool(request.source):
        raise InvalidInput(
            "This encoder-decoder model needs a source." if model.reads_source else "This model takes no source.",
            hint="Give source=ids." if model.reads_source else "Give the ids as the prompt.",
        )
    prompt = fit(model, begin_one(model, request.prompt), request.sampling)
    check_ids(request.source or (), model.config.vocabulary)
    check_ids(prompt, writing_vocabulary(model))
    return tuple(prompt)


def _check_room(entry: Entry, limits: Limits) -> None:
    if entry.bytes > limits.memory:
        raise NoRoom(
            f"This request may need {entry.bytes:,} bytes of memory; the engine has {limits.memory:,}.",
            hint="Request fewer tokens or choices, or give the engine more memory.",
        )
    if entry.tokens > limits.queue_tokens:
        raise NoRoom(
            f"This request has up to {entry.tokens:,} tokens; the engine takes {limits.queue_tokens:,}.",
            hint="Request fewer tokens or choices.",
        )
