"""Memory and throughput estimates of training, from model sizes and hardware numbers alone."""

from dataclasses import dataclass
from typing import Any

from peasy.errors import InvalidInput
from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.training.optimizer import Muon, OptimizerRecipe, linear_matrices

FLOAT = 4
"""Bytes of a float32. Weights, gradients and optimizer state are float32, also under bfloat16 autocast."""

HALF = 2
ACTIVATIONS = 34
"""Activation bytes per token, layer and unit of width: 16-bit numbers, fused attention."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model that determine its cost. `kv_per_token` counts the KV-cache numbers of one token.

    `lookup_parameters` are n-gram embedding tables: looked up, never multiplied.
    """

    parameters: int
    tensors: int
    matrices: int
    largest: int
    layers: int
    d_model: int
    vocabulary: int
    cached: int
    tables: int = 0

    @classmethod
    def of(cls, model: Model, recipe: OptimizerRecipe) -> "Sizes":
        """Return the sizes of a model; its weights may be on the meta device."""
        model_config: Any = model.config
        muon = linear_matrices(model) if isinstance(recipe, Muon) else {}
        weights = [weight for name, weight in model.named_parameters() if weight.requires_grad and name not in muon]
        stacks = [
            getattr(model_config, name) for name in ("stack", "encoder", "decoder") if hasattr(model_config, name)
        ]
        blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if isinstance(m, Block)]
        return cls(
            model.count_parameters(),
            len(weights),
            sum(matrix.numel() for matrix in muon.values()),
            max(blocks, default=model.count_parameters()),
            sum(stack.layers for stack in stacks) or getattr(model_config, "layers", 1),
            getattr(model_config, "d_model", 1),
            model_config.vocabulary,
            _cached(model_config),
            sum(weight.numel() for name, weight in model.named_parameters() if "embedding.ngram." in name),
        )

    @property
    def weights(self) -> int:
        """Bytes of the weights; the gradients take the same."""
        return FLOAT * self.parameters

    @property
    def optimizer(self) -> int:
        """Bytes of the optimizer state: one number per Muon parameter, two per AdamW parameter, and step counters."""
        return FLOAT * (self.matrices + 2 * (self.parameters - self.matrices) + self.tensors)


def _cached(config: Any) -> int:
    """Count keys and values of one token over all layers; with token shift also half a vector per sublayer."""
    stack = getattr(config, "decoder", None) or getattr(config, "stack", None)
    if stack is None or config.kind == "encoder":
        return 0
    attention = stack.attention
    width = attention.d_head or config.d_model // attention.heads
    shifted = 2 * (config.d_model // 2) if stack.shift else 0
    return stack.layers * (2 * (attention.key_heads or attention.heads) * width + shifted)


@dataclass(frozen=True)
class Machine:
    """Accelerators of one type: FLOP/s, memory and interconnect bandwidth of each; `mfu` is the FLOP/s utilization."""

    accelerators: int
    flops: float
    memory: float
    bandwidth: float
    use: float = 0.4

    def __post_init__(self) -> None:
        if self.accelerators < 1:
            raise InvalidInput(f"accelerators is {self.accelerators}.", hint="It must be at least 1.")
        for name in ("flops", "memory", "bandwidth", "use"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}.", hint=f"{name} must be above 0.")
        if self.use > 1:
            raise InvalidInput(f"use is {self.use}.", hint="It is a fraction: at most 1.")


@dataclass(frozen=True)
class Estimate:
    """Cost of a model on a machine with `batch_size` sequences of `seq_len` tokens per accelerator and step."""

    sizes: Sizes
    machine: Machine
    rows: int
    context: int

    @property
    def tokens(self) -> int:
        """Tokens per step and accelerator."""
        return self.rows * self.context

    @property
    def activations(self) -> float:
        """Bytes of activations kept for the backward pass, and of the logits in 16 and 32 bits."""
        sizes = self.sizes
        block_bytes = ACTIVATIONS * self.tokens * sizes.d_model * sizes.layers
        return block_bytes + (HALF + FLOAT) * self.tokens * sizes.vocabulary

    @property
    def state(self) -> int:
        """Bytes of weights, gradients and optimizer state."""
        return 2 * self.sizes.weights + self.sizes.optimizer

    def held(self, way: str) -> float:
        """Bytes per accelerator: the full state (ddp), or its shard and one gathered block (fsdp)."""
        if way == "ddp":
            return self.state + self.activations
        return self.state / self.machine.accelerators + FLOAT * self.sizes.largest + self.activations

    @property
    def work(self) -> float:
        """FLOP per token: six per weight, plus attention over half the context on average."""
        sizes = self.sizes
        return 6 * (sizes.parameters - sizes.tables) + 6 * sizes.layers * sizes.d_model * self.context

    @property
    def computing(self) -> float:
        """Seconds of computation per step."""
        return self.tokens * self.work / (self.machine.flops * self.machine.use)

    def sending(self, way: str) -> float:
        """Seconds of communication per step: all-reduce of gradients (ddp); weights twice and gradients once (fsdp)."""
        n = self.machine.accelerators
        transfers = 2 if way == "ddp" else 3
        return transfers * (n - 1) / n * self.sizes.weights / self.machine.bandwidth

    def step(self, way: str) -> float:
        """Seconds per step: communication overlaps with computation, so the longer one counts."""
        return max(self.computing, self.sending(way))

    def tokens_per_day(self, way: str) -> float:
        """Tokens per day of all accelerators together."""
        return self.tokens * self.machine.accelerators * 86_400 / self.step(way)

    @property
    def cache(self) -> int:
        """Bytes of a 16-bit KV cache for one sequence of full length."""
        return HALF * self.sizes.cached * self.context


def read_amount(said: str | float) -> float:
    """Parse a number of bytes, FLOP/s or bytes/s with a unit prefix.

    >>> read_amount("80GB"), read_amount("312T"), read_amount("64GiB"), read_amount(1e9)
    (80000000000.0, 312000000000000.0, 68719476736.0, 1000000000.0)
    """
    if not isinstance(said, str):
        return float(said)
    word = said.strip().removesuffix("/s").removesuffix("FLOP").removesuffix("B")
    for letter, power in (("K", 1), ("M", 2), ("G", 3), ("T", 4), ("P", 5)):
        for prefix, base in ((letter + "i", 1024), (letter, 1000), (letter.lower(), 1000)):
            if word.endswith(prefix):
                return _number(word.removesuffix(prefix), said) * base**power
    return _number(word, said)


def _number(word: str, said: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(f'"{said}" is not a valid amount.', hint="For example 80GB, 64GiB, 312T or 1e12.") from None
