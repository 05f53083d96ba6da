"""Measurements of a packed model are remembered per machine; a missing, damaged or foreign file is measured again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.generation import machine_measurements, packed
from peasy.generation.batch_invariance import BatchInvariance, linear_kind
from peasy.generation.packed import pack, packing_of
from peasy.generation.packed_linear import PackedLinear


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.delenv("PEASY_MEASURE_AGAIN", raising=False)
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that were measured; each number is higher, so a remembered one can be told from a new one."""
    rows: list[int] = []

    def check(model: Any) -> BatchInvariance:
        rows.append(len(rows) + 1)
        kinds = {linear_kind(module) for module in model.modules() if isinstance(module, PackedLinear)}
        return BatchInvariance(True, dict.fromkeys(kinds, rows[-1]), True)

    monkeypatch.setattr(packed, "check_batch_invariance", check)
    return rows


def min_rows(name: str = "learned") -> int:
    packing = packing_of(pack(make(DECODERS[name]), "float32", kernel=False, deterministic=True))
    assert packing is not None
    assert packing.batch_invariance is not None
    (rows,) = {*packing.batch_invariance.min_rows.values()}
    assert rows is not None
    return rows


def stored_file(home: Path) -> Path:
    (path,) = home.glob("cache/packing-*.json")
    return path


def test_the_second_packing_measures_nothing(home: Path, measured: list[int]) -> None:
    assert [min_rows(), min_rows()] == [1, 1]
    assert measured == [1]
    conditions = json.loads(stored_file(home).read_text())["conditions"]
    assert {"cpu", "instructions", "threads", "torch", "numba", "peasy", "model", "layers"} <= conditions.keys()


@torch.inference_mode()
def test_a_remembered_packing_gives_the_same_bits(home: Path) -> None:
    first, second = (pack(make(DECODERS["rotary"]), "int8", deterministic=True, kernel=False) for _ in range(2))
    assert torch.equal(first(some_ids()), second(some_ids()))
    rows = [[m.min_rows for m in model.modules() if hasattr(m, "min_rows")] for model in (first, second)]
    assert rows[0] == rows[1]


def test_it_can_be_measured_again(home: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert min_rows() == 1
    monkeypatch.setenv("PEASY_MEASURE_AGAIN", "1")
    assert min_rows() == 2
    monkeypatch.delenv("PEASY_MEASURE_AGAIN")
    assert min_rows() == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"holds"', '"held"'),
        lambda text: text.replace('"holds": true', '"holds": "perhaps"'),
        lambda text: text.replace('"torch": "', '"torch": "other '),
    ],
    ids=["cut", "empty", "list", "key", "type", "foreign"],
)
def test_a_damaged_or_foreign_file_is_measured_again(home: Path, measured: list[int], damage: Any) -> None:
    assert min_rows() == 1
    path = stored_file(home)
    path.write_text(damage(path.read_text()))
    assert [min_rows(), min_rows()] == [2, 2]


@pytest.mark.parametrize("condition", ["cpu", "instructions", "threads", "torch", "numba", "peasy"])
def test_another_machine_is_measured_separately(
    home: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    assert min_rows() == 1
    machine = machine_measurements._machine()
    monkeypatch.setattr(machine_measurements, "_machine", lambda: machine | {condition: "another"})
    assert min_rows() == 2
    monkeypatch.setattr(machine_measurements, "_machine", lambda: machine)
    assert min_rows() == 1


def test_another_model_is_measured_separately(home: Path, measured: list[int]) -> None:
    assert min_rows() == 1
    assert min_rows("grouped") == 2
    assert len(list(home.glob("cache/*"))) == 2


def test_a_read_only_home_is_no_error(home: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, content: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(machine_measurements, "write_atomic", refuse)
    assert [min_rows(), min_rows()] == [1, 2]
