"""Commands for attention by hand: `peasy demo`, `examples`, `explain`, `check`, `exercise`."""

from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Annotated

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, DocumentResult, Flags, TextArg
from peasy.cli.derive import derive
from peasy.commands import check as check_command
from peasy.commands import examples as examples_command
from peasy.commands import exercise as exercise_command
from peasy.commands import explain as explain_command
from peasy.commands.check import CheckFilesResult, CheckResult, DifferenceResult
from peasy.errors import UsageError, verdict_exit_code
from peasy.views.document import Document, DocumentPart, Formula, Heading, Paragraph
from peasy.views.worked import arithmetic_part, step_matrix
from peasy.worked.example import NormalisationName
from peasy.worked.tables.notes import CHECKED_SUFFIXES

_DEMO_SUGGESTIONS = (
    "peasy explain i-love-ai",
    'peasy explain "The pizza came out of the oven" --causal',
    "peasy explain i-love-ai --out love.html",
    "peasy examples",
    'peasy generate stories "The pizza came out of the oven and it"',
    "peasy studio",
)


def demo(*, flags: Flags = Flags()) -> CommandOutput:
    """Show a worked example of attention, in two seconds and offline."""
    example = explain_command.explain("i-love-ai")
    (story,) = example.story("I")
    tables = [step_matrix(example.worked, example.worked.step(name), 4) for name in ("scores", "weights", "context")]
    parts: tuple[DocumentPart, ...] = (
        Paragraph("Self-attention of three words, with every number calculated by hand."),
        Formula(example.worked.step("context").tex), *tables,
        Heading('Attention of "I"'), *map(Paragraph, story.sentences),
        Heading("The arithmetic of one number"), arithmetic_part(example.cell("weights", "I", "love")),
    )  # fmt: skip
    result = DocumentResult(Document(example.worked.example.title, parts), example.data())
    return CommandOutput(result, suggestions=_DEMO_SUGGESTIONS)


def examples(*, flags: Flags = Flags()) -> CommandOutput:
    """List the worked examples that peasy explain knows by name."""
    return CommandOutput(examples_command.examples(), suggestions=["peasy explain i-love-ai"])


@derive(explain_command.explain, hide=("normalize",))
def explain(
    call: partial[explain_command.ExplainResult],
    source: TextArg,
    *,
    query: str | None = None,
    cell: str | None = None,
    causal: bool | None = None,
    normalise: Annotated[NormalisationName | None, Parameter(alias="--normalize")] = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Calculate every step of attention for an example, a file or a sentence."""
    result = call(source, query=query, cell=cell, causal=causal, normalise=normalise)
    narrowed = query or cell or any(call.keywords.get(name) for name in ("symbolic", "only", "step", "follow"))
    worked = result.worked
    token = next(iter(worked.tokens), "0")
    if narrowed or not all(name.replace("-", "").isalnum() for name in (source, token)):
        return CommandOutput(result)  # suggestions only if they need no quoting
    suggestions = [f"peasy explain {source} --cell {worked.names[-1]},0,0"]
    if any(step.endswith("weights") for step in worked.names):
        suggestions.append(f"peasy explain {source} --query {token if worked.tokens.count(token) == 1 else 0}")
    gradients = [step for step in worked.steps if worked.kind(step.name) == "gradients"]
    if gradients:
        node = ".".join(filter(None, (gradients[-1].scope, gradients[-1].base.removeprefix("d_"))))
        suggestions += [f"peasy explain {source} --step gradients", f'peasy explain {source} --follow "{node}[0,0]"']
    return CommandOutput(result, suggestions=suggestions)


def check(*files: Path, expected: Path | None = None, flags: Flags = Flags()) -> CommandOutput:
    """Find mistakes in attention tables and calculations by hand.

    Args:
        files: .toml .md .txt .tex .html .csv .ipynb .xlsx files or folders of them, or built-in lecture notes.
        expected: Another solution: find what turns one into the other.
    """
    if not files:
        raise UsageError("check needs a file.", hint="For example: peasy check my-notes.md")
    if expected is not None:
        if len(files) > 1:
            raise UsageError("--expected compares one file.", hint="Give one file and --expected.")
        result: CheckResult | DifferenceResult | CheckFilesResult = check_command.compare(files[0], expected)
    elif len(files) > 1 or files[0].is_dir():
        result = check_command.check_files(files)
    else:
        result = check_command.check(files[0])
    page = isinstance(result, CheckResult) and not result.passed
    suggestions = [f"peasy check {files[0]} --out checked.html"] if page else []
    code = verdict_exit_code(result.passed)
    return CommandOutput(result, suggestions=suggestions, exit_code=code, summary=result.verdict)


@derive(exercise_command.exercise)
def exercise(call: partial[exercise_command.Worksheet], *, flags: Flags = Flags()) -> CommandOutput:
    """Make a worksheet with small numbers, and its answer key."""
    seed = SystemRandom().randrange(10_000) if flags.seed is None else flags.seed
    sheet = call(seed=seed)
    size, topic = (call.keywords.get(name, default) for name, default in (("size", "3x2"), ("topic", "plain")))
    size_flag = "" if sheet.exercise.worked.example.steps else f"--size {size} "  # a network has its own size
    command_line = f"peasy exercise {size_flag}--topic {topic} --seed {seed}"
    files, suggestions = [], [f"{command_line} --answer-key"]
    if flags.out is not None and not sheet.with_answers:
        files = [sheet.save_key(flags.out.with_name(f"{flags.out.stem}-key{flags.out.suffix}"))]
        suggestions = [f"peasy check {flags.out}"] if flags.out.suffix in CHECKED_SUFFIXES else []
    return CommandOutput(sheet, suggestions=suggestions, files=files, summary=f"Worksheet: {command_line}")
