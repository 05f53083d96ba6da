"""Models by name: loaded once, let go by memory, never a path of the caller's."""

import threading

import pytest
from tests.studio.company import until

import peasy
from peasy.checkpoint.model import save_model
from peasy.errors import InvalidInput, NoRoom, NotFound
from peasy.studio import house as houses
from peasy.studio.house import House


@pytest.fixture
def counted(monkeypatch):
    loads = []
    real = houses.open_found
    monkeypatch.setattr(houses, "open_found", lambda found: loads.append(found.name) or real(found))
    return loads


def test_a_model_is_loaded_once_even_if_many_ask_at_once(folders, counted):
    house = House(folders)

    def use():
        with house.use("writer") as loaded:
            assert loaded.name == "writer"

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == 1


def test_what_was_not_used_for_longest_makes_room(folders, counted):
    writer, talker, translator = (peasy.load(folder).model.memory() for folder in folders[:3])
    house = House(folders, memory=max(writer + talker, writer + translator))
    for name in ("writer", "talker", "writer", "translator"):
        with house.use(name):
            pass
    assert "talker" not in house.kept
    counted.clear()
    with house.use("talker"):
        pass
    assert len(counted) == 1


def test_what_is_used_stays(folders):
    size = peasy.load(folders[1]).model.memory()
    house = House(folders, memory=size)
    with house.use("writer"), house.use("talker"):
        assert {"writer", "talker"} <= set(house.kept)
    with pytest.raises(NoRoom, match="needs"), House(folders, memory=10).use("writer"):
        pass


def test_an_engine_ends_when_its_model_goes(folders):
    house = House(folders, memory=peasy.load(folders[1]).model.memory())
    with house.engine("writer") as (_, runner):
        assert house.ready("writer")
    with house.use("talker"):
        pass
    assert "writer" not in house.kept
    until(lambda: runner.thread is None)


@pytest.mark.parametrize("name", ["", "..", "/etc", "./writer", "wri", "writer/", "~"])
def test_only_whole_names_are_known(folders, name, monkeypatch, tmp_path):
    monkeypatch.chdir(folders[0].parent)
    with pytest.raises(NotFound), House(folders[:1]).use(name):
        pass
    house = House(folders[:1])
    monkeypatch.setattr(house, "check", lambda each: each)  # without the check a path would be found
    if name == "./writer":
        with house.use(name) as loaded:
            assert loaded


def test_all_that_this_machine_has_is_here_unless_some_are_named(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    loaded = peasy.load(folders[0])
    save_model(tmp_path / "runs" / "mine", loaded.model, loaded.tokenizer)
    assert "mine" in House().names
    assert House(folders[:1]).names == ("writer",)
    assert {"mine", "writer"} <= set(House(folders[:1], only=False).names)


def test_a_newer_checkpoint_is_taken_up(folders, tmp_path, monkeypatch, counted):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    loaded = peasy.load(folders[0])
    run = tmp_path / "runs" / "learning" / "checkpoints"
    run.mkdir(parents=True)
    save_model(run / "step-000001", loaded.model, loaded.tokenizer)
    house = House()
    with house.engine("learning") as (first, runner):
        pass
    with house.use("learning") as same:
        assert same is first
    save_model(run / "step-000002", loaded.model, loaded.tokenizer)
    with house.use("learning") as newer:
        assert newer is not first
    assert len(counted) == 2
    until(lambda: runner.thread is None)


def test_what_does_not_write_says_what_it_is_for(folders):
    with pytest.raises(InvalidInput) as caught, House(folders).engine("encoder"):
        pass
    assert "/v1/embeddings" in (caught.value.hint or "")
