"""`peasy translate`: translation with beam search and word alignment."""

import sys

from peasy.cli.command import CommandOutput, CountFlag, Flags, TextSource, read_texts
from peasy.cli.derive import Call, derive
from peasy.cli.look import read_alignments
from peasy.cli.progress import ProgressLine
from peasy.commands import translate as commands


@derive(commands.translate, hide=("on_progress",))
def translate(
    call: Call[commands.TranslateResult],
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
