"""Generation trace: for every generated token the top candidates and each head's attention, also for beam search."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput, check_keywords, parameter_names
from peasy.inspection.interventions import InterventionSpec
from peasy.inspection.label import TokenProbability, Tokens
from peasy.inspection.results import GenerationTrace, TraceStep
from peasy.views.trace import trace_document

if TYPE_CHECKING:
    from peasy.inspection.trace import TracingModel

_PARAMETERS = ("num_beams", "layers", "heads", "top", "edit")
_BEAM_PARAMETERS = ("length_penalty", "early_stopping")


def trace(
    loaded: LoadedModel,
    text: str,
    *,
    num_beams: int | None = None,
    max_tokens: int = 20,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    top: int | None = 8,
    edit: InterventionSpec | Sequence[InterventionSpec] | None = None,
    **sampling: Any,
) -> AnalysisResult:
    """Generate after a prompt (or translate it) and record attention and candidates of every token.

    The `top` keys of each head are kept, None = all. `sampling` as in generate: temperature, top_k, seed, ... With
    `num_beams`, traces all results of a beam search, best first.
    """
    from peasy.inspection.apply_interventions import make_intervention
    from peasy.inspection.introspect import attentions_of
    from peasy.inspection.trace import TracingModel

    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    traced = TracingModel(
        loaded.model, top_keys=top, layers=layers, heads=heads, intervention=make_intervention(edits, loaded.model)
    )
    source, prompt = prompt_tokens(loaded, text)
    sequences = _decode(loaded, traced, source, prompt, num_beams, max_tokens, sampling)
    about: dict[str, Any] = {
        "attentions": tuple(part for part in attentions_of(loaded.model) if part.path.stack == "decoder"),
        "interventions": tuple(intervention.summary() for intervention in edits),
    }
    traces = tuple(_build_trace(loaded, traced, source, prompt, ids, about) for ids in sequences)
    best = traces[0]
    if len(traces) > 1:
        best = GenerationTrace(best.model, best.prompt, best.source, best.steps, best.text, beams=traces, **about)
    return AnalysisResult(best, lambda: trace_document(best))


def prompt_tokens(loaded: LoadedModel, text: str) -> tuple[Tokens | None, Tokens]:
    """Return (source tokens or None, prompt tokens before the first generated token)."""
    from peasy.inspection.words import label_ids, label_tokens

    ids, tokenizer = loaded.encode_prompt(text), loaded.require_tokenizer()
    encoding = tokenizer.encode(text)
    tokens = label_tokens(encoding, tokenizer) if list(encoding.ids) == ids else label_ids(ids, None, text)
    if not loaded.model.is_encoder_decoder:
        return None, tokens
    from peasy.generation.prompt import prepare_prompt

    first = prepare_prompt(loaded.model, ())
    return tokens, label_ids(first, [loaded.output_tokenizer().piece(id) for id in first])


def _decode(
    loaded: LoadedModel,
    traced: "TracingModel",
    source: Tokens | None,
    prompt: Tokens,
    num_beams: int | None,
    max_tokens: int,
    sampling: dict[str, Any],
) -> list[list[int]]:
    """Decode by sampling or beam search; return token sequences, best first."""
    from peasy.generation.sampling_params import SamplingParams

    model = cast(Any, traced)
    inputs: dict[str, Any] = {"prompts": [list(prompt.ids)], "source": None if source is None else [list(source.ids)]}
    if num_beams is None:
        from peasy.generation.decode import generate

        check_keywords("trace", sampling, (*parameter_names(SamplingParams), *_PARAMETERS))
        return generate(model, sampling=SamplingParams(max_tokens=max_tokens, **sampling), **inputs)
    from peasy.generation.beam_search import BeamSearchParams, beam_search

    check_keywords("trace", sampling, (*parameter_names(SamplingParams), *_BEAM_PARAMETERS, *_PARAMETERS))
    if ignored := [name for name in sampling if name not in _BEAM_PARAMETERS]:
        raise InvalidInput(
            f"Beam search does not sample: {', '.join(ignored)} would have no effect.",
            hint="Leave it out, or leave out num_beams.",
        )
    result = beam_search(
        model, params=BeamSearchParams(num_beams=num_beams, max_tokens=max_tokens, n=num_beams, **sampling), **inputs
    )[0]
    if result.error is not None:
        raise result.error
    return [list(hypothesis.ids) for hypothesis in result.hypotheses]


def _build_trace(
    loaded: LoadedModel,
    traced: "TracingModel",
    source: Tokens | None,
    prompt: Tokens,
    ids: list[int],
    about: dict[str, Any],
) -> GenerationTrace:
    """Build the trace of one sequence from the recorded passes, which are keyed by the ids read before each step."""
    tokenizer, read, score = loaded.output_tokenizer(), prompt.ids, 0.0
    steps = []
    for id in ids:
        step_trace = traced.steps[read]
        logprob = float(step_trace.logprobs[id])
        score += logprob
        best = tuple(
            TokenProbability(tokenizer.piece(other), other, float(_exp(value)))
            for other, value in step_trace.top_logprobs
        )
        steps.append(
            TraceStep(
                id,
                tokenizer.piece(id),
                _exp(logprob),
                score,
                best,
                step_trace.attention,
                step_trace.num_computed,
                step_trace.num_cached,
            )
        )
        read = (*read, id)
    return GenerationTrace(loaded.name, prompt, source, tuple(steps), tokenizer.decode(ids), **about)


def _exp(log: float) -> float:
    from math import exp

    return exp(log)
