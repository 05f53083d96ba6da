"""Generation stream with attention, next-token probabilities before and after sampling, and savings of the KV cache."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from peasy.commands.load import LoadedModel
from peasy.commands.result import Result
from peasy.inspection.label import CAVEAT
from peasy.inspection.results import TokenProbability, TraceStep
from peasy.views.document import Document, Paragraph, Table
from peasy.views.generated_text import CacheStep, kv_cache_parts

if TYPE_CHECKING:
    from peasy.inspection.trace import TracingModel


@dataclass(frozen=True, eq=False)
class GenerationStart:
    """First event: pieces and ids before the first generated token, and the pieces of a translator's source."""

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    source: tuple[str, ...] = ()
    caveat: str = CAVEAT


@dataclass(frozen=True)
class GenerationEnd:
    """Last event. Reason: the model ended the text ("eos") or the maximum length was reached ("length")."""

    reason: str


def stream_generation(
    loaded: LoadedModel,
    text: str,
    *,
    generated_ids: Sequence[int] = (),
    max_tokens: int = 20,
    top: int | None = 8,
    candidates: int = 8,
    **sampling: Any,
) -> Iterator[GenerationStart | TraceStep | GenerationEnd]:
    """Generate after a prompt and `generated_ids`, yielding each token with its attention; closing it stops.

    The `top` keys of each head are reported, None = all. `sampling` as in generate: temperature, top_k, top_p, ...
    """
    from peasy.commands.trace import prompt_tokens
    from peasy.generation.decode import decode
    from peasy.generation.request import Ended, Token
    from peasy.generation.sampling_params import SamplingParams
    from peasy.inspection.trace import TracingModel

    source, prompt = prompt_tokens(loaded, text)
    traced = TracingModel(loaded.model, top_keys=top, top_tokens=candidates)
    context, score = (*prompt.ids, *generated_ids), 0.0
    yield GenerationStart(_pieces(loaded, context), context, () if source is None else source.pieces)
    source_ids = None if source is None else [list(source.ids)]
    params = SamplingParams(max_tokens=max_tokens, **sampling)
    for event in decode(cast(Any, traced), [list(context)], params, source=source_ids):
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            yield GenerationEnd(event.reason)
        elif isinstance(event, Token):
            step = _trace_step(loaded, traced, context, event.sampled.id, score)
            context, score = (*context, event.sampled.id), step.cumulative_logprob
            yield step


def _trace_step(
    loaded: LoadedModel, traced: "TracingModel", context: tuple[int, ...], id: int, score: float
) -> TraceStep:
    from math import exp

    step, tokenizer = traced.steps.pop(context), loaded.output_tokenizer()
    logprob = float(step.logprobs[id])
    best = tuple(TokenProbability(tokenizer.piece(other), other, exp(value)) for other, value in step.top_logprobs)
    recorded = (step.attention, step.num_computed, step.num_cached)
    return TraceStep(id, tokenizer.piece(id), exp(logprob), score + logprob, best, *recorded)


def _pieces(loaded: LoadedModel, ids: Sequence[int]) -> tuple[str, ...]:
    tokenizer = loaded.output_tokenizer()
    return tuple(tokenizer.piece(id) for id in ids)


@dataclass(frozen=True)
class TokenChoice:
    """Candidate for the next token: its probability before and after temperature, top-k and top-p; 0 = cut off."""

    piece: str
    id: int
    probability: float
    adjusted_probability: float


@dataclass(frozen=True)
class NextTokenResult(Result):
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

    def data(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self) | {"rest": list(self.rest)}


def next_token_probs(
    loaded: LoadedModel, text: str, *, generated_ids: Sequence[int] = (), top: int = 12, **sampling: Any
) -> NextTokenResult:
    """Return the probabilities of the next token after a prompt and `generated_ids`, before and after `sampling`."""
    import torch

    from peasy.generation.sampling import Sampler
    from peasy.generation.sampling_params import SamplingParams

    logits = _next_token_logits(loaded, text, generated_ids).float().cpu()
    before = torch.softmax(logits.double(), dim=-1)
    after = Sampler(SamplingParams(**sampling)).probabilities(logits)
    most_likely = before.topk(min(top, len(before))).indices.tolist()
    tokenizer = loaded.output_tokenizer()
    choices = tuple(TokenChoice(tokenizer.piece(id), id, float(before[id]), float(after[id])) for id in most_likely)
    rest = (
        max(0.0, 1 - sum(choice.probability for choice in choices)),
        max(0.0, 1 - sum(choice.adjusted_probability for choice in choices)),
    )
    return NextTokenResult(loaded.name, choices, int((after > 0).sum()), len(before), rest)


def _next_token_logits(loaded: LoadedModel, text: str, generated_ids: Sequence[int]) -> Any:
    """Return the next-token logits after a prompt: one forward pass, nothing sampled."""
    import torch

    from peasy.commands.trace import prompt_tokens
    from peasy.generation.prompt import check_ids, fit_to_context, output_vocab_size
    from peasy.generation.sampling_params import SamplingParams

    source, prompt = prompt_tokens(loaded, text)
    model, ids = loaded.model, [*prompt.ids, *generated_ids]
    check_ids(ids, output_vocab_size(model))
    with torch.inference_mode():
        encoder_inputs: dict[str, Any] = (
            {} if source is None else {"source": torch.tensor([source.ids], device=model.device)}
        )
        return model.forward_varlen(
            [fit_to_context(model, ids, SamplingParams(max_tokens=1))], [model.new_state(**encoder_inputs)]
        )[0]


@dataclass(frozen=True)
class CacheSavingsResult(Result):
    """Each generated token with and without the KV cache: work, time, and the largest difference of the logits."""

    name: str
    prompt: tuple[str, ...]
    steps: tuple[CacheStep, ...]

    def document(self) -> Document:
        """Return the cache as a figure and a table, and its savings in a sentence."""
        return Document(f"Savings of the KV cache: {self.name}", kv_cache_parts(self.prompt, self.steps))

    def data(self) -> dict[str, Any]:
        """Return the steps and their totals."""
        total = {
            name: sum(getattr(step, name) for step in self.steps)
            for name in (
                "multiplications",
                "multiplications_uncached",
                "ms",
                "ms_uncached",
                "num_computed",
                "num_cached",
            )
        }
        difference = max((step.max_difference for step in self.steps), default=0.0)
        return {"steps": [asdict(step) for step in self.steps], "total": total | {"max_difference": difference}}


def cache_savings(loaded: LoadedModel, text: str, generated_ids: Sequence[int]) -> CacheSavingsResult:
    """Run prompt and generated tokens again, each step once with and once without the KV cache."""
    from peasy.errors import InvalidInput
    from peasy.generation.cache_benchmark import benchmark_cache
    from peasy.generation.prompt import check_ids, prepare_prompt

    if not generated_ids:
        raise InvalidInput("Nothing was generated yet.", hint="Generate some tokens first.")
    prompt = prepare_prompt(loaded.model, loaded.encode_prompt(text))
    check_ids([*prompt, *generated_ids], loaded.model.config.vocab_size)
    pieces = _pieces(loaded, generated_ids)
    steps = tuple(
        CacheStep(
            piece, step.num_cached, step.num_new, step.multiplications, step.multiplications_uncached,
            1e3 * step.seconds, 1e3 * step.seconds_uncached, step.max_difference,
        )
        for piece, step in zip(pieces, benchmark_cache(loaded.model, prompt, generated_ids), strict=True)
    )  # fmt: skip
    return CacheSavingsResult(loaded.name, _pieces(loaded, prompt), steps)
