"""The table of verbs. One line here and one file beside it make a command."""

from dataclasses import dataclass
from keyword import iskeyword

FIRST, PAPER, MODEL = "The first minute", "On paper", "Running models"
TRAIN, KEEP, DOORS = "Training", "Managing", "Doors"


@dataclass(frozen=True)
class Verb:
    """A command: its name, the one line that `peasy --help` shows, and the heading it stands under.

    `saves` are suffixes that its result can be saved by besides those of every result.
    """

    name: str
    does: str
    group: str
    saves: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """Where its function lives; imported only when the verb is used.

        >>> Verb("explain", "", PAPER).home, Verb("import", "", KEEP).home
        ('peasy.cli.explain:explain', 'peasy.cli.import_:import_')
        """
        word = self.name + "_" * iskeyword(self.name)
        return f"peasy.cli.{word}:{word}"


VERBS = (
    Verb("demo", "A worked result in two seconds, offline.", FIRST),
    Verb("examples", "What can be explained by name.", FIRST),
    Verb("doctor", "What works here, and the exact fix for what does not.", FIRST),
    Verb("version", "Which peasy this is, and on what it stands.", FIRST),
    Verb("explain", "Every step of attention for an example, a file or any sentence.", PAPER),
    Verb("check", "Find the wrong cells in hand-worked tables.", PAPER),
    Verb("exercise", "A worksheet with small numbers, and its answer key.", PAPER),
    Verb("tokenize", "Text into tokens and ids, and back.", MODEL),
    Verb("generate", "A model writes on from a text, word by word.", MODEL),
    Verb("translate", "A translator answers a text, and shows which word came from which.", MODEL),
    Verb("embed", "Texts into vectors, and how near they are.", MODEL, saves=("npy", "jsonl")),
    Verb("chat", "Talk with a model that was made for it.", MODEL),
    Verb("look", "Where the heads of a model looked, in words and pictures.", MODEL),
    Verb("prove", "Two roads to one truth: for a model, or for your own attention.", MODEL),
    Verb("train", "Train a model on built-in text or on your own.", TRAIN),
    Verb("evaluate", "How good a model is on data that it has not learned from.", TRAIN),
    Verb("compare", "Several kinds on the same data, with the same budget and seed.", TRAIN),
    Verb("plan", "What training would need, before anything starts.", TRAIN),
    Verb("experiment", "What the documents claim, measured against a control.", TRAIN),
    Verb("models", "What models are here, and what each one is.", KEEP),
    Verb("runs", "What was trained: list, show, compare, delete.", KEEP),
    Verb("data", "What can be learned from: built in, or your own files.", KEEP),
    Verb("import", "Take a checkpoint in.", KEEP),
    Verb("export", "Write a model in a standard format.", KEEP),
    Verb("serve", "An API for any client: the one that openai's speaks, and peasy's own.", DOORS),
    Verb("studio", "All of peasy on one page in your browser.", DOORS),
    Verb("bench", "How fast a model reads and writes on this machine.", DOORS),
)
"""In the order in which `peasy --help` lists them."""
