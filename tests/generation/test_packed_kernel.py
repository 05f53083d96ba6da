"""Numba kernels: linear layers, norms, activations and attention equal torch and are batch-invariant."""

import ctypes
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.batch_trials import one_trial
from tests.generation.tiny_models import run, token_ids
from tests.models.tiny_models import DECODERS, TRANSLATORS, make, some_ids, source_of
from torch import nn

from peasy.errors import MissingExtra
from peasy.generation import batch_invariance, machine_measurements, openmp, packed, packed_linear, packed_numba
from peasy.generation.batch_invariance import find_min_rows
from peasy.generation.decode import decode, generate
from peasy.generation.engine import Engine
from peasy.generation.packed import pack, packing_of
from peasy.generation.request import Request, Token
from peasy.generation.sampling_params import SamplingParams
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FUSED, ROW_WISE
from peasy.nn.capture import AttentionInputs
from peasy.nn.functional import MAX_UNTHREADED, batch_invariant
from peasy.nn.mask import AttentionMask

pytest.importorskip("numba", reason="numba comes with the extra `kernel`; peasy works without it")

from peasy.generation.packed_numba import Float32Kernel, Int8Kernel, KernelNorm, PackedVarlenBackend

SHAPES = [(61, 40), (4, 16), (3, 7), (130, 96)]


@pytest.fixture(autouse=True)
def _reproducible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))  # nothing is remembered from other tests
    monkeypatch.setenv("PEASY_MEASURE_AGAIN", "1")


@pytest.fixture(params=[1, 2])
def threads(request: Any) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@cache
def packed_model(name: str, kind: Any) -> Any:
    return pack(make((DECODERS | TRANSLATORS)[name]), kind, deterministic=True, kernel=True)


# Linear layers.


@pytest.mark.parametrize("shape", SHAPES)
def test_linear_layers_are_correct(shape: tuple[int, int], threads: int) -> None:
    weight, bias, rows = torch.randn(shape), torch.randn(shape[0]), torch.randn(7, shape[1]) * 3
    exact = rows.double() @ weight.double().T + bias
    torch.testing.assert_close(Float32Kernel(weight, bias)(rows).double(), exact, atol=1e-4, rtol=1e-5)
    int8 = Int8Kernel(weight, bias)
    assert float((int8(rows) - exact).norm() / exact.norm()) < 0.01
    assert int8.is_exact()
    assert Float32Kernel(weight, None).is_exact()
    assert int8(rows.view(7, 1, -1)).shape == (7, 1, shape[0])


@pytest.mark.parametrize("width", [64, 4096])
def test_integer_sums_never_overflow(width: int) -> None:
    """Reference: values at the ends of their range, where integer sums are largest."""
    signs = torch.randint(0, 2, (8, width)) * 2.0 - 1
    weight = torch.cat([signs, torch.ones(1, width), -torch.ones(1, width)])
    linear, rows = Int8Kernel(weight, None), torch.cat([signs[:2], torch.ones(1, width)])
    assert int(linear.deinterleaved().long().abs().sum(dim=1).max()) * linear.max_code < 2**31
    torch.testing.assert_close(linear(rows), rows @ weight.T, atol=0, rtol=1e-6)


def test_one_more_bit_would_overflow() -> None:
    """The inverse: activations with more bits than the accumulators allow."""
    weight = torch.ones(4, 4096)
    linear = Int8Kernel(weight, None)
    linear.max_code *= 2
    assert not linear.is_exact() or bool((linear(torch.ones(1, 4096)) < 0).any())


@pytest.mark.parametrize("make_linear", [Float32Kernel, Int8Kernel])
def test_rows_are_independent(make_linear: Any, threads: int) -> None:
    linear, rows = make_linear(torch.randn(48, 40), torch.randn(48)), torch.randn(5, 40)
    alone = [linear(row[None])[0] for row in rows]
    rows[3] *= 1e6
    for index in (0, 1, 2, 4):
        assert torch.equal(linear(rows)[index], alone[index])
    for bad in (torch.nan, torch.inf):
        rows[3] = bad
        assert not linear(rows)[3].isfinite().any()
        assert torch.equal(linear(rows)[4], alone[4])
    assert find_min_rows(linear) == 1


@pytest.mark.parametrize("row", [torch.zeros(1, 40), torch.full((1, 40), 2.5), torch.full((1, 40), -1e-30)])
def test_constant_rows(row: torch.Tensor) -> None:
    weight = torch.randn(48, 40)
    torch.testing.assert_close(Int8Kernel(weight, None)(row), row @ weight.T, atol=0.4, rtol=0.01)


@pytest.mark.parametrize("activation", ["relu", "relu-squared", "silu", "gelu-tanh"])
def test_activations_equal_torch(activation: str) -> None:
    from peasy.nn.feedforward import ACTIVATIONS

    linear = Float32Kernel(torch.eye(40), None)
    x = torch.randn(30, 40) * torch.logspace(-3, 2, 30)[:, None]
    assert linear.fuse_activation(activation, 24)
    expected = torch.cat([ACTIVATIONS[activation](x[:, :24]), x[:, 24:]], dim=1)
    torch.testing.assert_close(linear(x), expected, atol=2e-6, rtol=2e-6)
    assert linear(torch.full((1, 40), torch.nan)).isnan().all()
    assert not linear.fuse_activation("gelu", 24)


@pytest.mark.parametrize("width", [8, 13, 768])
def test_norms_equal_torch(width: int) -> None:
    x = torch.randn(2, 20, width) + 3
    for norm in (nn.LayerNorm(width), nn.LayerNorm(width, bias=False), nn.RMSNorm(width, eps=1e-6)):
        nn.init.normal_(norm.weight)
        torch.testing.assert_close(KernelNorm(norm)(x), norm(x), atol=2e-5, rtol=2e-5)
        assert torch.equal(KernelNorm(norm)(x)[1, 7], KernelNorm(norm)(x[1, 7:8])[0])


# Attention.


@pytest.mark.parametrize(("heads", "kv_heads", "width", "window"), [(4, 4, 8, None), (4, 2, 40, None), (2, 1, 64, 5)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 37), (5, 5), (23, 40)])
def test_varlen_attention_equals_row_wise_attention(
    heads: int, kv_heads: int, width: int, window: int | None, queries: int, keys: int
) -> None:
    query, key, value = (
        torch.randn(1, n, size, width) for n, size in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    )
    causal = AttentionInputs(query, key, value, AttentionMask(causal=True, key_range=(True, window)), 0.3)
    unmasked = AttentionInputs(query, key, value, AttentionMask(key_range=(False, None)), 0.3)
    for inputs in (causal, unmasked):
        actual = PackedVarlenBackend(None).run(inputs)  # without a fallback: the kernel computes them
        torch.testing.assert_close(actual, ROW_WISE.run(inputs), atol=2e-6, rtol=2e-6)


def test_nan_does_not_spread_to_other_queries() -> None:
    """Later keys and unused capacity are never read; a non-finite query gives a non-finite output."""
    query, key, value = (torch.randn(1, 2, 6, 8) for _ in range(3))
    attend = PackedVarlenBackend(ROW_WISE).attend_varlen
    clean = attend(query, None, [(key, value, 6)], [6], 0.3, True, None)
    key[:, :, 4], value[:, :, 4], query[:, :, 2] = torch.nan, torch.inf, torch.inf
    actual = attend(query, None, [(key, value, 6)], [6], 0.3, True, None)
    assert torch.equal(actual[:, [0, 1, 3]], clean[:, [0, 1, 3]])
    assert not actual[:, [2, 4, 5]].isfinite().any()


# Whole models.


@pytest.mark.parametrize(
    "name", ["learned", "rotary", "multi-query", "window", "shift", "post-norm", "alibi", "seq2seq"]
)
@torch.inference_mode()
def test_packed_models_give_the_same_logits(name: str) -> None:
    model = make((DECODERS | TRANSLATORS)[name])
    source = source_of(model)
    expected = model(some_ids(), **source)
    for kind, tolerance in (("float32", 1e-5), ("int8", 0.2)):
        actual = packed_model(name, kind)(some_ids(), **source)
        assert float((actual - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", ["learned", "rotary", "grouped", "window", "windowed-layers", "seq2seq"])
@torch.inference_mode()
def test_batch_invariance(name: str, kind: Any) -> None:
    model, draw = packed_model(name, kind), random.Random(0)
    assert packing_of(model).batch_invariance.holds
    assert all(one_trial(model, draw) for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "int8"])
@torch.inference_mode()
def test_batch_invariance_in_a_thousand_trials(kind: Any, threads: int) -> None:
    draw = random.Random(threads)
    assert sum(not one_trial(packed_model("rotary", kind), draw) for _ in range(1000)) == 0


@pytest.mark.parametrize("deterministic", [True, False])
@torch.inference_mode()
def test_a_tap_changes_no_bit(deterministic: bool) -> None:
    from peasy.nn.tap import Tap

    model = pack(make(DECODERS["learned"]), "float32", deterministic=deterministic, kernel=True)
    activations, ids = [], some_ids(1, 9).tolist()
    plain = model.forward_varlen(ids, [model.new_state()], all_positions=True)[0]
    tapped = model.forward_varlen(ids, [model.new_state()], all_positions=True, tap=[Tap(activations.append)])[0]
    assert torch.equal(plain, tapped)
    assert len(activations) == 3


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("kind", ["float32", "int8"])
@torch.inference_mode()
def test_batch_invariance_with_odd_widths(kind: Any, kernel: bool) -> None:
    """A feed-forward of width 40: torch's activations differ in the last bit at the end of an array."""
    shape = {"num_layers": 2, "attention": {"num_heads": 4}, "feedforward": {"d_ff": 40}}
    model = build(preset("gpt2", d_model=32, vocab_size=61, max_seq_len=64, stack=shape), seed=3)
    twin, draw = pack(model, kind, deterministic=True, kernel=kernel), random.Random(3)
    assert packing_of(twin).batch_invariance.holds
    sequences = [[draw.randrange(61) for _ in range(size)] for size in (11, 6, 1)]
    alone = [twin.forward_varlen([ids], [twin.new_state()], all_positions=True)[0] for ids in sequences]
    together = twin.forward_varlen(sequences, [twin.new_state() for _ in sequences], all_positions=True)
    assert all(torch.equal(first, second) for first, second in zip(alone, together, strict=True))


@torch.inference_mode()
def test_torch_activations_alone_are_not_batch_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse: torch's activation gives other bits at the ends of arrays, and the check finds it."""
    x = torch.randn(5, 43)
    gelu = lambda x: nn.functional.gelu(x, approximate="tanh")  # noqa: E731
    pieces = [x[:, start : start + size] for start in range(40) for size in (1, 2, 3)]
    if all(
        torch.equal(gelu(x)[:, s : s + n], gelu(x[:, s : s + n].contiguous())) for s in range(40) for n in (1, 2, 3)
    ):
        assert pieces  # this torch is invariant by itself
        return
    monkeypatch.setattr(packed, "batch_invariant", lambda function, x: function(x))
    shape = {"num_layers": 2, "attention": {"num_heads": 4}, "feedforward": {"d_ff": 40}}
    model = build(preset("gpt2", d_model=32, vocab_size=61, max_seq_len=64, stack=shape), seed=3)
    assert not packing_of(pack(model, "float32", deterministic=True, kernel=False)).batch_invariance.holds


def test_batch_invariant_elementwise_equals_the_function() -> None:
    for size in (1, 63, 64, MAX_UNTHREADED, MAX_UNTHREADED + 5):
        x = torch.randn(size)
        torch.testing.assert_close(batch_invariant(torch.exp, x), x.exp())
    x = torch.randn(6, 10)
    assert torch.equal(batch_invariant(torch.exp, x.T), batch_invariant(torch.exp, x).T)


# Engine and speculative decoding.


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_engine_output_does_not_depend_on_the_batch(kind: Any) -> None:
    model, draw = packed_model("rotary", kind), random.Random(1)
    requests = [
        Request(
            tuple(draw.randrange(1, 60) for _ in range(draw.randint(1, 30))),
            SamplingParams(9, 0.8, seed=index, logprobs=2),
        )
        for index in range(6)
    ]
    engine = Engine(model)
    responses = [engine.submit(request) for request in requests]
    run(engine)
    for request, response in zip(requests, responses, strict=True):
        events = response.pop_all()
        alone = [e for e in decode(model, [request.prompt], [request.sampling]) if isinstance(e, Token)]
        assert token_ids(events) == [event.sampled.id for event in alone]
        logprobs = [event.sampled.logprob for event in events if isinstance(event, Token)]
        assert logprobs == [event.sampled.logprob for event in alone]


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", ["learned", "window", "seq2seq"])
def test_speculative_decoding_gives_the_same_output(name: str, kind: Any) -> None:
    model, prompts = packed_model(name, kind), [[5, 9, 2, 7, 7, 3, 1, 8] * 3, [1, 2]]
    source = {"source": [[4, 8, 15], [16, 23]]} if model.is_encoder_decoder else {}
    for sampling in (SamplingParams(20), SamplingParams(20, 0.3, seed=5)):
        *events, last = decode(model, prompts, sampling, speculative=True, **source)
        generated = [token_ids(events, choice) for choice in range(2)]
        assert generated == generate(model, prompts, sampling, **source)
        assert last.num_generated == sum(map(len, generated))


# Choice of packing, and its cost.


def test_the_kernel_is_reported_and_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS["learned"])
    assert "numba kernel" in str(packing_of(pack(model, "int8")))
    assert not packing_of(pack(model, "float32")).compiled  # too small a model to gain from it
    assert not packing_of(pack(model, "int8", kernel=False)).compiled
    monkeypatch.setattr(packed_numba, "has_numba", lambda: False)
    assert not packing_of(pack(model, "int8")).compiled
    with pytest.raises(MissingExtra, match="needs numba") as caught:
        pack(model, "int8", kernel=True)
    assert "peasy-attention[kernel]" in caught.value.hint


def test_an_incorrect_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Int8Kernel, "is_exact", lambda self: False)
    packing = packing_of(pack(make(DECODERS["learned"]), "int8", kernel=True))
    assert not packing.compiled
    assert "the kernel is not exact on this CPU" in str(packing)


def test_invariance_comes_with_the_kernel_or_on_request() -> None:
    """With torch's kernels a long prefill would take half as long again: docs/log.md."""
    model = make(DECODERS["learned"])
    twin = pack(model, "float32", kernel=False)
    assert str(packing_of(twin)).endswith("not batch-invariant")
    assert all(module.backend is FUSED for module in twin.modules() if isinstance(module, Attention))
    for options in ({"kernel": True}, {"kernel": False, "deterministic": True}):
        assert packing_of(pack(model, "float32", **options)).batch_invariance.holds
    assert packing_of(pack(model, "float32", kernel=True, deterministic=False)).batch_invariance is None


# Threads.


def test_kernels_run_on_torch_threads() -> None:
    import numba

    @numba.cfunc("void(CPointer(int64))")
    def count(task: Any) -> None:
        numba.carray(task, (1,))[0] += 1

    for threads, single_thread, expected in (
        (1, False, 1),
        (2, True, 1),
        (2, False, 1 if openmp.gomp_parallel() is None else 2),
    ):
        before, words = torch.get_num_threads(), (ctypes.c_int64 * 1)(0)
        torch.set_num_threads(threads)
        openmp.run_on_openmp_team(count.address, words, single_thread=single_thread)
        torch.set_num_threads(before)
        assert words[0] in (expected, 1)  # two threads may add at the same moment


def test_without_openmp_one_thread_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, rows = Float32Kernel(torch.randn(64, 64), None), torch.randn(3, 64)
    before = linear(rows)
    monkeypatch.setattr(openmp, "gomp_parallel", lambda: None)
    assert torch.equal(linear(rows), before)


def test_numba_is_imported_lazily() -> None:
    """Modules that every packing imports, import numba and the kernels only inside functions."""
    eager = re.compile(r"(import|from) (numba|llvmlite)|.*packed_(kernel|attention|llvm)")
    for module in (packed, batch_invariance, machine_measurements, packed_numba, packed_linear, openmp):
        lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
        imports = [line for line in lines if line.startswith(("import ", "from "))]
        assert imports
        assert not [line for line in imports if eager.match(line)]
