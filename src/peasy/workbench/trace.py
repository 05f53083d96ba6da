"""Generation trace: for every generated token the top candidates and each head's attention, also for beam search."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from peasy.errors import InvalidInput
from peasy.looking.edit import Edit
from peasy.looking.label import Candidate, Tokens
from peasy.looking.record import GenerationTrace, TraceStep
from peasy.views.generated import trace_document
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel

if TYPE_CHECKING:
    from peasy.looking.trace import Traced


def trace(
    loaded: LoadedModel,
    text: str,
    *,
    beam: int | None = None,
    max_tokens: int = 20,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    top: int | None = 8,
    edit: Edit | Sequence[Edit] | None = None,
    **sampling: Any,
) -> Finding:
    """Generate after a prompt (or translate it) and record attention and candidates of every token.

    The `top` keys of each head are kept, None = all. `sampling` as in generate: temperature, top_k, seed, ... With
    `beam`, traces all results of a beam search, best first.
    """
    from peasy.looking.change import make_change
    from peasy.looking.part import parts_of
    from peasy.looking.trace import Traced

    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    traced = Traced(loaded.model, top=top, layers=layers, heads=heads, edit=make_change(edits, loaded.model))
    source, prompt = start_of(loaded, text)
    sequences = _search(loaded, traced, source, prompt, beam, max_tokens, sampling)
    about: dict[str, Any] = {
        "parts": tuple(part for part in parts_of(loaded.model) if part.place.stack == "decoder"),
        "edits": tuple(intervention.says() for intervention in edits),
    }
    traces = tuple(_follow(loaded, traced, source, prompt, ids, about) for ids in sequences)
    best = traces[0]
    if len(traces) > 1:
        best = GenerationTrace(best.model, best.prompt, best.source, best.steps, best.text, beams=traces, **about)
    return Finding(best, lambda: trace_document(best))


def start_of(loaded: LoadedModel, text: str) -> tuple[Tokens | None, Tokens]:
    """Return (source tokens or None, prompt tokens before the first generated token)."""
    from peasy.looking.words import tokens_of, tokens_of_ids

    ids, tokenizer = loaded.prompt(text), loaded.need_tokenizer()
    encoding = tokenizer.encode(text)
    tokens = tokens_of(encoding, tokenizer) if list(encoding.ids) == ids else tokens_of_ids(ids, None, text)
    if not loaded.model.reads_source:
        return None, tokens
    from peasy.generation.prompt import begin_one

    first = begin_one(loaded.model, ())
    return tokens, tokens_of_ids(first, [loaded.answers().piece(id) for id in first])


def _search(
    loaded: LoadedModel,
    traced: "Traced",
    source: Tokens | None,
    prompt: Tokens,
    beam: int | None,
    max_tokens: int,
    sampling: dict[str, Any],
) -> list[list[int]]:
    """Decode by sampling or beam search; return token sequences, best first."""
    model = cast(Any, traced)
    inputs: dict[str, Any] = {"prompts": [list(prompt.ids)], "source": None if source is None else [list(source.ids)]}
    if beam is None:
        from peasy.generation.decode import generate
        from peasy.generation.sampling import Sampling

        return generate(model, sampling=Sampling(max_tokens=max_tokens, **sampling), **inputs)
    from peasy.generation.beam import Beams, search

    if ignored := [name for name in sampling if name not in ("length_penalty", "patience")]:
        raise InvalidInput(
            f"Beam search does not sample: {', '.join(ignored)} would have no effect.",
            hint="Leave it out, or leave out beam.",
        )
    result = search(model, beams=Beams(width=beam, max_tokens=max_tokens, n=beam, **sampling), **inputs)[0]
    if result.error is not None:
        raise result.error
    return [list(hypothesis.ids) for hypothesis in result.best]


def _follow(
    loaded: LoadedModel, traced: "Traced", source: Tokens | None, prompt: Tokens, ids: list[int], told: dict[str, Any]
) -> GenerationTrace:
    """Build the trace of one sequence from the recorded passes, which are keyed by the ids read before each step."""
    tokenizer, read, score = loaded.answers(), prompt.ids, 0.0
    steps = []
    for id in ids:
        step_trace = traced.seen[read]
        logprob = float(step_trace.logs[id])
        score += logprob
        best = tuple(Candidate(tokenizer.piece(other), other, float(_exp(value))) for other, value in step_trace.best)
        steps.append(
            TraceStep(
                id,
                tokenizer.piece(id),
                _exp(logprob),
                score,
                best,
                step_trace.looked,
                step_trace.computed,
                step_trace.reused,
            )
        )
        read = (*read, id)
    return GenerationTrace(loaded.name, prompt, source, tuple(steps), tokenizer.decode(ids), **told)


def _exp(log: float) -> float:
    from math import exp

    return exp(log)
