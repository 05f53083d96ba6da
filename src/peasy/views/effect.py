"""What an edit changed, as a document: the next word before and after, followed words, and measures on data."""

from peasy.looking.record import Effect
from peasy.views.attention import opening, short_title
from peasy.views.document import Cell, Document, Paragraph, Part, Table


def effect_document(effect: Effect) -> Document:
    """Before and after, side by side."""
    parts: list[Part] = [*opening(effect.edits), Table(("next", "before", "after", "change"), _nexts(effect))]
    if effect.words:
        rows = tuple((word, before, after, after - before) for word, before, after in effect.words)
        parts.append(Table(("word", "before", "after", "change"), rows, "Words that were followed"))
    if effect.measures:
        rows = tuple((name, before, after, after - before) for name, before, after in effect.measures)
        parts.append(Table(("measure", "before", "after", "change"), rows, "On data"))
    said = [f"{effect.divergence:.4f} bits lie between both distributions" if effect.divergence is not None else "",
            f"the largest change of a score is {effect.scores:.4f}" if effect.scores is not None else ""]  # fmt: skip
    listed = "; ".join(each for each in said if each)
    if listed:
        parts.append(Paragraph(f"{listed[:1].upper()}{listed[1:]}."))
    return Document(f"Changed: {short_title(effect.text, effect.model)}", tuple(parts))


def _nexts(effect: Effect) -> tuple[tuple[Cell, ...], ...]:
    """Every token that is likely before or after; nothing where it is not among the likeliest."""
    before = {each.id: each for each in effect.before}
    after = {each.id: each for each in effect.after}
    rows: list[tuple[Cell, ...]] = []
    for number in dict.fromkeys([*before, *after]):
        was, now = before.get(number), after.get(number)
        known = was or now
        assert known is not None
        change = now.chance - was.chance if was and now else None
        rows.append((known.piece, was.chance if was else None, now.chance if now else None, change))
    return tuple(rows)
