"""Verification results as documents: verdict, every equality with its distance, first divergence, diagnosis."""

from collections.abc import Iterator

from peasy.verification.verdict import CAUTION, FAILS, NOT_APPLICABLE, Diagnosis, Equality, ImplementationFinding, Proof
from peasy.views.document import Document, DocumentPart, Heading, Paragraph, Table

VERDICT_LABELS = {"holds": "✓ holds", "fails": "✗ fails", NOT_APPLICABLE: "· not applicable"}
DIVERGENCE_METRICS = {
    "rms_error": "RMS error",
    "max_error": "max error",
    "mean_error": "mean error",
    "kl": "mean KL",
    "top-1": "same top token",
}


def proof_document(proof: Proof) -> Document:
    """Document with all equalities, failures with their position, divergences, and what did not apply."""
    texts = "1 text" if proof.num_sequences == 1 else f"{proof.num_sequences} texts"
    rows = tuple(
        (one.name, VERDICT_LABELS[one.verdict], _format_distance(one.distance), _format_distance(one.tolerance))
        for one in proof.equalities
    )
    parts: list[DocumentPart] = [
        Paragraph(proof_sentence(proof), "good" if proof.passed else "bad"),
        Paragraph(f"{texts}, {proof.num_tokens} tokens, dtype: {proof.dtype}."),
        *(Paragraph(note, "note") for note in proof.notes),
        Table(("equality", "verdict", "distance", "tolerance"), rows),
        Paragraph("Distance: the largest difference, divided by the largest absolute value (at least 1).", "note"),
    ]
    failed = [equality for equality in proof.equalities if equality.verdict == FAILS]
    if failed:
        parts += [Heading("First divergence"), *(Paragraph(failure_sentence(one), "bad") for one in failed)]
    parts += _divergences(proof)
    absent = tuple(
        (equality.name, equality.reason) for equality in proof.equalities if equality.verdict == NOT_APPLICABLE
    )
    if absent:
        parts += [Heading("Not applicable"), Table(("equality", "reason"), absent)]
    return Document(f"{proof.model}: verified" if proof.passed else f"{proof.model}: not verified", tuple(parts))


def proof_sentence(proof: Proof) -> str:
    """Return the verdict in one sentence.

    >>> proof_sentence(Proof("m", "decoder", "float32", 1, 4, (Equality("a = b", "", "holds", 0.0, 1e-4),)))
    '1 equality checked: it holds.'
    """
    checked = [equality for equality in proof.equalities if equality.verdict != NOT_APPLICABLE]
    failed = [equality.name for equality in checked if equality.verdict == FAILS]
    counted = "1 equality checked" if len(checked) == 1 else f"{len(checked)} equalities checked"
    if not failed:
        return f"{counted}: {'it holds' if len(checked) == 1 else 'all hold'}."
    return f"{counted}: {', '.join(failed)} {'fails' if len(failed) == 1 else 'fail'}."


def failure_sentence(equality: Equality) -> str:
    """Return which equality fails, and where the two results first diverge."""
    name = f"{equality.name} ({equality.description})"
    text = "" if equality.sequence is None else f" in text {equality.sequence + 1}"
    where = "" if equality.divergence is None else f": first divergence at {equality.divergence.summary()}"
    return f"{name}{where}{text}. {equality.reason}".strip()


def _format_distance(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def _divergences(proof: Proof) -> list[DocumentPart]:
    packed = [equality for equality in proof.equalities if "kl" in equality.metrics]
    if not packed:
        return []
    rows = []
    for one in packed:
        values = {name: _format_distance(one.metrics[name]) for name in DIVERGENCE_METRICS}
        rows.append((one.name, *(values | {"top-1": f"{one.metrics['top-1']:.1%}"}).values()))
    return [Heading("Divergence of packed weights"), Table(("weights", *DIVERGENCE_METRICS.values()), tuple(rows))]


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """Document with the verdict, the call, detected conventions, and each mistake with its fix."""
    parts: list[DocumentPart] = [
        Paragraph(diagnosis_sentence(diagnosis), "good" if diagnosis.passed else "bad"),
        Paragraph(f"Called as {diagnosis.call}. Compared: {', '.join(diagnosis.checks) or 'nothing'}."),
    ]
    for finding in diagnosis.findings:
        parts += _finding_parts(finding)
    if diagnosis.difference is not None:
        parts.append(Paragraph(f"First difference: {diagnosis.difference.summary()}.", "bad"))
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


def _finding_parts(finding: ImplementationFinding) -> Iterator[DocumentPart]:
    yield Heading(f"{'Caution' if finding.level == CAUTION else 'Mistake'}: {finding.name}")
    yield Paragraph(finding.description)
    rows = [("formula", finding.formula), ("typical code with this mistake", finding.likely_code)]
    if finding.line is not None:
        rows.append((f"your line {finding.line}, probably", finding.code))
    rows.append(("fix", finding.fix))
    if finding.difference is not None:
        rows.append(("first difference", finding.difference.summary()))
    yield Table((finding.level, finding.name), tuple(rows))
