"""Built-in models: present, small, with correct cards, usable offline."""

import pytest
import torch

from peasy.checkpoint.paths import built_in_models
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import read_manifest
from peasy.commands.evaluate import evaluate
from peasy.commands.load import load
from peasy.commands.models import model, read_card
from peasy.models.built_in import recipes

NAMES = list(recipes())


@pytest.fixture(autouse=True)
def _nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_every_recipe_has_a_model():
    assert sorted(built_in_models()) == sorted(NAMES)


def test_models_are_small():
    sizes = {name: sum(file.stat().st_size for file in folder.iterdir()) for name, folder in built_in_models().items()}
    assert max(sizes.values()) <= 3_000_000
    assert sum(sizes.values()) <= 8_000_000


@pytest.mark.parametrize("name", NAMES)
def test_card_matches_recipe(name):
    card = read_card(built_in_models()[name])
    assert card["command"] == recipes()[name].command()
    assert card["description"] == recipes()[name].description
    assert card["limitations"] == recipes()[name].limitations
    assert card["metrics"]
    assert card["parameters"] == load(name).model.count_parameters()
    text = str(model(name))
    assert card["description"][:20] in text
    assert read_manifest(SafeFolder(built_in_models()[name])).notes["stored"] == "float16"


@pytest.mark.parametrize(
    ("name", "data", "measure", "least", "options"),
    [
        ("stories", "stories", "ending accuracy", 0.98, {"num_valid": 60}),
        ("sentences", "opinions", "nearest-neighbour accuracy", 0.9, {"num_valid": 100}),
        ("repeats", "repeats", "ending accuracy", 0.98, {"num_valid": 60}),
    ],
)
def test_card_metrics_are_reproduced(name, data, measure, least, options):
    """Evaluated on the first validation samples; the card used all of them."""
    on_card = read_card(built_in_models()[name])["metrics"][measure]
    measured = evaluate(name, data, max_samples=40, options=options)[measure]
    assert on_card >= least
    assert abs(measured - on_card) < 0.1


@pytest.mark.parametrize("name", ["locales-fr", "locales-fr-2015"])
def test_dates_units_and_money_are_translated(name):
    assert read_card(built_in_models()[name])["metrics"]["exact match"] > 0.9
    categories = evaluate(name, "locales:en-fr", max_samples=60, options={"num_pairs": 600}).data()["categories"]
    correct, count = (sum(categories[name][key] for name in ("date", "unit", "money")) for key in ("correct", "count"))
    assert count > 30
    assert correct / count >= 0.97


def test_pronoun_decides_the_ending():
    stories = load("stories")
    pizza, oven = (stories.generate(text, max_tokens=12, temperature=0).texts[0] for text in (
        "The pizza came out of the oven and it", "The oven baked the pizza and it"))  # fmt: skip
    food, cooker = ({ending.split()[-1].strip(".") for ending in endings} for endings in _endings())
    assert pizza.split(".")[0].split()[-1] in food
    assert oven.split(".")[0].split()[-1] in cooker


def _endings():
    from peasy.datasets.stories import story_words

    return story_words().noun_classes["food"].endings, story_words().noun_classes["cooker"].endings


def test_date_in_french():
    assert load("locales-fr").translate("Sunday, November 15, 2026").text == "dimanche 15 novembre 2026"


def test_awesome_and_great_are_similar():
    words = load("words")
    table, ids = words.model.embedding.weight.detach(), words.require_tokenizer()
    great, awesome, pizza, soup = (table[ids.encode(word).ids[0]] for word in ("great", "awesome", "pizza", "soup"))
    assert torch.cosine_similarity(great, awesome, dim=0) > 0.9
    assert torch.cosine_similarity(pizza, soup, dim=0) > 0.9
    assert torch.cosine_similarity(great, pizza, dim=0) < 0.5
