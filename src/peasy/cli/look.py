"""`peasy look`: model inspection: attention, logit lens, ablation, activation patching."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Group, Parameter

from peasy.cli.command import CommandOutput, Flags, IntList, StrList, Switch, TextArg, read_texts
from peasy.cli.derive import derive, flag_name
from peasy.commands.load import load
from peasy.commands.look_view import LookView, look_view
from peasy.commands.result import JsonDict, Result
from peasy.errors import UsageError

if TYPE_CHECKING:
    from peasy.inspection.edit import EditLike


_OPTIONS = Group("Options of views", sort_key=20)


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


@Parameter(name="*", group=_OPTIONS)
@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """Options of views that `look_view` has in another form; an option that the chosen view does not use is refused."""

    layer: IntList = None
    "Only these layers, numbered from 0."
    head: IntList = None
    "Only these heads, numbered from 0."
    subwords: Switch = False
    "Show the attention between tokens instead of words."
    gold: str | None = None
    "With --align: reference alignment as source-target pairs (0-0 1-2), or @file with them, to rank the heads by."
    num_beams: int | None = None
    "With --generate: beam search with this many beams."


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
_INPUT = ("add_special_tokens", "max_memory")
OPTIONS_OF_VIEWS: dict[str, tuple[str, ...]] = {
    ATTENTION: ("layer", "head", "query", "target", "top", "subwords", "measure", *_INPUT),
    EFFECT: ("target", *_INPUT, *_INTERVENTIONS, "track", "data"),
    "lens": ("target", *_INPUT, *_INTERVENTIONS),
    "rollout": ("target", *_INPUT, *_INTERVENTIONS),
    "rank": ("add_special_tokens",),
    "attribution": ("query", "target", "token", "against", *_INPUT, *_INTERVENTIONS),
    "align": ("layer", "head", "target", "gold", *_INPUT, *_INTERVENTIONS),
    "step_by_step": ("layer", "head", "query", "target", *_INPUT, *_INTERVENTIONS),
    # A growing text has no fixed words to cut.
    "generate": ("layer", "head", "num_beams", "add_special_tokens", "ablate", "mean", "uniform"),
    "history": (),
    "overview": ("layer", "head", "query", "target", "measure", "tile_size", *_INPUT, *_INTERVENTIONS),
    "save_weights": ("layer", "head", *_INPUT),
}
"""Options that each view uses; `effect` is the view of an intervention without another view."""

_VIEWS: dict[str, LookView] = {
    EFFECT: "effect", "lens": "lens", "rollout": "rollout", "rank": "rank", "align": "align", "step_by_step": "steps",
    "attribution": "attribution",
}  # fmt: skip
"""Name in `look_view` of each view that has one."""


_HIDDEN = (
    "view",
    "layers",
    "heads",
    "queries",
    "steps",
    "edit",
    "overview",
    "by",
    "merge_words",
    "gold",
    "words",
    "data",
)
"""Parameters of `look_view` that other flags give."""


@derive(look_view, hide=_HIDDEN, group=_OPTIONS)
def look(
    call: partial[Result],
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
    given = call.keywords
    common = {name: given[name] for name in ("device", "offline", "confirm")}
    derived = [option for option in given if option not in (*common, "seed")]
    name = _chosen_view(view, [*_given(options), *derived], interventions)
    if name == "history":
        from peasy.commands.attention_history import attention_history

        if text is not None:
            hint = f"The sentence is in the run: peasy look {model} --history"
            raise UsageError("--history takes no TEXT.", hint=hint)
        return CommandOutput(attention_history(model))
    if text is None:
        raise UsageError("look needs TEXT.", hint="Give a text in quotes, or - to read stdin.")
    edits = _parse_interventions(interventions, options) if _given(interventions) else []
    layers, heads = options.layer, options.head
    if name == "step_by_step" and not len(layers or ()) == len(heads or ()) == 1:
        hint = "For example: --layer 0 --head 1 --step-by-step"
        raise UsageError("--step-by-step needs one --layer and one --head.", hint=hint)
    loaded, add = load(model, **common), given.get("add_special_tokens", True)
    if view.generate is not None:
        traced = loaded.trace(
            text, max_tokens=view.generate, num_beams=options.num_beams, edit=edits,
            layers=layers, heads=heads, add_special_tokens=add,
        )  # fmt: skip
        return CommandOutput(traced)
    if view.save_weights is not None:
        from peasy.commands.look import save_activations

        texts = [line for part in read_texts(text, "look") for line in part.splitlines() if line.strip()]
        save = partial(save_activations, loaded, texts, view.save_weights, layers=layers, heads=heads)
        return CommandOutput(save(**{name: given[name] for name in _INPUT if name in given}))
    result = call(loaded, text, edit=edits, **_view_keywords(name, view, options, interventions, flags, given))
    if name in ("rank", "overview"):
        return CommandOutput(result)
    summary = f"{len(loaded.encode_prompt(text, add_special_tokens=add))} tokens" if flags.out else ""
    return CommandOutput(result, suggestions=[_next_command(model, text, given.get("query"))], summary=summary)


def _view_keywords(
    name: str, view: ViewFlags, options: ViewOptions, interventions: InterventionFlags, flags: Flags,
    given: Mapping[str, object],
) -> JsonDict:  # fmt: skip
    """Return the arguments of `look_view` that are not given by a flag of the same name."""
    layers, heads, query = options.layer, options.head, given.get("query")
    keywords: JsonDict = {
        "view": _VIEWS.get(name, "look"),
        "overview": view.overview,
        "by": view.rank or "",
        "merge_words": not options.subwords,
        "gold": () if options.gold is None else read_alignments(options.gold)[0],
        "words": interventions.track or (),
        "data": interventions.data,
    }
    if {"layer", "head"} <= set(OPTIONS_OF_VIEWS[name]):  # else they say where to intervene
        keywords |= {"layers": layers, "heads": heads}
    if name == ATTENTION:
        detailed = bool(flags.out or flags.json or options.subwords or (layers and heads)) and "top" not in given
        keywords["view"] = "heads" if query is not None else "look" if detailed else "summary"
        if (
            len(layers or ()) == len(heads or ()) == 1
        ):  # queries and keys too: cells can be expanded to their arithmetic
            keywords["steps"] = ("weights", "query", "key")
    elif name == "lens":
        keywords["top"] = 3
    elif name == "overview" and query is not None:
        keywords["queries"] = [query]
    return keywords


def _next_command(model: str, text: str, query: str | None) -> str:
    """Suggest another view: what the last word attends to, or one head as a page."""
    short = text if len(text) <= 40 and "\n" not in text else "..."
    last = "--layer 0 --head 0 --out look.html"
    if query is None and text.split():
        last = f"--query {text.split()[-1].strip('.,!?')}"
    return f'peasy look {model} "{short}" {last}'


def _chosen_view(view: ViewFlags, options: Sequence[str], interventions: InterventionFlags) -> str:
    """Return the name of the view; raise if two views are given, or an option that the view does not use."""
    views = _given(view)
    if len(views) > 1:
        hint = "Choose one of them; see: peasy look --help"
        raise UsageError(f"{_join(views, 'and')} are different views.", hint=hint)
    changes = _given(interventions)
    if changes and not set(changes) & set(_INTERVENTIONS):
        message = f"{_join(changes, 'and')} need{'s' * (len(changes) == 1)} an intervention."
        raise UsageError(message, hint="Add one: --ablate 2.3, --uniform 2.3, --cut it:pizza or --patch TEXT")
    name = views[0] if views else EFFECT if changes else ATTENTION
    allowed = OPTIONS_OF_VIEWS[name]
    if interventions.cut or interventions.patch is not None:
        allowed = (*allowed, "layer", "head")  # where to intervene
    given = [*options, *changes]
    if unused := [option for option in given if option not in allowed]:
        raise _unused_option(unused[0], name)
    for option in ("query", "top"):
        if option in given and "subwords" in given:
            raise UsageError(f"--{option} and --subwords cannot be combined.", hint="Leave out one of them.")
    return name


def _given(flags: ViewFlags | ViewOptions | InterventionFlags) -> list[str]:
    return [name for name, value in vars(flags).items() if value is not None and value is not False]


def _join(names: Sequence[str], word: str) -> str:
    *first, last = map(_shown, names)
    return f"{', '.join(first)} {word} {last}" if first else last


def _shown(name: str) -> str:
    """Return the flag of an option; special tokens are there unless they are left out."""
    return flag_name("no_special_tokens" if name == "add_special_tokens" else name)


def _unused_option(option: str, view: str) -> UsageError:
    own = {name: used for name, used in OPTIONS_OF_VIEWS.items() if name not in (ATTENTION, EFFECT)}
    users = [name for name, used in own.items() if option in used]
    if view == ATTENTION:
        return UsageError(f"{_shown(option)} needs {_join(users, 'or')}.", hint="See: peasy look --help")
    where = "an intervention" if view == EFFECT else flag_name(view)
    hint = f"It belongs to {_join(users, 'or')}." if users else "Leave it out, or show it in a second command."
    return UsageError(f"{_shown(option)} has no effect with {where}.", hint=hint)


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
