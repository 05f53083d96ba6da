"""No path leaves the folder: nothing outside it is opened, whatever a file says."""

import os
import sys

import pytest

from peasy.checkpoint.folder import Folder, parse_json, short
from peasy.errors import InvalidInput, NotFound

_opened: list[str] | None = None


def _watch(event, arguments):
    if event == "open" and _opened is not None:
        _opened.append(os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else str(arguments[0]))


sys.addaudithook(_watch)


@pytest.fixture
def opened():
    """The paths that are opened while the test runs."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "config.json").write_text('{"a": 1}')
    return inside


@pytest.mark.parametrize(
    "name",
    ["../secret.json", "/etc/passwd", "..", ".", "", "a/../../secret.json", "..\\secret.json", "C:x", "x\0y", "sub/f"],
)
def test_only_plain_names_are_followed(place, name, opened):
    with pytest.raises(InvalidInput, match="plain file names"):
        Folder(place).read(name)
    assert not [path for path in opened if "secret" in path or "passwd" in path]


def spoil(place, kind):
    file = place / "bad.json"
    if kind == "link out":
        file.symlink_to("../secret.json")
    elif kind == "absolute link":
        file.symlink_to(place.parent / "secret.json")
    elif kind == "link to a link":
        (place / "hop").symlink_to("../secret.json")
        file.symlink_to("hop")
    elif kind == "link to a device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("nowhere")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "kind", ["link out", "absolute link", "link to a link", "link to a device", "pipe", "folder", "dangling link"]
)
def test_links_out_pipes_and_devices_are_refused(place, kind, opened):
    spoil(place, kind)
    with pytest.raises(InvalidInput, match=r"bad\.json"):
        Folder(place).read("bad.json")
    assert not [path for path in opened if "secret" in path or "dev" in path]


def test_without_the_guard_the_secret_would_be_read(place, monkeypatch):
    spoil(place, "link out")
    folder = Folder(place)
    monkeypatch.setattr(folder, "_roots", [place.parent])
    assert folder.read_json("bad.json") == {"secret": 1}


def test_a_link_inside_the_folder_is_fine(place):
    (place / "again.json").symlink_to("config.json")
    assert Folder(place).read_json("again.json") == {"a": 1}


def test_the_hub_s_own_links_are_followed_and_no_others(tmp_path):
    model = tmp_path / "models--owner--name"
    snapshot, blobs = model / "snapshots" / "abc", model / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    (snapshot / "evil.json").symlink_to("../../../secret.json")
    assert Folder(snapshot).read_json("config.json") == {}
    with pytest.raises(InvalidInput, match="leaves its folder"):
        Folder(snapshot).read("evil.json")


def test_blobs_that_are_a_link_are_no_blobs(tmp_path):
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "x").write_text("{}")
    (tmp_path / "models--owner--name" / "blobs").symlink_to(tmp_path / "private")
    (snapshot / "config.json").symlink_to("../../blobs/x")
    with pytest.raises(InvalidInput, match="leaves its folder"):
        Folder(snapshot).read("config.json")


def test_missing_folders_and_files_are_named(place):
    with pytest.raises(NotFound, match="modle") as caught:
        Folder(place.parent / "modle")
    assert caught.value.hint == "Did you mean model?"
    with pytest.raises(NotFound, match=r"conifg\.json") as caught:
        Folder(place).read("conifg.json")
    assert caught.value.hint == "Did you mean config.json?"
    with pytest.raises(InvalidInput, match="not a folder"):
        Folder(place / "config.json")


def test_a_file_that_is_too_large_is_not_read(place):
    with pytest.raises(InvalidInput, match="larger than"):
        Folder(place).read("config.json", limit=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b'{"x": {"b": 1, "b": 1}}', "'b' twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 10_000, "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
    ],
)
def test_json_is_read_strictly(text, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        parse_json(text, "x.json")
    assert "x.json" in caught.value.message


def test_a_table_is_expected(place):
    (place / "list.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="should hold a table"):
        Folder(place).read_json("list.json")


def test_values_in_errors_are_short():
    assert len(short("x" * 10_000_000)) <= 80
    assert len(short(list(range(1000)))) <= 80
