"""Effect of an intervention on the next token, on chosen words, and on loss or BLEU of a data set."""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel
from peasy.commands.look_result import LookResult
from peasy.errors import InvalidInput, with_checked_keywords
from peasy.inspection.label import TokenProbability
from peasy.inspection.results import Effect
from peasy.views.effect import effect_document

NUM_CANDIDATES = 5


def compare_look_results(
    before: LookResult, after: LookResult, words: tuple[str, ...] = (), data: Any = None, **options: Any
) -> AnalysisResult:
    """Compare two results of `look` on the same text under different interventions. `options` go to `evaluate`."""
    if before.record.tokens.ids != after.record.tokens.ids or before.loaded.model is not after.loaded.model:
        raise InvalidInput("Results of look can be compared only for the same text and the same model.")
    added = tuple(edit for edit in after.record.interventions if edit not in before.record.interventions)
    removed = tuple(f"not: {edit}" for edit in before.record.interventions if edit not in after.record.interventions)
    next_token = _next_token_effect(before, after, words)
    measures = () if data is None else _evaluate_both(before, after, data, **options)
    effect = Effect(before.record.model, before.record.tokens.text, (*added, *removed), **next_token, metrics=measures)
    return AnalysisResult(effect, lambda: effect_document(effect))


def _next_token_effect(before: LookResult, after: LookResult, words: tuple[str, ...]) -> dict[str, Any]:
    """Next-token candidates before and after, probabilities of `words`, and the KL divergence in bits."""
    if before.logits is None or after.logits is None or not before.record.next_tokens:
        return {"before": (), "after": ()}
    p, q = _softmax(before.logits), _softmax(after.logits)
    support = p > 0
    divergence = float(np.sum(p[support] * (np.log2(p[support]) - np.log2(np.maximum(q[support], 1e-300)))))
    return {
        "before": before.record.next_tokens,
        "after": after.record.next_tokens,
        "tracked_words": tuple(
            (word, float(p[id]), float(q[id])) for word in words for id in [_word_token_id(before.loaded, word)]
        ),
        "kl_divergence": max(divergence, 0.0),
        "max_logit_change": float(np.abs(after.logits - before.logits).max()),
    }


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits.astype(np.float64) - logits.max())
    return exponentials / exponentials.sum()


def _word_token_id(loaded: LoadedModel, word: str) -> int:
    """First token id of a word, after a space or without one, preferring a single token."""
    tokenizer = loaded.output_tokenizer()
    encodings: list[tuple[int, ...]] = [
        tokenizer.encode(text, add_special_tokens=False).ids for text in (f" {word}", word)
    ]
    ids = next((ids for ids in encodings if len(ids) == 1), next((ids for ids in encodings if ids), None))
    if not ids:
        raise InvalidInput(f'"{word}" has no token in the vocabulary of this model.')
    return ids[0]


def _evaluate_both(
    before: LookResult, after: LookResult, data: Any, **options: Any
) -> tuple[tuple[str, float, float], ...]:
    """Loss, perplexity, BLEU, ... of both models on the same data."""
    from peasy.commands.evaluate import evaluate

    checked = with_checked_keywords(evaluate)
    first, second = (
        {m.name: m.value for m in checked(intervened_model(result), data, **options).facts.metrics}
        for result in (before, after)
    )
    return tuple((name, first[name], second[name]) for name in first if name in second)


def intervened_model(result: LookResult) -> LoadedModel:
    """Return the model under the result's interventions, usable in any command; cut words stay cut by position."""
    if result.combined_intervention is None:
        return result.loaded
    from peasy.inspection.apply_interventions import IntervenedModel

    return replace(result.loaded, model=cast(Any, IntervenedModel(result.loaded.model, result.combined_intervention)))


def format_candidates(candidates: tuple[TokenProbability, ...]) -> str:
    """Format the likeliest next tokens on one line.

    >>> format_candidates((TokenProbability("·tasted", 5, 0.93), TokenProbability("·was", 6, 0.04)))
    'tasted .93 | was .04'
    """
    return " | ".join(
        f"{c.piece.strip('·')} {c.probability:.2f}".replace(" 0.", " .") for c in candidates[:NUM_CANDIDATES]
    )
