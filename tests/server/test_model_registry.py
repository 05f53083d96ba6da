"""Model registry: loads once, evicts by memory, never opens a client's path."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.server.tiny_server import wait_until

import peasy
from peasy.checkpoint.model import save_model
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.server import model_registry
from peasy.server.model_registry import ModelRegistry


@pytest.fixture
def counted(monkeypatch):
    loads = []
    open_model = model_registry.open_model
    monkeypatch.setattr(
        model_registry, "open_model", lambda resolved: loads.append(resolved.name) or open_model(resolved)
    )
    return loads


def test_concurrent_requests_load_a_model_once(folders, counted):
    registry = ModelRegistry(folders)

    def use():
        with registry.use("writer") as loaded:
            assert loaded.name == "writer"

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == 1


def test_least_recently_used_model_is_evicted(folders, counted):
    writer, talker, translator = (peasy.load(folder).model.weight_bytes() for folder in folders[:3])
    registry = ModelRegistry(folders, memory_bytes=max(writer + talker, writer + translator))
    for name in ("writer", "talker", "writer", "translator"):
        with registry.use(name):
            pass
    assert "talker" not in registry.loaded
    counted.clear()
    with registry.use("talker"):
        pass
    assert len(counted) == 1


def test_models_in_use_are_not_evicted(folders):
    size = peasy.load(folders[1]).model.weight_bytes()
    registry = ModelRegistry(folders, memory_bytes=size)
    with registry.use("writer"), registry.use("talker"):
        assert {"writer", "talker"} <= set(registry.loaded)
    with pytest.raises(ResourceUnavailable, match="needs"), ModelRegistry(folders, memory_bytes=10).use("writer"):
        pass


def test_eviction_stops_the_engine(folders):
    registry = ModelRegistry(folders, memory_bytes=peasy.load(folders[1]).model.weight_bytes())
    with registry.engine("writer"):
        assert registry.is_ready("writer")
    runner = registry.loaded["writer"].engine_thread
    with registry.use("talker"):
        pass
    assert "writer" not in registry.loaded
    wait_until(lambda: runner.native_thread_id is None)


@pytest.mark.parametrize("name", ["", "..", "/etc", "./writer", "wri", "writer/", "~"])
def test_only_exact_names_are_accepted(folders, name, monkeypatch, tmp_path):
    monkeypatch.chdir(folders[0].parent)
    with pytest.raises(NotFound), ModelRegistry(folders[:1]).use(name):
        pass
    registry = ModelRegistry(folders[:1])
    monkeypatch.setattr(registry, "check_name", lambda name: name)  # without the check a path would be found
    if name == "./writer":
        with registry.use(name) as loaded:
            assert loaded


def test_all_local_models_are_listed_unless_some_are_given(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    loaded = peasy.load(folders[0])
    save_model(tmp_path / "runs" / "mine", loaded.model, loaded.tokenizer)
    assert "mine" in ModelRegistry().names
    assert ModelRegistry(folders[:1]).names == ("writer",)
    assert {"mine", "writer"} <= set(ModelRegistry(folders[:1], only_given=False).names)


def test_newer_checkpoint_is_loaded(folders, tmp_path, monkeypatch, counted):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    loaded = peasy.load(folders[0])
    run = tmp_path / "runs" / "learning" / "checkpoints"
    run.mkdir(parents=True)
    save_model(run / "step-000001", loaded.model, loaded.tokenizer)
    registry = ModelRegistry()
    with registry.engine("learning") as (first, _):
        runner = registry.loaded["learning"].engine_thread
    with registry.use("learning") as same:
        assert same is first
    save_model(run / "step-000002", loaded.model, loaded.tokenizer)
    with registry.use("learning") as newer:
        assert newer is not first
    assert len(counted) == 2
    wait_until(lambda: runner.native_thread_id is None)
    shutil.rmtree(run / "step-000001")
    with registry.use("learning") as same:
        assert same is newer
    shutil.rmtree(tmp_path / "runs" / "learning")
    with pytest.raises(NotFound), registry.use("learning"):
        pytest.fail("the run is gone")


def test_a_loaded_model_is_used_without_listing_folders(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    shutil.copytree(folders[0], tmp_path / "runs" / "mine")
    registry = ModelRegistry()
    with registry.engine("mine"):
        pass
    monkeypatch.setattr(Path, "iterdir", lambda folder: pytest.fail(f"{folder} was listed"))
    monkeypatch.setattr(os, "scandir", lambda folder: pytest.fail(f"{folder} was listed"))
    assert registry.is_ready("mine")
    with registry.engine("mine") as (loaded, _):
        assert loaded.name == "mine"


def test_encoder_has_no_engine(folders):
    with pytest.raises(InvalidInput) as caught, ModelRegistry(folders).engine("encoder"):
        pass
    assert "/v1/embeddings" in (caught.value.hint or "")
