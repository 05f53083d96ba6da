"""Background jobs: one at a time, progress, stop with saving; uploads."""

import pytest
from tests.server.tiny_server import wait_until

from peasy.commands.runs import open_run
from peasy.errors import InvalidInput, NotFound
from peasy.server import upload
from peasy.server.jobs import JobRunner
from peasy.training.run_folder import RunLocked


@pytest.fixture
def job_runner(data_dir):
    runner = JobRunner()
    yield runner
    runner.close()


def test_one_job_at_a_time(job_runner):
    with pytest.raises(NotFound, match="No job is running"):
        job_runner.stop()
    job = job_runner.start("version", ["--json"], "Printing the version")
    with pytest.raises(RunLocked, match="already running: Printing the version"):
        job_runner.start("version", ["--json"], "Another")
    wait_until(lambda: not job.running, 60)
    assert job.state == "done"
    assert job.data()["result"]["peasy"]
    assert job_runner.start("version", ["--json"], "Another").id != job.id


@pytest.mark.slow
def test_shutdown_saves_and_stops_the_job(job_runner, data_dir):
    arguments = ["gpt", "--data", "copy", "--preset", "tiny", "--minutes", "5", "--run", "shop", "--json"]
    job = job_runner.start("train", arguments, "Training shop", ["shop"])
    wait_until(lambda: job.last_step is not None, 120)
    data = job.data()
    assert data["state"] == "running"
    assert data["last_step"]["event"] == "step"
    job_runner.close()  # as when the server ends
    wait_until(lambda: not job.running, 60)
    assert job.state == "stopped"
    assert job.process.returncode == 130
    run = open_run(data_dir / "runs" / "shop")
    assert "--resume continues" in run.facts().state
    assert run.facts().step >= data["last_step"]["step"]
    assert job.data()["next"] == [run.resume_command()]


def test_failed_job_has_an_error(job_runner):
    job = job_runner.start("explain", ["no-such-example", "--json"], "Explaining nothing")
    wait_until(lambda: not job.running, 60)
    assert job.state == "failed"
    assert "no-such-example" in job.data()["error"]["message"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b.txt", "x.tsv", "…", "", "CON", "a/b\\c.jsonl", "\0"])
def test_uploads_get_generated_names(data_dir, name):
    id = upload.new_upload_id(name)
    assert upload.append_text(id, "one ") == 4
    assert upload.append_text(id, "two \ud800") == upload.upload_path(id).stat().st_size
    assert upload.upload_path(id).parent == data_dir / "uploads"
    assert upload.upload_path(id).read_text(encoding="utf-8").startswith("one two ")


@pytest.mark.parametrize("id", ["../x.txt", "0123456789abcdef-x.py", "/etc/passwd", "", "0123456789abcdef-a/b.txt"])
def test_invalid_upload_ids_are_refused(data_dir, id):
    with pytest.raises(InvalidInput, match="not the id of an upload"):
        upload.upload_path(id)


def test_missing_and_too_large_uploads(data_dir, monkeypatch):
    with pytest.raises(NotFound, match="no longer exists"):
        upload.upload_path("0123456789abcdef-gone.txt")
    monkeypatch.setattr(upload, "MAX_TOTAL_BYTES", 10)
    with pytest.raises(Exception, match="10 bytes together"):
        upload.append_text(upload.new_upload_id("a.txt"), "x" * 11)


PATHS = ["/etc/passwd", "../../etc/passwd", "./stories", "file:///etc/passwd", "C:\\x.txt"]


@pytest.mark.parametrize("path", PATHS)
def test_training_never_opens_a_client_path(client, data_dir, path):
    for body in ({"data": path}, {"upload_id": path}):
        answer = client.post("/api/train", json={"kind": "gpt", "preset": "tiny", "steps": 1, **body})
        assert answer.status_code in (400, 404), answer.text
    assert client.post("/api/metrics", json={"name": path}).status_code == 404
    assert client.post("/api/attention-history", json={"name": path}).status_code == 404
    assert client.post("/api/train", json={"run": path, "resume": True}).status_code in (400, 404, 422)
    assert client.post("/api/import", json={"model": path, "yes": True}).status_code == 404
    assert client.post("/api/experiments/last", json={"name": path}).status_code == 404
    assert client.post("/api/job", json={}).json()["result"] == {"job": None}


def test_serve_has_no_job_routes(registry):
    from fastapi.testclient import TestClient

    from peasy.server.app import build_app

    api = TestClient(build_app(registry, pages=False), base_url="http://localhost")
    for command in ("train", "compare", "job", "upload", "import", "experiments/run"):
        assert api.post(f"/api/{command}", json={}).status_code == 404
