"""Verification results as documents: verdict, every equality with its distance, first divergence, diagnosis."""

from collections.abc import Sequence
from xml.etree import ElementTree

from peasy.verification.verdict import CAUTION, FAILS, NOT_APPLICABLE, Diagnosis, ImplementationFinding, Proof
from peasy.views.document import Document, DocumentPart, Heading, Paragraph, Table

_VERDICT_LABELS = {"holds": "✓ holds", "fails": "✗ fails", NOT_APPLICABLE: "· not applicable"}
_DIVERGENCE_METRICS = {
    "rms_error": "RMS error", "max_error": "max error", "mean_error": "mean error", "kl": "mean KL",
    "top-1": "same top token",
}  # fmt: skip


def proof_document(proof: Proof) -> Document:
    """Document with all equalities, failures with their position, divergences, and what did not apply."""
    texts = "1 text" if proof.num_sequences == 1 else f"{proof.num_sequences} texts"
    rows = tuple(
        (one.name, _VERDICT_LABELS[one.verdict], _format_distance(one.distance), _format_distance(one.tolerance))
        for one in proof.equalities
    )
    parts: list[DocumentPart] = [
        Paragraph(proof_sentence(proof), "good" if proof.passed else "bad"),
        Paragraph(f"{texts}, {proof.num_tokens} tokens, dtype: {proof.dtype}."),
        *(Paragraph(note, "note") for note in proof.notes),
        Table(("equality", "verdict", "distance", "tolerance"), rows),
        Paragraph("Distance: the largest difference, divided by the largest absolute value (at least 1).", "note"),
    ]
    failed = [one for one in proof.equalities if one.verdict == FAILS]
    parts += [Heading("First divergence")] if failed else []
    for one in failed:
        where = "" if one.divergence is None else f": first divergence at {one.divergence.summary()}"
        where += "" if one.sequence is None else f" in text {one.sequence + 1}"
        parts.append(Paragraph(f"{one.name} ({one.description}){where}. {one.reason}".strip(), "bad"))
    packed = [equality for equality in proof.equalities if "kl" in equality.metrics]
    if packed:
        divergences = []
        for one in packed:
            values = {name: _format_distance(one.metrics[name]) for name in _DIVERGENCE_METRICS}
            divergences.append((one.name, *(values | {"top-1": f"{one.metrics['top-1']:.1%}"}).values()))
        table = Table(("weights", *_DIVERGENCE_METRICS.values()), tuple(divergences))
        parts += [Heading("Divergence of packed weights"), table]
    absent = tuple((one.name, one.reason) for one in proof.equalities if one.verdict == NOT_APPLICABLE)
    if absent:
        parts += [Heading("Not applicable"), Table(("equality", "reason"), absent)]
    return Document(f"{proof.model}: verified" if proof.passed else f"{proof.model}: not verified", tuple(parts))


def proof_sentence(proof: Proof) -> str:
    """Return the verdict in one sentence.

    >>> from peasy.verification.verdict import Equality
    >>> proof_sentence(Proof("m", "decoder", "float32", 1, 4, (Equality("a = b", "", "holds", 0.0, 1e-4),)))
    '1 equality checked: it holds.'
    """
    checked = [equality for equality in proof.equalities if equality.verdict != NOT_APPLICABLE]
    failed = [equality.name for equality in checked if equality.verdict == FAILS]
    counted = "1 equality checked" if len(checked) == 1 else f"{len(checked)} equalities checked"
    if not failed:
        return f"{counted}: {'it holds' if len(checked) == 1 else 'all hold'}."
    return f"{counted}: {', '.join(failed)} {'fails' if len(failed) == 1 else 'fail'}."


def _format_distance(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


_STYLES = {True: "good", False: "bad", None: "note"}
_MARKS = {True: "✓", False: "✗", None: "?"}


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """Document with the verdict, the call, detected conventions, and each mistake with its fix."""
    parts: list[DocumentPart] = [Paragraph(diagnosis_sentence(diagnosis), _STYLES[diagnosis.passed])]
    if diagnosis.call:
        also = f" Also tried: {', '.join(diagnosis.checks)}." if diagnosis.checks else ""
        parts.append(Paragraph(f"Called as {diagnosis.call}.{also}"))
    for finding in diagnosis.findings:
        parts.append(Heading(f"{'Caution' if finding.level == CAUTION else 'Mistake'}: {finding.name}"))
        parts.append(Paragraph(finding.description))
        rows = [("formula", finding.formula), ("typical code with this mistake", finding.likely_code)]
        if finding.line is not None:
            where = f"{finding.file}, line {finding.line}" if finding.file else f"your line {finding.line}"
            rows.append((where, finding.code))
        rows.append(("fix", finding.fix))
        parts.append(Table((finding.level, finding.name), tuple(rows)))
    if diagnosis.unknown:
        reasons = tuple((reason,) for reason in diagnosis.unknown)
        parts += [Heading("Not compared"), Table(("what was seen",), reasons)]
    if diagnosis.passed is None:
        parts.append(Paragraph('If the call is not the right one, give it: --call "attention(q, k, v)".', "note"))
    if diagnosis.conventions:
        listed = tuple((convention,) for convention in diagnosis.conventions)
        parts += [Heading("Detected conventions"), Table(("convention",), listed)]
    parts += [Paragraph(note, "note") for note in diagnosis.notes]
    return Document(f"{diagnosis.name}: {diagnosis.verdict}", tuple(parts))


def diagnosis_sentence(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in one sentence.

    >>> diagnosis_sentence(Diagnosis("attend", "function", "attend(q, k, v)", num_compared=3, max_difference=2e-7))
    'attend equals the formula: compared in 3 calls, largest difference 2.0e-07.'
    """
    cautions = f" Caution: {', '.join(diagnosis.cautions)}." if diagnosis.cautions else ""
    if diagnosis.mistakes:
        return f"{diagnosis.name} is wrong: {', '.join(diagnosis.mistakes)}.{cautions}"
    if diagnosis.passed is None:
        reason = diagnosis.unknown[0] if diagnosis.unknown else "nothing could be compared."
        return f"{diagnosis.name} was not compared with the formula: {reason[:1].lower()}{reason[1:]}{cautions}"
    calls = "1 call" if diagnosis.num_compared == 1 else f"{diagnosis.num_compared} calls"
    difference = f"largest difference {diagnosis.max_difference:.1e}"
    return f"{diagnosis.name} equals the formula: compared in {calls}, {difference}.{cautions}"


def folder_sentence(diagnoses: Sequence[Diagnosis]) -> str:
    """Return how many diagnoses have which verdict.

    >>> folder_sentence([Diagnosis("a.py:f", "function", "f(q, k, v)")])
    '1 examined: 1 equal, 0 wrong, 0 not compared.'
    """
    counts = [sum(diagnosis.passed is passed for diagnosis in diagnoses) for passed in (True, False, None)]
    return f"{len(diagnoses)} examined: {counts[0]} equal, {counts[1]} wrong, {counts[2]} not compared."


def folder_document(folder: str, diagnoses: Sequence[Diagnosis]) -> Document:
    """Document with one row for everything that looks like attention."""
    rows = []
    for diagnosis in diagnoses:
        lines = [f"line {finding.line}" for finding in diagnosis.findings if finding.line]
        details = [*diagnosis.mistakes, *lines, *diagnosis.cautions, *diagnosis.unknown[:1]]
        rows.append((f"{_MARKS[diagnosis.passed]} {diagnosis.verdict}", diagnosis.name, "; ".join(details)))
    sentence = Paragraph(folder_sentence(diagnoses), "bad" if any(one.passed is False for one in diagnoses) else "note")
    return Document(f"Attention in {folder}", (sentence, Table(("verdict", "code", "details"), tuple(rows))))


def junit_report(diagnoses: Sequence[Diagnosis]) -> str:
    """Return a JUnit XML report: wrong code is a failure, code that was not compared is skipped."""
    suite = ElementTree.Element("testsuite", name="peasy prove", tests=str(len(diagnoses)))
    for diagnosis in diagnoses:
        case = ElementTree.SubElement(suite, "testcase", classname="peasy.prove", name=_xml_text(diagnosis.name))
        sentence = _xml_text(diagnosis_sentence(diagnosis))
        if diagnosis.passed is None:
            ElementTree.SubElement(case, "skipped", message=sentence)
        elif not diagnosis.passed:
            failure = ElementTree.SubElement(case, "failure", message=sentence)
            failure.text = "\n".join(_xml_text(_finding_line(finding)) for finding in diagnosis.findings)
    suite.set("failures", str(sum(diagnosis.passed is False for diagnosis in diagnoses)))
    suite.set("skipped", str(sum(diagnosis.passed is None for diagnosis in diagnoses)))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml_text(text: str) -> str:
    """Return text without the control characters that XML cannot hold."""
    return "".join(letter for letter in text if letter >= " " or letter in "\n\t")


def _finding_line(finding: ImplementationFinding) -> str:
    where = f"{finding.file or 'line'} {finding.line}: {finding.code}" if finding.line else "no certain line"
    return f"{finding.name} ({where}). {finding.description} Fix: {finding.fix}"
