"""Effect of an intervention as a document: next-token probabilities before and after, tracked words, metrics."""

from peasy.inspection.results import Effect
from peasy.views.attention import opening_notes, short_title
from peasy.views.document import Cell, Document, DocumentPart, Paragraph, Table


def effect_document(effect: Effect) -> Document:
    """Document with the values before and after the intervention side by side."""
    parts: list[DocumentPart] = [
        *opening_notes(effect.interventions),
        Table(("next token", "before", "after", "change"), _next_token_rows(effect)),
    ]
    if effect.tracked_words:
        rows = tuple((word, before, after, after - before) for word, before, after in effect.tracked_words)
        parts.append(Table(("word", "before", "after", "change"), rows, "Tracked words"))
    if effect.metrics:
        rows = tuple((name, before, after, after - before) for name, before, after in effect.metrics)
        parts.append(Table(("metric", "before", "after", "change"), rows, "Metrics on data"))
    summary = [
        f"KL divergence of the next-token distributions: {effect.kl_divergence:.4f} bits."
        if effect.kl_divergence is not None
        else "",
        f"Largest change of a logit: {effect.max_logit_change:.4f}." if effect.max_logit_change is not None else "",
    ]
    if any(summary):
        parts.append(Paragraph(" ".join(filter(None, summary))))
    return Document(f"Effect of the intervention: {short_title(effect.text, effect.model)}", tuple(parts))


def _next_token_rows(effect: Effect) -> tuple[tuple[Cell, ...], ...]:
    """Rows of all tokens that are likely before or after; empty where a token is not among the most likely."""
    before = {candidate.id: candidate for candidate in effect.before}
    after = {candidate.id: candidate for candidate in effect.after}
    rows: list[tuple[Cell, ...]] = []
    for token_id in dict.fromkeys([*before, *after]):
        was, now = before.get(token_id), after.get(token_id)
        candidate = was or now
        assert candidate is not None
        change = now.probability - was.probability if was and now else None
        rows.append((candidate.piece, was.probability if was else None, now.probability if now else None, change))
    return tuple(rows)
