"""A plan as a document: the verdict is good or bad, never only coloured."""

from peasy.views.document import Arithmetic, Paragraph
from peasy.views.plan import PlanFacts, plan_document


def test_the_verdict_has_its_tone_and_the_formulas_their_numbers():
    sums = (("weights", ("weights = 4 · 10 = 40 bytes",)),)
    page = plan_document(
        PlanFacts("A plan", "Says.", (("a", "b", "c"),), sums, ("A note.",), ("It does not fit.", False))
    )
    tones = [part.tone for part in page.parts if isinstance(part, Paragraph)]
    assert tones == ["plain", "bad", "note"]
    assert [part.lines for part in page.parts if isinstance(part, Arithmetic)] == [("weights = 4 · 10 = 40 bytes",)]
