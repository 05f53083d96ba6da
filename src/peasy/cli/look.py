"""`peasy look`: model inspection: attention, logit lens, ablation, activation patching."""

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
    """View flags: what to show instead of the attention heads."""

    lens: Switch = False
    "Logit lens: the prediction of each layer."
    rank: str | None = None
    "Rank all heads by a score: entropy, sharpness, previous, first, same, induction, ..."
    align: Switch = False
    "Word alignment of a translator, from its cross-attention."
    known: str | None = None
    "Reference alignment as source-target pairs (0-0 1-2), or a file with them, to rank the heads by."
    steps: Switch = False
    "One head step by step, as a worked example; needs --layer and --head."
    rollout: Switch = False
    "Attention rollout: the product of the attention matrices of all layers."
    write: int | None = None
    "Generate this many tokens and show the attention of each."
    beam: int | None = None
    "With --write, use beam search with this many beams."
    film: Switch = False
    "Attention over training: the tracked sentence of a run at every checkpoint; needs no TEXT."
    overview: Literal["mean", "max"] | None = None
    "Tiled attention for long texts; each tile is the mean or maximum of its weights."
    tile: int | None = None
    "Tile size in tokens; default: chosen by the length of the text."
    keep: str | None = None
    "Save the attention weights of each line of TEXT to this folder, as safetensors shards."
    tokens: Switch = False
    "Show tokens instead of words."
    top: int = 5
    "Number of words to show for each head."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Changes:
    """Intervention flags: ablation, masked links, activation patching; the effect is shown."""

    off: Many = None
    "Ablate a head (2.3 is layer 2, head 3) or a layer (2)."
    even: Many = None
    "Uniform attention for a head (2.3), or for all heads of a layer (2)."
    cut: Many = None
    "Mask the attention of one word to another (it:pizza), in all layers or in --layer and --head."
    patch: str | None = None
    "Activation patching: take the output of --layer (and --head) from this text, of equal token count."
    word: Many = None
    "Track the probability of this word."
    data: str | None = None
    "Also evaluate the loss or BLEU on this dataset, before and after."


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
    """Inspect a model on a text: what each attention head attends to.

    For example:

        peasy look stories "The pizza came out of the oven and it tasted good"
        peasy look stories "The pizza came out of the oven and it tasted good" --query it
        peasy look stories "The pizza came out of the oven" --layer 2 --head 3 --out pizza.html
        peasy look stories "The pizza came out of the oven and it" --off 2.3 --off 1
        peasy look stories "The pizza came out of the oven and" --write 5
        peasy look locales-fr "3 days ago" --align
        peasy look stories - --overview mean --layer 2 < long.txt

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        text: Input text; - reads stdin. For a translator, the source.
        layer: Only these layers, numbered from 0.
        head: Only these heads, numbered from 0.
        query: Show what this word attends to, in every head.
        target: Translation to inspect; default: the translation of the model.
        scaled: Multiply each weight by the norm of its value vector.
        budget: Memory limit for captured arrays.
    """
    edits = _edits(changes, layer, head)
    if ways.film:
        from peasy.workbench.film import film

        return Answer(film(model))
    from peasy.workbench.load import load

    loaded = load(model, device=flags.device, offline=flags.offline, ask=asking(flags))
    capture: dict[str, Any] = {"layers": layer, "heads": head, "budget": budget, "scaled": scaled}
    other = _without_a_look(loaded, text, ways, capture, edits, flags)
    if other is not None:
        return other
    if ways.overview is not None:
        capture |= {"rows": None if query is None else [query], "edit": edits}
        return Answer(loaded.look(text, target, overview=ways.overview, tile=ways.tile, **capture))
    # for a single head, queries and keys are captured too, so that cells can be expanded to their arithmetic
    steps = ("weights", "query", "key") if layer and head and len(layer) == len(head) == 1 else ("weights",)
    result = loaded.look(text, target, steps=steps, **capture)
    result.words = not ways.tokens
    full = flags.out is not None or flags.json or bool(layer and head)
    shown = _changed(loaded, result, capture, edits, changes) if edits else _shown(result, capture, query, ways, full)
    return Answer(shown, next=_next(model, text, query), brief=f"{len(result.look.tokens)} tokens")


def _without_a_look(
    loaded: Any, text: str, ways: Ways, asked: dict[str, Any], edits: list[Any], flags: Flags
) -> Answer | None:
    """Return views that need no single capture: head ranking, generation trace, saved attention of a dataset."""
    selection = {"layers": asked["layers"], "heads": asked["heads"]}
    if ways.rank is not None:
        from peasy.workbench.heads import split_sentences

        return Answer(loaded.heads(split_sentences(text), by=ways.rank, seed=flags.seed or 0))
    if ways.write is not None:
        return Answer(loaded.trace(text, max_tokens=ways.write, beam=ways.beam, edit=edits, **selection))
    if ways.keep is not None:
        from peasy.workbench.looks import keep_looks

        texts = [line for part in read_source(text, "look") for line in part.splitlines() if line.strip()]
        return Answer(keep_looks(loaded, texts, ways.keep, budget=asked["budget"], **selection))
    return None


def _edits(changes: Changes, layer: list[int] | None, head: list[int] | None) -> list[Any]:
    """Return the interventions given by flags."""
    from peasy.looking.edit import cut, even, patch, read_cut, read_off

    one_layer, one_head = (numbers[0] if numbers and len(numbers) == 1 else None for numbers in (layer, head))
    edits: list[Any] = read_off(changes.off or ())
    edits += [even(target.layer, target.head) for target in read_off(changes.even or ())]
    edits += [cut(*read_cut(pair), layer=one_layer, head=one_head) for pair in changes.cut or ()]
    if changes.patch is not None:
        if one_layer is None:
            raise UsageError("--patch needs one --layer.", hint='For example: --layer 0 --patch "The soup came out"')
        edits.append(patch(changes.patch, one_layer, one_head))
    if not edits and (changes.word or changes.data):
        hint = "Add one: --off 2.3, --even 2.3, --cut it:pizza or --patch TEXT"
        raise UsageError("--word and --data need an intervention.", hint=hint)
    return edits


def _changed(loaded: Any, found: Any, asked: dict[str, Any], edits: list[Any], changes: Changes) -> Result:
    """Return the effect of the interventions on the same text."""
    changed = loaded.look(found.text, found.answer, edit=edits, **asked)
    options = {} if changes.data is None else {"data": changes.data}
    return found.against(changed, words=changes.word or (), **options)


def _shown(found: Any, asked: dict[str, Any], query: str | None, ways: Ways, whole: bool) -> Result:
    """Return the requested view."""
    if ways.steps:
        if not asked["layers"] or not asked["heads"]:
            raise UsageError(
                "--steps needs one --layer and one --head.", hint="For example: --layer 0 --head 1 --steps"
            )
        return found.work(asked["layers"][0], asked["heads"][0], query)
    if ways.align or ways.known is not None:
        return found.alignment(read_pairs(ways.known)[0] if ways.known is not None else ())
    if ways.lens or ways.rollout:
        return found.lens() if ways.lens else found.rollout()
    if query is not None:
        return found.heads(query, ways.top)
    return found if whole else found.brief(ways.top)


def read_pairs(told: str) -> Sequence[Any]:
    """Return the reference alignments, one per line, as typed or from a file."""
    from peasy.looking.alignment import read_known

    return [read_known(line) for line in read_source(told, "known")] or [read_known("")]


def _next(model: str, text: str, query: str | None) -> list[str]:
    short = text if len(text) <= 40 and "\n" not in text else "..."
    if query is None and text.split():
        return [f'peasy look {model} "{short}" --query {text.split()[-1].strip(".,!?")}']
    return [f'peasy look {model} "{short}" --layer 0 --head 0 --out look.html']
