"""Tokenizer: roundtrips, offsets, words, special tokens, saving and loading."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.errors import InvalidInput, NotFound
from peasy.tokenization import Tokenizer, train_tokenizer

from .conftest import CORPUS
from .tokenizer_files import file_contents

HARD = [
    "", " ", "\n\n", "\r\n\t", "  two  spaces  ", "👨‍👩‍👧‍👦", "👍🏽",
    "é", "é", "ﬁ", "Ａ", "\u200b\u200d\ufeff", "שָׁלוֹם", "مرحبا",
    "\ufffd", "\ufffd" * 20, "\x00\x01\x7f", "𝔘𝔫𝔦", "ÅÅ", "ǰ", "Straße ẞ",
    "İı", "\U0010ffff", "a" * 1000, "'s 's’s", "<0x41>", "▁", "Ġ",
    "##",
]  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(CORPUS, "bpe", 400)


@pytest.mark.parametrize("text", HARD)
def test_bpe_roundtrip_of_hard_texts(bpe, text):
    assert bpe.decode(bpe.encode(text).ids, keep_special_tokens=True) == text


@given(text=ANY_TEXT)
@settings(max_examples=300, deadline=None)
def test_bpe_roundtrip_of_any_text(bpe, text):
    assert bpe.decode(bpe.encode(text).ids, keep_special_tokens=True) == text


@given(text=st.text(st.sampled_from(sorted(set("".join(CORPUS)))), max_size=60))
@settings(max_examples=200, deadline=None)
def test_characters_roundtrip_of_known_characters(tokenizers, text):
    tokenizer = tokenizers["characters"]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(text=ANY_TEXT)
@settings(max_examples=100, deadline=None)
def test_every_kind_encodes_any_text(tokenizers, text):
    for tokenizer in tokenizers.values():
        encoding = tokenizer.encode(text)
        assert len(encoding.ids) == len(encoding.pieces) == len(encoding.offsets) == len(encoding.word_ids)
        assert all(0 <= id < len(tokenizer) for id in encoding.ids)
        assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
        assert isinstance(tokenizer.decode(encoding.ids), str)


def test_offsets_point_into_the_text(tokenizer):
    text = "The pizza tasted good"
    encoding = tokenizer.encode(text)
    covered = {i for start, end in encoding.offsets for i in range(start, end)}
    assert covered >= {i for i, char in enumerate(text) if char != " "}
    starts = [start for start, _ in encoding.offsets]
    assert starts == sorted(starts)


def test_offsets_count_characters_not_bytes(bpe):
    text = "日本 été"
    encoding = bpe.encode(text)
    assert max(end for _, end in encoding.offsets) == len(text)


def test_subwords_belong_to_their_word(tokenizer):
    text = "It's unbelievably good!"
    words = [word for word, _ in tokenizer.encode(text).word_groups()]
    assert words == ["It's", "unbelievably", "good", "!"]


def test_every_token_of_a_word_is_in_one_group(bpe):
    encoding = bpe.encode("unbelievably pizza")
    positions = [i for _, group in encoding.word_groups() for i in group]
    assert sorted(positions) == [i for i, word in enumerate(encoding.word_ids) if word is not None]
    assert "".join(encoding.pieces[i] for i in encoding.word_groups()[0][1]) == "unbelievably"


def test_batch_ids_equal_encode(tokenizer):
    texts = ["The pizza", "", "日本 and more"]
    assert tokenizer.encode_batch_ids(texts) == [list(tokenizer.encode(text).ids) for text in texts]


def test_save_load_roundtrip(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        again = Tokenizer.load(path)
        assert again.special_tokens == tokenizer.special_tokens
        assert again.encode_batch_ids(CORPUS) == tokenizer.encode_batch_ids(CORPUS)


def test_special_tokens_from_the_config(data):
    made = data("words")
    named = Tokenizer(made, {"bos_token": {"content": "pizza"}, "eos_token": "good", "pad_token": None})
    assert (named.token(named.special_tokens.bos), named.token(named.special_tokens.eos)) == ("pizza", "good")
    assert named.special_tokens.pad is None
    assert Tokenizer(made, {"eos_token": "good"}).special_tokens.pad == 0  # not in the config: default name


def test_chat_template_is_kept_as_data(data, tmp_path):
    template = "{{ ''.__class__.__mro__ }}{% for m in messages %}{{ m }}{% endfor %}"
    tokenizer = Tokenizer(data(), {"chat_template": template})
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).chat_template == template
    several = Tokenizer(data(), {"chat_template": [{"name": "default", "template": "x"}, {"name": "rag"}]})
    assert several.chat_template == "x"
    assert Tokenizer(data(), {"chat_template": 3}).chat_template is None


def test_pieces_are_printable(bpe):
    assert bpe.encode(" the").pieces[0].startswith("·")
    assert "⏎" in bpe.encode("a\nb").pieces
    assert bpe.encode("🦄").pieces[0].startswith("<F0")
    assert bpe.piece(bpe.special_tokens.eos) == "<eos>"
    assert bpe.piece(10**9) == "<1000000000>"


def test_decode_skips_special_tokens_by_default(bpe):
    ids = [bpe.special_tokens.bos, *bpe.encode("pizza").ids, bpe.special_tokens.eos]
    assert bpe.decode(ids) == "pizza"
    assert bpe.decode(ids, keep_special_tokens=True) == "<bos>pizza<eos>"


def test_unpaired_surrogate_is_refused(bpe):
    with pytest.raises(InvalidInput, match=r"half a character \(an unpaired surrogate\) at position 2"):
        bpe.encode("ab\ud800")


@pytest.mark.parametrize("ids", [[-1], [2**40], ["x"]])
def test_invalid_ids_are_refused(bpe, ids):
    with pytest.raises((InvalidInput, ValueError)):
        bpe.decode(ids)


def test_a_million_equal_characters_take_linear_time(tokenizer):
    """Ten times the text may take a little more than ten times as long; a hundred times would be quadratic.

    In processor time: other programs on the machine do not count.
    """

    def seconds(count):
        start = time.process_time()
        tokenizer.encode_batch_ids(["a" * count])
        return time.process_time() - start

    small = max(min(seconds(100_000) for _ in range(3)), 0.005)
    assert seconds(1_000_000) < 40 * small


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(NotFound, match="nope"):
        Tokenizer.load(tmp_path / "nope.json")
    for text, message in (
        ("", "is empty"),
        ("[1]", "should contain a JSON object"),
        ("{", "not valid JSON"),
        ("[" * 9999, "deep"),
    ):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(InvalidInput, match=message):
            Tokenizer.load(tmp_path)


def test_config_symlink_is_not_followed(tmp_path, data):
    outside = tmp_path / "secret.json"
    outside.write_text(json.dumps({"chat_template": "secret"}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_text(json.dumps(data()))
    (tmp_path / "model/tokenizer_config.json").symlink_to(outside)
    assert Tokenizer.load(tmp_path / "model").chat_template is None


def test_a_class_that_cannot_read_the_file_is_named(caplog):
    """transformers 5 builds the class from the vocabulary, with other ids than the model was trained with."""
    data, config = file_contents("gpt2")
    expected = Tokenizer.from_json(data, config).encode_ids("a lower newest")
    assert not caplog.records  # inverse: a class that fits is not mentioned
    tokenizer = Tokenizer.from_json(data, config.replace("GPT2Tokenizer", "BertTokenizerFast"))
    assert tokenizer.encode_ids("a lower newest") == expected
    assert "BertTokenizer, a WordPiece tokenizer, but tokenizer.json has a BPE model" in caplog.text
