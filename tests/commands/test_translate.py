"""`translate`: same results as beam search, in order, with scores and alignments."""

import json

import numpy as np
import pytest
import torch

import peasy
from peasy.checkpoint.model import save_model
from peasy.commands.translate import translate
from peasy.errors import InvalidInput
from peasy.generation import decode
from peasy.generation.decode import beam_search
from peasy.generation.sampling_params import BeamSearchParams
from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, SpecialTokensConfig
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer

TEXTS = ["the cat", "the dog sat on the mat", "sat", "on the mat"]


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def loaded(request, tmp_path_factory):
    words = train_tokenizer(["the cat sat on the mat", "the dog"] * 9, "words")
    special_tokens = SpecialTokensConfig(decoder_start=1, eos=(2,))
    if request.param == "transformer":
        settings = preset(
            "translator-tiny", vocab_size=len(words), d_model=16, special_tokens={"decoder_start": 1, "eos": [2]}
        )
    else:
        settings = RecurrentTranslatorConfig(len(words), 16, special_tokens=special_tokens)
    folder = tmp_path_factory.mktemp("models") / request.param
    save_model(folder, build(settings, seed=3), words)
    return peasy.load(folder)


def test_translations_equal_beam_search(loaded):
    result = translate(loaded, TEXTS, num_beams=3, n=2, max_tokens=6)
    for text, one in zip(TEXTS, result.translations, strict=True):
        ids = list(loaded.tokenizer.encode(text).ids)
        best = beam_search(loaded.model, params=BeamSearchParams(3, 6, n=2), source=[ids])[0].hypotheses
        assert [hypothesis.ids for hypothesis in one.hypotheses] == [hypothesis.ids for hypothesis in best]
        assert one.source == text
        assert one.text == loaded.tokenizer.decode(best[0].ids)
        assert one.score == pytest.approx(best[0].score, rel=1e-6)
        assert [hypothesis.ids for hypothesis in one.others] == [best[1].ids]
    assert json.dumps(result.data())
    assert result.texts[0] in result.text()


def test_one_beam_equals_generate(loaded):
    assert loaded.translate("the cat sat", max_tokens=6).text == loaded.generate("the cat sat", max_tokens=6).texts[0]


def test_alignment_is_cross_attention(loaded):
    result = loaded.translate("the dog sat on the mat", num_beams=2, max_tokens=5)
    aligned = result.alignment()
    assert aligned.weights.shape == (len(aligned.target.words), 6)
    np.testing.assert_allclose(np.asarray(aligned).sum(axis=1), 1, atol=1e-5)
    assert aligned.source.words == ("the", "dog", "sat", "on", "the", "mat")
    assert aligned.target.ids == result.hypotheses[0].ids, "the generated ids, not the text tokenized again"
    assert [word for word, _ in aligned.best()] == list(aligned.target.words)
    assert "sat" in str(aligned)
    assert json.dumps(aligned.data())
    with pytest.raises(InvalidInput, match="no layer 9"):
        result.alignment(layer=9)
    with pytest.raises(InvalidInput, match="no head 9"):
        result.alignment(head=9)


def test_gold_alignments_rank_heads(loaded):
    result = translate(loaded, ["the dog sat", "the cat"], gold=[[(0, 0), (1, 1)], [(0, 0)]], max_tokens=5)
    first = result.alignments[0]
    assert first.scores[0].accuracy == max(score.accuracy for score in first.scores)
    assert first.gold == ((0, 0), (1, 1))
    errors = [one.errors() for one in result.alignments]
    correct, links = (sum(getattr(one, name) for one in errors) for name in ("num_correct", "num_gold"))
    assert result.alignment_errors.recall == result.data()["alignment_errors"]["recall"] == correct / links
    assert result.alignment_errors.summary() in " ".join(result.text().split())
    assert translate(loaded, "the dog", align=True, max_tokens=3).alignment_errors is None
    with pytest.raises(InvalidInput, match="2 texts and 1 gold"):
        translate(loaded, ["the dog", "the cat"], gold=[[(0, 0)]], max_tokens=3)
    with pytest.raises(InvalidInput, match="source has no word 9"):
        translate(loaded, ["the dog"], gold=[[(9, 0)]], max_tokens=3)


def test_alignment_row_belongs_to_generated_token(loaded):
    """A token's weights come from the forward pass that generated it: decoding with a tap gives the same rows."""
    from peasy.inspection.words import merge_words
    from peasy.nn.tap import Tap

    result = loaded.translate("the dog sat", max_tokens=4)
    aligned, model, rows = result.alignment(), loaded.model, []
    seen = []
    tap = Tap(seen.append, steps=["weights"], parts=["cross_attention"], heads=[aligned.head])
    with torch.inference_mode():
        state = model.new_state(source=torch.tensor([loaded.encode_prompt("the dog sat")]))
        for id in (1, *result.hypotheses[0].ids[:-1]):
            seen.clear()
            model.forward_varlen([[id]], [state], tap=[tap])
            rows.append(next(s.array[0, 0, -1] for s in seen if s.path.layer == aligned.path.layer))
    expected = merge_words(torch.stack(rows).numpy(), aligned.target, aligned.source)
    np.testing.assert_allclose(aligned.weights, expected, atol=1e-5)


def test_one_failure_does_not_affect_others(loaded):
    result = translate(loaded, ["the cat", "", "sat"], max_tokens=4)
    assert [one.error is None for one in result.translations] == [True, False, True]
    assert result.texts[2] == loaded.translate("sat", max_tokens=4).text
    with pytest.raises(InvalidInput, match="nothing to translate"):
        loaded.translate("")


def test_only_translators_translate(decoder):
    with pytest.raises(InvalidInput, match="does not translate"):
        peasy.load(decoder).translate("The pizza")
    with pytest.raises(InvalidInput, match="no text"):
        translate(peasy.load(decoder), [])


def test_a_source_without_tokens_is_its_language_alone(monkeypatch):
    """Of invisible characters a tokenizer may make nothing: bos, as of an empty prompt, would be a word."""
    words = train_tokenizer(["en fr the cat sat on the mat"] * 9, "wordpiece", vocab_size=80)
    assert words.encode_ids("\u200b", add_special_tokens=False) == []
    settings = preset("translator-tiny", vocab_size=len(words), special_tokens={"decoder_start": 1, "eos": [3]})
    loaded, given = peasy.load(build(settings, seed=4), tokenizer=words), []
    monkeypatch.setattr(
        decode,
        "run_requests",
        lambda engine, requests, run=decode.run_requests: run(engine, given.append(requests) or requests),
    )
    translate(loaded, "\u200b", source_language="en", max_tokens=2)
    assert [request.source for request in given[0]] == [(words.id("en"), 3)]


def test_languages_are_tokens_before_source_and_target(tmp_path):
    """Two ways: the flags, and the ids of the tokens put in by hand."""
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.tokenization import train_tokenizer

    words = train_tokenizer(["__en__ __fr__ the cat sat on the mat"] * 9, "words")
    english, french = (words.id(f"__{name}__") or words.id(name) for name in ("en", "fr"))
    names = [words.token(id) for id in (english, french)]
    settings = preset("translator-tiny", vocab_size=len(words), special_tokens={"decoder_start": 1, "eos": [2]})
    loaded = peasy.load(build(settings, seed=4), tokenizer=words)
    result = translate(loaded, "the cat", source_language=names[0], target_language=names[1], max_tokens=5)
    source = [english, *words.encode("the cat", add_special_tokens=False).ids, 2]
    expected = generate(loaded.model, [[1, french]], SamplingParams(5), source=[source])[0]
    assert list(result.translations[0].hypotheses[0].ids) == expected
    with pytest.raises(InvalidInput, match="no token for the language"):
        translate(loaded, "the cat", target_language="xx")
