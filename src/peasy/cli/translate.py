"""`peasy translate`: translation with beam search and word alignment."""

from typing import Any

from peasy.cli.command import CommandOutput, CountFlag, Flags, Switch, TextSource, read_texts
from peasy.cli.confirm import confirm_callback
from peasy.cli.look import read_alignments
from peasy.cli.progress import ProgressLine


def translate(
    model: str,
    text: TextSource = None,
    *,
    num_beams: int = 1,
    n: CountFlag = 1,
    align: Switch = False,
    gold: str | None = None,
    max_tokens: int | None = None,
    length_penalty: float = 1.0,
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
        num_beams: Number of beams; 1 is greedy decoding.
        n: Number of translations to show, with their scores.
        align: Show the word alignment, from cross-attention.
        gold: Reference alignment as source-target pairs (0-0 1-2), or a file with one line per text; heads are ranked
            by their agreement with it.
        max_tokens: Maximum number of tokens; default: about three times the length of the source.
        length_penalty: Length penalty of beam search; above 0 favours longer translations.
    """
    from peasy.commands.translate import translate as command

    texts = read_texts(text, "translate")
    options: dict[str, Any] = {"num_beams": num_beams, "n": n, "length_penalty": length_penalty}
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    result = command(
        model, texts, align=align, gold=() if gold is None else read_alignments(gold), device=flags.device,
        offline=flags.offline, confirm=confirm_callback(flags), progress=ProgressLine("translating", flags), **options,
    )  # fmt: skip
    if len(texts) == 1:
        if result.translations[0].error is not None:
            raise result.translations[0].error
        suggestions = [] if result.alignments else [f'peasy translate {model} "{texts[0][:60]}" --align']
        return CommandOutput(result, suggestions=suggestions)
    printed = not (flags.json or flags.out or result.alignments or n > 1)
    if printed:
        for translation in result.translations:
            print(" ".join(translation.text.split()))
    return CommandOutput(result, already_printed=printed, exit_code=_print_errors(result))


def _print_errors(output: Any) -> int:
    """Print the errors of texts that could not be translated; return the exit code if all of them failed."""
    import sys

    results = output.translations
    errors = [(index, result.error) for index, result in enumerate(results) if result.error is not None]
    for index, error in errors:
        print(f"✗ Line {index + 1}: {error.message}", file=sys.stderr)
    return errors[0][1].exit_code if len(errors) == len(results) else 0
