"""Estimates on paper: what a model needs and how fast it learns, from its sizes and a machine's numbers alone."""

from dataclasses import dataclass
from typing import Any

from peasy.errors import InvalidInput
from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.training.optimizer import Muon, OptimizerRecipe, linear_matrices

FLOAT = 4
"""Weights, gradients and what the optimizer remembers are float32, also where products are bfloat16."""

HALF = 2
ACTIVATIONS = 34
"""Bytes that each token leaves in each layer for the way back, per unit of width: 16-bit numbers, fused attention."""


@dataclass(frozen=True)
class Sizes:
    """What of a model decides its cost. `cached` is how many numbers one token leaves in a cache.

    `tables` are the parameters of n-grams: they are looked up and never multiplied.
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
        """The sizes of a model; it may be one without memory for its weights."""
        config: Any = model.config
        muon = linear_matrices(model) if isinstance(recipe, Muon) else {}
        weights = [weight for name, weight in model.named_parameters() if weight.requires_grad and name not in muon]
        stacks = [getattr(config, name) for name in ("stack", "encoder", "decoder") if hasattr(config, name)]
        blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if isinstance(m, Block)]
        return cls(
            model.count_parameters(),
            len(weights),
            sum(matrix.numel() for matrix in muon.values()),
            max(blocks, default=model.count_parameters()),
            sum(stack.layers for stack in stacks) or getattr(config, "layers", 1),
            getattr(config, "d_model", 1),
            config.vocabulary,
            _cached(config),
            sum(weight.numel() for name, weight in model.named_parameters() if "embedding.ngram." in name),
        )

    @property
    def weights(self) -> int:
        """Bytes of the weights, and of their gradients."""
        return FLOAT * self.parameters

    @property
    def optimizer(self) -> int:
        """Bytes that the optimizer remembers: one number for each of Muon's, two for the rest and a count of steps."""
        return FLOAT * (self.matrices + 2 * (self.parameters - self.matrices) + self.tensors)


def _cached(config: Any) -> int:
    """Keys and values of one token, over all layers that write; with a token shift half a vector for each part."""
    stack = getattr(config, "decoder", None) or getattr(config, "stack", None)
    if stack is None or config.kind == "encoder":
        return 0
    attention = stack.attention
    width = attention.d_head or config.d_model // attention.heads
    shifted = 2 * (config.d_model // 2) if stack.shift else 0
    return stack.layers * (2 * (attention.key_heads or attention.heads) * width + shifted)


@dataclass(frozen=True)
class Machine:
    """Accelerators of one kind: FLOP/s, bytes of memory and bytes/s between them, each; `use` of the FLOP/s is had."""

    accelerators: int
    flops: float
    memory: float
    bandwidth: float
    use: float = 0.4

    def __post_init__(self) -> None:
        if self.accelerators < 1:
            raise InvalidInput(f"accelerators is {self.accelerators}.", hint="At least 1 is needed.")
        for name in ("flops", "memory", "bandwidth", "use"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}.", hint=f"{name} must be above 0.")
        if self.use > 1:
            raise InvalidInput(f"use is {self.use}.", hint="use is a share: at most 1.")


@dataclass(frozen=True)
class Estimate:
    """A model on a machine, each accelerator reading `rows` samples of `context` tokens a step."""

    sizes: Sizes
    machine: Machine
    rows: int
    context: int

    @property
    def tokens(self) -> int:
        """Tokens of a step, on each accelerator."""
        return self.rows * self.context

    @property
    def activations(self) -> float:
        """Bytes kept for the way back, and the scores of all words in 16 and 32 bits."""
        sizes = self.sizes
        inside = ACTIVATIONS * self.tokens * sizes.d_model * sizes.layers
        return inside + (HALF + FLOAT) * self.tokens * sizes.vocabulary

    @property
    def state(self) -> int:
        """Weights, gradients and optimizer."""
        return 2 * self.sizes.weights + self.sizes.optimizer

    def held(self, way: str) -> float:
        """Bytes on each accelerator: all of the state (ddp), or its share and one whole block (fsdp)."""
        if way == "ddp":
            return self.state + self.activations
        return self.state / self.machine.accelerators + FLOAT * self.sizes.largest + self.activations

    @property
    def work(self) -> float:
        """FLOP for each token: six for every weight, and attention over half the context on average."""
        sizes = self.sizes
        return 6 * (sizes.parameters - sizes.tables) + 6 * sizes.layers * sizes.d_model * self.context

    @property
    def computing(self) -> float:
        """Seconds of arithmetic in a step."""
        return self.tokens * self.work / (self.machine.flops * self.machine.use)

    def sending(self, way: str) -> float:
        """Seconds of sending in a step: gradients there and back (ddp); weights twice and gradients once (fsdp)."""
        n = self.machine.accelerators
        times = 2 if way == "ddp" else 3
        return times * (n - 1) / n * self.sizes.weights / self.machine.bandwidth

    def step(self, way: str) -> float:
        """Seconds of a step: sending hides behind arithmetic, whichever is longer."""
        return max(self.computing, self.sending(way))

    def tokens_per_day(self, way: str) -> float:
        """Of all accelerators together."""
        return self.tokens * self.machine.accelerators * 86_400 / self.step(way)

    @property
    def cache(self) -> int:
        """Bytes of a 16-bit key-value cache for one text of full length."""
        return HALF * self.sizes.cached * self.context


def read_amount(said: str | float) -> float:
    """A number of bytes, FLOP/s or bytes/s as people write it.

    >>> read_amount("80GB"), read_amount("312T"), read_amount("64GiB"), read_amount(1e9)
    (80000000000.0, 312000000000000.0, 68719476736.0, 1000000000.0)
    """
    if not isinstance(said, str):
        return float(said)
    word = said.strip().removesuffix("/s").removesuffix("FLOP").removesuffix("B")
    for letter, power in (("K", 1), ("M", 2), ("G", 3), ("T", 4), ("P", 5)):
        for ending, base in ((letter + "i", 1024), (letter, 1000), (letter.lower(), 1000)):
            if word.endswith(ending):
                return _number(word.removesuffix(ending), said) * base**power
    return _number(word, said)


def _number(word: str, said: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(f'"{said}" is not an amount.', hint="For example 80GB, 64GiB, 312T or 1e12.") from None
