"""Measurements of a packed model are remembered per machine; a missing, damaged or foreign file is measured again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.tiny_models import DECODERS, make, some_ids

from peasy.generation import batch_invariance, machine_measurements
from peasy.generation.packed import pack, packing_of


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.delenv("PEASY_MEASURE_AGAIN", raising=False)
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Costs that were measured; each one is higher, so a remembered one can be told from a new one."""
    costs: list[float] = []

    def measure(model: Any) -> float:
        costs.append((len(costs) + 1) / 100)
        return costs[-1]

    monkeypatch.setattr(batch_invariance, "measure_invariance_cost", measure)
    return costs


def cost(**options: Any) -> float:
    packing = packing_of(pack(make(DECODERS["learned"]), "float32", **({"kernel": False} | options)))
    assert packing is not None
    assert packing.batch_invariance is not None
    assert packing.batch_invariance.holds
    return packing.batch_invariance.cost


def stored_file(home: Path) -> Path:
    (path,) = home.glob("cache/packing-*.json")
    return path


def test_the_second_packing_measures_nothing(home: Path, measured: list[float]) -> None:
    assert [cost(), cost(), cost(deterministic=True)] == [0.01] * 3
    assert measured == [0.01]
    conditions = json.loads(stored_file(home).read_text())["conditions"]
    assert {"cpu", "instructions", "threads", "torch", "numba", "peasy", "model", "layers"} <= conditions.keys()


@torch.inference_mode()
def test_a_remembered_packing_gives_the_same_bits(home: Path) -> None:
    first, second = (pack(make(DECODERS["rotary"]), "int8", deterministic=True, kernel=False) for _ in range(2))
    assert torch.equal(first(some_ids()), second(some_ids()))
    min_rows = [[m.min_rows for m in model.modules() if hasattr(m, "min_rows")] for model in (first, second)]
    assert min_rows[0] == min_rows[1]


def test_it_can_be_measured_again(home: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cost() == 0.01
    monkeypatch.setenv("PEASY_MEASURE_AGAIN", "1")
    assert cost() == 0.02
    monkeypatch.delenv("PEASY_MEASURE_AGAIN")
    assert cost() == 0.02


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
def test_a_damaged_or_foreign_file_is_measured_again(home: Path, measured: list[float], damage: Any) -> None:
    assert cost() == 0.01
    path = stored_file(home)
    path.write_text(damage(path.read_text()))
    assert [cost(), cost()] == [0.02, 0.02]


@pytest.mark.parametrize("condition", ["cpu", "instructions", "threads", "torch", "numba", "peasy"])
def test_another_machine_is_measured_separately(
    home: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    assert cost() == 0.01
    machine = machine_measurements._machine()
    monkeypatch.setattr(machine_measurements, "_machine", lambda: machine | {condition: "another"})
    assert cost() == 0.02
    monkeypatch.setattr(machine_measurements, "_machine", lambda: machine)
    assert cost() == 0.01


def test_another_model_is_measured_separately(home: Path, measured: list[float]) -> None:
    assert cost() == 0.01
    pack(make(DECODERS["grouped"]), "float32", kernel=False)
    assert len(measured) == 2
    assert len(list(home.glob("cache/*"))) == 2


def test_a_read_only_home_is_no_error(home: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any, content: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(machine_measurements, "write_atomic", refuse)
    assert [cost(), cost()] == [0.01, 0.02]
