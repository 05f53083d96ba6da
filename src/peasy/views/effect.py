"""Effect of an intervention as a document: next-token probabilities before and after, tracked words, metrics."""

from peasy.looking.record import Effect
from peasy.views.attention import opening, short_title
from peasy.views.document import Cell, Document, Paragraph, Part, Table


def effect_document(effect: Effect) -> Document:
    """Document with the values before and after the intervention side by side."""
    parts: list[Part] = [*opening(effect.edits), Table(("next token", "before", "after", "change"), _nexts(effect))]
    if effect.words:
        rows = tuple((word, before, after, after - before) for word, before, after in effect.words)
        parts.append(Table(("word", "before", "after", "change"), rows, "Tracked words"))
    if effect.measures:
        rows = tuple((name, before, after, after - before) for name, before, after in effect.measures)
        parts.append(Table(("metric", "before", "after", "change"), rows, "Metrics on data"))
    summary = [
        f"KL divergence of the next-token distributions: {effect.divergence:.4f} bits."
        if effect.divergence is not None
        else "",
        f"Largest change of a logit: {effect.scores:.4f}." if effect.scores is not None else "",
    ]
    if any(summary):
        parts.append(Paragraph(" ".join(filter(None, summary))))
    return Document(f"Effect of the intervention: {short_title(effect.text, effect.model)}", tuple(parts))


def _nexts(effect: Effect) -> tuple[tuple[Cell, ...], ...]:
    """Rows of all tokens that are likely before or after; empty where a token is not among the most likely."""
    before = {candidate.id: candidate for candidate in effect.before}
    after = {candidate.id: candidate for candidate in effect.after}
    rows: list[tuple[Cell, ...]] = []
    for token_id in dict.fromkeys([*before, *after]):
        was, now = before.get(token_id), after.get(token_id)
        candidate = was or now
        assert candidate is not None
        change = now.chance - was.chance if was and now else None
        rows.append((candidate.piece, was.chance if was else None, now.chance if now else None, change))
    return tuple(rows)
