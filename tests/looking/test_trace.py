"""Generation trace: records with KV cache equal a full forward pass; nothing is computed twice."""

import numpy as np
import pytest
import torch
from tests.models.zoo import EVERYONE, make

from peasy.generation.beam import Beams, search
from peasy.generation.decode import generate
from peasy.generation.sampling import Sampling
from peasy.looking.reading import Reading, read, run
from peasy.looking.trace import Traced
from peasy.nn.tap import Tap

PROMPT, SOURCE = [5, 9, 17], [8, 3, 22, 41]
NAMES = ["learned", "grouped", "window", "relative", "both", "recurrent-translator", "lstm"]


def write(traced, model, beam: bool) -> list[list[int]]:
    how = {"source": [SOURCE], "prompts": [[0]]} if model.reads_source else {"prompts": [PROMPT]}
    if beam:
        return [list(one.ids) for one in search(traced, beams=Beams(width=3, max_tokens=5, n=3), **how)[0].best]
    return generate(traced, sampling=Sampling(max_tokens=5), **how)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beam", [False, True], ids=["greedy", "beams"])
def test_traced_steps_equal_a_full_forward_pass(name, beam):
    model = make(EVERYONE[name])
    traced = Traced(model, top=None)
    texts = write(traced, model, beam)
    assert texts == write(model, model, beam), "tracing changes nothing"
    first = [0] if model.reads_source else PROMPT
    for ids in texts:
        whole = (*first, *ids[:-1])
        reading = Reading(tuple(SOURCE), whole) if model.reads_source else Reading(whole)
        seen = []
        run(model, reading, Tap(seen.append, stacks=["decoder"]))
        table = {one.place: one.array[0] for one in seen}
        scores = torch.log_softmax(read(model, reading, every=True).float(), -1)
        for row in range(len(first) - 1, len(whole)):
            glimpse = traced.seen[whole[: row + 1]]
            torch.testing.assert_close(glimpse.logs, scores[row], atol=1e-4, rtol=0)
            assert glimpse.computed + glimpse.reused == row + 1
            assert glimpse.computed == (len(first) if row == len(first) - 1 else 1)
            for looked in glimpse.looked:
                dense = np.zeros((len(looked.keys), table[looked.place].shape[-1]), np.float32)
                np.put_along_axis(dense, looked.keys, looked.weights, axis=1)
                np.testing.assert_allclose(dense, table[looked.place][:, row].numpy(), atol=1e-5)


def test_only_the_top_weights_of_selected_heads_are_kept():
    model = make(EVERYONE["learned"])
    traced = Traced(model, top=2, layers=[1], heads=[0, 3], candidates=4)
    generate(traced, [PROMPT], Sampling(max_tokens=3))
    for glimpse in traced.seen.values():
        (looked,) = glimpse.looked
        assert looked.keys.shape == (2, 2)
        assert (np.diff(looked.weights, axis=1) <= 0).all()
        assert len(glimpse.best) == 4
