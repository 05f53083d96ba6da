"""Logit lens, similarity, alignment, rollout, head scores and words, each against a second computation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.inspection.test_capture import capture
from tests.models.tiny_models import DECODERS, ENCODERS, TRANSFORMERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.inspection.alignment import align
from peasy.inspection.analysis import attention_rollout, explain_similarity, logit_lens
from peasy.inspection.forward import ModelInput, attentions_of, forward_hidden, forward_logits
from peasy.inspection.head_scores import _add_sequence, _HeadSums, score_heads
from peasy.inspection.results import AttentionRecord, Capture, Tokens
from peasy.inspection.words import label_ids, label_tokens, merge_words, words_in_rows
from peasy.nn.config import DenseConfig
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Tap
from peasy.tokenization import train_tokenizer

IDS = tuple(some_ids(1, 9)[0].tolist())
CROSS = ModulePath("decoder", 0, "cross_attention")


@pytest.mark.parametrize("name", ["learned", "post-norm", "rotary", "softcap", "encoder", "seq2seq"])
def test_the_last_lens_layer_is_the_model_output(name):
    model = make(TRANSFORMERS[name])
    model_input = ModelInput(IDS, IDS[:4]) if model.is_encoder_decoder else ModelInput(IDS)
    table = logit_lens(model, model_input, label_ids(model_input.output_ids), None)
    expected = torch.softmax(forward_logits(model, model_input, all_positions=True).float(), -1).topk(3)
    np.testing.assert_allclose(table.probabilities[-1], expected.values.numpy(), atol=1e-6)
    assert table.final == tuple(f"#{id}" for id in expected.indices[:, 0].tolist())
    assert table.layers == (0, 1, 2, 3)


def test_a_lens_layer_equals_a_truncated_model():
    model = make(DECODERS["rotary"])
    table = logit_lens(model, ModelInput(IDS), label_ids(IDS), None, rows=(2, -1))
    model.decoder.blocks = model.decoder.blocks[:1]
    expected = torch.softmax(forward_logits(model, ModelInput(IDS), all_positions=True)[[2, -1]], -1).topk(3)
    np.testing.assert_allclose(table.probabilities[1], expected.values.numpy(), atol=1e-6)
    assert table.rows == (2, 8)


@pytest.mark.parametrize("name", ["encoder", "encoder-relative", "encoder-alibi"])
def test_word_pairs_sum_to_the_cosine(name):
    dense = DenseConfig(12, activation=None) if ENCODERS[name].dense else None
    model = make(replace(ENCODERS[name], dense=dense))
    tokens = [Tokens("", ids, ("x",) * 5, ("a", "b", "c"), ((0,), (1, 2, 3), (4,))) for ids in (IDS[:5], IDS[4:9])]
    similarity = explain_similarity(model, *tokens)
    with torch.inference_mode():
        first, second = (model.embed(torch.tensor([sentence.ids])) for sentence in tokens)
    cosine = float(torch.nn.functional.cosine_similarity(first, second))
    assert similarity.cosine == pytest.approx(cosine, abs=1e-6)
    assert similarity.pairs.sum() == pytest.approx(cosine, abs=1e-6)
    assert similarity.pairs.shape == (3, 3)
    assert similarity.token_pairs[1:4, 0].sum() == pytest.approx(similarity.pairs[1, 0], abs=1e-9)
    left_out = similarity.pairs.copy()
    left_out[1, 1] = 0
    assert abs(left_out.sum() - cosine) > 1e-6, "the inverse: a missing pair is detected"


def test_only_mean_pooling_can_be_decomposed():
    with pytest.raises(InvalidInput, match="only an encoder"):
        explain_similarity(make(DECODERS["learned"]), label_ids(IDS), label_ids(IDS))
    with pytest.raises(InvalidInput, match="has a tanh after pooling"):
        explain_similarity(make(ENCODERS["encoder-relative"]), label_ids(IDS), label_ids(IDS))
    model = make(replace(ENCODERS["encoder"], pooling="max"))
    with pytest.raises(InvalidInput, match="pools by max"):
        explain_similarity(model, label_ids(IDS), label_ids(IDS))


def label_words(text: str) -> Tokens:
    pieces = tuple(text.split())
    positions = tuple(range(len(pieces)))
    return Tokens(text, positions, pieces, pieces, tuple((position,) for position in positions), positions)


def cross_attention_record(*tables) -> AttentionRecord:
    capture = Capture(CROSS, "weights", np.array(tables, np.float32), tuple(range(len(tables))), (0, 1, 2))
    return AttentionRecord("it", "encoder-decoder", label_words("a b c"), label_words("<s> x y"), (capture,), ())


def test_alignment_ranks_heads():
    straight, stuck = np.eye(3) * 0.8 + 0.1, np.tile([[0.0, 0.0, 1.0]], (3, 1))
    swapped = straight[[1, 0, 2]]
    alignment = align(cross_attention_record(stuck, swapped, straight), label_words("x y z"))
    assert (alignment.head, alignment.scores[-1].head) == (2, 0)
    assert alignment.scores[-1].monotonicity == 0, "a head that never moves is sharp but aligns nothing"
    with_gold = align(
        cross_attention_record(stuck, swapped, straight), label_words("x y z"), gold=[(1, 0), (0, 1), (2, 2)]
    )
    assert (with_gold.head, with_gold.scores[0].accuracy) == (1, 1.0)
    assert {(s, t) for s, t, _ in with_gold.links(0.5)} == {(1, 0), (0, 1), (2, 2)}
    assert align(cross_attention_record(stuck, swapped), label_words("x y z"), head=0).head == 0
    with pytest.raises(InvalidInput, match="no cross-attention"):
        align(AttentionRecord("it", "decoder", label_words("a"), None, (), ()), label_words("a"))


def test_rollout_is_the_product_of_layers():
    model = make(ENCODERS["encoder"])
    _, captures = capture(model, ModelInput(IDS))
    record = AttentionRecord("it", "encoder", label_ids(IDS), None, captures, attentions_of(model))
    rollout = attention_rollout(record, "encoder")
    expected = np.eye(9)
    for layer in captures:
        expected = (layer.array.mean(0) + np.eye(9)) / 2 @ expected
    np.testing.assert_allclose(rollout, expected, atol=1e-5)
    np.testing.assert_allclose(rollout.sum(1), 1, atol=1e-5)
    with pytest.raises(InvalidInput, match="every layer"):
        attention_rollout(
            AttentionRecord("it", "encoder", record.tokens, None, captures[:1], record.attentions), "encoder"
        )


def test_scores_of_synthetic_heads():
    ids = torch.tensor([5, 6, 5, 7])
    previous = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    same = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    sums = _HeadSums(2)
    _add_sequence(sums, torch.stack([previous, same]), ids)
    assert sums.mean("previous").tolist() == [1.0, pytest.approx((0.5 + 0 + 0.25) / 3)]
    assert sums.mean("same").tolist() == [0.0, 1.0]
    assert float(sums.mean("entropy")[0]) == 0
    assert float(sums.mean("entropy")[1]) == pytest.approx((1 + 0 + 2) / 3)
    assert sums.mean("first").tolist() == [pytest.approx(1 / 3), pytest.approx((0.5 + 1 + 0.25) / 3)]
    np.testing.assert_allclose(sums.mean("profile").sum(-1), 1)


def test_head_report_equals_a_direct_computation():
    model = make(DECODERS["learned"])
    inputs = [ModelInput(tuple(some_ids(1, n, seed=n)[0].tolist())) for n in (6, 9)]
    report = score_heads(model, inputs, name="it")
    assert len(report.heads) == 12
    assert (report.sentences, report.tokens) == (2, 15)
    weights = []
    for model_input in inputs:
        activations = []
        forward_hidden(model, model_input, Tap(activations.append, layers=[1], heads=[2]))
        table = activations[0].array[0, 0].numpy()
        weights += [table[i, i - 1] for i in range(1, len(table))]
    score = next(s for s in report.heads if (s.path.layer, s.head) == (1, 2))
    assert score.previous == pytest.approx(np.mean(weights), abs=1e-6)
    ranked = [score.induction for score in report.ranked("induction")]
    assert ranked == sorted(ranked, reverse=True)
    with pytest.raises(InvalidInput, match="no sentence"):
        score_heads(model, [])


def test_positional_score_separates_positional_from_content_heads():
    """With zero queries only ALiBi decides: the pattern is the same for every text."""
    model = make(DECODERS["alibi"])
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.attention.query.weight.zero_()
            block.attention.query.bias.zero_()
    assert all(score.position > 0.999 for score in score_heads(model, [ModelInput(IDS)]).heads)
    other = score_heads(make(DECODERS["no-position"]), [ModelInput(IDS)])
    assert np.mean([score.position for score in other.heads]) < 0.9


def test_merging_sums_keys_and_averages_queries():
    tokenizer = train_tokenizer(["the pizza tasted good"] * 9, "bpe", 265)
    tokens = label_tokens(tokenizer.encode("the pizza"), tokenizer, prefix_ids=[0], suffix_ids=[0])
    assert sorted(position for group in tokens.word_positions for position in group) == list(range(len(tokens)))
    assert tokens.words[0] == tokens.words[-1] == tokenizer.piece(0)
    assert [n for n in tokens.word_numbers if n is not None] == [0, 1]
    array = np.random.default_rng(1).dirichlet(np.ones(len(tokens)), (2, len(tokens))).astype(np.float32)
    merged = merge_words(array, tokens, tokens)
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-5)
    pizza = tokens.words.index("pizza")
    rows = list(tokens.word_positions[pizza])
    assert merged[1, pizza, 0] == pytest.approx(array[1, rows, 0].mean())
    assert merged[1, 0, pizza] == pytest.approx(array[1, 0, rows].sum())
    some = merge_words(array[:, rows], tokens, tokens, rows)
    np.testing.assert_allclose(some[:, 0], merged[:, pizza], atol=1e-6)
    assert words_in_rows(tokens, rows) == ("pizza",)
    assert tokens.find("PIZZA") == tokens.word_positions[pizza]
    assert tokens.find(-1) == (len(tokens) - 1,)
    with pytest.raises(InvalidInput, match="not in the text") as error:
        tokens.find("piza")
    assert "Did you mean pizza?" in str(error.value.hint)
