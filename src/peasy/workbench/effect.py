"""Effect of an intervention on the next token, on chosen words, and on loss or BLEU of a data set."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from peasy.errors import InvalidInput
from peasy.looking.label import Candidate
from peasy.looking.record import Effect
from peasy.views.effect import effect_document
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel
from peasy.workbench.looked import LookResult

BEST = 5


def compare_looks(
    before: LookResult, after: LookResult, words: tuple[str, ...] = (), data: Any = None, **how: Any
) -> Finding:
    """Compare two results of `look` on the same text under different interventions. `how` goes to `evaluate`."""
    if before.look.tokens.ids != after.look.tokens.ids or before.loaded.model is not after.loaded.model:
        raise InvalidInput("Results of look can be compared only for the same text and the same model.")
    added = tuple(edit for edit in after.look.edits if edit not in before.look.edits)
    removed = tuple(f"not: {edit}" for edit in before.look.edits if edit not in after.look.edits)
    next_token = _nexts(before, after, words)
    measures = () if data is None else _measures(before, after, data, **how)
    effect = Effect(before.look.model, before.look.tokens.text, (*added, *removed), **next_token, measures=measures)
    return Finding(effect, lambda: effect_document(effect))


def _nexts(before: LookResult, after: LookResult, words: tuple[str, ...]) -> dict[str, Any]:
    """Next-token candidates before and after, probabilities of `words`, and the KL divergence in bits."""
    if before.scores is None or after.scores is None or not before.look.next:
        return {"before": (), "after": ()}
    p, q = _chances(before.scores), _chances(after.scores)
    support = p > 0
    divergence = float(np.sum(p[support] * (np.log2(p[support]) - np.log2(np.maximum(q[support], 1e-300)))))
    return {
        "before": before.look.next,
        "after": after.look.next,
        "words": tuple((word, float(p[id]), float(q[id])) for word in words for id in [_id(before.loaded, word)]),
        "divergence": max(divergence, 0.0),
        "scores": float(np.abs(after.scores - before.scores).max()),
    }


def _chances(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits.astype(np.float64) - logits.max())
    return exponentials / exponentials.sum()


def _id(loaded: LoadedModel, word: str) -> int:
    """First token id of a word, after a space or without one, preferring a single token."""
    tokenizer = loaded.answers()
    encodings: list[tuple[int, ...]] = [tokenizer.encode(text, special=False).ids for text in (f" {word}", word)]
    ids = next((ids for ids in encodings if len(ids) == 1), next((ids for ids in encodings if ids), None))
    if not ids:
        raise InvalidInput(f'"{word}" has no token in the vocabulary of this model.')
    return ids[0]


def _measures(before: LookResult, after: LookResult, data: Any, **how: Any) -> tuple[tuple[str, float, float], ...]:
    """Loss, perplexity, BLEU, ... of both models on the same data."""
    from peasy.workbench.evaluate import evaluate

    first, second = (
        {m.name: m.value for m in evaluate(edited(result), data, **how).facts.measures} for result in (before, after)
    )
    return tuple((name, first[name], second[name]) for name in first if name in second)


def edited(result: LookResult) -> LoadedModel:
    """Return the model under the result's interventions, usable in any command; cut words stay cut by position."""
    if result.change is None:
        return result.loaded
    from peasy.looking.edited import Edited

    return replace(result.loaded, model=cast(Any, Edited(result.loaded.model, result.change)))


def best_of(candidates: tuple[Candidate, ...]) -> str:
    """Format the likeliest next tokens on one line.

    >>> best_of((Candidate("·tasted", 5, 0.93), Candidate("·was", 6, 0.04)))
    'tasted .93 | was .04'
    """
    return " | ".join(f"{c.piece.strip('·')} {c.chance:.2f}".replace(" 0.", " .") for c in candidates[:BEST])
