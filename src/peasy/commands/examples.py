"""`examples`: list the worked examples of the library."""

from peasy.commands.result import JsonDict, Result
from peasy.views.document import Document, Paragraph, Table
from peasy.worked import Example, example_names, load_example


class ExamplesResult(Result, repr=True):
    """Result of `examples`: the worked examples that come with peasy, by name."""

    examples: tuple[tuple[str, Example], ...]

    def document(self) -> Document:
        """One row for each example."""
        rows = tuple((name, example.description) for name, example in self.examples)
        usage = Paragraph('Any of these, a file of your own, or "any sentence": peasy explain NAME', "note")
        return Document("Examples", (Table(("name", "what it shows"), rows), usage))

    def data(self) -> JsonDict:
        """Name, topic (attention, or a network of any steps), title, description and source of each example."""
        shown = ("title", "description", "source", "tokens")
        return {
            "examples": [
                {"name": name, "topic": "network" if example.steps else "attention"}
                | {key: getattr(example, key) for key in shown}
                for name, example in self.examples
            ]
        }


def examples() -> ExamplesResult:
    """List the worked examples in alphabetical order.

    >>> "journey" in dict(examples().examples)
    True
    """
    return ExamplesResult(tuple((name, load_example(name)) for name in example_names()))
