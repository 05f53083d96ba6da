"""Tiles are the mean or maximum of the full matrix, which is never allocated."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import TRANSFORMERS, make, some_ids
from torch.utils._python_dispatch import TorchDispatchMode

from peasy.errors import InvalidInput
from peasy.inspection import tiles as tiling
from peasy.inspection.capture import output_weights_of
from peasy.inspection.forward import ModelInput, forward_hidden
from peasy.inspection.tiles import Tiler, choose_tile
from peasy.nn.attention import Attention
from peasy.nn.tap import Tap

NAMES = ["learned", "grouped", "window", "relative", "alibi", "softcap", "encoder", "encoder-alibi", "seq2seq"]


def overviews(model, model_input, **options):
    tiler = Tiler(**options)
    forward_hidden(model, model_input, Tap(lambda activation: None, steps=(), on_attention=tiler.on_attention))
    return tiler.overviews


def full_matrices(model, model_input, measure="weight"):
    activations = []
    forward_hidden(model, model_input, Tap(activations.append, steps=("weights", "value")))
    arrays = {(activation.path, activation.step): activation.array[0] for activation in activations}
    paths = [path for path, step in arrays if step == "weights"]
    factors = {"weight": lambda _: 1.0, "value": lambda path: arrays[path, "value"].norm(dim=-1)[:, None]}
    factors["norm"] = lambda path: added_by_head(model, path, arrays[path, "value"]).norm(dim=-1)[:, None]
    norms = {path: factors[measure](path) for path in paths}
    return {path: (arrays[path, "weights"] * norms[path]).numpy() for path in paths}


def added_by_head(model, path, values):
    """What each value adds to the residual stream: through the output layer, with zeros for all other heads."""
    (layer,) = (module for module in model.modules() if isinstance(module, Attention) and module.path == path)
    alone = torch.eye(len(values))[:, None, :, None] * values[:, :, None, :]  # [head, key, all heads, d_head]
    with torch.inference_mode():
        return layer.output(alone.flatten(2)) - layer.output(torch.zeros_like(alone.flatten(2)))


def expected_tiles(matrix: np.ndarray, tile: int, reduction: str) -> np.ndarray:
    reduce = np.mean if reduction == "mean" else np.max
    rows, columns = range(0, matrix.shape[1], tile), range(0, matrix.shape[2], tile)
    return np.array([[[reduce(head[i : i + tile, j : j + tile]) for j in columns] for i in rows] for head in matrix])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", ["mean", "max"])
@pytest.mark.parametrize("tile", [1, 4, 30])
def test_tiles_equal_the_reduced_full_matrix(name, reduction, tile, monkeypatch):
    monkeypatch.setattr(tiling, "ROW_BLOCK", 8)
    model = make(TRANSFORMERS[name])
    ids = tuple(some_ids(1, 17)[0].tolist())
    model_input = ModelInput(ids, ids[:7]) if model.is_encoder_decoder else ModelInput(ids)
    full = full_matrices(model, model_input)
    tiled = overviews(model, model_input, tile=tile, reduction=reduction)
    assert len(tiled) == len(full)
    for overview in tiled:
        matrix = full[overview.path]
        assert (overview.queries, overview.keys) == matrix.shape[1:]
        np.testing.assert_allclose(overview.tiles, expected_tiles(matrix, tile, reduction), atol=2e-6)


@pytest.mark.parametrize("measure", ["value", "norm"])
def test_tiles_of_value_weighted_and_norm_based_attention(measure):
    model, model_input = make(TRANSFORMERS["grouped"]), ModelInput(tuple(some_ids(1, 17)[0].tolist()))
    weights = output_weights_of(model)
    for overview in overviews(model, model_input, tile=4, measure=measure, output_weights=weights):
        matrix = full_matrices(model, model_input, measure)[overview.path]
        expected = expected_tiles(matrix, 4, "mean")
        np.testing.assert_allclose(overview.tiles, expected, rtol=1e-4, atol=1e-6)


def test_ignoring_the_bias_would_be_detected(monkeypatch):
    original = tiling.unnormalised_weights

    def without_bias(query, key, **options):
        return original(query, key, **{**options, "bias": None})

    monkeypatch.setattr(tiling, "unnormalised_weights", without_bias)
    with pytest.raises(AssertionError):
        test_tiles_equal_the_reduced_full_matrix("alibi", "mean", 4, pytest.MonkeyPatch())


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor created."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


def long_model():
    from peasy.models.build import build
    from peasy.models.preset import preset

    return build(
        preset("gpt-tiny", vocab_size=61, d_model=16, max_seq_len=None, stack={"feedforward": {"d_ff": 16}}), seed=1
    )


def test_the_full_matrix_is_never_allocated():
    model, count = long_model(), 1536
    model_input = ModelInput(tuple(some_ids(1, count)[0].tolist()))
    tiler, activations = Tiler(64), []
    tap = Tap(activations.append, steps=["weights"], rows=[3, 900, -1], on_attention=tiler.on_attention)
    with LargestTensor() as largest:
        forward_hidden(model, model_input, tap)
    assert len(tiler.overviews) == 2
    assert largest.numel < count * count / 4
    with LargestTensor() as naive:
        forward_hidden(model, model_input, Tap(activations.append, steps=["weights"], heads=[0], layers=[0]))
    assert naive.numel >= count * count, "the inverse: this allocates a full matrix"


def test_tile_sizes():
    assert [choose_tile(n) for n in (1, 128, 129, 8192, 16384)] == [1, 1, 2, 64, 128]
    with pytest.raises(InvalidInput, match="median"):
        Tiler(4, "median")
    with pytest.raises(InvalidInput):
        Tiler(0)
