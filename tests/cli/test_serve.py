"""`peasy serve`: what it refuses, what it says, and how it ends."""

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
from tests.studio.company import heard, knock, spoken

from peasy.errors import MissingPart


@pytest.fixture
def process(tmp_path):
    """Start `peasy ...` as a person would; gives the process and the port it says."""
    started = []

    def start(*words):
        where = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
        running = subprocess.Popen(
            [sys.executable, "-m", "peasy", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=where, cwd=tmp_path,
        )  # fmt: skip
        started.append(running)
        first = running.stderr.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+)/", first)
        assert found, first + running.stderr.read()
        return running, int(found[1])

    yield start
    for running in started:
        if running.poll() is None:
            running.kill()
        running.communicate()


def test_another_address_needs_a_key(peasy, model_folder):
    done = peasy("serve", model_folder, "--host", "0.0.0.0")
    assert done.code == 2
    assert "--api-key" in done.err


def test_what_is_not_there_is_said(peasy):
    done = peasy("serve", "no-such-model")
    assert done.code == 3
    assert 'No model "no-such-model"' in done.err


def test_a_port_that_is_taken_is_said(peasy, model_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = peasy("serve", model_folder, "--port", taken.getsockname()[1])
    assert done.code == 6
    assert "--port 0" in done.err
    assert peasy("serve", model_folder, "--port", 99999).code == 6


def test_numbers_that_make_no_sense(peasy, model_folder):
    assert peasy("serve", model_folder, "--max-queue", 0).code == 4
    assert peasy("serve", model_folder, "--memory", "much").code == 4
    assert peasy("serve", model_folder, "--api-key", "two words").code == 2


def test_without_torch_it_says_what_to_install(peasy, monkeypatch):
    def missing(module, **_):
        raise MissingPart("This needs torch, which is not installed.", hint='pip install "peasy[models]"')

    monkeypatch.setattr("peasy.cli.serve.need", missing)
    done = peasy("serve")
    assert done.code == 5
    assert 'pip install "peasy[models]"' in done.err


def test_sigterm_under_load_lets_everybody_finish(process, model_folder):
    running, port = process("serve", str(model_folder), "--port", "0", "--api-key", "s3cret")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
    said, links = {}, [knock(port) for _ in range(4)]
    asked = {"model": "tiny", "prompt": "I love", "max_tokens": 14, "n": 8, "temperature": 1, "stream": True}
    for link in links:
        link.sendall(spoken("/v1/completions", asked, port, authorization="Bearer s3cret"))
    assert all(link.recv(1, socket.MSG_PEEK) for link in links)  # they are under way
    threads = [threading.Thread(target=lambda at=at: said.update({at: heard(links[at])[0]})) for at in range(4)]
    for thread in threads:
        thread.start()
    running.send_signal(signal.SIGTERM)
    _, log = running.communicate(timeout=30)
    for thread in threads:
        thread.join(10)
    assert running.returncode == 0
    assert all(b"data: [DONE]" in each and each.endswith(b"0\r\n\r\n") for each in said.values())
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert sum(line.get("completion_tokens", 0) for line in lines) == 4 * 8 * 14
    assert "I love" not in log
