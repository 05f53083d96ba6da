"""Commands on one model: `peasy tokenize`, `embed`, `translate`, `prove`, `bench`, `import`, `export`."""

import shlex
import sys
from functools import partial

from peasy.cli.command import CommandOutput, CountFlag, Flags, StrList, TextArg, TextSource, read_texts
from peasy.cli.derive import derive
from peasy.cli.look import read_alignments
from peasy.cli.output import ProgressLine
from peasy.commands import bench as bench_command
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

    For example:

        peasy tokenize sentence-transformers/all-MiniLM-L6-v2 "The pizza came out of the oven"
        peasy tokenize ./my-model "Easy peasy lemon squeezy"
        peasy tokenize tokenizer.json - --json < poem.txt

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; or a tokenizer.json file.
        text: Text to tokenize; - reads stdin.
    """
    result = call(model, text)
    return CommandOutput(result, summary=f"{len(result.encoding)} tokens")


@derive(embed_command.embed)
def embed(
    call: partial[embed_command.EmbedResult], model: str, *texts: TextSource, flags: Flags = Flags()
) -> CommandOutput:
    """Compute text embeddings and their cosine similarities.

    For example:

        peasy embed sentences "The pizza was good." "It tasted great." "It rains."
        peasy embed sentences sentences.txt
        peasy embed sentences sentences.txt --out vectors.npy
        peasy embed sentences sentences.txt --out vectors.jsonl
        peasy embed my-gpt "The pizza" "The oven" --pooling last

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        texts: Texts; in a file or stdin (-), one per line.
    """
    result = call(model, [line for text in texts or (None,) for line in read_texts(text, "embed") if line.strip()])
    count, dims = result.vectors.shape
    summary = f"{count:,} vector{'s' * (count != 1)} of {dims} dimensions"
    return CommandOutput(result, suggestions=[f"peasy embed {model} FILE --out vectors.npy"], summary=summary)


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

    For example:

        peasy translate locales-fr "3 days ago"
        peasy translate locales-fr "3 days ago" --num-beams 4 -n 3
        peasy translate locales-fr "3 days ago" --align --out alignment.html
        peasy translate locales-fr "3 days ago" --gold "0-1 2-0"
        peasy translate locales-fr sentences.txt > translations.txt
        echo "3 days ago" | peasy translate locales-fr -

    With several texts, only the translations are printed, one per line.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        text: Text to translate; in a file or stdin (-), one per line.
        n: Number of translations to show, with their scores.
        gold: Reference alignment as source-target pairs (0-0 1-2), or a file with one line per text; heads are ranked
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

    For example:

        peasy prove my-model
        peasy prove my-model "The pizza came out of the oven" --prompt prompts.txt
        peasy prove attention.py:attention
        peasy prove attention.py:attend --call "attend(q, k, v, mask)"
        peasy prove my_package.layers:Attention
        peasy prove my-repository --out report.xml

    A model is run with and without KV cache, alone and in a batch, padded, in chunks, with fused kernels and by the
    formula, with packed weights, exported and loaded again; the logits are compared each time. A difference is located
    by layer, head and position. A function or class in a Python file or notebook is compared with the formula: equal,
    wrong (its mistake is named, with the line) or not compared. It runs with your rights. Exit code 8 if something is
    wrong, 9 if it could not be compared.

    Args:
        model: Run name, folder, built-in model or hub id; or file.py:name, package.module:name, or a folder of code.
        texts: Texts to verify with; in a file or stdin (-), one per line.
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
    """Measure prefill and decode speed of a model on this machine, by weight format.

    For example:

        peasy bench stories
        peasy bench openai-community/gpt2 --max-tokens 128 --repeats 5

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; must be a decoder.
    """
    line = ProgressLine("", flags)
    result = call(model, on_status=line.update)
    line.update("")
    return CommandOutput(result)


@derive(import_model)
def import_(call: partial[ImportResult], source: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Import a Hugging Face model as a peasy checkpoint with a name.

    Reads only safetensors and JSON files; weights that do not match the config are rejected.

    For example:

        peasy import ./my-hugging-face-folder --name mine
        peasy import sentence-transformers/all-MiniLM-L6-v2 --yes

    Args:
        source: Hugging Face folder, hub id, or peasy checkpoint.
    """
    result = call(source)
    name = shlex.quote(result.name)
    suggestions = [f"peasy models {name}", f'peasy tokenize {name} "Easy peasy"']
    return CommandOutput(result, suggestions=suggestions, files=[result.folder])


@derive(export_model)
def export(call: partial[ExportResult], model: str, folder: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Export a model to a new folder in Hugging Face, GGUF or ONNX format.

    For example:

        peasy export my-model ./for-transformers
        peasy export my-model ./for-llama-cpp --format gguf --dtype q8_0
        peasy export my-model ./for-onnx --format onnx

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        folder: Output folder; must not exist.
    """
    result = call(model, folder)
    return CommandOutput(result, files=[result.folder / name for name, _ in result.files])
