"""Downloads from a hub on loopback: a branch, a tag and an unknown revision, with huggingface_hub itself."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from safetensors.torch import load_file

from peasy.checkpoint.huggingface import write_folder
from peasy.models.build import build
from peasy.models.preset import preset

COMMITS = {"main": "a" * 40, "v1": "b" * 40}


@pytest.fixture(scope="module")
def revisions(tmp_path_factory) -> dict[str, Path]:
    """One folder with other weights for each revision, by its commit."""
    shape = {"num_layers": 1, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 32}}
    settings = preset("gpt2", vocab_size=40, d_model=16, max_seq_len=8, stack=shape)
    home = tmp_path_factory.mktemp("hub")
    folders = {
        commit: write_folder(home / name, settings, build(settings, seed=seed).state_dict())
        for seed, (name, commit) in enumerate(COMMITS.items())
    }
    for folder in folders.values():
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        (folder / "modeling.py").write_text("raise SystemExit")
    return folders


@pytest.fixture(scope="module")
def endpoint(revisions):
    """Address of a server that answers as the hub does; it has one model, me/model."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.partition("?")[0].strip("/").split("/")
            if parts[:4] == ["api", "models", "me", "model"]:
                self.list_files(*(parts[4:6] or ("revision", "main")))
            elif parts[:3] == ["me", "model", "resolve"]:
                self.send_file(parts[3], revisions[COMMITS.get(parts[3], parts[3])] / parts[4])
            else:
                self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

        def list_files(self, kind: str, revision: str) -> None:
            commit = COMMITS.get(revision, revision)
            if commit not in revisions:
                self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
                return
            files = sorted(revisions[commit].iterdir())
            if kind == "tree":
                body: object = [
                    {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": etag(file)}
                    for file in files
                ]
            else:
                siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
                body = {"id": "me/model", "sha": commit, "siblings": siblings}
            self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

        def send_file(self, revision: str, file: Path) -> None:
            headers = {"ETag": f'"{etag(file)}"', "X-Repo-Commit": COMMITS.get(revision, revision)}
            self.answer(200, file.read_bytes(), headers)

        def answer(self, code: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(code)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


def import_from(endpoint: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `peasy import` in a process of its own: huggingface_hub reads the address of the hub when it is imported."""
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(home / "hf"), "PEASY_HOME": str(home)}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
    command = [sys.executable, "-m", "peasy", "import", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_revisions_are_downloaded_by_flag_and_by_name(endpoint, revisions, tmp_path):
    asked = {
        "newest": (["me/model"], "main"),
        "flag": (["me/model", "--revision", "v1"], "v1"),
        "name": (["me/model@v1"], "v1"),
        "commit": (["me/model@" + COMMITS["v1"]], "v1"),
    }
    for name, (arguments, revision) in asked.items():
        ran = import_from(endpoint, tmp_path, *arguments, "--name", name, "--yes")
        assert ran.returncode == 0, ran.stderr
        found = load_file(tmp_path / "runs" / name / "model.safetensors")["embedding.token.weight"]
        expected = load_file(revisions[COMMITS[revision]] / "model.safetensors")["transformer.wte.weight"]
        assert found.equal(expected), name
    assert len(list((tmp_path / "hf").rglob("chat_template.jinja"))) == 2
    assert not list((tmp_path / "hf").rglob("*.py"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["me/model", "--revision", "v9", "--yes"], "me/model@v9 has no such revision"),
        (["me/other", "--yes"], "The hub has no model me/other"),
        (["me/model"], "This needs confirmation"),
    ],
)
def test_what_the_hub_does_not_have_is_said(endpoint, tmp_path, arguments, message):
    ran = import_from(endpoint, tmp_path, *arguments)
    assert ran.returncode != 0
    assert message in ran.stderr
    assert not (tmp_path / "runs").exists()
