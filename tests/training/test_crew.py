"""What the processes of a run agree on, without starting any."""

import threading

import pytest

from peasy.errors import InvalidInput
from peasy.training.crew import Crew, Lost, Post, _Heart, _patience, join, led


class Store(dict):
    """A store of one process, where others' hearts can be stopped."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)

    def add(self, key, more):
        self[key] = str(int(self.get(key) if key in self else 0) + more).encode()
        return int(self[key])


class Second(Crew):
    """Number 1 of two, who hears what the lead says."""

    def __init__(self, said):
        super().__init__(1, 2)
        self.said = said

    def agree(self, text=""):
        return self.said


def test_the_lead_goes_first():
    done = []
    assert led(Crew(), lambda: done.append("lead") or 1, lambda: 2) == 1
    assert led(Second("ready"), lambda: 1, lambda: 2) == 2
    assert done == ["lead"]


def test_where_the_lead_fails_the_others_leave_quietly():
    with pytest.raises(SystemExit):
        led(Second("failed"), lambda: 1, lambda: pytest.fail("should not start"))
    with pytest.raises(ZeroDivisionError):
        led(Crew(), lambda: 1 / 0, lambda: 2)


@pytest.fixture
def crew(monkeypatch):
    """Number 0 of three. Number 1 lives, number 2 does not."""
    monkeypatch.setattr("peasy.training.crew._SILENCE", 0.1)
    monkeypatch.setattr("peasy.training.crew._BEAT", 0.01)
    store = Store()
    found = Crew(0, 3, store=store)
    one, two = _Heart(store, 1, 3), _Heart(store, 2, 3)
    two.stop()
    yield found
    one.stop()
    found._heart.stop()


def test_whose_heart_stands_still_is_named(crew):
    with pytest.raises(Lost, match=r"Process 2 \(pid \d+ on .*\) of 3 is gone"), crew.watched():
        raise RuntimeError("connection closed by peer")


def test_one_voice_is_enough(crew):
    crew.rank = 1
    with pytest.raises(SystemExit), crew.watched():
        raise RuntimeError("connection closed by peer")


def test_what_the_lead_says_is_heard(crew):
    other = Crew(1, 3, store=crew._heart.store)
    assert crew.agree("runs/one") == "runs/one"
    assert other.agree() == "runs/one"
    assert crew._heart.store["peasy/heard/1"] == b"1"
    other._heart.stop()


def test_a_lead_that_does_not_answer_is_named(crew, monkeypatch):
    monkeypatch.setenv("PEASY_PATIENCE", "1")
    crew._heart.stop()
    other = Crew(1, 3, store=crew._heart.store)
    with pytest.raises(Lost, match=r"Processes 0 .*, 2 .* are gone"):
        other.agree()
    other._heart.stop()


def test_a_lead_that_lives_is_waited_for(crew, monkeypatch):
    """The inverse: its heart beats, so that it may take longer than anybody's patience."""
    monkeypatch.setenv("PEASY_PATIENCE", "1")
    other = Crew(1, 3, store=crew._heart.store)
    threading.Timer(1.5, crew.agree, ["at last"]).start()
    assert other.agree() == "at last"
    other._heart.stop()


def test_the_others_live_but_are_late(crew):
    crew._heart.size = 2  # number 2, who is gone, is none of ours
    with pytest.raises(Lost, match="did not answer in time"), crew.watched():
        raise RuntimeError("Timed out waiting 1000ms for recv operation to complete")


def test_patience_is_a_number(monkeypatch):
    monkeypatch.setenv("PEASY_PATIENCE", "long")
    with pytest.raises(InvalidInput, match="PEASY_PATIENCE is long"):
        _patience()


def test_a_post_is_told_in_the_words_of_torchrun():
    post = Post(1, 2, 1, "127.0.0.1", 4000)
    assert Post.given(post.tell()) == post


def test_processes_are_counted():
    with pytest.raises(InvalidInput, match="processes is 0"), join(0, []):
        pass


def test_torchrun_has_started_them_already(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidInput, match="started the processes already"), join(2, []):
        pass


def test_an_error_of_ones_own_stays_what_it_is(monkeypatch):
    monkeypatch.setattr("peasy.training.crew._SILENCE", 0.1)
    alone = Crew(0, 1, store=Store())
    with pytest.raises(RuntimeError, match="shapes"), alone.watched():
        raise RuntimeError("shapes do not fit")
    alone._heart.stop()
