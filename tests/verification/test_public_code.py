"""Ways to write attention that public code has: called unaided, and neither called wrong nor equal without reason."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from peasy.errors import InvalidInput
from peasy.verification.implementation import examine as examination
from peasy.verification.implementation.creation import fill_parameters
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.loading import StandIn, load_module
from peasy.verification.implementation.torch_trace import OnlyCPU
from peasy.verification.verdict import EQUAL, NOT_COMPARED, WRONG


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(examination, "STRICT", True)


def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores if mask is None else scores.masked_fill(mask, -1e9)
    return torch.softmax(scores, dim=-1) @ v


class Layers(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))


class OptionalSource(Layers):
    def forward(self, q, h=None):
        h = q if h is None else h
        return attend(self.w_q(q), self.w_k(h), self.w_v(h))


class SourceFirst(Layers):
    def forward(self, memory, decoder_input):
        return attend(self.w_q(decoder_input), self.w_k(memory), self.w_v(memory))


class BothDirections(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.to_qk, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x0, x1):
        a, b = self.to_qk(x0), self.to_qk(x1)
        scores = a @ b.transpose(-2, -1) / math.sqrt(a.size(-1))
        return scores.softmax(-1) @ self.to_v(x1), scores.transpose(-2, -1).softmax(-1) @ self.to_v(x0)


class NonCausalAttention(Layers):
    def forward(self, x):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x))


class OneTokenCache(Layers):
    def forward(self, x, layer_past=None):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        if layer_past is not None:
            k, v = torch.cat([layer_past[0], k], dim=1), torch.cat([layer_past[1], v], dim=1)
        hidden = torch.ones(x.size(1), k.size(1), dtype=torch.bool).triu(1)
        return attend(q, k, v, hidden if layer_past is None else None), torch.stack([k, v])


@pytest.mark.parametrize("written", [OptionalSource, SourceFirst, NonCausalAttention])
def test_other_orders_and_names_are_right(written):
    assert examine(written).verdict == EQUAL


def test_a_cache_for_one_token_at_a_time_is_a_convention():
    diagnosis = examine(OneTokenCache)
    assert diagnosis.verdict == EQUAL
    assert "its cache takes one token at a time" in diagnosis.conventions


def test_roles_guessed_by_position_are_no_evidence():
    assert examine(BothDirections).verdict != WRONG


def masked_queries(q, k, v, mask=None, query_mask=None, head_mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = torch.softmax(scores if mask is None else scores.masked_fill(mask, -1e9), dim=-1)
    for each in (query_mask, head_mask):
        weights = weights if each is None else weights * each
    return weights @ v


def mask_with_a_switch(q, k, v, fast=False, fast_mask=None):
    if fast:
        return attend(q, k, v, fast_mask)
    return attend(q, k, v)


def mask_dropped(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores.masked_fill(mask, -1e9)
    return torch.softmax(scores, dim=-1) @ v


def mask_only_asked_for(q, k, v, mask=None):
    if mask is not None:
        pass
    return attend(q, k, v)


def test_masks_of_queries_and_heads_are_no_masks_of_keys():
    assert examine(masked_queries).verdict == EQUAL


def test_a_mask_that_needs_a_switch_is_not_an_ignored_one():
    diagnosis = examine(mask_with_a_switch)
    assert diagnosis.verdict == EQUAL
    assert "fast_mask has no effect with the other arguments as they are." in diagnosis.notes
    assert examine(mask_dropped).mistakes == ("mask ignored",)
    assert examine(mask_only_asked_for).mistakes == ("mask ignored",)


def channels_before_heads(query, key, value):
    scores = torch.einsum("bdhn,bdhm->bhnm", query, key) / query.shape[1] ** 0.5
    return torch.einsum("bhnm,bdhm->bdhn", torch.softmax(scores, dim=-1), value)


def exact_type(q, k, v):
    assert type(q) is np.ndarray
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def test_a_product_written_as_einsum_declares_its_axes():
    assert examine(channels_before_heads).verdict == EQUAL


def test_code_that_refuses_recorded_arrays_is_compared_by_its_output():
    diagnosis = examine(exact_type)
    assert diagnosis.mistakes == ("scale by d_k",)


class HeadsInTheBatch(Layers):
    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (
            w(x).view(batch, time, 4, width // 4).transpose(1, 2).reshape(batch * 4, time, width // 4)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=0)
        return (weights @ v).view(batch, 4, time, -1).transpose(1, 2).reshape(batch, time, width)


def test_softmax_over_heads_and_sequences_at_once_is_named():
    assert examine(HeadsInTheBatch).mistakes == ("softmax over heads",)


@dataclass
class Settings:
    tokens_per_block: int
    max_blocks: int
    attention: str
    embed_dim: int

    @property
    def max_tokens(self):
        return self.tokens_per_block * self.max_blocks


class WithOptions(Layers):
    def __init__(self, config: Settings):
        super().__init__(config.embed_dim)
        assert config.attention in ("causal", "block_causal")
        self.register_buffer("hidden", torch.ones(config.max_tokens, config.max_tokens, dtype=torch.bool).triu(1))

    def forward(self, x):
        hidden = self.hidden[: x.size(1), : x.size(1)]
        return attend(self.w_q(x), self.w_k(x), self.w_v(x), hidden)


def test_settings_with_options_and_unknown_numbers_are_made():
    assert examine(WithOptions).verdict == EQUAL


def test_kernels_of_convolutions_are_filled_by_the_numbers_that_are_summed():
    layer = nn.Conv2d(96, 96, 1)
    fill_parameters(layer, 0)
    assert layer.weight.std().item() == pytest.approx(96**-0.5, rel=0.05)


def test_a_loop_over_a_stand_in_ends():
    assert list(StandIn("missing.things")) == []


def test_modules_beside_the_folder_broken_neighbours_and_byte_order_marks(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "scaling.py").write_text("def scaled(x, d):\n    return x / d**0.5\n")
    (folder / "broken.py").write_text("def f(:\n")
    code = (
        "import torch\nfrom modules.scaling import scaled\nfrom modules.broken import f\n"
        "def attention(q, k, v):\n    return torch.softmax(scaled(q @ k.mT, q.size(-1)), dim=-1) @ v\n"
    )
    (folder / "mine.py").write_text("\ufeff" + code, encoding="utf-8")
    module, _ = load_module(folder / "mine.py")
    assert examine(module.attention, file=str(folder / "mine.py")).verdict == EQUAL
    (folder / "mine.py").write_text("def attention(:\n")
    with pytest.raises(SyntaxError):
        load_module(folder / "mine.py")


def test_what_is_not_compared_says_so():
    def kernel(q, k, v):
        return torch.relu(q) @ (torch.relu(k).transpose(-2, -1) @ v)

    assert examine(kernel).verdict == NOT_COMPARED


class OneSequenceAfterAnother(nn.Module):
    """Heads and sequences in loops: each product is of one head of one sequence."""

    merge = staticmethod(torch.hstack)

    def __init__(self, d, n_heads=2):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d // n_heads
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(self.d_head, self.d_head) for _ in range(n_heads)) for _ in range(3)
        )

    def forward(self, sequences):
        result = []
        for sequence in sequences:
            parts = sequence.split(self.d_head, dim=-1)
            heads = [attend(q(x), k(x), v(x)) for q, k, v, x in zip(self.q, self.k, self.v, parts, strict=True)]
            result.append(self.merge(heads))
        return torch.stack(result)


class MergedAcrossTokens(OneSequenceAfterAnother):
    @staticmethod
    def merge(heads):
        return torch.stack(heads).reshape(heads[0].shape[0], -1)


def test_loops_over_sequences_are_right_and_their_wrong_merge_is_named():
    assert examine(OneSequenceAfterAnother).verdict == EQUAL
    assert examine(MergedAcrossTokens).mistakes == ("heads merged without transpose",)


class DotProduct(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


class ScaledDotProduct(nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)


class PlainProduct(DotProduct):
    """The same without a scaled version beside it."""


def test_an_unscaled_lesson_beside_its_scaled_version_is_not_called_wrong():
    found = examine(DotProduct)
    assert (found.verdict, "ScaledDotProduct" in found.unknown[0]) == (NOT_COMPARED, True)
    assert examine(PlainProduct).mistakes == ("no scale",)


class WithGradient(torch.autograd.Function):
    scale = 0.5

    @staticmethod
    def forward(ctx, q, k, v):
        weights = torch.softmax(torch.einsum("nqc,nkc->nqk", q, k) / q.shape[-1] ** WithGradient.scale, dim=-1)
        ctx.save_for_backward(weights)
        return weights @ v


def test_functions_with_their_own_gradient_are_called(monkeypatch):
    assert examine(WithGradient).verdict == EQUAL
    monkeypatch.setattr(WithGradient, "scale", 1)
    assert examine(WithGradient).mistakes == ("scale by d_k",)


class NormGiven(Layers):
    """Its constructor takes the class of a norm, and refuses the default of an option."""

    def __init__(self, dim, norm, sparsity=None):
        super().__init__(dim)
        assert sparsity is not None, "give it"
        self.norm, self.sparsity = norm(dim), sparsity

    def forward(self, x, cond):
        x = self.norm(x, cond)
        return attend(self.w_q(x), self.w_k(x), self.w_v(x)) if not self.sparsity else x


def test_norms_and_refused_defaults_are_given():
    assert examine(NormGiven).verdict == EQUAL


class PaddedTokens(Layers):
    """Its mask has the shape of its tokens, with one channel; padding neither asks nor is asked."""

    def __init__(self, dim, casual):
        super().__init__(dim)
        self.casual = casual

    def forward(self, x, m):
        allowed = m.unsqueeze(1) * m.unsqueeze(2)
        allowed = allowed.squeeze(-1).tril() if self.casual else allowed.squeeze(-1)
        return attend(self.w_q(x), self.w_k(x), self.w_v(x), allowed == 0) * m


def test_a_mask_of_tokens_with_one_channel_is_given():
    found = examine(PaddedTokens)
    assert found.verdict == EQUAL
    assert any("batch, token, 1" in text for text in found.conventions)


class NumpyCache:
    """Keys and values are written to arrays of the object, and read from there."""

    def __init__(self, dim):
        rng = np.random.default_rng(1)
        self.w_q, self.w_k, self.w_v = rng.normal(0, dim**-0.5, (3, dim, dim))
        self.keys, self.values, self.scale = np.zeros((8, 32, dim)), np.zeros((8, 32, dim)), dim**-0.5

    def __call__(self, x, start_pos):
        batch, end = len(x), start_pos + x.shape[1]
        self.keys[:batch, start_pos:end], self.values[:batch, start_pos:end] = x @ self.w_k, x @ self.w_v
        scores = x @ self.w_q @ self.keys[:batch, :end].swapaxes(-1, -2) * self.scale
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ self.values[:batch, :end]


class NumpyCacheUnscaled(NumpyCache):
    def __init__(self, dim):
        super().__init__(dim)
        self.scale = 1.0


def test_numpy_objects_with_a_cache_are_compared():
    assert examine(NumpyCache).verdict == EQUAL
    assert examine(NumpyCacheUnscaled).mistakes == ("no scale",)


class WithHooks(Layers):
    def forward(self, x):
        scores = self.w_q(x) @ self.w_k(x).transpose(-2, -1) / math.sqrt(x.size(-1))
        weights = scores.softmax(-1)
        weights.register_hook(print)
        weights.retain_grad()
        return weights @ self.w_v(x)


def test_hooks_of_gradients_are_left_out():
    with OnlyCPU():
        assert examine(WithHooks).verdict == EQUAL


MODEL = """
import torch
from torch import nn
from .layer import Processor, Rotated

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        table = torch.ones(config.n_embd, 2)
        self.layer = Rotated(table=table, width=config.n_embd, processor=Processor())

    def forward(self, hidden, shift):
        return hidden + self.layer(hidden, **shift)

class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.block = Block(config)

    def forward(self, idx):
        return self.block(self.embedding(idx), dict(plan=[1.0, 2.0]))
"""
LAYER = """
import math
from torch import nn

class Processor:
    def __call__(self, q, k, v):
        return (q @ k.transpose(-2, -1) / {scale}).softmax(-1) @ v

class Rotated(nn.Module):
    def __init__(self, table, width, processor):
        super().__init__()
        assert table.shape == (width, 2)
        self.w_q, self.w_k, self.w_v = (nn.Linear(width, width) for _ in range(3))
        self.processor = processor

    def forward(self, x, plan):
        assert sum(plan) == 3
        return self.processor(self.w_q(x), self.w_k(x), self.w_v(x))
"""


def layer_in_a_project(folder, scale):
    folder = folder / "project"  # a package without __init__.py
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "layer.py").write_text(f"from .numbers_of_layer import root\n{LAYER.format(scale=scale)}")
    (folder / "numbers_of_layer.py").write_text("root = 2\n")
    module, notes = load_module(folder / "layer.py")
    return examine(module.Rotated, file=str(folder / "layer.py"), namespace=vars(module), notes=notes)


@pytest.fixture
def forget_project(monkeypatch):
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("forget_project")
def test_calls_that_cannot_be_guessed_are_captured_from_a_model(tmp_path):
    diagnosis = layer_in_a_project(tmp_path, "math.sqrt(q.size(-1))")
    assert diagnosis.verdict == EQUAL
    assert "as in Model" in diagnosis.call


@pytest.mark.usefixtures("forget_project")
def test_a_mistake_in_a_captured_call_is_found(tmp_path):
    diagnosis = layer_in_a_project(tmp_path, "q.size(-1)")
    assert diagnosis.mistakes == ("scale by d_k",)


class SwitchedAttention(Layers):
    def __init__(self, dim, cross_attention=False):
        super().__init__(dim)
        self.cross_attention = cross_attention

    def forward(self, query, key, value):
        key, value = (key, value) if self.cross_attention else (query, query)
        return attend(self.w_q(query), self.w_k(key), self.w_v(value))


class UnswitchedAttention(Layers):
    def forward(self, query, key, value):
        return attend(self.w_q(query), self.w_k(query), self.w_v(query))


def test_arguments_that_a_switch_leaves_out_are_no_mistake():
    assert examine(SwitchedAttention).verdict == EQUAL
    assert examine(UnswitchedAttention).mistakes == ("keys from the queries", "values from the queries")


class OffsetAttention(Layers):
    def forward(self, x):
        weights = (self.w_q(x) @ self.w_k(x).transpose(-2, -1) / math.sqrt(x.size(-1))).softmax(1)
        return weights / (1e-9 + weights.sum(-1, keepdim=True)) @ self.w_v(x)


class OverQueries(Layers):
    def forward(self, x):
        return (self.w_q(x) @ self.w_k(x).transpose(-2, -1) / math.sqrt(x.size(-1))).softmax(1) @ self.w_v(x)


def test_weights_normalised_over_both_axes_are_not_compared():
    assert examine(OffsetAttention).verdict == NOT_COMPARED
    assert examine(OverQueries).mistakes == ("softmax over queries",)


class SequenceLengths(Layers):
    def forward(self, query_sequences, key_value_sequences, key_value_sequence_lengths):
        ahead = torch.arange(key_value_sequences.size(1)) >= key_value_sequence_lengths[:, None, None]
        return attend(self.w_q(query_sequences), self.w_k(key_value_sequences), self.w_v(key_value_sequences), ahead)


class NeededPositions(Layers):
    def forward(self, x, position_ids=None):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x)) + 0 * position_ids.sum()


class Multiples(Layers):
    def __init__(self, dim, num_heads):
        super().__init__(dim)
        assert dim // num_heads % 8 == 0
        self.heads = num_heads

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        return attend(q, k, v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("code", [SequenceLengths, NeededPositions, Multiples])
def test_arguments_by_words_optional_ones_and_other_sizes_are_tried(code):
    assert examine(code).verdict == EQUAL


@pytest.mark.usefixtures("forget_project")
def test_names_of_a_failed_import_are_bound(tmp_path):
    (tmp_path / "memory_efficient.py").write_text("""
try:
    import xformers.ops
except ImportError:
    pass

def attention(q, k, v):
    return xformers.ops.memory_efficient_attention(q, k, v, op=None)
""")
    module, notes = load_module(tmp_path / "memory_efficient.py")
    assert examine(module.attention, notes=notes).verdict == EQUAL


class DividedByItsScale(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, query, key, value):
        return (query @ key.transpose(-2, -1) / self.scale).softmax(-1) @ value


class ListOfArrays(Layers):
    def forward(self, inputs, mask=None):
        q = self.w_q(inputs[0])
        k = self.w_k(inputs[1])
        v = self.w_v(inputs[2])
        return attend(q, k, v, mask)


@pytest.mark.parametrize("code", [DividedByItsScale, ListOfArrays])
def test_a_scale_may_be_a_divisor_and_arrays_a_list(code):
    assert examine(code).verdict == EQUAL


class KeysUnused(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, _, v = self.a(x), self.b(x), self.c(x)
        return attend(q, q, v)


class ValuesUnused(KeysUnused):
    def forward(self, x):
        q, k, _ = self.a(x), self.b(x), self.c(x)
        return attend(q, k, k)


class OneLayerForBoth(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a, self.c = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        q = self.a(x)
        return attend(q, q, self.c(x))


@pytest.mark.parametrize("written", [KeysUnused, ValuesUnused])
def test_a_layer_without_effect_is_never_equal(written):
    assert examine(written).verdict != EQUAL


def test_one_layer_for_queries_and_keys_is_a_convention():
    assert examine(OneLayerForBoth).verdict == EQUAL


class ScaleIsAnOption(KeysUnused):
    def __init__(self, dim, use_scale=False):
        super().__init__(dim)
        self.use_scale = use_scale

    def forward(self, x):
        scores = self.a(x) @ self.b(x).transpose(-2, -1)
        if self.use_scale:
            scores = scores / math.sqrt(x.size(-1))
        return scores.softmax(-1) @ self.c(x)


def scale_if_given(q, k, v, scale=None):
    scores = q @ k.transpose(-2, -1)
    if scale is not None:
        scores = scores * scale
    return scores.softmax(-1) @ v


def cosine_sim_attention(q, k, v):
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v


@pytest.mark.parametrize("written", [ScaleIsAnOption, scale_if_given, cosine_sim_attention])
def test_a_scale_that_is_an_option_or_left_to_the_caller_is_no_mistake(written):
    assert examine(written).verdict != WRONG


def tiled(q, k, v, rows_at_once, columns_at_once):
    assert q.size(-2) % rows_at_once == 0
    assert columns_at_once <= k.size(-2)
    return torch.cat([attend(part, k, v) for part in q.split(rows_at_once, dim=-2)], dim=-2)


class PatchesAtPositions(Layers):
    def __init__(self, dim, grid):
        super().__init__(dim)
        self.rows, self.columns = grid

    def forward(self, x):
        assert min(self.rows, self.columns) > 0
        return attend(self.w_q(x), self.w_k(x), self.w_v(x))


@pytest.mark.parametrize("written", [tiled, PatchesAtPositions])
def test_errors_propose_the_arguments_of_a_call(written):
    assert examine(written).verdict in (EQUAL, NOT_COMPARED)


def test_impossible_arguments_end_the_search():
    def refused(q, k, v):
        raise ValueError("never")

    with pytest.raises(InvalidInput, match="could not be called"):
        examine(refused)


class GroupedHeads(nn.Module):
    """Two key/value heads for four query heads; `tiled` repeats the value heads in another order than the key heads."""

    tiled = False

    def __init__(self, dim, num_heads, num_kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.width = num_heads, num_kv_heads, dim // num_heads
        self.q_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.k_proj, self.v_proj = (nn.Linear(dim, num_kv_heads * self.width) for _ in range(2))

    def forward(self, x):
        batch, size, dim = x.shape
        groups = self.heads // self.kv_heads
        q = self.q_proj(x).view(batch, size, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, size, self.kv_heads, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, size, self.kv_heads, self.width).transpose(1, 2)
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat(1, groups, 1, 1) if self.tiled else v.repeat_interleave(groups, dim=1)
        return self.o_proj(attend(q, k, v).transpose(1, 2).reshape(batch, size, dim))


class ValuesTiled(GroupedHeads):
    tiled = True


def test_key_and_value_heads_are_shared_by_the_same_query_heads():
    assert examine(GroupedHeads).verdict is EQUAL
    found = examine(ValuesTiled)
    assert (found.verdict, found.mistakes) == (WRONG, ("kv heads tiled",))


def causal_flag(q, k, v, causal=False, bottom_right=False):
    ones = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool)
    after = torch.triu(ones, diagonal=1 + (k.size(-2) - q.size(-2) if bottom_right else 0))
    return attend(q, k, v, after if causal else None)


def causal_flag_bottom_right(q, k, v, causal=False):
    return causal_flag(q, k, v, causal, bottom_right=True)


def test_causal_flag_is_tried_with_more_keys_than_queries():
    assert "causal top-left" in examine(causal_flag).cautions
    assert "causal top-left" not in examine(causal_flag_bottom_right).cautions


class OwnCausalMask(Layers):
    """Causal attention. In its own mask, which is lower triangular, 1 means "can attend" and 0 means "masked"."""

    def forward(self, x, mask=None):
        """Attend.

        Args:
            x: Input.
            mask: Padding mask, of shape (batch, 1, key) or (batch, query, key).
        """
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        after = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), diagonal=1)
        return attend(q, k, v, after if mask is None else after | mask.bool())


class InvertedMask(OwnCausalMask):
    def forward(self, x, mask=None):
        """Attend.

        Args:
            x: Input.
            mask: Of shape (batch, 1, key) or (batch, query, key).
                True where a query may attend to a key.
        """
        return super().forward(x, mask)


def test_meaning_of_a_mask_is_read_from_its_own_entry():
    assert examine(OwnCausalMask).verdict is EQUAL
    assert examine(InvertedMask).mistakes == ("mask inverted",)


class PrefixAndInput(Layers):
    def forward(self, x, context):
        both = torch.cat([context, x], dim=1)
        return attend(self.w_q(x), self.w_k(both), self.w_v(both))


class ContextNotUsed(Layers):
    def forward(self, x, context):
        return attend(self.w_q(x), self.w_k(x), self.w_v(x))


def test_keys_of_a_prefix_and_the_input_are_no_mistake():
    assert examine(PrefixAndInput).verdict is EQUAL
    assert examine(ContextNotUsed).verdict is not EQUAL


class GatedImages(nn.Module):
    """Attention of images as in SAGAN: a gate that begins at 0, and the layer named key makes the queries."""

    axis = 1

    def __init__(self, channels):
        super().__init__()
        self.query, self.key, self.value = (nn.Conv1d(channels, channels, 1) for _ in range(3))
        self.gate = nn.Parameter(torch.tensor(0.0))

    def forward(self, x):
        flat = x.flatten(2)
        q, k, v = self.query(flat), self.key(flat), self.value(flat)
        weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(q.size(1)), dim=self.axis)
        return (self.gate * (v @ weights) + flat).view(x.shape)


class GatedTransposed(GatedImages):
    axis = 2


def test_gate_that_begins_at_zero_hides_nothing():
    assert examine(GatedImages).verdict is EQUAL
    assert examine(GatedTransposed).mistakes[0] == "weights transposed"


_CODE = {
    "matrices": """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_model, n_heads, d_head):
        super().__init__()
        shapes = {name: (n_heads, d_model, d_head) for name in "QKV"} | {"O": (n_heads, d_head, d_model)}
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Parameter(torch.zeros(shape)) for shape in shapes.values())

    def forward(self, x):
        q, k, v = (torch.einsum("bpm,hmd->bphd", x, w) for w in (self.W_Q, self.W_K, self.W_V))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.triu(torch.ones(scores.shape[-2:]), 1) == 1, -1e5)
        weights = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
        context = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return torch.einsum("bqhd,hdm->bqm", context, self.W_O)
""",
    "cap": """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.joint = nn.Linear(dim, 3 * dim)
        self.final = nn.Linear(dim, dim)

    def forward(self, x):
        v, q, k = self.joint(x).chunk(3, dim=-1)
        scores = torch.bmm(q, k.transpose(1, 2)) / q.size(-1) ** 0.5
        scores = 20 * torch.tanh(scores / 20)
        weights = scores.softmax(dim=-1)
        context = torch.bmm(weights, v)
        return self.final(context)
""",
    "numpy": """
import numpy as np

class Attention:
    def __init__(self, d_model):
        rng = np.random.default_rng(0)
        self.Wq, self.Wk, self.Wv, self.Wo = (rng.normal(0, 0.2, (d_model, d_model)) for _ in range(4))

    def __call__(self, x):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v @ self.Wo
""",
    "loops": """
import math
import numpy as np

def attention(q, k, v, causal=False):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        keys = k[: i + 1] if causal else k
        scores = [sum(a * b for a, b in zip(q[i].tolist(), row.tolist())) / math.sqrt(q.shape[1]) for row in keys]
        powers = [math.exp(s - max(scores)) for s in scores]
        for power, row in zip(powers, v):
            out[i] += power / sum(powers) * row
    return out
""",
    "mask": """
import torch

def look_ahead_mask(size):
    mask = torch.triu(torch.ones(size, size), diagonal=1)
    return mask.eq(0)

def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(-1)
    return weights @ v
""",
    "kernel": """
import torch.nn.functional as F

def attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
""",
}


@pytest.mark.parametrize(
    ("style", "old", "new", "mistakes"),
    [
        ("matrices", "", "", ()),
        ("matrices", "self.W_V))", "self.W_K))", ("values from the keys",)),
        ("matrices", "logsumexp(-1,", "logsumexp(-2,", ("softmax over queries",)),
        ("matrices", "bhqk,bkhd->bqhd", "bhkq,bkhd->bqhd", ("weights transposed",)),
        ("cap", "", "", ()),
        ("cap", "** 0.5", "", ("scale by d_k",)),
        ("cap", "self.final(context)", "context", ("output projection not used",)),
        ("cap", "torch.bmm(weights, v)", "torch.bmm(weights.transpose(1, 2), v)", ("weights transposed",)),
        ("numpy", "", "", ()),
        ("numpy", "x @ self.Wv", "x @ self.Wk", ("values from the keys",)),
        ("loops", "", "", ()),
        ("loops", "i + 1", "i + 2", ("causal mask off by one (future)",)),
        ("loops", "else k", "else q", ("keys from the queries",)),
        ("mask", "", "", ()),
        ("mask", ".eq(0)", "", ("mask inverted",)),
        ("mask", "softmax(-1)", "half().softmax(-1).float()", ()),
        ("mask", "** 0.5\n", "\n", ("scale by d_k",)),
        ("mask", "-1e9)\n    weights = scores.softmax(-1)", "0)\n    weights = scores.softmax(-2)",
         ("masked scores become 0", "softmax over queries")),
        ("mask", "scores.softmax(-1)", "scores if mask is None else scores.softmax(-1)", None),
        ("kernel", "", "", ()),
        ("kernel", "mask is None", "mask is None, scale=1.0", None),
    ],
)  # fmt: skip
def test_verdicts_of_further_styles(style, old, new, mistakes, tmp_path):
    """None: not compared."""
    code = _CODE[style]
    assert code.count(old) == 1 or not old
    (tmp_path / "code.py").write_text(code.replace(old, new) if old else code, encoding="utf-8")
    module, _ = load_module(tmp_path / "code.py", "", str(tmp_path))
    diagnosis = examine(getattr(module, "Attention" if style in ("matrices", "cap", "numpy") else "attention"))
    expected = NOT_COMPARED if mistakes is None else WRONG if mistakes else EQUAL
    assert (diagnosis.verdict, diagnosis.mistakes) == (expected, mistakes or ()), diagnosis.unknown


class FailsWithHeads(nn.Module):
    """With several heads this raises an error; one head hides it."""

    def __init__(self, dim, num_heads=4):
        super().__init__()
        self.heads, self.qkv = num_heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, self.heads, t, c // self.heads) for y in self.qkv(x).chunk(3, dim=-1))
        return attend(q, k, v).reshape(b, t, c)


def test_one_head_is_not_enough_for_equal():
    assert examine(FailsWithHeads).verdict is not EQUAL


class FlagNeedsMask(nn.Module):
    """Its causal flag does nothing without its mask."""

    def forward(self, query, key, value, causal=False, causal_mask=None):
        if causal and causal_mask is not None:
            return attend(query, key, value, causal_mask)
        return attend(query, key, value)


def test_causal_flag_that_needs_a_mask_is_no_mistake():
    assert "named causal but not causal" not in examine(FlagNeedsMask).mistakes


class LuongAttention(nn.Module):
    def forward(self, query, keys, values):
        return (query @ keys.transpose(-2, -1)).softmax(-1) @ values


def test_attention_that_is_published_without_a_scale_is_not_called_wrong():
    assert examine(LuongAttention).verdict is NOT_COMPARED
