"""Head scores: runs a model on texts and repeated random tokens; entropy, previous-token, induction, ... per head."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, attentions_of, forward_hidden
from peasy.inspection.results import AttentionInfo, HeadReport, HeadScore
from peasy.models.protocol import Model
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Activation, Tap

_REPEATED_LENGTH, _NUM_RANDOM_SEQUENCES, _MAX_DISTANCE = 24, 4, 32
"""Length of the repeated random sequence, number of such sequences, and longest distance of a profile."""


@dataclass(eq=False)
class _HeadSums:
    """Accumulator over queries for all heads of one attention: `total[name]` `[head]` over `count[name]` queries."""

    heads: int
    total: dict[str, Tensor] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        total = values.double().sum(dim=1)
        self.total[name] = self.total[name] + total if name in self.total else total
        self.count[name] = self.count.get(name, 0) + values.shape[1]

    def mean(self, name: str, default: float = 0.0) -> Tensor:
        """Return the mean over all queries, for each head."""
        if not self.count.get(name):
            return torch.full((self.heads,), default, dtype=torch.float64)
        return self.total[name] / self.count[name]


def score_heads(model: Model, inputs: Iterable[ModelInput], *, name: str = "", seed: int = 0) -> HeadReport:
    """Score every self-attention head on some texts and on repeated random tokens."""
    attentions = [attention for attention in attentions_of(model) if not attention.cross]
    if not attentions:
        message = f"{name or 'This model'} has no self-attention."
        raise InvalidInput(message, hint="For cross-attention heads, use alignment.")
    sums = {attention.path: _HeadSums(attention.num_heads) for attention in attentions}
    sentences = tokens = 0
    for model_input in inputs:
        sentences, tokens = sentences + 1, tokens + len(model_input.ids)
        for path, weights in _attention_weights(model, model_input):
            ids = model_input.ids if path.stack == "encoder" else model_input.output_ids
            _add_sequence(sums[path], weights, torch.tensor(ids))
    if not sentences:
        raise InvalidInput("There is no sentence to score heads on.")
    half = _add_repeated_random(model, sums, seed)
    scores = tuple(_score(info, sums[info.path], head) for info in attentions for head in range(info.num_heads))
    short = "The context is too short for repeated random tokens: induction and position are not measured."
    notes: tuple[str, ...] = (short,)
    if half:
        method = f"on {_NUM_RANDOM_SEQUENCES} sequences of {half} random tokens, each repeated once."
        first_query = "In causal attention the first query, which sees only itself, is not counted."
        notes = (f"Induction and position: {method}", first_query)
    return HeadReport(name, scores, sentences, tokens, notes)


def _attention_weights(model: Model, model_input: ModelInput) -> Iterator[tuple[ModulePath, Tensor]]:
    """Yield the attention weights `[head, query, key]` of each layer."""
    activations: list[Activation] = []
    forward_hidden(model, model_input, Tap(activations.append, steps=["weights"], parts=["attention"]))
    for activation in activations:
        yield activation.path, activation.array[0].float()


def _add_sequence(sums: _HeadSums, weights: Tensor, ids: Tensor) -> None:
    """Add one sequence: weights `[head, query, key]`; queries with only one visible key are not counted."""
    count = len(ids)
    weights = weights.cpu()
    counted = (weights > 0).any(dim=0).sum(dim=1) > 1
    max_entropy = ((weights > 0).any(dim=0).sum(dim=1)).clamp(min=2).double().log2()
    entropy = -torch.special.xlogy(weights, weights).sum(-1).double() / np.log(2)
    sums.add("entropy", entropy[:, counted])
    sums.add("sharpness", 1 - (entropy / max_entropy)[:, counted])
    sums.add("own", torch.diagonal(weights, dim1=1, dim2=2)[:, counted])
    sums.add("first", weights[:, counted, 0])
    if count > 1:
        sums.add("previous", torch.diagonal(weights, -1, 1, 2))
        if bool(torch.diagonal(weights, 1, 1, 2).any()):
            sums.add("next", torch.diagonal(weights, 1, 1, 2))
    same = (ids[:, None] == ids) & ~torch.eye(count, dtype=torch.bool) & (weights > 0).any(dim=0)
    sums.add("same", (weights * same).sum(-1)[:, same.any(dim=1)])
    distance = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    sums.add("distance", (weights * distance).sum(-1)[:, counted])
    profile = torch.zeros(*weights.shape[:2], _MAX_DISTANCE + 1)
    profile.scatter_add_(2, distance.clamp(max=_MAX_DISTANCE).expand_as(weights), weights)
    sums.add("profile", profile[:, counted])


def _add_repeated_random(model: Model, sums: dict[ModulePath, _HeadSums], seed: int) -> int:
    """Add induction and positional scores from repeated random tokens; return the length of the repeated part."""
    context = model.config.max_seq_len
    half = _REPEATED_LENGTH if context is None else min(_REPEATED_LENGTH, context // 2)
    if half < 4:
        return 0
    previous: dict[ModulePath, Tensor] = {}
    for model_input in _random_inputs(model, half, seed):
        for path, weights in _attention_weights(model, model_input):
            rows = torch.arange(half, 2 * half)
            sums[path].add("induction", weights[:, rows, rows - half + 1].cpu())
            first_half = weights[:, 1:half].cpu()
            if path in previous:
                sums[path].add("position", torch.minimum(first_half, previous[path]).sum(-1))
            previous[path] = first_half
    return half


def _random_inputs(model: Model, half: int, seed: int) -> Iterator[ModelInput]:
    rng = np.random.default_rng(seed)
    config = model.config
    tokens = config.special_tokens
    special = {tokens.pad, tokens.bos, tokens.decoder_start, *tokens.eos, 0}
    sizes = [config.vocab_size, getattr(config, "target_vocab_size", None) or config.vocab_size]
    pools = [np.array([id for id in range(size) if id not in special]) for size in sizes]
    for _ in range(_NUM_RANDOM_SEQUENCES):
        ids, target = (tuple(int(id) for id in np.tile(rng.choice(pool, half), 2)) for pool in pools)
        yield ModelInput(ids, target if model.is_encoder_decoder else None)


def _score(attention: AttentionInfo, sums: _HeadSums, head: int) -> HeadScore:
    names = ("entropy", "sharpness", "previous", "next", "first", "own", "same", "induction", "position", "distance")
    means: dict[str, float | None] = {name: float(sums.mean(name)[head]) for name in names}
    if "induction" not in sums.count:
        means["induction"] = None
    profile = sums.mean("profile")[head].numpy() if "profile" in sums.count else np.zeros(_MAX_DISTANCE + 1)
    return HeadScore(attention.path, head, **means, profile=np.atleast_1d(profile))  # type: ignore[arg-type]
