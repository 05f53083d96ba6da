"""Generation stream with attention, next-token probabilities before and after sampling, and savings of the KV cache."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Unpack

import torch
from annotated_types import Ge

from peasy.commands.generate import CacheStep, cache_steps, kv_cache_parts
from peasy.commands.load import LoadedModel
from peasy.commands.result import JsonDict, Result
from peasy.commands.trace import RecordedSteps, prompt_tokens, record_steps, trace_steps
from peasy.errors import InvalidInput
from peasy.generation.admission import prepare_prompt
from peasy.generation.request import AttentionQuery, Ended, Request
from peasy.generation.sampling import Sampler
from peasy.generation.sampling_params import SamplingOptions, SamplingParams
from peasy.inspection.results import CAVEAT, TraceStep
from peasy.models.transformer import check_token_range
from peasy.parameters import Record
from peasy.views.document import Document, Paragraph, Table


class GenerationStart(Record, eq=False):
    """First event: pieces and ids before the first generated token, and the pieces of a translator's source."""

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    source: tuple[str, ...] = ()
    caveat: str = CAVEAT


class GenerationEnd(Record):
    """Last event. Reason: the model ended the text ("eos") or the maximum length was reached ("length")."""

    reason: str


def stream_generation(
    model: LoadedModel,
    text: str,
    *,
    generated_ids: Sequence[int] = (),
    top: Annotated[int, Ge(1)] | None = 8,
    candidates: int = 8,
    **sampling: Unpack[SamplingOptions],
) -> Iterator[GenerationStart | TraceStep | GenerationEnd]:
    """Generate after a prompt, yielding each token with its attention; closing it stops.

    Args:
        model: The model.
        text: Prompt, or source of a translation.
        generated_ids: Tokens that were generated before.
        top: Keys reported for each head; None = all.
        candidates: Most likely tokens reported at each position.
    """
    source, prompt = prompt_tokens(model, text)
    context, score, steps = (*prompt.ids, *generated_ids), 0.0, RecordedSteps()
    pieces = model.output_tokenizer().pieces
    yield GenerationStart(pieces(context), context, () if source is None else source.pieces)
    source_ids = None if source is None else source.ids
    request = Request(context, SamplingParams(**sampling), source_ids, attention_query=AttentionQuery(top_k=top))
    for event in record_steps(model, request, steps):
        if isinstance(event, Ended):
            yield GenerationEnd(event.reason)
            return
        (step,) = trace_steps(model, steps, context, [event.sampled.id], candidates, score)
        del steps[context]
        context, score = (*context, event.sampled.id), step.cumulative_logprob
        yield step


class TokenChoice(Record):
    """Candidate for the next token: its probability before and after temperature, top-k and top-p; 0 = cut off."""

    piece: str
    id: int
    probability: float
    adjusted_probability: float


class NextTokenResult(Result, repr=True):
    """Most likely next tokens before and after temperature, top-k and top-p; `num_candidates` can still be sampled."""

    name: str
    choices: tuple[TokenChoice, ...]
    num_candidates: int
    vocab_size: int
    rest: tuple[float, float]

    def document(self) -> Document:
        """Return a table with one row per token."""
        rows = tuple((choice.piece, choice.probability, choice.adjusted_probability) for choice in self.choices)
        columns = ("token", "probability", "adjusted probability")
        table = Table(columns, (*rows, ("all others", *self.rest)))
        candidates = f"{self.num_candidates:,} of {self.vocab_size:,} tokens can be sampled."
        return Document(f"Next token of {self.name}", (table, Paragraph(candidates)))


def next_token_probs(
    model: LoadedModel,
    text: str,
    *,
    generated_ids: Sequence[int] = (),
    top: Annotated[int, Ge(1)] = 12,
    **sampling: Unpack[SamplingOptions],
) -> NextTokenResult:
    """Return next-token probabilities before and after temperature, top-k and top-p.

    Args:
        model: The model.
        text: Prompt, or source of a translation.
        generated_ids: Tokens that were generated before.
        top: Number of most likely tokens to return.
    """
    source, prompt = prompt_tokens(model, text)
    context, steps = (*prompt.ids, *generated_ids), RecordedSteps()
    request = Request(context, SamplingParams(max_tokens=1), None if source is None else source.ids)
    next(record_steps(model, request, steps))
    logits = steps[context].logits  # log-probabilities: the same distribution
    before, after = torch.exp(logits.double()), Sampler(SamplingParams(**sampling)).probabilities(logits)
    most_likely = before.topk(min(top, len(before))).indices.tolist()
    piece = model.output_tokenizer().piece
    choices = tuple(TokenChoice(piece(id), id, float(before[id]), float(after[id])) for id in most_likely)
    shares = [(choice.probability, choice.adjusted_probability) for choice in choices]
    rest = max(0.0, 1 - sum(p for p, _ in shares)), max(0.0, 1 - sum(p for _, p in shares))
    return NextTokenResult(model.name, choices, int((after > 0).sum()), len(before), rest)


class CacheSavingsResult(Result, repr=True):
    """Each generated token with and without the KV cache: work, time, and the largest difference of the logits."""

    name: str
    prompt: tuple[str, ...]
    steps: tuple[CacheStep, ...]

    def document(self) -> Document:
        """Return the cache as a figure and a table, and its savings in a sentence."""
        return Document(f"Savings of the KV cache: {self.name}", kv_cache_parts(self.prompt, self.steps))

    def data(self) -> JsonDict:
        """Return the steps and their totals."""
        rows = [asdict(step) for step in self.steps]
        summed = ("multiplications", "multiplications_uncached", "ms", "ms_uncached", "num_computed", "num_cached")
        total = {name: sum(row[name] for row in rows) for name in summed}
        difference = max((step.max_difference for step in self.steps), default=0.0)
        return {"steps": rows, "total": total | {"max_difference": difference}}


def cache_savings(model: LoadedModel, text: str, generated_ids: Sequence[int]) -> CacheSavingsResult:
    """Decode the same tokens with and without KV cache: compare results, operation counts and times.

    Args:
        model: The model.
        text: Prompt.
        generated_ids: Tokens that were generated after it.
    """
    if not generated_ids:
        raise InvalidInput("Nothing was generated yet.", hint="Generate some tokens first.")
    prompt = prepare_prompt(model.model, model.encode_prompt(text))
    check_token_range([*prompt, *generated_ids], model.model.config.vocab_size)
    steps = cache_steps(model, model.model, prompt, generated_ids)
    return CacheSavingsResult(model.name, model.output_tokenizer().pieces(prompt), steps)
