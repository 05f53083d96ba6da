"""Memory and throughput estimates of training, from model sizes and hardware numbers alone."""

from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from peasy.models.protocol import Model
from peasy.nn.block import Block
from peasy.parameters import BoundedSettings, Record
from peasy.training.optimizer import MuonConfig, OptimizerConfig, linear_weights

_FLOAT32_BYTES = 4
"""Bytes of a float32. Weights, gradients and optimizer state are float32, also under bfloat16 autocast."""

_FLOAT16_BYTES = 2
_ACTIVATION_BYTES = 34
"""Activation bytes per token, layer and unit of width: 16-bit numbers, fused attention."""


class ModelSizes(Record):
    """Sizes of a model that determine its cost. `kv_per_token` counts the KV-cache numbers of one token.

    `lookup_parameters` are n-gram embedding tables: looked up, never multiplied.
    """

    parameters: int
    adamw_tensors: int
    muon_parameters: int
    largest_block: int
    num_layers: int
    d_model: int
    vocab_size: int
    kv_per_token: int
    lookup_parameters: int = 0

    @classmethod
    def of(cls, model: Model, config: OptimizerConfig) -> "ModelSizes":
        """Return the sizes of a model; its weights may be on the meta device."""
        model_config: Any = model.config
        muon = linear_weights(model) if isinstance(config, MuonConfig) else {}
        weights = [weight for name, weight in model.named_parameters() if weight.requires_grad and name not in muon]
        names = ("stack", "encoder", "decoder")
        stacks = [getattr(model_config, name) for name in names if hasattr(model_config, name)]
        blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if isinstance(m, Block)]
        ngrams = [weight for name, weight in model.named_parameters() if "embedding.ngram." in name]
        return cls(
            model.count_parameters(), len(weights), sum(matrix.numel() for matrix in muon.values()),
            max(blocks, default=model.count_parameters()),
            sum(stack.num_layers for stack in stacks) or getattr(model_config, "num_layers", 1),
            getattr(model_config, "d_model", 1), model_config.vocab_size, _kv_per_token(model_config),
            sum(weight.numel() for weight in ngrams),
        )  # fmt: skip

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights; the gradients take the same."""
        return _FLOAT32_BYTES * self.parameters

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer state: one number per Muon parameter, two per AdamW parameter, and step counters."""
        adamw = 2 * (self.parameters - self.muon_parameters) + self.adamw_tensors
        return _FLOAT32_BYTES * (self.muon_parameters + adamw)


def _kv_per_token(config: Any) -> int:
    """Count keys and values of one token over all layers; with token shift also half a vector per sublayer."""
    stack = getattr(config, "decoder", None) or getattr(config, "stack", None)
    if stack is None or config.kind == "encoder":
        return 0
    attention = stack.attention
    width = attention.d_head or config.d_model // attention.num_heads
    shifted = 2 * (config.d_model // 2) if stack.token_shift else 0
    return int(stack.num_layers * (2 * (attention.num_kv_heads or attention.num_heads) * width + shifted))


class Hardware(BoundedSettings):
    """Accelerators of one type: FLOP/s, memory and interconnect bandwidth of each; `mfu` is the FLOP/s utilization."""

    accelerators: Annotated[int, Ge(1)]
    flops: Annotated[float, Gt(0)]
    memory: Annotated[float, Gt(0)]
    bandwidth: Annotated[float, Gt(0)]
    mfu: Annotated[float, Gt(0), Le(1)] = 0.4


class TrainingEstimate(Record):
    """Cost of a model on a machine with `batch_size` sequences of `seq_len` tokens per accelerator and step."""

    sizes: ModelSizes
    hardware: Hardware
    batch_size: int
    seq_len: int

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step and accelerator."""
        return self.batch_size * self.seq_len

    @property
    def activation_bytes(self) -> float:
        """Bytes of activations kept for the backward pass, and of the logits in 16 and 32 bits."""
        sizes = self.sizes
        block_bytes = _ACTIVATION_BYTES * self.tokens_per_step * sizes.d_model * sizes.num_layers
        return block_bytes + (_FLOAT16_BYTES + _FLOAT32_BYTES) * self.tokens_per_step * sizes.vocab_size

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, gradients and optimizer state."""
        return 2 * self.sizes.weight_bytes + self.sizes.optimizer_bytes

    def bytes_per_device(self, strategy: str) -> float:
        """Bytes per accelerator: the full state (ddp), or its shard and one gathered block (fsdp)."""
        if strategy == "ddp":
            return self.state_bytes + self.activation_bytes
        gathered = _FLOAT32_BYTES * self.sizes.largest_block
        return self.state_bytes / self.hardware.accelerators + gathered + self.activation_bytes

    @property
    def flops_per_token(self) -> float:
        """FLOP per token: six per weight, plus attention over half the context on average."""
        sizes = self.sizes
        return 6 * (sizes.parameters - sizes.lookup_parameters) + 6 * sizes.num_layers * sizes.d_model * self.seq_len

    @property
    def compute_seconds(self) -> float:
        """Seconds of computation per step."""
        return self.tokens_per_step * self.flops_per_token / (self.hardware.flops * self.hardware.mfu)

    def communication_seconds(self, strategy: str) -> float:
        """Seconds of communication per step: all-reduce of gradients (ddp); weights twice and gradients once (fsdp)."""
        n = self.hardware.accelerators
        transfers = 2 if strategy == "ddp" else 3
        return transfers * (n - 1) / n * self.sizes.weight_bytes / self.hardware.bandwidth

    def step_seconds(self, strategy: str) -> float:
        """Seconds per step: communication overlaps with computation, so the longer one counts."""
        return max(self.compute_seconds, self.communication_seconds(strategy))

    def tokens_per_day(self, strategy: str) -> float:
        """Tokens per day of all accelerators together."""
        return self.tokens_per_step * self.hardware.accelerators * 86_400 / self.step_seconds(strategy)

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of a 16-bit KV cache for one sequence of full length."""
        return _FLOAT16_BYTES * self.sizes.kv_per_token * self.seq_len
