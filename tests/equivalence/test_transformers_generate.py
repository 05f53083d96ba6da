"""Equal to transformers' generate: greedy and beam search, with and without a cache, one text and a batch."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from peasy.commands.load import load
from peasy.generation.decode import beam_search, generate
from peasy.generation.sampling_params import BeamSearchParams, SamplingParams

NEW = 12
LENGTHS = (9, 3, 6)


def some_texts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(3, 57, (length,), generator=generator).tolist() for length in LENGTHS]


def until_eos(ids: list[int], eos_ids: tuple[int, ...]) -> list[int]:
    """Cut after the first eos id."""
    stop = next((i for i, id in enumerate(ids) if id in eos_ids), len(ids))
    return ids[: stop + 1]


def greedy(theirs, **inputs) -> list[list[int]]:
    theirs.generation_config.forced_eos_token_id = None
    padding = theirs.config.pad_token_id if theirs.config.pad_token_id is not None else 0
    with torch.no_grad():
        output = theirs.generate(
            **inputs,
            max_new_tokens=NEW,
            do_sample=False,
            num_beams=1,
            pad_token_id=padding,
            use_cache=not theirs.config.is_encoder_decoder,  # transformers fails if the decoder has more layers
        )
    return output.tolist()


def with_head(theirs):
    """Return a bare GPT-2 with a tied LM head."""
    whole = transformers.GPT2LMHeadModel(theirs.config).eval()
    whole.transformer = theirs
    whole.tie_weights()
    return whole


def padded(texts: list[list[int]], side: str) -> dict[str, torch.Tensor]:
    longest = max(map(len, texts))
    rows, masks = [], []
    for text in texts:
        gap = longest - len(text)
        rows.append([1] * gap + text if side == "left" else text + [1] * gap)
        masks.append([0] * gap + [1] * len(text) if side == "left" else [1] * len(text) + [0] * gap)
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


@pytest.mark.parametrize("use_cache", [True, False])
def test_decoder(decoder, use_cache):
    theirs = decoder.theirs if decoder.theirs.can_generate() else with_head(decoder.theirs)
    texts, eos_ids = some_texts(), decoder.ours.config.special_tokens.eos
    single = [greedy(theirs, input_ids=torch.tensor([text]))[0][len(text) :] for text in texts]
    batched = [row[max(LENGTHS) :] for row in greedy(theirs, **padded(texts, "left"))]
    generated = generate(decoder.ours, texts, SamplingParams(NEW), use_cache=use_cache)
    assert generated == [until_eos(ids, eos_ids) for ids in single]
    assert generated == [until_eos(ids, eos_ids) for ids in batched]
    for text, expected in zip(texts, generated, strict=True):
        assert generate(decoder.ours, [text], SamplingParams(NEW), use_cache=use_cache) == [expected]


@pytest.mark.parametrize("use_cache", [True, False])
def test_translator(translator, use_cache):
    texts, eos_ids = some_texts(), translator.ours.config.special_tokens.eos
    single = [greedy(translator.theirs, input_ids=torch.tensor([text]))[0][1:] for text in texts]
    batched = [row[1:] for row in greedy(translator.theirs, **padded(texts, "right"))]
    generated = generate(translator.ours, None, SamplingParams(NEW), source=texts, use_cache=use_cache)
    assert generated == [until_eos(ids, eos_ids) for ids in single]
    assert generated == [until_eos(ids, eos_ids) for ids in batched]


def test_continuations_are_not_constant(case_of):
    """A model that repeats one token would make the tests above trivial."""
    generated = generate(case_of("llama-bands").ours, some_texts(), SamplingParams(NEW))
    assert len({tuple(ids) for ids in generated}) == len(LENGTHS)
    assert all(len(set(ids)) > 2 for ids in generated)


def test_wrong_rotation_is_detected(case_of, monkeypatch):
    from peasy.nn import position

    case, texts = case_of("llama-bands"), some_texts()
    right = generate(case.ours, texts, SamplingParams(NEW))
    monkeypatch.setattr(position, "_scale_frequency", lambda frequency, settings: frequency)
    assert generate(case.ours, texts, SamplingParams(NEW)) != right


EOS_IDS = tuple(range(1, 61, 6))
"""Many eos ids, so that beams end at different lengths."""


def their_beams(theirs, text, early_stopping, penalty, num_beams=4):
    theirs.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        output = theirs.generate(
            input_ids=torch.tensor([text]), max_new_tokens=NEW, do_sample=False, num_beams=num_beams,
            eos_token_id=list(EOS_IDS), num_return_sequences=num_beams, length_penalty=penalty, pad_token_id=60,
            early_stopping={"always": True, "heuristic": False, "never": "never"}[early_stopping],
            return_dict_in_generate=True, output_scores=True, use_cache=not theirs.config.is_encoder_decoder,
        )  # fmt: skip
    start = 1 if theirs.config.is_encoder_decoder else len(text)
    rows = [until_eos(row[start:], EOS_IDS) for row in output.sequences.tolist()]
    return rows, output.sequences_scores.tolist()


def our_beams(ours, text, early_stopping, penalty, num_beams=4):
    special_tokens = ours.config.special_tokens
    ours.config = replace(ours.config, special_tokens=replace(special_tokens, eos=EOS_IDS))
    params = BeamSearchParams(num_beams, NEW, penalty, n=num_beams, early_stopping=early_stopping)
    inputs = {"source": [text]} if ours.is_encoder_decoder else {"prompts": [text]}
    try:
        best = beam_search(ours, params=params, **inputs)[0].hypotheses
    finally:
        ours.config = replace(ours.config, special_tokens=special_tokens)
    return [list(one.ids) for one in best], [one.score for one in best]


@pytest.mark.parametrize(
    ("early_stopping", "penalty"), [("heuristic", 1.0), ("always", 0.6), ("never", 2.0), ("heuristic", 0.0)]
)
@pytest.mark.parametrize("name", ["marian", "t5", "llama-bands"])
def test_beams(case_of, name, early_stopping, penalty):
    case = case_of(name)
    for text in some_texts():
        rows, scores = their_beams(case.theirs, text, early_stopping, penalty)
        output, ours = our_beams(case.ours, text, early_stopping, penalty)
        assert output == rows
        assert ours == pytest.approx(scores, abs=1e-4)


def test_beams_end_at_different_lengths(case_of):
    """Beams that never end would make the test above trivial."""
    cases = [case_of(name).ours for name in ("marian", "t5", "llama-bands")]
    lengths = {
        len(ids) for ours in cases for text in some_texts() for ids in our_beams(ours, text, "heuristic", 0.0)[0]
    }
    assert len(lengths) > 2


@pytest.mark.parametrize("is_object", [False, True])
@pytest.mark.parametrize("generation", [{"eos_token_id": [6, 7]}, {"eos_token_id": 8, "temperature": 0.6}, None])
def test_generation_config_ends_the_text(tmp_path, generation, is_object):
    """Chat models often end a turn with an id that only generation_config.json names; without the file config.json."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=32, **sizes, eos_token_id=5)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    file = tmp_path / "generation_config.json"
    file.unlink() if generation is None else file.write_text(json.dumps(generation))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = theirs.generation_config.eos_token_id
    eos = load(theirs if is_object else tmp_path).model.config.special_tokens.eos
    assert list(eos) == (expected if isinstance(expected, list) else [expected])


def test_generation_config_starts_the_text(tmp_path):
    """Transformers 5 writes the forced first id of a translation into generation_config.json alone."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.BartConfig(vocab_size=57, d_model=16, max_position_embeddings=40, **sizes, **heads)
    theirs = transformers.BartForConditionalGeneration(config).eval()
    theirs.generation_config.forced_bos_token_id = 9
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path).model
    assert ours.config.special_tokens.forced_bos == 9
    generated = generate(ours, None, SamplingParams(NEW), source=some_texts()[:1])
    expected = greedy(theirs, input_ids=torch.tensor(some_texts()[:1]))[0][1:]
    assert [9, *generated[0]][:NEW] == expected  # in peasy the forced id belongs to the prompt of the decoder
