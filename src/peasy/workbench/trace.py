"""How a text came about: for every token the candidates and where each head looked, through the cache, beams too."""

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
    """Write on after a text (or answer it) and keep, for every token, what was looked at and what else could have come.

    `top` keys of each head are kept, None = all. `sampling` as in generate: temperature, top_k, seed, ... With `beam`
    the likeliest texts of a beam search, best first.
    """
    from peasy.looking.change import make_change
    from peasy.looking.part import parts_of
    from peasy.looking.trace import Traced

    edits = () if edit is None else tuple(edit) if isinstance(edit, list | tuple) else (edit,)
    traced = Traced(loaded.model, top=top, layers=layers, heads=heads, edit=make_change(edits, loaded.model))
    source, prompt = start_of(loaded, text)
    texts = _search(loaded, traced, source, prompt, beam, max_tokens, sampling)
    told: dict[str, Any] = {
        "parts": tuple(part for part in parts_of(loaded.model) if part.place.stack == "decoder"),
        "edits": tuple(each.says() for each in edits),
    }
    traces = tuple(_follow(loaded, traced, source, prompt, ids, told) for ids in texts)
    first = traces[0]
    if len(traces) > 1:
        first = GenerationTrace(first.model, first.prompt, first.source, first.steps, first.text, beams=traces, **told)
    return Finding(first, lambda: trace_document(first))


def start_of(loaded: LoadedModel, text: str) -> tuple[Tokens | None, Tokens]:
    """(source, what stands before the first written token)."""
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
    """The texts that were written, best first."""
    model = cast(Any, traced)
    how: dict[str, Any] = {"prompts": [list(prompt.ids)], "source": None if source is None else [list(source.ids)]}
    if beam is None:
        from peasy.generation.decode import generate
        from peasy.generation.sampling import Sampling

        return generate(model, sampling=Sampling(max_tokens=max_tokens, **sampling), **how)
    from peasy.generation.beam import Beams, search

    if drawn := [name for name in sampling if name not in ("length_penalty", "patience")]:
        raise InvalidInput(
            f"Beams are searched, not drawn: {', '.join(drawn)} would do nothing.",
            hint="Leave it out, or leave out beam.",
        )
    found = search(model, beams=Beams(width=beam, max_tokens=max_tokens, n=beam, **sampling), **how)[0]
    if found.error is not None:
        raise found.error
    return [list(each.ids) for each in found.best]


def _follow(
    loaded: LoadedModel, traced: "Traced", source: Tokens | None, prompt: Tokens, ids: list[int], told: dict[str, Any]
) -> GenerationTrace:
    """The steps of one text, found by what had been read before each."""
    tokenizer, read, score = loaded.answers(), prompt.ids, 0.0
    steps = []
    for id in ids:
        glimpse = traced.seen[read]
        log = float(glimpse.logs[id])
        score += log
        best = tuple(Candidate(tokenizer.piece(each), each, float(_exp(value))) for each, value in glimpse.best)
        steps.append(
            TraceStep(id, tokenizer.piece(id), _exp(log), score, best, glimpse.looked, glimpse.computed, glimpse.reused)
        )
        read = (*read, id)
    return GenerationTrace(loaded.name, prompt, source, tuple(steps), tokenizer.decode(ids), **told)


def _exp(log: float) -> float:
    from math import exp

    return exp(log)
