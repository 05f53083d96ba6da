"""`peasy look`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Text, read_source
from peasy.errors import UsageError
from peasy.workbench.result import Result

Some = Annotated[list[int] | None, Parameter(negative="")]
Many = Annotated[list[str] | None, Parameter(negative="")]
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
    known: str | None = None
    "Pairs of words that belong together, source first (0-0 1-2), or a file with them: which head finds them?"
    steps: Switch = False
    "One head step by step, as on paper; needs --layer and --head."
    rollout: Switch = False
    "The weights of all layers multiplied, and what that does not tell."
    write: int | None = None
    "Let it write so many tokens, and tell what each of them looked at."
    beam: int | None = None
    "With --write, the likeliest texts of a search with so many beams."
    film: Switch = False
    "The sentence that a run has watched while it trained, at every checkpoint; needs no TEXT."
    overview: Literal["mean", "max"] | None = None
    "A long text in tiles, each the mean or the largest of its weights."
    tile: int | None = None
    "How many tokens a tile has each way; chosen by the length of the text unless you say so."
    keep: str | None = None
    "Look at each line of TEXT, and write all weights into this folder, in shards of safetensors."
    tokens: Switch = False
    "Sub-words as the model reads them, not words."
    top: int = 5
    "How many words to tell for each head."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Changes:
    """What to change first; then what that changes is told."""

    off: Many = None
    "Switch off a head (2.3 is layer 2, head 3) or a layer (2)."
    even: Many = None
    "Let a head (2.3), or all heads of a layer (2), look everywhere alike."
    cut: Many = None
    "One word may not look at another (it:pizza): everywhere, or in the one --layer and --head."
    patch: str | None = None
    "Take what the one --layer (and --head) found from this other text, which has as many tokens."
    word: Many = None
    "Follow the probability of this word."
    data: str | None = None
    "Measure loss, or BLEU, on these data too, before and after."


HEADS, NOTHING = Ways(), Changes()


def look(
    model: str,
    text: Text = "",
    *,
    layer: Some = None,
    head: Some = None,
    query: str | None = None,
    target: str | None = None,
    scaled: Switch = False,
    budget: str = "512MB",
    ways: Ways = HEADS,
    changes: Changes = NOTHING,
    flags: Flags = Flags(),
) -> Answer:
    """Look into a model while it reads a text: where each head looked, in words.

    For example:

        peasy look stories "The pizza came out of the oven and it tasted good"
        peasy look stories "The pizza came out of the oven and it tasted good" --query it
        peasy look stories "The pizza came out of the oven" --layer 2 --head 3 --out pizza.html
        peasy look stories "The pizza came out of the oven and it" --off 2.3 --off 1
        peasy look stories "The pizza came out of the oven and" --write 5
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
    edits = _edits(changes, layer, head)
    if ways.film:
        from peasy.workbench.film import film

        return Answer(film(model))
    from peasy.workbench.load import load

    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    asked: dict[str, Any] = {"layers": layer, "heads": head, "budget": budget, "scaled": scaled}
    other = _without_a_look(loaded, text, ways, asked, edits, flags)
    if other is not None:
        return other
    if ways.overview is not None:
        asked |= {"rows": None if query is None else [query], "edit": edits}
        return Answer(loaded.look(text, target, overview=ways.overview, tile=ways.tile, **asked))
    # a single head is small enough to carry its queries and keys, so that its cells open to their arithmetic
    steps = ("weights", "query", "key") if layer and head and len(layer) == len(head) == 1 else ("weights",)
    found = loaded.look(text, target, steps=steps, **asked)
    found.words = not ways.tokens
    whole = flags.out is not None or flags.json or bool(layer and head)
    shown = _changed(loaded, found, asked, edits, changes) if edits else _shown(found, asked, query, ways, whole)
    return Answer(shown, next=_next(model, text, query), brief=f"{len(found.look.tokens)} tokens")


def _without_a_look(
    loaded: Any, text: str, ways: Ways, asked: dict[str, Any], edits: list[Any], flags: Flags
) -> Answer | None:
    """What is asked of a model and needs no single look: heads ranked, a text written, a data set kept."""
    some = {"layers": asked["layers"], "heads": asked["heads"]}
    if ways.rank is not None:
        from peasy.workbench.heads import split_sentences

        return Answer(loaded.heads(split_sentences(text), by=ways.rank, seed=flags.seed or 0))
    if ways.write is not None:
        return Answer(loaded.trace(text, max_tokens=ways.write, beam=ways.beam, edit=edits, **some))
    if ways.keep is not None:
        from peasy.workbench.looks import keep_looks

        texts = [line for each in read_source(text, "look") for line in each.splitlines() if line.strip()]
        return Answer(keep_looks(loaded, texts, ways.keep, budget=asked["budget"], **some))
    return None


def _edits(changes: Changes, layer: list[int] | None, head: list[int] | None) -> list[Any]:
    """Everything that is to be changed first."""
    from peasy.looking.edit import cut, even, patch, read_cut, read_off

    here, there = (each[0] if each and len(each) == 1 else None for each in (layer, head))
    found: list[Any] = read_off(changes.off or ())
    found += [even(each.layer, each.head) for each in read_off(changes.even or ())]
    found += [cut(*read_cut(each), layer=here, head=there) for each in changes.cut or ()]
    if changes.patch is not None:
        if here is None:
            raise UsageError("--patch needs one --layer.", hint='For example --layer 0 --patch "The soup came out"')
        found.append(patch(changes.patch, here, there))
    if not found and (changes.word or changes.data):
        raise UsageError("Nothing is changed.", hint="Say what: --off 2.3, --even 2.3, --cut it:pizza or --patch TEXT")
    return found


def _changed(loaded: Any, found: Any, asked: dict[str, Any], edits: list[Any], changes: Changes) -> Result:
    """The same text looked at again, under the edits."""
    again = loaded.look(found.text, found.answer, edit=edits, **asked)
    how = {} if changes.data is None else {"data": changes.data}
    return found.against(again, words=changes.word or (), **how)


def _shown(found: Any, asked: dict[str, Any], query: str | None, ways: Ways, whole: bool) -> Result:
    """The view that was asked for."""
    if ways.steps:
        if not asked["layers"] or not asked["heads"]:
            raise UsageError("--steps needs one --layer and one --head.", hint="For example --layer 0 --head 1 --steps")
        return found.work(asked["layers"][0], asked["heads"][0], query)
    if ways.align or ways.known is not None:
        return found.alignment(read_pairs(ways.known)[0] if ways.known is not None else ())
    if ways.lens or ways.rollout:
        return found.lens() if ways.lens else found.rollout()
    if query is not None:
        return found.heads(query, ways.top)
    return found if whole else found.brief(ways.top)


def read_pairs(told: str) -> Sequence[Any]:
    """The known pairs of words, of each line that is typed or stands in the file."""
    from peasy.looking.alignment import read_known

    return [read_known(line) for line in read_source(told, "known")] or [read_known("")]


def _next(model: str, text: str, query: str | None) -> list[str]:
    short = text if len(text) <= 40 and "\n" not in text else "..."
    if query is None and text.split():
        return [f'peasy look {model} "{short}" --query {text.split()[-1].strip(".,!?")}']
    return [f'peasy look {model} "{short}" --layer 0 --head 0 --out look.html']
