"""One text that the engine writes: a text of the one loop, that shares what it reads and tells what it writes."""

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
    """One choice of a request, `number` says which; `chain` are the pages it has read.

    A chain of None is broken: a page of it could not be kept, so nothing after it can be found.
    """

    answer: Answer
    chain: Chain | None = ()
    glance: Glance | None = None

    def fork(self, choice: int, teller: Teller) -> "Row":
        """Another choice from here; what was read is read."""
        sampling = self.answer.request.sampling
        chooser = Chooser(replace(sampling, seed=sampling.seed + choice), self.ids)
        glance = None if self.glance is None else self.glance.fork()
        return replace(
            self, number=choice, ids=list(self.ids), memory=self.memory.fork(), chooser=chooser, teller=teller,
            glance=glance,
        )  # fmt: skip

    @property
    def pending(self) -> int:
        """How many tokens are still to be read before the next can be chosen."""
        return len(self.ids) - self.read

    def next_page(self) -> tuple[int, ...] | None:
        """The ids of the page that would be read next, if it is a whole one and leaves a token to choose from."""
        whole = self.chain is not None and self.read % PAGE == 0 and self.pending > PAGE
        return tuple(self.ids[self.read : self.read + PAGE]) if whole else None

    def reuse(self, prefixes: Prefixes) -> int:
        """Take over pages that others have read; how many tokens that saved."""
        start, found, chain = self.read, [], self.chain
        while (ids := self.next_page()) is not None and (page := prefixes.find(self.chain or (), ids)) is not None:
            found.append(page.content)
            self.chain = (*(self.chain or ()), page)
            self.read += PAGE
        if found:
            self.memory = paste(self.memory, found)
            prefixes.use(self.chain or ())
        assert found or chain == self.chain
        return self.read - start

    def stretch(self, left: int) -> int:
        """How far it reads with `left` tokens to spend: to its end, or to the end of a page."""
        end = min(self.read + left, len(self.ids))
        if not isinstance(self.memory, Cache):  # only a state that ends with a page can be kept
            end = min(end, self.read - self.read % PAGE + PAGE)
        return end if end == len(self.ids) else max(end - end % PAGE, self.read)

    def advance(self, end: int, prefixes: Prefixes) -> None:
        """It has read so far; whole pages are kept for others."""
        start = self.read - self.read % PAGE
        self.read = end
        for page in range(start, end - PAGE + 1, PAGE):
            if self.chain is not None:
                self.chain = self._keep(page, prefixes)

    def _keep(self, start: int, prefixes: Prefixes) -> Chain | None:
        ids, chain = tuple(self.ids[start : start + PAGE]), self.chain or ()
        known = prefixes.find(chain, ids)
        if known is not None:
            return (*chain, known)
        content = cut(self.memory, start, start + PAGE) if prefixes.most else None
        return None if content is None else prefixes.keep(chain, ids, content)

    def say(self, scores: Tensor, end: tuple[int, ...]) -> Ended | None:
        """Choose the next token and tell it; the end too, if this was the last."""
        looked = () if self.glance is None else self.glance.take(self.read)
        for event in self.write(scores, end):
            self.answer.put(replace(event, looked=looked) if isinstance(event, Token) else event)
            if isinstance(event, Ended):
                for_people(event.error)
                return event
        return None

    def restore(self) -> bool:
        """Back to what was read before a pass that failed; False where the memory cannot go back."""
        try:
            self.memory.crop(self.read)
        except InvalidInput:
            return False
        return bool(self.memory.length == self.read)

    def end(self, reason: Reason, error: PeasyError | None = None) -> Ended:
        """Tell that it is over."""
        last = self.finish(reason, error)
        self.answer.put(last)
        return last
