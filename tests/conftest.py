"""What every test stands on: one thread, no network, no colours, 80 columns, nobody's own settings or models."""

import io
import json
import os
import socket
import tempfile
from dataclasses import dataclass
from typing import Any

_home = tempfile.TemporaryDirectory(prefix="peasy-tests-")  # kept by name until Python ends
_OURS = {
    "OMP_NUM_THREADS": "1",  # two workers on two cores: threads on top only make them wait for each other
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
os.environ.update(_OURS)  # before anything imports numpy or torch, which read these once
for _name in [name for name in os.environ if name.startswith("PEASY_")]:
    del os.environ[_name]

import pytest  # noqa: E402

_LOCAL = ("127.0.0.1", "::1", "localhost", "0.0.0.0")


@pytest.fixture(autouse=True, scope="session")
def _no_network():
    """Nothing in the tests may leave this machine; what tries, fails here by name."""
    real = socket.socket.connect

    def connect(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in _LOCAL:
            raise AssertionError(f"a test tried to reach {address[0]}")
        return real(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        yield


@pytest.fixture(scope="session")
def chromium():
    """The path of a Chromium, or the test is skipped and `make test` says so in its last lines."""
    from peasy.cli.doctor import find_chromium

    return find_chromium() or pytest.skip("Chromium is not installed")


@pytest.fixture(scope="session")
def browser(chromium):
    """One browser for all tests of a process: its driver has one event loop, and a second beside it is refused."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

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

    def command(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogateescape"))))
        capfd.readouterr()
        code = run([str(word) for word in words])
        return Ran(code, *capfd.readouterr())

    return command
