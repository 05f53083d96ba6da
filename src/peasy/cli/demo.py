"""`peasy demo`."""

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
    """A worked result in two seconds, offline.

    For example:

        peasy demo
    """
    from peasy.views.document import Document, Formula, Heading, Paragraph, Part
    from peasy.views.worked import arithmetic_part, step_matrix
    from peasy.workbench.explain import explain

    love = explain("i-love-ai")
    (story,) = love.story("I")
    tables = [step_matrix(love.worked, love.worked.step(name), 4) for name in ("scores", "weights", "context")]
    parts: tuple[Part, ...] = (
        Paragraph("Three words look at each other: every number of attention, calculated by hand."),
        Formula(love.worked.step("context").tex),
        *tables,
        Heading('What "I" does with it'),
        *(Paragraph(sentence) for sentence in story.sentences),
        Heading("Any number opens to its arithmetic"),
        arithmetic_part(love.cell("weights", "I", "love")),
    )
    page = Page(Document(love.worked.example.title, parts), love.data())
    return Answer(page, next=NEXT)
