"""A two-token GPT trained on paper has the losses of peasy's own training loop (float32)."""

import numpy as np
import pytest
import torch

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.event import TrainStep
from peasy.training.loop import TrainSpec, train
from peasy.training.objective import NextToken
from peasy.training.recipe import make_recipe
from peasy.worked import read_example
from peasy.worked.solver import train_steps

STEPS = 20
EPS = 1e-3
"""AdamW divides by √v + ε: with the usual 1e-8 a gradient that is only rounding moves its weight by a whole step."""
WORDS = ["the", "cat", "sat", "mat", "on"]
NAMES = {
    "embedding.table": "embedding.token.weight", "positions.table": "embedding.position.weight",
    "layer1.norm1": "decoder.blocks.0.attention_norm", "layer1.norm2": "decoder.blocks.0.feedforward_norm",
    "final_norm": "decoder.norm", "layer1.feed_forward.w_1": "decoder.blocks.0.feedforward.up.weight",
    "layer1.feed_forward.b_1": "decoder.blocks.0.feedforward.up.bias",
    "layer1.feed_forward.w_2": "decoder.blocks.0.feedforward.down.weight",
    "layer1.feed_forward.b_2": "decoder.blocks.0.feedforward.down.bias",
} | {
    f"layer1.attention.{kind}_{letter}": f"decoder.blocks.0.attention.{name}.{part}"
    for letter, name in zip("qkvo", ("query", "key", "value", "output"), strict=True)
    for kind, part in (("w", "weight"), ("b", "bias"))
}  # fmt: skip


class OneBatch:
    """Data loader of one batch: two tokens and their targets."""

    def batch(self, position, batch_size, seq_len):
        return {"ids": torch.tensor([[0, 1]]), "targets": torch.tensor([[1, 2]])}

    def validation(self, batch_size, seq_len):
        return iter(())

    def num_samples(self, seq_len):
        return 1


def tiny_gpt():
    stack = {
        "num_layers": 1, "attention": {"num_heads": 2, "bias": True, "output_bias": True},
        "feedforward": {"kind": "mlp", "d_ff": 3, "activation": "gelu", "bias": True},
        "norm": {"kind": "layer", "eps": 1e-5},
    }  # fmt: skip
    position = {"kind": "learned"}
    config = preset("gpt-tiny", vocab_size=5, d_model=4, dropout=0.0, max_seq_len=2, stack=stack, position=position)
    return build(config, seed=3)


def on_paper(model, lr):
    """The same model as an example: a weight of torch is the transposed matrix."""
    given = {}
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    for name, stored in NAMES.items():
        if stored in weights:
            given[name] = weights[stored] if name.endswith("table") else weights[stored].T
        else:
            given |= {f"{name}.gain": weights[f"{stored}.weight"], f"{name}.bias": weights[f"{stored}.bias"]}
    assert sum(np.size(values) for values in given.values()) == sum(map(np.size, weights.values()))
    return read_example(
        {
            "title": "t", "tokens": WORDS[:2], "vocabulary": WORDS, "targets": WORDS[1:3],
            "given": {f"gpt.{name}": values for name, values in given.items()},
            "steps": {"gpt": "gpt(heads=2, activation=gelu)", "loss": "cross_entropy(gpt)"},
            "train": {"optimizer": "adamw", "lr": lr, "beta_2": 0.95, "eps": EPS},
        }
    )  # fmt: skip


def losses_of_the_loop(model, folder, lr):
    settings = {
        "precision": "float32", "steps": STEPS, "seq_len": 2, "batch_size": 1, "seq_len_warmup": None,
        "grad_clip": None,
        "num_validations": 0, "num_samplings": 0, "num_saves": 0, "seed": 1,
        "optimizer": {"kind": "adamw", "lr": lr, "eps": EPS, "weight_decay": 0.0},
        "schedule": {"kind": "wsd", "warmup": 0.0, "decay": 0.0},
    }  # fmt: skip
    (folder / "checkpoints").mkdir()
    events = train(TrainSpec(folder, make_recipe("gpt", "tiny", settings), model, NextToken(), OneBatch()))
    return [event.loss for event in events if isinstance(event, TrainStep)]


def test_losses_equal_those_of_the_training_loop(tmp_path):
    model = tiny_gpt()
    example = on_paper(model, lr=0.01)
    losses = losses_of_the_loop(model, tmp_path, lr=0.01)
    assert len(losses) == STEPS
    paper = [worked.values["loss.loss"][0, 0] for worked in train_steps(example, STEPS)]
    np.testing.assert_allclose(paper, losses, rtol=0, atol=1e-5)
    assert losses[-1] < losses[0] - 0.1


def test_another_learning_rate_is_noticed(tmp_path):
    model = tiny_gpt()
    example = on_paper(model, lr=0.011)
    losses = losses_of_the_loop(model, tmp_path, lr=0.01)
    paper = [worked.values["loss.loss"][0, 0] for worked in train_steps(example, STEPS)]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(paper, losses, rtol=0, atol=1e-5)
