"""Running sequence of the engine: shares prefix pages and emits events to its response stream."""

from dataclasses import dataclass, replace

from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.attention_topk import AttentionTopK
from peasy.generation.decode import DecodingSequence
from peasy.generation.detokenizer import Detokenizer
from peasy.generation.prefix_cache import PAGE_SIZE, PageChain, PrefixCache, extract, restore
from peasy.generation.request import Ended, FinishReason, Token, as_user_error
from peasy.generation.response_stream import ResponseStream
from peasy.generation.sampling import Sampler
from peasy.nn.kv_cache import KVCache


@dataclass(eq=False, kw_only=True)
class RunningSequence(DecodingSequence):
    """One choice of a request; `pages` are the prefix-cache pages of its computed tokens.

    None = a page could not be stored, so that no later page can be shared.
    """

    response: ResponseStream
    pages: PageChain | None = ()
    attention_topk: AttentionTopK | None = None

    def fork(self, choice: int, detokenizer: Detokenizer) -> "RunningSequence":
        """Fork another choice with the same computed tokens."""
        sampling = self.response.request.sampling
        sampler = Sampler(replace(sampling, seed=sampling.seed + choice), self.ids)
        attention = None if self.attention_topk is None else self.attention_topk.fork()
        return replace(
            self, index=choice, ids=list(self.ids), state=self.state.fork(), sampler=sampler, detokenizer=detokenizer,
            attention_topk=attention,
        )  # fmt: skip

    @property
    def num_pending(self) -> int:
        """Number of tokens to compute before the next can be sampled."""
        return len(self.ids) - self.num_computed

    def next_page_ids(self) -> tuple[int, ...] | None:
        """Return the ids of the next page to compute, if it is whole and at least one token follows it."""
        is_whole = self.pages is not None and self.num_computed % PAGE_SIZE == 0 and self.num_pending > PAGE_SIZE
        return tuple(self.ids[self.num_computed : self.num_computed + PAGE_SIZE]) if is_whole else None

    def reuse_prefix(self, prefix_cache: PrefixCache) -> int:
        """Restore cached pages into the state; return the number of tokens saved."""
        start, contents, pages_before = self.num_computed, [], self.pages
        while (ids := self.next_page_ids()) is not None and (
            page := prefix_cache.find(self.pages or (), ids)
        ) is not None:
            contents.append(page.content)
            self.pages = (*(self.pages or ()), page)
            self.num_computed += PAGE_SIZE
        if contents:
            self.state = restore(self.state, contents)
            prefix_cache.touch(self.pages or ())
        assert contents or pages_before == self.pages
        return self.num_computed - start

    def prefill_end(self, budget: int) -> int:
        """Return the prefill end within `budget` tokens: the end of the sequence or of a page."""
        end = min(self.num_computed + budget, len(self.ids))
        if not isinstance(self.state, KVCache):  # a recurrent state can only be cached at a page boundary
            end = min(end, self.num_computed - self.num_computed % PAGE_SIZE + PAGE_SIZE)
        return end if end == len(self.ids) else max(end - end % PAGE_SIZE, self.num_computed)

    def advance(self, end: int, prefix_cache: PrefixCache) -> None:
        """Mark tokens up to `end` as computed and store whole pages in the prefix cache."""
        start = self.num_computed - self.num_computed % PAGE_SIZE
        self.num_computed = end
        for page in range(start, end - PAGE_SIZE + 1, PAGE_SIZE):
            if self.pages is not None:
                self.pages = self._store_page(page, prefix_cache)

    def _store_page(self, start: int, prefix_cache: PrefixCache) -> PageChain | None:
        ids, pages = tuple(self.ids[start : start + PAGE_SIZE]), self.pages or ()
        cached = prefix_cache.find(pages, ids)
        if cached is not None:
            return (*pages, cached)
        content = extract(self.state, start, start + PAGE_SIZE) if prefix_cache.max_bytes else None
        return None if content is None else prefix_cache.insert(pages, ids, content)

    def emit(self, logits: Tensor, eos: tuple[int, ...]) -> Ended | None:
        """Sample the next token and emit its event; return the final event if it was the last."""
        attention = () if self.attention_topk is None else self.attention_topk.pop(self.num_computed)
        for event in self.sample_next(logits, eos):
            self.response.put(replace(event, attention=attention) if isinstance(event, Token) else event)
            if isinstance(event, Ended):
                as_user_error(event.error)
                return event
        return None

    def rollback(self) -> bool:
        """Crop the state to the tokens computed before a failed pass; return False if it cannot be cropped."""
        try:
            self.state.crop(self.num_computed)
        except InvalidInput:
            return False
        return bool(self.state.length == self.num_computed)

    def emit_end(self, reason: FinishReason, error: PeasyError | None = None) -> Ended:
        """Finish the sequence and emit its final event."""
        event = self.finish(reason, error)
        self.response.put(event)
        return event
