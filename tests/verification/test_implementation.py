"""Examination of attention code: every mistake is named, correct code passes, conventions are reported."""

import importlib.util
import linecache
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from peasy.errors import InvalidInput, UsageError
from peasy.verification.implementation import catalogue, comparison
from peasy.verification.implementation import examine as examination
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.loading import StandIn, load_module
from peasy.verification.verdict import EQUAL, NOT_COMPARED, WRONG

from . import mutants
from .specimen import right, wrong


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Errors of the examination itself fail a test; they are not reported as "not compared"."""
    monkeypatch.setattr(examination, "STRICT", True)


def load(source, path):
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    linecache.checkcache(str(path))
    return module


@pytest.mark.parametrize(("target", "name"), wrong.WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_mistakes_are_named(target, name):
    diagnosis = examine(target)
    assert diagnosis.mistakes == (name,)
    assert (diagnosis.verdict, diagnosis.passed) == (WRONG, False)
    (finding,) = [item for item in diagnosis.findings if item.name == name]
    assert finding.fix
    assert finding.formula


@pytest.mark.parametrize("target", right.RIGHT, ids=lambda value: value.__name__)
def test_correct_code_equals_the_formula(target):
    diagnosis = examine(target)
    assert (diagnosis.verdict, diagnosis.mistakes, diagnosis.unknown) == (EQUAL, (), ())
    assert diagnosis.conventions
    assert diagnosis.num_compared >= 3
    assert 0 < diagnosis.max_difference < 1e-5


_FAST = {("function", "no scale"), ("numpy", "softmax over queries"), ("four linears", "values from the queries"),
         ("fused causal", "causal mask off by one (future)"), ("helpers", "heads split by a wrong reshape"),
         ("fused kernel", "keys and values swapped"), ("grouped rotary", "kv heads tiled"), ("cross", "no scale"),
         ("head list", "mask inverted"), ("einsum", "double softmax"), ("numpy", "double softmax"),
         ("fused kernel", "no scale")}  # fmt: skip


def _mutant(mutant):
    marks = () if (mutant.style, mutant.mistake) in _FAST else (pytest.mark.slow,)
    return pytest.param(mutant, id=f"{mutant.style}-{mutant.mistake}", marks=marks)


def test_there_are_a_hundred_mutants_in_ten_styles():
    assert len(mutants.MUTANTS) >= 100
    assert len({mutant.style for mutant in mutants.MUTANTS}) == len(mutants.STYLES) == 10
    assert {mutant.mistake for mutant in mutants.MUTANTS} <= set(catalogue.MISTAKES)


@pytest.mark.parametrize("mutant", [_mutant(mutant) for mutant in mutants.MUTANTS])
def test_mutants_are_named_with_their_line(mutant, tmp_path):
    module = load(mutant.source, tmp_path / "mutant.py")
    diagnosis = examine(getattr(module, mutants.TARGETS[mutant.style]))
    assert diagnosis.mistakes[:1] == (mutant.mistake,)
    finding = next(item for item in diagnosis.findings if item.name == mutant.mistake)
    if finding.line is not None:
        assert finding.line in (mutant.line, *mutants.OTHER_LINES.get((mutant.style, mutant.mistake), ()))
    else:
        assert mutant.mistake in mutants.NO_LINE


@pytest.mark.slow
@pytest.mark.parametrize("style", mutants.STYLES)
def test_styles_without_a_mutation_equal_the_formula(style, tmp_path):
    """Inverse of the mutants: it is the changed line that is found."""
    module = load(mutants.STYLES[style], tmp_path / "style.py")
    assert examine(getattr(module, mutants.TARGETS[style])).verdict == EQUAL


@pytest.mark.parametrize(
    ("target", "convention"),
    [
        (right.torch_fused, "mask: True = may attend"),
        (right.true_is_masked, "mask: True = masked"),
        (right.additive_mask, "added to the scores"),
        (right.grouped, "grouped-query attention"),
        (right.FromScratch, "always causal"),
        (right.FromScratch, "c_attn makes queries, keys, values, in this order"),
        (right.Cached, "rotary"),
        (right.Grouped, "grouped-query attention: 2 key/value heads for 4 query heads"),
    ],
)
def test_conventions_are_reported(target, convention):
    assert any(convention in text for text in examine(target).conventions)


class Surroundings(nn.Module):
    """Attention with a norm before, norms of queries and keys, a soft cap, a window, a sink and a residual."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.kqv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q_norm, self.k_norm = nn.RMSNorm(dim // heads), nn.RMSNorm(dim // heads)
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        b, t, c = x.shape
        k, q, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.kqv(self.norm(x)).chunk(3, dim=-1))
        scores = self.q_norm(q) @ self.k_norm(k).mT / math.sqrt(q.size(-1))
        scores = 5 * torch.tanh(scores / 5)
        distance = torch.arange(t)[:, None] - torch.arange(t)[None]
        scores = scores.masked_fill((distance < 0) | (distance >= 3), -torch.inf)
        scores = torch.cat([scores, self.sink.view(1, -1, 1, 1).expand(b, -1, t, 1)], dim=-1)
        context = scores.softmax(-1)[..., :-1] @ v
        return x + self.out(context.transpose(1, 2).reshape(b, t, c))


def test_unusual_surroundings_are_conventions_not_mistakes():
    diagnosis = examine(Surroundings)
    assert diagnosis.verdict == EQUAL
    text = "; ".join(diagnosis.conventions)
    for convention in ("keys, queries, values", "QK-norm", "norm before", "soft cap of 5", "window of 3", "sink"):
        assert convention in text


@pytest.mark.parametrize("kind", ["activation", "cube", "linear"])
def test_unknown_computations_are_not_compared(kind):
    class Unknown(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            if kind == "activation":
                q = torch.relu(q)
            scores = q @ k.mT / math.sqrt(q.size(-1))
            if kind == "cube":
                scores = scores**3
            return q @ (k.mT @ v) if kind == "linear" else scores.softmax(-1) @ v

    diagnosis = examine(Unknown)
    assert (diagnosis.verdict, diagnosis.passed, diagnosis.mistakes) == (NOT_COMPARED, None, ())
    assert diagnosis.unknown


def test_pure_modules_are_compared_like_functions():
    class Pure(nn.Module):
        def forward(self, q, k, v):
            return torch.softmax(q @ k.mT / q.size(-1), dim=-1) @ v

    assert examine(Pure).mistakes == ("scale by d_k",)


def test_parameters_are_filled_before_comparing():
    """Layers that start at zero, or as copies of each other, hide mistakes."""

    class ZeroOutput(wrong.SplitByReshape):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            nn.init.zeros_(self.out_proj.weight)
            self.k_proj.load_state_dict(self.q_proj.state_dict())

    assert examine(ZeroOutput).mistakes == ("heads split by a wrong reshape",)


def test_without_the_formula_nothing_is_equal(monkeypatch):
    """Inverse: "equal" comes from numbers that were compared."""
    original = comparison.attend
    monkeypatch.setattr(comparison, "attend", lambda q, *args, **options: original(q * 1.01, *args, **options))
    assert examine(right.torch_fused).verdict == NOT_COMPARED


def test_several_mistakes_come_in_the_order_of_the_data():
    def two(q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1), dim=-2) @ v

    assert examine(two).mistakes == ("scale by d_k", "softmax over queries")
    assert set(examine(wrong.dropout_on_and_no_scale).mistakes) == {"dropout left on", "no scale"}


def test_maximum_subtracted_before_the_softmax_is_no_mask():
    def shifted(q, k, v):
        scores = q @ k.mT * q.size(-1) ** -0.5
        return (scores - scores.amax(dim=-1, keepdim=True)).softmax(dim=-1) @ v

    assert examine(shifted).verdict == EQUAL


def test_cautions_do_not_make_code_wrong():
    assert "NaN on fully masked rows" in examine(right.true_is_masked).cautions

    def unsafe(q, k, v):
        powers = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
        return powers / powers.sum(axis=-1, keepdims=True) @ v

    diagnosis = examine(unsafe)
    assert (diagnosis.verdict, diagnosis.cautions) == (EQUAL, ("exp without maximum",))


def test_every_mistake_of_the_catalogue_has_code_that_makes_it():
    named = {mutant.mistake for mutant in mutants.MUTANTS} | {name for _, name in wrong.WRONG}
    assert {name for name, mistake in catalogue.MISTAKES.items() if mistake.level == "mistake"} <= named


def test_risks_that_depend_on_dtype_and_lengths_are_cautions():
    def half(q, k, v):
        scores = (q @ k.mT / math.sqrt(q.size(-1))).to(torch.bfloat16)
        return scores.softmax(-1).to(q.dtype) @ v

    def top_left(q, k, v):
        hidden = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).triu(1)
        return (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(hidden, -torch.inf).softmax(-1) @ v

    assert "half-precision softmax" in examine(half).cautions
    assert "causal top-left" in examine(top_left).cautions
    for cautious in (half, top_left):
        assert not examine(cautious).mistakes
    assert not {"half-precision softmax", "causal top-left"} & set(examine(right.torch_fused).cautions)


class FeatureMap(nn.Module):
    """Attention over the pixels of a feature map, after a group norm, with 1 x 1 convolutions."""

    power = -0.5

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.q, self.k, self.v, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x):
        normed = self.norm(x)
        q, k, v = (layer(normed).flatten(2).mT for layer in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.mT * q.size(-1) ** self.power, dim=-1)
        return x + self.out((weights @ v).mT.reshape(x.shape))


class TimeFirst(nn.Module):
    """Attention over [time, batch, width], with a mask [query, key, batch]."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(d_model, 3 * d_model)

    def forward(self, x, mask):
        q, k, v = (part.view(*x.shape[:2], self.heads, -1) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("ibhd,jbhd->ijbh", q, k) * q.size(-1) ** -0.5
        weights = scores.masked_fill(mask.unsqueeze(-1) == 0, -1e9).softmax(dim=1)
        return torch.einsum("ijbh,jbhd->ibhd", weights, v).flatten(2)


def weights_in_dictionaries(x, c_attn, c_proj, n_head):
    def split(array):
        return array.reshape(*array.shape[:2], n_head, -1).swapaxes(1, 2)

    q, k, v = (split(part) for part in np.split(x @ c_attn["w"] + c_attn["b"], 3, axis=-1))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = (powers / powers.sum(axis=-1, keepdims=True)) @ v
    return context.swapaxes(1, 2).reshape(x.shape) @ c_proj["w"] + c_proj["b"]


class UnknownSettings(nn.Module):
    """Attention whose settings have names that are not known, with a causal mask for 32 tokens."""

    def __init__(self, model_args, kind):
        super().__init__()
        assert kind == "plain"
        self.flipped, self.qkv = model_args.flipped, nn.Linear(model_args.n_wide, 3 * model_args.n_wide)
        self.register_buffer("table", torch.ones(32, 32).tril() == 0)

    def forward(self, inputs):
        x, keep_mask = inputs
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.mT) * q.size(-1) ** (-0.5 if self.flipped is False else 0.5)
        return scores.masked_fill(self.table | (keep_mask == 0), -torch.inf).softmax(-1) @ v


class ScaledBySetting(UnknownSettings):
    """Inverse: a mistake that only a guessed setting makes is not called wrong."""

    def __init__(self, model_args, kind):
        super().__init__(model_args, kind)
        self.flipped = not model_args.flipped


def five_axes(query, key, value, sinks):
    batch, num_queries, num_heads, num_key_value_groups, head_dim = query.shape
    assert key.shape == (batch, num_queries, num_heads, head_dim)
    assert sinks.shape == (num_heads * num_key_value_groups,)
    scores = torch.einsum("bqhgd,bkhd->bhgqk", query, key) * head_dim**-0.5
    return torch.einsum("bhgqk,bkhd->bqhgd", scores.softmax(-1), value)


@pytest.mark.parametrize("target", [FeatureMap, TimeFirst, weights_in_dictionaries, UnknownSettings, five_axes])
def test_unusual_arguments_are_found(target):
    diagnosis = examine(target)
    assert (diagnosis.verdict, diagnosis.unknown) == (EQUAL, ())


def test_guessed_settings_decide_no_verdict():
    diagnosis = examine(ScaledBySetting)
    assert diagnosis.verdict == NOT_COMPARED
    assert "settings(flipped=False, n_wide=48)" in diagnosis.unknown[-1]
    given = "ScaledBySetting(settings(flipped=False, n_wide=48), 'plain')((x, torch.ones(32, 32)))"
    assert examine(ScaledBySetting, call=given).mistakes == ("scale multiplied",)
    assert examine(ScaledBySetting, call=given.replace("False", "True")).verdict == EQUAL


_EINOPS = """
import torch
from einops import rearrange, repeat, reduce, einsum
from einops.layers.torch import Rearrange
from xformers.ops import memory_efficient_attention
from strange_package import Kind, reduce as foreign_reduce

class Attention(torch.nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.kind, self.qkv = Kind.one, torch.nn.Linear(dim, 3 * dim)
        self.split = Rearrange("b n (h d) -> b n h d", h=heads)
    def forward(self, x):
        assert self.kind == Kind.one != Kind.two
        q, k, v = map(self.split, self.qkv(x).chunk(3, dim=-1))
        return rearrange(memory_efficient_attention(q, k, v), "b n h d -> b n (h d)")
"""


def test_packages_that_are_not_installed_are_replaced(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "einops"]:
        monkeypatch.delitem(sys.modules, name)
    file = tmp_path / "with_einops.py"
    file.write_text(_EINOPS, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    module, notes = load_module(file)
    assert examine(module.Attention, file=str(file)).verdict == EQUAL
    assert "xformers" in notes[0]
    assert isinstance(module.foreign_reduce, StandIn), "another package's function of that name is not known"
    x = torch.arange(24.0).reshape(2, 3, 4)
    for made, expected in [
        (
            module.rearrange(x, "b n (h d) -> (b h) 1 n d", h=2),
            x.view(2, 3, 2, 2).mT.permute(0, 3, 1, 2).reshape(4, 1, 3, 2),
        ),
        (module.repeat(x, "... d -> ... (d x)", x=2), x.repeat_interleave(2, dim=-1)),
        (module.repeat(x[0], "n d -> 3 n d"), x[0].expand(3, 3, 4)),
        (module.reduce(x, "b n d -> b d", "max"), x.amax(dim=1)),
        (module.einsum(x, x, "b left d, b right d -> b left right"), x @ x.mT),
    ]:
        assert torch.equal(made, expected)
    with pytest.raises(ValueError, match="does not fit"):
        module.rearrange(x, "b n (h d) -> b h n d", h=3)


def test_mistakes_in_feature_maps_are_named():
    """Inverse: with the group norm's means kept, the attention itself is still judged; some are published unscaled."""

    class WronglyScaled(FeatureMap):
        power = -1

    class NotScaled(FeatureMap):
        power = 0

    assert examine(WronglyScaled).mistakes == ("scale by d_k",)
    assert examine(NotScaled).verdict == NOT_COMPARED


def test_line_of_the_operation_is_quoted():
    (finding,) = examine(wrong.softmax_over_queries).findings
    assert finding.code == "return torch.softmax(scores, dim=-2) @ v"
    lines = Path(wrong.__file__).read_text(encoding="utf-8").splitlines()
    assert lines[finding.line - 1].strip() == finding.code


class ChosenInTheConstructor(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.scale = d_model**-1.0
        self.norm = nn.Softmax(dim=-2)

    def forward(self, q, k, v):
        scores = q @ k.mT * self.scale
        return self.norm(scores) @ v


def test_line_is_where_scale_and_axis_are_chosen():
    findings = examine(ChosenInTheConstructor, call="ChosenInTheConstructor(12)(q, k, v)").findings
    assert [(finding.name, finding.code) for finding in findings] == [
        ("scale by d_k", "self.scale = d_model**-1.0"), ("softmax over queries", "self.norm = nn.Softmax(dim=-2)"),
    ]  # fmt: skip


def strange(first, second, third, hide=None):
    scores = first @ second.swapaxes(-1, -2) / math.sqrt(first.shape[-1])
    scores = scores if hide is None else np.where(hide, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ third


def test_unknown_parameter_names_are_tried_in_order():
    assert examine(strange).verdict == EQUAL
    diagnosis = examine(strange, call="strange(q, k, third=v, hide=mask)")
    assert any("True = masked" in text for text in diagnosis.conventions)


def test_call_is_any_expression():
    assert examine(wrong.SplitByReshape, call="SplitByReshape(16, 2)(x)").mistakes == (
        "heads split by a wrong reshape",
    )
    assert examine(right.grouped, call="[grouped(q * 1, k, v)][0]").verdict == EQUAL
    with pytest.raises(UsageError, match="not a Python expression"):
        examine(right.grouped, call="grouped(q, k")
    with pytest.raises(UsageError, match="uses none of the arrays"):
        examine(right.grouped, call="grouped(1)")


def test_error_of_the_target_is_reported():
    def attention(q, k, v):
        raise RuntimeError("not today")

    with pytest.raises(InvalidInput, match="not today"):
        examine(attention)


def test_other_objects_are_refused():
    with pytest.raises(InvalidInput, match="cannot be called"):
        examine(3)
    with pytest.raises(InvalidInput, match="does not look like attention"):
        examine(lambda: 1)


@pytest.mark.parametrize("seed", [1, 7])
def test_other_seeds_give_the_same_diagnosis(seed):
    assert examine(right.grouped, seed=seed).verdict == EQUAL
    assert examine(wrong.mask_after_softmax, seed=seed).mistakes == ("mask after softmax",)


def test_expected_output_is_explained(tmp_path):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 4, 5, 12)).astype(np.float32) for _ in range(3))
    scores = q @ k.swapaxes(-1, -2)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    np.savez(tmp_path / "theirs.npz", expected=powers / powers.sum(-1, keepdims=True) @ v, q=q, k=k, v=v)
    notes = examine(right.grouped, expected=str(tmp_path / "theirs.npz")).notes
    assert "The expected array is what this code gives without the scale." in notes
    np.save(tmp_path / "other.npy", rng.normal(size=(2, 4, 5, 12)))
    assert "No known convention" in examine(right.grouped, expected=str(tmp_path / "other.npy")).notes[-1]
