"""Verification results as documents: verdict, every equality with its distance, first divergence, diagnosis."""

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
    "top-1": "same top token",
}


def proof_document(proof: Proof) -> Document:
    """Document with all equalities, failures with their position, divergences, and what did not apply."""
    texts = "1 text" if proof.texts == 1 else f"{proof.texts} texts"
    parts: list[Part] = [
        Paragraph(proof_sentence(proof), "good" if proof.passed else "bad"),
        Paragraph(f"{texts}, {proof.tokens} tokens, dtype: {proof.numbers}."),
        *(Paragraph(note, "note") for note in proof.notes),
        Table(("equality", "verdict", "distance", "tolerance"), tuple(_row(equality) for equality in proof.equalities)),
        Paragraph("Distance: the largest difference, divided by the largest absolute value (at least 1).", "note"),
    ]
    failed = [equality for equality in proof.equalities if equality.verdict == FAILS]
    if failed:
        parts += [Heading("First divergence"), *(Paragraph(failure_sentence(one), "bad") for one in failed)]
    parts += _divergences(proof)
    absent = tuple((equality.name, equality.why) for equality in proof.equalities if equality.verdict == ABSENT)
    if absent:
        parts += [Heading("Not applicable"), Table(("equality", "reason"), absent)]
    return Document(f"{proof.model}: verified" if proof.passed else f"{proof.model}: not verified", tuple(parts))


def proof_sentence(proof: Proof) -> str:
    """Return the verdict in one sentence.

    >>> proof_sentence(Proof("m", "decoder", "float32", 1, 4, (Equality("a = b", "", "holds", 0.0, 1e-4),)))
    '1 equality checked: it holds.'
    """
    checked = [equality for equality in proof.equalities if equality.verdict != ABSENT]
    failed = [equality.name for equality in checked if equality.verdict == FAILS]
    counted = "1 equality checked" if len(checked) == 1 else f"{len(checked)} equalities checked"
    if not failed:
        return f"{counted}: {'it holds' if len(checked) == 1 else 'all hold'}."
    return f"{counted}: {', '.join(failed)} {'fails' if len(failed) == 1 else 'fail'}."


def failure_sentence(equality: Equality) -> str:
    """Return which equality fails, and where the two results first diverge."""
    name = f"{equality.name} ({equality.says})"
    text = "" if equality.text is None else f" in text {equality.text + 1}"
    where = "" if equality.where is None else f": first divergence at {equality.where.says()}"
    return f"{name}{where}{text}. {equality.why}".strip()


def _row(equality: Equality) -> tuple[str, ...]:
    return equality.name, MARKS[equality.verdict], _figure(equality.distance), _figure(equality.tolerance)


def _figure(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def _divergences(proof: Proof) -> list[Part]:
    packed = [equality for equality in proof.equalities if "kl" in equality.measures]
    if not packed:
        return []
    rows = tuple(
        (one.name, *(f"{one.measures[m]:.1%}" if m == "top-1" else _figure(one.measures[m]) for m in MEASURES))
        for one in packed
    )
    return [Heading("Divergence of packed weights"), Table(("weights", *MEASURES.values()), rows)]


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """Document with the verdict, the call, detected conventions, and each mistake with its fix."""
    parts: list[Part] = [
        Paragraph(diagnosis_sentence(diagnosis), "good" if diagnosis.passed else "bad"),
        Paragraph(f"Called as {diagnosis.call}. Compared: {', '.join(diagnosis.checked) or 'nothing'}."),
    ]
    for finding in diagnosis.findings:
        parts += _finding(finding)
    if diagnosis.difference is not None:
        parts.append(Paragraph(f"First difference: {diagnosis.difference.says()}.", "bad"))
    if diagnosis.conventions:
        parts += [
            Heading("Detected conventions"),
            Table(("convention",), tuple((convention,) for convention in diagnosis.conventions)),
        ]
    parts += [Paragraph(note, "note") for note in diagnosis.notes]
    return Document(f"{diagnosis.name}: checked", tuple(parts))


def diagnosis_sentence(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in one sentence.

    >>> diagnosis_sentence(Diagnosis("attention", "function", "attention(q, k, v)"))
    'attention computes attention: no mistake found.'
    """
    cautions = f" Caution: {', '.join(diagnosis.cautions)}." if diagnosis.cautions else ""
    if diagnosis.mistakes:
        more = "" if diagnosis.explained else " Other differences match no known mistake."
        return f"{diagnosis.name} is wrong: {', '.join(diagnosis.mistakes)}.{more}{cautions}"
    if not diagnosis.explained:
        return f"{diagnosis.name} does not compute attention, and no known mistake explains it.{cautions}"
    return f"{diagnosis.name} computes attention: no mistake found.{cautions}"


def _finding(finding: Finding) -> Iterator[Part]:
    yield Heading(f"{'Caution' if finding.level == CAUTION else 'Mistake'}: {finding.name}")
    yield Paragraph(finding.says)
    rows = [("formula", finding.formula), ("typical code with this mistake", finding.likely)]
    if finding.line is not None:
        rows.append((f"your line {finding.line}, probably", finding.code))
    rows.append(("fix", finding.fix))
    if finding.difference is not None:
        rows.append(("first difference", finding.difference.says()))
    yield Table((finding.level, finding.name), tuple(rows))
