"""Generation session of one request: tokenizes, submits, and passes engine events to the asyncio event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from starlette.types import Receive

from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput
from peasy.generation.admission import long_text_note
from peasy.generation.engine import Engine
from peasy.generation.request import AttentionQuery, Ended, Event
from peasy.generation.request import Request as EngineRequest
from peasy.generation.request_queue import ResponseStream
from peasy.generation.sampling_params import SamplingParams
from peasy.server.model_registry import ModelRegistry
from peasy.server.openai_schema import MAX_CHOICES, CompletionBody, SamplingBody

T = TypeVar("T")

LONG_PROMPT_CHARS = 4096
"""Characters; longer prompts are tokenized in a thread, so that they do not block the event loop."""

KEEP_ALIVE_SECONDS = 10.0
"""Seconds without an event after which a stream sends a comment, so that no proxy or client gives it up."""

_PromptEncoder = Callable[[LoadedModel], Sequence[list[int]]]
"""Function that returns the token ids of all prompts, given the model."""


class ClientDisconnected(Exception):
    """The client has closed the connection."""


@dataclass(eq=False)
class Session:
    """Running generation of one request. Open with `open_session`, read `events`; `close` frees the engine's memory."""

    loaded: LoadedModel
    engine: Engine
    n: int
    exit_stack: contextlib.ExitStack
    prompts: Sequence[list[int]] = ()
    streams: list[ResponseStream] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def events(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """Yield the new events in order, as (index of the choice, event); no events after `KEEP_ALIVE_SECONDS`."""
        ready, loop = asyncio.Event(), asyncio.get_running_loop()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended before the engine
                loop.call_soon_threadsafe(ready.set)

        for stream in self.streams:
            stream.on_event = notify
        ready.set()
        num_unfinished = self.n * len(self.prompts)
        while num_unfinished:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):  # `wait_for` of Python 3.11 can lose a cancellation
                    await ready.wait()
            if not ready.is_set():
                yield []
                continue
            ready.clear()
            streams = enumerate(self.streams)
            events = [(self.n * index + event.choice, event) for index, stream in streams for event in stream.pop_all()]
            num_unfinished -= sum(isinstance(event, Ended) for _, event in events)
            if events:
                yield events

    def close(self) -> None:
        """Cancel what is still running and release the model."""
        for stream in self.streams:
            stream.close()
        self.exit_stack.close()


async def open_session(
    registry: ModelRegistry, body: SamplingBody, encode_prompts: _PromptEncoder, num_chars: int,
    sampling: SamplingParams,
) -> Session:  # fmt: skip
    """Submit the requests to the engine; invalid ones raise here, before any work is done."""
    if num_chars < LONG_PROMPT_CHARS and registry.is_ready(body.model):
        return _open_session(registry, body, encode_prompts, sampling)
    return await asyncio.to_thread(_open_session, registry, body, encode_prompts, sampling)


def _open_session(
    registry: ModelRegistry, body: SamplingBody, encode_prompts: _PromptEncoder, sampling: SamplingParams
) -> Session:
    attention_query, n, long = None, body.n or 1, body.long or "refuse"
    scores_prompt = isinstance(body, CompletionBody) and bool(body.echo) and body.logprobs is not None
    if (options := body.attention) is not None:
        layers, heads = (None if indices is None else tuple(indices) for indices in (options.layers, options.heads))
        attention_query = AttentionQuery(layers, heads, options.keys)
    stack = contextlib.ExitStack()
    session = Session(*stack.enter_context(registry.engine(body.model)), n, stack)
    try:
        session.prompts = encode_prompts(session.loaded)
        if n * len(session.prompts) > MAX_CHOICES:
            total = n * len(session.prompts)
            raise InvalidInput(f"Prompts times n is {total}.", hint=f"At most {MAX_CHOICES} choices per request.")
        for ids in session.prompts:
            prompt, source = ((), tuple(ids)) if session.loaded.model.is_encoder_decoder else (tuple(ids), None)
            engine_request = EngineRequest(
                prompt, sampling, source, n, attention_query=attention_query, scores_prompt=scores_prompt, long=long,
                generates=not isinstance(body, CompletionBody) or body.max_tokens != 0,
            )  # fmt: skip
            note = long_text_note(session.loaded.model, len(ids), sampling.max_tokens, long)
            session.notes += [] if note is None else [note]
            session.streams.append(session.engine.submit(engine_request))
    except BaseException:
        session.close()
        raise
    return session


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_until_disconnect(request: Request, awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable; cancel it and raise if the client disconnects first."""
    working = asyncio.ensure_future(awaitable)
    disconnecting = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnected
    finally:
        for task in (working, disconnecting):
            task.cancel()
        await asyncio.gather(working, disconnecting, return_exceptions=True)
