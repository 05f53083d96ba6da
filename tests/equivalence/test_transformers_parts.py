"""Parts of published models: the language model inside one of text and images, and seq2seq folders without a head."""

import json

import pytest
import torch

from peasy.checkpoint.huggingface import read_folder
from peasy.checkpoint.huggingface.folder import load_model
from peasy.errors import InvalidInput

from .conftest import GEMMA, SMALL_BART, SMALL_LLAMA

transformers = pytest.importorskip("transformers")
IDS = torch.randint(3, 57, (2, 9), generator=torch.Generator().manual_seed(1))


def saved(model, folder, **changes):
    """Save a model; `changes` replace fields of its config.json."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def gemma3(**text):
    text = SMALL_LLAMA | GEMMA | {"sliding_window": 4, "model_type": "gemma3_text", "query_pre_attn_scalar": 10} | text
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision | {"image_size": 28, "patch_size": 14})
    torch.manual_seed(2)
    return transformers.Gemma3ForConditionalGeneration(config).eval()


@torch.no_grad()
def test_language_model_of_gemma_3(tmp_path):
    theirs = gemma3()
    checkpoint = read_folder(saved(theirs, tmp_path / "m"))
    assert checkpoint.family == "gemma3_text"
    assert checkpoint.unused
    assert all("vision" in name or "projector" in name for name in checkpoint.unused)
    expected = theirs(input_ids=IDS).logits
    torch.testing.assert_close(load_model(checkpoint)(IDS), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_language_model_of_mistral_3(tmp_path, tied):
    """Whether the head is tied is a field of the whole model; the text's own field may say otherwise."""
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Mistral3Config(
        text_config=SMALL_LLAMA | {"model_type": "mistral", "num_key_value_heads": 2, "tie_word_embeddings": not tied},
        vision_config=vision | {"model_type": "pixtral", "image_size": 28, "patch_size": 14},
        tie_word_embeddings=tied,
    )
    torch.manual_seed(2)
    theirs = transformers.Mistral3ForConditionalGeneration(config).eval()
    checkpoint = read_folder(saved(theirs, tmp_path / "m"))
    assert checkpoint.family == "mistral"
    torch.testing.assert_close(load_model(checkpoint)(IDS), theirs(input_ids=IDS).logits, atol=1e-4, rtol=1e-4)


def test_text_config_of_gemma_3_may_be_short(tmp_path):
    """Published files list only what differs from the defaults of transformers."""
    text = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072}
    theirs = gemma3(**text, hidden_size=32)
    short = {"model_type": "gemma3_text", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3}
    folder = saved(theirs, tmp_path / "m", text_config=short | {"vocab_size": 61, "sliding_window": 4})
    config = read_folder(folder).config
    assert (config.stack.attention.num_heads, config.stack.attention.num_kv_heads) == (8, 4)
    assert config.max_seq_len == 131072


def test_other_models_of_images_are_refused(tmp_path):
    folder = saved(gemma3(), tmp_path / "m", model_type="llava")
    with pytest.raises(InvalidInput, match="'llava' is not supported"):
        read_folder(folder)


@torch.no_grad()
@pytest.mark.parametrize("name", ["Bart", "MBart", "Pegasus", "M2M100"])
def test_seq2seq_folder_without_a_head(tmp_path, name):
    """facebook/bart-base is stored as BartModel: its head is the embedding."""
    config = getattr(transformers, f"{name}Config")(**SMALL_BART)
    torch.manual_seed(3)
    folder = saved(getattr(transformers, f"{name}Model")(config), tmp_path / "m")
    theirs = getattr(transformers, f"{name}ForConditionalGeneration").from_pretrained(folder).eval()
    expected = theirs(input_ids=IDS, decoder_input_ids=IDS[:, :5]).logits
    ours = load_model(read_folder(folder))
    torch.testing.assert_close(ours(IDS[:, :5], source=IDS), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("field", ["attn_logit_softcapping", "final_logit_softcapping", "sliding_window"])
@pytest.mark.parametrize("is_null", [False, True])
def test_missing_and_null_fields_differ(tmp_path, field, is_null):
    """Gemma 2 has soft caps and a window unless config.json says null."""
    settings = SMALL_LLAMA | GEMMA | {"query_pre_attn_scalar": 1}
    torch.manual_seed(4)
    model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**settings))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=1.0)
    folder = saved(model, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in config.items() if name != field} | ({field: None} if is_null else {})
    (folder / "config.json").write_text(json.dumps(config))
    if is_null and field == "sliding_window":
        assert read_folder(folder).config.stack.attention.window is None
        return
    theirs = transformers.Gemma2ForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    torch.testing.assert_close(load_model(read_folder(folder))(IDS), theirs(input_ids=IDS).logits, atol=1e-3, rtol=1e-3)
