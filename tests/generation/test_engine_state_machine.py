"""Property-based state machine of the decoding core: any order of submitting, stepping, reading, cancelling, failing.

Hypothesis chooses the schedule and, if one breaks a rule, shortens it. After every action the engine's books agree with
its sequences; every request ends exactly once per choice, with the tokens it has alone, or with a reason that it had.
"""

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.generation.tiny_models import choices_alone, final_events, model_of, token_ids

from peasy.errors import PeasyError
from peasy.generation.engine import Engine
from peasy.generation.limits import PAGE_SIZE, EngineLimits
from peasy.generation.request import AttentionQuery, Ended, Request
from peasy.generation.sampling_params import BeamSearchParams, SamplingParams

BROKEN = 60
"""A prompt with this token makes the model fail, as long as the model is broken."""

PREFIXES = [(), (3, 4), tuple(range(1, PAGE_SIZE + 1)), tuple(range(1, 2 * PAGE_SIZE + 4))]
prompts = st.tuples(st.sampled_from(PREFIXES), st.lists(st.integers(1, 6), min_size=1, max_size=3)).map(
    lambda parts: (*parts[0], *parts[1])
)


STRATEGIES = {
    "plain": {}, "scored": {"scores_prompt": True}, "uncached": {"use_cache": False}, "beams": {},
    "speculative": {"max_draft_tokens": 3}, "attention": {"attention_query": AttentionQuery(None, None, 2)},
}  # fmt: skip
"""Options of a request that decodes in this way."""


def beams_alone(model, request):
    """Return the hypotheses of a beam search with nothing beside it."""
    engine = Engine(model)
    response = engine.submit(Request(request.prompt, beam_search=request.beam_search))
    while engine.step():
        pass
    return response.pop_all()[-1].hypotheses


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class EngineMachine(RuleBasedStateMachine):
    """Schedules of an engine with few places and little memory."""

    kind = "decoder"

    @initialize(
        places=st.integers(2, 6), chunk=st.sampled_from([PAGE_SIZE, 2 * PAGE_SIZE]),
        cache=st.sampled_from([0, 20_000, 200_000]), requests=st.integers(1, 12), pending=st.integers(1, 8),
    )  # fmt: skip
    def start(self, places, chunk, cache, requests, pending):
        self.model, self.clock, self.failing = model_of(self.kind), Clock(), "no"
        self.real = type(self.model).forward_varlen.__get__(self.model)
        self.model.forward_varlen = self.forward_varlen
        kv_bytes = requests * Engine(self.model).footprint.max_bytes(2 * PAGE_SIZE + 20) * 3
        limits = EngineLimits(
            places, chunk, max_queued_requests=8, max_queued_tokens=2_000, kv_cache_bytes=kv_bytes,
            prefix_cache_bytes=cache, slow_client_timeout=5.0,
        )  # fmt: skip
        self.engine = Engine(self.model, limits=limits, clock=self.clock)
        assert self.engine.footprint, "measured before the model may fail"
        self.engine.max_pending_events = pending
        self.events, self.reasons, self.poisoned, self.unread_seconds = {}, {}, set(), {}

    def forward_varlen(self, sequences, states, **options):
        """The model, which raises or gives NaN for a broken prompt while it is failing, or raises once for all."""
        all_logits = self.real(sequences, states, **options)
        if self.failing == "once":  # in any phase, with all caches changed already
            self.failing = "no"
            raise MemoryError("once")
        bad = [state is not None and BROKEN in ids for ids, state in zip(sequences, states, strict=True)]
        if self.failing == "raise" and any(bad):
            raise RuntimeError("a pass broke")
        if self.failing == "nan":
            return [logits * torch.nan if broken else logits for logits, broken in zip(all_logits, bad, strict=True)]
        return all_logits

    # Actions.

    @rule(
        prompt=prompts, max_tokens=st.integers(1, 8), n=st.sampled_from([1, 1, 2]), seed=st.integers(0, 2),
        temperature=st.sampled_from([0.0, 0.9]), broken=st.booleans(), timeout=st.sampled_from([None, None, 3.0]),
        strategy=st.sampled_from([*STRATEGIES, "plain", "plain"]),
    )  # fmt: skip
    def submit(self, prompt, max_tokens, n, seed, temperature, broken, timeout, strategy):
        prompt = (*prompt, BROKEN) if broken else prompt
        sampling, options = SamplingParams(max_tokens, temperature, seed), STRATEGIES[strategy]
        if strategy == "beams":
            n, options = 1, {"beam_search": BeamSearchParams(num_beams=2, n=2, max_tokens=max_tokens)}
        request = Request(prompt, sampling, n=n, timeout=timeout, **options)
        try:
            response = self.engine.submit(request)
        except PeasyError:
            return
        self.events[response], self.reasons[response] = [], {"length"} | ({"timeout"} if timeout else set())

    @rule(count=st.integers(1, 4))
    def step(self, count):
        for _ in range(count):
            self.engine.step()
            if self.failing in ("raise", "nan"):
                self.poisoned |= {response for response in self.events if BROKEN in response.prompt}

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def read(self, data):
        response = data.draw(st.sampled_from(list(self.events)))
        self.events[response] += response.pop_all()
        self.unread_seconds[response] = 0.0

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def cancel(self, data):
        response = data.draw(st.sampled_from(list(self.events)))
        response.close()
        self.reasons[response].add("cancelled")

    @rule()
    def evict(self):
        """Drop the prefix cache, as another model's load does."""
        self.engine.prefix_cache.clear()

    @rule(how=st.sampled_from(["no", "raise", "nan", "once"]))
    def break_model(self, how):
        self.failing = how

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def wait(self, seconds):
        """Time passes: requests may time out, clients that read nothing become slow."""
        self.clock.now += seconds
        for response, reasons in self.reasons.items():
            self.unread_seconds[response] = self.unread_seconds.get(response, 0.0) + seconds
            if self.unread_seconds[response] >= 5.0 and not response.is_finished:
                reasons.add("slow_client")

    # What must hold.

    @invariant()
    def books_agree(self):
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        responses = {sequence.response for sequence in engine.running}
        assert responses == set(engine.reserved_bytes)
        assert len(engine.running) <= engine.limits.max_num_seqs
        assert sum(engine.reserved_bytes.values()) <= engine.limits.kv_cache_bytes
        assert engine.prefix_cache.nbytes <= engine.limits.prefix_cache_bytes
        assert engine.queue.tokens >= 0
        for sequence in engine.running:
            assert sequence.leader is None or (
                sequence.leader in engine.running and sequence in sequence.leader.followers
            )
            assert all(follower.leader is sequence for follower in sequence.followers)
        for response, events in self.events.items():
            ends = [event for event in [*events, *response._events] if isinstance(event, Ended)]
            assert len({end.choice for end in ends}) == len(ends), "a choice ended twice"

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        try:
            self.finish()
        finally:
            del self.model.forward_varlen

    def finish(self):
        """Let everything end; compare every request with its output alone."""
        self.failing = "no"
        for _ in range(2_000):
            for response, events in self.events.items():
                events += response.pop_all()
            self.engine.step()
            if self.engine.idle:
                break
        assert self.engine.idle, "the engine does not come to an end"
        assert self.engine.reserved_bytes == {}
        assert self.engine._leaders == {}
        for response, events in self.events.items():
            events += response.pop_all()
            ends, allowed = final_events(events), self.reasons[response]
            assert ends.keys() == set(range(response.request.n)), "a choice has not ended"
            if response.request.beam_search is not None:
                assert ends[0].reason in allowed | ({"error"} if response in self.poisoned else set()), ends
                if ends[0].reason == "length":
                    expected = beams_alone(self.model, response.request)
                    assert [found.ids for found in ends[0].hypotheses] == [one.ids for one in expected]
                    assert [found.score for found in ends[0].hypotheses] == pytest.approx(
                        [one.score for one in expected]
                    )
                continue
            for choice, expected in enumerate(choices_alone(self.kind, response.request)):
                end, generated = ends[choice], token_ids(events, choice)
                assert end.reason in allowed | ({"error"} if response in self.poisoned else set()), end
                assert generated == expected[: end.num_tokens]
                assert end.reason != "length" or len(generated) == len(expected)
            if response.request.scores_prompt and all(end.reason == "length" for end in ends.values()):
                assert [scored is None for scored in response.prompt_logprobs] == [
                    position == 0 for position in range(len(response.prompt))
                ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pass_that_fails_in_any_step_changes_no_token(strategy):
    """The caches of a failed pass have its tokens already; it is repeated from fresh ones."""
    for failing_step in range(6):
        machine = EngineMachine()
        machine.start(places=4, chunk=PAGE_SIZE, cache=0, requests=12, pending=8)
        for prompt in ((3, 4, 5), (*range(1, PAGE_SIZE + 9),)):
            machine.submit(
                prompt=prompt, max_tokens=8, n=1, seed=1, temperature=0.9, broken=False, timeout=None, strategy=strategy
            )
        for step in range(7):
            machine.failing = "once" if step == failing_step else "no"
            machine.step(count=1)
        machine.teardown()


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": False, "database": None}


class TestSchedules(EngineMachine.TestCase):
    settings = settings(max_examples=25, stateful_step_count=30, derandomize=True, **QUIET)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(3600)
class TestThousandsOfSchedules(EngineMachine.TestCase):
    settings = settings(max_examples=3_000, stateful_step_count=40, **QUIET)


class WindowMachine(EngineMachine):
    """The same with sliding-window attention, whose cache drops old keys."""

    kind = "window"


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(3600)
class TestSchedulesOfAWindow(WindowMachine.TestCase):
    settings = settings(max_examples=500, stateful_step_count=40, **QUIET)


def test_a_request_that_is_not_released_would_be_found(monkeypatch):
    """The inverse: an engine that forgets to release the memory of a cancelled request."""
    from hypothesis.stateful import run_state_machine_as_test

    def forgetful(self, response, reason, error=None):
        for sequence in [sequence for sequence in self.running if sequence.response is response]:
            sequence.finish(reason)
            self.running.remove(sequence)

    monkeypatch.setattr(Engine, "_finish_request", forgetful)
    found = settings(
        max_examples=500,
        stateful_step_count=30,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        derandomize=True,
        **QUIET,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(EngineMachine, settings=found)
