"""Forward pass of one text as data of one picture: residual stream, heads, logit lens and next tokens, by layer.

The studio's home page draws it; the arithmetic of one head is requested when it is opened (`look`).
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import isclose, isfinite
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt
from torch.nn.functional import cross_entropy

from peasy.commands.load import LoadedModel, ModelSource, load
from peasy.commands.model_input import LabelledInput, edit_context, make_input
from peasy.commands.result import Result
from peasy.errors import InvalidInput
from peasy.formula.attention import attention_captions
from peasy.formula.scoring import NORMALISATIONS, SCORINGS, Additive
from peasy.formula.step import FormulaStep
from peasy.inspection.apply_edits import make_intervention
from peasy.inspection.edit import EditLike, edit_summary, zero
from peasy.inspection.forward import attentions_of, default_stack, dims_of, forward_logits, likeliest_tokens
from peasy.inspection.results import CAVEAT, AttentionInfo, TokenProbability, Tokens
from peasy.inspection.words import token_piece
from peasy.models.protocol import Model
from peasy.models.rnn_translator import RecurrentTranslator
from peasy.models.transformer import CausalTransformer
from peasy.nn.capture import AttentionInputs
from peasy.nn.module_path import Address, ModulePath
from peasy.nn.stack import Stack
from peasy.nn.tap import Activation, Tap
from peasy.parameters import Record
from peasy.views.attention import opening_notes
from peasy.views.document import Document, Table, capitalized_note, short_title

MAX_MAP = 64
"""Cells along each side of a head's map; longer texts are pooled by their largest weight."""
_STRIP = 16
"""Numbers shown of a vector: its first ones."""
_MAX_STORY_HEADS = 24
"""Heads that are ablated one by one to find the one that matters most; fewer where that would take seconds."""
_STORY_BUDGET = 2e11
"""Multiplications that the search for this head may take."""
MAX_HEAD_NUMBERS = 400_000
"""Numbers of all heads that are included if none are named, those of the story first."""
_HEAD_NUMBERS = ("query", "key", "value", "masked", "context")
"""Steps of the formula that the arithmetic of one weight needs, beside the weights."""
_WHY_SCALED = " Longer vectors add up more products to larger scores; softmax would give almost all weight to one key."
_MASK = "M is added: minus infinity for keys that a token must not see, such as later ones; else 0, or a bias."
_GRADIENT = "The way back: how the loss changes with each score. All gradients are in thousandths."
_MIN_STORY_WEIGHT = 0.3
"""Smallest weight of the key that such a head attends to."""
_NUM_NEXT_TOKENS = 8


class HeadMaps(Record):
    """Attention of one layer: `maps` are the weights of its heads as base64 bytes `[head, row, column]`, 255 = 1.

    A cell stands for `tile` queries by `tile` keys, and is the largest of their weights.
    """

    part: str
    num_heads: int
    kv_head: tuple[int, ...]
    window: int | None
    rows: int
    columns: int
    tile: int
    maps: str


class LayerPass(Record):
    """One layer: what each sublayer adds to the residual stream of each token, and the stream after the layer.

    `added` are the norms of the outputs by part and token, `norms` those of the stream, `vectors` its first numbers,
    `lens` the logit lens after the last token.
    """

    layer: int
    attentions: tuple[HeadMaps, ...]
    added: dict[str, tuple[float, ...]]
    norms: tuple[float, ...]
    vectors: tuple[tuple[float, ...], ...]
    lens: tuple[TokenProbability, ...] = ()


class StackPass(Record):
    """One stack of layers with its tokens; `recurrent`: an RNN, whose states pass from token to token."""

    name: str
    tokens: Tokens
    num_layers: int
    embedding: tuple[tuple[float, ...], ...]
    layers: tuple[LayerPass, ...]
    final: tuple[tuple[float, ...], ...] = ()
    recurrent: bool = False


class HeadStory(Record):
    """The head whose ablation changes the next token most: where the last token attends, and the change."""

    stack: str
    part: str
    layer: int
    head: int
    query: int
    key: int
    weight: float
    token: str
    before: float
    after: float


class HeadNumbers(Record):
    """Numbers of one head, `steps[name][row][column]`, and the constants that its formula needs beside them.

    A masked score is None. Scores are divided by `divisor`. Of additive attention, query and key are projected (W q and
    U k), and `additive` is the vector v that multiplies the tanh of their sum.
    """

    stack: str
    part: str
    layer: int
    head: int
    steps: dict[str, list[list[float | None]]]
    """Also `bias`, if one is added to the scores, and of a training step `gradient`: that of the loss by the head's
    context, in thousandths."""
    divisor: float = 1.0
    softcap: float | None = None
    sink: float | None = None
    additive: tuple[float, ...] = ()
    captions: dict[str, str] = field(default_factory=dict)
    """What each step of the formula does, in this attention."""


class AblatedHead(Record):
    """The model without one head: its next tokens, and the layers from that of the head on."""

    part: str
    layer: int
    head: int
    next_tokens: tuple[TokenProbability, ...]
    layers: tuple[LayerPass, ...] = ()


class ForwardPass(Result, eq=False, repr=True):
    """Forward pass of one text: a picture of the whole model with its numbers."""

    json_decimals = 5

    model: str
    model_kind: str
    d_model: int
    d_head: int
    d_ff: int
    vocab_size: int
    pre_norm: bool
    position: str
    stacks: tuple[StackPass, ...]
    next_tokens: tuple[TokenProbability, ...]
    answer_row: int
    """Token after which the next tokens and the logit lens are: the last, or that of a translation's story."""
    story: HeadStory | None
    interventions: tuple[str, ...]
    head_numbers: tuple[HeadNumbers, ...] = ()
    ablations: tuple[AblatedHead, ...] = ()
    loss: float | None = None
    """Of a training step: mean cross-entropy of each next token; the last one is the model's likeliest."""
    caveat: str = CAVEAT

    def document(self) -> Document:
        """Return the picture, for pages, and the logit lens by layer and the next tokens as tables."""
        rows = [
            (layer.layer, ", ".join(f"{token.piece} {token.probability:.2f}" for token in layer.lens))
            for stack in self.stacks
            for layer in stack.layers
            if layer.lens
        ]
        after = Table(("layer", "most likely next tokens after it"), tuple(rows))
        following = Table(("next token", "probability"), tuple((t.piece, t.probability) for t in self.next_tokens))
        tables = [table for table in (after, following) if table.rows]
        text = " ".join(piece.strip("·") for piece in self.stacks[0].tokens.pieces if not piece.startswith("<"))
        title = f"“{short_title(text)}” through the model {self.model}"
        notes = tuple(opening_notes(self.interventions))
        return Document(title, (*notes, *tables, capitalized_note(self.caveat)), picture=self.data())


@torch.no_grad()  # not inference_mode: a backward pass may use the loaded weights
def forward_pass(
    model: ModelSource,
    text: str,
    target: str | None = None,
    *,
    edit: Sequence[EditLike] = (),
    story: bool = True,
    head_numbers: Sequence[str] | None = None,
    ablations: bool = True,
    gradients: bool = False,
    answer_row: int | None = None,
    temperature: Annotated[float, Gt(0)] = 1.0,
    add_special_tokens: bool = True,
) -> ForwardPass:
    """Return the forward pass of a text, layer by layer, for one picture of the whole model.

    Args:
        model: The model.
        text: Input text; for a translator, the source.
        target: Translation to show; None: the model's own.
        edit: Interventions.
        story: Also find the head whose ablation changes the next token most.
        head_numbers: Heads whose numbers are included, such as decoder.1.attention.0, or story for the head of the
            story; None: as many as fit a page.
        ablations: Also the next tokens without each head, if the model is small.
        gradients: Also the loss of a training step on this text and the gradients of its heads, if the model generates.
        answer_row: Output token after which the next tokens are shown; None: the last, or in a translation that of the
            story.
        temperature: Of the next tokens.
        add_special_tokens: Add the special tokens that the model expects around a text, such as <bos>.

    >>> shown = forward_pass("stories", "The pizza came out of the oven and it")
    >>> shown.story.token, round(shown.story.before, 2), round(shown.story.after, 2)
    ('·tasted', 0.18, 0.07)
    """
    model = load(model)
    inputs = make_input(model, text, target, add_special_tokens=add_special_tokens)
    activations: list[Activation] = []
    formulas: dict[ModulePath, AttentionInputs] = {}
    wanted = _HEAD_NUMBERS if head_numbers is None or head_numbers else ()
    steps = ["weights", *wanted, "residual", "output", "final"]
    intervention = make_intervention(tuple(edit), edit_context(model, inputs))

    def keep(activation: Activation) -> None:
        path = activation.path
        layer = f"{path.stack}.{path.layer}.{path.part}."
        names = head_numbers or ["story"]
        if activation.step not in _HEAD_NUMBERS or any(name == "story" or name.startswith(layer) for name in names):
            activations.append(activation)

    tap = Tap(keep, steps=steps, on_attention=formulas.__setitem__)
    all_positions = model.model.is_encoder_decoder or answer_row is not None
    logits = forward_logits(model.model, inputs.model_input, tap, intervention, all_positions=all_positions)
    dims, config = dims_of(model.model), model.model.config
    names = ("encoder", "decoder") if model.model.is_encoder_decoder else (default_stack(model.model),)
    generates = logits is not None and model.kind != "encoder"
    settings = getattr(config, "stack", None) or getattr(config, "decoder", None)
    found = _find_story(model, inputs, activations, edit) if story and generates else None
    last = len(inputs.model_input.output_ids) - 1
    row = answer_row if answer_row is not None else found.query if found else last
    if not 0 <= row <= last:
        raise InvalidInput(f"There is no output token {row}.", hint=f"Choose from 0 to {last}.")
    stacks = tuple(_stack_pass(model, name, inputs, activations, row if generates else None) for name in names)
    after = logits[row] if logits is not None and all_positions else logits
    loss, backward = _backward_pass(model, inputs, edit) if gradients and generates else (None, [])
    return ForwardPass(
        model.name, model.kind, dims.d_model, dims.d_head, dims.d_ff, dims.vocab_size,
        pre_norm=getattr(getattr(settings, "norm", None), "placement", "pre") == "pre",
        position=getattr(getattr(config, "position", None), "kind", ""),
        stacks=stacks,
        next_tokens=likeliest_tokens(model, (after - after.max()).cpu().double() / temperature, _NUM_NEXT_TOKENS)
        if after is not None and generates else (),
        answer_row=row,
        story=found,
        interventions=tuple(map(edit_summary, edit)),
        head_numbers=_head_numbers(model.model, [*activations, *backward], formulas, head_numbers, found),
        ablations=_ablate(model, inputs, edit, row) if ablations and generates else (),
        loss=loss,
    )  # fmt: skip


def _stack_pass(
    loaded: LoadedModel, name: str, inputs: LabelledInput, activations: Iterable[Activation], answer_row: int | None
) -> StackPass:
    tokens = inputs.target if name == "decoder" and inputs.target is not None else inputs.tokens
    mine = [activation for activation in activations if activation.path.stack == name]
    stream = {a.path.layer: a.array[0].float() for a in mine if a.step == "residual"}
    finals = [a.array[0].float() for a in mine if a.step == "final"]
    infos = [info for info in attentions_of(loaded.model) if info.path.stack == name]
    stack = getattr(loaded.model, name, None)
    is_transformer = isinstance(stack, Stack)
    num_layers = dims_of(loaded.model).num_layers.get(name, 0) if is_transformer else int(bool(infos))
    is_answering = is_transformer and name == default_stack(loaded.model)
    layers = []
    for layer in range(num_layers):
        after = stream.get(layer + 1)
        of_layer = [a for a in mine if a.path.layer == layer]
        outputs = {a.path.part: a.array[0] for a in of_layer if a.step == "output"}
        maps = [_head_maps(info, of_layer) for info in infos if info.path.layer == layer]
        norms, vectors = ((), ()) if after is None else (_norms(after), _strips(after))
        shown = None if after is None or answer_row is None or not is_answering else after[None, [answer_row]]
        added = {part: _norms(array) for part, array in outputs.items()}
        found = tuple(one for one in maps if one is not None)
        lens = () if shown is None else _lens(loaded, stack, shown)
        layers.append(LayerPass(layer, found, added, norms, vectors, lens))
    embedding, final = stream.get(0), finals[-1] if finals else None
    return StackPass(
        name, tokens, num_layers, () if embedding is None else _strips(embedding), tuple(layers),
        () if final is None else _strips(final), recurrent=not is_transformer,
    )  # fmt: skip


def _lens(loaded: LoadedModel, stack: object, after: torch.Tensor) -> tuple[TokenProbability, ...]:
    assert isinstance(stack, Stack)
    assert isinstance(loaded.model, CausalTransformer)
    logits = loaded.model.logits(after if stack.norm is None else stack.norm(after))
    return likeliest_tokens(loaded, logits[0, -1], 3)


def _norms(array: torch.Tensor) -> tuple[float, ...]:
    return tuple(array.float().norm(dim=-1).tolist())


def _strips(array: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in array[:, :_STRIP].float().tolist())


def _head_maps(info: AttentionInfo, activations: Iterable[Activation]) -> HeadMaps | None:
    weights = next((a.array[0] for a in activations if a.step == "weights" and a.path == info.path), None)
    if weights is None:
        return None
    heads, queries, keys = weights.shape
    tile = -(-max(queries, keys) // MAX_MAP)
    rows, columns = -(-queries // tile), -(-keys // tile)
    padded = weights.new_zeros(heads, rows * tile, columns * tile, dtype=torch.float32)
    padded[:, :queries, :keys] = weights.float()
    pooled = padded.unflatten(2, (columns, tile)).unflatten(1, (rows, tile)).amax(dim=(2, 4))
    codes = np.rint(pooled.clamp(0, 1).numpy() * 255).astype(np.uint8)
    maps = base64.b64encode(codes.tobytes()).decode()
    return HeadMaps(info.path.part, heads, info.kv_head, info.window, rows, columns, tile, maps)


def _head_numbers(
    model: Model, activations: Iterable[Activation], formulas: Mapping[ModulePath, AttentionInputs],
    names: Sequence[str] | None, story: HeadStory | None,
) -> tuple[HeadNumbers, ...]:  # fmt: skip
    """Return the numbers of the named heads, or of as many as fit a page, that of the story first."""
    arrays: dict[tuple[str, str, int, int], dict[str, torch.Tensor]] = {}
    for activation in activations:
        if activation.step in (*_HEAD_NUMBERS, "weights", "gradient"):
            stack, layer, part = activation.path
            for head, array in enumerate(activation.array[0]):
                arrays.setdefault((stack, part, layer, head), {})[activation.step] = array
    told = None if story is None else (story.stack, story.part, story.layer, story.head)
    chosen, room = [], MAX_HEAD_NUMBERS
    for place in sorted(arrays, key=lambda place: place != told):
        stack, part, layer, head = place
        steps = arrays[place]
        if names is None:
            room -= sum(array.numel() for array in steps.values())
        if len(steps) > len(_HEAD_NUMBERS) and (
            room >= 0 if names is None else {f"{stack}.{layer}.{part}.{head}", place == told and "story"} & {*names}
        ):
            arrays_of_head, constants = _formula(model, formulas.get(ModulePath(stack, layer, part)), head, steps)
            lists = {name: _numbers(array) for name, array in arrays_of_head.items()}
            chosen.append(HeadNumbers(*place, lists, **constants))
    return tuple(chosen)


def _formula(
    model: Model, inputs: AttentionInputs | None, head: int, steps: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return what the formula of a head adds up, and its constants."""
    softmax = NORMALISATIONS["softmax"]
    if isinstance(model, RecurrentTranslator):
        of = model.attention
        captions = attention_captions(Additive(of.query, of.key, of.sum), softmax, has_mask=False)
        projected = dict(zip(("query", "key"), of.project(steps["query"], steps["key"]), strict=True))
        return steps | projected, {"additive": tuple(of.sum.tolist()), "captions": _captions(captions)}
    assert inputs is not None, "all other models attend by scaled dot products"
    mask, sinks, softcap = inputs.attention_mask, inputs.sinks, inputs.softcap
    is_usual_scale = isclose(inputs.scale, inputs.query.shape[-1] ** -0.5)
    scale = None if is_usual_scale else inputs.scale
    has_mask = mask.has_mask or mask.bias is not None
    captions = attention_captions(SCORINGS["scaled-dot"], softmax, scale, softcap, has_mask, sinks is not None)
    constants = {
        "divisor": 1 / inputs.scale, "softcap": softcap, "captions": _captions(captions, explains_scale=is_usual_scale),
        "sink": None if sinks is None else float(sinks.flatten()[head]),
    }  # fmt: skip
    return steps | ({} if mask.bias is None else {"bias": mask.bias[0, head]}), constants


def _captions(steps: Iterable[FormulaStep], *, explains_scale: bool = False) -> dict[str, str]:
    """Return what each step does; with `explains_scale` also why scores are divided by √d_k."""
    captions = {step.name: step.description for step in steps} | {"gradient": _GRADIENT}
    captions["scaled"] += _WHY_SCALED if explains_scale else ""
    return captions | ({"masked": _MASK} if captions["masked"].startswith("M ") else {})


def _backward_pass(
    loaded: LoadedModel, inputs: LabelledInput, edit: Sequence[EditLike]
) -> tuple[float, list[Activation]]:
    """Return the loss of a training step on this text, and its gradient by the context of every head."""
    added: list[tuple[ModulePath, torch.Tensor]] = []  # an RNN attends once for each row

    def add_zeros(address: Address, array: torch.Tensor) -> torch.Tensor | None:
        if address.step != "context":
            return None
        added.append((address.path, torch.zeros_like(array, requires_grad=True)))
        return array + added[-1][1]

    model, given = loaded.model, inputs.model_input
    with torch.enable_grad():
        ids, source = (torch.tensor([row], device=model.device) for row in (given.output_ids, given.ids))
        intervention = make_intervention((*edit, add_zeros), edit_context(loaded, inputs))
        hidden = model.hidden(ids, intervention=intervention, source=source if model.is_encoder_decoder else None)
        logits = model.logits(hidden)[0].float()
        if inputs.outputs is None:
            labels, start = torch.cat((ids[0, 1:], logits.detach()[-1:].argmax(dim=-1))), 0
        else:
            labels = ids.new_tensor(inputs.outputs.ids)
            start = len(model.config.special_tokens.decoder_prompt) - 1
        loss = cross_entropy(logits[start : start + len(labels)], labels)
        arrays = torch.autograd.grad(loss, [zeros for _, zeros in added])
    rows: dict[ModulePath, list[torch.Tensor]] = {}
    for (path, _), array in zip(added, arrays, strict=True):
        rows.setdefault(path, []).append(1000 * array)
    return float(loss), [Activation(path, "gradient", torch.cat(parts, dim=-2)) for path, parts in rows.items()]


def _numbers(array: torch.Tensor) -> list[list[float | None]]:
    rows = array.float().tolist()
    return [[number if isfinite(number) else None for number in row] for row in rows]


def _ablate(
    loaded: LoadedModel, inputs: LabelledInput, edit: Sequence[EditLike], answer_row: int
) -> tuple[AblatedHead, ...]:
    """Return the next tokens without each head of the stack that answers; none if that takes too long."""
    stack = default_stack(loaded.model)
    infos = [info for info in attentions_of(loaded.model) if info.path.stack == stack]
    heads = [(info.path, head) for info in infos for head in range(info.num_heads)]
    if len(heads) * loaded.model.count_parameters() * len(inputs.model_input.output_ids) > _STORY_BUDGET:
        return ()
    ablated = []
    for path, head in heads:
        activations: list[Activation] = []
        tap = Tap(activations.append, steps=("weights", "residual", "output"), stacks=[stack])
        ablation = zero(path.layer, head, part=path.part, stack=path.stack)
        intervention = make_intervention((*edit, ablation), edit_context(loaded, inputs))
        logits = forward_logits(loaded.model, inputs.model_input, tap, intervention, all_positions=True)
        assert logits is not None
        layers = _stack_pass(loaded, stack, inputs, activations, answer_row).layers[path.layer :]
        changed = tuple(replace(layer, vectors=()) for layer in layers)  # the picture does not draw them
        following = likeliest_tokens(loaded, logits[answer_row], _NUM_NEXT_TOKENS)
        ablated.append(AblatedHead(path.part, path.layer, head, following, changed))
    return tuple(ablated)


def _find_story(
    loaded: LoadedModel, inputs: LabelledInput, activations: Iterable[Activation], edit: Sequence[EditLike]
) -> HeadStory | None:
    """Ablate heads one by one; return the one without which a token loses most of its probability.

    In a translation each output token is a candidate, and the heads are those of cross-attention. Otherwise it is
    about the next token, and about heads in which the last token attends mostly to one token further back; if there
    are none, about all heads.
    """
    weights = {a.path: a.array[0].float() for a in activations if a.step == "weights" and a.path.stack == "decoder"}
    crossing = {path: array for path, array in weights.items() if path.part == "cross_attention"}
    heads = [(path, head) for path, array in (crossing or weights).items() for head in range(len(array))]
    if not crossing:
        last = max((array.shape[1] for array in weights.values()), default=0) - 1
        top = {(path, head): weights[path][head, -1].max(dim=-1) for path, head in heads}
        distant = [at for at in heads if top[at].values > _MIN_STORY_WEIGHT and int(top[at].indices) < last - 1]
        heads = sorted(distant or heads, key=lambda at: -float(top[at].values))
    pass_cost = loaded.model.count_parameters() * len(inputs.model_input.output_ids)
    last_only, first_row = not crossing, 0 if crossing else len(inputs.model_input.output_ids) - 1
    before = _logits(loaded, inputs, edit, last_only).softmax(dim=-1)
    stories = []
    for path, head in heads[: max(3, min(_MAX_STORY_HEADS, int(_STORY_BUDGET / pass_cost)))]:
        ablation = zero(path.layer, head, part=path.part, stack=path.stack)
        after = _logits(loaded, inputs, (*edit, ablation), last_only).softmax(dim=-1)
        drops = before - after
        if crossing and inputs.outputs is not None:
            ids = torch.tensor(inputs.outputs.ids[: len(drops)])
            row = int(drops[torch.arange(len(ids)), ids].argmax())
            token = int(ids[row])
        else:
            row, token = len(drops) - 1, int(drops[-1].argmax())
        weight, key = weights[path][head, first_row + row].max(dim=-1)
        piece = token_piece(loaded.target_tokenizer or loaded.tokenizer, token)
        where = (path.stack, path.part, path.layer, head, first_row + row, int(key), float(weight))
        stories.append(HeadStory(*where, piece, float(before[row, token]), float(after[row, token])))
    return max(stories, key=lambda story: story.before - story.after, default=None)


def _logits(loaded: LoadedModel, inputs: LabelledInput, edit: Sequence[EditLike], last_only: bool) -> torch.Tensor:
    """Return the next-token logits after every token, or only after the last, `[row, vocab]`."""
    intervention = make_intervention(tuple(edit), edit_context(loaded, inputs))
    logits = forward_logits(loaded.model, inputs.model_input, intervention=intervention, all_positions=not last_only)
    assert logits is not None
    return logits.float().reshape(-1, logits.shape[-1])
