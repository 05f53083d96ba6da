"""Packed products: the same model, exactly or nearly; rows never feel each other; equal bits in any company."""

import random
from functools import cache
from typing import Any

import pytest
import torch
from tests.generation.trial import one_trial
from tests.models.zoo import DECODERS, EVERYONE, TRANSLATORS, make, some_ids, source_of

from peasy.errors import InvalidInput, MissingPart
from peasy.generation import packed, packed_check, packed_product
from peasy.generation.packed import pack, packing_of
from peasy.generation.packed_check import hold_bits, least_rows
from peasy.generation.packed_product import ByRow, ByRowFromLeast, ByTensor, Plain, Prepacked, scale_channels
from peasy.models.protocol import Model
from peasy.nn.attention import Attention

pytestmark = pytest.mark.skipif(not packed_product.has_bytes(), reason="this build of torch has no 8-bit products")

INVARIANT = ["learned", "rotary", "alibi", "relative", "grouped", "windowed-layers", "softcap", "both"]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small products are quicker without waiting for a second thread; what holds with two is asked apart."""
    torch.manual_seed(0)  # the same numbers every time
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def packed_model(name: str, kind: Any = "float32") -> Model:
    return pack(make((DECODERS | TRANSLATORS)[name]), kind, deterministic=True, kernel=False)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    found, expected = found.nan_to_num(neginf=0), expected.nan_to_num(neginf=0)
    return float((found - expected).norm() / expected.norm())


NEAR = {"float32": 5e-6, "int8": 0.3, "int8-tensor": 0.3, "bfloat16": 0.1}
SOME = ["learned", "rotary", "both", "encoder"]


@pytest.mark.parametrize(("name", "kind"), [(n, k) for k in NEAR for n in (EVERYONE if k == "int8" else SOME)])
@torch.inference_mode()
def test_every_model_answers_as_before(name: str, kind: Any) -> None:
    model = make(EVERYONE[name])
    source = source_of(model)
    before = model(some_ids(), **source)
    twin = pack(model, kind, deterministic=False, kernel=False)
    assert error(twin(some_ids(), **source), before) <= NEAR[kind]
    assert torch.equal(model(some_ids(), **source), before)


def test_what_is_not_a_product_is_shared() -> None:
    model = make(DECODERS["learned"])
    twin = pack(model, "int8", deterministic=False)
    assert twin.embedding.token.weight is model.embedding.token.weight
    assert twin.decoder.blocks[0].attention_norm.weight is model.decoder.blocks[0].attention_norm.weight
    assert model.decoder.blocks[0].attention.joined is None
    assert packing_of(model) is None


@torch.inference_mode()
def test_a_watched_packed_model_shows_the_steps_of_the_other() -> None:
    from peasy.nn.tap import KNOWN_STEPS, Tap

    model, steps = make(DECODERS["rotary"]), []
    pack(model, "float32", deterministic=False)(some_ids(), tap=Tap(steps.append, steps=KNOWN_STEPS))
    expected: list[Any] = []
    model(some_ids(), tap=Tap(expected.append, steps=KNOWN_STEPS))
    for one, other in zip(steps, expected, strict=True):
        assert (one.place, one.step) == (other.place, other.step)
        torch.testing.assert_close(one.array, other.array, atol=1e-4, rtol=1e-4)


# Products.


def extreme(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    """Numbers that all lie at the ends of their range, where sums of products are largest."""
    draw = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 4, (rows, width // 2), generator=draw).clamp(max=1).repeat_interleave(2, dim=1) * 2 - 1
    return signs * (1 - torch.rand(rows, width, generator=draw) * 0.02)


@pytest.mark.parametrize("make_product", [ByRow, ByRowFromLeast])
@pytest.mark.parametrize("width", [31, 64, 200])
def test_bytes_are_multiplied_exactly(make_product: Any, width: int) -> None:
    """The other road: the same bytes in whole numbers of 64 bits; nothing is ever cut off."""
    weight, rows = extreme(40, width + width % 2)[:, :width], extreme(9, width + width % 2, seed=1)[:, :width]
    product = make_product(weight, torch.arange(40.0))
    assert error(product(rows), _in_whole_numbers(product, weight, rows)) < 1e-6


def _in_whole_numbers(product: ByRow, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    scale = scale_channels(weight).double()
    whole = (weight / scale[:, None]).round().long()
    if type(product) is ByRow:
        least, size = 0.0, rows.abs().amax(dim=1, keepdim=True).double()
        codes = (rows / size.float() * 127).round().long() + 128
        exact = (codes - 128) @ whole.T * size / 127
    else:
        least, most = rows.aminmax(dim=1, keepdim=True)
        codes = ((rows - least) / (most - least) * 255).round().long()
        exact = codes @ whole.T * (most - least).double() / 255 + least.double() * whole.sum(dim=1)
    return (exact * scale + torch.arange(40.0)).float()


@pytest.mark.skipif(torch.cpu._is_vnni_supported(), reason="this processor adds 8-bit products in 32 bits anyway")
def test_weights_that_fill_their_byte_would_be_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse: with the usual scale, neighbours leave 16 bits on a processor without 8-bit dot products."""
    usual = lambda weight: weight.abs().amax(dim=1) / 127  # noqa: E731
    monkeypatch.setattr(packed_product, "scale_channels", usual)
    weight, rows = extreme(40, 64).abs(), extreme(9, 64, seed=1).abs()
    product = ByRow(weight, None)
    assert error(product(rows), rows @ weight.T) > 0.05


def test_neighbours_never_leave_sixteen_bits() -> None:
    for weight in (extreme(40, 64), torch.randn(40, 63), torch.zeros(3, 8)):
        whole = torch.nn.functional.pad((weight / scale_channels(weight)[:, None]).round(), (0, weight.shape[1] % 2))
        pairs = whole.unflatten(1, (-1, 2))
        assert whole.abs().max() <= 127
        assert 255 * pairs.clamp(min=0).sum(-1).max() < 2**15
        assert 255 * -pairs.clamp(max=0).sum(-1).min() < 2**15


@pytest.mark.parametrize("make_product", [Prepacked, ByRow, ByRowFromLeast])
def test_no_row_feels_another(make_product: Any) -> None:
    product, rows = make_product(torch.randn(48, 40), torch.randn(48)), torch.randn(5, 40)
    alone = [product(row[None])[0] for row in rows]
    rows[3] *= 1e6
    for index in (0, 1, 2, 4):
        assert torch.equal(product(rows)[index], alone[index])
    rows[3] = torch.nan
    assert product(rows)[3].isnan().all()
    assert torch.equal(product(rows)[4], alone[4])


def test_one_scale_for_all_rows_is_felt() -> None:
    """The inverse: the per-tensor product, named as such, lets a large row spoil its neighbours."""
    product, rows = ByTensor(torch.randn(48, 40), None), torch.randn(5, 40)
    alone = product(rows[:1])
    rows[3] *= 1e6
    assert not torch.equal(product(rows)[:1], alone)


@pytest.mark.parametrize("row", [torch.zeros(1, 40), torch.full((1, 40), 2.5), torch.full((1, 40), -1e-30)])
@pytest.mark.parametrize("make_product", [ByRow, ByRowFromLeast])
def test_flat_rows(make_product: Any, row: torch.Tensor) -> None:
    weight = torch.randn(48, 40)
    torch.testing.assert_close(make_product(weight, None)(row), row @ weight.T, atol=0.3, rtol=0.03)


# Equal bits.


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", INVARIANT)
@torch.inference_mode()
def test_equal_bits_in_any_company(name: str, kind: Any) -> None:
    model, draw = packed_model(name, kind), random.Random(0)
    held = packing_of(model).held
    if held is None or not held.equal:
        pytest.skip("this processor does not give equal bits for these shapes, and peasy says so")
    assert all(one_trial(model, draw) for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("threads", [1, 2])
@torch.inference_mode()
def test_equal_bits_in_a_thousand_trials(kind: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    model, draw = pack(make(DECODERS["rotary"]), kind, deterministic=True, kernel=False), random.Random(threads)
    assert packing_of(model).held.equal
    assert sum(not one_trial(model, draw) for _ in range(1000)) == 0


@torch.inference_mode()
def test_without_the_guards_bits_differ_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inverse, twice: queries that look together, and products that are not packed."""
    together = pack(make(DECODERS["learned"]), "float32", deterministic=True)
    for part in together.modules():
        if isinstance(part, Attention):
            part.apart = False
    assert not all(one_trial(together, random.Random(seed)) for seed in range(20))
    assert not hold_bits(together).equal
    monkeypatch.setattr(packed_product, "has_onednn", lambda: False)
    plain = pack(make(DECODERS["learned"]), "float32", deterministic=True)
    held = packing_of(plain).held
    assert held.equal == all(one_trial(plain, random.Random(seed)) for seed in range(20))
    assert held.says().startswith("same bits") == held.equal


def test_rows_are_filled_up_where_few_are_computed_otherwise() -> None:
    class Odd(Plain):
        """Gives other bits to fewer than three rows."""

        def multiply(self, rows: torch.Tensor) -> torch.Tensor:
            return rows[:, :4] * (1.0 if len(rows) < 3 else 1.0000001)

    product = Odd(torch.randn(4, 8), None)
    assert least_rows(product) == 4
    product.least = 4
    assert product(torch.ones(1, 8)).shape == (1, 4)

    class Hopeless(Plain):
        def multiply(self, rows: torch.Tensor) -> torch.Tensor:
            return rows[:, :4] * len(rows)

    assert least_rows(Hopeless(torch.randn(4, 8), None)) is None
    assert set(packed_check.LEAST) == {1, 2, 4, 16}


# Choosing.


def test_the_choice_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS["learned"])
    monkeypatch.setattr(packed_product, "has_bfloat16", lambda: False)
    exact = packing_of(pack(model))
    assert exact.kind == "float32"
    assert exact.says().startswith("float32 (exact), 0 MiB of products, laid out in 0.")
    assert "\n" not in exact.says()
    monkeypatch.setattr(packed_product, "has_bfloat16", lambda: True)
    monkeypatch.setattr(packed_product, "has_onednn", lambda: False)
    assert packing_of(pack(model)).kind == "bfloat16"
    assert packing_of(pack(model, deterministic=True)).kind == "float32"
    assert packing_of(pack(model, "bfloat16")).says().endswith("bits depend on the batch")


def test_what_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(DECODERS["learned"])
    with pytest.raises(InvalidInput, match='no packing "int9"') as caught:
        pack(model, "int9")  # type: ignore[arg-type]
    assert caught.value.hint == "Did you mean int8?"
    with pytest.raises(InvalidInput, match="cannot give the same bits"):
        pack(model, "int8-tensor", deterministic=True)
    monkeypatch.setattr(packed_product, "has_bytes", lambda: False)
    with pytest.raises(MissingPart, match="8 bits"):
        packed.pack(model, "int8", kernel=False)
