"""The models, the application and the server that the tests of the web door share."""

import pytest
from fastapi.testclient import TestClient
from tests.studio.company import LOCAL, save_models, serving
from tests.studio.school import fill_hub, save_pupils
from tests.studio.walker import windows

from peasy.studio.app import build
from peasy.studio.house import House


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def house(folders):
    return House(folders, weights="float32")


@pytest.fixture(scope="session")
def client(house):
    """The application without a socket; its end is the end of the session, since it closes the house."""
    with TestClient(build(house, pages=True), base_url=LOCAL) as client:
        client.cookies.clear()
        yield client


@pytest.fixture(scope="session")
def port(folders):
    """The port of a real server with models of its own."""
    with serving(build(House(folders, weights="float32"), pages=False)) as port:
        yield port


@pytest.fixture(scope="session")
def studio(folders):
    """The port of the studio itself, pages and all, for every test with a browser."""
    with serving(build(House(folders, weights="float32"), pages=True)) as port:
        yield port


@pytest.fixture
def walk(browser, studio):
    """Windows on the studio; at the end of a test each must be clean, and is closed."""
    with windows(browser, studio) as open_window:
        yield open_window


@pytest.fixture(scope="session")
def own_home(tmp_path_factory):
    """A home for runs and uploads, and a cache of the hub."""
    place = tmp_path_factory.mktemp("own")
    fill_hub(place / "hub")
    return place


@pytest.fixture
def at_home(own_home, monkeypatch):
    """The test, the server in its thread and the processes that it starts all live there."""
    monkeypatch.setenv("PEASY_HOME", str(own_home / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(own_home / "hub"))
    return own_home / "home"


@pytest.fixture(scope="session")
def school(own_home, tmp_path_factory):
    """The port of a studio with a tiny model of each kind, besides all that is in its home."""
    house = House(save_pupils(tmp_path_factory.mktemp("school")), weights="float32", only=False)
    with serving(build(house, pages=True)) as port:
        yield port


@pytest.fixture
def visit(browser, school, at_home):
    """Windows on that studio, clean at the end of a test."""
    with windows(browser, school) as open_window:
        yield open_window
