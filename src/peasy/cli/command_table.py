"""Table of all commands: one line here and one module in this package each."""

from dataclasses import dataclass
from keyword import iskeyword

GETTING_STARTED, BY_HAND, RUNNING_MODELS = "Getting started", "Attention by hand", "Running models"
TRAINING, MODELS_AND_DATA, SERVERS = "Training", "Models and data", "Servers and benchmarks"


@dataclass(frozen=True)
class Command:
    """Command: name, the line in `peasy --help`, and the group it is listed in.

    `saves` are output formats of its result in addition to those of every result.
    """

    name: str
    summary: str
    group: str
    extra_formats: tuple[str, ...] = ()

    @property
    def entry_point(self) -> str:
        """Import path of its function, imported only when the command is used.

        >>> Command("explain", "", BY_HAND).entry_point, Command("import", "", MODELS_AND_DATA).entry_point
        ('peasy.cli.explain:explain', 'peasy.cli.import_:import_')
        """
        name = self.name + "_" * iskeyword(self.name)
        return f"peasy.cli.{name}:{name}"


COMMANDS = (
    Command("demo", "Show a worked example of attention, in two seconds and offline.", GETTING_STARTED),
    Command("examples", "List the worked examples that peasy explain knows by name.", GETTING_STARTED),
    Command("doctor", "Check the installation, with a fix for each problem.", GETTING_STARTED),
    Command("version", "Print the versions of peasy and its dependencies.", GETTING_STARTED),
    Command("explain", "Calculate every step of attention for an example, a file or a sentence.", BY_HAND),
    Command("check", "Find mistakes in attention tables calculated by hand.", BY_HAND),
    Command("exercise", "Make a worksheet with small numbers, and its answer key.", BY_HAND),
    Command("tokenize", "Show the tokens, ids and offsets of a text.", RUNNING_MODELS),
    Command("generate", "Generate text from a prompt.", RUNNING_MODELS),
    Command("translate", "Translate a text, with beam search and word alignment.", RUNNING_MODELS),
    Command(
        "embed",
        "Compute text embeddings and their cosine similarities.",
        RUNNING_MODELS,
        extra_formats=("npy", "jsonl"),
    ),
    Command("chat", "Chat with a model that has a chat template.", RUNNING_MODELS),
    Command("look", "Inspect a model: attention, logit lens, ablation, activation patching.", RUNNING_MODELS),
    Command("prove", "Verify a model's execution paths, or your own attention code.", RUNNING_MODELS),
    Command("train", "Train a model on built-in or your own data.", TRAINING),
    Command("evaluate", "Evaluate a model: loss, perplexity, BLEU, accuracy.", TRAINING),
    Command("compare", "Train several model kinds on the same data and budget, and compare them.", TRAINING),
    Command("plan", "Estimate the time and memory of training.", TRAINING),
    Command("experiment", "Run an experiment about attention, with a control.", TRAINING),
    Command("models", "List the available models, or describe one.", MODELS_AND_DATA),
    Command("runs", "List, show, compare or delete training runs.", MODELS_AND_DATA),
    Command("data", "List the built-in datasets, or describe a dataset.", MODELS_AND_DATA),
    Command("import", "Import a Hugging Face model.", MODELS_AND_DATA),
    Command("export", "Export a model to Hugging Face, GGUF or ONNX format.", MODELS_AND_DATA),
    Command("serve", "Start an OpenAI-compatible API server.", SERVERS),
    Command("studio", "Open the web interface in your browser.", SERVERS),
    Command("bench", "Measure prefill and decode speed of a model.", SERVERS),
)
"""In the order of `peasy --help`."""
