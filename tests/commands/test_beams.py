"""`beams`: the tree has the texts and probabilities of beam search, and every kept prefix."""

import json
import math

import pytest

from peasy.commands.beams import beams
from peasy.commands.load import LoadedModel
from peasy.generation.decode import beam_search
from peasy.generation.sampling_params import BeamSearchParams
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer


@pytest.fixture(scope="module", params=["translator-tiny", "gpt-tiny"])
def loaded(request):
    tokenizer = train_tokenizer(["the cat sat on the mat", "the dog"] * 9, "words")
    special = {"special_tokens": {"decoder_start": 1, "eos": [2]}}
    model = build(preset(request.param, vocab_size=len(tokenizer), **special), seed=3)
    return LoadedModel(request.param, model, tokenizer)


def test_the_tree_ends_in_the_hypotheses_of_beam_search(loaded):
    result = beams(loaded, "the dog sat", num_beams=3, max_tokens=5)
    ids = [list(loaded.tokenizer.encode("the dog sat").ids)]
    inputs = {"source": ids} if loaded.model.is_encoder_decoder else {"prompts": ids}
    best = beam_search(loaded.model, params=BeamSearchParams(3, 5, n=3), **inputs)[0].hypotheses
    assert [score for _, score in result.hypotheses] == pytest.approx([hypothesis.score for hypothesis in best])
    finished = sorted((branch for branch in result.branches if branch.rank is not None), key=lambda branch: branch.rank)
    assert [branch.logprob for branch in finished] == pytest.approx(
        [hypothesis.logprob for hypothesis in best], abs=1e-5
    )
    assert [branch.step for branch in finished] == [len(hypothesis.ids) for hypothesis in best]
    assert result.best == loaded.output_tokenizer().decode(best[0].ids)
    assert json.dumps(result.data())
    assert result.best in result.text()


def test_every_branch_extends_its_parent_by_one_token(loaded):
    branches = beams(loaded, "the dog sat", num_beams=3, max_tokens=5).branches
    for index, branch in enumerate(branches):
        prefix_logprob = branches[branch.parent].logprob if branch.parent >= 0 else 0.0
        assert branch.parent < index
        assert branch.logprob == pytest.approx(prefix_logprob + math.log(branch.probability), abs=1e-5)
        assert branch.step == (branches[branch.parent].step + 1 if branch.parent >= 0 else 1)
    for step in range(1, 6):
        assert sum(branch.step == step and branch.status != "finished" for branch in branches) <= 3, "at most 3 beams"
    best_path = [branch for branch in branches if branch.is_best]
    assert [branch.step for branch in best_path] == list(range(1, len(best_path) + 1))
    assert best_path[-1].rank == 0


def test_one_beam_gives_one_path(loaded):
    branches = beams(loaded, "the dog sat", num_beams=1, max_tokens=4).branches
    assert all(branch.is_best for branch in branches)
