"""Running sequence of the engine: what it computes in the next pass (`next_rows`) and what follows (`accept`).

The base class samples one token per pass from its KV cache; other strategies (without cache, speculative, beam search)
are subclasses with another `next_rows` and `accept`.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.limits import PAGE_SIZE
from peasy.generation.prefix_cache import PageChain, PrefixCache, extract, restore
from peasy.generation.request import DecodingStep, Ended, FinishReason, Token, as_user_error
from peasy.generation.request_queue import ResponseStream
from peasy.generation.sampling import NoValidToken, Sampler, score_token
from peasy.models.protocol import DecodeState
from peasy.nn.kv_cache import KVCache
from peasy.nn.module_path import LayerTopK
from peasy.nn.tap import AttentionTopK
from peasy.tokenization import IncrementalDecoder, Tokenizer


@dataclass(slots=True, eq=False)
class Row:
    """One row of a forward pass: `ids` to compute after the `num_cached` tokens of `state` (None = no cache).

    The last `num_draft` of the ids are a draft. The pass sets `logits`, after the last
    token and after each of a draft, and the `top_attention` that the request asks for.
    """

    sequence: "RunningSequence"
    ids: Sequence[int]
    state: DecodeState | None
    num_cached: int
    attention: AttentionTopK | None = None
    num_draft: int = 0
    logits: Tensor | None = None
    top_attention: tuple[LayerTopK, ...] = ()

    def observe(self, ids: Sequence[int]) -> None:
        """Report the step after `ids` to the observer of the request, if it has one."""
        if (observer := self.sequence.request.observer) is not None:
            assert self.logits is not None
            observer(DecodingStep(tuple(ids), self.logits, self.top_attention, len(self.ids), self.num_cached))


class RunningSequence:
    """One choice of a request, sampled token by token: the first `num_computed` of its `ids` are in `state`.

    With a `leader` it waits until that sequence has prefilled the prompt that both share; `share_key` is set while it
    is the leader of a prompt itself; `encoding` while its source is being encoded, block by block. `pages` are the
    prefix-cache pages of its computed tokens; None = a page could not be stored, so that no later page can be shared.
    """

    def __init__(self, response: ResponseStream, choice: int, tokenizer: Tokenizer | None) -> None:
        request, self.max_new_tokens = response.request, response.max_new_tokens
        self.response, self.request, self.choice = response, request, choice
        self.ids, self.prompt_length = list(response.prompt), len(response.prompt)
        sampling = replace(request.sampling, seed=request.sampling.seed + choice) if choice else request.sampling
        self.sampler, self.detokenizer = Sampler(sampling, self.ids), _Detokenizer(tokenizer, self.ids, sampling.stop)
        self.attention = self._new_attention_topk()
        has_intervention = request.intervention is not None
        has_options = request.observer is not None or request.scores_prompt or has_intervention
        self.is_plain = self.attention is None and request.use_cache and not has_options
        self.source: Tensor | None = None
        self.state: DecodeState | None = None
        self.encoding: Iterator[Tensor] | None = None
        self.encoded: Tensor | None = None
        self.pages: PageChain | None = None
        self.num_computed = self.num_generated = 0
        self.finish_reason: FinishReason | None = None
        self.share_key: Hashable = None
        self.leader: RunningSequence | None = None
        self.followers: list[RunningSequence] = []

    def _new_attention_topk(self) -> AttentionTopK | None:
        """Return a collector for what the request asks about attention, if it does."""
        query = self.request.attention_query
        return None if query is None else AttentionTopK(query.top_k, query.layers, query.heads)

    # The two methods that make a strategy.

    def next_rows(self, end: int, may_draft: bool) -> list[Row]:
        """Return the rows of the next pass, which computes tokens up to `end`."""
        attention = self.attention if end == len(self.ids) else None
        return [Row(self, self.ids[self.num_computed : end], self.state, self.num_computed, attention)]

    def accept(self, rows: list[Row], eos: tuple[int, ...]) -> None:
        """Continue with the logits of a pass that computed all tokens; emit events."""
        (row,) = rows
        if not self.is_plain:
            row.observe(self.ids)
        assert row.logits is not None
        self._sample_next(row.logits, eos, row.top_attention)

    def _sample_next(self, logits: Tensor, eos: tuple[int, ...], attention: tuple[LayerTopK, ...] = ()) -> None:
        """Sample the next token and emit its event, and the final event if it was the last."""
        if not self.max_new_tokens:
            self.finish("length")
            return
        try:
            chosen = self.sampler.sample(logits)
        except InvalidInput as error:
            self.finish("error", as_user_error(error))
            return
        id, index = chosen.id, self.num_generated
        self.ids.append(id)
        self.num_generated = index + 1
        text, stopped = self.detokenizer.push(id)
        self.response.put(Token(self.choice, index, chosen, text, attention))
        if id in eos:
            self.finish("eos")
        elif stopped:
            self.finish("stop")
        elif index + 1 == self.max_new_tokens:
            self.finish("length")

    def score_prompt(self, start: int, logits: Tensor) -> None:
        """Report the log-probabilities of the prompt tokens that follow the tokens from `start` on."""
        for position, id in enumerate(self.ids[start + 1 : min(start + 1 + len(logits), self.prompt_length)]):
            logprobs = torch.log_softmax(logits[position].double().cpu(), dim=-1)
            if bool(logprobs.isnan().any()):
                raise NoValidToken("The model's logits are not finite: the prompt has no probability.")
            scored = score_token(id, logprobs, self.sampler.params.logprobs or 0)
            self.response.prompt_logprobs[start + 1 + position] = scored

    def finish(self, reason: FinishReason, error: PeasyError | None = None) -> None:
        """Mark the sequence finished and emit its final event."""
        rest = "" if reason == "stop" else self.detokenizer.finish()
        self._end(Ended(self.choice, reason, self.num_generated, rest, error))

    def _end(self, event: Ended) -> None:
        """Emit the final event."""
        self.finish_reason = event.reason
        self.response.put(event)

    # Prefill, shared with sequences of the same prompt and through the prefix cache.

    @property
    def num_remaining(self) -> int:
        """Number of tokens that are still to be computed before the next one can be sampled."""
        return len(self.ids) - self.num_computed

    def next_page_ids(self) -> tuple[int, ...] | None:
        """Return the ids of the next page to compute, if it is whole and at least one token follows it."""
        start, end = self.num_computed, self.num_computed + PAGE_SIZE
        is_whole = self.pages is not None and start % PAGE_SIZE == 0 and len(self.ids) > end
        return tuple(self.ids[start:end]) if is_whole else None

    def reuse_prefix(self, prefix_cache: PrefixCache) -> int:
        """Restore cached pages into the state; return the number of tokens saved."""
        start, contents, pages = self.num_computed, [], self.pages or ()
        while (ids := self.next_page_ids()) is not None and (page := prefix_cache.find(pages, ids)) is not None:
            contents.append(page.content)
            self.pages = pages = (*pages, page)
            self.num_computed += PAGE_SIZE
        if contents:
            assert self.state is not None
            self.state = restore(self.state, contents)
            prefix_cache.touch(pages)
        return self.num_computed - start

    def prefill_end(self, budget: int) -> int:
        """Return the prefill end within `budget` tokens: the end of the sequence or, with a prefix cache, of a page."""
        end = min(self.num_computed + budget, len(self.ids))
        if self.pages is None:
            return end
        if not isinstance(self.state, KVCache):  # a recurrent state can only be cached at a page boundary
            end = min(end, self.num_computed - self.num_computed % PAGE_SIZE + PAGE_SIZE)
        return end if end == len(self.ids) else max(end - end % PAGE_SIZE, self.num_computed)

    def advance(self, rows: list[Row], prefix_cache: PrefixCache) -> None:
        """Mark the tokens of these rows as computed and store whole pages in the prefix cache."""
        start = self.num_computed - self.num_computed % PAGE_SIZE
        self.num_computed = min(rows[0].num_cached + len(rows[0].ids), len(self.ids))
        if self.pages is not None:
            for page in range(start, self.num_computed - PAGE_SIZE + 1, PAGE_SIZE):
                self.pages = None if self.pages is None else self._store_page(self.pages, page, prefix_cache)

    def _store_page(self, pages: PageChain, start: int, prefix_cache: PrefixCache) -> PageChain | None:
        assert self.state is not None
        ids = tuple(self.ids[start : start + PAGE_SIZE])
        if (cached := prefix_cache.find(pages, ids)) is not None:
            return (*pages, cached)
        content = extract(self.state, start, start + PAGE_SIZE)
        return None if content is None else prefix_cache.insert(pages, ids, content)

    # Recovery from a failed pass.

    def retry_rows(self, rows: list[Row], new_state: Callable[[], DecodeState]) -> list[Row]:
        """Return the rows of a failed pass again, with states cropped to before it, or else computed from the start."""
        try:
            for row in rows:
                if row.state is not None:
                    row.state.crop(row.num_cached)
            if all(row.state is None or row.state.length == row.num_cached for row in rows):
                return rows
        except InvalidInput:  # a recurrent state cannot be cropped
            pass
        return self._restart_rows(rows, new_state)

    def _restart_rows(self, rows: list[Row], new_state: Callable[[], DecodeState]) -> list[Row]:
        row, self.state, self.num_computed, self.pages = rows[0], new_state(), 0, None
        return [replace(row, ids=[*self.ids[: row.num_cached], *row.ids], state=self.state, num_cached=0)]


class UncachedSequence(RunningSequence):
    """Strategy without a KV cache: every pass computes the whole sequence."""

    def __init__(self, response: ResponseStream, choice: int, tokenizer: Tokenizer | None) -> None:
        super().__init__(response, choice, tokenizer)
        self.num_computed = len(self.ids) - 1  # there is nothing to fill before the pass that computes everything

    def next_rows(self, end: int, may_draft: bool) -> list[Row]:
        """Return the whole sequence as one row."""
        return [Row(self, list(self.ids), None, 0, self.attention)]


class _Detokenizer:
    """Incremental detokenizer with stop strings: returns completed text, holds back what may start a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, prompt: Sequence[int] = (), stop: tuple[str, ...] = ()) -> None:
        self._decoder = None if tokenizer is None else IncrementalDecoder(tokenizer, prompt)
        self._stop_strings, self._pending = stop, ""

    def push(self, id: int) -> tuple[str, bool]:
        """Return the text completed by this id, and True if a stop string was found (it is left out)."""
        if self._decoder is None:
            return "", False
        text = self._decoder.push(id)
        return self._release(text) if self._stop_strings else (text, False)

    def finish(self) -> str:
        if self._decoder is None:
            return ""
        text, stopped = self._release(self._decoder.finish())
        return text if stopped else text + self._pending

    def _release(self, text: str) -> tuple[str, bool]:
        self._pending += text
        starts = [start for start in (self._pending.find(stop) for stop in self._stop_strings) if start >= 0]
        if starts:
            released, self._pending = self._pending[: min(starts)], ""
            return released, True
        keep = max((_stop_prefix_length(self._pending, stop) for stop in self._stop_strings), default=0)
        released, self._pending = self._pending[: len(self._pending) - keep], self._pending[len(self._pending) - keep :]
        return released, False


def _stop_prefix_length(text: str, stop: str) -> int:
    """Return the number of trailing characters that may start the stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
