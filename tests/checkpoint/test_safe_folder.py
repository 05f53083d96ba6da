"""SafeFolder: nothing outside the folder is opened; strict JSON."""

import os
import sys

import pytest

from peasy.checkpoint.safe_folder import SafeFolder, short_repr
from peasy.config import parse_json
from peasy.errors import InvalidInput, NotFound

_opened: list[str] | None = None


def _audit(event, arguments):
    if event == "open" and _opened is not None:
        _opened.append(os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else str(arguments[0]))


sys.addaudithook(_audit)


@pytest.fixture
def opened():
    """Paths that are opened during the test."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def model_folder(tmp_path):
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "config.json").write_text('{"a": 1}')
    return inside


@pytest.mark.parametrize(
    "name",
    ["../secret.json", "/etc/passwd", "..", ".", "", "a/../../secret.json", "..\\secret.json", "C:x", "x\0y", "sub/f"],
)
def test_only_bare_names_are_allowed(model_folder, name, opened):
    with pytest.raises(InvalidInput, match="bare file names"):
        SafeFolder(model_folder).read(name)
    assert not [path for path in opened if "secret" in path or "passwd" in path]


def add_bad_file(model_folder, kind):
    file = model_folder / "bad.json"
    if kind == "link out":
        file.symlink_to("../secret.json")
    elif kind == "absolute link":
        file.symlink_to(model_folder.parent / "secret.json")
    elif kind == "link to a link":
        (model_folder / "hop").symlink_to("../secret.json")
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
def test_outside_links_pipes_and_devices_are_refused(model_folder, kind, opened):
    add_bad_file(model_folder, kind)
    with pytest.raises(InvalidInput, match=r"bad\.json"):
        SafeFolder(model_folder).read("bad.json")
    assert not [path for path in opened if "secret" in path or "dev" in path]


def test_without_the_root_check_the_secret_would_be_read(model_folder, monkeypatch):
    add_bad_file(model_folder, "link out")
    folder = SafeFolder(model_folder)
    monkeypatch.setattr(folder, "_allowed_roots", [model_folder.parent])
    assert folder.read_json("bad.json") == {"secret": 1}


def test_link_inside_the_folder_is_allowed(model_folder):
    (model_folder / "again.json").symlink_to("config.json")
    assert SafeFolder(model_folder).read_json("again.json") == {"a": 1}


def test_hub_links_into_blobs_are_allowed_and_no_others(tmp_path):
    model = tmp_path / "models--owner--name"
    snapshot, blobs = model / "snapshots" / "abc", model / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "123").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    (snapshot / "evil.json").symlink_to("../../../secret.json")
    assert SafeFolder(snapshot).read_json("config.json") == {}
    with pytest.raises(InvalidInput, match="points outside its folder"):
        SafeFolder(snapshot).read("evil.json")


def test_blobs_folder_that_is_a_link_is_not_trusted(tmp_path):
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "x").write_text("{}")
    (tmp_path / "models--owner--name" / "blobs").symlink_to(tmp_path / "private")
    (snapshot / "config.json").symlink_to("../../blobs/x")
    with pytest.raises(InvalidInput, match="points outside its folder"):
        SafeFolder(snapshot).read("config.json")


def test_errors_name_missing_folders_and_files(model_folder):
    with pytest.raises(NotFound, match="modle") as caught:
        SafeFolder(model_folder.parent / "modle")
    assert caught.value.hint == "Did you mean model?"
    with pytest.raises(NotFound, match=r"conifg\.json") as caught:
        SafeFolder(model_folder).read("conifg.json")
    assert caught.value.hint == "Did you mean config.json?"
    with pytest.raises(InvalidInput, match="not a folder"):
        SafeFolder(model_folder / "config.json")


def test_too_large_file_is_not_read(model_folder):
    with pytest.raises(InvalidInput, match="larger than"):
        SafeFolder(model_folder).read("config.json", max_bytes=3)


@pytest.mark.parametrize(
    ("data", "message"),
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
def test_json_is_parsed_strictly(data, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        parse_json(data, "x.json")
    assert "x.json" in caught.value.message


def test_json_may_begin_with_a_byte_order_mark():
    assert parse_json(b"\xef\xbb\xbf{}", "x.json") == {}


def test_json_object_is_required(model_folder):
    (model_folder / "list.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="should contain a JSON object"):
        SafeFolder(model_folder).read_json("list.json")


def test_values_in_errors_are_truncated():
    assert len(short_repr("x" * 10_000_000)) <= 80
    assert len(short_repr(list(range(1000)))) <= 80
