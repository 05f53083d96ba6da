"""Recipes: presets are data, settings override them, misspelt settings are named."""

from dataclasses import replace

import pytest

from peasy import config
from peasy.errors import InvalidInput, NotFound
from peasy.models.preset import preset
from peasy.training.optimizer import AdamWConfig, MuonConfig
from peasy.training.recipe import MODEL_KINDS, MODEL_SIZES, Recipe, changed_settings, make_recipe


def test_only_gpt_has_a_speedrun():
    """The default exports to Hugging Face and GGUF; the additions that do not are a preset of their own."""
    plain, fast = preset("gpt-small"), preset("gpt-speedrun")
    assert (plain.stack.token_shift, plain.embedding.max_ngram) == (False, 1)
    assert (fast.stack.token_shift, fast.embedding.max_ngram) == (True, 3)
    assert replace(fast, stack=replace(fast.stack, token_shift=False), embedding=plain.embedding) == plain
    assert make_recipe("gpt", "speedrun").batch_size == make_recipe("gpt").batch_size
    with pytest.raises(NotFound, match='encoder has no preset "speedrun"') as error:
        make_recipe("encoder", "speedrun")
    assert "tiny, small, base" in error.value.hint


@pytest.mark.parametrize("size", [size for size in MODEL_SIZES if size != "speedrun"])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_every_kind_and_size_has_a_recipe_and_a_model(kind, size):
    recipe = make_recipe(kind, size)
    assert recipe.model_kind == kind
    assert preset(f"{kind}-{size}")
    assert config.read(Recipe, config.to_plain(recipe)) == recipe


def test_settings_override_the_preset():
    recipe = make_recipe("gpt", "tiny", {"optimizer": {"lr": 0.5}, "tokenizer": {"algorithm": "characters"}})
    assert isinstance(recipe.optimizer, MuonConfig)
    assert recipe.optimizer.lr == 0.5
    assert recipe.optimizer.adamw == make_recipe("gpt", "tiny").optimizer.adamw
    assert recipe.tokenizer.vocab_size == 512


def test_other_optimizer_replaces_all_its_settings():
    assert make_recipe("gpt", settings={"optimizer": {"kind": "adamw"}}).optimizer == AdamWConfig()


def test_steps_replace_minutes():
    assert (make_recipe("gpt").steps, make_recipe("gpt").minutes) == (None, 3.0)
    assert (make_recipe("gpt", steps=5).steps, make_recipe("gpt", steps=5).minutes) == (5, None)
    assert make_recipe("gpt", settings={"steps": 5}).minutes is None
    assert make_recipe("gpt", settings={"minutes": 2}, steps=5).minutes is None
    assert make_recipe("gpt", settings={"steps": 5, "minutes": None}, minutes=1.5).steps is None


def test_size_and_kind_of_the_settings():
    assert make_recipe("gpt", settings={"preset": "tiny"}) == make_recipe("gpt", "tiny")
    assert make_recipe("gpt", "small", {"preset": "tiny"}) == make_recipe("gpt")
    with pytest.raises(InvalidInput, match="are those of rnn, not of gpt"):
        make_recipe("gpt", settings={"model_kind": "rnn"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": {}}, "optimiser"),
        ({"optimizer": {"rate": 1}}, "recipe.optimizer.rate"),
        ({"batch_size": "many"}, "recipe.batch_size should be a whole number"),
        ({"batch_size": 5, "grad_accum_steps": 2}, "cannot be split into 2 equal parts"),
        ({"steps": 1, "minutes": 1}, "steps or minutes"),
        ({"steps": 0}, "steps is 0"),
        ({"minutes": 0.0}, "minutes is 0.0"),
        ({"keep_checkpoints": 0}, "keep_checkpoints is 0"),
    ],
)
def test_invalid_setting_is_named(settings, message):
    with pytest.raises(InvalidInput, match=message):
        make_recipe("gpt", settings=settings)


def test_unknown_kind_or_size_is_rejected():
    with pytest.raises(NotFound, match='no model kind "gtp"') as error:
        make_recipe("gtp")
    assert error.value.hint == "Did you mean gpt?"
    with pytest.raises(NotFound, match="huge"):
        make_recipe("gpt", "huge")


def test_changed_settings_are_listed_by_path():
    old, new = make_recipe("gpt"), make_recipe("gpt", settings={"optimizer": {"adamw": {"lr": 1.0}}}, seed=4)
    assert changed_settings(old, new) == ["optimizer.adamw.lr", "seed"]
    assert changed_settings(old, old) == []


def test_sequence_length_warmup_keeps_tokens_per_batch():
    warmup = {"seq_len": 16, "until_fraction": 0.5}
    recipe = make_recipe("gpt", settings={"seq_len": 64, "batch_size": 4, "seq_len_warmup": warmup})
    assert recipe.batch_shape(0.0) == (16, 16)
    assert recipe.batch_shape(0.5) == (4, 64)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("suffix", "data_options.suffix"), ("valid", "data_options.valid"), ("lr", "optimizer.lr"),
        ("learning_rate", "optimizer.lr"), ("heads", "model.stack.attention.num_heads"),
        ("layers", "model.stack.num_layers"), ("vocab_size", "tokenizer.vocab_size"), ("batchsize", "batch_size"),
        ("eval_steps", "num_validations"), ("save_steps", "num_saves"), ("early_stopping", "patience"),
        ("report_to", "sinks"),
    ],
)  # fmt: skip
def test_unknown_settings_name_the_one_that_is_meant(name, meant):
    with pytest.raises(InvalidInput, match=f"{name}: unknown setting") as error:
        make_recipe("gpt", "tiny", {name: 1})
    assert f" {meant}" in error.value.hint
