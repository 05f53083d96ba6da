"""Checkpoints of earlier releases are kept here and must load in all later ones, with the same numbers."""

from pathlib import Path

import pytest
import torch

from peasy.commands.load import load

KEPT = Path(__file__).parent / "kept"
EXPECTED = {
    "0.1.0": ([3, 263, 276, 269], [-0.2257, -0.0380, 0.0238, 0.0234, -0.0405, 0.0763]),
}
"""For each release: ids of "the cat sat", and the first logits after them."""


def test_every_kept_checkpoint_has_its_numbers():
    assert {folder.name for folder in KEPT.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("release", EXPECTED)
def test_checkpoint_of_an_earlier_release_loads(release):
    ids, logits = EXPECTED[release]
    loaded = load(KEPT / release)
    assert loaded.encode_prompt("the cat sat") == ids
    with torch.inference_mode():
        found = loaded.model(torch.tensor([ids]))[0, -1, : len(logits)]
    torch.testing.assert_close(found, torch.tensor(logits), atol=1e-4, rtol=0)
    assert loaded.look("the cat").tokens.pieces[0] == "<bos>"
    assert len(loaded.generate("the cat", max_tokens=3).texts[0]) > 0
