"""Effect of an intervention on the next token and on chosen words; the model under an intervention."""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput
from peasy.inspection.results import Effect

if TYPE_CHECKING:
    from peasy.commands.look_result import LookResult
    from peasy.models.protocol import Model


def next_token_effect(before: "LookResult", after: "LookResult", words: tuple[str, ...] = ()) -> Effect:
    """Compare two results of `look` on the same text: next tokens, `words`, and the KL divergence in bits."""
    if before.tokens.ids != after.tokens.ids or before.loaded.model is not after.loaded.model:
        raise InvalidInput("Results of look can be compared only for the same text and the same model.")
    added = tuple(edit for edit in after.interventions if edit not in before.interventions)
    removed = tuple(f"not: {edit}" for edit in before.interventions if edit not in after.interventions)
    effect = Effect(before.model, before.text, (*added, *removed), (), ())
    if before.logits is None or after.logits is None or not before.next_tokens:
        return effect
    p, q = (np.exp(logits.astype(np.float64) - logits.max()) for logits in (before.logits, after.logits))
    p, q = p / p.sum(), q / q.sum()
    support = p > 0
    divergence = float(np.sum(p[support] * (np.log2(p[support]) - np.log2(np.maximum(q[support], 1e-300)))))
    ids = {word: word_token_id(before.loaded, word) for word in words}
    return replace(
        effect,
        before=before.next_tokens,
        after=after.next_tokens,
        tracked_words=tuple((word, float(p[id]), float(q[id])) for word, id in ids.items()),
        kl_divergence=max(divergence, 0.0),
        max_logit_change=float(np.abs(after.logits - before.logits).max()),
    )


def word_token_id(loaded: LoadedModel, word: str) -> int:
    """First token id of a word, after a space or without one, preferring a single token."""
    tokenizer = loaded.output_tokenizer()
    encodings = [tokenizer.encode(text, add_special_tokens=False).ids for text in (f" {word}", word)]
    ids = min(filter(None, encodings), key=lambda ids: len(ids) > 1, default=())
    if not ids:
        raise InvalidInput(f'"{word}" has no token in the vocabulary of this model.')
    return ids[0]


def intervened_model(result: "LookResult") -> LoadedModel:
    """Return the model under the result's interventions, usable in any command; cut words stay cut by position."""
    if result.combined_intervention is None:
        return result.loaded
    from peasy.inspection.apply_edits import IntervenedModel

    model = IntervenedModel(result.loaded.model, result.combined_intervention)
    return replace(result.loaded, model=cast("Model", model))
