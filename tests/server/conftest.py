"""Fixtures of the server tests: models, application, real server, browser windows."""

import pytest
from fastapi.testclient import TestClient
from tests.server.browser_window import browser_windows
from tests.server.tiny_server import LOCAL, running_server, save_models
from tests.server.trained_models import fill_hub_cache, save_tiny_models

from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def registry(folders):
    return ModelRegistry(folders, weights="float32")


@pytest.fixture(scope="session")
def client(registry):
    """Application without a socket; it lives as long as the session, since closing it closes the registry."""
    with TestClient(build_app(registry, pages=True), base_url=LOCAL) as client:
        client.cookies.clear()
        yield client


@pytest.fixture(scope="session")
def port(folders):
    """Port of a real server with its own models."""
    with running_server(build_app(ModelRegistry(folders, weights="float32"), pages=False)) as port:
        yield port


@pytest.fixture(scope="session")
def studio(folders):
    """Port of a studio with pages, for the browser tests."""
    with running_server(build_app(ModelRegistry(folders, weights="float32"), pages=True)) as port:
        yield port


@pytest.fixture
def open_window(browser, studio):
    """Open browser windows on the studio; each must be clean at the end of the test."""
    with browser_windows(browser, studio) as open_one:
        yield open_one


@pytest.fixture(scope="session")
def temporary_root(tmp_path_factory):
    """Directory for runs and uploads, with a hub cache."""
    root = tmp_path_factory.mktemp("own")
    fill_hub_cache(root / "hub")
    return root


@pytest.fixture
def data_dir(temporary_root, monkeypatch):
    """Data directory of the test, the server in its thread and the processes that it starts."""
    monkeypatch.setenv("PEASY_HOME", str(temporary_root / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(temporary_root / "hub"))
    return temporary_root / "home"


@pytest.fixture(scope="session")
def tiny_studio(temporary_root, tmp_path_factory):
    """Port of a studio with a tiny model of each kind and the models of its data directory."""
    registry = ModelRegistry(save_tiny_models(tmp_path_factory.mktemp("school")), weights="float32", only_given=False)
    with running_server(build_app(registry, pages=True)) as port:
        yield port


@pytest.fixture
def open_tiny_studio(browser, tiny_studio, data_dir):
    """Open browser windows on that studio; each must be clean at the end of the test."""
    with browser_windows(browser, tiny_studio) as open_one:
        yield open_one
