"""The workshop: one piece of work at a time, told as it goes, stopped by saving; and what people bring along."""

import pytest
from tests.studio.company import until

from peasy.errors import InvalidInput, NotFound
from peasy.studio import upload
from peasy.studio.workshop import Workshop
from peasy.training.lock import Busy
from peasy.workbench.runs import open_run


@pytest.fixture
def workshop(at_home):
    made = Workshop()
    yield made
    made.close()


def test_one_at_a_time(workshop):
    with pytest.raises(NotFound, match="Nothing goes on"):
        workshop.stop()
    job = workshop.start("version", ["--json"], "Telling the version")
    with pytest.raises(Busy, match="Telling the version goes on"):
        workshop.start("version", ["--json"], "Another")
    until(lambda: not job.running, 60)
    assert job.state == "done"
    assert job.data()["result"]["peasy"]
    assert workshop.start("version", ["--json"], "Another").id != job.id


@pytest.mark.slow
def test_work_is_stopped_by_saving_when_the_server_ends(workshop, at_home):
    words = ["gpt", "--data", "copy", "--preset", "tiny", "--minutes", "5", "--run", "shop", "--json"]
    job = workshop.start("train", words, "Training shop", ["shop"])
    until(lambda: job.last is not None, 120)
    told = job.data()
    assert told["state"] == "running"
    assert told["last"]["event"] == "step"
    workshop.close()  # as when the server ends
    until(lambda: not job.running, 60)
    assert job.state == "stopped"
    assert job.process.returncode == 130
    run = open_run(at_home / "runs" / "shop")
    assert "--resume goes on" in run.facts().state
    assert run.facts().step >= told["last"]["step"]
    assert job.data()["next"] == [run.resume_line()]


def test_what_fails_says_why(workshop):
    job = workshop.start("explain", ["no-such-example", "--json"], "Explaining nothing")
    until(lambda: not job.running, 60)
    assert job.state == "failed"
    assert "no-such-example" in job.data()["error"]["message"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b.txt", "x.tsv", "…", "", "CON", "a/b\\c.jsonl", "\0"])
def test_uploads_lie_under_names_of_our_own(at_home, name):
    id = upload.begin(name)
    assert upload.add(id, "one ") == 4
    assert upload.add(id, "two \ud800") == upload.place(id).stat().st_size
    assert upload.place(id).parent == at_home / "uploads"
    assert upload.place(id).read_text(encoding="utf-8").startswith("one two ")


@pytest.mark.parametrize("id", ["../x.txt", "0123456789abcdef-x.py", "/etc/passwd", "", "0123456789abcdef-a/b.txt"])
def test_nothing_else_is_opened(at_home, id):
    with pytest.raises(InvalidInput, match="not the name of an upload"):
        upload.place(id)


def test_what_is_not_there_or_too_much_is_said(at_home, monkeypatch):
    with pytest.raises(NotFound, match="not here any more"):
        upload.place("0123456789abcdef-gone.txt")
    monkeypatch.setattr(upload, "MOST", 10)
    with pytest.raises(Exception, match="10 bytes together"):
        upload.add(upload.begin("a.txt"), "x" * 11)


PATHS = ["/etc/passwd", "../../etc/passwd", "./stories", "file:///etc/passwd", "C:\\x.txt"]


@pytest.mark.parametrize("path", PATHS)
def test_training_never_opens_a_path_of_the_callers(client, at_home, path):
    for body in ({"data": path}, {"upload": path}):
        answer = client.post("/api/train", json={"kind": "gpt", "preset": "tiny", "steps": 1, **body})
        assert answer.status_code in (400, 404), answer.text
    assert client.post("/api/metrics", json={"name": path}).status_code == 404
    assert client.post("/api/film", json={"name": path}).status_code == 404
    assert client.post("/api/train", json={"run": path, "resume": True}).status_code in (400, 404, 422)
    assert client.post("/api/import", json={"model": path, "yes": True}).status_code == 404
    assert client.post("/api/experiments/last", json={"name": path}).status_code == 404
    assert client.post("/api/job", json={}).json()["result"] == {"job": None}


def test_serving_alone_starts_no_processes(house):
    from fastapi.testclient import TestClient

    from peasy.studio.app import build

    api = TestClient(build(house, pages=False), base_url="http://localhost")
    for verb in ("train", "compare", "job", "upload", "import", "experiments/run"):
        assert api.post(f"/api/{verb}", json={}).status_code == 404
