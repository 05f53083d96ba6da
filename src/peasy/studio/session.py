"""Generation session of one request: passes events from the engine thread to the asyncio event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.types import Receive

from peasy.errors import InvalidInput
from peasy.studio.dialect import CHOICES, Writing
from peasy.studio.house import House
from peasy.workbench.load import LoadedModel

if TYPE_CHECKING:
    from peasy.generation import request as engine
    from peasy.generation.answer import Answer
    from peasy.generation.runner import Runner

LONG = 20_000
"""Characters; longer prompts are tokenized in a thread, so that they do not block the event loop."""

Prompts = Callable[[LoadedModel], Sequence[list[int]]]
"""Function that returns the token ids of all prompts, given the model."""


class Gone(Exception):
    """The client has closed the connection."""


@dataclass(eq=False)
class Session:
    """Running generation of one request. Open with `open_session`, read `events`; `close` frees the engine's memory."""

    loaded: LoadedModel
    runner: "Runner"
    n: int
    stack: contextlib.ExitStack
    prompts: Sequence[list[int]] = ()
    answers: "list[Answer]" = field(default_factory=list)

    async def events(self) -> "AsyncIterator[list[tuple[int, engine.Event]]]":
        """Yield the new events in order, as (index of the choice, event)."""
        from peasy.generation.request import Ended

        ready, loop = asyncio.Event(), asyncio.get_running_loop()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended before the engine
                loop.call_soon_threadsafe(ready.set)

        for stream in self.answers:
            stream.notify = notify
        ready.set()
        num_unfinished = self.n * len(self.prompts)
        while num_unfinished:
            await ready.wait()
            ready.clear()
            events = [
                (self.n * index + event.choice, event)
                for index, stream in enumerate(self.answers)
                for event in stream.take()
            ]
            num_unfinished -= sum(isinstance(event, Ended) for _, event in events)
            if events:
                yield events

    @property
    def reused(self) -> int:
        """Number of prompt tokens taken from the prefix cache."""
        return sum(stream.reused for stream in self.answers)

    def close(self) -> None:
        """Cancel what is still running and release the model."""
        for stream in self.answers:
            stream.close()
        self.stack.close()


async def open_session(house: House, asked: Writing, prompts: Prompts, size: int, how: dict[str, Any]) -> Session:
    """Submit the requests to the engine; invalid ones raise here, before any work is done."""
    if size < LONG and house.ready(asked.model):
        return _open(house, asked, prompts, how)
    return await asyncio.to_thread(_open, house, asked, prompts, how)


def _open(house: House, asked: Writing, prompts: Prompts, how: dict[str, Any]) -> Session:
    from peasy.generation.glance import Watch
    from peasy.generation.request import Request as EngineRequest
    from peasy.generation.sampling import Sampling

    sampling, watch, n = Sampling(**how), None, asked.n or 1
    if (options := asked.attention) is not None:
        layers, heads = (None if indices is None else tuple(indices) for indices in (options.layers, options.heads))
        watch = Watch(layers, heads, options.keys)
    stack = contextlib.ExitStack()
    session = Session(*stack.enter_context(house.engine(asked.model)), n, stack)
    try:
        session.prompts = prompts(session.loaded)
        if n * len(session.prompts) > CHOICES:
            total = n * len(session.prompts)
            raise InvalidInput(f"Prompts times n is {total}.", hint=f"At most {CHOICES} choices per request.")
        for ids in session.prompts:
            tokens: dict[str, Any] = {"source": ids} if session.loaded.model.reads_source else {"prompt": ids}
            session.answers.append(session.runner.submit(EngineRequest(**tokens, sampling=sampling, n=n, watch=watch)))
    except BaseException:
        session.close()
        raise
    return session


async def gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Any) -> Any:
    """Return the result of an awaitable; cancel it and raise if the client disconnects first."""
    working, disconnecting = asyncio.ensure_future(work), asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Gone
    finally:
        for task in (working, disconnecting):
            task.cancel()
        await asyncio.gather(working, disconnecting, return_exceptions=True)
