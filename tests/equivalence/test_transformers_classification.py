"""Equal to transformers on tiny classification heads, of texts and tokens; labels and weights survive the roundtrip."""

import pytest
import torch
from tests.equivalence import conftest as tiny
from tests.equivalence.conftest import Case

from peasy.checkpoint.huggingface import load_model, read_folder, write_folder
from peasy.commands.classify import classify
from peasy.commands.exporting import export_model
from peasy.commands.load import LoadedModel
from peasy.errors import InvalidInput
from peasy.tokenization import train_tokenizer

FAMILIES = {
    "Bert": tiny.SMALL_BERT,
    "Roberta": tiny.SMALL_BERT | {"type_vocab_size": 1},
    "XLMRoberta": tiny.SMALL_BERT | {"type_vocab_size": 1},
    "Camembert": tiny.SMALL_BERT | {"type_vocab_size": 1},
    "DistilBert": tiny.SMALL_DISTILBERT,
    "MPNet": tiny.SMALL_BERT,
    "Electra": tiny.SMALL_BERT | {"embedding_size": 16},
    "Albert": tiny.SMALL_BERT | {"embedding_size": 16},
    "ModernBert": tiny.SMALL_MODERNBERT,
    "GPT2": tiny.SMALL_GPT2 | {"pad_token_id": 0},
    "Llama": tiny.SMALL_LLAMA | {"pad_token_id": 0, "num_key_value_heads": 2},
    "Qwen2": tiny.SMALL_LLAMA | {"pad_token_id": 0, "num_key_value_heads": 2},
    "GPTNeo": tiny.SMALL_NEO | {"pad_token_id": 0},
    "GPTNeoX": tiny.SMALL_NEOX | {"pad_token_id": 0},
    "OPT": tiny.SMALL_OPT | {"pad_token_id": 1},
    "Falcon": tiny.SMALL_FALCON | {"pad_token_id": 0},
    "Gemma2": tiny.SMALL_LLAMA | {"pad_token_id": 0, "head_dim": 6, "num_key_value_heads": 2, "sliding_window": 4},
}
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}


def make(name: str, level: str, home, **changes) -> Case:
    settings = FAMILIES[name] | LABELS | changes
    return Case(f"{name}-{level}", f"{name}For{level}Classification", f"{name}Config", settings, home)


def ids_and_mask() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, 59, (3, 11), generator=torch.Generator().manual_seed(4))
    mask = torch.arange(11)[None] < torch.tensor([11, 7, 2])[:, None]
    return ids.masked_fill(~mask, 0), mask


HEADS = [(name, level) for name in FAMILIES for level in ("Sequence", "Token") if (name, level) != ("OPT", "Token")]
"""transformers has no head of OPT for tokens."""


@pytest.mark.parametrize(("name", "level"), HEADS)
def test_logits_and_roundtrip(tmp_path, name, level):
    case = make(name, level, tmp_path / "in")
    ids, mask = ids_and_mask()
    if case.theirs.config.pad_token_id:  # positions of RoBERTa are counted from its padding id
        ids = ids.masked_fill(~mask, case.theirs.config.pad_token_id)
    with torch.no_grad():
        expected = case.theirs(ids, attention_mask=mask.long()).logits
        logits = case.ours.classify(ids, padding_mask=mask)
    if level == "Token":
        expected, logits = expected[mask], logits[mask]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert case.ours.config.classifier.labels == ("bad", "fair", "good")
    imported = read_folder(case.folder)
    write_folder(tmp_path / "out", imported.config, imported.tensors, family=imported.family)
    assert read_folder(tmp_path / "out").config == imported.config
    again = type(case.theirs).from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    with torch.no_grad():
        assert torch.equal(
            again(ids, attention_mask=mask.long()).logits, case.theirs(ids, attention_mask=mask.long()).logits
        )


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
def test_a_classifying_decoder_writes_no_text(tmp_path, name):
    loaded = LoadedModel("reviews", make(name, "Sequence", tmp_path).ours, train_tokenizer(["the oven"] * 9, "words"))
    with pytest.raises(InvalidInput, match="classification head"):
        loaded.generate("the oven")
    assert loaded.look("the oven").tokens.ids
    with pytest.raises(InvalidInput, match="classification head"):
        export_model(loaded, tmp_path / "out", format="gguf")


def test_mean_pooling(tmp_path):
    case = make("ModernBert", "Sequence", tmp_path, classifier_pooling="mean")
    ids, mask = ids_and_mask()
    with torch.no_grad():
        expected = case.theirs(ids, attention_mask=mask.long()).logits
        torch.testing.assert_close(case.ours.classify(ids, padding_mask=mask), expected, atol=1e-4, rtol=0)


def test_several_labels_per_text(tmp_path):
    case = make("Bert", "Sequence", tmp_path, problem_type="multi_label_classification")
    assert case.ours.config.classifier.multi_label


def test_probabilities_are_those_of_the_pipeline(tmp_path):
    case = make("DistilBert", "Sequence", tmp_path / "in")
    tokenizer = train_tokenizer(["the pizza was good and the oven was hot"] * 9, "words")
    result = classify(LoadedModel("reviews", case.ours, tokenizer), ["the pizza was good", "the oven"])
    ids = torch.tensor([tokenizer.encode_ids("the oven")])
    with torch.no_grad():
        expected = case.theirs(ids).logits.softmax(-1)[0]
    scores = {one.label: one.probability for one in result.labels[1].scores}
    assert scores == pytest.approx(dict(zip(LABELS["label2id"], expected.tolist(), strict=True)), abs=1e-5)
    assert result.labels[1].label == max(scores, key=scores.get)
    assert [one["text"] for one in result.data()["results"]] == ["the pizza was good", "the oven"]
    assert result.note is None
    cut = classify(
        LoadedModel("reviews", case.ours, tokenizer), ["the oven", "the oven " * case.ours.config.max_seq_len]
    )
    assert cut.note.startswith("1 of 2 texts were cut to the first")
    assert cut.note in " ".join(cut.text().split())
    assert cut.data()["note"] == cut.note


def test_tokens_get_labels_at_their_characters(tmp_path):
    case = make("Bert", "Token", tmp_path / "in")
    tokenizer = train_tokenizer(["the pizza was good and the oven was hot"] * 9, "words")
    text = "the oven was hot"
    [labels] = classify(LoadedModel("names", case.ours, tokenizer), text).labels
    assert [text[one.start : one.end].strip() for one in labels.tokens] == text.split()
    ids = torch.tensor([tokenizer.encode_ids(text)])
    with torch.no_grad():
        best = case.theirs(ids).logits[0].argmax(-1).tolist()
    kept = [label for label, (start, end) in zip(best, tokenizer.encode(text).offsets, strict=True) if end > start]
    assert [one.label for one in labels.tokens] == [("bad", "fair", "good")[label] for label in kept]


def test_swapped_labels_are_detected(tmp_path):
    """Inverse: a head read in another order gives other labels."""
    case = make("Bert", "Sequence", tmp_path)
    with torch.no_grad():
        case.ours.classifier.output.weight.copy_(case.ours.classifier.output.weight.flip(0).clone())
        ids, mask = ids_and_mask()
        difference = case.ours.classify(ids, padding_mask=mask) - case.theirs(ids, attention_mask=mask.long()).logits
    assert difference.abs().max() > 1e-2


def test_model_without_a_head_is_refused(case_of):
    tokenizer = train_tokenizer(["the oven"] * 9, "words")
    with pytest.raises(InvalidInput, match="classification head"):
        classify(LoadedModel("plain", case_of("bert").ours, tokenizer), "the oven")


@pytest.mark.parametrize("labels", [{"0": "a", "2": "b"}, [], {"0": None}])
def test_broken_labels_are_refused(tmp_path, labels):
    import json

    case = make("Bert", "Sequence", tmp_path)
    info = json.loads((case.folder / "config.json").read_text())
    (case.folder / "config.json").write_text(json.dumps(info | {"id2label": labels}))
    with pytest.raises(InvalidInput, match="id2label"):
        load_model(read_folder(case.folder))
