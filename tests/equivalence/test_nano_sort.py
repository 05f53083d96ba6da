"""A trained GPT-2-style model with published intermediate tensors: all of them are equal, and it sorts."""

from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from peasy.checkpoint.huggingface import load_model, read_folder
from peasy.nn.tap import Tap

HOME = Path(__file__).parents[2].parent / "shared" / "data" / "gpt-nano-sort"
pytestmark = pytest.mark.skipif(not HOME.is_dir(), reason="the gpt-nano-sort weights are not on this machine")

TAPPED = {
    "x": (0, "stream", "residual"),
    "ln1": (0, "attention", "normed"),
    "q": (0, "attention", "query"),
    "k": (0, "attention", "key"),
    "v": (0, "attention", "value"),
    "att": (0, "attention", "masked"),
    "attSm": (0, "attention", "weights"),
    "yProj": (0, "attention", "output"),
    "ln2": (0, "feedforward", "normed"),
    "gelu": (0, "feedforward", "activation"),
    "mlp": (0, "feedforward", "output"),
    "mlpResid": (1, "stream", "residual"),
    "block0": (1, "stream", "residual"),
    "block1": (2, "stream", "residual"),
    "block2": (3, "stream", "residual"),
    "ln_f": (3, "stream", "final"),
}
"""Published tensor name, and where a tap captures it."""


@pytest.fixture(scope="module")
def model():
    return load_model(read_folder(HOME / "hf"))


@pytest.fixture(scope="module")
def published():
    return load_file(HOME / "partials.safetensors")


@pytest.fixture(scope="module")
def ours(model, published):
    """Return all published tensors by name, captured by a tap or computed from a captured one."""
    ids, captured = published["idx"].long(), {}
    steps = {step for _, _, step in TAPPED.values()} | {"context"}
    tap = Tap(lambda a: captured.__setitem__((a.path.layer, a.path.part, a.step), a.array), steps=steps)
    with torch.no_grad():
        logits = model(ids, tap=tap)
        tensors = {name: captured[key] for name, key in TAPPED.items()}
        tensors["y"] = captured[0, "attention", "context"].transpose(1, 2).flatten(2)
        tensors["qkv"] = torch.cat([tensors[part].transpose(1, 2).flatten(2) for part in "qkv"], dim=-1)
        tensors["attnResid"] = tensors["x"] + tensors["yProj"]
        tensors["fc"] = model.decoder.blocks[0].feedforward.up(tensors["ln2"])
        tensors["tok_emb"] = model.embedding.token(ids)
        tensors["pos_emb"] = model.embedding.position.weight[None]
        tensors |= {"lm_head": logits, "probs": logits.softmax(-1), "idx": ids.float()}
    return tensors


def test_every_published_tensor_is_compared(ours, published):
    assert ours.keys() == published.keys()
    assert len(published) == 25


@pytest.mark.parametrize(
    "name",
    [*TAPPED, "y", "qkv", "attnResid", "fc", "tok_emb", "pos_emb", "lm_head", "probs", "idx"],
)  # fmt: skip
def test_intermediate_tensors(ours, published, name):
    torch.testing.assert_close(ours[name], published[name], atol=1e-5, rtol=0)


def test_sorts_all_729(model):
    inputs = torch.tensor(list(product(range(3), repeat=6)))
    cache, ids, generated = model.new_state(), inputs, []
    with torch.no_grad():
        for _ in range(6):
            ids = model(ids, cache=cache, last_only=True).argmax(-1)
            generated.append(ids)
    right = (torch.cat(generated, dim=1) == inputs.sort(dim=1).values).all(dim=1)
    assert int(right.sum()) == 729
