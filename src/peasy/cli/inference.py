"""Commands on one model: `peasy tokenize`, `embed`, `classify`, `translate`, `prove`, `bench`, `import`, `export`."""

import shlex
import sys
from functools import partial

from peasy.cli.command import CommandOutput, CountFlag, Flags, StrList, TextArg, TextSource, read_texts
from peasy.cli.derive import derive
from peasy.cli.look import read_alignments
from peasy.cli.output import ProgressLine
from peasy.commands import bench as bench_command
from peasy.commands import classify as classify_command
from peasy.commands import embed as embed_command
from peasy.commands import prove as prove_command
from peasy.commands import tokenize as tokenize_command
from peasy.commands import translate as translate_command
from peasy.commands.exporting import ExportResult, export_model
from peasy.commands.importing import ImportResult, import_model
from peasy.errors import UsageError, verdict_exit_code


@derive(tokenize_command.tokenize)
def tokenize(
    call: partial[tokenize_command.TokenizeResult], model: str, text: TextArg, *, flags: Flags = Flags()
) -> CommandOutput:
    """Show the tokens of a text: pieces, ids, character offsets, words.

    Args:
        text: Text to tokenize; - reads stdin.
    """
    result = call(model, text)
    return CommandOutput(result, summary=f"{len(result.encoding)} tokens")


@derive(embed_command.embed)
def embed(
    call: partial[embed_command.EmbedResult], model: str, *texts: TextSource, flags: Flags = Flags()
) -> CommandOutput:
    """Compute text embeddings and their cosine similarities.

    Args:
        texts: Texts; @file or stdin (-), one per line.
    """
    result = call(model, [line for text in texts or (None,) for line in read_texts(text, "embed") if line.strip()])
    count, dims = result.vectors.shape
    summary = f"{count:,} vector{'s' * (count != 1)} of {dims} dimensions"
    return CommandOutput(result, suggestions=[f"peasy embed {model} @FILE --out vectors.npy"], summary=summary)


@derive(classify_command.classify)
def classify(
    call: partial[classify_command.ClassifyResult], model: str, *texts: TextSource, flags: Flags = Flags()
) -> CommandOutput:
    """Run `classify`.

    Args:
        texts: Texts; @file or stdin (-), one per line.
    """
    lines = [line for text in texts or (None,) for line in read_texts(text, "classify") if line.strip()]
    result = call(model, lines)
    return CommandOutput(result, summary=f"{len(result.labels):,} text{'s' * (len(result.labels) != 1)}")


@derive(translate_command.translate, hide=("on_progress",))
def translate(
    call: partial[translate_command.TranslateResult],
    model: str,
    text: TextSource = None,
    *,
    n: CountFlag = 1,
    gold: str | None = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Translate a text, or each line of a file.

    Args:
        text: Text to translate; @file or stdin (-), one per line.
        n: Number of translations to show, with their scores.
        gold: Reference alignment as source-target pairs (0-0 1-2), or @file with one line per text; heads are ranked
            by their agreement with it.
    """
    texts = read_texts(text, "translate")
    alignments = () if gold is None else read_alignments(gold)
    result = call(model, texts, n=n, gold=alignments, on_progress=ProgressLine("translating", flags))
    if len(texts) == 1:
        if result.translations[0].error is not None:
            raise result.translations[0].error
        suggestions = [] if result.alignments else [f'peasy translate {model} "{texts[0][:60]}" --align']
        return CommandOutput(result, suggestions=suggestions)
    printed = not (flags.json or flags.out or result.alignments or n > 1)
    if printed:
        for translation in result.translations:
            print(" ".join(translation.text.split()))
    errors = [(index, one.error) for index, one in enumerate(result.translations) if one.error is not None]
    for index, error in errors:
        print(f"✗ Line {index + 1}: {error.message}", file=sys.stderr)
    all_failed = len(errors) == len(texts)
    return CommandOutput(result, already_printed=printed, exit_code=errors[0][1].exit_code if all_failed else 0)


@derive(prove_command.prove, hide=("target", "prompts", "announce", "progress"))
def prove(
    call: partial[prove_command.ProveResult | prove_command.DoctorResult | prove_command.FolderResult],
    model: str,
    *texts: TextSource,
    prompt: StrList = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Verify that all execution paths of a model agree, or check your own attention code.

    Args:
        model: Run name, folder, built-in model or hub id; or file.py:name, package.module:name, or a folder of code.
        texts: Texts to verify with; @file or stdin (-), one per line.
        prompt: Same as texts, as a flag; can be repeated.
    """
    rows = [line for source in (*texts, *(prompt or ())) for line in read_texts(source, "prove") if line.strip()]
    if (texts or prompt) and not rows:
        raise UsageError("The texts are empty.", hint=f'For example: peasy prove {model} "The pizza came out"')
    on_notice = None if flags.quiet or flags.json else lambda line: print(line, file=sys.stderr)
    result = call(model, rows or None, announce=on_notice, progress=ProgressLine("verifying", flags))
    suggestions = [] if result.passed else [f"peasy prove {model} --out proof.html"]
    code = verdict_exit_code(result.passed)
    return CommandOutput(result, suggestions=suggestions, exit_code=code, summary=result.verdict)


@derive(bench_command.bench, hide=("on_status",))
def bench(call: partial[bench_command.BenchResult], model: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Measure prefill and decode speed of a model on this machine, by weight format."""
    line = ProgressLine("", flags)
    result = call(model, on_status=line.update)
    line.update("")
    return CommandOutput(result)


@derive(import_model)
def import_(call: partial[ImportResult], source: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Import a Hugging Face model as a peasy checkpoint with a name."""
    result = call(source)
    name = shlex.quote(result.name)
    suggestions = [f"peasy models {name}"]
    if result.model.tokenizer is not None:
        suggestions.append(f'peasy tokenize {name} "Easy peasy"')
    return CommandOutput(result, suggestions=suggestions, files=[result.folder])


@derive(export_model)
def export(call: partial[ExportResult], model: str, folder: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Export a model to a new folder in Hugging Face, GGUF or ONNX format."""
    result = call(model, folder)
    return CommandOutput(result, files=[result.folder / name for name, _ in result.files])
