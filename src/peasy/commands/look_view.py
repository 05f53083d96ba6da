"""`look_view`: one view of a text under a model; CLI flags and HTTP body of `look` are derived from it. No torch."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from annotated_types import Ge

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import ModelSource, load
from peasy.commands.result import Result
from peasy.errors import InvalidInput
from peasy.inspection.edit import EditLike, TokenRef
from peasy.inspection.results import MAX_MEMORY, AttentionMeasure

LookView = Literal["look", "summary", "heads", "lens", "rollout", "align", "steps", "rank", "effect", "attribution"]


def look_view(
    model: ModelSource,
    text: str,
    target: str | None = None,
    *,
    view: LookView = "look",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    queries: Sequence[TokenRef] | None = None,
    steps: Sequence[str] = ("weights",),
    edit: Sequence[EditLike] = (),
    overview: Literal["mean", "max"] | None = None,
    tile_size: Annotated[int, Ge(1)] | None = None,
    measure: AttentionMeasure = "weight",
    query: TokenRef | None = None,
    top: Annotated[int, Ge(1)] = 5,
    by: str = "sharpness",
    merge_words: bool = False,
    add_special_tokens: bool = True,
    gold: Sequence[tuple[int, int]] = (),
    words: Sequence[str] = (),
    token: str | None = None,
    against: str | None = None,
    data: str | None = None,
    max_memory: str = MAX_MEMORY,
    seed: int = 0,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
) -> Result:
    """Look at a text and return one view of it; `peasy look` and `POST /api/look` show these.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        text: Input text. For a translator, the source.
        target: Translation to inspect; default: the translation of the model.
        view: "look" (all captured steps), "summary" (strongest links), "heads" (the keys that `query` attends to),
            "lens" (logit lens), "rollout", "align", "steps" (one head step by step, given by `layers` and `heads`),
            "rank" (scores of all heads, sorted by `by`), "effect" (what the intervention `edit` changes),
            "attribution" (a logit as a sum over heads, source tokens, MLPs and embedding).
        layers: Only these layers, numbered from 0.
        heads: Only these heads, numbered from 0.
        queries: Only these words or positions.
        steps: Steps to capture: scores, scaled, masked, weights, context, query, key, value, residual, ...
        edit: Interventions.
        overview: Attention of a long text in tiles; each tile is the mean or maximum of its weights.
        tile_size: With an overview: tokens per tile; default: chosen by the length of the text.
        measure: What is shown: the weight; the weight times the norm of its value vector ("value"); or the norm of what
            it adds to the residual stream, |weight · v · W_O| ("norm").
        query: Show what this word attends to, in every head.
        top: Number of words to show for each head.
        by: Score by which heads are ranked: entropy, sharpness, previous, first, same, induction, ...
        merge_words: Show the attention between words instead of tokens.
        add_special_tokens: Add the special tokens that the model expects around a text, such as <bos>.
        gold: Reference alignment as pairs (source word, target word), to rank the heads by.
        words: Words whose probability is tracked under an intervention.
        token: With attribution: word whose logit is explained; default: the most likely one.
        against: With attribution: word whose logit is subtracted.
        data: Dataset on which the effect of an intervention is also evaluated.
        max_memory: Memory limit for captured arrays.
        seed: Seed of the random tokens on which heads are scored.
    """
    from peasy.commands.look import look

    loaded = load(model, device=device, offline=offline, confirm=confirm)
    if view == "rank":
        from peasy.commands.heads import rank_heads, split_sentences

        return rank_heads(loaded, split_sentences(text), by=by, seed=seed, add_special_tokens=add_special_tokens)

    run = partial(
        look, loaded, text, layers=layers, heads=heads, queries=queries, steps=steps, max_memory=max_memory,
        overview=overview, tile_size=tile_size, measure=measure, merge_words=merge_words,
        add_special_tokens=add_special_tokens,
    )  # fmt: skip
    result = run(target, edit=edit if view != "effect" or overview is not None else ())
    if overview is not None:
        return result
    match view:
        case "summary":
            return result.summary(top)
        case "heads":
            if query is None:
                raise InvalidInput("The view heads needs a query.", hint="Give a word or the position of a token.")
            return result.heads(query, top)
        case "lens":
            return result.logit_lens(queries, top=top)
        case "rollout":
            return result.rollout()
        case "attribution":
            return result.attribution(token, against, -1 if query is None else query)
        case "align":
            return result.alignment(gold)
        case "steps":
            if not layers or not heads:
                raise InvalidInput("The view steps needs a head.", hint="Give one layer and one head.")
            return result.steps(layers[0], heads[0], query)
        case "effect":
            return result.compare(run(result.target_text, edit=edit), words=words, data=data)
    return result
