"""`beams`: the tree holds the very texts and chances of the search, and all that was kept on the way."""

import json
import math

import pytest

from peasy.generation.beam import Beams, search
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.text import train
from peasy.workbench.beams import beams
from peasy.workbench.load import LoadedModel


@pytest.fixture(scope="module", params=["translator-tiny", "gpt-tiny"])
def loaded(request):
    words = train(["the cat sat on the mat", "the dog"] * 9, "words")
    special = {"special": {"start": 1, "end": [2]}}
    return LoadedModel(request.param, build(preset(request.param, vocabulary=len(words), **special), seed=3), words)


def test_the_tree_ends_in_what_the_search_finds(loaded):
    found = beams(loaded, "the dog sat", beam=3, max_tokens=5)
    ids = [list(loaded.tokenizer.encode("the dog sat").ids)]
    how = {"source": ids} if loaded.model.reads_source else {"prompts": ids}
    best = search(loaded.model, beams=Beams(3, 5, n=3), **how)[0].best
    assert [score for _, score in found.found] == pytest.approx([one.score for one in best])
    ended = sorted((each for each in found.branches if each.rank is not None), key=lambda each: each.rank)
    assert [each.logprob for each in ended] == pytest.approx([one.logprob for one in best], abs=1e-5)
    assert [each.step for each in ended] == [len(one.ids) for one in best]
    assert found.best == loaded.answers().decode(best[0].ids)
    assert json.dumps(found.data())
    assert found.best in found.text()


def test_every_branch_is_its_parent_and_one_token_more(loaded):
    branches = beams(loaded, "the dog sat", beam=3, max_tokens=5).branches
    for at, each in enumerate(branches):
        before = branches[each.parent].logprob if each.parent >= 0 else 0.0
        assert each.parent < at
        assert each.logprob == pytest.approx(before + math.log(each.chance), abs=1e-5)
        assert each.step == (branches[each.parent].step + 1 if each.parent >= 0 else 1)
    for step in range(1, 6):
        assert sum(each.step == step and each.fate != "ended" for each in branches) <= 3, "no more than there are beams"
    line = [each for each in branches if each.best]
    assert [each.step for each in line] == list(range(1, len(line) + 1))
    assert line[-1].rank == 0


def test_one_beam_is_one_line(loaded):
    branches = beams(loaded, "the dog sat", beam=1, max_tokens=4).branches
    assert all(each.best for each in branches)
