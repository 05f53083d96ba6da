"""`peasy translate`."""

from typing import Annotated, Any

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Source, read_source
from peasy.cli.look import read_pairs
from peasy.cli.meter import Meter


def translate(
    model: str,
    text: Source = None,
    *,
    beam: int = 1,
    n: int = 1,
    align: Annotated[bool, Parameter(negative="")] = False,
    known: str | None = None,
    max_tokens: int | None = None,
    length_penalty: float = 1.0,
    flags: Flags = Flags(),
) -> Answer:
    """Translate a text, or each line of a file.

    For example:

        peasy translate locales-fr "3 days ago"
        peasy translate locales-fr "3 days ago" --beam 4 --n 3
        peasy translate locales-fr "3 days ago" --align --out alignment.html
        peasy translate locales-fr "3 days ago" --known "0-1 2-0"
        peasy translate locales-fr sentences.txt > translations.txt
        echo "3 days ago" | peasy translate locales-fr -

    Of many texts only the translations are printed, one on each line.

    Args:
        model: A run, a folder, a built-in or a hub id.
        text: What to translate; a file or stdin (-) has one text on each line.
        beam: Keep so many beginnings at once; 1 takes the best token each time.
        n: Show so many translations, with their scores.
        align: Show which source words the words of a translation came from.
        known: Pairs of words that belong together, source first (0-0 1-2), or a file with a line of them for each text;
            heads are ranked by how many they find.
        max_tokens: Stop after so many tokens; three times the source and a few unless you say so.
        length_penalty: Above 0 favours long translations when beams are compared.
    """
    from peasy.workbench.translate import translate as verb

    texts = read_source(text, "translate")
    how: dict[str, Any] = {"beam": beam, "n": n, "length_penalty": length_penalty}
    if max_tokens is not None:
        how["max_tokens"] = max_tokens
    found = verb(
        model, texts, align=align, known=() if known is None else read_pairs(known), device=flags.device,
        offline=flags.offline, ask=asking(flags), progress=Meter("translating", flags), **how,
    )  # fmt: skip
    if len(texts) == 1:
        if found.translations[0].error is not None:
            raise found.translations[0].error
        advice = [] if found.aligned else [f'peasy translate {model} "{texts[0][:60]}" --align']
        return Answer(found, next=advice)
    told = not (flags.json or flags.out or found.aligned or n > 1)
    if told:
        for one in found.translations:
            print(" ".join(one.text.split()))
    return Answer(found, told=told, exit_code=_complain(found))


def _complain(found: Any) -> int:
    """Say on stderr which texts could not be translated; the others were."""
    import sys

    wrong = [(place, one.error) for place, one in enumerate(found.translations) if one.error is not None]
    for place, error in wrong:
        print(f"✗ Line {place + 1}: {error.message}", file=sys.stderr)
    return wrong[0][1].exit_code if len(wrong) == len(found.translations) else 0
