"""Continuous-batching engine with chunked prefill; the output of a request does not depend on the batch.

Every step decodes one token of each running sequence and prefills a chunk of the waiting prompts, all in one forward
pass. Requests join and leave between steps.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from peasy.errors import PeasyError
from peasy.generation.admission import admit
from peasy.generation.attention_topk import AttentionTopK
from peasy.generation.detokenizer import Detokenizer
from peasy.generation.footprint import measure_footprint
from peasy.generation.limits import EngineLimits
from peasy.generation.prefix_cache import PageChain, PrefixCache
from peasy.generation.request import Ended, FinishReason, Request, as_user_error
from peasy.generation.request_queue import QueuedRequest, RequestQueue
from peasy.generation.response_stream import ResponseStream
from peasy.generation.sampling import Sampler
from peasy.generation.sequence import RunningSequence
from peasy.generation.stats import EngineStats
from peasy.models.protocol import Model
from peasy.nn.kv_cache import KVCache
from peasy.tokenization import Tokenizer

Scheduled = tuple[RunningSequence, int]
"""Schedule entry: a sequence, and the position up to which it is computed in this step."""


class Engine:
    """Continuous-batching engine driven by calls of `step`; `EngineThread` calls it in a thread.

    `submit` and a response's `close` may be called from any thread, `step` only from one. An error of one sequence (NaN
    logits, an exception in its forward pass) ends only its own request.

    >>> from peasy.generation.sampling import SamplingParams
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> engine = Engine(build(preset("gpt-tiny"), seed=1))
    >>> response = engine.submit(Request((1, 2, 3), SamplingParams(max_tokens=2)))
    >>> while engine.step(): pass
    >>> [type(event).__name__ for event in response.pop_all()]
    ['Token', 'Token', 'Ended']
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None = None,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.tokenizer, self.limits, self.clock = model.eval(), tokenizer, limits or EngineLimits(), clock
        self.footprint = measure_footprint(model, self.limits.prefill_chunk)
        self.queue, self.prefix_cache = RequestQueue(self.limits), PrefixCache(self.limits.prefix_cache_bytes)
        self.stats = EngineStats()
        self.running: list[RunningSequence] = []
        self.reserved_bytes: dict[ResponseStream, int] = {}
        self.heartbeat = clock()
        self.wake: Callable[[], None] = lambda: None

    def submit(self, request: Request) -> ResponseStream:
        """Validate and queue a request; return its event stream. Invalid requests are rejected here."""
        response = ResponseStream(request, self.clock(), self.limits.max_pending_events, lambda: self.wake())
        try:
            self.queue.put(
                admit(self.model, self.tokenizer, response, self.limits, self.footprint), self.stats.tokens_per_second
            )
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
            self._reap()
            self._admit()
            scheduled = self._schedule()
            if scheduled:
                tokens = sum(end - sequence.num_computed for sequence, end in scheduled)
                self._execute(scheduled)
                self.stats.record_step(tokens, self.clock() - began)
        self.heartbeat = self.clock()
        return bool(scheduled)

    @property
    def idle(self) -> bool:
        """True if no request is running or queued."""
        return not self.running and not len(self.queue)

    def snapshot(self) -> dict[str, Any]:
        """Return statistics and current load as plain data."""
        return self.stats.snapshot() | {
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
            self._notify(queued.response, "cancelled")
        for response in list(self.reserved_bytes):
            self._finish_request(response, "cancelled")

    def fail(self, error: Exception) -> None:
        """End all running requests with this error and clear the prefix cache."""
        for response in list(self.reserved_bytes):
            self._finish_request(response, "error", error)
        self.prefix_cache.clear()

    # Admission and completion.

    def _reap(self) -> None:
        for queued, reason in self.queue.expire(self._stop_reason):
            self._notify(queued.response, reason)
        for response in list(self.reserved_bytes):
            if (stop_reason := self._stop_reason(response)) is not None:
                self._finish_request(response, stop_reason)

    def _stop_reason(self, response: ResponseStream) -> FinishReason | None:
        now = self.clock()
        if response.cancelled:
            return "cancelled"
        if response.deadline is not None and now >= response.deadline:
            return "timeout"
        response.paused_since = (response.paused_since or now) if response.is_full else None
        paused_seconds = now - (response.paused_since or now)
        return "slow_client" if response.is_full and paused_seconds >= self.limits.slow_client_timeout else None

    def _admit(self) -> None:
        while (queued := self.queue.pop(self._fits)) is not None:
            self.reserved_bytes[queued.response] = queued.state_bytes
            try:
                self.running.append(self._start_sequence(queued))
            except Exception as error:
                self._finish_request(queued.response, "error", error)

    def _fits(self, queued: QueuedRequest) -> bool:
        num_sequences = sum(len(response.open_choices) for response in self.reserved_bytes)
        free_bytes = self.limits.kv_cache_bytes - sum(self.reserved_bytes.values())
        return (
            num_sequences + queued.response.request.n <= self.limits.max_num_seqs and queued.state_bytes <= free_bytes
        )

    def _start_sequence(self, queued: QueuedRequest) -> RunningSequence:
        """Create the first sequence of a request; its source is encoded here unless the prefix cache has it."""
        request, ids = queued.response.request, list(queued.prompt)
        source = None if request.source is None else torch.tensor([request.source], device=self.model.device)
        state, pages = self._new_state(source, request.source, len(ids) + queued.max_new_tokens)
        sampler, attention = (
            Sampler(request.sampling, ids),
            None if request.attention_query is None else AttentionTopK(request.attention_query),
        )
        return RunningSequence(
            ids, state, source, sampler, self._make_detokenizer(queued.response), queued.max_new_tokens,
            response=queued.response, pages=pages, attention_topk=attention,
        )  # fmt: skip

    def _new_state(
        self, source: Tensor | None, ids: tuple[int, ...] | None, capacity: int
    ) -> tuple[Any, PageChain | None]:
        """Return a new decode state; one with an encoded source is cached like a page, under the key (-1, *source)."""
        if source is None or ids is None:
            return self.model.new_state(capacity=capacity), ()
        if (page := self.prefix_cache.find((), (-1, *ids))) is None:
            state = self.model.new_state(capacity=capacity, source=source)
            return state, self.prefix_cache.insert(
                (), (-1, *ids), state.fork()
            ) if self.prefix_cache.max_bytes else None
        state = page.content.fork()
        for layer in state.layers if isinstance(state, KVCache) else ():
            layer.capacity = capacity
        return state, (page,)

    def _make_detokenizer(self, response: ResponseStream) -> Detokenizer:
        return Detokenizer(self.tokenizer, response.request.sampling.stop)

    def _finish_request(self, response: ResponseStream, reason: FinishReason, error: Exception | None = None) -> None:
        """End all choices of a request and release its reserved memory."""
        for sequence in [sequence for sequence in self.running if sequence.response is response]:
            self._finish_sequence(sequence, reason, error)
        self._notify(response, reason, error)
        self.reserved_bytes.pop(response, None)

    def _notify(self, response: ResponseStream, reason: FinishReason, error: Exception | None = None) -> None:
        """Emit the final event of choices that were never started."""
        for choice in sorted(response.open_choices):
            response.put(Ended(choice, reason, 0, "", as_user_error(error)))
            self.stats.finished[reason] += 1

    def _finish_sequence(self, sequence: RunningSequence, reason: FinishReason, error: Exception | None = None) -> None:
        self._remove(sequence, sequence.emit_end(reason, as_user_error(error)))

    def _remove(self, sequence: RunningSequence, final_event: Ended) -> None:
        self.running.remove(sequence)
        self.stats.finished[final_event.reason] += 1
        if sequence.response.is_finished:
            self.reserved_bytes.pop(sequence.response, None)

    # One step.

    def _schedule(self) -> list[Scheduled]:
        """Schedule one token of every decoding sequence, and prompts up to the prefill budget, oldest first.

        A page that is computed in this step is not scheduled twice: other sequences find it in the cache next step.
        """
        ready = [sequence for sequence in self.running if not sequence.response.is_full]
        budget, scheduled, pages_in_progress = self.limits.prefill_chunk, [], set()
        for sequence in ready:
            if sequence.num_pending > 1:
                self._reuse_prefix(sequence)
            page = (sequence.pages[-1].page_id if sequence.pages else 0, sequence.next_page_ids())
            if sequence.num_pending == 1:
                scheduled.append((sequence, len(sequence.ids)))
            elif page not in pages_in_progress and (end := sequence.prefill_end(budget)) > sequence.num_computed:
                scheduled.append((sequence, end))
                budget -= end - sequence.num_computed
                pages_in_progress |= {page} if page[1] is not None else set()
        return scheduled

    def _reuse_prefix(self, sequence: RunningSequence) -> None:
        num_reused = sequence.reuse_prefix(self.prefix_cache)
        self.stats.prefix_hits += num_reused > 0 and not sequence.response.num_cached_tokens
        self.stats.prefix_cache_hit_tokens += num_reused
        sequence.response.num_cached_tokens += num_reused

    def _execute(self, scheduled: list[Scheduled]) -> None:
        try:
            all_logits = self._forward_pass(scheduled)
        except Exception:
            self._execute_one_by_one(scheduled)
        else:
            for entry, next_logits in zip(scheduled, all_logits, strict=True):
                self._advance(entry, next_logits)

    def _forward_pass(self, scheduled: list[Scheduled]) -> list[Tensor]:
        inputs = [sequence.ids[sequence.num_computed : end] for sequence, end in scheduled]
        taps = [
            seq.attention_topk.tap if seq.attention_topk and end == len(seq.ids) else None for seq, end in scheduled
        ]
        return self.model.forward_varlen(
            inputs, [sequence.state for sequence, _ in scheduled], tap=taps if any(taps) else None
        )

    def _execute_one_by_one(self, scheduled: list[Scheduled]) -> None:
        """Retry a failed pass one sequence at a time, so that only the faulty one ends."""
        for sequence, end in scheduled:
            try:
                if not sequence.rollback():
                    self._reset_state(sequence)
                (next_logits,) = self._forward_pass([(sequence, end)])
            except Exception as error:
                self._finish_request(sequence.response, "error", error)
            else:
                self._advance((sequence, end), next_logits)

    def _reset_state(self, sequence: RunningSequence) -> None:
        """Recompute from the start: a recurrent state cannot be cropped."""
        sequence.state = self.model.new_state(
            capacity=len(sequence.ids) + sequence.max_new_tokens, source=sequence.source
        )
        sequence.num_computed, sequence.pages = 0, None

    def _advance(self, entry: Scheduled, logits: Tensor) -> None:
        sequence, end = entry
        if sequence.index not in sequence.response.open_choices:  # an error of another choice ended the request
            return
        try:
            prompt_end = len(sequence.ids) - sequence.num_generated
            self.stats.prompt_tokens += max(0, min(end, prompt_end) - sequence.num_computed)
            sequence.advance(end, self.prefix_cache)
            if sequence.num_pending == 0:
                for choice in self._fork_choices(sequence):
                    self._sample(choice, logits)
        except Exception as error:
            self._finish_request(sequence.response, "error", error)

    def _fork_choices(self, sequence: RunningSequence) -> list[RunningSequence]:
        """Return the sequence, or all n forks of it if its prompt has just been prefilled."""
        n = sequence.response.request.n
        if n == 1 or sequence.num_generated or sequence.index:
            return [sequence]
        forks = [sequence.fork(choice, self._make_detokenizer(sequence.response)) for choice in range(1, n)]
        position = self.running.index(sequence) + 1
        self.running[position:position] = forks
        return [sequence, *forks]

    def _sample(self, sequence: RunningSequence, logits: Tensor) -> None:
        before = sequence.num_generated
        final_event = sequence.emit(logits, self.model.config.special_tokens.eos)
        self.stats.generated_tokens += sequence.num_generated - before
        if final_event is not None:
            self._remove(sequence, final_event)
