"""`peasy look`."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Text

Some = Annotated[list[int] | None, Parameter(negative="")]
Switch = Annotated[bool, Parameter(negative="", show_default=False)]


def look(
    model: str,
    text: Text,
    *,
    layer: Some = None,
    head: Some = None,
    query: str | None = None,
    target: str | None = None,
    top: int = 5,
    lens: Switch = False,
    rank: str | None = None,
    align: Switch = False,
    steps: Switch = False,
    off: Annotated[list[str] | None, Parameter(negative="")] = None,
    tokens: Switch = False,
    scaled: Switch = False,
    overview: Literal["mean", "max"] | None = None,
    tile: int | None = None,
    budget: str = "512MB",
    flags: Flags = Flags(),
) -> Answer:
    """Look into a model while it reads a text: where each head looked, in words.

    For example:

        peasy look stories "The pizza came out of the oven and it tasted good"
        peasy look stories "The pizza came out of the oven and it tasted good" --query it
        peasy look stories "The pizza came out of the oven" --layer 2 --head 3 --out pizza.html
        peasy look stories "The pizza came out of the oven and it" --off 2.3 --off 1
        peasy look locales-fr "3 days ago" --align
        peasy look stories - --overview mean --layer 2 < long.txt

    Args:
        model: A run, a folder, a built-in or a hub id.
        text: What the model reads; - reads stdin. For a translator, its source.
        layer: Only these layers, counted from 0.
        head: Only these heads, counted from 0.
        query: What this word looked at, in every head.
        target: A translator's answer; without one it writes its own.
        top: How many words to tell for each head.
        lens: What each layer would say next.
        rank: What every head does, most of this first: entropy, sharpness, previous, first, same, induction, ...
        align: Which source words a translator's words came from.
        steps: One head step by step, as on paper; needs --layer and --head.
        off: Switch off a head (2.3 is layer 2, head 3) or a layer (2), and tell what that changes.
        tokens: Sub-words as the model reads them, not words.
        scaled: Each weight times the size of the value that it carries.
        overview: A long text in tiles, each the mean or the largest of its weights.
        tile: How many tokens a tile has each way; chosen by the length of the text unless you say so.
        budget: The most memory that what is kept may take.
    """
    from peasy.workbench.load import load

    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    if rank is not None:
        from peasy.workbench.heads import split_sentences

        return Answer(loaded.heads(split_sentences(text), by=rank, seed=flags.seed or 0))
    asked: dict[str, Any] = {"layers": layer, "heads": head, "budget": budget, "scaled": scaled}
    if overview is not None:
        rows = [query] if query is not None else None
        return Answer(loaded.look(text, target, overview=overview, tile=tile, rows=rows, **asked))
    found = loaded.look(text, target, **asked)
    found.words = not tokens
    if off:
        from peasy.looking.edit import read_off

        changed = loaded.look(text, target if target is not None else found.answer, edit=read_off(off), **asked)
        return Answer(found.against(changed))
    if steps:
        return Answer(found.work(*_one(layer, head), query))
    if lens:
        return Answer(found.lens())
    if align:
        return Answer(found.alignment())
    whole = flags.out is not None or flags.json or (layer and head)
    shown = found.heads(query, top) if query is not None else found if whole else found.brief(top)
    return Answer(shown, next=_next(model, text, query), brief=f"{len(found.look.tokens)} tokens")


def _one(layer: list[int] | None, head: list[int] | None) -> tuple[int, int]:
    from peasy.errors import UsageError

    if not layer or not head:
        raise UsageError("--steps needs one --layer and one --head.", hint="For example --layer 0 --head 1 --steps")
    return layer[0], head[0]


def _next(model: str, text: str, query: str | None) -> list[str]:
    short = text if len(text) <= 40 and "\n" not in text else "..."
    if query is None and text.split():
        return [f'peasy look {model} "{short}" --query {text.split()[-1].strip(".,!?")}']
    return [f'peasy look {model} "{short}" --layer 0 --head 0 --out look.html']
