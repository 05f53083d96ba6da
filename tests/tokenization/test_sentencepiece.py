"""Sentencepiece models: our reader against the sentencepiece library."""

import io
import random
import struct
import time
import unicodedata

import pytest

from peasy.errors import InvalidInput, PeasyError
from peasy.tokenization import IncrementalDecoder, Tokenizer, convert, from_sentencepiece

from .conftest import CORPUS

sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")
TEXTS = [*CORPUS[:4], "  two  spaces ", "ﬁne ½ Ａ", "漢字 x", "", "é è", "a\tb\nc", "unbelievably", "…dots… — dash"]


@pytest.fixture(scope="module")
def model():
    return train("unigram", vocab_size=150)


@pytest.fixture(scope="module")
def library(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_of_the_file(model, library, text):
    assert list(from_sentencepiece(model).encode(text, add_special_tokens=False).ids) == library.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_of_a_separate_vocabulary(model, library, text):
    """Other order, some pieces missing: those are split as in the file and become unknown."""
    pieces = [library.id_to_piece(i) for i in range(len(library))]
    rng = random.Random(3)
    kept = [piece for piece in pieces if piece in ("<unk>", "</s>") or rng.random() < 0.9]
    rng.shuffle(kept)
    vocabulary = {piece: id for id, piece in enumerate([*kept, "<pad>"])}
    tokenizer = from_sentencepiece(model, vocabulary)
    expected = [vocabulary.get(piece, vocabulary["<unk>"]) for piece in library.encode(text, out_type=str)]
    assert list(tokenizer.encode(text).ids) == [*expected, vocabulary["</s>"]]
    assert tokenizer.encode_batch_ids([text], add_special_tokens=False) == [expected]
    assert len(tokenizer) == len(vocabulary)


def test_decodes_as_the_library(model, library):
    tokenizer = from_sentencepiece(model)
    for text in CORPUS[:4]:
        ids = library.encode(text)
        assert tokenizer.decode(ids) == library.decode(ids)


def test_saved_and_loaded(model, tmp_path):
    tokenizer = from_sentencepiece(model, {piece: i for i, piece in enumerate(["<unk>", "</s>", "▁The", "▁"])})
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert (len(again), again.encode_batch_ids(TEXTS)) == (4, tokenizer.encode_batch_ids(TEXTS))


def test_missing_names_and_odd_ids(model):
    with pytest.raises(InvalidInput, match="</s>"):
        from_sentencepiece(model, {"<unk>": 0})
    with pytest.raises(InvalidInput, match="each exactly once"):
        from_sentencepiece(model, {"<unk>": 0, "</s>": 7})


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_file_without_eos_and_with_other_names_of_special_tokens(kind, caplog):
    """Nothing ends a text; control pieces are special tokens, whatever their names."""
    model = train(kind, eos_id=-1, bos_id=-1, unk_piece="<UNK>", control_symbols="<EOS>")
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = from_sentencepiece(model)
    assert "no token ends a text" in caplog.text
    for text in CORPUS[:4]:
        assert tokenizer.encode_ids(text) == library.encode(text), text
    end = library.piece_to_id("<EOS>")
    assert tokenizer.encode_ids("<EOS>") == [end]
    assert (tokenizer.decode([end]), tokenizer.decode([end], keep_special_tokens=True)) == ("", "<EOS>")


@pytest.mark.parametrize(("kind", "name"), [("bpe", "MBartTokenizer"), ("unigram", "LlamaTokenizer")])
def test_a_class_that_contradicts_its_file_is_named_and_the_ids_are_the_librarys(kind, name, caplog):
    model = train(kind)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = from_sentencepiece(model, config={"tokenizer_class": name, "add_bos_token": False})
    assert f"{name} makes {'a unigram model' if kind == 'bpe' else 'BPE'} of this" in caplog.text
    for text in CORPUS[:4]:
        pieces = [library.id_to_piece(id) for id in library.encode(text)]
        assert [tokenizer.token(id) for id in tokenizer.encode_ids(text, add_special_tokens=False)] == pieces


def train(model_type, **options):
    out = io.BytesIO()
    options = {
        "sentence_iterator": iter(CORPUS * 4),
        "model_writer": out,
        "minloglevel": 2,
        "vocab_size": 140,
    } | options
    sentencepiece.SentencePieceTrainer.train(model_type=model_type, hard_vocab_limit=False, **options)
    return out.getvalue()


def test_bpe_with_language_tokens_as_m2m100_has_it():
    model = train("bpe")
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = {library.id_to_piece(i): i for i in reversed(range(len(library)))}
    config = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": ["__de__", "__en__"]}
    tokenizer = from_sentencepiece(model, ids, config)
    for text in TEXTS:
        expected = library.encode(text)
        assert tokenizer.encode_ids(text, add_special_tokens=False) == expected, text
        assert tokenizer.encode_ids(text) == [len(ids) + 1, *expected, ids["</s>"]], text
        assert library.unk_id() in expected or tokenizer.decode(expected) == library.decode(expected), text


def test_bpe_with_bytes_as_llama_has_it():
    model = train("bpe", byte_fallback=True, vocab_size=400, normalization_rule_name="identity")
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = from_sentencepiece(model, config={"legacy": True, "add_eos_token": True, "eos_token": "</s>"})
    for text in [*CORPUS[:4], "漢字 x", "é 👍"]:
        assert tokenizer.encode_ids(text) == [1, *library.encode(text), 2], text
        assert tokenizer.decode(tokenizer.encode_ids(text)) == text


def test_ids_of_xlm_roberta():
    model = train("unigram")
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = from_sentencepiece(model, config={"tokenizer_class": "XLMRobertaTokenizer"})
    assert (tokenizer.id("<s>"), tokenizer.id("<mask>")) == (0, len(library) + 1)
    for text in CORPUS[:4]:
        assert tokenizer.encode_ids(text) == [0, *(id + 1 for id in library.encode(text)), 2]


def test_other_model_types_are_refused():
    with pytest.raises(InvalidInput, match="neither a unigram nor a BPE model"):
        from_sentencepiece(train("char"))


RULES = [
    {}, {"normalization_rule_name": "nfkc_cf"}, {"normalization_rule_name": "identity"},
    {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False}, {"byte_fallback": True, "vocab_size": 500},
]  # fmt: skip
ALPHABETS = [
    "abcde ", "éèÅñ ", "\u0301\u0302\u0323\u0308\u0327\u3099", "漢字がぱ", "각한\u1100\u1161\u11a8",
    "👩\u200d👧🏽\ufe0f🇩🇪", "عَرَ", "\t\n\r\x00\x1f\x7f\x85\xa0\u2028\u200b\ufeff\u3000 ", "ﬁ½①㍿Ａｶﾞﷺ…", "हिक़",
    "йЁ\u0306", "ΐὕ", "𝒳\U0002f800",
]  # fmt: skip


def random_text(rng):
    text = "".join(rng.choice(rng.choice(ALPHABETS)) for _ in range(rng.randrange(30)))
    form = rng.choice([None, "NFC", "NFD", "NFKC", "NFKD"])
    return unicodedata.normalize(form, text) if form else text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_any_text_has_the_ids_of_the_library(kind, rules):
    """Decomposed text, combining marks, control characters, spaces: as M2M100 and Marian use the library."""
    model = train(kind, **rules)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = {library.id_to_piece(i): i for i in reversed(range(len(library)))}
    tokenizer = from_sentencepiece(model, ids, {"tokenizer_class": "M2M100Tokenizer"})
    rng = random.Random(5)
    texts = [random_text(rng) for _ in range(400)]
    expected = [library.encode(text) for text in texts]
    assert tokenizer.encode_batch_ids(texts, add_special_tokens=False) == expected
    for text, its_ids in zip(texts[:50], expected, strict=False):
        # both classes of transformers strip what the library decodes
        assert library.unk_id() in its_ids or tokenizer.decode(its_ids) == library.decode(its_ids).strip(), text


def test_shortest_match_gives_other_ids(model, library):
    """The normalizer of the tokenizers library alone is not enough."""
    tokenizer = from_sentencepiece(model)
    shortest = Tokenizer(tokenizer._data, {"eos_token": "</s>"})
    texts = [random_text(random.Random(seed)) for seed in range(100)]
    assert any(shortest.encode_ids(text) != tokenizer.encode_ids(text) for text in texts)


def test_offsets_are_those_of_the_original_text(model):
    text = "ﬁne cafe\u0301  </s> ½"
    encoding = from_sentencepiece(model).encode(text, add_special_tokens=False)
    spans = [text[start:end] for start, end in encoding.offsets]
    assert spans[-1].endswith("½")
    assert "</s>" in spans
    assert encoding.offsets == tuple(sorted(encoding.offsets))


def test_unigram_with_bytes_spells_unknown_characters():
    model = train("unigram", byte_fallback=True, vocab_size=500)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for config in (None, {"tokenizer_class": "LlamaTokenizer"}):
        tokenizer = from_sentencepiece(model, config=config)
        for text in (*CORPUS[:4], "漢字 x", "e\u0301 👍"):
            ids = library.encode(text)
            assert tokenizer.encode_ids(text) == [1, *ids], text
            assert tokenizer.decode(ids) == library.decode(ids)


def test_language_codes_of_marian(model, library):
    names = [">>fr<<", *(library.id_to_piece(i) for i in range(len(library))), "<pad>"]
    tokenizer = from_sentencepiece(model, {name: id for id, name in enumerate(names)})
    expected = [id + 1 for id in library.encode("The pizza")]
    assert tokenizer.encode_ids(">>fr<< The pizza", add_special_tokens=False) == [0, *expected]
    assert tokenizer.encode_ids("<pad>The pizza", add_special_tokens=False) == [len(names) - 1, *expected]
    assert tokenizer.encode_ids("x<s>y", add_special_tokens=False) == [id + 1 for id in library.encode("x<s>y")]
    unknown = names.index("<unk>")
    assert tokenizer.encode_ids(">>xx<< The pizza", add_special_tokens=False) == [unknown, *expected]
    spelled = [id + 1 for id in library.encode("to >>fr<< it")]  # a code is one only at the beginning of a text
    assert tokenizer.encode_ids("to >>fr<< it", add_special_tokens=False) == spelled
    assert tokenizer.encode(">>fr<< The pizza").offsets[:2] == ((0, 6), (7, 8))
    assert tokenizer.encode(">>fr<<", add_special_tokens=False).offsets == ((0, 6),)
    ids, lengths = tokenizer.encode_batch_ids([">>fr<< The pizza", "The pizza"]), [len(expected) + 2, len(expected) + 1]
    assert [*map(len, ids)] == lengths


@pytest.mark.parametrize(("class_name", "shown"), [(None, "</s> a"), ("M2M100Tokenizer", "</s>a")])
def test_text_around_special_tokens_is_that_of_transformers(model, library, class_name, shown):
    """A text begins anew after a special token; spaces around a text are removed, also in parts."""
    ids = {library.id_to_piece(i): i for i in range(len(library))}
    tokenizer = from_sentencepiece(model, ids, {"tokenizer_class": class_name} if class_name else None)
    space, word, eos = ids["▁"], ids["▁a"], tokenizer.special_tokens.eos
    assert tokenizer.decode([eos, word], keep_special_tokens=True).startswith(shown)
    for sequence in ([word, space], [space, word, space, eos, word, space, space], [space]):
        decoder = IncrementalDecoder(tokenizer)
        text = "".join(decoder.push(id) for id in sequence) + decoder.finish()
        assert text == tokenizer.decode(sequence) == tokenizer.decode(sequence, clean_up=False).strip()
    assert tokenizer.to_bytes(space) == b" "


def test_damaged_files_raise_peasy_errors_or_load(model):
    rng, refused = random.Random(1), 0
    for _ in range(200):
        damaged = bytearray(model[: rng.randrange(len(model))] if rng.random() < 0.5 else model)
        for _ in range(rng.randrange(1, 6)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        start = time.process_time()
        try:
            from_sentencepiece(bytes(damaged)).encode("The pizza")
        except PeasyError:
            refused += 1
        assert time.process_time() - start < 1
    assert refused > 50


def varint(number):
    return (bytes([number & 127 | 128]) + varint(number >> 7)) if number > 127 else bytes([number])


def message(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def piece(text, score=0.0, kind=1):
    name = text if isinstance(text, bytes) else text.encode()
    return message(1, message(1, name) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))


BASE = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + b"".join(map(piece, "▁abc"))
UNIGRAM, BPE = message(2, b"\x18\x01"), message(2, b"\x18\x02")


def charsmap(data):
    return BASE + UNIGRAM + message(3, message(2, data))


ATTACKS = {
    "empty": b"", "zeros": bytes(1000), "length beyond the end": varint(10) + varint(2**62) + b"x",
    "length of 80 bits": varint(10) + b"\xff" * 11, "varint without end": b"\xff" * 10**6, "group": b"\x0bx",
    "piece is a number": b"\x08\x05", "name is a number": message(1, b"\x08\x03"),
    "score is a number": message(1, message(1, b"a") + b"\x10\x07"),
    "score of eight bytes": message(1, message(1, b"a") + b"\x11" + bytes(8)),
    "kind is text": message(1, message(1, b"a") + message(3, b"xx")),
    "trainer is a number": BASE + b"\x10\x01", "normalizer is a number": BASE + b"\x18\x01",
    "type is text": BASE + message(2, message(3, b"x")), "type is huge": BASE + message(2, b"\x18" + varint(2**63)),
    "NaN": BASE + piece("d", float("nan")), "infinity": BASE + piece("d", float("inf")),
    "1e38": BASE + piece("d", 1e38),
    "not UTF-8": BASE + piece(b"\xff"), "surrogate": BASE + piece(b"\xed\xa0\x80"), "empty piece": BASE + piece(""),
    "duplicates": BASE * 2 + UNIGRAM, "duplicates of BPE": BASE * 2 + BPE, "no unknown": piece("</s>", 0, 3),
    "cut in a length": BASE + UNIGRAM + b"\x0a", "piece of a megabyte": BASE + piece("a" * 10**6) + UNIGRAM,
    "short charsmap": charsmap(b"ab"), "charsmap of two gigabytes": charsmap(b"\xff\xff\xff\x7fa"),
    "charsmap without trie": charsmap(bytes(4) + b"a\0"), "charsmap is a number": BASE + message(3, b"\x10\x01"),
    "charsmap of random numbers": charsmap(struct.pack("<I", 1024) + random.Random(1).randbytes(1024) + b"abc\0" * 9),
    "charsmap with a long text": charsmap(struct.pack("<I", 16) + bytes(16) + b"x" * 10**6 + b"\0"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_files_are_refused_in_a_sentence(name):
    with pytest.raises(InvalidInput) as refused:
        from_sentencepiece(ATTACKS[name]).encode("abc")
    assert refused.value.message.endswith(".")
    if name in ("NaN", "infinity", "1e38"):
        assert "damaged piece 'd'" in refused.value.message
    if name.startswith(("length", "cut")):
        assert "damaged or cut off" in refused.value.message


def test_the_attacks_differ_from_a_file_that_is_read():
    for kind in (UNIGRAM, BPE):
        tokenizer = from_sentencepiece(BASE + kind)
        assert tokenizer.decode(tokenizer.encode("abc").ids) == "abc"


def test_many_pieces_are_refused_while_they_are_read(monkeypatch):
    monkeypatch.setattr(convert, "_MAX_PIECES", 100)
    many = BASE + b"".join(piece(f"p{index}") for index in range(93))
    assert len(from_sentencepiece(many + UNIGRAM)) == 100
    with pytest.raises(InvalidInput, match="more than 100 pieces"):
        from_sentencepiece(many + piece("one") + UNIGRAM)


def test_pieces_that_can_be_joined_in_very_many_ways_are_refused():
    """8 MB of pieces would be 16 GB of merges: each of 4,000 lengths of one letter is a sum of two others."""
    many = b"".join(piece("a" * size, -size) for size in range(2, 4000))
    with pytest.raises(InvalidInput, match="joined in too many ways"):
        from_sentencepiece(BASE + many + BPE)
    assert from_sentencepiece(BASE + b"".join(piece("a" * size, -size) for size in range(2, 100)) + BPE).id("a" * 99)


@pytest.mark.parametrize("asked", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
@pytest.mark.parametrize("class_name", ["LlamaTokenizer", "PreTrainedTokenizerFast", None])
def test_tokens_around_a_text_of_a_decoder(caplog, class_name, asked):
    """Mistral's file alone gets bos as asked, Llama's default otherwise, and no eos; what nobody asked for is said."""
    model = train("bpe", byte_fallback=True, vocab_size=500)
    plain = sentencepiece.SentencePieceProcessor(model_proto=model).encode("The pizza")
    tokenizer = from_sentencepiece(model, config=asked | ({"tokenizer_class": class_name} if class_name else {}))
    bos = asked.get("add_bos_token", True)
    assert tokenizer.encode_ids("The pizza") == [*([1] if bos else []), *plain]
    assert ("add_bos_token" in caplog.text) == (not asked)


@pytest.mark.parametrize(
    ("class_name", "warning"), [(None, "names no class"), ("LlamaTokenizer", "makes BPE of this unigram model")]
)
def test_a_file_that_its_class_does_not_explain_is_named(caplog, model, class_name, warning):
    from_sentencepiece(model, config={"tokenizer_class": class_name, "add_bos_token": True} if class_name else None)
    assert warning in caplog.text
