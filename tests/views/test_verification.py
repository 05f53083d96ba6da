"""Documents of verification and diagnosis: verdict, first divergence, reasons."""

from peasy.verification.verdict import (
    Diagnosis,
    DivergencePoint,
    Equality,
    ImplementationFinding,
    Proof,
)
from peasy.views.document import Paragraph, Table
from peasy.views.verification import diagnosis_document, diagnosis_sentence, proof_document, proof_sentence

WHERE = DivergencePoint("decoder", 1, "attention", "context", 2, 5)
HELD = Equality("saved = original", "", "holds", 0.0, 1e-4)
FAILED = Equality("cached = uncached", "token by token", "fails", 0.5, 1e-4, divergence=WHERE, sequence=0)
ABSENT = Equality("exported = original", "", "not applicable", reason="No other format has it.")
NEAR = Equality("packed int8 ≈ full", "", "holds", 0.02, 0.1, metrics={
    "rms_error": 0.02, "max_error": 0.03, "mean_error": 0.01, "kl": 1e-4, "top-1": 0.99})  # fmt: skip


def proof(*equalities):
    return Proof("it", "decoder", "float32", 2, 9, equalities)


def words(document):
    return "\n".join(part.text for part in document.parts if isinstance(part, Paragraph))


def tables(document):
    return [part for part in document.parts if isinstance(part, Table)]


def test_failure_has_its_position():
    document = proof_document(proof(HELD, FAILED, ABSENT))
    assert document.title == "it: not verified"
    assert "2 equalities checked: cached = uncached fails." in words(document)
    assert "first divergence at decoder, layer 1, attention, head 2, position 5 (context) in text 1" in words(document)
    assert tables(document)[0].rows[1] == ("cached = uncached", "✗ fails", "5.0e-01", "1.0e-04")
    assert tables(document)[1].rows == (("exported = original", "No other format has it."),)


def test_divergence_table():
    assert tables(proof_document(proof(NEAR)))[1].rows[0][-1] == "99.0%"


def test_sentence_counts_checked_equalities():
    assert proof_sentence(proof(HELD, NEAR, ABSENT)) == "2 equalities checked: all hold."


def finding(name, level):
    return ImplementationFinding(name, level, "description", "formula", "likely", "fix", 4, "code")


def test_diagnosis_separates_mistakes_from_cautions():
    found = Diagnosis(
        "f", "function", "f(q, k, v)", "wrong", findings=(finding("no scale", "mistake"), finding("NaN", "caution"))
    )
    assert diagnosis_sentence(found) == "f is wrong: no scale. Caution: NaN."
    rows = [row for table in tables(diagnosis_document(found)) for row in table.rows]
    assert ("your line 4", "code") in rows
    assert found.passed is False
    assert Diagnosis("f", "function", "", findings=(finding("NaN", "caution"),)).passed is True


def test_what_was_not_compared_says_why_and_how_to_call_it():
    found = Diagnosis("f", "function", "f(q)", "not compared", unknown=("No softmax was seen.",))
    assert found.passed is None
    assert diagnosis_sentence(found) == "f was not compared with the formula: no softmax was seen."
    assert "--call" in words(diagnosis_document(found))
