"""The hub without a network: a cache made by hand, and the library's answers put in its mouth."""

from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from peasy.checkpoint import hub
from peasy.errors import NeedsNetwork, NotFound, UsageError


@pytest.fixture
def online(monkeypatch, put):
    """A hub with one model of 1.5 MB; what was asked of it is written down."""
    asked = []
    files = [("config.json", 500_000), ("model.safetensors", 1_000_000), ("pytorch_model.bin", 9_000_000)]

    def info(self, id, **how):
        asked.append(("info", id))
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in files])

    def download(id, **how):
        asked.append(("download", id, tuple(how["allow_patterns"])))
        return str(put(id))

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return SimpleNamespace(asked=asked, files=files)


@pytest.mark.parametrize("id", ["openai-community/gpt2", "gpt2", "a/b.c-d_e"])
def test_ids(id):
    assert hub.is_id(id)


@pytest.mark.parametrize("id", ["stories", "a/b/c", "../x", "a/../b", "/etc", "a/", "a--b/c", "", "x/y\n"])
def test_what_is_no_id(id):
    assert not hub.is_id(id)


def test_the_cache_is_found_where_the_library_has_it(monkeypatch, tmp_path):
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
        assert hub.cache().as_posix() == expected


def test_what_is_cached(put):
    snapshot = put("me/model")
    put("me/settings-only", weights=False)
    assert hub.cached("me/model") == snapshot
    assert hub.cached("me/settings-only") is None
    assert hub.cached("me/other") is None
    assert hub.all_cached() == {"me/model": snapshot}


def test_a_reference_that_leads_elsewhere_is_not_followed(put):
    snapshot = put("me/model")
    (snapshot.parent.parent / "refs" / "main").write_text("../../../elsewhere")
    assert hub.cached("me/model") is None


def test_the_cache_answers_without_asking_anybody(put, online):
    snapshot = put("me/model")
    assert hub.fetch("me/model", lambda question: pytest.fail("asked")) == snapshot
    assert online.asked == []


def test_asks_with_the_size_before_a_download(online):
    questions = []
    hub.fetch("me/model", lambda question: questions.append(question) or True)
    assert questions == ["Download me/model from the Hugging Face hub (1.4 MiB)?"]
    assert [act[0] for act in online.asked] == ["info", "download"]
    assert not [pattern for pattern in online.asked[1][2] if "bin" in pattern or "py" in pattern]


def test_no_means_no(online):
    with pytest.raises(UsageError, match="was not downloaded"):
        hub.fetch("me/model", lambda question: False)
    assert [act[0] for act in online.asked] == ["info"]


def test_a_model_of_pickles_is_not_fetched(online):
    del online.files[1]
    with pytest.raises(NotFound, match="no safetensors"):
        hub.fetch("me/model", lambda question: True)


@pytest.mark.parametrize("how", [{"offline": True}, {}])
def test_offline_is_one_helpful_line(monkeypatch, how):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0" if how else "1")
    with pytest.raises(NeedsNetwork, match="me/model is not in the cache, and peasy is offline") as caught:
        hub.fetch("me/model", lambda question: pytest.fail("asked"), **how)
    assert caught.value.exit_code == 7


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=404)


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (errors.RepositoryNotFoundError("x", response=RESPONSE), NotFound, "has no model"),
        (errors.GatedRepoError("x", response=RESPONSE), NotFound, "terms"),
        (errors.HfHubHTTPError("x", response=RESPONSE), NeedsNetwork, "does not answer"),
        (errors.LocalEntryNotFoundError("x"), NeedsNetwork, "does not answer"),
        (errors.HTTPError("no route"), NeedsNetwork, "does not answer"),
        (ConnectionError("no route"), NeedsNetwork, "does not answer"),
    ],
)
def test_every_failure_of_the_network_is_one_line(monkeypatch, online, raised, kind, said):
    def fail(self, id, **how):
        raised.__traceback__ = None
        raise raised

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(kind, match=said):
        hub.fetch("me/model", lambda question: True)
