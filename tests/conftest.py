"""Environment of all tests: one thread, no network, no colours, 80 columns, no settings or models of the user."""

import io
import json
import os
import random
import socket
import tempfile
from dataclasses import dataclass
from typing import Any

_home = tempfile.TemporaryDirectory(prefix="peasy-tests-")  # kept alive until Python exits
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # two pytest workers on two cores: more threads would only contend
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "NO_COLOR": "1",
    "COLUMNS": "80",
    "XDG_CONFIG_HOME": f"{_home.name}/config",
    "XDG_DATA_HOME": f"{_home.name}/data",
    "HF_HOME": f"{_home.name}/hub",
}
os.environ.update(_ENVIRONMENT)  # before anything imports numpy or torch, which read these once
for _name in [name for name in os.environ if name.startswith("PEASY_")]:
    del os.environ[_name]

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# A slow or busy machine is not wrong: no time limit for an example, nor for making one.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    """Shuffle files, and the tests of each, if RANDOM_ORDER is a seed (tests/everywhere.sh): no test needs another."""
    if seed := os.environ.get("RANDOM_ORDER"):
        place = random.Random(seed)
        keys = {item.path: place.random() for item in sorted(items, key=lambda item: item.nodeid)}
        order = {item: (keys[item.path], place.random()) for item in sorted(items, key=lambda item: item.nodeid)}
        items.sort(key=order.__getitem__)


_LOCAL = ("127.0.0.1", "::1", "localhost", "0.0.0.0")


@pytest.fixture(autouse=True, scope="session")
def _no_network():
    """Fail every connection to another machine, naming it."""
    original_connect = socket.socket.connect

    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in _LOCAL:
            raise AssertionError(f"a test tried to reach {address[0]}")
        return original_connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        yield


@pytest.fixture
def isolated_home(tmp_path, monkeypatch):
    """Keep the user's runs and downloads out of a test, and its files in its own folder."""
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def chromium():
    """Path of Chromium; without it the test is skipped, and `make test` reports that in its last lines."""
    from peasy.cli.doctor import find_chromium

    return find_chromium() or pytest.skip("Chromium is not installed")


@pytest.fixture(scope="session")
def browser(chromium):
    """One browser for all tests of a process: Playwright refuses a second event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass(frozen=True)
class CliResult:
    """Exit code and output of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def peasy(capfd, tmp_path, monkeypatch):
    """Run `peasy ...` in an empty folder, in this process: `peasy("explain", "i-love-ai").out`."""
    from peasy.cli.app import run

    monkeypatch.chdir(tmp_path)

    def command(*words: str, stdin: str = "") -> CliResult:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogateescape"))))
        capfd.readouterr()
        code = run([str(word) for word in words])
        return CliResult(code, *capfd.readouterr())

    return command
