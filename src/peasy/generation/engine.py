"""Decoding core: a continuous-batching engine with chunked prefill, driven by calls of `step`.

Every `step` computes in one `model.forward_varlen` the next token of each running sequence and up to `prefill_chunk`
tokens of new prompts, the shortest first, so that a long one delays only itself; every fourth step is its own.
A running sequence is a strategy with two methods: `next_rows` says what it wants computed (one token, a draft, its
beams, or everything again without a cache), and `accept` takes the logits, samples and emits events. Equal prompts are
prefilled once and forked, equal beginnings come from the prefix cache, and no output depends on the rest of the batch.
"""

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError
from peasy.generation.admission import admit
from peasy.generation.beam_search import BeamSearchSequence
from peasy.generation.footprint import StateFootprint, measure_footprint
from peasy.generation.limits import PAGE_SIZE, EngineLimits
from peasy.generation.prefix_cache import PrefixCache
from peasy.generation.request import Ended, FinishReason, Request, as_user_error
from peasy.generation.request_queue import RequestQueue, ResponseStream
from peasy.generation.sequence import Row, RunningSequence, UncachedSequence
from peasy.generation.speculative_decoding import SpeculativeSequence
from peasy.models.config import NGramConfig
from peasy.models.protocol import DecodeState, Model
from peasy.models.transformer import EncoderDecoder
from peasy.nn.kv_cache import KVCache
from peasy.tokenization import Tokenizer

_MAX_PASSED_OVER = 3
"""Consecutive steps in which shorter prompts may come before the oldest one."""

_EMA_DECAY = 0.9
"""Decay of the exponential moving average of the speed, per step."""


@dataclass
class EngineStats:
    """Counters since the engine started; `tokens_per_second` is a moving average."""

    submitted: int = 0
    refused: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    prefix_cache_hit_tokens: int = 0
    generated_tokens: int = 0
    prefix_hits: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    longest_step: float = 0.0
    tokens_per_second: float = 0.0


class Engine:
    """Continuous-batching engine driven by calls of `step`; `EngineThread` calls it in a thread.

    `submit` and a response's `close` may be called from any thread, `step` only from one. An error of one sequence (NaN
    logits, an exception in its forward pass) ends only its own request; with `isolate_errors` False, exceptions of a
    pass reach the caller of `step`. `on_pass` is called after each forward pass with its rows and seconds.

    >>> from peasy.generation.sampling_params import SamplingParams
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> engine = Engine(build(preset("gpt-tiny"), seed=1))
    >>> response = engine.submit(Request((1, 2, 3), SamplingParams(max_tokens=2)))
    >>> while engine.step(): pass
    >>> [type(event).__name__ for event in response.pop_all()]
    ['Token', 'Token', 'Ended']
    """

    max_pending_events = 256
    """Events that may wait for a slow reader before its request pauses."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None = None,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        isolate_errors: bool = True,
    ) -> None:
        self.model, self.tokenizer, self.limits, self.clock = model, tokenizer, limits or EngineLimits(), clock
        self.isolate_errors = isolate_errors
        self.queue, self.prefix_cache = RequestQueue(self.limits), PrefixCache(self.limits.prefix_cache_bytes)
        self.stats = EngineStats()
        self.running: list[RunningSequence] = []
        self.reserved_bytes: dict[ResponseStream, int] = {}
        self.heartbeat = clock()
        self.wake: Callable[[], None] = lambda: None
        self.on_pass: Callable[[list[Row], float], None] | None = None
        self._leaders: dict[Hashable, RunningSequence] = {}
        self._num_passed_over = 0

    @cached_property
    def footprint(self) -> StateFootprint:
        """Memory footprint of a sequence, measured when the first request is admitted within a budget."""
        return measure_footprint(self.model, self.limits.prefill_chunk)

    def submit(self, request: Request) -> ResponseStream:
        """Validate and queue a request; return its event stream. Invalid requests are rejected here."""
        response = ResponseStream(request, self.clock(), self.max_pending_events, lambda: self.wake())
        try:
            admit(self.model, self.tokenizer, response, self.limits, lambda: self.footprint)
            self.queue.put(response, self.stats.tokens_per_second)
        except PeasyError:
            self.stats.refused += 1
            raise
        self.stats.submitted += 1
        self.wake()
        return response

    def step(self) -> bool:
        """Schedule and run one forward pass; return False if there was nothing to do."""
        began = self.heartbeat = self.clock()
        with torch.inference_mode():
            self._reap(began)
            self._admit()
            has_encoded = self.model.is_encoder_decoder and self._encode_sources()
            scheduled = self._schedule()
            if scheduled:
                self._execute(scheduled)
        self.heartbeat = self.clock()
        if scheduled:
            self._record_step(sum([len(row.ids) for rows in scheduled for row in rows]), self.heartbeat - began)
        return bool(scheduled) or has_encoded

    def _record_step(self, tokens: int, seconds: float) -> None:
        stats = self.stats
        stats.steps += 1
        stats.step_seconds += seconds
        stats.longest_step = max(stats.longest_step, seconds)
        speed, before = tokens / max(seconds, 1e-6), stats.tokens_per_second
        stats.tokens_per_second = _EMA_DECAY * before + (1 - _EMA_DECAY) * speed if before else speed

    @property
    def idle(self) -> bool:
        """True if no request is running or queued."""
        return not self.running and not len(self.queue)

    def snapshot(self) -> dict[str, float | dict[str, int]]:
        """Return statistics and current load as plain data."""
        return vars(self.stats) | {
            "finished": dict(self.stats.finished),
            "queued_requests": len(self.queue),
            "queued_tokens": self.queue.tokens,
            "running_sequences": len(self.running),
            "reserved_bytes": sum(self.reserved_bytes.values()),
            "prefix_cache_bytes": self.prefix_cache.nbytes,
            "heartbeat_age": self.clock() - self.heartbeat,
        }

    def cancel(self) -> None:
        """Cancel all running and queued requests."""
        for queued, _ in self.queue.expire(lambda response: "cancelled"):
            self._notify(queued, "cancelled")
        for response in list(self.reserved_bytes):
            self._finish_request(response, "cancelled")

    def fail(self, error: Exception) -> None:
        """End all running requests with this error and clear the prefix cache."""
        for response in list(self.reserved_bytes):
            self._finish_request(response, "error", error)
        self.prefix_cache.clear()

    # Admission and completion.

    def _reap(self, now: float) -> None:
        if len(self.queue):
            for queued, reason in self.queue.expire(lambda response: self._stop_reason(response, now)):
                self._notify(queued, reason)
        for response in list(self.reserved_bytes):
            if (stop_reason := self._stop_reason(response, now)) is not None:
                self._finish_request(response, stop_reason)

    def _stop_reason(self, response: ResponseStream, now: float) -> FinishReason | None:
        if response.cancelled:
            return "cancelled"
        if response.deadline is not None and now >= response.deadline:
            return "timeout"
        if not response.is_full:
            response.paused_since = None
            return None
        response.paused_since = response.paused_since or now
        return "slow_client" if now - response.paused_since >= self.limits.slow_client_timeout else None

    def _admit(self) -> None:
        """Start queued requests while they fit into the batch and the memory."""
        if not len(self.queue):
            return
        while (response := self.queue.pop(self.reserved_bytes, self.clock())) is not None:
            self.reserved_bytes[response] = response.state_bytes
            try:
                self._start(response)
            except Exception as error:
                self._raise_unless_isolated(error)
                self._finish_request(response, "error", error)

    def _raise_unless_isolated(self, error: Exception) -> None:
        if not self.isolate_errors and not isinstance(error, InvalidInput):
            raise error

    def _start(self, response: ResponseStream) -> None:
        """Start the sequences of a request; those with the prompt of a sequence in prefill wait for its state."""
        request = response.request
        strategy = (
            UncachedSequence if not request.use_cache
            else BeamSearchSequence if request.beam_search
            else SpeculativeSequence if request.max_draft_tokens
            else RunningSequence
        )  # fmt: skip
        is_changed = request.observer is not None or request.intervention is not None
        shareable = request.use_cache and not is_changed and not request.scores_prompt
        key = (response.prompt, request.source, request.attention_query, bool(request.max_draft_tokens))
        for choice in range(request.n):
            sequence = strategy(response, choice, self.tokenizer)
            self.running.append(sequence)
            if shareable and (leader := self._leaders.setdefault(key, sequence)) is not sequence:
                sequence.leader = leader
                leader.followers.append(sequence)
                continue
            sequence.share_key = key if shareable else None
            if request.source is not None:
                sequence.source = torch.tensor([request.source], device=self.model.device)
            if request.use_cache:
                self._open_state(sequence)

    def _encode_sources(self) -> bool:
        """Encode sources up to the cost of a prefill chunk, the shortest first; return whether there was any.

        A source is read in both directions, so it cannot be divided as a prompt is: a long one pauses after a block.
        """
        waiting = [sequence for sequence in self.running if sequence.encoding is not None]
        num_blocks = len(getattr(getattr(self.model, "encoder", None), "blocks", ())) + 1
        budget = self.limits.prefill_chunk * num_blocks
        order = sorted(waiting, key=lambda sequence: len(sequence.request.source or ()))
        if self._num_passed_over >= _MAX_PASSED_OVER:
            order = [*waiting[:1], *(sequence for sequence in order if sequence is not waiting[0])]
        for sequence in order:
            try:
                while sequence.encoding is not None and budget > 0:
                    output = next(sequence.encoding, None)
                    if output is None:
                        sequence.encoding = None
                        self._open_state(sequence, sequence.encoded)
                    else:
                        sequence.encoded = output
                        budget -= output.shape[1]
            except Exception as error:
                self._raise_unless_isolated(error)
                self._finish_request(sequence.response, "error", error)
        return bool(waiting)

    def _open_state(self, sequence: RunningSequence, encoded: Tensor | None = None) -> None:
        """Give the sequence a state; one with an encoded source is cached like a page, under the key (-1, *source)."""
        request = sequence.request
        cacheable = self.prefix_cache.max_bytes > 0 and request.intervention is None and not request.scores_prompt
        key, page = (-1, *(request.source or ())), None
        if cacheable and request.source and (page := self.prefix_cache.find((), key)) is not None:
            assert not isinstance(page.content, list)
            sequence.state, sequence.pages = page.content.fork(), (page,)
            for layer in sequence.state.layers if isinstance(sequence.state, KVCache) else ():
                layer.capacity = len(sequence.ids) + sequence.max_new_tokens
        elif sequence.source is not None and isinstance(self.model, EncoderDecoder) and encoded is None:
            sequence.encoding = self.model.encode_steps(sequence.source)
            return
        else:
            sequence.state = self._new_state(sequence, encoded)
            if cacheable:
                source_page = self.prefix_cache.insert((), key, sequence.state.fork()) if request.source else ()
                sequence.pages = source_page
        if request.max_draft_tokens and not isinstance(sequence.state, KVCache):
            message = f"A {type(self.model.config).kind} model cannot drop rejected draft tokens from its state."
            raise InvalidInput(message, hint="Generate without speculation.")

    def _new_state(self, sequence: RunningSequence, encoded: Tensor | None = None) -> DecodeState:
        capacity = len(sequence.ids) + sequence.max_new_tokens
        if encoded is not None and isinstance(self.model, EncoderDecoder):
            return self.model.state_of(encoded, capacity)
        return self.model.new_state(capacity=capacity, source=sequence.source)

    def _finish_request(self, response: ResponseStream, reason: FinishReason, error: Exception | None = None) -> None:
        user_error = as_user_error(error)
        for sequence in [sequence for sequence in self.running if sequence.response is response]:
            sequence.finish(reason, user_error)
            self._remove(sequence)
        self._notify(response, reason, user_error)
        self.reserved_bytes.pop(response, None)

    def _notify(self, response: ResponseStream, reason: FinishReason, error: PeasyError | None = None) -> None:
        for choice in sorted(response.open_choices):
            response.put(Ended(choice, reason, 0, "", error))
            self.stats.finished[reason] += 1

    def _remove(self, sequence: RunningSequence) -> None:
        """Remove a sequence that has ended; another request that waits for the same prompt continues its prefill."""
        self.running.remove(sequence)
        self.stats.finished[str(sequence.finish_reason)] += 1
        if sequence.response.is_finished:
            self.reserved_bytes.pop(sequence.response, None)
        if sequence.leader is not None:
            sequence.leader.followers.remove(sequence)
        if sequence.share_key is None:
            return
        del self._leaders[sequence.share_key]
        waiting = [follower for follower in sequence.followers if follower.response is not sequence.response]
        for heir in waiting[:1]:
            heir.leader, heir.followers, heir.source = None, waiting[1:], sequence.source
            heir.share_key, self._leaders[sequence.share_key] = sequence.share_key, heir
            heir.state, heir.num_computed, heir.pages = sequence.state, sequence.num_computed, sequence.pages
            heir.encoding, heir.encoded = sequence.encoding, sequence.encoded
            if sequence.finish_reason == "error":  # its state may be broken
                heir.state, heir.num_computed, heir.pages = self._new_state(heir), 0, None
                heir.encoding = None
        for follower in waiting[1:]:
            follower.leader = waiting[0]

    # One step.

    def _schedule(self) -> list[list[Row]]:
        """Schedule the next token of every decoding sequence, and prompts up to the prefill budget."""
        ready = [
            sequence
            for sequence in self.running
            if sequence.leader is None and sequence.encoding is None and not sequence.response.is_full
        ]
        prompts = [sequence for sequence in ready if sequence.num_remaining > 1 and self._prefill_remains(sequence)]
        waiting = set(prompts)
        ends = self._divide_budget(prompts, [sequence for sequence in ready if sequence not in waiting])
        waiting -= ends.keys()
        # Drafts need logits at every position, which would be too many beside a prompt.
        return [
            sequence.next_rows(ends.get(sequence, len(sequence.ids)), may_draft=not prompts)
            for sequence in ready
            if sequence not in waiting
        ]

    def _divide_budget(
        self, prompts: list[RunningSequence], decoding: list[RunningSequence]
    ) -> dict[RunningSequence, int]:
        """Return how far each prompt is computed: the shortest remainder first, or the oldest if often passed over.

        The budget is in tokens at the beginning of a text; later ones cost more, unless nothing waits for this step.
        Beside a prompt that this step completes, others get together at most what it costs itself, so that they do
        not delay its first token. Without such a prompt, or if passed over, the first gets at least a page. A page
        that is computed in this step is not scheduled twice: other sequences find it in the cache next step.
        """
        ends, pages_in_progress = dict[RunningSequence, int](), set[object]()
        if not prompts:
            return ends
        budget: float = self.limits.prefill_chunk
        page_size = min(PAGE_SIZE, self.limits.prefill_chunk)
        order = sorted(prompts, key=lambda sequence: sequence.num_remaining)
        costs = dict.fromkeys(prompts, 1.0)
        if decoding or order[0].num_remaining <= budget:
            costs = {sequence: self._token_cost(sequence) for sequence in prompts}
        # What a prompt costs itself: its tokens that were not in the prefix cache.
        own = {s: s.prompt_length - s.response.num_cached_tokens for s in (*prompts, *decoding)}
        allowance = min([budget, *(own[sequence] for sequence in decoding if not sequence.num_generated)])
        is_overdue = self._num_passed_over >= _MAX_PASSED_OVER
        if is_overdue:
            order = [prompts[0], *(sequence for sequence in order if sequence is not prompts[0])]
        none_completes = order[0].num_remaining * costs[order[0]] > budget and allowance == budget
        minimum = page_size if is_overdue or none_completes else 0
        for sequence in order:
            page = (sequence.pages[-1].page_id if sequence.pages else 0, sequence.next_page_ids())
            cost = costs[sequence]
            room = budget if sequence.num_remaining * cost <= budget else min(budget, allowance)
            end = sequence.prefill_end(max(int(room / cost), minimum))
            num_tokens = end - sequence.num_computed
            if page in pages_in_progress or num_tokens <= 0:
                continue
            ends[sequence], budget, minimum = end, budget - num_tokens * cost, 0
            is_complete = end == len(sequence.ids)
            allowance = min(allowance, own[sequence]) if is_complete else allowance - num_tokens * cost
            if page[1] is not None:
                pages_in_progress.add(page)
        num_tokens = ends.get(prompts[0], prompts[0].num_computed) - prompts[0].num_computed
        is_served = num_tokens >= min(page_size, prompts[0].num_remaining)
        self._num_passed_over = 0 if is_served else self._num_passed_over + 1
        return ends

    def _token_cost(self, sequence: RunningSequence) -> float:
        """Return the cost of the next token of a prompt, relative to its first: attention grows with the keys.

        A layer has about 12 d_model² weights with two operations each, and a key takes 4 d_model operations.
        """
        config = self.model.config
        if not isinstance(sequence.state, KVCache) or isinstance(config, NGramConfig):
            return 1.0
        return 1 + sequence.num_computed / (6 * config.d_model)

    def _prefill_remains(self, sequence: RunningSequence) -> bool:
        """Restore what the prefix cache has of a prompt; return False if only the last token is left."""
        if sequence.pages is not None and (num_reused := sequence.reuse_prefix(self.prefix_cache)):
            self._count_reused(sequence, num_reused)
        return sequence.num_remaining > 1

    def _count_reused(self, sequence: RunningSequence, num_tokens: int) -> None:
        self.stats.prefix_hits += not sequence.response.num_cached_tokens
        self.stats.prefix_cache_hit_tokens += num_tokens
        sequence.response.num_cached_tokens += num_tokens

    def _execute(self, scheduled: list[list[Row]]) -> None:
        """Run all rows in one forward pass; retry a failed pass one sequence at a time: only the faulty one ends."""
        try:
            self._forward_pass([row for rows in scheduled for row in rows])
        except Exception:
            if not self.isolate_errors:
                raise
        else:
            for rows in scheduled:
                self._advance(rows)
            return
        for rows in scheduled:
            sequence = rows[0].sequence
            try:
                again = sequence.retry_rows(rows, partial(self._new_state, sequence))
                self._forward_pass(again)
            except Exception as error:
                self._finish_request(sequence.response, "error", error)
            else:
                self._advance(again)

    def _forward_pass(self, rows: list[Row]) -> None:
        began = time.perf_counter()
        if all(row.sequence.is_plain and not row.num_draft for row in rows):
            all_logits = self.model.forward_varlen([row.ids for row in rows], [row.state for row in rows])
            for row, logits in zip(rows, all_logits, strict=True):
                row.logits = logits
        else:
            self._forward_with_options(rows)
        if self.on_pass is not None:
            self.on_pass(rows, time.perf_counter() - began)

    def _forward_with_options(self, rows: list[Row]) -> None:
        """Compute rows, some of which have drafts, scored prompts, reported attention, interventions, or no cache."""
        cached = [row for row in rows if row.state is not None]
        scoring = [row.sequence.request.scores_prompt and row.num_cached < row.sequence.prompt_length for row in cached]
        all_positions = any(scoring) or any(row.num_draft for row in cached)
        if cached:
            taps = [None if row.attention is None else row.attention.tap for row in cached]
            interventions = [row.sequence.request.intervention for row in cached]
            all_logits = self.model.forward_varlen(
                [row.ids for row in cached], [row.state for row in cached], all_positions=all_positions,
                tap=taps if any(taps) else None, intervention=interventions if any(interventions) else None,
            )  # fmt: skip
            for row, logits, scores in zip(cached, all_logits, scoring, strict=True):
                if scores:
                    row.sequence.score_prompt(row.num_cached, logits)
                last = logits if not all_positions else logits[-1]
                row.logits = logits[-1 - row.num_draft :] if row.num_draft else last
        for row in rows:
            if row.state is None:  # without a cache, the whole sequence is computed again
                ids, tap = torch.tensor([row.ids], device=self.model.device), row.attention and row.attention.tap
                source = {} if row.sequence.source is None else {"source": row.sequence.source}
                intervention = row.sequence.request.intervention
                row.logits = self.model(ids, last_only=True, tap=tap, intervention=intervention, **source)[0, -1]
            if row.attention is not None:
                row.top_attention = row.attention.pop(row.num_cached + len(row.ids))

    def _advance(self, rows: list[Row]) -> None:
        """Mark the tokens of a pass as computed; sample where the input is complete, also for those that waited."""
        sequence, start = rows[0].sequence, rows[0].num_cached
        if sequence.finish_reason is not None:  # an error of another choice ended the request
            return
        if start < sequence.prompt_length:
            self.stats.prompt_tokens += min(start + len(rows[0].ids), sequence.prompt_length) - start
        sequence.advance(rows, self.prefix_cache)
        if sequence.num_computed < len(sequence.ids):
            return
        followers = self._release_followers(sequence) if sequence.share_key is not None else ()
        for each in (sequence, *followers):
            num_generated = each.num_generated
            try:
                each.accept(rows, self.model.config.special_tokens.eos)
            except Exception as error:
                self._raise_unless_isolated(error)
                self._finish_request(each.response, "error", error)
            else:
                self.stats.generated_tokens += each.num_generated - num_generated
                if each.finish_reason is not None:
                    self._remove(each)

    def _release_followers(self, leader: RunningSequence) -> list[RunningSequence]:
        """Let the sequences that waited for this prompt continue with forks of its state."""
        del self._leaders[leader.share_key]
        followers, leader.followers, leader.share_key = leader.followers, [], None
        for follower in followers:
            assert leader.state is not None
            follower.leader, follower.state, follower.source = None, leader.state.fork(), leader.source
            follower.num_computed, follower.pages = leader.num_computed, leader.pages
            if follower.response is not leader.response and follower.choice == 0:
                self._count_reused(follower, leader.num_computed)
        return followers
