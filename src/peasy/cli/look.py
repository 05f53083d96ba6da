"""`peasy look`: model inspection: attention, logit lens, ablation, activation patching."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Group, Parameter

from peasy.cli.command import CommandOutput, Flags, IntList, StrList, Switch, TextArg, confirm_callback, read_texts
from peasy.cli.derive import flag_name
from peasy.errors import UsageError
from peasy.inspection.results import AttentionMeasure

if TYPE_CHECKING:
    from peasy.commands.load import LoadedModel
    from peasy.commands.look import LookView
    from peasy.commands.result import Result
    from peasy.inspection.edit import EditLike


@Parameter(name="*", group=Group("Views (choose one; default: attention)", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class ViewFlags:
    """Views: what to show instead of attention. At most one can be chosen."""

    lens: Switch = False
    "Logit lens: the prediction of each layer."
    rollout: Switch = False
    "Attention rollout: the product of the attention matrices of all layers."
    rank: str | None = None
    "Rank all heads by a score: entropy, sharpness, previous, first, same, induction, ..."
    attribution: Switch = False
    "Logit attribution: the logit of the next token as a sum over heads, source tokens, MLPs and embedding."
    align: Switch = False
    "Word alignment of a translator, from its cross-attention."
    step_by_step: Switch = False
    "One head step by step, as a worked example; needs one --layer and one --head."
    generate: int | None = None
    "Generate this many tokens and show the attention of each."
    history: Switch = False
    "Attention over training: the tracked sentence of a run at every checkpoint; takes no TEXT."
    overview: Literal["mean", "max"] | None = None
    "Attention of a long text in tiles; each tile is the mean or maximum of its weights."
    save_weights: Path | None = None
    "Save the attention weights of each line of TEXT to this folder, as safetensors shards."


@Parameter(name="*", group=Group("Options of views", sort_key=20))
@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """Options of views; an option that the chosen view does not use is refused."""

    layer: IntList = None
    "Only these layers, numbered from 0."
    head: IntList = None
    "Only these heads, numbered from 0."
    query: str | None = None
    "Show what this word attends to, in every head."
    target: str | None = None
    "Translation to inspect; default: the translation of the model."
    top: int | None = None
    "Number of words to show for each head; default: 5."
    subwords: Switch = False
    "Show the attention between tokens instead of words."
    no_special_tokens: Switch = False
    "Leave out the special tokens that the model expects around a text, such as <bos>."
    measure: AttentionMeasure | None = None
    "Show weight (default), value (weight times norm of the value vector), or norm (of weight times value times W_O)."
    token: str | None = None
    "With --attribution: word whose logit is explained; default: the most likely one."
    against: str | None = None
    "With --attribution: word whose logit is subtracted."
    gold: str | None = None
    "With --align: reference alignment as source-target pairs (0-0 1-2), or @file with them, to rank the heads by."
    num_beams: int | None = None
    "With --generate: beam search with this many beams."
    tile_size: int | None = None
    "With --overview: tokens per tile; default: chosen by the length of the text."
    max_memory: str | None = None
    "Memory limit for captured arrays; default: 512MB."


@Parameter(name="*", group=Group("Interventions (their effect is shown)", sort_key=30))
@dataclass(frozen=True, kw_only=True)
class InterventionFlags:
    """Interventions: ablation, masked attention, activation patching; the effect is shown."""

    ablate: StrList = None
    "Ablate a head (2.3 is layer 2, head 3) or a layer (2): its output is set to zero, or see --mean."
    mean: str | None = None
    "With --ablate: set the output to its mean over this dataset instead, which later layers are used to."
    uniform: StrList = None
    "Uniform attention for a head (2.3), or for all heads of a layer (2)."
    cut: StrList = None
    "Mask the attention of one word to another (it:pizza), in all layers or in --layer and --head."
    patch: str | None = None
    "Activation patching: take the output of --layer (and --head) from this text, of equal token count."
    track: StrList = None
    "Track the probability of this word."
    data: str | None = None
    "Also evaluate the loss or BLEU on this dataset, before and after."


ATTENTION, EFFECT = "attention", "effect"
_INTERVENTIONS = ("ablate", "mean", "uniform", "cut", "patch")
_INPUT = ("no_special_tokens", "max_memory")
OPTIONS_OF_VIEWS: dict[str, tuple[str, ...]] = {
    ATTENTION: ("layer", "head", "query", "target", "top", "subwords", "measure", *_INPUT),
    EFFECT: ("target", *_INPUT, *_INTERVENTIONS, "track", "data"),
    "lens": ("target", *_INPUT, *_INTERVENTIONS),
    "rollout": ("target", *_INPUT, *_INTERVENTIONS),
    "rank": ("no_special_tokens",),
    "attribution": ("query", "target", "token", "against", *_INPUT, *_INTERVENTIONS),
    "align": ("layer", "head", "target", "gold", *_INPUT, *_INTERVENTIONS),
    "step_by_step": ("layer", "head", "query", "target", *_INPUT, *_INTERVENTIONS),
    # A growing text has no fixed words to cut.
    "generate": ("layer", "head", "num_beams", "no_special_tokens", "ablate", "mean", "uniform"),
    "history": (),
    "overview": ("layer", "head", "query", "target", "measure", "tile_size", *_INPUT, *_INTERVENTIONS),
    "save_weights": ("layer", "head", *_INPUT),
}
"""Options that each view uses; `effect` is the view of an intervention without another view."""

_VIEWS: "dict[str, LookView]" = {
    EFFECT: "effect", "lens": "lens", "rollout": "rollout", "rank": "rank", "align": "align", "step_by_step": "steps",
    "attribution": "attribution",
}  # fmt: skip
"""Name in `look_view` of each view that has one."""


def look(
    model: str,
    text: TextArg | None = None,
    *,
    view: ViewFlags = ViewFlags(),
    options: ViewOptions = ViewOptions(),
    interventions: InterventionFlags = InterventionFlags(),
    flags: Flags = Flags(),
) -> CommandOutput:
    """Inspect a model on a text: what each attention head attends to, and what depends on it.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        text: Input text; - reads stdin. For a translator, the source.
    """
    name = _chosen_view(view, options, interventions)
    if name == "history":
        from peasy.commands.attention_history import attention_history

        if text is not None:
            hint = f"The sentence is in the run: peasy look {model} --history"
            raise UsageError("--history takes no TEXT.", hint=hint)
        return CommandOutput(attention_history(model))
    if text is None:
        raise UsageError("look needs TEXT.", hint="Give a text in quotes, or - to read stdin.")
    edits = _parse_interventions(interventions, options) if _given(interventions) else []
    layer, head = options.layer, options.head
    if name == "step_by_step" and not len(layer or ()) == len(head or ()) == 1:
        hint = "For example: --layer 0 --head 1 --step-by-step"
        raise UsageError("--step-by-step needs one --layer and one --head.", hint=hint)
    from peasy.commands.load import load
    from peasy.commands.look import save_activations
    from peasy.inspection.capture import MAX_MEMORY

    loaded = load(model, device=flags.device, offline=flags.offline, confirm=confirm_callback(flags))
    memory, add = options.max_memory or MAX_MEMORY, not options.no_special_tokens
    where: dict[str, Any] = {"layers": layer, "heads": head, "add_special_tokens": add}
    if view.generate is not None:
        traced = loaded.trace(text, max_tokens=view.generate, num_beams=options.num_beams, edit=edits, **where)
        return CommandOutput(traced)
    if view.save_weights is not None:
        texts = [line for part in read_texts(text, "look") for line in part.splitlines() if line.strip()]
        return CommandOutput(save_activations(loaded, texts, view.save_weights, max_memory=memory, **where))
    result = _run_view(loaded, text, name, edits, view, options, interventions, flags)
    if name in ("rank", "overview"):
        return CommandOutput(result)
    summary = f"{len(loaded.encode_prompt(text, add_special_tokens=add))} tokens" if flags.out else ""
    return CommandOutput(result, suggestions=[_next_command(model, text, options.query)], summary=summary)


def _run_view(
    loaded: "LoadedModel", text: str, name: str, edits: "list[EditLike]", view: ViewFlags, options: ViewOptions,
    interventions: InterventionFlags, flags: Flags,
) -> "Result":  # fmt: skip
    from peasy.commands.look import look_view
    from peasy.inspection.capture import MAX_MEMORY

    layer, head, query = options.layer, options.head, options.query
    one_head = len(layer or ()) == len(head or ()) == 1
    chosen = _VIEWS.get(name, "look")
    if name == ATTENTION:
        detailed = bool(flags.out or flags.json or options.subwords or (layer and head)) and options.top is None
        chosen = "heads" if query is not None else "look" if detailed else "summary"
    selects = {"layer", "head"} <= set(OPTIONS_OF_VIEWS[name])  # else they say where to intervene
    return look_view(
        loaded, text, options.target,
        view=chosen,
        layers=layer if selects else None,
        heads=head if selects else None,
        queries=[query] if name == "overview" and query is not None else None,
        # for a single head, queries and keys are captured too, so that cells can be expanded to their arithmetic
        steps=("weights", "query", "key") if name == ATTENTION and one_head else ("weights",),
        edit=edits,
        overview=view.overview,
        tile_size=options.tile_size,
        measure=options.measure or "weight",
        query=query,
        top=3 if name == "lens" else options.top or 5,
        by=view.rank or "",
        merge_words=not options.subwords,
        add_special_tokens=not options.no_special_tokens,
        gold=() if options.gold is None else read_alignments(options.gold)[0],
        words=interventions.track or (),
        token=options.token,
        against=options.against,
        data=interventions.data,
        max_memory=options.max_memory or MAX_MEMORY,
        seed=flags.seed or 0,
    )  # fmt: skip


def _next_command(model: str, text: str, query: str | None) -> str:
    """Suggest another view: what the last word attends to, or one head as a page."""
    short = text if len(text) <= 40 and "\n" not in text else "..."
    last = "--layer 0 --head 0 --out look.html"
    if query is None and text.split():
        last = f"--query {text.split()[-1].strip('.,!?')}"
    return f'peasy look {model} "{short}" {last}'


def _chosen_view(view: ViewFlags, options: ViewOptions, interventions: InterventionFlags) -> str:
    """Return the name of the view; raise if two views are given, or an option that the view does not use."""
    views = _given(view)
    if len(views) > 1:
        hint = "Choose one of them; see: peasy look --help"
        raise UsageError(f"{_join(views, 'and')} are different views.", hint=hint)
    changes = _given(interventions)
    if changes and not set(changes) & set(_INTERVENTIONS):
        message = f"{_join(changes, 'and')} need{'s' * (len(changes) == 1)} an intervention."
        raise UsageError(message, hint="Add one: --ablate 2.3, --uniform 2.3, --cut it:pizza or --patch TEXT")
    if options.top is not None and options.top < 1:
        raise UsageError("--top must be 1 or more.")
    name = views[0] if views else EFFECT if changes else ATTENTION
    allowed = OPTIONS_OF_VIEWS[name]
    if interventions.cut or interventions.patch is not None:
        allowed = (*allowed, "layer", "head")  # where to intervene
    given = [*_given(options), *changes]
    if unused := [option for option in given if option not in allowed]:
        raise _unused_option(unused[0], name)
    for option in ("query", "top"):
        if option in given and "subwords" in given:
            raise UsageError(f"--{option} and --subwords cannot be combined.", hint="Leave out one of them.")
    return name


def _given(flags: ViewFlags | ViewOptions | InterventionFlags) -> list[str]:
    return [name for name, value in vars(flags).items() if value is not None and value is not False]


def _join(names: Sequence[str], word: str) -> str:
    *first, last = map(flag_name, names)
    return f"{', '.join(first)} {word} {last}" if first else last


def _unused_option(option: str, view: str) -> UsageError:
    own = {name: used for name, used in OPTIONS_OF_VIEWS.items() if name not in (ATTENTION, EFFECT)}
    users = [name for name, used in own.items() if option in used]
    if view == ATTENTION:
        return UsageError(f"{flag_name(option)} needs {_join(users, 'or')}.", hint="See: peasy look --help")
    where = "an intervention" if view == EFFECT else flag_name(view)
    hint = f"It belongs to {_join(users, 'or')}." if users else "Leave it out, or show it in a second command."
    return UsageError(f"{flag_name(option)} has no effect with {where}.", hint=hint)


def _parse_interventions(flags: InterventionFlags, options: ViewOptions) -> "list[EditLike]":
    """Return the interventions given by flags; cuts apply to every --layer and --head, patches to one layer."""
    from peasy.inspection.edit import cut, mean, parse_cut, parse_heads, patch, uniform, zero

    layers: list[int | None] = [*options.layer] if options.layer else [None]
    heads: list[int | None] = [*options.head] if options.head else [None]
    if flags.mean is not None and not flags.ablate:
        raise UsageError("--mean needs --ablate.", hint="For example: --ablate 2.3 --mean stories")
    edits: list[EditLike] = []
    for at in parse_heads(flags.ablate or ()):
        edits.append(zero(*at) if flags.mean is None else mean(flags.mean, *at))
    edits += [uniform(*at) for at in parse_heads(flags.uniform or ())]
    for pair, layer, head in product(flags.cut or (), layers, heads):
        edits.append(cut(*parse_cut(pair), layer=layer, head=head))
    if flags.patch is not None:
        layer = layers[0]
        if len(layers) > 1 or layer is None:
            raise UsageError("--patch needs one --layer.", hint='For example: --layer 0 --patch "The soup came out"')
        edits += [patch(flags.patch, layer, head) for head in heads]
    return edits


def read_alignments(source: str) -> "list[tuple[tuple[int, int], ...]]":
    """Return the reference alignments, one per line, as typed or from @file."""
    from peasy.inspection.alignment import parse_gold_pairs

    return [parse_gold_pairs(line) for line in read_texts(source, "gold")] or [parse_gold_pairs("")]
