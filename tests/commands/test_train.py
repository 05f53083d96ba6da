"""`peasy.train`: from data to a run that loads, resumes and is reproducible."""

import inspect
import json
import signal
import warnings

import pytest

import peasy
from peasy.checkpoint.model import save_model
from peasy.checkpoint.paths import data_dir
from peasy.commands.plan import PlanResult
from peasy.commands.train import TrainOptions, train, train_events
from peasy.datasets import open_corpus
from peasy.datasets.shards import open_shards, shards_fingerprint
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.tokenization import Tokenizer
from peasy.training.attention_snapshots import read_snapshots
from peasy.training.event import Finished, Started, TrainStep

LINES = ["the cat sat on the mat", "a bird sang in the tree", "it tasted good", "he walks to the old town"] * 30
SMALL = {
    "tokenizer": {"algorithm": "characters"}, "seq_len": 8, "seq_len_warmup": None, "batch_size": 2,
    "num_validations": 1, "num_samplings": 1, "num_saves": 2, "validation_tokens": 40,
}  # fmt: skip
TINY = {"d_model": 16}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Empty data directory, and a folder with small data of each kind."""
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    pairs = [f"{line}\t{line[::-1]}" for line in LINES]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    rows = [{"text": f"{line} {i}", "label": line[:3]} for i, line in enumerate(LINES)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return tmp_path


def small(kind: str, data: str, run: str = "fox", **more):
    model = {} if kind == "ngram" else {"model": TINY}
    given = {"preset": "tiny", "steps": 3, "seed": 7, "run": run, "settings": SMALL | model} | more
    return train(kind, data, **given)


@pytest.mark.parametrize(
    ("kind", "data", "model_type", "objective"),
    [
        ("gpt", "lines.txt", "decoder", "next-token"),
        ("rnn", "lines.txt", "recurrent", "next-token"),
        ("cnn", "lines.txt", "convolution", "next-token"),
        ("words", "lines.txt", "words", "next-token"),
        ("ngram", "lines.txt", "ngram", "ngram-counting"),
        ("encoder", "lines.txt", "encoder", "masked-token"),
        ("encoder", "pairs.tsv", "encoder", "contrastive"),
        ("encoder", "rows.jsonl", "encoder", "contrastive"),
        ("translator", "pairs.tsv", "encoder-decoder", "seq2seq"),
        ("rnn-translator", "pairs.tsv", "recurrent-translator", "seq2seq"),
    ],
)
def test_every_kind_trains_and_loads(place, kind, data, model_type, objective):
    result = small(kind, data)
    assert result.folder == place / "home" / "runs" / "fox"
    assert result.run.recipe()["objective"]["kind"] == objective
    loaded = peasy.load("fox")
    assert loaded.kind == model_type
    assert loaded.tokenizer is not None
    steps = [line for line in result.metrics if line["event"] == "step"]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert result.run.facts().validation_loss is not None
    assert bool(result.run.samples()) == (kind not in ("encoder", "words"))
    assert bool(read_snapshots(result.folder)) == (kind in ("gpt", "encoder", "translator", "rnn-translator"))


def test_run_folder_records_versions_and_hashes(place):
    folder = small("gpt", "lines.txt").folder
    about = json.loads((folder / "about.json").read_text())
    assert {"python", "torch", "peasy"} <= set(about["versions"])
    assert len(about["data"]["sha256"]) == len(about["tokenizer"]["sha256"]) == 64
    assert json.loads((folder / "recipe.json").read_text())["data"] == str(place / "lines.txt")
    assert (folder / "tokenizer.json").is_file()


def test_seed_determines_the_model(place):
    seeds = {"one": 7, "two": 7, "other": 8}
    hashes = [small("gpt", "lines.txt", name, seed=seed).run.facts().sha256 for name, seed in seeds.items()]
    assert hashes[0] == hashes[1] != hashes[2]


def test_resume_from_another_folder(place, monkeypatch):
    whole = small("gpt", "lines.txt", "whole", steps=4)
    events = train_events(
        "gpt", "lines.txt", preset="tiny", steps=4, seed=7, run="cut", settings=SMALL | {"model": TINY}
    )
    for event in events:
        if isinstance(event, TrainStep) and event.step == 2:
            events.close()
            break
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    again = train("gpt", run="cut", resume=True)
    assert again.run.facts().sha256 == whole.run.facts().sha256


def test_changed_environment_is_reported(place):
    folder = small("gpt", "lines.txt").folder
    about = json.loads((folder / "about.json").read_text())
    about["machine"]["threads"] = 99
    (folder / "about.json").write_text(json.dumps(about))
    with pytest.warns(UserWarning, match="threads was 99 and is"):
        train("gpt", run="fox", resume=True)


def test_existing_run_is_not_overwritten_or_changed(place):
    small("gpt", "lines.txt")
    with pytest.raises(InvalidInput, match="exists already") as error:
        small("gpt", "lines.txt")
    assert "--resume" in error.value.hint
    with pytest.raises(InvalidInput, match=r"started with another optimizer\.lr"):
        train("gpt", run="fox", resume=True, settings={"optimizer": {"lr": 0.5}})
    with pytest.raises(InvalidInput, match="started with another model_kind"):
        train("rnn", run="fox", resume=True)
    longer = train("gpt", run="fox", resume=True, steps=5)
    assert longer.run.facts().step == 5


def test_resume_translator_with_two_tokenizers(place):
    """Source and target tokenizers differ but share ids, as in imported translators."""
    first = small("translator", "pairs.tsv", "first").model
    letters = sorted({letter for line in LINES for letter in line})
    turned = {letter: first.tokenizer.id(other) for letter, other in zip(letters, letters[::-1], strict=True)}
    data = json.loads((first.folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["vocab"] |= turned
    target_tokenizer = Tokenizer(data, first.tokenizer.config)
    save_model(place / "two", first.model, first.tokenizer, target_tokenizer=target_tokenizer)
    second = small("translator", "pairs.tsv", "second", init_from=place / "two", settings=SMALL)
    assert second.model.target_tokenizer.encode("cat").ids == target_tokenizer.encode("cat").ids
    again = small("translator", "pairs.tsv", "second", init_from=place / "two", settings=SMALL, steps=5, resume=True)
    assert (
        again.model.target_tokenizer.encode("cat").ids
        == target_tokenizer.encode("cat").ids
        != first.tokenizer.encode("cat").ids
    )
    (shards,) = set((place / "home" / "shards").iterdir()) - {_shards_of(first)}
    target = open_shards(shards).column("train", "target").document(0).tolist()
    pair = next(open_corpus(place / "pairs.tsv").documents("train"))
    assert target == list(target_tokenizer.encode(pair.target, add_special_tokens=False).ids)


def _shards_of(loaded):
    return data_dir() / "shards" / shards_fingerprint(open_corpus("pairs.tsv"), loaded.tokenizer)[:24]


def test_train_has_the_signature_of_training():
    """One list of parameters for both, visible to inspect.signature."""
    signature, events = inspect.signature(train), inspect.signature(train_events)
    assert list(signature.parameters) == [*events.parameters, "dry_run"]
    assert [*events.parameters][2:] == [*TrainOptions.__annotations__], "and to type checkers"
    assert signature.return_annotation is not events.return_annotation


def test_explicit_settings_override_corpus_suggestions(place):
    little = {
        "model": TINY,
        "num_validations": 0,
        "num_samplings": 0,
        "data_options": {"num_train": 60, "num_valid": 5},
    }
    recipe = small("gpt", "stories", "one", settings=little).run.recipe()
    assert (recipe["sample_unit"], recipe["seq_len"], recipe["seq_len_warmup"]) == ("documents", 64, None)
    recipe = small("gpt", "stories", "two", settings=little | {"sample_unit": "windows", "seq_len": 16}).run.recipe()
    assert (recipe["sample_unit"], recipe["seq_len"], recipe["batch_size"]) == ("windows", 16, 48)
    assert (
        small("ngram", "stories", "three", settings={"data_options": little["data_options"]}).run.recipe()[
            "sample_unit"
        ]
        == "windows"
    )


def test_lr_batch_size_and_config_change_the_recipe(place):
    (place / "mine.toml").write_text("batch_size = 4\nseq_len = 6\n[optimizer]\nlr = 0.5\nweight_decay = 0.25\n")
    recipe = small("gpt", "lines.txt", "one", lr=0.25, config="mine.toml").run.recipe()
    assert (recipe["optimizer"]["lr"], recipe["optimizer"]["weight_decay"]) == (0.25, 0.25)
    assert (recipe["batch_size"], recipe["seq_len"]) == (SMALL["batch_size"], SMALL["seq_len"]), "settings win"
    assert small("gpt", "lines.txt", "two", batch_size=3).run.recipe()["batch_size"] == 3
    (place / "list.json").write_text("[1]")
    with pytest.raises(InvalidInput, match=r"list\.json does not contain settings"):
        small("gpt", "lines.txt", "three", config="list.json")


def test_the_recipe_of_a_run_trains_the_same_model(place):
    first = small("gpt", "lines.txt", "one")
    recipe = first.folder / "recipe.json"
    again = train("gpt", config=recipe, run="two")  # data, size, seed and steps are in the file
    assert again.facts().sha256 == first.facts().sha256
    assert train("gpt", config=recipe, dry_run=True).numbers["steps"] == 3
    assert train("gpt", config=recipe, run="two", resume=True).facts().step == 3
    assert train("gpt", config=recipe, seed=8, run="three").facts().sha256 != first.facts().sha256


def test_a_dry_run_is_a_plan(place):
    result = small("gpt", "lines.txt", dry_run=True, batch_size=4, lr=0.1)
    assert isinstance(result, PlanResult)
    assert result.numbers["steps"] == 3
    assert result.numbers["tokens_per_step"] == 4 * SMALL["seq_len"]
    assert not (place / "home" / "runs").exists()
    for option in ({"resume": True}, {"init_from": "fox"}, {"num_processes": 2}):
        with pytest.raises(UsageError, match=f"does not support --{next(iter(option)).replace('_', '-')}"):
            train("gpt", "lines.txt", run="fox", dry_run=True, **option)
    with pytest.raises(UsageError, match="needs data"):
        train("gpt", dry_run=True)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("learning_rate", "lr"), ("epochs", "steps or minutes"), ("nproc_per_node", "num_processes")],
)
def test_unknown_keywords_get_a_suggestion(place, name, suggestion):
    with pytest.raises(UsageError, match=rf"^train has no parameter {name}\. Did you mean {suggestion}\?$"):
        peasy.train("gpt", "lines.txt", **{name: 1})


def test_corpus_object_is_rejected_with_processes(place):
    with pytest.raises(InvalidInput, match="cannot be shared with other processes"):
        small("gpt", open_corpus("lines.txt"), num_processes=2)


def test_initialize_from_another_model(place):
    first = small("gpt", "lines.txt", "first")
    second = small("gpt", "lines.txt", "second", init_from="first", settings=SMALL)
    assert second.run.recipe()["init_from"] == "first"
    assert peasy.load("second").tokenizer.vocab_size == peasy.load("first").tokenizer.vocab_size
    assert second.metrics[1]["loss"] < first.metrics[1]["loss"]
    with pytest.raises(InvalidInput, match="first is a decoder model, but rnn trains a recurrent"):
        small("rnn", "lines.txt", "third", init_from="first", settings=SMALL)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"kind": "gtp", "data": "lines.txt"}, NotFound, 'no model kind "gtp"'),
        ({"kind": "gpt", "data": None}, UsageError, "needs data"),
        ({"kind": "gpt", "data": "nothing.txt"}, NotFound, "no corpus or file"),
        ({"kind": "translator", "data": "lines.txt"}, InvalidInput, "trains on text pairs"),
        ({"kind": "gpt", "data": "pairs.tsv"}, InvalidInput, "trains on plain text"),
        ({"kind": "gpt", "data": "lines.txt", "settings": {"learning_rate": 1}}, InvalidInput, "learning_rate"),
        ({"kind": "gpt", "data": "lines.txt", "steps": 0}, InvalidInput, "steps is 0"),
    ],
)
def test_invalid_arguments(place, given, error, message):
    with pytest.raises(error, match=message):
        train(**{"preset": "tiny", "run": "fox", "steps": 1} | given)
    assert not (place / "home" / "runs" / "fox").exists()


def test_default_run_name(place):
    result = small("ngram", "lines.txt", None)
    assert result.name.replace("-", "").isalpha()
    assert result.folder.parent == place / "home" / "runs"


def test_minutes_are_a_budget(place):
    events = list(
        train_events("gpt", "lines.txt", preset="tiny", minutes=0.05, run="fox", settings=SMALL | {"model": TINY})
    )
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert events[-1].elapsed_seconds >= 3
    rates = [event.lr for event in events if isinstance(event, TrainStep)]
    assert rates[-1] < max(rates) / 2


def test_interrupt_saves_a_checkpoint(place):
    def interrupt(event) -> None:
        if isinstance(event, TrainStep) and event.step == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        small("gpt", "lines.txt", steps=50, sinks=[interrupt])
    assert (place / "home" / "runs" / "fox" / "checkpoints" / "step-000002").is_dir()
    assert train("gpt", run="fox", resume=True, steps=3).run.facts().step == 3


def test_bad_lines_are_reported(place):
    with (place / "pairs.tsv").open("a", encoding="utf-8") as file:
        file.write("no tab here\n")
    with pytest.warns(UserWarning, match=r"1 lines? could not be used; the first: .*pairs\.tsv:121"):
        small("translator", "pairs.tsv")


def test_result_display(place):
    result = small("gpt", "lines.txt")
    assert "fox" in result.html()
    assert result.data()["resume"] == "peasy train gpt --run fox --resume"
    assert "finished after 3 steps" in repr(result)


def test_files_of_a_folder_that_are_not_read_are_named(place):
    (place / "mixed").mkdir()
    for name in ("a.txt", "photo.png"):
        (place / "mixed" / name).write_text("\n".join(LINES), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"Not read: photo\.png"):
        small("ngram", "mixed")
    (place / "mixed" / "photo.png").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small("ngram", "mixed", "inverse")
