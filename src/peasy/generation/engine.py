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
from peasy.generation.answer import Answer
from peasy.generation.counter import Counters
from peasy.generation.footprint import measure
from peasy.generation.glance import Glance
from peasy.generation.limit import Limits
from peasy.generation.prefix import Chain, Prefixes
from peasy.generation.request import Ended, Reason, Request, for_people
from peasy.generation.row import Row
from peasy.generation.sampling import Chooser
from peasy.generation.teller import Teller
from peasy.generation.waiting import Entry, Waiting
from peasy.models.protocol import Model
from peasy.nn.cache import Cache
from peasy.text import Tokenizer

Turn = tuple[Row, int]
"""Schedule entry: a sequence, and the position up to which it is computed in this step."""


class Engine:
    """Continuous-batching engine driven by calls of `step`; `EngineThread` calls it in a thread.

    `submit` and a response's `close` may be called from any thread, `step` only from one. An error of one sequence (NaN
    logits, an exception in its forward pass) ends only its own request.

    >>> from peasy.generation.sampling import Sampling
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> engine = Engine(build(preset("gpt-tiny"), seed=1))
    >>> response = engine.submit(Request((1, 2, 3), Sampling(max_tokens=2)))
    >>> while engine.step(): pass
    >>> [type(event).__name__ for event in response.take()]
    ['Token', 'Token', 'Ended']
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.tokenizer, self.limits, self.clock = model.eval(), tokenizer, limits or Limits(), clock
        self.footprint = measure(model, self.limits.chunk)
        self.waiting, self.prefixes = Waiting(self.limits), Prefixes(self.limits.prefixes)
        self.counters = Counters()
        self.rows: list[Row] = []
        self.reserved: dict[Answer, int] = {}
        self.heartbeat = clock()
        self.wake: Callable[[], None] = lambda: None

    def submit(self, request: Request) -> Answer:
        """Validate and queue a request; return its event stream. Invalid requests are rejected here."""
        response = Answer(request, self.clock(), self.limits.buffer, lambda: self.wake())
        try:
            self.waiting.put(
                admit(self.model, self.tokenizer, response, self.limits, self.footprint), self.counters.speed
            )
        except PeasyError:
            self.counters.refused += 1
            raise
        self.counters.submitted += 1
        self.wake()
        return response

    def step(self) -> bool:
        """Schedule and run one forward pass; return False if there was nothing to do."""
        began = self.heartbeat = self.clock()
        with torch.inference_mode():
            self._sweep()
            self._let_in()
            scheduled = self._plan()
            if scheduled:
                tokens = sum(end - sequence.read for sequence, end in scheduled)
                self._read(scheduled)
                self.counters.stepped(tokens, self.clock() - began)
        self.heartbeat = self.clock()
        return bool(scheduled)

    @property
    def idle(self) -> bool:
        """True if no request is running or queued."""
        return not self.rows and not len(self.waiting)

    def snapshot(self) -> dict[str, Any]:
        """Return statistics and current load as plain data."""
        return self.counters.snapshot() | {
            "waiting": len(self.waiting),
            "waiting_tokens": self.waiting.tokens,
            "running": len(self.rows),
            "reserved_bytes": sum(self.reserved.values()),
            "prefix_bytes": self.prefixes.bytes,
            "heartbeat_age": self.clock() - self.heartbeat,
        }

    def cancel(self) -> None:
        """Cancel all running and queued requests."""
        for queued, _ in self.waiting.leave(lambda response: "cancelled"):
            self._tell(queued.answer, "cancelled")
        for response in list(self.reserved):
            self._end(response, "cancelled")

    def fail(self, error: Exception) -> None:
        """End all running requests with this error and clear the prefix cache."""
        for response in list(self.reserved):
            self._end(response, "error", error)
        self.prefixes.clear()

    # Admission and completion.

    def _sweep(self) -> None:
        for queued, reason in self.waiting.leave(self._over):
            self._tell(queued.answer, reason)
        for response in list(self.reserved):
            if (stop_reason := self._over(response)) is not None:
                self._end(response, stop_reason)

    def _over(self, answer: Answer) -> Reason | None:
        now = self.clock()
        if answer.cancelled:
            return "cancelled"
        if answer.deadline is not None and now >= answer.deadline:
            return "deadline"
        answer.paused_since = (answer.paused_since or now) if answer.full else None
        return "slow" if answer.full and now - (answer.paused_since or now) >= self.limits.patience else None

    def _let_in(self) -> None:
        while (queued := self.waiting.take(self._fits)) is not None:
            self.reserved[queued.answer] = queued.bytes
            try:
                self.rows.append(self._begin(queued))
            except Exception as error:
                self._end(queued.answer, "error", error)

    def _fits(self, entry: Entry) -> bool:
        num_sequences = sum(len(response.open) for response in self.reserved)
        free_bytes = self.limits.memory - sum(self.reserved.values())
        return num_sequences + entry.answer.request.n <= self.limits.rows and entry.bytes <= free_bytes

    def _begin(self, entry: Entry) -> Row:
        """Create the first sequence of a request; its source is encoded here unless the prefix cache has it."""
        request, ids = entry.answer.request, list(entry.prompt)
        source = None if request.source is None else torch.tensor([request.source], device=self.model.device)
        state, pages = self._start(source, request.source, len(ids) + entry.most)
        sampler, attention = Chooser(request.sampling, ids), None if request.watch is None else Glance(request.watch)
        return Row(
            ids, state, source, sampler, self._teller(entry.answer), entry.most,
            answer=entry.answer, chain=pages, glance=attention,
        )  # fmt: skip

    def _start(self, source: Tensor | None, ids: tuple[int, ...] | None, room: int) -> tuple[Any, Chain | None]:
        """Return a new decode state; one with an encoded source is cached like a page, under the key (-1, *source)."""
        if source is None or ids is None:
            return self.model.start(room=room), ()
        if (page := self.prefixes.find((), (-1, *ids))) is None:
            state = self.model.start(room=room, source=source)
            return state, self.prefixes.keep((), (-1, *ids), state.fork()) if self.prefixes.most else None
        state = page.content.fork()
        for layer in state.layers if isinstance(state, Cache) else ():
            layer.room = room
        return state, (page,)

    def _teller(self, answer: Answer) -> Teller:
        return Teller(self.tokenizer, answer.request.sampling.stop)

    def _end(self, answer: Answer, reason: Reason, error: Exception | None = None) -> None:
        """End all choices of a request and release its reserved memory."""
        for sequence in [sequence for sequence in self.rows if sequence.answer is answer]:
            self._end_row(sequence, reason, error)
        self._tell(answer, reason, error)
        self.reserved.pop(answer, None)

    def _tell(self, answer: Answer, reason: Reason, error: Exception | None = None) -> None:
        """Emit the final event of choices that were never started."""
        for choice in sorted(answer.open):
            answer.put(Ended(choice, reason, 0, "", for_people(error)))
            self.counters.ended[reason] += 1

    def _end_row(self, row: Row, reason: Reason, error: Exception | None = None) -> None:
        self._remove(row, row.end(reason, for_people(error)))

    def _remove(self, row: Row, last: Ended) -> None:
        self.rows.remove(row)
        self.counters.ended[last.reason] += 1
        if row.answer.done:
            self.reserved.pop(row.answer, None)

    # One step.

    def _plan(self) -> list[Turn]:
        """Schedule one token of every decoding sequence, and prompts up to the prefill budget, oldest first.

        A page that is computed in this step is not scheduled twice: other sequences find it in the cache next step.
        """
        ready = [sequence for sequence in self.rows if not sequence.answer.full]
        budget, scheduled, pages_in_progress = self.limits.chunk, [], set()
        for sequence in ready:
            if sequence.pending > 1:
                self._reuse(sequence)
            page = (sequence.chain[-1].number if sequence.chain else 0, sequence.next_page())
            if sequence.pending == 1:
                scheduled.append((sequence, len(sequence.ids)))
            elif page not in pages_in_progress and (end := sequence.stretch(budget)) > sequence.read:
                scheduled.append((sequence, end))
                budget -= end - sequence.read
                pages_in_progress |= {page} if page[1] is not None else set()
        return scheduled

    def _reuse(self, row: Row) -> None:
        num_reused = row.reuse(self.prefixes)
        self.counters.prefix_hits += num_reused > 0 and not row.answer.reused
        self.counters.reused_tokens += num_reused
        row.answer.reused += num_reused

    def _read(self, turns: list[Turn]) -> None:
        try:
            all_logits = self._pass(turns)
        except Exception:
            self._read_apart(turns)
        else:
            for entry, next_logits in zip(turns, all_logits, strict=True):
                self._advance(entry, next_logits)

    def _pass(self, turns: list[Turn]) -> list[Tensor]:
        inputs = [sequence.ids[sequence.read : end] for sequence, end in turns]
        taps = [seq.glance.tap if seq.glance and end == len(seq.ids) else None for seq, end in turns]
        return self.model.read(inputs, [sequence.memory for sequence, _ in turns], tap=taps if any(taps) else None)

    def _read_apart(self, turns: list[Turn]) -> None:
        """Retry a failed pass one sequence at a time, so that only the faulty one ends."""
        for sequence, end in turns:
            try:
                if not sequence.restore():
                    self._start_again(sequence)
                (next_logits,) = self._pass([(sequence, end)])
            except Exception as error:
                self._end(sequence.answer, "error", error)
            else:
                self._advance((sequence, end), next_logits)

    def _start_again(self, row: Row) -> None:
        """Recompute from the start: a recurrent state cannot be cropped."""
        row.memory = self.model.start(room=len(row.ids) + row.most, source=row.source)
        row.read, row.chain = 0, None

    def _advance(self, turn: Turn, scores: Tensor) -> None:
        sequence, end = turn
        if sequence.number not in sequence.answer.open:  # an error of another choice ended the request in this step
            return
        try:
            prompt_end = len(sequence.ids) - sequence.written
            self.counters.prompt_tokens += max(0, min(end, prompt_end) - sequence.read)
            sequence.advance(end, self.prefixes)
            if sequence.pending == 0:
                for choice in self._choices(sequence):
                    self._write(choice, scores)
        except Exception as error:
            self._end(sequence.answer, "error", error)

    def _choices(self, row: Row) -> list[Row]:
        """Return the sequence, or all n forks of it if its prompt has just been prefilled."""
        n = row.answer.request.n
        if n == 1 or row.written or row.number:
            return [row]
        forks = [row.fork(choice, self._teller(row.answer)) for choice in range(1, n)]
        position = self.rows.index(row) + 1
        self.rows[position:position] = forks
        return [row, *forks]

    def _write(self, row: Row, scores: Tensor) -> None:
        before = row.written
        final_event = row.say(scores, self.model.config.special.end)
        self.counters.written_tokens += row.written - before
        if final_event is not None:
            self._remove(row, final_event)
