"""Training plan document."""

from peasy.views.document import Arithmetic, Paragraph
from peasy.views.training import PlanFacts, plan_document


def test_verdict_tone_and_formulas():
    formulas = (("weights", ("weights = 4 · 10 = 40 bytes",)),)
    document = plan_document(
        PlanFacts("A plan", "A description.", (("a", "b", "c"),), formulas, ("A note.",), ("It does not fit.", False))
    )
    tones = [part.tone for part in document.parts if isinstance(part, Paragraph)]
    assert tones == ["plain", "bad", "note"]
    assert [part.lines for part in document.parts if isinstance(part, Arithmetic)] == [("weights = 4 · 10 = 40 bytes",)]
