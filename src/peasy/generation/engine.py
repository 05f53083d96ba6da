"""The engine: many requests at once, each as if it were alone.

Every step reads one token of each text that is being written and a chunk of the prompts that are still to be read, all
in one pass. Requests join and leave between steps.
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
"""A row, and how far it reads in this step."""


class Engine:
    """Answers requests by `step`, again and again; whoever calls it decides when. `Runner` does it in a thread.

    `submit` and an answer's `close` may be called from any thread, `step` only from one. What a text gets does not
    depend on who else is there. One text's fault (scores that are no numbers, an error in its pass) ends that request.

    >>> from peasy.generation.sampling import Sampling
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> engine = Engine(build(preset("gpt-tiny"), seed=1))
    >>> answer = engine.submit(Request((1, 2, 3), Sampling(max_tokens=2)))
    >>> while engine.step(): pass
    >>> [type(event).__name__ for event in answer.take()]
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
        """Wait in line to be answered. What cannot be answered is refused here, before any work is done."""
        answer = Answer(request, self.clock(), self.limits.buffer, lambda: self.wake())
        try:
            self.waiting.put(
                admit(self.model, self.tokenizer, answer, self.limits, self.footprint), self.counters.speed
            )
        except PeasyError:
            self.counters.refused += 1
            raise
        self.counters.submitted += 1
        self.wake()
        return answer

    def step(self) -> bool:
        """One step of everything; False if there was nothing to do."""
        began = self.heartbeat = self.clock()
        with torch.inference_mode():
            self._sweep()
            self._let_in()
            turns = self._plan()
            if turns:
                tokens = sum(end - row.read for row, end in turns)
                self._read(turns)
                self.counters.stepped(tokens, self.clock() - began)
        self.heartbeat = self.clock()
        return bool(turns)

    @property
    def idle(self) -> bool:
        """Is nobody running or waiting?"""
        return not self.rows and not len(self.waiting)

    def snapshot(self) -> dict[str, Any]:
        """The counters and what is going on now, as plain data."""
        return self.counters.snapshot() | {
            "waiting": len(self.waiting),
            "waiting_tokens": self.waiting.tokens,
            "running": len(self.rows),
            "reserved_bytes": sum(self.reserved.values()),
            "prefix_bytes": self.prefixes.bytes,
            "heartbeat_age": self.clock() - self.heartbeat,
        }

    def cancel(self) -> None:
        """Everybody ends, those that wait too."""
        for entry, _ in self.waiting.leave(lambda answer: "cancelled"):
            self._tell(entry.answer, "cancelled")
        for answer in list(self.reserved):
            self._end(answer, "cancelled")

    def fail(self, error: Exception) -> None:
        """Everything that runs ends with this error, and everything that was kept is forgotten."""
        for answer in list(self.reserved):
            self._end(answer, "error", error)
        self.prefixes.clear()

    # Coming and going.

    def _sweep(self) -> None:
        for entry, reason in self.waiting.leave(self._over):
            self._tell(entry.answer, reason)
        for answer in list(self.reserved):
            if (over := self._over(answer)) is not None:
                self._end(answer, over)

    def _over(self, answer: Answer) -> Reason | None:
        now = self.clock()
        if answer.cancelled:
            return "cancelled"
        if answer.deadline is not None and now >= answer.deadline:
            return "deadline"
        answer.paused_since = (answer.paused_since or now) if answer.full else None
        return "slow" if answer.full and now - (answer.paused_since or now) >= self.limits.patience else None

    def _let_in(self) -> None:
        while (entry := self.waiting.take(self._fits)) is not None:
            self.reserved[entry.answer] = entry.bytes
            try:
                self.rows.append(self._begin(entry))
            except Exception as error:
                self._end(entry.answer, "error", error)

    def _fits(self, entry: Entry) -> bool:
        rows = sum(len(answer.open) for answer in self.reserved)
        room = self.limits.memory - sum(self.reserved.values())
        return rows + entry.answer.request.n <= self.limits.rows and entry.bytes <= room

    def _begin(self, entry: Entry) -> Row:
        """The first row of a request. A source is read here, in one piece, unless it was before."""
        request, ids = entry.answer.request, list(entry.prompt)
        source = None if request.source is None else torch.tensor([request.source], device=self.model.device)
        memory, chain = self._start(source, request.source, len(ids) + entry.most)
        chooser, glance = Chooser(request.sampling, ids), None if request.watch is None else Glance(request.watch)
        return Row(
            ids, memory, source, chooser, self._teller(entry.answer), entry.most,
            answer=entry.answer, chain=chain, glance=glance,
        )  # fmt: skip

    def _start(self, source: Tensor | None, ids: tuple[int, ...] | None, room: int) -> tuple[Any, Chain | None]:
        """An empty memory; one that has read the source is shared like a page, its ids marked as no text's."""
        if source is None or ids is None:
            return self.model.start(room=room), ()
        if (page := self.prefixes.find((), (-1, *ids))) is None:
            memory = self.model.start(room=room, source=source)
            return memory, self.prefixes.keep((), (-1, *ids), memory.fork()) if self.prefixes.most else None
        memory = page.content.fork()
        for layer in memory.layers if isinstance(memory, Cache) else ():
            layer.room = room
        return memory, (page,)

    def _teller(self, answer: Answer) -> Teller:
        return Teller(self.tokenizer, answer.request.sampling.stop)

    def _end(self, answer: Answer, reason: Reason, error: Exception | None = None) -> None:
        """All choices of a request end, and its memory is free."""
        for row in [row for row in self.rows if row.answer is answer]:
            self._end_row(row, reason, error)
        self._tell(answer, reason, error)
        self.reserved.pop(answer, None)

    def _tell(self, answer: Answer, reason: Reason, error: Exception | None = None) -> None:
        """The end of choices that never had a row."""
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
        """Who reads how far: one token of every text being written, and prompts, the oldest first.

        A page that somebody reads in this step is not read by a second one, who finds it in the next.
        """
        rows = [row for row in self.rows if not row.answer.full]
        left, turns, coming = self.limits.chunk, [], set()
        for row in rows:
            if row.pending > 1:
                self._reuse(row)
            page = (row.chain[-1].number if row.chain else 0, row.next_page())
            if row.pending == 1:
                turns.append((row, len(row.ids)))
            elif page not in coming and (end := row.stretch(left)) > row.read:
                turns.append((row, end))
                left -= end - row.read
                coming |= {page} if page[1] is not None else set()
        return turns

    def _reuse(self, row: Row) -> None:
        saved = row.reuse(self.prefixes)
        self.counters.prefix_hits += saved > 0 and not row.answer.reused
        self.counters.reused_tokens += saved
        row.answer.reused += saved

    def _read(self, turns: list[Turn]) -> None:
        try:
            found = self._pass(turns)
        except Exception:
            self._read_apart(turns)
        else:
            for turn, scores in zip(turns, found, strict=True):
                self._advance(turn, scores)

    def _pass(self, turns: list[Turn]) -> list[Tensor]:
        texts = [row.ids[row.read : end] for row, end in turns]
        taps = [row.glance.tap if row.glance and end == len(row.ids) else None for row, end in turns]
        return self.model.read(texts, [row.memory for row, _ in turns], tap=taps if any(taps) else None)

    def _read_apart(self, turns: list[Turn]) -> None:
        """A pass failed: each text goes on alone from where it was, and the one at fault ends."""
        for row, end in turns:
            try:
                if not row.restore():
                    self._start_again(row)
                (scores,) = self._pass([(row, end)])
            except Exception as error:
                self._end(row.answer, "error", error)
            else:
                self._advance((row, end), scores)

    def _start_again(self, row: Row) -> None:
        """A state cannot go back: its text is read once more, from the start."""
        row.memory = self.model.start(room=len(row.ids) + row.most, source=row.source)
        row.read, row.chain = 0, None

    def _advance(self, turn: Turn, scores: Tensor) -> None:
        row, end = turn
        if row.number not in row.answer.open:  # a fault of another choice has ended the request in this very step
            return
        try:
            self.counters.prompt_tokens += max(0, min(end, len(row.ids) - row.written) - row.read)
            row.advance(end, self.prefixes)
            if row.pending == 0:
                for each in self._choices(row):
                    self._write(each, scores)
        except Exception as error:
            self._end(row.answer, "error", error)

    def _choices(self, row: Row) -> list[Row]:
        """The row; and when its prompt has just been read, all choices of the request."""
        n = row.answer.request.n
        if n == 1 or row.written or row.number:
            return [row]
        others = [row.fork(choice, self._teller(row.answer)) for choice in range(1, n)]
        at = self.rows.index(row) + 1
        self.rows[at:at] = others
        return [row, *others]

    def _write(self, row: Row, scores: Tensor) -> None:
        before = row.written
        last = row.say(scores, self.model.config.special.end)
        self.counters.written_tokens += row.written - before
        if last is not None:
            self._remove(row, last)
