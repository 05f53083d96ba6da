"""`peasy` alone: what to try."""

from peasy.cli.door import Answer, Flags, Page
from peasy.views.document import Document, Paragraph, Table

_TRY = (
    ("peasy demo", "a worked result, now"),
    ("peasy explain i-love-ai", "three words, six steps, every number"),
    ('peasy explain "any sentence"', "the same for your own words"),
    ("peasy check my-notes.md", "find the wrong cells of hand-worked tables"),
    ("peasy exercise --seed 5", "a worksheet and its answer key"),
    ('peasy generate stories "The pizza"', "a small model that comes along writes on"),
    ('peasy look stories "The pizza ..."', "where its heads look"),
    ("peasy studio", "all of it on a page"),
    ("peasy doctor", "what works on this machine"),
    ("peasy --help", "all verbs"),
)


def start(*, flags: Flags = Flags()) -> Answer:
    """What to try first."""
    title = "peasy: attention you can follow, number by number"
    parts = (Table(("type this", "and see"), _TRY), Paragraph("Nothing leaves this machine unless you ask.", "note"))
    return Answer(Page(Document(title, parts), {"try": [{"command": line, "does": does} for line, does in _TRY]}))
