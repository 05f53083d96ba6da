"""What the engine asks of a request before it lets it wait: all that can be known to fail is refused here."""

from peasy.errors import InvalidInput, NoRoom
from peasy.generation.answer import Answer
from peasy.generation.footprint import Footprint
from peasy.generation.glance import check_watch
from peasy.generation.limit import Limits
from peasy.generation.prompt import begin, most_tokens
from peasy.generation.request import Request
from peasy.generation.waiting import Entry
from peasy.models.protocol import Model
from peasy.text import Tokenizer


def admit(
    model: Model, tokenizer: Tokenizer | None, answer: Answer, limits: Limits, footprint: Footprint
) -> Entry:
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
    prompts = [request.prompt] if request.prompt else None
    if model.reads_source != (request.source is not None):
        raise InvalidInput(
            "This model answers a source, and there is none." if model.reads_source else "This model has no source.",
            hint="Give source=ids." if model.reads_source else "Give the ids as the prompt.",
        )
    prompt = tuple(begin(model, prompts, None if request.source is None else [request.source])[0])
    _check_ids(request.source or (), model.config.vocabulary)
    _check_ids(prompt, getattr(model.config, "target_vocabulary", None) or model.config.vocabulary)
    return prompt


def _check_ids(ids: tuple[int, ...], vocabulary: int) -> None:
    for id in ids:
        if not 0 <= id < vocabulary:
            raise InvalidInput(
                f"There is no token {id}: this model knows 0 to {vocabulary - 1}.",
                hint="Was the text cut into tokens by this model's own tokenizer?",
            )


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
