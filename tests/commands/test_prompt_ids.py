"""How a prompt becomes ids: the model that is looked into is the one that is evaluated."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from tests.server.tiny_server import LOCAL
from tests.tokenization.tokenizer_files import make_tokenizer

import peasy
from peasy.checkpoint.model import save_model
from peasy.cli.app import run
from peasy.commands.align import align
from peasy.commands.beams import beams
from peasy.commands.evaluate import evaluate
from peasy.commands.load import load
from peasy.commands.tokenize import tokenize
from peasy.commands.train import train
from peasy.datasets import Corpus, TextPair, open_corpus
from peasy.generation.request import Request
from peasy.inspection.forward import forward_logits
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.training.learner import seeded_generator
from peasy.training.objective import IGNORE_INDEX, MaskedToken

TEXT = "The pizza came out of the oven and it tasted good."
SOURCE = Path(peasy.__file__).parent


def look_loss(loaded, text, target=None):
    """Return the loss in nats per token of what `look` reads: of the text, or of a translation, up to eos."""
    model_input = loaded.look(text, target).labelled_input.model_input
    logprobs = forward_logits(loaded.model, model_input, all_positions=True).log_softmax(-1)
    targets = [*model_input.output_ids[1:], loaded.model.config.special_tokens.eos[0]]
    return float(-logprobs[range(len(targets)), targets].mean())


def save(folder, name, tokenizer, **changes):
    """Save an untrained model with this tokenizer, whose special tokens it has."""
    special, eos = tokenizer.special_tokens, tokenizer.special_tokens.eos
    tokens = {"bos": special.bos, "eos": [] if eos is None else [eos], "pad": special.pad, "mask": special.mask}
    config = preset(name, vocab_size=len(tokenizer), special_tokens=tokens | {"decoder_start": special.pad}, **changes)
    save_model(folder, build(config, seed=1), tokenizer)
    return load(folder)


class OneSample(Corpus):
    """Corpus of one text, or one pair."""

    name, description, licence, splits = "one", "", "", ("valid",)

    def __init__(self, sample):
        super().__init__()
        self.sample, self.kind = sample, "text" if isinstance(sample, str) else "pairs"

    def read(self, split):
        yield self.sample


@pytest.fixture
def one_text():
    return OneSample(TEXT)


def test_stories_is_looked_into_as_it_is_evaluated(one_text):
    loaded = load("stories")
    assert look_loss(loaded, TEXT) == pytest.approx(evaluate(loaded, one_text)["loss"], rel=1e-5)
    result = loaded.look(TEXT)
    assert result.tokens.pieces[0] == "<bos>"
    assert result.tokens.ids[0] == loaded.model.config.special_tokens.bos
    without = loaded.look(TEXT, add_special_tokens=False)
    assert without.tokens.ids == result.tokens.ids[1:]
    # Inverse: without its first token this is another model, far from the one that was measured.
    texts = list(open_corpus("stories", num_valid=60).texts("valid"))[:60]
    with_bos, without_bos = (np.mean([_text_loss(loaded, text, add) for text in texts]) for add in (True, False))
    assert with_bos < without_bos - 0.5


def _text_loss(loaded, text, add_special_tokens):
    ids = torch.tensor([loaded.encode_prompt(text, add_special_tokens=add_special_tokens)])
    with torch.inference_mode():
        logprobs = loaded.model(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])
    return -float(logprobs.mean())


@pytest.mark.parametrize("name", ["locales-fr", "locales-fr-2015"])
def test_translators_are_looked_into_as_they_are_evaluated(name):
    loaded, pair = load(name), TextPair("3 days ago", "il y a 3 jours")
    assert look_loss(loaded, pair.source, pair.target) == pytest.approx(
        evaluate(loaded, OneSample(pair))["loss"], rel=1e-4
    )


def test_sentences_are_embedded_as_they_are_looked_into():
    loaded = load("sentences")
    states = np.asarray(loaded.look(TEXT, steps=("final",)).activations("final"))
    mean = states.mean(axis=0)
    np.testing.assert_allclose(loaded.embed(TEXT).vectors[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_words_read_what_they_are_evaluated_on(one_text):
    loaded = load("words")
    ids = torch.tensor([[*loaded.encode_prompt(TEXT), loaded.model.config.special_tokens.eos[0]]])
    with torch.inference_mode():
        logprobs = loaded.model(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])
    assert -float(logprobs.mean()) == pytest.approx(evaluate(loaded, one_text)["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [("gpt2-tiny", "gpt2"), ("llama-tiny", "llama"), ("llama-tiny", "llama-3"), ("gpt-tiny", "gemma")],
)
def test_decoder_families(name, tokenizer, tmp_path, one_text):
    name = name if name != "gpt2-tiny" else "gpt-tiny"
    loaded = save(tmp_path / "model", name, make_tokenizer(tokenizer))
    assert look_loss(loaded, TEXT) == pytest.approx(evaluate(loaded, one_text)["loss"], rel=1e-5)


def test_masked_language_models_read_their_special_tokens(tmp_path, one_text):
    """Second computation: the tokens of `look`, masked by the same generator, except [CLS] and [SEP]."""
    tokenizer = make_tokenizer("bert")
    loaded = save(tmp_path / "model", "encoder-tiny", tokenizer)
    ids = torch.tensor([loaded.look(TEXT).tokens.ids])
    assert [tokenizer.token(int(id)) for id in ids[0, [0, -1]]] == ["[CLS]", "[SEP]"]
    is_text = torch.ones_like(ids, dtype=torch.bool)
    is_text[:, [0, -1]] = False
    masked = MaskedToken().prepare(
        {"ids": ids, "padding_mask": is_text}, loaded.model.config, seeded_generator(0, 0, 0)
    )
    with torch.inference_mode():
        logits = loaded.model.logits(loaded.model.hidden(masked["ids"]))
    loss = torch.nn.functional.cross_entropy(logits[0], masked["targets"][0], ignore_index=IGNORE_INDEX)
    assert float(loss) == pytest.approx(evaluate(loaded, one_text)["loss"], rel=1e-5)


def test_translators_with_a_unigram_tokenizer(tmp_path):
    loaded = save(tmp_path / "model", "translator-tiny", make_tokenizer("t5"))
    pair = TextPair("The pizza", "it tasted good")
    expected = evaluate(loaded, OneSample(pair))["loss"]
    assert look_loss(loaded, pair.source, pair.target) == pytest.approx(expected, rel=1e-5)
    assert loaded.look(pair.source, pair.target).tokens.pieces[-1] == "</s>"


@pytest.mark.parametrize("kind", ["gpt", "rnn", "cnn"])
def test_a_model_of_documents_begins_prompts_as_in_training(kind, tmp_path):
    """Training writes it into the tokenizer; an older run without it is recognised by its recipe."""
    settings = {"num_samplings": 1, "num_validations": 1}
    corpus = open_corpus("stories", num_train=100, num_valid=10)
    loaded = train(kind, corpus, preset="tiny", steps=2, run=tmp_path / "run", settings=settings).model
    eos = loaded.tokenizer.special_tokens.eos
    assert loaded.tokenizer.added_ids == ((eos,), ())
    assert loaded.encode_prompt("The")[0] == loaded.model.config.special_tokens.bos == eos
    older = tmp_path / "older"
    older.mkdir()
    data = json.loads((tmp_path / "run" / "tokenizer.json").read_text(encoding="utf-8"))
    (older / "tokenizer.json").write_text(json.dumps(data | {"post_processor": None}), encoding="utf-8")
    assert tokenize(older, "The").encoding.ids[0] != eos  # inverse: without a recipe there is nothing to tell
    shutil.copy(tmp_path / "run" / "recipe.json", older)
    assert tokenize(older, "The").encoding.pieces[0] == "<bos>"


def test_a_model_of_windows_begins_prompts_with_nothing(tmp_path):
    settings = {"sample_unit": "windows", "num_samplings": 0}
    corpus = open_corpus("stories", num_train=100, num_valid=10)
    loaded = train("gpt", corpus, preset="tiny", steps=2, run=tmp_path / "run", settings=settings).model
    assert loaded.tokenizer.added_ids == ((), ())


def test_only_one_function_encodes_prompts():
    """Outside the tokenizer and the model bundle, texts with special tokens are encoded only for corpora and labels."""
    encodes = re.compile(r"\.(encode_ids|encode)\((?!.*add_special_tokens=False)")
    allowed = {
        "tokenization", "checkpoint/loaded_model.py", "inspection/words.py", "commands/tokenize.py",
        "server/routes/commands.py", "commands/train.py",
    }  # fmt: skip
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if encodes.search(line) and re.search(r"tokenizer\w*(\(\))?\.encode", line)
        if not any(str(path.relative_to(SOURCE)).startswith(name) for name in allowed)
    ]
    assert not found


@pytest.fixture
def ids_read(monkeypatch):
    """Token ids that reach a model: rows of its embedding, and prompts and sources of the engine."""
    rows, look_up, check = [], torch.nn.Embedding.forward, Request.__post_init__

    def embed(module, ids):
        rows.extend(ids.reshape(-1, ids.shape[-1]).tolist() if ids.ndim else [])
        return look_up(module, ids)

    def keep(request):
        rows.extend([[*request.prompt], [*(request.source or ())]])
        check(request)

    monkeypatch.setattr(torch.nn.Embedding, "forward", embed)
    monkeypatch.setattr(Request, "__post_init__", keep)
    return rows


def _answered(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text


ENTRIES = {
    "look": lambda model, text, client: model.look(text),
    "forward_pass": lambda model, text, client: peasy.forward_pass(model, text, story=False, ablations=False),
    "heads": lambda model, text, client: model.heads(text),
    "evaluate": lambda model, text, client: evaluate(model, OneSample(text)),
    "command look": lambda model, text, client: run(["look", str(model.folder), text, "--quiet"]),
    "/api/look": lambda model, text, client: _answered(client, "/api/look", model=model.folder.name, text=text),
    "/api/forward-pass": lambda model, text, client: _answered(
        client, "/api/forward-pass", model=model.folder.name, text=text
    ),
}
GENERATING = ENTRIES | {
    "generate": lambda model, text, client: model.generate(text, max_tokens=1),
    "stream": lambda model, text, client: list(model.stream(text, max_tokens=1)),
    "generate without cache": lambda model, text, client: model.generate(text, max_tokens=1, use_cache=False),
    "speculative": lambda model, text, client: model.generate(text, max_tokens=1, speculative=True),
    "trace": lambda model, text, client: model.trace(text, max_tokens=1),
    "beams": lambda model, text, client: beams(model, text, max_tokens=1),
    "sweep": lambda model, text, client: model.sweep(text, metric=lambda logits: logits[:, 0], method="zero"),
    "explain": lambda model, text, client: peasy.explain(text, model=str(model.folder), head=0),
    "command generate": lambda model, text, client: run(
        ["generate", str(model.folder), text, "--max-tokens", "1", "--quiet"]
    ),
    "/api/generate": lambda model, text, client: _answered(
        client, "/api/generate", model=model.folder.name, prompt=text, max_tokens=1
    ),
    "/api/trace": lambda model, text, client: _answered(
        client, "/api/trace", model=model.folder.name, text=text, max_tokens=1
    ),
    "/v1/completions": lambda model, text, client: _answered(
        client, "/v1/completions", model=model.folder.name, prompt=text, max_tokens=1
    ),
}
EMBEDDING = {name: entry for name, entry in ENTRIES.items() if name != "evaluate"} | {  # which masks some
    "embed": lambda model, text, client: model.embed(text),
    "explain": lambda model, text, client: peasy.explain(text, model=str(model.folder), head=0),
    "command embed": lambda model, text, client: run(["embed", str(model.folder), text, "--quiet"]),
    "/v1/embeddings": lambda model, text, client: _answered(
        client, "/v1/embeddings", model=model.folder.name, input=text
    ),
}
TRANSLATING = {name: entry for name, entry in ENTRIES.items() if name != "evaluate"} | {
    "translate": lambda model, text, client: model.translate(text, max_tokens=1),
    "beams": lambda model, text, client: beams(model, text, max_tokens=1),
    "trace": lambda model, text, client: model.trace(text, max_tokens=1),
    "align": lambda model, text, client: align(model, text),
    "evaluate": lambda model, text, client: evaluate(model, OneSample(TextPair(text, text))),
    "command translate": lambda model, text, client: run(["translate", str(model.folder), text, "--quiet"]),
    "/api/translate": lambda model, text, client: _answered(
        client, "/api/translate", model=model.folder.name, text=text
    ),
    "/v1/completions": lambda model, text, client: _answered(
        client, "/v1/completions", model=model.folder.name, prompt=text, max_tokens=1
    ),
}
BUILT_IN = {
    "stories": GENERATING, "repeats": GENERATING, "sentences": EMBEDDING,
    "locales-fr": TRANSLATING,
    "locales-fr-2015": {name: entry for name, entry in TRANSLATING.items() if name != "heads"},
}  # fmt: skip
SAVED = {
    ("gpt-tiny", "gpt2"): GENERATING, ("gpt-tiny", "gpt2-prefix-space"): GENERATING,
    ("llama-tiny", "llama"): GENERATING,
    ("llama-tiny", "llama-3"): GENERATING, ("gpt-tiny", "gemma"): GENERATING, ("encoder-tiny", "bert"): EMBEDDING,
    ("translator-tiny", "t5"): TRANSLATING,
}  # fmt: skip


def _differing_entries(loaded, entries, text, rows):
    """Return the entries through which the model reads other ids than those of `encode_prompt`."""
    expected, wrong = loaded.encode_prompt(text), {}
    assert expected == list(tokenize(loaded, text).encoding.ids) == list(tokenize(loaded.folder, text).encoding.ids)
    with TestClient(build_app(ModelRegistry([loaded.folder]), pages=False), base_url=LOCAL) as client:
        for name, entry in entries.items():
            rows.clear()
            entry(loaded, text, client)
            if not any(row[: len(expected)] == expected for row in rows):
                wrong[name] = rows[:3]
    return wrong


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_entry_of_built_in_models_reads_the_same_ids(name, ids_read, capsys):
    text = "3 days ago" if name.startswith("locales") else "a b c a b" if name == "repeats" else TEXT
    assert _differing_entries(load(name), BUILT_IN[name], text, ids_read) == {}


@pytest.mark.parametrize(("name", "kind"), SAVED)
def test_every_entry_reads_the_same_ids_with_every_kind_of_tokenizer(name, kind, tmp_path, ids_read, capsys):
    loaded = save(tmp_path / "model", name, make_tokenizer(kind))
    for text in (TEXT, "It  tasted", " good"):
        assert _differing_entries(loaded, SAVED[name, kind], text, ids_read) == {}


def test_another_way_to_ids_would_be_found(ids_read, capsys):
    """The inverse: an entry that leaves out the special tokens."""
    careless = {"look": lambda model, text, client: model.look(text, add_special_tokens=False)}
    assert list(_differing_entries(load("stories"), careless, TEXT, ids_read)) == ["look"]
