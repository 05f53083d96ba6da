"""Table of all commands: one line here and one function in a module of this package each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword

GETTING_STARTED, BY_HAND, RUNNING_MODELS = "Getting started", "Attention by hand", "Running models"
TRAINING, MODELS_AND_DATA, SERVERS = "Training and experiments", "Models and data", "Servers and benchmarks"


@dataclass(frozen=True)
class Command:
    """Command: name, the line in `peasy --help`, and the group it is listed in.

    `extra_formats` are output formats of its result in addition to those of every result. A command with `subcommands`
    also works without one: `peasy runs` lists the runs. `parent` is the command that a subcommand belongs to.
    """

    name: str
    summary: str
    group: str = ""
    extra_formats: tuple[str, ...] = ()
    subcommands: "tuple[Command, ...]" = ()
    parent: str = ""

    @property
    def path(self) -> str:
        """Name as typed after `peasy`.

        >>> Command("show", "", parent="runs").path
        'runs show'
        """
        return f"{self.parent} {self.name}".strip()

    @property
    def entry_point(self) -> str:
        """Import path of its function, imported only when the command is used.

        >>> Command("explain", "").entry_point, Command("import", "").entry_point
        ('peasy.cli.by_hand:explain', 'peasy.cli.inference:import_')
        >>> Command("show", "", parent="runs").entry_point
        'peasy.cli.models:runs_show'
        """
        function = self.path.replace(" ", "_") + "_" * iskeyword(self.name)
        command = self.parent or self.name
        module = next((module for module, names in _MODULES.items() if command in names), command)
        return f"peasy.cli.{module}:{function}"


_MODULES = {
    "by_hand": ("demo", "examples", "explain", "check", "exercise"),
    "doctor": ("doctor", "version"),
    "generate": ("generate", "chat"),
    "inference": ("tokenize", "translate", "embed", "classify", "prove", "bench", "import", "export"),
    "models": ("models", "runs"),
    "serve": ("serve", "studio"),
    "training": ("train", "plan", "evaluate", "compare", "experiment", "data"),
    "usage": ("help",),
}
"""Modules that several commands share; any other command has a module of its own name."""


COMMANDS = (
    Command("demo", "Show a worked example of attention.", GETTING_STARTED),
    Command("examples", "List the worked examples.", GETTING_STARTED),
    Command("doctor", "Check the installation.", GETTING_STARTED),
    Command("version", "Print the versions of peasy and its dependencies.", GETTING_STARTED),
    Command("help", "Print the help of a command.", GETTING_STARTED),
    Command("explain", "Calculate attention step by step, with every number.", BY_HAND),
    Command("check", "Find mistakes in attention tables calculated by hand.", BY_HAND),
    Command("exercise", "Make a worksheet and its answer key.", BY_HAND),
    Command("tokenize", "Show the tokens of a text.", RUNNING_MODELS),
    Command("generate", "Generate text from a prompt.", RUNNING_MODELS),
    Command("chat", "Chat with a model that has a chat template.", RUNNING_MODELS),
    Command("translate", "Translate a text.", RUNNING_MODELS),
    Command("embed", "Compute text embeddings and their similarities.", RUNNING_MODELS, ("npy", "jsonl")),
    Command("classify", "Classify texts, or their tokens.", RUNNING_MODELS, ("jsonl",)),
    Command("look", "Inspect attention, predictions and interventions.", RUNNING_MODELS),
    Command("prove", "Verify a model, or your own attention code.", RUNNING_MODELS),
    Command("train", "Train a model.", TRAINING),
    Command("plan", "Estimate the time and memory of training.", TRAINING),
    Command("evaluate", "Evaluate a model on a dataset.", TRAINING),
    Command("compare", "Train several kinds of model and compare them.", TRAINING),
    Command("experiment", "Run an experiment about attention.", TRAINING),
    Command(
        "models",
        "List, show, delete or retrain models.",
        MODELS_AND_DATA,
        subcommands=(
            Command("list", "List the available models.", parent="models"),
            Command("show", "Show the architecture and the card of a model.", parent="models"),
            Command("rm", "Delete a model.", parent="models"),
            Command("retrain", "Train a built-in model again and compare it.", parent="models"),
        ),
    ),
    Command(
        "runs",
        "List, show, compare or delete training runs.",
        MODELS_AND_DATA,
        subcommands=(
            Command("list", "List the training runs.", parent="runs"),
            Command("show", "Show the state, losses and samples of a run.", parent="runs"),
            Command("diff", "Compare two runs.", parent="runs"),
            Command("rm", "Delete a run.", parent="runs"),
        ),
    ),
    Command("data", "List or describe datasets.", MODELS_AND_DATA),
    Command("import", "Import a Hugging Face model.", MODELS_AND_DATA),
    Command("export", "Export a model to Hugging Face, GGUF or ONNX format.", MODELS_AND_DATA),
    Command("serve", "Start an OpenAI-compatible API server.", SERVERS),
    Command("studio", "Open the web interface in a browser.", SERVERS),
    Command("bench", "Measure the prefill and decode speed of a model.", SERVERS),
)
"""In the order of `peasy --help`."""


def all_commands(commands: Sequence[Command]) -> Iterator[Command]:
    """Yield the commands, each followed by its subcommands."""
    for command in commands:
        yield command
        yield from command.subcommands


def find_command(args: Sequence[str], commands: Sequence[Command]) -> Command | None:
    """Return the command or subcommand that a command line starts with.

    >>> [getattr(find_command(line.split(), COMMANDS), "path", None) for line in ("runs show fox", "runs", "fox")]
    ['runs show', 'runs', None]
    """
    found = next((command for command in commands if args and command.name == args[0]), None)
    if found is None:
        return None
    return next((sub for sub in found.subcommands if list(args[1:2]) == [sub.name]), found)
