"""What the engine asks of a request before it lets it wait: all that can be known to fail is refused here."""

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
    """The request with all that it will take, or an error that says what to change."""
    request = answer.request
    if request.n > limits.choices or request.n > limits.rows:
        raise InvalidInput(f"n is {request.n}.", hint=f"Ask for at most {min(limits.choices, limits.rows)} choices.")
    if request.sampling.stop and tokenizer is None:
        raise InvalidInput("There are stop texts, but no tokenizer to find them by.", hint="Give the engine one.")
    if request.watch is not None:
        check_watch(request.watch, model)
    source = request.source or ()
    prompt = _prompt(model, request)
    most = most_tokens(model, request.sampling, len(prompt))
    entry = Entry(
        answer, prompt, most,
        tokens=len(source) + len(prompt) + request.n * most,
        bytes=request.n * footprint.bytes(len(prompt) + most, len(source)),
    )  # fmt: skip
    _check_room(entry, limits)
    return entry


def _prompt(model: Model, request: Request) -> tuple[int, ...]:
    if model.reads_source != bool(request.source):
        raise InvalidInput(
            "This model answers a source, and there is none." if model.reads_source else "This model has no source.",
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
            hint="Ask for fewer tokens or choices, or give the engine more memory.",
        )
    if entry.tokens > limits.queue_tokens:
        raise NoRoom(
            f"This request has up to {entry.tokens:,} tokens; the engine takes {limits.queue_tokens:,}.",
            hint="Ask for fewer tokens or choices.",
        )
