"""Direct logit attribution: a logit as an exact sum over heads, their source tokens, MLPs, embedding and biases.

The residual stream is a sum, and a logit is a linear function of it once the norms on the way are fixed: each norm
divides by a number, which is taken from this very pass. In a post-norm model these are the norms of all later
sublayers. An LM head with an activation (BERT) or a soft cap is linear with its gates fixed in the same way. So the
addends sum to the model's own logit; what they say depends on these fixed numbers.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.inspection.forward import ModelInput, default_stack, forward_hidden
from peasy.inspection.results import LogitComponent
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.block import Block
from peasy.nn.embedding import Embedding
from peasy.nn.intervention import InterventionLike
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.stack import Stack
from peasy.nn.tap import Activation, Tap

NORM_NOTE = "Norms are fixed at the numbers by which they divided in this pass; so the addends sum to the logit."


@dataclass(eq=False)
class _Direction:
    """Linear function of a hidden state, `vector` · x, with the addends found on the way back from the logit."""

    vector: Tensor
    edited: bool = False
    components: list[LogitComponent] = field(default_factory=list)

    def add(self, part: str, value: Tensor | float, layer: int | None = None) -> None:
        self.components.append(LogitComponent(part, layer, None, float(value)))

    def add_edit(self, value: Tensor | float, layer: int) -> None:
        """Add what an intervention changed after an addend was computed; without one, it is rounding."""
        if self.edited and abs(float(value)) > 1e-6:
            self.add("edit", value, layer)


@torch.inference_mode()
def attribute_logit(
    model: Model, model_input: ModelInput, token: int, position: int = -1, intervention: InterventionLike | None = None
) -> tuple[float, list[LogitComponent]]:
    """Return the logit of a token after a position, and the components that sum to it, first to last."""
    stack, head = getattr(model, default_stack(model), None), getattr(model, "lm_head", None)
    if not isinstance(stack, Stack) or not isinstance(head, LMHead):
        message = f"A {type(model.config).kind} has no residual stream with an LM head"
        hint = "Choose a Transformer that predicts tokens."
        raise InvalidInput(f"{message}: its logits are no sums over layers.", hint=hint)
    found: dict[tuple[ModulePath, str], Tensor] = {}

    def keep(activation: Activation) -> None:
        found[activation.path, activation.step] = activation.array[0].double()

    steps = ("residual", "output", "weights", "value")
    tap = Tap(keep, steps=steps, rows=[position], stacks=[stack.name])
    hidden = forward_hidden(model, model_input, tap, intervention)[0, position]
    logit = float(model.logits(hidden[None])[0, token])
    direction = _through_head(head, model, hidden.double(), token, logit)
    direction.edited = intervention is not None
    last = found[ModulePath(stack.name, len(stack.blocks), "stream"), "residual"][0]
    _through_norm(direction, stack.norm, last, "final norm bias")
    for layer in reversed(range(len(stack.blocks))):
        block = stack.blocks[layer]
        assert isinstance(block, Block)
        _through_block(direction, block, found, ModulePath(stack.name, layer, "stream"))
    start = found[ModulePath(stack.name, 0, "stream"), "residual"][0]
    direction.add("embedding", start @ direction.vector)
    return logit, direction.components[::-1]


def _through_head(head: LMHead, model: Model, hidden: Tensor, token: int, logit: float) -> _Direction:
    """Return the logit as a linear function of the hidden state; activation, norm and soft cap have fixed gates."""
    embedding = getattr(model, "decoder_embedding", None) or model.embedding
    assert isinstance(embedding, Embedding)
    weight = (embedding.token.weight if head.weight is None else head.weight)[token].double()
    direction = _Direction(weight * head.scale)
    if head.transform is not None and head.activation is not None:
        inputs = nn.functional.linear(hidden, head.transform.weight.double(), _double(head.transform.bias))
        activated = head.activation(inputs)
        _through_norm(direction, head.norm, activated, "LM head bias")
        gates = torch.where(inputs == 0, torch.zeros_like(inputs), activated / inputs)
        direction.vector = direction.vector * gates
        if head.transform.bias is not None:
            direction.add("LM head bias", head.transform.bias.double() @ direction.vector)
        direction.vector = head.transform.weight.double().T @ direction.vector
    if head.bias is not None:
        direction.add("LM head bias", head.bias[token])
    if head.softcap is not None:
        raw = float(hidden @ direction.vector) + sum(component.value for component in direction.components)
        gate = logit / raw if raw else 1.0
        direction.vector = direction.vector * gate
        direction.components = [LogitComponent(c.part, None, None, c.value * gate, None) for c in direction.components]
    return direction


def _through_norm(
    direction: _Direction, norm: nn.Module | None, inputs: Tensor, name: str, layer: int | None = None
) -> None:
    """Go back through a layer norm or RMSNorm, divided by the number of this pass."""
    if norm is None:
        return
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    eps = norm.eps if norm.eps is not None else torch.finfo(norm.weight.dtype).eps
    vector, weight = direction.vector, norm.weight.double() + getattr(norm, "unit_offset", False)
    if isinstance(norm, nn.RMSNorm):
        direction.vector = vector * weight / (inputs.square().mean() + eps).sqrt()
        return
    if norm.bias is not None:
        direction.add(name, norm.bias.double() @ vector, layer)
    scaled = vector * weight / (inputs.var(correction=0) + eps).sqrt()
    direction.vector = scaled - scaled.mean()


def _through_block(
    direction: _Direction, block: Block, found: dict[tuple[ModulePath, str], Tensor], stream: ModulePath
) -> None:
    """Go back through a block, from its output to its input: the addends of each sublayer, last one first."""
    layer, before = stream.layer, found[stream, "residual"][0]
    after = found[stream._replace(layer=layer + 1), "residual"][0]
    sublayers: list[tuple[nn.Module, nn.Module | None, Tensor, Tensor]] = []  # module, norm after it, sum, output
    names = ["attention", *(["cross_attention"] if block.cross_attention is not None else []), "feedforward"]
    x = before
    for name in names:
        output = found[stream._replace(part=name), "output"][0]
        norm = getattr(block, f"{name}_norm") if block.placement == "post" else None
        total = x + output
        # a norm in the precision of its weights
        x = total if norm is None else norm(total.to(next(norm.parameters()).dtype)).double()
        sublayers.append((getattr(block, name), norm, total, output))
    direction.add_edit((after - x) @ direction.vector, layer)
    for module, norm, total, output in reversed(sublayers):
        _through_norm(direction, norm, total, "norm bias", layer)
        if not isinstance(module, Attention):
            direction.add("feedforward", output @ direction.vector, layer)
            continue
        vector = _before_output_norm(direction, block, module, found)
        # The addend of each head, by the tokens it attended to: weight times value times output projection.
        weights, values = found[module.path, "weights"][:, 0], found[module.path, "value"]
        directions = module.output.weight.double().T @ vector
        per_key = torch.einsum("hkd,hd->hk", values, directions.unflatten(0, (module.num_heads, -1)))
        sources = (weights * per_key).cpu().numpy()
        part = module.path.part
        heads = [LogitComponent(part, layer, head, float(row.sum()), row) for head, row in enumerate(sources)]
        bias = 0.0 if module.output.bias is None else float(module.output.bias.double() @ vector)
        direction.add_edit(float(output @ direction.vector) - sum(head.value for head in heads) - bias, layer)
        if module.output.bias is not None:
            direction.add(f"{part} bias", bias, layer)
        direction.components += heads[::-1]


def _before_output_norm(
    direction: _Direction, block: Block, module: Attention, found: dict[tuple[ModulePath, str], Tensor]
) -> Tensor:
    """Return the direction before scale and norm of an attention's output; the norm divides by a fixed number."""
    before, norm = _Direction(direction.vector * block.residual_scale), block.output_norm(module.path.part)
    if norm is not None:
        weights, values = found[module.path, "weights"][:, 0], found[module.path, "value"]
        context = (weights[:, None] @ values).flatten()
        raw = nn.functional.linear(context, module.output.weight.double(), _double(module.output.bias))
        _through_norm(before, norm, raw, "norm bias", module.path.layer)
        direction.components += before.components
    return before.vector


def _double(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.double()
