"""Texts while they are written for one request: from the engine's thread to the loop that answers it."""

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
"""Characters; longer prompts are cut into tokens beside the loop, so that nobody waits for them."""

Prompts = Callable[[LoadedModel], Sequence[list[int]]]
"""Gives the ids of all prompts, by the model's own tokenizer."""


class Gone(Exception):
    """Whoever asked has left."""


@dataclass(eq=False)
class Session:
    """Open with `open_session`, read `events`, and close: that frees what the engine holds for it."""

    loaded: LoadedModel
    runner: "Runner"
    n: int
    stack: contextlib.ExitStack
    prompts: Sequence[list[int]] = ()
    answers: "list[Answer]" = field(default_factory=list)

    async def events(self) -> "AsyncIterator[list[tuple[int, engine.Event]]]":
        """What has happened since the last look, in order: (number of the choice, event)."""
        from peasy.generation.request import Ended

        ready, loop = asyncio.Event(), asyncio.get_running_loop()

        def poke() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the engine
                loop.call_soon_threadsafe(ready.set)

        for answer in self.answers:
            answer.notify = poke
        ready.set()
        missing = self.n * len(self.prompts)
        while missing:
            await ready.wait()
            ready.clear()
            taken = [(self.n * at + e.choice, e) for at, answer in enumerate(self.answers) for e in answer.take()]
            missing -= sum(isinstance(event, Ended) for _, event in taken)
            if taken:
                yield taken

    @property
    def reused(self) -> int:
        """How many tokens of the prompts had been read before."""
        return sum(answer.reused for answer in self.answers)

    def close(self) -> None:
        """Nobody reads on."""
        for answer in self.answers:
            answer.close()
        self.stack.close()


async def open_session(house: House, asked: Writing, prompts: Prompts, size: int, how: dict[str, Any]) -> Session:
    """Ask the engine. What cannot be answered is refused here, before any work is done."""
    if size < LONG and house.ready(asked.model):
        return _open(house, asked, prompts, how)
    return await asyncio.to_thread(_open, house, asked, prompts, how)


def _open(house: House, asked: Writing, prompts: Prompts, how: dict[str, Any]) -> Session:
    from peasy.generation.glance import Watch
    from peasy.generation.request import Request as Ask
    from peasy.generation.sampling import Sampling

    sampling, watch, n = Sampling(**how), None, asked.n or 1
    if (told := asked.attention) is not None:
        layers, heads = (None if each is None else tuple(each) for each in (told.layers, told.heads))
        watch = Watch(layers, heads, told.keys)
    stack = contextlib.ExitStack()
    session = Session(*stack.enter_context(house.engine(asked.model)), n, stack)
    try:
        session.prompts = prompts(session.loaded)
        if n * len(session.prompts) > CHOICES:
            raise InvalidInput(f"This asks for {n * len(session.prompts)} texts.", hint=f"At most {CHOICES} at once.")
        for ids in session.prompts:
            given: dict[str, Any] = {"source": ids} if session.loaded.model.reads_source else {"prompt": ids}
            session.answers.append(session.runner.submit(Ask(**given, sampling=sampling, n=n, watch=watch)))
    except BaseException:
        session.close()
        raise
    return session


async def gone(receive: Receive) -> None:
    """Waits until whoever asked has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Any) -> Any:
    """The result of the work, which is given up when whoever asked leaves."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise Gone
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)
