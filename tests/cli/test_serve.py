"""`peasy serve`: errors, log output and graceful shutdown."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from tests.server.tiny_server import connect, post_bytes, read_all

from peasy.errors import MissingExtra


@pytest.fixture
def process(tmp_path):
    """Start `peasy ...` as a subprocess; return the process and its port."""
    started = []

    def start(*words):
        env = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
        running = subprocess.Popen(
            [sys.executable, "-m", "peasy", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=env, cwd=tmp_path,
        )  # fmt: skip
        started.append(running)
        first = running.stderr.readline()
        match = re.search(r"at http://127\.0\.0\.1:(\d+)/", first)
        assert match, first + running.stderr.read()
        return running, int(match[1])

    yield start
    for running in started:
        if running.poll() is None:
            running.kill()
        running.communicate()


def test_public_address_needs_an_api_key(peasy, model_folder):
    done = peasy("serve", model_folder, "--host", "0.0.0.0")
    assert done.code == 2
    assert "--api-key" in done.err


def test_unknown_model(peasy):
    done = peasy("serve", "no-such-model")
    assert done.code == 3
    assert 'No model "no-such-model"' in done.err


def test_port_in_use(peasy, model_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = peasy("serve", model_folder, "--port", taken.getsockname()[1])
    assert done.code == 6
    assert "--port 0" in done.err
    assert peasy("serve", model_folder, "--port", 99999).code == 6


def test_invalid_settings(peasy, model_folder):
    assert peasy("serve", model_folder, "--max-queue", 0).code == 4
    assert peasy("serve", model_folder, "--max-memory", "much").code == 4
    assert peasy("serve", model_folder, "--kv-cache-bytes", 0).code == 2
    assert peasy("serve", model_folder, "--prefill-chunk", 17).code == 4
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = peasy("serve", model_folder, "--port", taken.getsockname()[1], "--api-key", "two words")
    assert done.code == 2, "settings are checked before the port"


def test_without_torch_it_shows_the_install_command(peasy, monkeypatch):
    def missing(module, **_):
        raise MissingExtra("This needs torch, which is not installed.", hint='pip install "peasy-attention[models]"')

    monkeypatch.setattr("peasy.cli.serve.require_extra", missing)
    done = peasy("serve")
    assert done.code == 5
    assert 'pip install "peasy-attention[models]"' in done.err


def test_sigterm_lets_running_requests_finish(process, model_folder, monkeypatch):
    monkeypatch.setenv("PEASY_API_KEY", "s3cret")
    running, port = process("serve", str(model_folder), "--port", "0")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
    responses, links = {}, [connect(port) for _ in range(4)]
    body = {"model": "tiny", "prompt": "I love", "max_tokens": 14, "n": 8, "temperature": 1, "stream": True}
    for link in links:
        link.sendall(post_bytes("/v1/completions", body, port, authorization="Bearer s3cret"))
    assert all(link.recv(1, socket.MSG_PEEK) for link in links)  # all requests are running
    threads = [threading.Thread(target=lambda at=at: responses.update({at: read_all(links[at])[0]})) for at in range(4)]
    for thread in threads:
        thread.start()
    running.send_signal(signal.SIGTERM)
    _, log = running.communicate(timeout=30)
    for thread in threads:
        thread.join(10)
    assert running.returncode == 0
    assert all(b"data: [DONE]" in body and body.endswith(b"0\r\n\r\n") for body in responses.values())
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert sum(line.get("completion_tokens", 0) for line in lines) == 4 * 8 * 14
    assert "I love" not in log


def test_key_on_the_command_line_is_warned_about(process, model_folder):
    started = subprocess.Popen(
        [sys.executable, "-m", "peasy", "serve", str(model_folder), "--port", "0", "--api-key", "s3cret"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert "shows in the process list" in started.stderr.readline()
        assert "Serving" in started.stderr.readline()
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("source", ["file", "environment"])
def test_key_from_a_file_or_the_environment_is_required(process, model_folder, tmp_path, monkeypatch, source):
    words = ["serve", str(model_folder), "--port", "0"]
    if source == "file":
        (tmp_path / "key").write_text("s3cret\nanother line\n")
        words += ["--api-key-file", str(tmp_path / "key")]
    else:
        monkeypatch.setenv("PEASY_API_KEY", "s3cret")
    _, port = process(*words)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers={"authorization": "Bearer s3cret"})
    assert urllib.request.urlopen(request).status == 200


def test_key_file_must_have_a_key(peasy, model_folder, tmp_path, monkeypatch):
    empty = tmp_path / "key"
    assert peasy("serve", model_folder, "--api-key-file", empty).code == 3
    empty.write_text("\n")
    assert peasy("serve", model_folder, "--api-key-file", empty).code == 2
    empty.write_text("s3cret")
    monkeypatch.setenv("PEASY_API_KEY", "other")
    assert "two API keys" in peasy("serve", model_folder, "--api-key-file", empty).err
