"""Typed configuration: every error names the path of the key."""

import json
import tomllib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.config import apply_setting, load, read, read_file, to_plain
from peasy.errors import InvalidInput, NotFound, PeasyError


@dataclass(frozen=True)
class Learned:
    kind: ClassVar[str] = "learned"
    length: int = 128


@dataclass(frozen=True)
class Rotary:
    kind: ClassVar[str] = "rotary"
    base: float = 10000.0

    def __post_init__(self):
        if self.base <= 0:
            raise InvalidInput("base should be above 0.", hint="10000 is usual.")


@dataclass(frozen=True)
class Model:
    layers: int
    position: Learned | Rotary = Learned()
    norm: Literal["layer", "rms"] = "layer"
    dropout: float = 0.0
    tie: bool = True
    window: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    sizes: list[int] = field(default_factory=list)
    by_name: dict[str, float] = field(default_factory=dict)
    rate: float | int = 1
    seed: int | str = 0
    extra: Any = None


@dataclass(frozen=True)
class Run:
    model: Model
    title: str = ""


FULL = {
    "model": {
        "layers": 4, "position": {"kind": "rotary", "base": 500.0}, "norm": "rms", "dropout": 0.1, "tie": False,
        "window": [1, 2], "names": ["a", "b"], "sizes": [1, 2], "by_name": {"x": 1.5}, "rate": 2, "seed": "now",
        "extra": {"anything": [1, None]},
    },
    "title": "first",
}  # fmt: skip


def test_all_kinds_of_fields():
    run = read(Run, FULL)
    assert run.model.position == Rotary(500.0)
    assert run.model.window == (1, 2)
    assert run.model.names == ("a", "b")
    assert (run.model.rate, type(run.model.rate)) == (2, int)
    assert read(Run, to_plain(run)) == run
    assert to_plain(run) == FULL


def test_defaults_and_whole_numbers_for_floats():
    model = read(Model, {"layers": 2, "dropout": 1})
    assert model == Model(2, dropout=1.0)
    assert type(model.dropout) is float


WRONG = {
    "unknown key": ({"layerz": 4}, "model.layerz: unknown key.", "Did you mean layers?"),
    "unknown key, nothing near": ({"qqq": 4}, "model.qqq: unknown key.", "Known keys: layers, position"),
    "unknown key deeper": (
        {"position": {"kind": "rotary", "bases": 1}},
        "model.position.bases: unknown key.",
        "base?",
    ),
    "missing": ({}, "model.layers is missing.", None),
    "text for a number": ({"layers": "4"}, "model.layers should be a whole number, not '4'.", None),
    "point for a whole number": ({"layers": 4.0}, "model.layers should be a whole number, not 4.0.", None),
    "true for a number": ({"layers": True}, "model.layers should be a whole number, not True.", None),
    "number for true": ({"tie": 1}, "model.tie should be true or false, not 1.", None),
    "true for a float": ({"dropout": True}, "model.dropout should be a number, not True.", None),
    "nan": ({"dropout": float("nan")}, "model.dropout should be a finite number, not nan.", None),
    "infinity": ({"dropout": float("inf")}, "model.dropout should be a finite number, not inf.", None),
    "beyond any float": ({"dropout": 10**400}, "model.dropout should be a finite number, not inf.", None),
    "no such choice": (
        {"norm": "rmsnorm"},
        "model.norm should be one of layer, rms, not 'rmsnorm'.",
        "Did you mean rms?",
    ),
    "choice of another type": ({"norm": ["layer"]}, "model.norm should be one of layer, rms, not ['layer'].", None),
    "no such kind": (
        {"position": {"kind": "rotery"}},
        "model.position.kind should be one of learned, rotary",
        "Did you mean rotary?",
    ),
    "kind missing": ({"position": {"base": 2.0}}, "model.position.kind is missing.", "It is one of learned, rotary."),
    "no table": ({"position": 5}, "model.position should be a table, not 5.", None),
    "tuple too long": ({"window": [1, 2, 3]}, "model.window should have 2 entries, not [1, 2, 3].", None),
    "tuple of text": ({"window": [1, "b"]}, "model.window[1] should be a whole number, not 'b'.", None),
    "no list": ({"names": "ab"}, "model.names should be a list, not 'ab'.", None),
    "inside a list": ({"sizes": [1, 2.5]}, "model.sizes[1] should be a whole number, not 2.5.", None),
    "inside a table": ({"by_name": {"x": "y"}}, "model.by_name.x should be a number, not 'y'.", None),
    "one of two": ({"seed": [1]}, "model.seed should be a whole number or text, not [1].", None),
    "nothing where nothing may be": ({"layers": None}, "model.layers should be a whole number, not None.", None),
    "refused by the settings themselves": (
        {"position": {"kind": "rotary", "base": -1}},
        "model.position: base should be above 0.",
        "10000 is usual.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_path(name):
    changes, message, hint = WRONG[name]
    model = changes if name == "missing" else {"layers": 1} | changes
    with pytest.raises(InvalidInput) as error:
        read(Run, {"model": model})
    assert message in error.value.message
    assert hint is None or hint in error.value.hint


def test_choices_keep_their_type():
    @dataclass(frozen=True)
    class Choice:
        size: Literal[1, 2] = 1

    assert read(Choice, {"size": 2}).size == 2
    for bad in (True, 1.0, "1"):
        with pytest.raises(InvalidInput, match="size should be one of 1, 2"):
            read(Choice, {"size": bad})


def test_kind_is_optional_if_there_is_only_one():
    assert read(Rotary, {"kind": "rotary", "base": 2}) == Rotary(2.0)
    with pytest.raises(InvalidInput, match="should have kind 'rotary'"):
        read(Rotary, {"kind": "learned"})


def test_long_values_are_shortened_in_errors():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    for bad in ("x" * 10_000, list(range(10_000)), deep, {"a" * 1000: deep}):
        with pytest.raises(InvalidInput) as error:
            read(Model, {"layers": bad})
        assert len(error.value.message) < 400


class TestFiles:
    def write(self, folder, name, text):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def test_toml_and_json_read_the_same(self, tmp_path):
        toml = self.write(tmp_path, "a.toml", '[model]\nlayers = 4\n[model.position]\nkind = "rotary"\nbase = 500\n')
        as_json = self.write(tmp_path, "a.json", json.dumps(tomllib.loads(toml.read_text())))
        assert read_file(Run, toml) == read_file(Run, as_json) == Run(Model(4, Rotary(500.0)))

    def test_byte_order_mark_is_ignored(self, tmp_path):
        assert load(self.write(tmp_path, "a.toml", "\ufefflayers = 4")) == {"layers": 4}

    def test_the_file_is_named(self, tmp_path):
        with pytest.raises(InvalidInput, match=r"run.toml.model.layerz: unknown key"):
            read_file(Run, self.write(tmp_path, "run.toml", "[model]\nlayers = 1\nlayerz = 4"))

    def test_no_file(self, tmp_path):
        with pytest.raises(NotFound, match="There is no file"):
            load(tmp_path / "none.toml")
        with pytest.raises(InvalidInput, match=r"cannot be read: Is a directory\.$"):
            load(tmp_path)
        with pytest.raises(InvalidInput, match="cannot be read"):
            load("a\0b.toml")

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.json", "{"),
            ("a.json", '{"a": NaN}'),
            ("a.json", '{"a": Infinity}'),
            ("a.json", '{"a": 1, "a": 2}'),
            ("a.json", "[" * 100_000),
            ("a.json", "9" * 10_000),
            ("a.json", ""),
            ("a.toml", "a = "),
            ("a.toml", "a = 1\na = 2"),
            ("a.toml", "a = " + "[" * 100_000),
            ("a.toml", "a = " + "9" * 10_000),
        ],
    )
    def test_broken_files(self, tmp_path, name, text):
        with pytest.raises(InvalidInput, match=f"a.{name[2:]} is not valid {name[2:].upper()}"):
            load(self.write(tmp_path, name, text))

    def test_not_text(self, tmp_path):
        path = tmp_path / "a.toml"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InvalidInput, match=r"a.toml is not UTF-8 text\.$"):
            load(path)


class TestAssign:
    def test_values_are_json_or_else_text(self):
        assert apply_setting({}, "a=1") == {"a": 1}
        assert apply_setting({}, "a=1e-3") == {"a": 0.001}
        assert apply_setting({}, "a=true") == {"a": True}
        assert apply_setting({}, "a=[1, 2]") == {"a": [1, 2]}
        assert apply_setting({}, "a=hello = world") == {"a": "hello = world"}
        assert apply_setting({}, "a=NaN") == {"a": "NaN"}
        assert apply_setting({}, "a=") == {"a": ""}

    def test_nested_paths_change_nothing_else(self):
        before = {"model": {"layers": 1, "norm": "rms"}, "title": "x"}
        assert apply_setting(before, "model.layers=2") == {"model": {"layers": 2, "norm": "rms"}, "title": "x"}
        assert before["model"]["layers"] == 1
        assert apply_setting({}, "a.b.c=1") == {"a": {"b": {"c": 1}}}

    @pytest.mark.parametrize("bad", ["", "a", "=1", "a..b=1", ".a=1"])
    def test_invalid_assignments(self, bad):
        with pytest.raises(InvalidInput, match="is not of the form key=value"):
            apply_setting({}, bad)

    def test_huge_values_are_text(self):
        for value in ("[" * 100_000, "9" * 10_000):
            assert apply_setting({}, f"a={value}") == {"a": value}


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["layers", "position", "norm", "dropout", "tie", "window", "names", "sizes", "by_name", "kind"])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(anything | st.dictionaries(names, anything | st.fixed_dictionaries({"kind": anything})))
def test_any_data_gives_settings_or_one_clear_error(data):
    try:
        model = read(Model, data)
    except PeasyError:  # anything else would be a traceback
        return
    assert isinstance(model, Model)
    assert read(Model, to_plain(model)) == model


def test_fractions_are_numbers(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('title = "1/2 of it"\n[model]  # 1/3 "\nlayers = 1\ndropout = -1 / 4\nnames = ["1/2", \'3/4\']\n')
    run = read_file(Run, path)
    assert run == Run(Model(1, dropout=-0.25, names=("1/2", "3/4")), "1/2 of it")
    for bad in ("1/0", "1/", "1/2/3", "a/2"):
        path.write_text(f"[model]\nlayers = 1\ndropout = {bad}")
        with pytest.raises(InvalidInput, match="not valid TOML"):
            load(path)
    with pytest.raises(InvalidInput, match="should be a number, not '1/0'"):
        read(Run, {"model": {"layers": 1, "dropout": "1/0"}})
