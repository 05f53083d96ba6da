"""Logit lens, similarity, alignment, rollout, head scores and words, each against a second computation."""

import numpy as np
import pytest
import torch
from tests.looking.test_recorder import keep
from tests.models.zoo import DECODERS, ENCODERS, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.looking.alignment import align
from peasy.looking.head import _add_text, _Sums, study_heads
from peasy.looking.label import Tokens
from peasy.looking.lens import lens
from peasy.looking.part import parts_of
from peasy.looking.reading import Reading, read, run
from peasy.looking.record import Capture, Look
from peasy.looking.rollout import roll_out
from peasy.looking.similarity import explain_similarity
from peasy.looking.words import find_word, merge, tokens_of, tokens_of_ids, words_there
from peasy.nn.place import Place
from peasy.nn.tap import Tap
from peasy.text import train

IDS = tuple(some_ids(1, 9)[0].tolist())
CROSS = Place("decoder", 0, "cross_attention")


@pytest.mark.parametrize("name", ["learned", "after", "rotary", "softcap", "encoder", "both"])
def test_the_last_lens_layer_is_the_model_output(name):
    model = make(TRANSFORMERS[name])
    reading = Reading(IDS, IDS[:4]) if model.reads_source else Reading(IDS)
    table = lens(model, reading, tokens_of_ids(reading.writes), None)
    expected = torch.softmax(read(model, reading, every=True).float(), -1).topk(3)
    np.testing.assert_allclose(table.chances[-1], expected.values.numpy(), atol=1e-6)
    assert table.final == tuple(f"#{id}" for id in expected.indices[:, 0].tolist())
    assert table.layers == (0, 1, 2, 3)


def test_a_lens_layer_equals_a_truncated_model():
    model = make(DECODERS["rotary"])
    table = lens(model, Reading(IDS), tokens_of_ids(IDS), None, rows=(2, -1))
    model.decoder.blocks = model.decoder.blocks[:1]
    expected = torch.softmax(read(model, Reading(IDS), every=True)[[2, -1]], -1).topk(3)
    np.testing.assert_allclose(table.chances[1], expected.values.numpy(), atol=1e-6)
    assert table.rows == (2, 8)


@pytest.mark.parametrize("name", ["encoder", "encoder-relative", "encoder-alibi"])
def test_word_pairs_sum_to_the_cosine(name):
    model = make(ENCODERS[name])
    tokens = [Tokens("", ids, ("x",) * 5, ("a", "b", "c"), ((0,), (1, 2, 3), (4,))) for ids in (IDS[:5], IDS[4:9])]
    found = explain_similarity(model, *tokens)
    with torch.inference_mode():
        first, second = (model.embed(torch.tensor([each.ids])) for each in tokens)
    cosine = float(torch.nn.functional.cosine_similarity(first, second))
    assert found.cosine == pytest.approx(cosine, abs=1e-6)
    assert found.pairs.sum() == pytest.approx(cosine, abs=1e-6)
    assert found.pairs.shape == (3, 3)
    assert found.token_pairs[1:4, 0].sum() == pytest.approx(found.pairs[1, 0], abs=1e-9)
    left_out = found.pairs.copy()
    left_out[1, 1] = 0
    assert abs(left_out.sum() - cosine) > 1e-6, "the inverse: a missing pair is detected"


def test_only_mean_pooling_can_be_decomposed():
    with pytest.raises(InvalidInput, match="only an encoder"):
        explain_similarity(make(DECODERS["learned"]), tokens_of_ids(IDS), tokens_of_ids(IDS))
    from dataclasses import replace

    model = make(replace(ENCODERS["encoder"], pooling="max"))
    with pytest.raises(InvalidInput, match="pools by max"):
        explain_similarity(model, tokens_of_ids(IDS), tokens_of_ids(IDS))


def words(text: str) -> Tokens:
    each = tuple(text.split())
    return Tokens(
        text, tuple(range(len(each))), each, each, tuple((i,) for i in range(len(each))), tuple(range(len(each)))
    )


def looked(*tables) -> Look:
    capture = Capture(CROSS, "weights", np.array(tables, np.float32), tuple(range(len(tables))), (0, 1, 2))
    return Look("it", "encoder-decoder", words("a b c"), words("<s> x y"), (capture,), ())


def test_alignment_ranks_heads():
    straight, stuck = np.eye(3) * 0.8 + 0.1, np.tile([[0.0, 0.0, 1.0]], (3, 1))
    swapped = straight[[1, 0, 2]]
    found = align(looked(stuck, swapped, straight), words("x y z"))
    assert (found.head, found.scores[-1].head) == (2, 0)
    assert found.scores[-1].monotony == 0, "a head that never moves is sharp but aligns nothing"
    known = align(looked(stuck, swapped, straight), words("x y z"), known=[(1, 0), (0, 1), (2, 2)])
    assert (known.head, known.scores[0].right) == (1, 1.0)
    assert {(s, t) for s, t, _ in known.links(0.5)} == {(1, 0), (0, 1), (2, 2)}
    assert align(looked(stuck, swapped), words("x y z"), head=0).head == 0
    with pytest.raises(InvalidInput, match="no cross-attention"):
        align(Look("it", "decoder", words("a"), None, (), ()), words("a"))


def test_rollout_is_the_product_of_layers():
    model = make(ENCODERS["encoder"])
    _, captures = keep(model, Reading(IDS))
    look = Look("it", "encoder", tokens_of_ids(IDS), None, captures, parts_of(model))
    found = roll_out(look, "encoder")
    expected = np.eye(9)
    for one in captures:
        expected = (one.array.mean(0) + np.eye(9)) / 2 @ expected
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    with pytest.raises(InvalidInput, match="every layer"):
        roll_out(Look("it", "encoder", look.tokens, None, captures[:1], look.parts), "encoder")


def test_scores_of_synthetic_heads():
    ids = torch.tensor([5, 6, 5, 7])
    previous = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    same = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    sums = _Sums(2)
    _add_text(sums, torch.stack([previous, same]), ids)
    assert sums.mean("previous").tolist() == [1.0, pytest.approx((0.5 + 0 + 0.25) / 3)]
    assert sums.mean("same").tolist() == [0.0, 1.0]
    assert float(sums.mean("entropy")[0]) == 0
    assert float(sums.mean("entropy")[1]) == pytest.approx((1 + 0 + 2) / 3)
    assert sums.mean("first").tolist() == [pytest.approx(1 / 3), pytest.approx((0.5 + 1 + 0.25) / 3)]
    np.testing.assert_allclose(sums.mean("profile").sum(-1), 1)


def test_head_report_equals_a_direct_computation():
    model = make(DECODERS["learned"])
    readings = [Reading(tuple(some_ids(1, n, seed=n)[0].tolist())) for n in (6, 9)]
    report = study_heads(model, readings, name="it")
    assert len(report.heads) == 12
    assert (report.sentences, report.tokens) == (2, 15)
    counted = []
    for reading in readings:
        seen = []
        run(model, reading, Tap(seen.append, layers=[1], heads=[2]))
        table = seen[0].array[0, 0].numpy()
        counted += [table[i, i - 1] for i in range(1, len(table))]
    score = next(s for s in report.heads if (s.place.layer, s.head) == (1, 2))
    assert score.previous == pytest.approx(np.mean(counted), abs=1e-6)
    ranked = [score.induction for score in report.ranked("induction")]
    assert ranked == sorted(ranked, reverse=True)
    with pytest.raises(InvalidInput, match="no sentence"):
        study_heads(model, [])


def test_positional_score_separates_positional_from_content_heads():
    """With zero queries only ALiBi decides: the pattern is the same for every text."""
    model = make(DECODERS["alibi"])
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.attention.query.weight.zero_()
            block.attention.query.bias.zero_()
    assert all(score.position > 0.999 for score in study_heads(model, [Reading(IDS)]).heads)
    other = study_heads(make(DECODERS["nowhere"]), [Reading(IDS)])
    assert np.mean([score.position for score in other.heads]) < 0.9


def test_merging_sums_keys_and_averages_queries():
    tokenizer = train(["the pizza tasted good"] * 9, "bpe", 265)
    tokens = tokens_of(tokenizer.encode("the pizza"), tokenizer, before=[0], after=[0])
    assert sorted(place for group in tokens.groups for place in group) == list(range(len(tokens)))
    assert tokens.words[0] == tokens.words[-1] == tokenizer.piece(0)
    assert [n for n in tokens.numbers if n is not None] == [0, 1]
    array = np.random.default_rng(1).dirichlet(np.ones(len(tokens)), (2, len(tokens))).astype(np.float32)
    merged = merge(array, tokens, tokens)
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-5)
    pizza = tokens.words.index("pizza")
    rows = list(tokens.groups[pizza])
    assert merged[1, pizza, 0] == pytest.approx(array[1, rows, 0].mean())
    assert merged[1, 0, pizza] == pytest.approx(array[1, 0, rows].sum())
    some = merge(array[:, rows], tokens, tokens, rows)
    np.testing.assert_allclose(some[:, 0], merged[:, pizza], atol=1e-6)
    assert words_there(tokens, rows) == ("pizza",)
    assert find_word(tokens, "PIZZA") == tokens.groups[pizza]
    assert find_word(tokens, -1) == (len(tokens) - 1,)
    with pytest.raises(InvalidInput, match="not in the text") as error:
        find_word(tokens, "piza")
    assert "Did you mean pizza?" in str(error.value.hint)
