"""Tiles are the mean or maximum of the full matrix, which is never allocated."""

import numpy as np
import pytest
import torch
from tests.models.tiny_models import TRANSFORMERS, make, some_ids
from torch.utils._python_dispatch import TorchDispatchMode

from peasy.errors import InvalidInput
from peasy.inspection import tiles as tiling
from peasy.inspection.forward import ModelInput, forward_hidden
from peasy.inspection.tiles import Tiler, choose_tile
from peasy.nn.tap import Tap

NAMES = ["learned", "grouped", "window", "relative", "alibi", "softcap", "encoder", "encoder-alibi", "both"]


def overviews(model, reading, **how):
    tiler = Tiler(**how)
    forward_hidden(model, reading, Tap(lambda seen: None, steps=(), on_attention=tiler.on_attention))
    return tiler.overviews


def whole(model, reading, scaled=False):
    seen = []
    forward_hidden(model, reading, Tap(seen.append, steps=("weights", "value")))
    at = {(one.place, one.step): one.array[0] for one in seen}
    places = [place for place, step in at if step == "weights"]
    sizes = {place: at[place, "value"].norm(dim=-1)[:, None] if scaled else 1.0 for place in places}
    return {place: (at[place, "weights"] * sizes[place]).numpy() for place in places}


def expected_tiles(matrix: np.ndarray, tile: int, how: str) -> np.ndarray:
    reduce = np.mean if how == "mean" else np.max
    rows, columns = range(0, matrix.shape[1], tile), range(0, matrix.shape[2], tile)
    return np.array([[[reduce(head[i : i + tile, j : j + tile]) for j in columns] for i in rows] for head in matrix])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("tile", [1, 4, 30])
def test_tiles_equal_the_reduced_full_matrix(name, how, tile, monkeypatch):
    monkeypatch.setattr(tiling, "ROW_BLOCK", 8)
    model = make(TRANSFORMERS[name])
    ids = tuple(some_ids(1, 17)[0].tolist())
    reading = ModelInput(ids, ids[:7]) if model.is_encoder_decoder else ModelInput(ids)
    found, full = overviews(model, reading, tile=tile, how=how), whole(model, reading)
    assert len(found) == len(full)
    for one in found:
        assert (one.queries, one.keys) == full[one.path].shape[1:]
        np.testing.assert_allclose(one.tiles, expected_tiles(full[one.path], tile, how), atol=2e-6)


def test_tiles_of_value_weighted_attention():
    model, reading = make(TRANSFORMERS["grouped"]), ModelInput(tuple(some_ids(1, 17)[0].tolist()))
    for one in overviews(model, reading, tile=4, scaled=True):
        expected = expected_tiles(whole(model, reading, scaled=True)[one.path], 4, "mean")
        np.testing.assert_allclose(one.tiles, expected, rtol=1e-4, atol=1e-6)


def test_ignoring_the_bias_would_be_detected(monkeypatch):
    real = tiling.unnormalised_weights
    monkeypatch.setattr(tiling, "weigh", lambda query, key, **how: real(query, key, **{**how, "bias": None}))
    with pytest.raises(AssertionError):
        test_tiles_equal_the_reduced_full_matrix("alibi", "mean", 4, pytest.MonkeyPatch())


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor created."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **kwargs or {})
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made


def long_model():
    from peasy.models.build import build
    from peasy.models.preset import preset

    return build(
        preset("gpt-tiny", vocabulary=61, d_model=16, context=None, stack={"feedforward": {"width": 16}}), seed=1
    )


def test_the_full_matrix_is_never_allocated():
    model, count = long_model(), 1536
    reading = ModelInput(tuple(some_ids(1, count)[0].tolist()))
    tiler, seen = Tiler(64), []
    tap = Tap(seen.append, steps=["weights"], rows=[3, 900, -1], on_attention=tiler.on_attention)
    with Largest() as largest:
        forward_hidden(model, reading, tap)
    assert len(tiler.overviews) == 2
    assert largest.numbers < count * count / 4
    with Largest() as naive:
        forward_hidden(model, reading, Tap(seen.append, steps=["weights"], heads=[0], layers=[0]))
    assert naive.numbers >= count * count, "the inverse: this allocates a full matrix"


def test_tile_sizes():
    assert [choose_tile(n) for n in (1, 128, 129, 8192, 16384)] == [1, 1, 2, 64, 128]
    with pytest.raises(InvalidInput, match="median"):
        Tiler(4, "median")
    with pytest.raises(InvalidInput):
        Tiler(0)
