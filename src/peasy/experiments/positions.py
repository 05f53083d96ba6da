"""`positions`: word order without position encodings, and which kinds work on longer texts than those of training."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from peasy.experiments.models import fit
from peasy.experiments.result import ExperimentResult, OnStatus, Points, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison
from peasy.extras import require_extra
from peasy.formula import attend

_KINDS: dict[str, dict[str, str] | None] = {
    "none": None,
    "learned": {"kind": "learned"},
    "sinusoidal": {"kind": "sinusoidal"},
    "rotary": {"kind": "rotary"},
    "ALiBi": {"kind": "alibi"},
    "T5 relative": {"kind": "relative"},
}
_RELATIVE = ("rotary", "ALiBi", "T5 relative")
"""Kinds that depend on the distance of two tokens only."""
_OFFSET, _NUM_WORDS = 3, 16
"""Task: name the word `_OFFSET` words earlier, among `_NUM_WORDS` random ones. Only order tells which one that is."""
_TRAIN_LENGTH, _TEST_LENGTH, _BATCH_SIZE = 32, 96, 32


def run(seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, texts: int = 32) -> ExperimentResult:
    """Train one layer with each kind of positions, then test it within the trained length and beyond it."""
    require_extra("torch")
    losses, accuracy = {}, {}
    for name, position in _KINDS.items():
        on_status(f"positions: {name} ...")
        losses[name], accuracy[name] = _train_kind(position, seed, steps, texts)
    return conclude(permutation_error(seed), losses, accuracy, seed)


def permutation_error(seed: int, length: int = 8) -> float:
    """Return how much attention without mask and positions changes if words change places, besides their order."""
    rng = np.random.default_rng(seed)
    words, order = rng.standard_normal((length, 4)), rng.permutation(length)
    queries, keys, values = (words @ rng.standard_normal((4, 4)) for _ in range(3))
    plain, moved = attend(queries, keys, values).context, attend(queries[order], keys[order], values[order]).context
    return float(np.abs(moved - plain[order]).max())


def _train_kind(position: dict[str, str] | None, seed: int, steps: int, texts: int) -> tuple[Points, np.ndarray]:
    """Return the loss by step, and the accuracy of each text: within the trained length, and beyond it."""
    import torch

    from peasy.models.build import build
    from peasy.models.preset import preset

    stack = {"num_layers": 1, "attention": {"num_heads": 4}}
    changes: dict[str, Any] = {"vocab_size": _NUM_WORDS, "d_model": 32, "max_seq_len": _TEST_LENGTH, "stack": stack}
    model = build(preset("gpt-tiny", position=position, **changes), seed=seed)

    def loss(rng: torch.Generator) -> torch.Tensor:
        ids = torch.randint(_NUM_WORDS, (_BATCH_SIZE, _TRAIN_LENGTH), generator=rng)
        logits = model(ids)[:, _OFFSET:]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, :-_OFFSET].flatten())

    points = fit(model.parameters(), loss, steps, seed, lr=5e-3)
    rng = torch.Generator().manual_seed(seed + 10**6)  # other texts than in training
    ids = torch.randint(_NUM_WORDS, (texts, _TEST_LENGTH), generator=rng)
    with torch.inference_mode():
        hits = (model(ids).argmax(dim=-1)[:, _OFFSET:] == ids[:, :-_OFFSET]).double().numpy()
    split = _TRAIN_LENGTH - _OFFSET
    return points, np.stack([hits[:, :split].mean(axis=1), hits[:, split:].mean(axis=1)])


def conclude(
    error: float, losses: Mapping[str, Points], accuracy: Mapping[str, np.ndarray], seed: int
) -> ExperimentResult:
    """Within the trained length, positions against none; beyond it, each kind must be right more often than not, and
    learned positions wrong."""
    within, beyond = ({name: by[part].tolist() for name, by in accuracy.items()} for part in (0, 1))
    means = {name: (float(by[0].mean()), float(by[1].mean())) for name, by in accuracy.items()}
    half = [0.5] * len(beyond["none"])
    comparisons = (
        Comparison("attention itself ignores order", "difference", error, "rounding", 1e-12, lower=True, exact=True),
        Comparison.of_pairs("positions tell the order", "accuracy, rotary", within["rotary"], "none", within["none"]),
        *(
            Comparison.of_pairs(
                f"{name} positions {'work' if name in _RELATIVE else 'fail'} on longer texts", "accuracy", beyond[name],
                "half", half, lower=name not in _RELATIVE,
            )
            for name in (*_RELATIVE, "learned")
        ),
    )  # fmt: skip
    working = [name for name, (_, accuracy) in means.items() if accuracy > 0.5]
    verdict = (
        f"Without positions and mask, attention of words in another order is the same, in that order (difference "
        f"{error:.0e}). Trained to name the word {_OFFSET} places earlier, a causal layer without positions is right "
        f"in {means['none'][0]:.0%} of cases (chance: {1 / _NUM_WORDS:.0%}), with rotary positions in "
        f"{means['rotary'][0]:.0%}. Beyond the trained {_TRAIN_LENGTH} words, learned positions are right in "
        f"{means['learned'][1]:.0%}, rotary in {means['rotary'][1]:.0%}, ALiBi in {means['ALiBi'][1]:.0%}, T5's "
        f"relative bias in {means['T5 relative'][1]:.0%}: right more often than not with "
        f"{' and '.join(working) or 'none'}."
    )
    columns = [
        ("positions", ""),
        (f"up to {_TRAIN_LENGTH} words", ".0%"),
        (f"{_TRAIN_LENGTH} to {_TEST_LENGTH}", ".0%"),
    ]
    parts = (
        table("Accuracy within and beyond the trained length", columns, ((name, *by) for name, by in means.items())),
        curves("Learning the order", losses, "step", "loss"),
    )
    numbers = {name: {"within": by[0], "beyond": by[1]} for name, by in means.items()}
    return make_result("positions", parts, verdict, comparisons, {"permutation_error": error, **numbers}, seed)
