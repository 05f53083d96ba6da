"""Token shards: round trip, and detection of damaged, truncated or mismatched files."""

import json
import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as given_by
from hypothesis import strategies as st

from peasy.datasets import LabelledText, TextPair, open_corpus
from peasy.datasets import shards as blocks
from peasy.datasets.shards import CheckedArray, open_shards, prepare_shards, shards_fingerprint
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.tokenization import train_tokenizer


def test_texts_round_trip_with_eos(texts, tokenizer, tmp_path):
    shards = prepare_shards(texts, tokenizer, tmp_path / "shards")
    end = tokenizer.special_tokens.eos
    column = shards.column("train")
    assert shards.num_documents("train") == 57
    assert tokenizer.decode(column.document(13)[:-1]) == "text 13"
    assert all(column.document(n)[-1] == end for n in range(57))
    assert shards.num_tokens("valid") == len("held out") + len("too") + 2
    shards.verify()


def test_pairs_round_trip(pairs, tokenizer, tmp_path):
    shards = prepare_shards(pairs, tokenizer, tmp_path / "shards")
    for number, pair in enumerate(pairs.documents("train")):
        assert tokenizer.decode(shards.column("train", "source").document(number)) == pair.source
        assert tokenizer.decode(shards.column("train", "target").document(number)) == pair.target


def test_separate_target_tokenizer(pairs, tokenizer, tmp_path):
    words = train_tokenizer(pairs.texts("train"), kind="words")
    shards = prepare_shards(pairs, tokenizer, tmp_path / "shards", target_tokenizer=words)
    pair = next(pairs.documents("train"))
    assert (
        shards.column("train", "source").document(0).tolist()
        == tokenizer.encode_batch_ids([pair.source], add_special_tokens=False)[0]
    )
    assert (
        shards.column("train", "target").document(0).tolist()
        == words.encode_batch_ids([pair.target], add_special_tokens=False)[0]
    )
    assert shards_fingerprint(pairs, tokenizer, words) != shards_fingerprint(pairs, tokenizer)
    assert shards.vocab_size == max(len(tokenizer), len(words))


def test_labels_round_trip(given, tokenizer, tmp_path):
    rows = [LabelledText("sun", "good"), LabelledText("rain", "bad"), LabelledText("sea", "good")]
    shards = prepare_shards(given("labelled", train=rows, valid=rows[1:]), tokenizer, tmp_path / "shards")
    named = [shards.labels[int(n)] for n in shards.column("valid", "labels").values.rows(np.arange(2), 1)[:, 0]]
    assert named == ["bad", "good"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given_by(st.lists(st.text("abc \n", max_size=30), max_size=12))
def test_arbitrary_documents_round_trip(given, tokenizer, tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("any") / "shards"
    shards = prepare_shards(given("text", train=documents), tokenizer, folder)
    column = shards.column()
    assert [tokenizer.decode(column.document(n)[:-1]) for n in range(column.num_documents)] == documents


def test_reading_across_blocks(given, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    text = "the cat sat on the mat. " * 40
    column = prepare_shards(given("text", train=[text]), tokenizer, tmp_path / "shards").column()
    assert len(column.values._hashes) > 20
    assert tokenizer.decode(column.document(0)[:-1]) == text
    assert tokenizer.decode(column.windows(np.array([3, 700]), 90)[1]) == text[700:790]


def test_large_vocabulary_uses_uint32(given, tmp_path):
    words = train_tokenizer([" ".join(f"w{n}" for n in range(70_000))], kind="words", vocab_size=70_005)
    shards = prepare_shards(given("text", train=["w5 w69999"]), words, tmp_path / "shards")
    assert shards.header["splits"]["train"]["tokens.bin"]["dtype"] == "uint32"
    assert words.decode(shards.column().document(0)) == "w5 w69999"


def test_same_shards_are_reused_and_others_rejected(texts, given, tokenizer, tmp_path):
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    before = (tmp_path / "shards" / "shards.json").stat().st_mtime_ns
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    assert (tmp_path / "shards" / "shards.json").stat().st_mtime_ns == before
    with pytest.raises(InvalidInput, match="another corpus or tokenizer"):
        prepare_shards(given("text", train=["other"]), tokenizer, tmp_path / "shards")


def test_progress_counts_up_to_all_characters(texts, tokenizer, tmp_path):
    calls = []
    prepare_shards(texts, tokenizer, tmp_path / "shards", lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == sum(len(text) for split in texts.splits for text in texts.texts(split))


@pytest.mark.parametrize("file", ["train.tokens.bin", "train.tokens.ends", "valid.tokens.bin"])
def test_changed_byte_is_detected_on_read(texts, tokenizer, tmp_path, file):
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    path = tmp_path / "shards" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(InvalidInput, match=r"corrupt|does not end"):
        open_shards(tmp_path / "shards").verify()
    with pytest.raises(InvalidInput, match=r"corrupt|does not end"):
        read_all(tmp_path / "shards", file.partition(".")[0])


def read_all(folder, split):
    column = open_shards(folder).column(split)
    return [column.document(n) for n in range(column.num_documents)]


def test_without_hash_check_a_changed_byte_is_missed(texts, tokenizer, tmp_path, monkeypatch):
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    path = tmp_path / "shards" / "train.tokens.bin"
    raw = bytearray(path.read_bytes())
    raw[0] ^= 1
    path.write_bytes(raw)
    monkeypatch.setattr(CheckedArray, "_check_block", lambda self, block: None)
    assert tokenizer.decode(open_shards(tmp_path / "shards").column().document(0)[:-1]) != "text 0"


@pytest.mark.parametrize("change", ["cut", "longer", "missing"])
def test_wrong_file_size_is_detected_on_open(texts, tokenizer, tmp_path, change):
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    path = tmp_path / "shards" / "train.tokens.bin"
    raw = path.read_bytes()
    path.unlink()
    if change != "missing":
        path.write_bytes(raw[:-2] if change == "cut" else raw + b"\0\0")
    with pytest.raises(InvalidInput, match=r"should have|is missing"):
        open_shards(tmp_path / "shards")


def test_changed_header_is_detected(texts, tokenizer, tmp_path):
    prepare_shards(texts, tokenizer, tmp_path / "shards")
    path = tmp_path / "shards" / "shards.json"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        raw = bytearray(good)
        raw[rng.integers(len(raw))] ^= 1 << rng.integers(7)
        if json_or_none(raw) == json_or_none(good):
            continue  # a space became a line end: the same header
        path.write_bytes(raw)
        with pytest.raises(InvalidInput):
            open_shards(tmp_path / "shards")


def json_or_none(raw):
    try:
        return json.loads(bytes(raw))
    except ValueError:
        return None


def test_folder_without_shards_is_rejected(tmp_path):
    with pytest.raises(NotFound):
        open_shards(tmp_path)


def test_failure_leaves_no_files(given, tokenizer, tmp_path):
    class Breaking(given):
        def read(self, split):
            yield "fine"
            if split == "valid":
                raise RuntimeError("the reader broke")

    corpus = Breaking("text", train=[], valid=[])
    corpus.cached_survey = given("text", train=["fine"], valid=["fine"]).cached_survey
    with pytest.raises(RuntimeError):
        prepare_shards(corpus, tokenizer, tmp_path / "shards")
    assert not list(tmp_path.iterdir())


def test_full_disk_is_reported(texts, tokenizer, tmp_path, monkeypatch):
    def full(self, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blocks.CheckedArrayWriter, "_write_block", full)
    with pytest.raises(ResourceUnavailable, match="disk is full"):
        prepare_shards(texts, tokenizer, tmp_path / "shards")
    assert not list(tmp_path.iterdir())


def test_leftovers_of_killed_writer_are_removed(tmp_path):
    """Killed while writing: there is nothing to open, and writing again works."""
    (tmp_path / "book.txt").write_text("the cat sat on the mat.\n" * 20_000)
    code = (
        "import time\nfrom peasy.datasets import open_corpus\nfrom peasy.datasets.shards import prepare_shards\n"
        "from peasy.tokenization import train_tokenizer\n"
        "def wait(done, total): print('writing', flush=True); time.sleep(60)\n"
        "tokenizer = train_tokenizer(['the cat sat on the mat.\\n'], 'characters')\n"
        f"corpus = open_corpus({str(tmp_path / 'book.txt')!r})\n"
        f"prepare_shards(corpus, tokenizer, {str(tmp_path / 'out' / 'shards')!r}, wait)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "writing\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    left = list((tmp_path / "out").iterdir())
    assert len(left) == 1
    assert left[0].name.startswith(".shards.part-")
    with pytest.raises(NotFound):
        open_shards(tmp_path / "out" / "shards")
    tokenizer = train_tokenizer(["the cat sat on the mat.\n"], "characters")
    prepare_shards(open_corpus(tmp_path / "book.txt"), tokenizer, tmp_path / "out" / "shards").verify()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shards"]


def test_active_writer_is_left_alone(texts, tokenizer, tmp_path):
    from peasy.datasets.shards import locked_atomic_dir

    first = locked_atomic_dir(tmp_path / "shards")
    part = first.__enter__()
    (part / "half").write_text("written")
    prepare_shards(texts, tokenizer, tmp_path / "shards")  # the second writer is done first
    assert (part / "half").exists()
    with pytest.raises(InvalidInput, match="already exists"):
        first.__exit__(None, None, None)
    open_shards(tmp_path / "shards").verify()


def test_shards_that_another_process_prepared_meanwhile_are_opened(texts, tokenizer, tmp_path):
    folder = tmp_path / "shards"

    def other_process(done, total):
        if not folder.exists():
            prepare_shards(texts, tokenizer, folder)

    assert prepare_shards(texts, tokenizer, folder, other_process).column().num_documents > 0
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


def test_preparing_uses_constant_memory(tokenizer, tmp_path, monkeypatch):
    """Five times the text, the same peak memory."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr("peasy.datasets.charset.READ_BYTES", 1 << 14)
    monkeypatch.setattr("peasy.datasets.shards._BATCH_CHARACTERS", 1 << 15)

    def peak(name, lines):
        path = tmp_path / f"{name}.txt"
        path.write_text("the cat sat on the mat. 0123456789\n" * lines)
        corpus = open_corpus(path)
        tracemalloc.start()
        prepare_shards(corpus, tokenizer, tmp_path / name)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    peak("first", 100)
    few = peak("few", 4_000)
    assert peak("many", 20_000) < 1.3 * few


def test_long_line_without_spaces(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("peasy.datasets.plain_text._MAX_PIECE", 1 << 17)
    (tmp_path / "line.txt").write_text("abcdefghij" * 50_000)
    shards = prepare_shards(open_corpus(tmp_path / "line.txt"), tokenizer, tmp_path / "shards")
    assert shards.num_tokens("train") == 450_000
    assert shards.num_tokens("valid") == 50_000
    assert tokenizer.decode(shards.column().document(0)[:25]) == "abcdefghijabcdefghijabcde"


def test_unknown_column_is_rejected(pairs, tokenizer, tmp_path):
    shards = prepare_shards(pairs, tokenizer, tmp_path / "shards")
    with pytest.raises(InvalidInput, match=r"has no train\.tokens"):
        shards.column("train", "tokens")
    assert isinstance(next(pairs.documents()), TextPair)
