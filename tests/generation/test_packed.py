"""Packed models: the same logits exactly or approximately, independent rows, batch invariance."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.batch_trials import one_trial
from tests.models.tiny_models import ALL_MODELS, DECODERS, TRANSLATORS, make, some_ids, source_of

from peasy.errors import InvalidInput, MissingExtra
from peasy.generation import batch_invariance, packed, packed_linear
from peasy.generation.batch_invariance import check_batch_invariance, find_min_rows
from peasy.generation.packed import pack, packing_of
from peasy.generation.packed_linear import (
    Int8PerRow,
    Int8PerRowAsymmetric,
    OneDNNLinear,
    TorchLinear,
    channel_scales,
)
from peasy.models.protocol import Model
from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FUSED

pytestmark = pytest.mark.skipif(not packed_linear.has_int8(), reason="this build of torch has no int8 linear layers")

INVARIANT = ["learned", "rotary", "alibi", "relative", "grouped", "windowed-layers", "softcap", "seq2seq"]


@pytest.fixture(autouse=True)
def _measure_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is remembered from other tests; that measurements are remembered has tests of its own."""
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.setenv("PEASY_MEASURE_AGAIN", "1")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small layers are faster on one thread; two threads are tested separately."""
    torch.manual_seed(0)  # reproducible
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def packed_model(name: str, kind: Any = "float32") -> Model:
    return pack(make((DECODERS | TRANSLATORS)[name]), kind, deterministic=True, kernel=False)


def error(output: torch.Tensor, expected: torch.Tensor) -> float:
    output, expected = output.nan_to_num(neginf=0), expected.nan_to_num(neginf=0)
    return float((output - expected).norm() / expected.norm())


TOLERANCE = {"float32": 5e-6, "int8": 0.3, "bfloat16": 0.1}
FEW_MODELS = ["learned", "rotary", "seq2seq", "encoder"]


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for k in TOLERANCE for n in (ALL_MODELS if k == "int8" else FEW_MODELS)]
)
@torch.inference_mode()
def test_packed_models_give_the_same_logits(name: str, kind: Any) -> None:
    model = make(ALL_MODELS[name])
    source = source_of(model)
    before = model(some_ids(), **source)
    twin = pack(model, kind, deterministic=False, kernel=False)
    assert error(twin(some_ids(), **source), before) <= TOLERANCE[kind]
    assert torch.equal(model(some_ids(), **source), before)


def test_other_parameters_are_shared() -> None:
    model = make(DECODERS["learned"])
    twin = pack(model, "int8", deterministic=False)
    assert twin.embedding.token.weight is model.embedding.token.weight
    assert twin.decoder.blocks[0].attention_norm.weight is model.decoder.blocks[0].attention_norm.weight
    assert model.decoder.blocks[0].attention.qkv_proj is None
    assert packing_of(model) is None


@torch.inference_mode()
def test_captured_steps_of_a_packed_model_equal_the_original() -> None:
    from peasy.nn.tap import KNOWN_STEPS, Tap

    model, steps = make(DECODERS["rotary"]), []
    pack(model, "float32", deterministic=False)(some_ids(), tap=Tap(steps.append, steps=KNOWN_STEPS))
    expected: list[Any] = []
    model(some_ids(), tap=Tap(expected.append, steps=KNOWN_STEPS))
    for actual, other in zip(steps, expected, strict=True):
        assert (actual.path, actual.step) == (other.path, other.step)
        torch.testing.assert_close(actual.array, other.array, atol=1e-4, rtol=1e-4)


# Linear layers.


def extreme(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    """Return values at the ends of their range, where sums of products are largest."""
    draw = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 4, (rows, width // 2), generator=draw).clamp(max=1).repeat_interleave(2, dim=1) * 2 - 1
    return signs * (1 - torch.rand(rows, width, generator=draw) * 0.02)


@pytest.mark.parametrize("make_linear", [Int8PerRow, Int8PerRowAsymmetric])
@pytest.mark.parametrize("width", [31, 64, 200])
def test_int8_linear_layers_are_exact(make_linear: Any, width: int) -> None:
    """Reference: the same codes in 64-bit integers; nothing overflows."""
    weight, rows = extreme(40, width + width % 2)[:, :width], extreme(9, width + width % 2, seed=1)[:, :width]
    linear = make_linear(weight, torch.arange(40.0))
    assert error(linear(rows), _in_integers(linear, weight, rows)) < 1e-6


def _in_integers(linear: Int8PerRow, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    scale = channel_scales(weight).double()
    weight_codes = (weight / scale[:, None]).round().long()
    if type(linear) is Int8PerRow:
        size = rows.abs().amax(dim=1, keepdim=True).double()
        codes = (rows / size.float() * 127).round().long() + 128
        exact = (codes - 128) @ weight_codes.T * size / 127
    else:
        low, high = rows.aminmax(dim=1, keepdim=True)
        codes = ((rows - low) / (high - low) * 255).round().long()
        exact = codes @ weight_codes.T * (high - low).double() / 255 + low.double() * weight_codes.sum(dim=1)
    return (exact * scale + torch.arange(40.0)).float()


@pytest.mark.skipif(torch.cpu._is_vnni_supported(), reason="with VNNI, int8 products are added in 32 bits")
def test_the_usual_int8_scale_would_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse: with the usual scale, pairs overflow 16 bits on a CPU without VNNI."""
    usual = lambda weight: weight.abs().amax(dim=1) / 127  # noqa: E731
    monkeypatch.setattr(packed_linear, "channel_scales", usual)
    weight, rows = extreme(40, 64).abs(), extreme(9, 64, seed=1).abs()
    linear = Int8PerRow(weight, None)
    assert error(linear(rows), rows @ weight.T) > 0.05


def test_pair_sums_fit_sixteen_bits() -> None:
    for weight in (extreme(40, 64), torch.randn(40, 63), torch.zeros(3, 8)):
        codes = torch.nn.functional.pad((weight / channel_scales(weight)[:, None]).round(), (0, weight.shape[1] % 2))
        pairs = codes.unflatten(1, (-1, 2))
        assert codes.abs().max() <= 127
        assert 255 * pairs.clamp(min=0).sum(-1).max() < 2**15
        assert 255 * -pairs.clamp(max=0).sum(-1).min() < 2**15


@pytest.mark.parametrize("make_linear", [OneDNNLinear, Int8PerRow, Int8PerRowAsymmetric])
def test_rows_are_independent(make_linear: Any) -> None:
    linear, rows = make_linear(torch.randn(48, 40), torch.randn(48)), torch.randn(5, 40)
    alone = [linear(row[None])[0] for row in rows]
    rows[3] *= 1e6
    for index in (0, 1, 2, 4):
        assert torch.equal(linear(rows)[index], alone[index])
    rows[3] = torch.nan
    assert linear(rows)[3].isnan().all()
    assert torch.equal(linear(rows)[4], alone[4])


def test_a_scale_per_tensor_couples_rows() -> None:
    """The inverse: with one scale per tensor, a large row changes the others."""

    class PerTensor(Int8PerRow):
        def multiply(self, rows: torch.Tensor) -> torch.Tensor:
            size = rows.abs().max()
            return packed_linear._int8_linear(rows / size, 1 / 127, 128, self.packed) * size

    linear, rows = PerTensor(torch.randn(48, 40), None), torch.randn(5, 40)
    alone = linear(rows[:1])
    rows[3] *= 1e6
    assert not torch.equal(linear(rows)[:1], alone)


@pytest.mark.parametrize("row", [torch.zeros(1, 40), torch.full((1, 40), 2.5), torch.full((1, 40), -1e-30)])
@pytest.mark.parametrize("make_linear", [Int8PerRow, Int8PerRowAsymmetric])
def test_constant_rows(make_linear: Any, row: torch.Tensor) -> None:
    weight = torch.randn(48, 40)
    torch.testing.assert_close(make_linear(weight, None)(row), row @ weight.T, atol=0.3, rtol=0.03)


# Batch invariance.


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", INVARIANT)
@torch.inference_mode()
def test_batch_invariance(name: str, kind: Any) -> None:
    model, draw = packed_model(name, kind), random.Random(0)
    invariance = packing_of(model).batch_invariance
    if invariance is None or not invariance.holds:
        pytest.skip("not batch-invariant for these shapes on this CPU, and peasy reports it")
    assert all(one_trial(model, draw) for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("threads", [1, 2])
@torch.inference_mode()
def test_batch_invariance_in_a_thousand_trials(kind: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    model, draw = pack(make(DECODERS["rotary"]), kind, deterministic=True, kernel=False), random.Random(threads)
    assert packing_of(model).batch_invariance.holds
    assert sum(not one_trial(model, draw) for _ in range(1000)) == 0


@torch.inference_mode()
def test_missing_invariance_is_detected_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse, twice: attention that is not row-wise, and linear layers that are not packed."""
    together = pack(make(DECODERS["learned"]), "float32", deterministic=True)
    for module in together.modules():
        if isinstance(module, Attention):
            module.backend = FUSED
    assert not all(one_trial(together, random.Random(seed)) for seed in range(20))
    assert not check_batch_invariance(together).holds
    monkeypatch.setattr(packed_linear, "HAS_ONEDNN", False)
    plain = pack(make(DECODERS["learned"]), "float32", deterministic=True)
    invariance = packing_of(plain).batch_invariance
    assert invariance.holds == all(one_trial(plain, random.Random(seed)) for seed in range(20))
    assert invariance.summary().startswith("batch-invariant") == invariance.holds


def test_small_batches_are_padded_where_needed() -> None:
    class Odd(TorchLinear):
        """Gives other bits for fewer than three rows."""

        def multiply(self, rows: torch.Tensor) -> torch.Tensor:
            return rows[:, :4] * (1.0 if len(rows) < 3 else 1.0000001)

    linear = Odd(torch.randn(4, 8), None)
    assert find_min_rows(linear) == 4
    linear.min_rows = 4
    assert linear(torch.ones(1, 8)).shape == (1, 4)

    class Hopeless(TorchLinear):
        def multiply(self, rows: torch.Tensor) -> torch.Tensor:
            return rows[:, :4] * len(rows)

    assert find_min_rows(Hopeless(torch.randn(4, 8), None)) is None
    assert set(batch_invariance.MIN_ROWS_TRIED) == {1, 2, 4, 16}


# Choice of packing.


def test_summary_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS["learned"])
    monkeypatch.setattr(packed, "HAS_BFLOAT16", False)
    exact = packing_of(pack(model))
    assert exact.kind == "float32"
    assert str(exact).startswith("float32 (exact), 0 MiB of linear layers, packed in 0.")
    assert "\n" not in str(exact)
    monkeypatch.setattr(packed, "HAS_BFLOAT16", True)
    monkeypatch.setattr(packed_linear, "HAS_ONEDNN", False)
    assert packing_of(pack(model)).kind == "bfloat16"
    assert packing_of(pack(model, deterministic=True)).kind == "float32"
    assert str(packing_of(pack(model, "bfloat16"))).endswith("not batch-invariant")


def test_unsupported_packings_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS["learned"])
    with pytest.raises(InvalidInput, match='no weight format "int9"') as caught:
        pack(model, "int9")  # type: ignore[arg-type]
    assert caught.value.hint == "Did you mean int8?"
    with pytest.raises(InvalidInput, match="cannot be batch-invariant"):
        pack(model, "bfloat16", deterministic=True)
    monkeypatch.setattr(packed_linear, "has_int8", lambda: False)
    with pytest.raises(MissingExtra, match="int8"):
        packed.pack(model, "int8", kernel=False)
