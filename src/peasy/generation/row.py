"""Running sequence of the engine: shares prefix pages and emits events to its response stream."""

from dataclasses import dataclass, replace

from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.answer import Answer
from peasy.generation.decode import Text
from peasy.generation.glance import Glance
from peasy.generation.prefix import PAGE, Chain, Prefixes, cut, paste
from peasy.generation.request import Ended, Reason, Token, for_people
from peasy.generation.sampling import Chooser
from peasy.generation.teller import Teller
from peasy.nn.cache import Cache


@dataclass(eq=False, kw_only=True)
class Row(Text):
    """One choice of a request; `pages` are the prefix-cache pages of its computed tokens.

    None = a page could not be stored, so that no later page can be shared.
    """

    answer: Answer
    chain: Chain | None = ()
    glance: Glance | None = None

    def fork(self, choice: int, teller: Teller) -> "Row":
        """Fork another choice with the same computed tokens."""
        sampling = self.answer.request.sampling
        sampler = Chooser(replace(sampling, seed=sampling.seed + choice), self.ids)
        attention = None if self.glance is None else self.glance.fork()
        return replace(
            self, number=choice, ids=list(self.ids), memory=self.memory.fork(), chooser=sampler, teller=teller,
            glance=attention,
        )  # fmt: skip

    @property
    def pending(self) -> int:
        """Number of tokens to compute before the next can be sampled."""
        return len(self.ids) - self.read

    def next_page(self) -> tuple[int, ...] | None:
        """Return the ids of the next page to compute, if it is whole and at least one token follows it."""
        is_whole = self.chain is not None and self.read % PAGE == 0 and self.pending > PAGE
        return tuple(self.ids[self.read : self.read + PAGE]) if is_whole else None

    def reuse(self, prefixes: Prefixes) -> int:
        """Restore cached pages into the state; return the number of tokens saved."""
        start, contents, pages_before = self.read, [], self.chain
        while (ids := self.next_page()) is not None and (page := prefixes.find(self.chain or (), ids)) is not None:
            contents.append(page.content)
            self.chain = (*(self.chain or ()), page)
            self.read += PAGE
        if contents:
            self.memory = paste(self.memory, contents)
            prefixes.use(self.chain or ())
        assert contents or pages_before == self.chain
        return self.read - start

    def stretch(self, left: int) -> int:
        """Return the prefill end within `budget` tokens: the end of the sequence or of a page."""
        end = min(self.read + left, len(self.ids))
        if not isinstance(self.memory, Cache):  # a recurrent state can only be cached at a page boundary
            end = min(end, self.read - self.read % PAGE + PAGE)
        return end if end == len(self.ids) else max(end - end % PAGE, self.read)

    def advance(self, end: int, prefixes: Prefixes) -> None:
        """Mark tokens up to `end` as computed and store whole pages in the prefix cache."""
        start = self.read - self.read % PAGE
        self.read = end
        for page in range(start, end - PAGE + 1, PAGE):
            if self.chain is not None:
                self.chain = self._keep(page, prefixes)

    def _keep(self, start: int, prefixes: Prefixes) -> Chain | None:
        ids, pages = tuple(self.ids[start : start + PAGE]), self.chain or ()
        cached = prefixes.find(pages, ids)
        if cached is not None:
            return (*pages, cached)
        content = cut(self.memory, start, start + PAGE) if prefixes.most else None
        return None if content is None else prefixes.keep(pages, ids, content)

    def say(self, scores: Tensor, end: tuple[int, ...]) -> Ended | None:
        """Sample the next token and emit its event; return the final event if it was the last."""
        attention = () if self.glance is None else self.glance.take(self.read)
        for event in self.write(scores, end):
            self.answer.put(replace(event, looked=attention) if isinstance(event, Token) else event)
            if isinstance(event, Ended):
                for_people(event.error)
                return event
        return None

    def restore(self) -> bool:
        """Crop the state to the tokens computed before a failed pass; return False if it cannot be cropped."""
        try:
            self.memory.crop(self.read)
        except InvalidInput:
            return False
        return bool(self.memory.length == self.read)

    def end(self, reason: Reason, error: PeasyError | None = None) -> Ended:
        """Finish the sequence and emit its final event."""
        event = self.finish(reason, error)
        self.answer.put(event)
        return event
