"""Records: texts, pairs, labelled texts; bad records are counted and reported, never silently dropped."""

import csv
import json

import pytest

from peasy.datasets import LabelledText, TextPair, open_corpus, records
from peasy.datasets.corpus import DataProblems
from peasy.errors import InvalidInput, MissingExtra


def write(path, *rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def everything(corpus):
    return [sample for split in corpus.splits for sample in corpus.documents(split)]


def test_jsonl_kinds(tmp_path):
    texts = open_corpus(write(tmp_path / "a.jsonl", *({"text": f"text {n}"} for n in range(10))))
    pairs = open_corpus(write(tmp_path / "b.jsonl", *({"source": f"s{n}", "target": f"t{n}"} for n in range(10))))
    labels = open_corpus(write(tmp_path / "c.jsonl", *({"text": f"x{n}", "label": n % 2} for n in range(10))))
    assert (texts.kind, pairs.kind, labels.kind) == ("text", "pairs", "labelled")
    assert everything(texts)[9] == "text 9"
    assert everything(pairs)[3] == TextPair("s3", "t3")
    assert everything(labels)[3] == LabelledText("x3", "1")
    assert [len(list(pairs.documents(split))) for split in pairs.splits] == [9, 1]


def test_field_names_are_configurable(tmp_path):
    path = write(tmp_path / "a.jsonl", {"en": "cat", "fr": "chat"}, {"en": "dog", "fr": "chien"})
    assert everything(open_corpus(path, source="en", target="fr")) == [
        TextPair("cat", "chat"),
        TextPair("dog", "chien"),
    ]


def test_bad_records_are_reported_with_line_and_reason(tmp_path):
    good = {"text": "good"}
    path = write(
        tmp_path / "a.jsonl",
        good, "{not json", good, '["a list"]', {"text": 5}, good, {"text": "  "}, {"other": "x"}, good, "",
        '{"text": "\\ud800"}', {"source": "x", "target": "y"}, good, good, good,
    )  # fmt: skip
    corpus = open_corpus(path)
    assert len(everything(corpus)) == 7
    reasons = {int(where.rpartition(":")[2]): reason for where, reason in corpus.problems.listed}
    assert list(reasons) == [2, 4, 5, 7, 8, 11, 12]
    assert "not JSON" in reasons[2]
    assert "is not text" in reasons[5]
    assert "is empty" in reasons[7]
    assert "is missing" in reasons[8]
    assert "unpaired surrogate" in reasons[11]
    assert "is a pair, the first was a text" in reasons[12]
    assert corpus.problems.count == sum(corpus.problems.reasons.values()) == 7


def test_large_fields_and_documents_are_bounded(tmp_path, monkeypatch):
    """A long text in a CSV is a text; a header or a document without end is an error, not all of the memory."""
    long = "x" * 200_000
    assert everything(open_corpus(write(tmp_path / "a.csv", "text", long, f'"{long}"')))[1] == long
    with pytest.raises(InvalidInput, match=r"header of .*names a, x{100,200}, not text"):
        everything(open_corpus(write(tmp_path / "b.csv", f"a,{long}", "1,2")))
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1000)
    with pytest.raises(InvalidInput, match="cannot be read as CSV: field larger"):
        everything(open_corpus(write(tmp_path / "c.csv", f"a,{long}", "1,2")))
    assert csv.field_size_limit() > 1000, "the limit of the whole process is as before"
    monkeypatch.setattr(records, "MAX_DOCUMENT_CHARACTERS", 1000)
    folder = tmp_path / "mixed"
    folder.mkdir()
    write(folder / "a.jsonl", {"text": "one"}, {"text": "two"})
    write(folder / "b.txt", "x" * 998)
    assert len(everything(open_corpus(folder))) == 3
    write(folder / "b.txt", "x" * 1000)
    with pytest.raises(InvalidInput, match="more than 1,000 characters"):
        everything(open_corpus(folder))


def test_problems_are_counted_once(tmp_path):
    corpus = open_corpus(write(tmp_path / "a.tsv", "a\tb", "c", "d\te", "f\tg"))
    for _ in range(3):
        everything(corpus)
    assert corpus.card
    assert corpus.problems.count == 1


def test_strict_mode_rejects_the_first_bad_record(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb", "c", "d\te")
    with pytest.raises(InvalidInput, match=r"a\.tsv:2: the row has 1 column, not 2"):
        open_corpus(path, strict=True).card  # noqa: B018


def test_only_first_problems_are_listed(tmp_path):
    rows = [f"s{n}\tt{n}" if n % 2 else "bad" for n in range(500)]
    corpus = open_corpus(write(tmp_path / "a.tsv", "x\ty", *rows))
    assert corpus.card
    assert corpus.problems.count == 250
    assert len(corpus.problems.listed) == 20


def test_mostly_bad_files_are_rejected(tmp_path):
    with pytest.raises(InvalidInput, match="3 of 5 rows"):
        open_corpus(write(tmp_path / "a.tsv", "a\tb", "c", "d", "e", "f\tg")).card  # noqa: B018


def test_tsv_header(tmp_path):
    labels = open_corpus(write(tmp_path / "a.tsv", "text\tlabel", "sun\tgood", "rain\tbad"))
    assert everything(labels) == [LabelledText("sun", "good"), LabelledText("rain", "bad")]
    pairs = open_corpus(write(tmp_path / "b.tsv", "source\ttarget", "cat\tchat", "dog\tchien"))
    assert everything(pairs) == [TextPair("cat", "chat"), TextPair("dog", "chien")]


def test_crlf_and_byte_order_mark_are_removed(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfcat\tchat\r\ndog\tchien\r\n")
    assert everything(open_corpus(tmp_path / "a.tsv")) == [TextPair("cat", "chat"), TextPair("dog", "chien")]


def test_aligned_files(tmp_path):
    write(tmp_path / "train.en", "cat", "dog", "", "cow", "pig")
    write(tmp_path / "train.fr", "chat", "chien", "", "", "cochon")
    corpus = open_corpus([tmp_path / "train.en", tmp_path / "train.fr"])
    assert everything(corpus) == [TextPair("cat", "chat"), TextPair("dog", "chien"), TextPair("pig", "cochon")]
    assert corpus.problems.listed == [(f"{tmp_path / 'train.fr'}:4", "the line is empty, its partner is not")]
    assert everything(open_corpus(f"{tmp_path}/train.en,{tmp_path}/train.fr")) == everything(corpus)


def test_aligned_files_with_validation_split(tmp_path):
    for split, words in (("train", ("cat", "chat")), ("valid", ("dog", "chien"))):
        write(tmp_path / f"{split}.en", words[0])
        write(tmp_path / f"{split}.fr", words[1])
    corpus = open_corpus(tmp_path)
    assert list(corpus.documents("train")) == [TextPair("cat", "chat")]
    assert list(corpus.documents("valid")) == [TextPair("dog", "chien")]


def test_misaligned_files_are_rejected(tmp_path):
    write(tmp_path / "a.en", "one", "two")
    write(tmp_path / "a.fr", "un")
    with pytest.raises(InvalidInput, match=r"a\.fr ends after 1 lines"):
        open_corpus([tmp_path / "a.en", tmp_path / "a.fr"]).card  # noqa: B018


def test_text_files_as_pairs(tmp_path):
    paths = [write(tmp_path / "en.txt", "cat", "dog"), write(tmp_path / "fr.txt", "chat", "chien")]
    assert open_corpus(paths, pairs=True).kind == "pairs"


def test_lines_can_be_documents(tmp_path):
    corpus = open_corpus(write(tmp_path / "names.txt", "emma", "", "olivia", "ava"), lines=True)
    assert everything(corpus) == ["emma", "olivia", "ava"]


@pytest.mark.parametrize(("rows", "message"), [([], "has no rows"), (["a\tb"], "only one row")])
def test_too_few_records_are_rejected(tmp_path, rows, message):
    with pytest.raises(InvalidInput, match=message):
        open_corpus(write(tmp_path / "a.tsv", *rows)).card  # noqa: B018


def test_parquet_is_read_in_batches(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": [f"text {n}" for n in range(3000)] + [None], "other": [1] * 3001})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    corpus = open_corpus(tmp_path / "a.parquet")
    assert everything(corpus)[2999] == "text 2999"
    assert corpus.problems.listed == [(f"{tmp_path / 'a.parquet'}:3001", '"text" is missing')]


def test_parquet_text_of_many_rows_is_in_memory_once(tmp_path):
    """Four kilobytes of a file hold a thousand rows of a megabyte each: their dictionary has it once."""
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000), pyarrow.array(["a " * 500_000]))
    role = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000), pyarrow.array(["assistant"]))
    message = pyarrow.StructArray.from_arrays([role, text], names=["role", "content"])
    chats = pyarrow.ListArray.from_arrays(pyarrow.array(range(1001), pyarrow.int32()), message)
    for name, column in (("text", text), ("messages", chats)):
        path = tmp_path / f"{name}.parquet"
        table = pyarrow.table({name: column})
        pyarrow.parquet.write_table(table, path, compression="zstd", store_schema=False)
        assert path.stat().st_size < 8_000
        peak = pyarrow.default_memory_pool().max_memory()
        rows = records._read_parquet(path, records.FilesConfig(), DataProblems())
        assert len(str(next(rows)[1])) >= 1_000_000
        rows.close()
        assert pyarrow.default_memory_pool().max_memory() < max(peak, 100_000_000)


def test_huge_parquet_rows_and_bad_characters_are_counted(tmp_path, monkeypatch):
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1 << 20)
    texts = pyarrow.array([b"a", b"b" * (1 << 20) + b"c", b"\xff", b"d"], pyarrow.binary()).view(pyarrow.string())
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    corpus = open_corpus(path)
    assert everything(corpus) == ["a", "d"]
    assert corpus.problems.listed == [
        (f"{path}:2", '"text" is longer than 1 MiB'),
        (f"{path}:3", "the row is not UTF-8"),
    ]
    monkeypatch.setattr(records, "MAX_COLUMN_BYTES", 1 << 20)
    with pytest.raises(InvalidInput, match=r"row group with 1,0.* bytes in one column"):
        open_corpus(path)


def test_invalid_parquet_is_rejected(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(InvalidInput, match="cannot be read as parquet"):
        open_corpus(tmp_path / "a.parquet")


def test_missing_pyarrow_has_an_install_hint(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra) as error:
        open_corpus(tmp_path / "a.parquet")
    assert "peasy-attention[data]" in error.value.hint
