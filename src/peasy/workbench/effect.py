"""What an edit does: to the next word, to words that are followed, and to loss or BLEU on data."""

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
    """The same text looked at twice: what the difference between them did. `how` is that of `evaluate`."""
    if before.look.tokens.ids != after.look.tokens.ids or before.loaded.model is not after.loaded.model:
        raise InvalidInput("Only two looks at the same text through the same model can be compared.")
    changed = tuple(each for each in after.look.edits if each not in before.look.edits)
    undone = tuple(f"not: {each}" for each in before.look.edits if each not in after.look.edits)
    nexts = _nexts(before, after, words)
    measures = () if data is None else _measures(before, after, data, **how)
    found = Effect(before.look.model, before.look.tokens.text, (*changed, *undone), **nexts, measures=measures)
    return Finding(found, lambda: effect_document(found))


def _nexts(before: LookResult, after: LookResult, words: tuple[str, ...]) -> dict[str, Any]:
    """The next word before and after, and how far the two distributions lie apart."""
    if before.scores is None or after.scores is None or not before.look.next:
        return {"before": (), "after": ()}
    first, second = _chances(before.scores), _chances(after.scores)
    seen = first > 0
    divergence = float(np.sum(first[seen] * (np.log2(first[seen]) - np.log2(np.maximum(second[seen], 1e-300)))))
    return {
        "before": before.look.next,
        "after": after.look.next,
        "words": tuple(
            (word, float(first[id]), float(second[id])) for word in words for id in [_id(before.loaded, word)]
        ),
        "divergence": max(divergence, 0.0),
        "scores": float(np.abs(after.scores - before.scores).max()),
    }


def _chances(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores.astype(np.float64) - scores.max())
    return shifted / shifted.sum()


def _id(loaded: LoadedModel, word: str) -> int:
    """The first token of a word, as it would stand after a space or as it is."""
    tokenizer = loaded.answers()
    known: list[tuple[int, ...]] = [tokenizer.encode(text, special=False).ids for text in (f" {word}", word)]
    one = next((ids for ids in known if len(ids) == 1), next((ids for ids in known if ids), None))
    if not one:
        raise InvalidInput(f'"{word}" is no word that this model could say.')
    return one[0]


def _measures(before: LookResult, after: LookResult, data: Any, **how: Any) -> tuple[tuple[str, float, float], ...]:
    """Loss, perplexity, BLEU, ...: the evaluation of both on the same data."""
    from peasy.workbench.evaluate import evaluate

    first, second = (
        {m.name: m.value for m in evaluate(edited(each), data, **how).facts.measures} for each in (before, after)
    )
    return tuple((name, first[name], second[name]) for name in first if name in second)


def edited(result: LookResult) -> LoadedModel:
    """The model of a look, under its edits, ready for any verb. Words that were cut are cut by their places."""
    if result.change is None:
        return result.loaded
    from peasy.looking.edited import Edited

    return replace(result.loaded, model=cast(Any, Edited(result.loaded.model, result.change)))


def best_of(candidates: tuple[Candidate, ...]) -> str:
    """The likeliest next words on one line.

    >>> best_of((Candidate("·tasted", 5, 0.93), Candidate("·was", 6, 0.04)))
    'tasted .93 | was .04'
    """
    return " | ".join(f"{each.piece.strip('·')} {each.chance:.2f}".replace(" 0.", " .") for each in candidates[:BEST])
