"""docs/settings.md has every key that `peasy train --set` accepts, with its meaning."""

import dataclasses
import re
import typing

import pytest

from peasy.config import to_plain
from peasy.datasets import BUILT_IN
from peasy.datasets.catalogue import FilesConfig
from peasy.models.config import ModelConfig
from peasy.models.preset import preset
from peasy.parameters import attribute_docstrings
from peasy.training.recipe import MODEL_KINDS, MODEL_SIZES, Recipe, make_recipe

ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def rows(root):
    """Meaning, default and values of each key on the page; a key of several tables has the last one's."""
    text = (root / "docs" / "settings.md").read_text(encoding="utf-8")
    return {key.strip("`"): cells for keys, *cells in ROW.findall(text) for key in keys.split("<br>")}


def reachable_keys(kind: type, path: str = "") -> set[str]:
    """Dotted keys of all values below a dataclass; `kind` counts where it selects between dataclasses."""
    keys = set()
    for name, hint in typing.get_type_hints(kind).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        options = [hint, *typing.get_args(hint)]
        inner = [option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)]
        key = f"{path}{name}"
        keys |= {f"{key}.kind" for option in inner if hasattr(option, "kind")} or {key}
        for option in inner:
            keys |= reachable_keys(option, f"{key}.")
    return keys


def dataset_configs():
    for corpus in BUILT_IN.values():
        yield getattr(__import__(corpus.module, fromlist=["x"]), corpus.config_class)
    yield FilesConfig


def test_every_reachable_key_is_described(rows):
    keys = reachable_keys(Recipe) | {"data_options.seed"}
    keys |= {key for config in typing.get_args(ModelConfig) for key in reachable_keys(config, "model.")}
    keys |= {key for config in dataset_configs() for key in reachable_keys(config, "data_options.")}
    assert len(keys) > 150
    assert keys == set(rows)
    assert not [key for key, cells in rows.items() if not all(cell.strip() for cell in cells)]


@pytest.mark.parametrize(
    ("kind", "size"),
    [(kind, size) for kind in MODEL_KINDS for size in MODEL_SIZES if kind == "gpt" or size != "speedrun"],
)
def test_every_key_of_a_recipe_is_described(rows, kind, size):
    """Checked without types: the keys of all presets, as they are saved in recipe.json and model.json."""
    recipe = to_plain(make_recipe(kind, size)) | {"model": to_plain(preset(f"{kind}-{size}"))}
    keys = leaf_keys(recipe) - {"model.kind", "objective", "data_options"}
    assert not {key for key in keys if key not in rows and f"{key}.kind" not in rows}


def leaf_keys(table: dict, path: str = "") -> set[str]:
    keys = set()
    for key, value in table.items():
        keys |= leaf_keys(value, f"{path}{key}.") if isinstance(value, dict) and value else {f"{path}{key}"}
    return keys


def test_every_field_of_the_settings_has_a_docstring(generate):
    for kind, _, title in generate._setting_classes():
        missing = {field.name for field in dataclasses.fields(kind)} - set(attribute_docstrings(kind))
        assert not missing, title


def test_a_setting_is_one_line_of_its_table(generate):
    """A line break in a docstring would end the table."""
    tables = [table for section in generate.SETTING_SECTIONS for table in generate.setting_tables(section)]
    assert not [row.keys for *_, rows in tables for row in rows if "\n" in row.cells()]


def test_ranges_and_defaults_come_from_the_code(rows):
    assert rows["batch_size"][2] == "integer ≥ 1"
    assert rows["schedule.warmup"][2] == "number, 0 to 1"
    assert rows["model.dropout"][2] == "number ≥ 0 and < 1"
    assert rows["sample_unit"][2] == "windows, documents"
    assert rows["grad_clip"][1:] == ["`1.0`", "number ≥ 0 or null"]
    assert rows["optimizer.kind"][1].startswith("`muon`: gpt, encoder, translator")
