"""`peasy look`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Text
from peasy.errors import UsageError
from peasy.workbench.result import Result

Some = Annotated[list[int] | None, Parameter(negative="")]
Switch = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Ways:
    """What to show instead of the heads, and how."""

    lens: Switch = False
    "What each layer would say next."
    rank: str | None = None
    "What every head does, most of this first: entropy, sharpness, previous, first, same, induction, ..."
    align: Switch = False
    "Which source words a translator's words came from."
    steps: Switch = False
    "One head step by step, as on paper; needs --layer and --head."
    off: Annotated[list[str] | None, Parameter(negative="")] = None
    "Switch off a head (2.3 is layer 2, head 3) or a layer (2), and tell what that changes."
    overview: Literal["mean", "max"] | None = None
    "A long text in tiles, each the mean or the largest of its weights."
    tile: int | None = None
    "How many tokens a tile has each way; chosen by the length of the text unless you say so."
    tokens: Switch = False
    "Sub-words as the model reads them, not words."
    top: int = 5
    "How many words to tell for each head."


HEADS = Ways()


def look(
    model: str,
    text: Text,
    *,
    layer: Some = None,
    head: Some = None,
    query: str | None = None,
    target: str | None = None,
    scaled: Switch = False,
    budget: str = "512MB",
    ways: Ways = HEADS,
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
        scaled: Each weight times the size of the value that it carries.
        budget: The most memory that what is kept may take.
    """
    from peasy.workbench.load import load

    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    asked: dict[str, Any] = {"layers": layer, "heads": head, "budget": budget, "scaled": scaled}
    if ways.rank is not None:
        from peasy.workbench.heads import split_sentences

        return Answer(loaded.heads(split_sentences(text), by=ways.rank, seed=flags.seed or 0))
    if ways.overview is not None:
        rows = [query] if query is not None else None
        return Answer(loaded.look(text, target, overview=ways.overview, tile=ways.tile, rows=rows, **asked))
    found = loaded.look(text, target, **asked)
    found.words = not ways.tokens
    whole = flags.out is not None or flags.json or bool(layer and head)
    shown = _shown(loaded, found, asked, query, ways, whole)
    return Answer(shown, next=_next(model, text, query), brief=f"{len(found.look.tokens)} tokens")


def _shown(loaded: Any, found: Any, asked: dict[str, Any], query: str | None, ways: Ways, whole: bool) -> Result:
    """The view that was asked for."""
    if ways.off:
        from peasy.looking.edit import read_off

        return found.against(loaded.look(found.text, found.answer, edit=read_off(ways.off), **asked))
    if ways.steps:
        if not asked["layers"] or not asked["heads"]:
            raise UsageError("--steps needs one --layer and one --head.", hint="For example --layer 0 --head 1 --steps")
        return found.work(asked["layers"][0], asked["heads"][0], query)
    if ways.lens or ways.align:
        return found.lens() if ways.lens else found.alignment()
    if query is not None:
        return found.heads(query, ways.top)
    return found if whole else found.brief(ways.top)


def _next(model: str, text: str, query: str | None) -> list[str]:
    short = text if len(text) <= 40 and "\n" not in text else "..."
    if query is None and text.split():
        return [f'peasy look {model} "{short}" --query {text.split()[-1].strip(".,!?")}']
    return [f'peasy look {model} "{short}" --layer 0 --head 0 --out look.html']
