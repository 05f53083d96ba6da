"""What the processes of a run agree on, without starting any."""

import pytest

from peasy.training.crew import Crew, Lost, _Heart, led


class Store(dict):
    """A store of one process, where others' hearts can be stopped."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]


class Second(Crew):
    """Number 1 of two, who hears what the lead says."""

    def __init__(self, said):
        super().__init__(1, 2)
        self.said = said

    def agree(self, text):
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


def test_an_error_of_ones_own_stays_what_it_is(monkeypatch):
    monkeypatch.setattr("peasy.training.crew._SILENCE", 0.1)
    alone = Crew(0, 1, store=Store())
    with pytest.raises(RuntimeError, match="shapes"), alone.watched():
        raise RuntimeError("shapes do not fit")
    alone._heart.stop()
