"""`peasy demo`: a worked example of attention."""

from peasy.cli.door import Answer, Flags, Page

NEXT = (
    "peasy explain i-love-ai",
    'peasy explain "The pizza came out of the oven" --causal',
    "peasy explain i-love-ai --out love.html",
    "peasy examples",
    'peasy generate stories "The pizza came out of the oven and it"',
    "peasy studio",
)


def demo(*, flags: Flags = Flags()) -> Answer:
    """Show a worked example of attention, in two seconds and offline.

    For example:

        peasy demo
    """
    from peasy.views.document import Document, Formula, Heading, Paragraph, Part
    from peasy.views.worked import arithmetic_part, step_matrix
    from peasy.workbench.explain import explain

    example = explain("i-love-ai")
    (story,) = example.story("I")
    tables = [step_matrix(example.worked, example.worked.step(name), 4) for name in ("scores", "weights", "context")]
    parts: tuple[Part, ...] = (
        Paragraph("Self-attention of three words, with every number calculated by hand."),
        Formula(example.worked.step("context").tex),
        *tables,
        Heading('Attention of "I"'),
        *(Paragraph(sentence) for sentence in story.sentences),
        Heading("The arithmetic of one number"),
        arithmetic_part(example.cell("weights", "I", "love")),
    )
    result = Page(Document(example.worked.example.title, parts), example.data())
    return Answer(result, next=NEXT)
