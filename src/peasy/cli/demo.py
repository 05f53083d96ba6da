"""`peasy demo`: a worked example of attention."""

from peasy.cli.command import CommandOutput, DocumentResult, Flags

SUGGESTIONS = (
    "peasy explain i-love-ai",
    'peasy explain "The pizza came out of the oven" --causal',
    "peasy explain i-love-ai --out love.html",
    "peasy examples",
    'peasy generate stories "The pizza came out of the oven and it"',
    "peasy studio",
)


def demo(*, flags: Flags = Flags()) -> CommandOutput:
    """Show a worked example of attention, in two seconds and offline.

    For example:

        peasy demo
    """
    from peasy.commands.explain import explain
    from peasy.views.document import Document, DocumentPart, Formula, Heading, Paragraph
    from peasy.views.worked import arithmetic_part, step_matrix

    example = explain("i-love-ai")
    (story,) = example.story("I")
    tables = [step_matrix(example.worked, example.worked.step(name), 4) for name in ("scores", "weights", "context")]
    parts: tuple[DocumentPart, ...] = (
        Paragraph("Self-attention of three words, with every number calculated by hand."),
        Formula(example.worked.step("context").tex),
        *tables,
        Heading('Attention of "I"'),
        *(Paragraph(sentence) for sentence in story.sentences),
        Heading("The arithmetic of one number"),
        arithmetic_part(example.cell("weights", "I", "love")),
    )
    result = DocumentResult(Document(example.worked.example.title, parts), example.data())
    return CommandOutput(result, suggestions=SUGGESTIONS)
