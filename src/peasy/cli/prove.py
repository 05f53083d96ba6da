"""`peasy prove`."""

import sys
from typing import Annotated

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Source, read_source
from peasy.cli.meter import Meter


def prove(
    model: str,
    *texts: Source,
    prompt: Annotated[list[str] | None, Parameter(negative="")] = None,
    call: str | None = None,
    tokens: int = 128,
    seconds: float = 60.0,
    flags: Flags = Flags(),
) -> Answer:
    """Two roads to one truth: for a model, or for your own attention.

    For example:

        peasy prove my-model
        peasy prove my-model "The pizza came out of the oven" --prompt prompts.txt
        peasy prove attention.py:attention
        peasy prove attention.py:attend --call "attend(q, k, v, mask)"

    A model is read cached and uncached, alone and in a batch, padded and in chunks, by kernel and by formula, packed,
    exported and loaded again; each time with the distance that was measured. What differs is named by layer, head
    and position. A function or class of a file is compared with the formula, and its mistake is called by its name.
    Exit code 8 when something is wrong.

    Args:
        model: A run, a folder, a built-in or a hub id; or file.py:name for your own code, which is then run.
        texts: Texts to prove it on; a file or stdin (-) has one on each line.
        prompt: The same by name; may be given several times.
        call: How your function is called, in the words q, k, v, x, mask, heads, cache, ...
        tokens: So many tokens of each text are read at most.
        seconds: So long your own code may take.
    """
    from peasy.errors import UsageError
    from peasy.workbench.prove import prove as verb

    if tokens < 1 or seconds <= 0:
        raise UsageError("--tokens and --seconds should be above 0.")
    rows = [line for each in (*texts, *(prompt or ())) for line in read_source(each, "prove") if line.strip()]
    if (texts or prompt) and not rows:
        raise UsageError("The texts are empty.", hint=f'For example: peasy prove {model} "The pizza came out"')
    tell = None if flags.quiet or flags.json else lambda line: print(line, file=sys.stderr)
    result = verb(
        model, rows or None, call=call, tokens=tokens, seconds=seconds, seed=flags.seed or 0, device=flags.device,
        offline=flags.offline, ask=asking(flags), tell=tell, progress=Meter("proving", flags),
    )  # fmt: skip
    advice = [] if result.passed else [f"peasy prove {model} --out proof.html"]
    return Answer(result, next=advice, exit_code=0 if result.passed else 8, brief=result.verdict)
