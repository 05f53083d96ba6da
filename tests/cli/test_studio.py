"""`peasy studio`: page on a free port, shutdown on Ctrl-C."""

import json
import signal
import urllib.request

import pytest
from tests.cli.test_serve import process

from peasy.cli import serve
from peasy.errors import ResourceUnavailable

__all__ = ["process"]


def test_page_is_served_and_ctrl_c_stops_it(process, model_folder):
    running, port = process("studio", str(model_folder), "--no-browser")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/look") as page:
        assert b"peasy studio" in page.read()
        cookie = page.headers["set-cookie"].partition(";")[0]
    body = json.dumps({"model": "tiny", "text": "I love"}).encode()
    headers = {"content-type": "application/json", "origin": f"http://127.0.0.1:{port}", "cookie": cookie}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/tokenize", body, headers)
    with urllib.request.urlopen(request) as response:
        assert [token["piece"] for token in json.load(response)["result"]["tokens"]] == ["I", "love"]
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 0


def test_links_survive_a_restart_because_the_port_stays_the_same(monkeypatch):
    with serve._studio_socket(0) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(serve, "STUDIO_PORT", port)
    with serve._studio_socket(None) as first:
        assert first.getsockname()[1] == port
        first.listen()
        with serve._studio_socket(None) as second:
            assert port < second.getsockname()[1] < port + 20, "taken: the next free one"
        with pytest.raises(ResourceUnavailable):
            serve._studio_socket(port)
    with serve._studio_socket(None) as again:
        assert again.getsockname()[1] == port
