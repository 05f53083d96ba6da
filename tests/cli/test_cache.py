"""`peasy cache`: what lies where, how large it is, and its deletion."""

import pytest


@pytest.fixture
def filled(isolated_home, tmp_path):
    """A data folder with shards and a run, and a hub cache with one file and a link to it."""
    for path, size in (("home/shards/a/tokens.bin", 2048), ("home/runs/fox/model.bin", 999), ("hub/blobs/x", 4096)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"x" * size)
    (tmp_path / "hub/link").symlink_to(tmp_path / "hub/blobs/x")
    return tmp_path


def sizes(ran) -> dict[str, int]:
    return {folder["name"]: folder["num_bytes"] for folder in ran.json["result"]["folders"]}


def test_sizes_and_folders(peasy, filled):
    ran = peasy("cache", "list", "--json")
    assert sizes(ran) == {"shards": 2048, "cache": 0, "experiments": 0, "uploads": 0, "hub": 4096}
    assert ran.json["result"]["num_bytes"] == 6144
    assert ran.json["next"] == ["peasy cache rm hub"]
    assert "2.0 KiB" in peasy("cache").out


def test_rm_needs_confirmation(peasy, filled):
    assert peasy("cache", "rm", "shards").code == 2
    assert (filled / "home/shards/a/tokens.bin").exists()


def test_rm_deletes_what_is_named_and_never_a_run(peasy, filled):
    assert sizes(peasy("cache", "rm", "--yes", "--json"))["shards"] == 0
    assert (filled / "hub/blobs/x").exists()
    assert sizes(peasy("cache", "rm", "hub", "--yes", "--json"))["hub"] == 0
    assert (filled / "home/runs/fox/model.bin").exists()


def test_an_unknown_name_has_a_suggestion(peasy, filled):
    ran = peasy("cache", "rm", "shard", "--yes")
    assert ran.code == 4
    assert "Did you mean shards?" in ran.err


def test_nothing_there_is_no_error(peasy, isolated_home):
    assert peasy("cache").code == 0
    assert peasy("cache", "rm", "--yes").code == 0
