"""Recorder of torch operations: a dispatch mode, with fused attention taken apart into the steps of the formula."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from peasy.verification.implementation.trace import (
    CONSTANT,
    INPUT,
    Op,
    OperationRecorder,
    Trace,
    flatten,
    leaves,
    replayer,
    user_places,
)

_RANDOM = {"rand", "randn", "rand_like", "randn_like", "bernoulli", "normal", "uniform_", "normal_", "randint"}
_Roots = Mapping[int, tuple[str, str]]


class TorchRecorder(OperationRecorder, TorchDispatchMode):
    """Records every operation. Results of dropout are replaced by its input, and reported as events."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and importing the compiler takes 2 s

    def __init__(
        self, roots: _Roots, overrides: Mapping[int, Callable[[Any], object]] | None = None, snapshots: bool = True,
        statistics: dict[int, tuple[Any, Any]] | None = None,
    ) -> None:  # fmt: skip
        OperationRecorder.__init__(self, overrides)
        TorchDispatchMode.__init__(self)
        self.roots, self.snapshots = roots, snapshots
        self.statistics = {} if statistics is None else statistics
        self.made: dict[int, tuple[int, int]] = {}
        self.mutated: dict[int, list[int]] = {}
        self.kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name.startswith("_scaled_dot_product_flash_attention_for_cpu"):
            return self._take_apart(*args, **kwargs)
        if name == "bernoulli_":
            self.trace.events.append(("dropout", user_places(self.skipped)[0]))
            args[0].fill_(args[1] if len(args) > 1 else 0.5)
            return args[0]
        tensors = [value for value in flatten((*args, *kwargs.values())) if isinstance(value, torch.Tensor)]
        sources = tuple(self._source(tensor) for tensor in tensors)
        values = tuple(self._snapshot(tensor) for tensor in tensors)
        if name in ("baddbmm", "addmm") and all(self._is_activation(source) for source in sources[1:3]):
            return self._split_sum(args, kwargs)
        result = func(*args, **kwargs)
        if name == "native_group_norm":
            result = self._keep_statistics(result, *args)
        if name in _RANDOM and self.snapshots:
            self.trace.events.append(("random", user_places(self.skipped)[0]))
        result = self.override(result)
        self._record(func, name, args, kwargs, sources, values, result)
        return result

    def _keep_statistics(self, result: Any, x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int,
                         eps: float) -> object:  # fmt: skip
        """Return a group norm with the means of the first call, so that a changed token changes only its own row."""
        mean, deviation = self.statistics.setdefault(len(self.trace.ops), result[1:])
        if mean is result[1]:
            return result
        normed = (x.reshape(n, groups, -1) - mean.reshape(n, groups, 1)) * deviation.reshape(n, groups, 1)
        normed = normed.reshape(n, c, hw) * (1 if weight is None else weight[:, None])
        return (normed + (0 if bias is None else bias[:, None])).reshape(x.shape), mean, deviation

    def _is_activation(self, source: tuple[int, int]) -> bool:
        return any(root.startswith(INPUT) for root in self.trace.ops[source[0]].roots)

    def _split_sum(self, args: Any, kwargs: Any) -> object:
        """A product of activations plus something, as two operations: the product is then the scores."""
        with self:
            product = args[1] @ args[2]
            if kwargs.get("alpha", 1) != 1:
                product = product * kwargs["alpha"]
            added = args[0] if kwargs.get("beta", 1) == 1 else args[0] * kwargs["beta"]
            return product + added if kwargs.get("beta", 1) else product

    def _record(self, func: Any, name: str, args: Any, kwargs: Any, sources: Any, values: Any, result: object) -> None:
        outputs = tuple(value for value in flatten((result,)) if isinstance(value, torch.Tensor))
        scalars = tuple(value for value in flatten(args) if not isinstance(value, torch.Tensor))
        replay = replayer(func, args, kwargs, torch.Tensor, lambda tensor: tensor)
        kept, places = tuple(map(self._snapshot, outputs)), user_places(self.skipped)
        index = self.add(name, sources, values, kept, places, replay, scalars)
        for number, output in enumerate(outputs):
            self._remember(output, index, number)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.Tensor):
                self.mutated.setdefault(_storage(value), []).append(index)
                self._remember(value, index, 0)

    def _remember(self, tensor: torch.Tensor, index: int, number: int) -> None:
        self.made[id(tensor)] = index, number
        self.kept.append(tensor)  # ids are only unique among living objects

    def _source(self, tensor: torch.Tensor) -> tuple[int, int]:
        known = self.made.get(id(tensor))
        if known is None:
            known = self._add_root(tensor)
        later = [index for index in self.mutated.get(_storage(tensor), ()) if index > known[0]]
        if not later:
            return known
        sources, place = (known, *((index, 0) for index in later)), self.trace.ops[later[-1]].place
        made = self.add("assemble", sources, (), (self._snapshot(tensor),), (place, ()))
        self._remember(tensor, made, 0)
        return made, 0

    def _add_root(self, tensor: torch.Tensor) -> tuple[int, int]:
        known = self.roots.get(id(tensor)) or self.roots.get(id(tensor._base)) or (CONSTANT, "")
        made = self.add_root(*known, self._snapshot(tensor))
        self._remember(tensor, made, 0)
        return made, 0

    def _snapshot(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self.snapshots or id(tensor) in self.roots:
            return tensor
        return tensor.detach().clone()

    def _take_apart(
        self, q: Any, k: Any, v: object, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: object = None,
        scale: float | None = None,
    ) -> object:  # fmt: skip
        """Fused attention in single operations: torch's own unfused definition of it, recorded step by step."""
        if dropout_p:
            self.trace.events.append(("dropout", user_places(self.skipped)[0]))
        unfused = torch.ops.aten._scaled_dot_product_attention_math.default
        with self:
            grouped = k.size(1) != q.size(1)
            context, _ = unfused.decompose(q, k, v, attn_mask, 0.0, is_causal, None, scale=scale, enable_gqa=grouped)
            return context, context.sum(-1)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def torch_call(
    function: Callable[[], object], roots: _Roots, overrides: Mapping[int, Callable[[Any], object]],
    statistics: dict[int, tuple[Any, Any]] | None = None,
) -> Trace:  # fmt: skip
    """Call a function without gradients and record it; `overrides` replace results by operation index."""
    recorder = TorchRecorder(roots, overrides, statistics=statistics)
    with single_steps(), torch.no_grad(), recorder:
        result = function()
    trace = recorder.trace
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor):
            source = recorder.made.get(id(leaf))
            later = [index for index in recorder.mutated.get(_storage(leaf), ()) if source is None or index > source[0]]
            trace.results.append((leaf, (later[-1], 0) if later else source))
    return trace


@contextlib.contextmanager
def single_steps() -> Iterator[None]:
    """Run nn.MultiheadAttention without its fused path, and small tensors on one thread."""
    fastpath, threads = torch.backends.mha.get_fastpath_enabled(), torch.get_num_threads()
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        torch.set_num_threads(threads)


def buffer_ops(recorder: TorchRecorder, buffers: Mapping[str, torch.Tensor]) -> dict[int, list[Op]]:
    """Return by tensor id the operations of a constructor that made a buffer."""
    known = {id(each): recorder.made[id(each)][0] for each in buffers.values() if id(each) in recorder.made}
    return {made: sorted(recorder.trace.ancestors(at), key=lambda op: op.index) for made, at in known.items()}


class OnlyCPU(TorchFunctionMode):
    """Code that asks for a GPU gets the CPU; there are no gradients, so their hooks are left out."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        if func in (torch.Tensor.cuda, torch.Tensor.register_hook, torch.Tensor.retain_grad):
            return args[0]
        return func(*map(_on_cpu, args), **{key: _on_cpu(value) for key, value in (kwargs or {}).items()})


def _on_cpu(value: object) -> object:
    return "cpu" if isinstance(value, str | torch.device) and str(value).startswith(("cuda", "mps")) else value
