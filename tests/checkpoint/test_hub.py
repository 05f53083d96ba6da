"""Hub cache and downloads, without a network: huggingface_hub is mocked."""

from fnmatch import fnmatch
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from peasy.checkpoint import hub
from peasy.errors import NeedsNetwork, NotFound, UsageError


@pytest.fixture
def online(monkeypatch, cache_model):
    """A mocked hub with one model of 1.5 MB that records its calls."""
    calls = []
    files = [("config.json", 500_000), ("model.safetensors", 1_000_000), ("pytorch_model.bin", 9_000_000)]

    def info(self, id, **kwargs):
        calls.append(("info", id))
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in files])

    def download(id, **kwargs):
        calls.append(("download", id, tuple(kwargs["allow_patterns"])))
        return str(cache_model(id))

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return SimpleNamespace(calls=calls, files=files)


@pytest.mark.parametrize("id", ["openai-community/gpt2", "gpt2", "a/b.c-d_e"])
def test_valid_ids(id):
    assert hub.is_hub_id(id)


@pytest.mark.parametrize("id", ["stories", "a/b/c", "../x", "a/../b", "/etc", "a/", "a--b/c", "", "x/y\n"])
def test_invalid_ids(id):
    assert not hub.is_hub_id(id)


def test_cache_dir_matches_huggingface_hub(monkeypatch, tmp_path):
    for names, expected in (
        ({"HF_HUB_CACHE": "a"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "b"}, "b"),
        ({"HF_HOME": "c"}, "c/hub"),
        ({"XDG_CACHE_HOME": "d"}, "d/huggingface/hub"),
    ):
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        assert hub.cache_dir().as_posix() == expected


def test_cached_models(cache_model):
    snapshot = cache_model("me/model")
    cache_model("me/settings-only", weights=False)
    assert hub.find_cached("me/model") == snapshot
    assert hub.find_cached("me/settings-only") is None
    assert hub.find_cached("me/other") is None
    assert hub.list_cached() == {"me/model": snapshot}


def test_ref_outside_the_snapshots_is_ignored(cache_model):
    snapshot = cache_model("me/model")
    (snapshot.parent.parent / "refs" / "main").write_text("../../../elsewhere")
    assert hub.find_cached("me/model") is None


def test_revisions_of_a_cached_model(cache_model):
    snapshot = cache_model("me/model")
    model = snapshot.parent.parent
    (model / "refs" / "v1").write_text(snapshot.name)
    assert hub.find_cached("me/model@v1") == hub.find_cached(f"me/model@{snapshot.name}") == snapshot
    assert hub.find_cached("me/model@v2") is None
    assert hub.find_cached("me/model@../../x") is None


def test_revision_is_downloaded(online):
    hub.fetch_model("me/model@v1", lambda question: True)
    assert [call[1] for call in online.calls] == ["me/model", "me/model"]


def test_cached_model_needs_no_confirmation(cache_model, online):
    snapshot = cache_model("me/model")
    assert hub.fetch_model("me/model", lambda question: pytest.fail("confirmation requested")) == snapshot
    assert online.calls == []


def test_download_is_confirmed_with_its_size(online):
    questions = []
    hub.fetch_model("me/model", lambda question: questions.append(question) or True)
    assert questions == ["Download me/model from the Hugging Face hub (1.4 MiB)?"]
    assert [call[0] for call in online.calls] == ["info", "download"]
    patterns = online.calls[1][2]
    for file in ("tokenizer.model", "sentencepiece.bpe.model", "chat_template.jinja", "1_Pooling/config.json"):
        assert any(fnmatch(file, pattern) for pattern in patterns), file
    for file in ("pytorch_model.bin", "modeling.py", "model.pt", "rust_model.ot", "model.gguf", "README.md"):
        assert not any(fnmatch(file, pattern) for pattern in patterns), file


def test_declined_download(online):
    with pytest.raises(UsageError, match="was not downloaded"):
        hub.fetch_model("me/model", lambda question: False)
    assert [call[0] for call in online.calls] == ["info"]


def test_model_without_safetensors_is_refused(online):
    del online.files[1]
    with pytest.raises(NotFound, match="no safetensors"):
        hub.fetch_model("me/model", lambda question: True)


@pytest.mark.parametrize("kwargs", [{"offline": True}, {}])
def test_offline_error(monkeypatch, kwargs):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0" if kwargs else "1")
    with pytest.raises(NeedsNetwork, match="me/model is not in the cache, and peasy is offline") as caught:
        hub.fetch_model("me/model", lambda question: pytest.fail("confirmation requested"), **kwargs)
    assert caught.value.exit_code == 7


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=404)


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (errors.RepositoryNotFoundError("x", response=RESPONSE), NotFound, "has no model"),
        (errors.GatedRepoError("x", response=RESPONSE), NotFound, "is gated"),
        (errors.HfHubHTTPError("x", response=RESPONSE), NeedsNetwork, "does not answer"),
        (errors.LocalEntryNotFoundError("x"), NeedsNetwork, "does not answer"),
        (errors.HTTPError("no route"), NeedsNetwork, "does not answer"),
        (ConnectionError("no route"), NeedsNetwork, "does not answer"),
    ],
)
def test_network_errors(monkeypatch, online, raised, expected, message):
    def fail(self, id, **kwargs):
        raised.__traceback__ = None
        raise raised

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(expected, match=message):
        hub.fetch_model("me/model", lambda question: True)
