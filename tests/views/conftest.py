"""Fixtures: small records of peasy.inspection with known numbers."""

import numpy as np
import pytest

from peasy.formula import attend
from peasy.inspection.results import (
    Alignment,
    AlignmentScore,
    AttentionHistory,
    AttentionInfo,
    AttentionOverview,
    AttentionRecord,
    Capture,
    CheckpointAttention,
    Effect,
    GenerationTrace,
    HeadReport,
    HeadScore,
    LayerTopK,
    LensTable,
    Similarity,
    TokenProbability,
    Tokens,
    TraceStep,
)
from peasy.nn.module_path import ModulePath

SELF, CROSS = ModulePath("decoder", 0, "attention"), ModulePath("decoder", 0, "cross_attention")
LATER = ModulePath("decoder", 1, "attention")


def tokens(*pieces: str, groups=None) -> Tokens:
    groups = groups or tuple((position,) for position in range(len(pieces)))
    words = tuple("".join(pieces[position] for position in group).lstrip("·") for group in groups)
    text = "".join(pieces).replace("·", " ")
    return Tokens(text, tuple(range(len(pieces))), tuple(pieces), words, groups)


PIZZA = tokens("The", "·piz", "za", "·was", "·hot", groups=((0,), (1, 2), (3,), (4,)))


def head(seed: int, count: int = 5, width: int = 4):
    """Queries, keys, values and all steps of one causal head."""
    q, k, v = np.random.default_rng(seed).normal(size=(3, count, width))
    return q, k, v, attend(q, k, v, causal=True)


@pytest.fixture
def look() -> AttentionRecord:
    """Two layers of two heads, with queries, keys and values of the first layer."""
    steps = {(layer, number): head(10 * layer + number) for layer in (0, 1) for number in (0, 1)}
    weights = [
        Capture(path, "weights", np.stack([np.asarray(steps[path.layer, h][3].weights) for h in (0, 1)]), (0, 1),
                tuple(range(5)), value_norms=np.full((2, 5), 2.0))
        for path in (SELF, LATER)
    ]  # fmt: skip
    rest = [
        Capture(SELF, name, np.stack([steps[0, h][at] for h in (0, 1)]), (0, 1), rows)
        for at, (name, rows) in enumerate((("query", tuple(range(5))), ("key", None), ("value", None)))
    ]
    parts = tuple(AttentionInfo(path, 2, (0, 0), causal=True) for path in (SELF, LATER))
    after = (TokenProbability("·and", 7, 0.6), TokenProbability(".", 8, 0.2))
    return AttentionRecord("tiny", "decoder", PIZZA, None, (*weights, *rest), parts, next_tokens=after)


@pytest.fixture
def long_look() -> AttentionRecord:
    """Sixty-four tokens in tiles of eight, two exact rows."""
    many = tokens(*(f"·w{position}" for position in range(64)))
    weights = np.tril(np.ones((2, 64, 64))) / np.arange(1, 65)[None, :, None]
    tiles = weights.reshape(2, 8, 8, 8, 8).mean(axis=(2, 4))
    rows = Capture(SELF, "weights", weights[:, [9, 63]], (0, 1), (9, 63))
    overview = AttentionOverview(SELF, (0, 1), 8, "mean", tiles, 64, 64)
    parts = (AttentionInfo(SELF, 2, (0, 1), causal=True),)
    return AttentionRecord("tiny", "decoder", many, None, (rows,), parts, overviews=(overview,))


@pytest.fixture
def report() -> HeadReport:
    scores = [
        HeadScore(ModulePath("decoder", number, "attention"), 0, 1.0, 0.5, share, 0.0, 0.1, 0.1, 0.0,
                  (0.3, None)[number], 0.2, 1.5, np.array([0.2, 0.5, 0.3]))
        for number, share in enumerate((0.2, 0.9))
    ]  # fmt: skip
    return HeadReport("tiny", tuple(scores), 3, 40, ("A note.",))


@pytest.fixture
def lens() -> LensTable:
    pieces = ((("a", "b"), ("c", "d")), (("·piz", "b"), ("za", "c")))
    probabilities = np.array([[[0.4, 0.1], [0.2, 0.1]], [[0.9, 0.05], [0.7, 0.2]]])
    return LensTable("tiny", PIZZA, (0, 1), (0, 1), pieces, probabilities)


@pytest.fixture
def trace() -> GenerationTrace:
    def step(piece, number, reused, computed):
        attended = LayerTopK(SELF, np.array([[0, 1], [1, 0]]), np.array([[0.7, 0.2], [0.6, 0.3]]))
        both = (TokenProbability("·x", 1, 0.3), TokenProbability(piece, number, 0.5))
        return TraceStep(number, piece, 0.5, -0.7, both, (attended,), computed, reused)

    steps = (step("·hot", 2, 0, 3), step(".", 3, 3, 1))
    alone = GenerationTrace("tiny", tokens("The", "·piz", "za"), None, steps, "The pizza hot.")
    return GenerationTrace("tiny", alone.prompt, None, steps, alone.text, beams=(alone, alone))


@pytest.fixture
def alignment() -> Alignment:
    weights = np.array([[0.9, 0.1, 0.0], [0.1, 0.1, 0.8]])
    scores = tuple(AlignmentScore(CROSS, number, right, 1.0, 0.8, right) for number, right in ((1, 1.0), (0, 0.5)))
    return Alignment(
        "tiny",
        tokens("Sunday", "·the", "·15th"),
        tokens("dimanche", "·15"),
        weights,
        CROSS,
        1,
        scores,
        ((0, 0), (2, 1)),
    )


@pytest.fixture
def history() -> AttentionHistory:
    frames = tuple(CheckpointAttention(step, {SELF: np.full((2, 5, 5), step / 100)}) for step in (0, 10, 20))
    return AttentionHistory("quiet-fox", PIZZA, None, frames)


@pytest.fixture
def similarity() -> Similarity:
    pairs = np.array([[0.5, -0.1], [0.05, 0.3]])
    return Similarity("tiny", tokens("hot", "·pizza"), tokens("warm", "·bread"), pairs, pairs, 0.75)


@pytest.fixture
def effect() -> Effect:
    before, after = (
        (TokenProbability("·good", 1, 0.9), TokenProbability("·bad", 2, 0.05)),
        (TokenProbability("·good", 1, 0.4),),
    )
    measures = (("loss", 2.0, 2.5),)
    return Effect("tiny", "it was", ("layer 0, head 1 off",), before, after, (("·hot", 0.1, 0.2),), 0.5, 1.25, measures)
