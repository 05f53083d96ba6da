"""Table of all commands: one line here and one module in this package each."""

from dataclasses import dataclass
from keyword import iskeyword

FIRST, PAPER, MODEL = "Getting started", "Attention by hand", "Running models"
TRAIN, KEEP, DOORS = "Training", "Models and data", "Servers and benchmarks"


@dataclass(frozen=True)
class Verb:
    """Command: name, the line in `peasy --help`, and the group it is listed in.

    `saves` are output formats of its result in addition to those of every result.
    """

    name: str
    does: str
    group: str
    saves: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """Import path of its function, imported only when the command is used.

        >>> Verb("explain", "", PAPER).home, Verb("import", "", KEEP).home
        ('peasy.cli.explain:explain', 'peasy.cli.import_:import_')
        """
        name = self.name + "_" * iskeyword(self.name)
        return f"peasy.cli.{name}:{name}"


VERBS = (
    Verb("demo", "Show a worked example of attention, in two seconds and offline.", FIRST),
    Verb("examples", "List the worked examples that peasy explain knows by name.", FIRST),
    Verb("doctor", "Check the installation, with a fix for each problem.", FIRST),
    Verb("version", "Print the versions of peasy and its dependencies.", FIRST),
    Verb("explain", "Calculate every step of attention for an example, a file or a sentence.", PAPER),
    Verb("check", "Find mistakes in attention tables calculated by hand.", PAPER),
    Verb("exercise", "Make a worksheet with small numbers, and its answer key.", PAPER),
    Verb("tokenize", "Show the tokens, ids and offsets of a text.", MODEL),
    Verb("generate", "Generate text from a prompt.", MODEL),
    Verb("translate", "Translate a text, with beam search and word alignment.", MODEL),
    Verb("embed", "Compute text embeddings and their cosine similarities.", MODEL, saves=("npy", "jsonl")),
    Verb("chat", "Chat with a model that has a chat template.", MODEL),
    Verb("look", "Inspect a model: attention, logit lens, ablation, activation patching.", MODEL),
    Verb("prove", "Verify a model's execution paths, or your own attention code.", MODEL),
    Verb("train", "Train a model on built-in or your own data.", TRAIN),
    Verb("evaluate", "Evaluate a model: loss, perplexity, BLEU, accuracy.", TRAIN),
    Verb("compare", "Train several model kinds on the same data and budget, and compare them.", TRAIN),
    Verb("plan", "Estimate the time and memory of training.", TRAIN),
    Verb("experiment", "Run an experiment about attention, with a control.", TRAIN),
    Verb("models", "List the available models, or describe one.", KEEP),
    Verb("runs", "List, show, compare or delete training runs.", KEEP),
    Verb("data", "List the built-in datasets, or describe a dataset.", KEEP),
    Verb("import", "Import a Hugging Face model.", KEEP),
    Verb("export", "Export a model to Hugging Face, GGUF or ONNX format.", KEEP),
    Verb("serve", "Start an OpenAI-compatible API server.", DOORS),
    Verb("studio", "Open the web interface in your browser.", DOORS),
    Verb("bench", "Measure prefill and decode speed of a model.", DOORS),
)
"""In the order of `peasy --help`."""
