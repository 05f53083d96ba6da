"""A proof as a document: the verdict in one sentence, every equality with its distance, and where two roads part."""

from collections.abc import Iterator

from peasy.proof.doctor.diagnosis import CAUTION, Diagnosis, Finding
from peasy.proof.verdict import ABSENT, FAILS, Equality, Proof
from peasy.views.document import Document, Heading, Paragraph, Part, Table

MARKS = {"holds": "✓ holds", "fails": "✗ fails", ABSENT: "· not applicable"}
MEASURES = {
    "relative": "relative error",
    "largest": "largest",
    "mean": "mean",
    "kl": "mean KL",
    "top-1": "same top word",
}


def proof_document(proof: Proof) -> Document:
    """The equalities that were tried; then failures with their place, divergences, and what did not apply."""
    many = "1 text" if proof.texts == 1 else f"{proof.texts} texts"
    parts: list[Part] = [
        Paragraph(proof_sentence(proof), "good" if proof.passed else "bad"),
        Paragraph(f"{many}, {proof.tokens} tokens, numbers: {proof.numbers}."),
        *(Paragraph(note, "note") for note in proof.notes),
        Table(("equality", "verdict", "distance", "allowed"), tuple(_row(each) for each in proof.equalities)),
        Paragraph("Distance: the largest difference, over the largest number (or 1, where that is smaller).", "note"),
    ]
    failed = [each for each in proof.equalities if each.verdict == FAILS]
    if failed:
        parts += [Heading("Where two roads part"), *(Paragraph(failure_sentence(each), "bad") for each in failed)]
    parts += _divergences(proof)
    absent = tuple((each.name, each.why) for each in proof.equalities if each.verdict == ABSENT)
    if absent:
        parts += [Heading("Not applicable"), Table(("equality", "why"), absent)]
    return Document(f"{proof.model}: proved" if proof.passed else f"{proof.model}: not proved", tuple(parts))


def proof_sentence(proof: Proof) -> str:
    """All that was found, in one sentence.

    >>> proof_sentence(Proof("m", "decoder", "float32", 1, 4, (Equality("a = b", "", "holds", 0.0, 1e-4),)))
    '1 equality tried: it holds.'
    """
    tried = [each for each in proof.equalities if each.verdict != ABSENT]
    failed = [each.name for each in tried if each.verdict == FAILS]
    counted = "1 equality tried" if len(tried) == 1 else f"{len(tried)} equalities tried"
    if not failed:
        return f"{counted}: {'it holds' if len(tried) == 1 else 'all hold'}."
    return f"{counted}: {', '.join(failed)} {'fails' if len(failed) == 1 else 'fail'}."


def failure_sentence(equality: Equality) -> str:
    """What fails, and the first place where it does."""
    said = f"{equality.name} ({equality.says})"
    text = "" if equality.text is None else f" in text {equality.text + 1}"
    where = "" if equality.where is None else f": they part at {equality.where.says()}"
    return f"{said}{where}{text}. {equality.why}".strip()


def _row(equality: Equality) -> tuple[str, ...]:
    return equality.name, MARKS[equality.verdict], _figure(equality.distance), _figure(equality.tolerance)


def _figure(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def _divergences(proof: Proof) -> list[Part]:
    packed = [each for each in proof.equalities if "kl" in each.measures]
    if not packed:
        return []
    rows = tuple(
        (each.name, *(f"{each.measures[m]:.1%}" if m == "top-1" else _figure(each.measures[m]) for m in MEASURES))
        for each in packed
    )
    return [Heading("How far packed weights diverge"), Table(("weights", *MEASURES.values()), rows)]


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """The verdict, how it was called, the conventions it keeps, and each mistake with what to write instead."""
    parts: list[Part] = [
        Paragraph(diagnosis_sentence(diagnosis), "good" if diagnosis.passed else "bad"),
        Paragraph(f"Called as {diagnosis.call}. Compared: {', '.join(diagnosis.checked) or 'nothing'}."),
    ]
    for finding in diagnosis.findings:
        parts += _finding(finding)
    if diagnosis.difference is not None:
        parts.append(Paragraph(f"The first number that differs: {diagnosis.difference.says()}.", "bad"))
    if diagnosis.conventions:
        parts += [
            Heading("Conventions it keeps"),
            Table(("convention",), tuple((each,) for each in diagnosis.conventions)),
        ]
    parts += [Paragraph(note, "note") for note in diagnosis.notes]
    return Document(f"{diagnosis.name}: examined", tuple(parts))


def diagnosis_sentence(diagnosis: Diagnosis) -> str:
    """What the doctor says, in one sentence.

    >>> diagnosis_sentence(Diagnosis("attention", "function", "attention(q, k, v)"))
    'attention computes attention: nothing wrong was found.'
    """
    cautions = f" Caution: {', '.join(diagnosis.cautions)}." if diagnosis.cautions else ""
    if diagnosis.mistakes:
        more = "" if diagnosis.explained else " There is more that nothing known explains."
        return f"{diagnosis.name} is wrong: {', '.join(diagnosis.mistakes)}.{more}{cautions}"
    if not diagnosis.explained:
        return f"{diagnosis.name} does not compute attention, and no mistake that is known explains it.{cautions}"
    return f"{diagnosis.name} computes attention: nothing wrong was found.{cautions}"


def _finding(finding: Finding) -> Iterator[Part]:
    yield Heading(f"{'Caution' if finding.level == CAUTION else 'Mistake'}: {finding.name}")
    yield Paragraph(finding.says)
    rows = [("the formula", finding.formula), ("code that does this", finding.likely)]
    if finding.line is not None:
        rows.append((f"your line {finding.line}, most likely", finding.code))
    rows.append(("write instead", finding.fix))
    if finding.difference is not None:
        rows.append(("first difference", finding.difference.says()))
    yield Table((finding.level, finding.name), tuple(rows))
