"""Edits and attribution give the numbers of other tools on the same weights: transformers hooks, TransformerLens."""

import copy
from contextlib import ExitStack

import numpy as np
import pytest
import torch

import peasy
from peasy.commands.load import LoadedModel

transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

LAYERS, HEADS, WIDTH, TIME = 3, 4, 32, 9
D_HEAD = WIDTH // HEADS
IDS, OTHER = (torch.randint(0, 61, (1, TIME), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
VECTOR = torch.linspace(-1, 1, WIDTH)
TOLERANCE = 1e-5

CASES = {
    "head output zero": peasy.edit.zero(1, 2),
    "head output from another text": peasy.edit.patch(OTHER[0].tolist(), 1, 2),
    "head output mean": peasy.edit.mean([OTHER[0].tolist()], 1, 2),
    "query zero": peasy.edit.zero(1, 2, step="query"),
    "key from another text": peasy.edit.patch(OTHER[0].tolist(), 1, 2, step="key"),
    "value scaled at a position": peasy.edit.scale(3.0, 1, 2, step="value", positions=[4]),
    "pattern from another text": peasy.edit.patch(OTHER[0].tolist(), 1, 2, step="weights"),
    "pattern zero": peasy.edit.zero(1, 2, step="weights"),
    "uniform head": peasy.edit.uniform(1, 2),
    "cut edge": peasy.edit.cut(8, 3, layer=1, head=2),
    "residual from another text at a position": peasy.edit.patch(OTHER[0].tolist(), 2, step="residual", positions=[5]),
    "residual steered": peasy.edit.steer(VECTOR.numpy(), 1, factor=2.0),
    "neurons scaled": peasy.edit.scale(0.5, 1, step="activation"),
    "feed-forward output zero": peasy.edit.zero(1, part="feedforward"),
    "attention output zero": peasy.edit.zero(1, part="attention"),
}


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=61, n_positions=32, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, initializer_range=0.3,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    for name, weight in model.named_parameters():
        if "ln_" in name or "bias" in name:
            weight.data += 0.2 * torch.randn(weight.shape)
    return model


@pytest.fixture(scope="module")
def loaded(gpt2) -> LoadedModel:
    return peasy.load(gpt2)


def edited(loaded: LoadedModel, edit) -> torch.Tensor:
    return torch.from_numpy(loaded.look(IDS[0].tolist(), edit=edit).logits)


class Hooked:
    """GPT-2 of transformers with forward hooks: an independent implementation of each edit."""

    def __init__(self, model) -> None:
        self.model, self.block = model, model.transformer.h[1]

    @torch.inference_mode()
    def run(self, ids: torch.Tensor, *hooks) -> torch.Tensor:
        with ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.remove)
            return self.model(ids).logits[0, -1]

    def captured(self, module, ids: torch.Tensor, of_input: bool = False) -> torch.Tensor:
        found = []
        if of_input:
            handle = module.register_forward_pre_hook(lambda _, args: found.append(args[0].clone()))
        else:
            handle = module.register_forward_hook(lambda _, args, out: found.append(out.clone()))
        self.run(ids, handle)
        return found[0]

    def change_input(self, module, change):
        return module.register_forward_pre_hook(lambda _, args: (change(args[0].clone()), *args[1:]))

    def change_output(self, module, change):
        def hook(_, args, out):
            return (change(out[0].clone()), *out[1:]) if isinstance(out, tuple) else change(out.clone())

        return module.register_forward_hook(hook)

    def head(self, change):
        """Change the output of head 2, `[batch, time, d_head]`, before the output projection."""

        def change_slice(x):
            x[..., 2 * D_HEAD : 3 * D_HEAD] = change(x[..., 2 * D_HEAD : 3 * D_HEAD])
            return x

        return self.change_input(self.block.attn.c_proj, change_slice)

    def projection(self, which: int, change):
        """Change the query (0), key (1) or value (2) of head 2."""
        first = which * WIDTH + 2 * D_HEAD

        def change_slice(x):
            x[..., first : first + D_HEAD] = change(x[..., first : first + D_HEAD])
            return x

        return self.change_output(self.block.attn.c_attn, change_slice)

    def weights(self, change, monkeypatch) -> torch.Tensor:
        """Replace the attention of layer 1 by an own calculation whose weights `[head, query, key]` are changed."""

        def attend(module, query, key, value, mask, **options):
            scores = query @ key.transpose(-1, -2) / D_HEAD**0.5
            causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
            if module.layer_idx == 1:
                weights = change(scores[0], causal)[None]
            else:
                weights = scores.masked_fill(~causal, -torch.inf).softmax(-1)
            return (weights @ value).transpose(1, 2), weights

        attentions = transformers.models.gpt2.modeling_gpt2.ALL_ATTENTION_FUNCTIONS
        monkeypatch.setattr(transformers.models.gpt2.modeling_gpt2, "eager_attention_forward", attend)
        monkeypatch.setattr(type(attentions), "get_interface", lambda *args: attend)
        return self.run(IDS)

    def expected(self, case: str, monkeypatch) -> torch.Tensor:
        attention, mlp = self.block.attn, self.block.mlp
        third = slice(2 * D_HEAD, 3 * D_HEAD)
        other_heads = self.captured(attention.c_proj, OTHER, of_input=True)[..., third]
        other_qkv = self.captured(attention.c_attn, OTHER)

        def at(position, change):
            def only_there(x):
                x[:, position] = change(x[:, position])
                return x

            return only_there

        plain = lambda scores, causal: scores.masked_fill(~causal, -torch.inf).softmax(-1)  # noqa: E731
        match case:
            case "head output zero":
                return self.run(IDS, self.head(lambda x: x * 0))
            case "head output from another text":
                return self.run(IDS, self.head(lambda x: other_heads))
            case "head output mean":
                return self.run(IDS, self.head(lambda x: other_heads.mean(1, keepdim=True).expand_as(x)))
            case "query zero":
                return self.run(IDS, self.projection(0, lambda x: x * 0))
            case "key from another text":
                return self.run(IDS, self.projection(1, lambda x: other_qkv[..., WIDTH:][..., third]))
            case "value scaled at a position":
                return self.run(IDS, self.projection(2, at(4, lambda x: x * 3)))
            case "residual from another text at a position":
                third_block = self.model.transformer.h[2]
                other = self.captured(third_block, OTHER, of_input=True)
                return self.run(IDS, self.change_input(third_block, at(5, lambda x: other[:, 5])))
            case "residual steered":
                return self.run(IDS, self.change_input(self.block, lambda x: x + 2 * VECTOR))
            case "neurons scaled":
                return self.run(IDS, self.change_output(mlp.act, lambda x: x * 0.5))
            case "feed-forward output zero":
                return self.run(IDS, self.change_output(mlp, lambda x: x * 0))
            case "attention output zero":
                return self.run(IDS, self.change_output(attention, lambda x: x * 0))
            case "pattern zero" | "uniform head" | "cut edge" | "pattern from another text":
                return self.weights(self.pattern(case, other_qkv, plain), monkeypatch)
        raise AssertionError(case)

    def pattern(self, case: str, other_qkv: torch.Tensor, plain):
        def change(scores, causal):
            if case == "uniform head":
                scores = scores.index_fill(0, torch.tensor([2]), 0.0)
            if case == "cut edge":
                scores = scores.clone()
                scores[2, 8, 3] = -torch.inf
            weights = plain(scores, causal)
            if case == "pattern zero":
                weights[2] = 0
            if case == "pattern from another text":
                query, key, _ = (part.unflatten(-1, (HEADS, -1))[0, :, 2] for part in other_qkv.chunk(3, dim=-1))
                weights[2] = plain((query @ key.T / D_HEAD**0.5)[None], causal)[0]
            return weights

        return change


@pytest.fixture
def compare(record_property, request):
    """Compare numbers with those of another tool; `bench/exactness.py` reads the largest difference of each case."""

    def check(tool: str, ours, theirs, tolerance: float = TOLERANCE) -> None:
        difference = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
        case = getattr(request.node, "callspec", None)
        record_property("exactness", f"{case.params['case'] if case else request.node.name}\t{tool}\t{difference:.1e}")
        assert difference <= tolerance

    return check


@pytest.mark.parametrize("case", CASES)
def test_edits_equal_hooks_on_transformers(gpt2, loaded, case, monkeypatch, compare):
    expected = Hooked(gpt2).expected(case, monkeypatch)
    compare("transformers", edited(loaded, CASES[case]), expected)
    monkeypatch.undo()
    with torch.inference_mode():
        assert not torch.allclose(gpt2(IDS).logits[0, -1], expected, atol=1e-3), "the edit has an effect"


def test_several_edits_equal_several_hooks(gpt2, loaded):
    hooked = Hooked(gpt2)
    hooks = hooked.head(lambda x: x * 0), hooked.change_output(hooked.block.mlp.act, lambda x: x * 0.5)
    edits = [CASES["head output zero"], CASES["neurons scaled"]]
    torch.testing.assert_close(edited(loaded, edits), hooked.run(IDS, *hooks), atol=TOLERANCE, rtol=0)


@pytest.fixture(scope="module")
def lens(gpt2, tmp_path_factory):
    """The same weights in TransformerLens, unchanged: no folding, no centring."""
    bridge = pytest.importorskip("transformer_lens.model_bridge")
    names = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({f"t{id}": id for id in range(61)}, "t0")))
    names.add_special_tokens({"bos_token": "t0", "eos_token": "t0", "pad_token": "t0"})
    names.save_pretrained(folder := tmp_path_factory.mktemp("tokenizer"))
    names = PreTrainedTokenizerFast.from_pretrained(folder)  # TransformerLens wants one that was loaded
    model = bridge.TransformerBridge.boot_transformers("gpt2", hf_model=copy.deepcopy(gpt2), tokenizer=names)
    model.enable_compatibility_mode(disable_warnings=True, no_processing=True)
    return model


def lens_hooks(lens, case: str):
    """Return (hook name, function) of TransformerLens for a case."""
    with torch.inference_mode():
        _, cache = lens.run_with_cache(OTHER)
    name = "blocks.1.attn.hook_{}".format

    def head(change):
        def hook(x, hook):
            x = x.clone()
            x[:, :, 2] = change(x[:, :, 2])
            return x

        return hook

    def pattern(change):
        def hook(x, hook):
            x = x.clone()
            x[:, 2] = change(x[:, 2])
            return x

        return hook

    def at(position, change):
        def hook(x, hook):
            x = x.clone()
            x[:, position] = change(x[:, position])
            return x

        return hook

    def cut(x):
        x[:, 8, 3] = -torch.inf
        return x

    def third(x):
        x[:, 4] = x[:, 4] * 3
        return x

    causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    return {
        "head output zero": (name("z"), head(lambda x: x * 0)),
        "head output from another text": (name("z"), head(lambda x: cache[name("z")][:, :, 2])),
        "head output mean": (name("z"), head(lambda x: cache[name("z")][:, :, 2].mean(1, keepdim=True).expand_as(x))),
        "query zero": (name("q"), head(lambda x: x * 0)),
        "key from another text": (name("k"), head(lambda x: cache[name("k")][:, :, 2])),
        "value scaled at a position": (name("v"), head(third)),
        "pattern from another text": (name("pattern"), pattern(lambda x: cache[name("pattern")][:, 2])),
        "pattern zero": (name("pattern"), pattern(lambda x: x * 0)),
        "uniform head": (name("pattern"), pattern(lambda x: (causal / causal.sum(-1, keepdim=True)).expand_as(x))),
        "cut edge": (name("attn_scores"), pattern(cut)),
        "residual from another text at a position": (
            "blocks.2.hook_resid_pre", at(5, lambda x: cache["blocks.2.hook_resid_pre"][:, 5]),
        ),
        "residual steered": ("blocks.1.hook_resid_pre", lambda x, hook: x + 2 * VECTOR),
        "neurons scaled": ("blocks.1.mlp.hook_post", lambda x, hook: x * 0.5),
        "feed-forward output zero": ("blocks.1.hook_mlp_out", lambda x, hook: x * 0),
        "attention output zero": ("blocks.1.hook_attn_out", lambda x, hook: x * 0),
    }[case]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_edits_equal_transformer_lens(lens, loaded, case, compare):
    with torch.inference_mode():
        expected = lens.run_with_hooks(IDS, fwd_hooks=[lens_hooks(lens, case)])[0, -1]
    compare("TransformerLens", edited(loaded, CASES[case]), expected)


@pytest.mark.parametrize("case", ["sweep of zero-ablated heads"])
def test_sweep_of_zero_ablated_heads_equals_captum(gpt2, loaded, case, compare):
    """Each head is one feature of captum's FeatureAblation: a factor of its output, 1 or 0."""
    attr = pytest.importorskip("captum.attr")

    def logits(factors: torch.Tensor) -> torch.Tensor:
        with ExitStack() as stack, torch.inference_mode():
            for layer, block in enumerate(gpt2.transformer.h):
                scale = factors[0, layer].repeat_interleave(D_HEAD)
                hook = block.attn.c_proj.register_forward_pre_hook(lambda _, args, scale=scale: (args[0] * scale,))
                stack.callback(hook.remove)
            return gpt2(IDS).logits[:, -1, 7]

    factors = torch.ones(1, LAYERS, HEADS)
    theirs = logits(factors) - attr.FeatureAblation(logits).attribute(factors)[0]
    ours = loaded.sweep(IDS[0].tolist(), method="zero", over="heads", metric=lambda logits: logits[..., 7]).values
    compare("captum", ours, theirs)


@pytest.mark.parametrize("case", ["direct logit attribution by head"])
@torch.inference_mode()
def test_attribution_equals_transformer_lens(lens, loaded, case, compare):
    """Heads, MLPs and embedding as in TransformerLens' residual decomposition, with the final norm fixed."""
    attribution = loaded.look(IDS[0].tolist()).attribution(token=7, against=9)
    _, cache = lens.run_with_cache(IDS)
    direction = lens.W_U[:, 7] - lens.W_U[:, 9]
    heads = cache.stack_head_results(pos_slice=-1, apply_ln=False)
    scaled = cache.apply_ln_to_stack(heads, pos_slice=-1)[:, 0] * lens.ln_final.w
    compare("TransformerLens", attribution.heads().values.ravel(), scaled @ direction, 1e-4)


@pytest.mark.parametrize("case", ["sweep of patched heads", "sweep of patched patterns", "sweep of patched residuals"])
@torch.inference_mode()
def test_sweeps_equal_transformer_lens(lens, loaded, case, compare):
    from transformer_lens import patching

    metric = lambda logits: logits[0, -1, 7] - logits[0, -1, 9]  # noqa: E731
    _, cache = lens.run_with_cache(IDS)
    over, theirs = {
        "sweep of patched heads": ("heads", patching.get_act_patch_attn_head_out_all_pos),
        "sweep of patched patterns": ("patterns", patching.get_act_patch_attn_head_pattern_all_pos),
        "sweep of patched residuals": ("layers×positions", patching.get_act_patch_resid_pre),
    }[case]
    ours = loaded.sweep(
        IDS[0].tolist(), OTHER[0].tolist(), over=over, metric=lambda logits: logits[..., 7] - logits[..., 9]
    )
    compare("TransformerLens", ours.values, theirs(lens, OTHER, cache, metric), 1e-4)
