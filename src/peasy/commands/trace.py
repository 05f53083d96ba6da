"""Generation trace: for every generated token the top candidates and each head's attention, also for beam search."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import torch
from annotated_types import Ge, Le

from peasy.commands.load import LoadedModel
from peasy.commands.model_input import as_edits, edit_context, label_prompt
from peasy.commands.result import RecordResult
from peasy.errors import InvalidInput
from peasy.generation.admission import prepare_prompt
from peasy.generation.decode import run_requests
from peasy.generation.engine import Engine
from peasy.generation.limits import UNLIMITED
from peasy.generation.request import AttentionQuery, DecodingStep, Ended, Request, Token
from peasy.generation.sampling_params import BeamSearchParams, SamplingOptions, SamplingParams
from peasy.inspection.apply_edits import make_intervention
from peasy.inspection.edit import EditLike, edit_summary
from peasy.inspection.forward import attentions_of
from peasy.inspection.results import GenerationTrace, TokenProbability, Tokens, TraceStep
from peasy.inspection.words import label_ids
from peasy.views.inspection import trace_document

RecordedSteps = dict[tuple[int, ...], DecodingStep]
"""Decoding steps by the ids read before; their logits are log-probabilities."""


class TraceResult(RecordResult, GenerationTrace):
    """Trace of one generation; `.text` is the generated text, `str(x)` the displayed document."""

    if TYPE_CHECKING:
        text: str  # type: ignore[assignment]

    document = trace_document


def trace(
    model: LoadedModel,
    text: str,
    *,
    num_beams: Annotated[int, Ge(1)] | None = None,
    length_penalty: Annotated[float, Ge(-10), Le(10)] = 1.0,
    early_stopping: Literal["always", "heuristic", "never"] = "heuristic",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    top: Annotated[int, Ge(1)] | None = 8,
    edit: EditLike | Sequence[EditLike] | None = None,
    add_special_tokens: bool = True,
    **sampling: Unpack[SamplingOptions],
) -> TraceResult:
    """Generate after a prompt (or translate it) and record attention and candidates of every token.

    Args:
        model: The model.
        text: Prompt, or source of a translation.
        num_beams: Trace all results of a beam search with this many beams, best first, instead of sampling.
        length_penalty: Length penalty of the beam search.
        early_stopping: When the beam search stops.
        layers: Layers whose attention is kept; default: all.
        heads: Heads whose attention is kept; default: all.
        top: Keys kept for each head; None = all.
        edit: Intervention, or several, under which the model generates.
        add_special_tokens: Add the special tokens that the model expects around a text, such as <bos>.
    """
    edits = as_edits(edit)
    source, prompt = prompt_tokens(model, text, add_special_tokens=add_special_tokens)
    query = AttentionQuery(None if layers is None else tuple(layers), None if heads is None else tuple(heads), top)
    request = Request(
        prompt.ids, SamplingParams(**sampling), None if source is None else source.ids, attention_query=query,
        intervention=make_intervention(edits, edit_context(model)),
    )  # fmt: skip
    if num_beams is not None:
        if ignored := [name for name in sampling if name != "max_tokens"]:
            message = f"Beam search does not sample: {', '.join(ignored)} would have no effect."
            raise InvalidInput(message, hint="Leave it out, or leave out num_beams.")
        params = BeamSearchParams(num_beams, request.max_tokens, length_penalty, num_beams, early_stopping)
        request = replace(request, beam_search=params)
    steps: RecordedSteps = {}
    *tokens, last = record_steps(model, request, steps)
    sampled = tuple(event.sampled.id for event in tokens if isinstance(event, Token))
    sequences = [one.ids for one in last.hypotheses] if isinstance(last, Ended) and last.hypotheses else [sampled]
    attentions = tuple(part for part in attentions_of(model.model) if part.path.stack == "decoder")
    traces = tuple(
        GenerationTrace(
            model.name, prompt, source, tuple(trace_steps(model, steps, prompt.ids, ids)),
            model.output_tokenizer().decode_continuation(prompt.ids, ids), attentions,
            interventions=tuple(map(edit_summary, edits)),
        )
        for ids in sequences
    )  # fmt: skip
    return TraceResult.of(replace(traces[0], beams=traces) if len(traces) > 1 else traces[0])


def prompt_tokens(loaded: LoadedModel, text: str, *, add_special_tokens: bool = True) -> tuple[Tokens | None, Tokens]:
    """Return (source tokens or None, prompt tokens before the first generated token)."""
    tokens = label_prompt(loaded, text, add_special_tokens=add_special_tokens)
    if not loaded.model.is_encoder_decoder:
        return None, tokens
    first = prepare_prompt(loaded.model, ())
    return tokens, label_ids(first, [loaded.output_tokenizer().piece(id) for id in first])


def record_steps(loaded: LoadedModel, request: Request, steps: RecordedSteps) -> Iterator[Token | Ended]:
    """Run a request and yield its events; `steps` receives every step before its event. Errors are raised."""

    def record(step: DecodingStep) -> None:
        steps[step.ids] = step._replace(logits=torch.log_softmax(step.logits.float(), dim=-1).cpu())

    engine = Engine(loaded.model, limits=UNLIMITED, isolate_errors=False)
    for event in run_requests(engine, [replace(request, observer=record)]):
        if isinstance(event, Ended) and event.error is not None:
            raise event.error
        if isinstance(event, Token | Ended):
            yield event


def trace_steps(
    loaded: LoadedModel, steps: RecordedSteps, context: tuple[int, ...], ids: Sequence[int], candidates: int = 5,
    score: float = 0.0,
) -> Iterator[TraceStep]:  # fmt: skip
    """Yield what was recorded for each of the ids after a context; `score` is the log-probability so far."""
    tokenizer = loaded.output_tokenizer()
    for id in ids:
        step = steps[context]
        logprob, best = float(step.logits[id]), step.logits.topk(min(candidates, len(step.logits)))
        score += logprob
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        probabilities = tuple(TokenProbability(tokenizer.piece(other), other, exp(value)) for other, value in pairs)
        work = (step.attention, step.num_computed, step.num_cached)
        yield TraceStep(id, tokenizer.piece(id), exp(logprob), score, probabilities, *work)
        context = (*context, id)
