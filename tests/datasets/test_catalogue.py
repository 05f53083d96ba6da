"""Opening corpora: built-in names, files, folders; helpful errors for misspelt or ambiguous input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peasy.datasets import BUILT_IN, open_corpus
from peasy.errors import InvalidInput, NotFound

SMALL = {
    "stories": {"num_train": 50, "num_valid": 10},
    "stdlib": {"part": "topics"},
    "locales": {"num_pairs": 500},
    "copy": {"num_train": 50, "num_valid": 10},
    "recall": {"num_train": 50, "num_valid": 10},
    "repeats": {"num_train": 50, "num_valid": 10},
    "opinions": {"num_train": 50, "num_valid": 10},
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_corpora_are_consistent(name):
    """The card matches the catalogue, and reading is repeatable: same documents, same hash."""
    corpus, again = (open_corpus(name, seed=1, **SMALL[name]) for _ in range(2))
    assert corpus.kind == corpus.card.kind == BUILT_IN[name].kind
    assert corpus.card.licence
    assert len(corpus.card.hash) == 64
    assert len(corpus.card.examples) == 5
    for split in corpus.splits:
        documents = list(corpus.documents(split))
        assert documents == list(corpus.documents(split)) == list(again.documents(split))
        assert len(documents) == corpus.card.sizes[split].documents > 0
    assert corpus.card.hash == again.card.hash
    assert not set(corpus.documents("train")) & set(corpus.documents("valid"))


@pytest.mark.parametrize("name", ["stories", "opinions", "locales", "copy", "recall", "repeats"])
def test_seed_changes_documents(name):
    one, other = (open_corpus(name, seed=seed, **SMALL[name]) for seed in (1, 2))
    assert one.card.hash != other.card.hash


def test_hashes_are_equal_in_another_process():
    code = "from peasy.datasets import open_corpus; print(open_corpus('stories', num_train=50, num_valid=9).card.hash)"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert hashes == {open_corpus("stories", num_train=50, num_valid=9).card.hash + "\n"}


def test_corpora_need_no_torch():
    code = (
        "import sys; from peasy.datasets import open_corpus; open_corpus('locales', num_pairs=100).card; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("storys", {}, "Did you mean stories?"),
        ("locals:en-fr", {}, "Did you mean locales?"),
        ("nothing/of/the/kind", {}, "Built in: stories"),
    ],
)
def test_unknown_data_suggests_the_nearest(data, options, message):
    with pytest.raises(NotFound) as error:
        open_corpus(data, **options)
    assert message in error.value.hint


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("copy", {"lenght": 3}, r"copy\.lenght"),
        ("copy:1", {}, "length is 1"),
        ("copy:many", {}, "whole number"),
        ("recall", {"distance": 3}, "between 9 and 100,000"),
        ("repeats", {"max_length": 3}, "max_length is 3"),
        ("repeats", {"num_train": 0}, "num_train is 0"),
        ("stdlib:sauce", {}, "docstrings"),
        ("stories:animals", {}, "things"),
        ("locales:en", {}, "pair of languages"),
        ("locales:en-en", {}, "same language"),
        ("locales:en-xx", {}, "no language"),
        ([], {}, "No data"),
    ],
)
def test_invalid_options_are_rejected(data, options, message):
    with pytest.raises(InvalidInput, match=message):
        open_corpus(data, **options)


def test_corpus_object_is_returned():
    corpus = open_corpus("copy")
    assert open_corpus(corpus) is corpus


def test_unknown_split_is_rejected():
    with pytest.raises(InvalidInput, match='no split "vaild"') as error:
        open_corpus("copy").documents("vaild")
    assert error.value.hint == "Did you mean valid?"


def test_built_in_names_take_precedence_over_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").write_text("a file that has the name of a corpus\n")
    assert open_corpus("copy").card.licence != "yours"
    assert open_corpus("./copy").card.licence == "yours"


def test_folder_of_texts_and_records_is_read_together(tmp_path):
    (tmp_path / "a.txt").write_text("A text file is one document.\nWith two lines.\n" * 3)
    (tmp_path / "b.md").write_text("# Title\n\nMarkdown is text.")
    (tmp_path / "c.jsonl").write_text('{"text": "a record"}\n{"text": "another"}\n')
    (tmp_path / "d.csv").write_text('id,text\n1,"quoted, with\na line break"\n2,plain\n')
    (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / "README.txt").write_text("not data")
    corpus = open_corpus(tmp_path)
    texts = [*corpus.read("train"), *corpus.read("valid")]
    assert [text.split("\n")[0] for text in texts] == [
        "A text file is one document.", "# Title", "a record", "another", "quoted, with", "plain"
    ]  # fmt: skip
    assert corpus.notes()["skipped"] == "README.txt, picture.png"


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.txt.zst"])
def test_compressed_files_are_those_they_contain(tmp_path, name):
    pyarrow = pytest.importorskip("pyarrow")
    lines = [f"Line {number} of a text." for number in range(50)]
    text = "\n".join(json.dumps({"text": line}) if "jsonl" in name else line for line in lines) + "\n"
    kind = "gzip" if name.endswith("gz") else "zstd"
    with pyarrow.CompressedOutputStream(str(tmp_path / name), kind) as file:
        file.write(text.encode())
    (tmp_path / "plain").mkdir()
    plain = tmp_path / "plain" / Path(name).stem
    plain.write_text(text)
    for split in ("train", "valid"):
        packed, unpacked = (list(open_corpus(path).read(split)) for path in (tmp_path / name, plain))
        assert packed == unpacked
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-9])
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        list(open_corpus(tmp_path / name).read("train"))


def test_folder_of_texts_and_pairs_is_refused_by_their_rows(tmp_path):
    (tmp_path / "a.txt").write_text("running text of some length\n")
    (tmp_path / "b.tsv").write_text("cat\tchat\ndog\tchien\n")
    with pytest.raises(InvalidInput, match="the row is a pair, the first was a text"):
        list(open_corpus(tmp_path).read("train"))
    assert open_corpus(tmp_path, suffix="tsv").kind == "pairs"


def test_csv_without_a_known_column_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("body,stars\nGood,5\nBad,1\nFine,3\n")
    with pytest.raises(InvalidInput, match="names body, stars") as error:
        open_corpus(tmp_path / "a.csv")
    assert "--set data_options.text=body" in error.value.hint
    assert list(open_corpus(tmp_path / "a.csv", text="body").read("train")) == ["Good", "Bad"]
    (tmp_path / "b.csv").write_text("text\none\ntwo\nthree\n")
    corpus = open_corpus(tmp_path)  # beside files that are read, it is left out and named
    assert list(corpus.read("train")) == ["one", "two"]
    assert corpus.problems.listed == [(str(tmp_path / "a.csv"), "the header names body, stars, not text")]
    with pytest.raises(InvalidInput, match=r"a\.csv: the header names body"):
        list(open_corpus(tmp_path, strict=True).read("train"))
    labelled = open_corpus(tmp_path / "a.csv", text="body", label="stars")
    assert next(iter(labelled.read("train"))).label == "5"


def test_readme_and_licence_are_not_data(tmp_path):
    (tmp_path / "LICENCE-NOTE.txt").write_text("not to be learned from, please\n")
    (tmp_path / ".hidden.txt").write_text("nor is this, which is hidden\n")
    (tmp_path / "train.tsv").write_text("cat\tchat\ndog\tchien\n")
    assert open_corpus(tmp_path).kind == "pairs"


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.txt.xz"])
def test_unsupported_file_types_are_rejected_with_a_hint(tmp_path, name):
    (tmp_path / name).write_text("something")
    with pytest.raises(InvalidInput) as error:
        open_corpus(tmp_path / name)
    assert error.value.hint


def test_folder_without_training_files_is_rejected(tmp_path):
    with pytest.raises(InvalidInput, match="contains no file"):
        open_corpus(tmp_path)
    (tmp_path / "valid.txt").write_text("held out, and nothing else here\n")
    with pytest.raises(InvalidInput, match="no training files"):
        open_corpus(tmp_path)
