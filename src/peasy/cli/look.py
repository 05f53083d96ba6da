"""`peasy look`: model inspection: attention, logit lens, ablation, activation patching."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags, TextArg, read_texts
from peasy.cli.confirm import confirm_callback
from peasy.commands.result import Result
from peasy.errors import UsageError

IntList = Annotated[list[int] | None, Parameter(negative="")]
StrList = Annotated[list[str] | None, Parameter(negative="")]
Switch = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ViewFlags:
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
class InterventionFlags:
    """Intervention flags: ablation, masked links, activation patching; the effect is shown."""

    off: StrList = None
    "Ablate a head (2.3 is layer 2, head 3) or a layer (2)."
    even: StrList = None
    "Uniform attention for a head (2.3), or for all heads of a layer (2)."
    cut: StrList = None
    "Mask the attention of one word to another (it:pizza), in all layers or in --layer and --head."
    patch: str | None = None
    "Activation patching: take the output of --layer (and --head) from this text, of equal token count."
    word: StrList = None
    "Track the probability of this word."
    data: str | None = None
    "Also evaluate the loss or BLEU on this dataset, before and after."


DEFAULT_VIEW, NO_INTERVENTIONS = ViewFlags(), InterventionFlags()


def look(
    model: str,
    text: TextArg = "",
    *,
    layer: IntList = None,
    head: IntList = None,
    query: str | None = None,
    target: str | None = None,
    scaled: Switch = False,
    budget: str = "512MB",
    ways: ViewFlags = DEFAULT_VIEW,
    changes: InterventionFlags = NO_INTERVENTIONS,
    flags: Flags = Flags(),
) -> CommandOutput:
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
    edits = _parse_interventions(changes, layer, head)
    if ways.film:
        from peasy.commands.attention_history import attention_history

        return CommandOutput(attention_history(model))
    from peasy.commands.load import load

    loaded = load(model, device=flags.device, offline=flags.offline, ask=confirm_callback(flags))
    capture: dict[str, Any] = {"layers": layer, "heads": head, "budget": budget, "scaled": scaled}
    other = _model_view(loaded, text, ways, capture, edits, flags)
    if other is not None:
        return other
    if ways.overview is not None:
        capture |= {"rows": None if query is None else [query], "edit": edits}
        return CommandOutput(loaded.look(text, target, overview=ways.overview, tile=ways.tile, **capture))
    # for a single head, queries and keys are captured too, so that cells can be expanded to their arithmetic
    steps = ("weights", "query", "key") if layer and head and len(layer) == len(head) == 1 else ("weights",)
    result = loaded.look(text, target, steps=steps, **capture)
    result.merge_words = not ways.tokens
    full = flags.out is not None or flags.json or bool(layer and head)
    shown = (
        _effect(loaded, result, capture, edits, changes) if edits else _text_view(result, capture, query, ways, full)
    )
    return CommandOutput(
        shown, suggestions=_suggestions(model, text, query), summary=f"{len(result.record.tokens)} tokens"
    )


def _model_view(
    loaded: Any, text: str, view: ViewFlags, capture: dict[str, Any], interventions: list[Any], flags: Flags
) -> CommandOutput | None:
    """Return views that need no single capture: head ranking, generation trace, saved attention of a dataset."""
    selection = {"layers": capture["layers"], "heads": capture["heads"]}
    if view.rank is not None:
        from peasy.commands.heads import split_sentences

        return CommandOutput(loaded.heads(split_sentences(text), by=view.rank, seed=flags.seed or 0))
    if view.write is not None:
        return CommandOutput(loaded.trace(text, max_tokens=view.write, beam=view.beam, edit=interventions, **selection))
    if view.keep is not None:
        from peasy.commands.look_dataset import save_activations

        texts = [line for part in read_texts(text, "look") for line in part.splitlines() if line.strip()]
        return CommandOutput(save_activations(loaded, texts, view.keep, budget=capture["budget"], **selection))
    return None


def _parse_interventions(flags: InterventionFlags, layer: list[int] | None, head: list[int] | None) -> list[Any]:
    """Return the interventions given by flags."""
    from peasy.inspection.interventions import cut, even, parse_ablations, parse_cut, patch

    one_layer, one_head = (numbers[0] if numbers and len(numbers) == 1 else None for numbers in (layer, head))
    edits: list[Any] = parse_ablations(flags.off or ())
    edits += [even(target.layer, target.head) for target in parse_ablations(flags.even or ())]
    edits += [cut(*parse_cut(pair), layer=one_layer, head=one_head) for pair in flags.cut or ()]
    if flags.patch is not None:
        if one_layer is None:
            raise UsageError("--patch needs one --layer.", hint='For example: --layer 0 --patch "The soup came out"')
        edits.append(patch(flags.patch, one_layer, one_head))
    if not edits and (flags.word or flags.data):
        hint = "Add one: --off 2.3, --even 2.3, --cut it:pizza or --patch TEXT"
        raise UsageError("--word and --data need an intervention.", hint=hint)
    return edits


def _effect(
    loaded: Any, result: Any, capture: dict[str, Any], interventions: list[Any], flags: InterventionFlags
) -> Result:
    """Return the effect of the interventions on the same text."""
    changed = loaded.look(result.text, result.answer, edit=interventions, **capture)
    options = {} if flags.data is None else {"data": flags.data}
    return result.compare(changed, words=flags.word or (), **options)


def _text_view(result: Any, capture: dict[str, Any], query: str | None, view: ViewFlags, full: bool) -> Result:
    """Return the requested view."""
    if view.steps:
        if not capture["layers"] or not capture["heads"]:
            raise UsageError(
                "--steps needs one --layer and one --head.", hint="For example: --layer 0 --head 1 --steps"
            )
        return result.work(capture["layers"][0], capture["heads"][0], query)
    if view.align or view.known is not None:
        return result.alignment(read_alignments(view.known)[0] if view.known is not None else ())
    if view.lens or view.rollout:
        return result.lens() if view.lens else result.rollout()
    if query is not None:
        return result.heads(query, view.top)
    return result if full else result.brief(view.top)


def read_alignments(source: str) -> Sequence[Any]:
    """Return the reference alignments, one per line, as typed or from a file."""
    from peasy.inspection.alignment import parse_gold_pairs

    return [parse_gold_pairs(line) for line in read_texts(source, "known")] or [parse_gold_pairs("")]


def _suggestions(model: str, text: str, query: str | None) -> list[str]:
    short = text if len(text) <= 40 and "\n" not in text else "..."
    if query is None and text.split():
        return [f'peasy look {model} "{short}" --query {text.split()[-1].strip(".,!?")}']
    return [f'peasy look {model} "{short}" --layer 0 --head 0 --out look.html']
