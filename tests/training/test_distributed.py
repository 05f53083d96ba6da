"""Process group logic, tested without starting processes."""

import threading

import pytest

from peasy.errors import InvalidInput
from peasy.training.distributed import Heartbeat, ProcessGroup, RankInfo, RankLost, _timeout, main_first, process_group


class Store(dict):
    """In-memory store, in which the heartbeat of other ranks can be stopped."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]

    def check(self, keys):
        return all(key in self for key in keys)

    def add(self, key, more):
        self[key] = str(int(self.get(key) if key in self else 0) + more).encode()
        return int(self[key])


class Second(ProcessGroup):
    """Rank 1 of two, with a fixed message from rank 0."""

    def __init__(self, message):
        super().__init__(1, 2)
        self.message = message

    def broadcast_str(self, text=""):
        return self.message


def test_rank_0_runs_first():
    done = []
    assert main_first(ProcessGroup(), lambda: done.append("main") or 1, lambda: 2) == 1
    assert main_first(Second("ready"), lambda: 1, lambda: 2) == 2
    assert done == ["main"]


def test_other_ranks_exit_silently_if_rank_0_fails():
    with pytest.raises(SystemExit):
        main_first(Second("failed"), lambda: 1, lambda: pytest.fail("should not start"))
    with pytest.raises(ZeroDivisionError):
        main_first(ProcessGroup(), lambda: 1 / 0, lambda: 2)


@pytest.fixture
def group(monkeypatch):
    """Rank 0 of three. Rank 1 is alive, rank 2 is not."""
    monkeypatch.setattr("peasy.training.distributed._HEARTBEAT_TIMEOUT", 0.1)
    monkeypatch.setattr("peasy.training.distributed._HEARTBEAT_INTERVAL", 0.01)
    store = Store()
    group = ProcessGroup(0, 3, store=store)
    alive, dead = Heartbeat(store, 1, 3), Heartbeat(store, 2, 3)
    dead.stop()
    yield group
    alive.stop()
    group._heartbeat.stop()


def test_rank_without_heartbeat_is_reported(group):
    with pytest.raises(RankLost, match=r"Process 2 \(pid \d+ on .*\) of 3 is gone"), group.detect_lost_ranks():
        raise RuntimeError("connection closed by peer")


def test_only_one_rank_reports_a_lost_rank(group):
    group.rank = 1
    with pytest.raises(SystemExit), group.detect_lost_ranks():
        raise RuntimeError("connection closed by peer")


def test_broadcast_str_reaches_other_ranks(group):
    other = ProcessGroup(1, 3, store=group._heartbeat.store)
    assert group.broadcast_str("runs/one") == "runs/one"
    assert other.broadcast_str() == "runs/one"
    assert group._heartbeat.store["peasy/received/1"] == b"1"
    other._heartbeat.stop()


def test_silent_rank_0_is_reported(group, monkeypatch):
    monkeypatch.setenv("PEASY_TIMEOUT", "1")
    group._heartbeat.stop()
    other = ProcessGroup(1, 3, store=group._heartbeat.store)
    with pytest.raises(RankLost, match=r"Processes 0 .*, 2 .* are gone"):
        other.broadcast_str()
    other._heartbeat.stop()


def test_waits_for_rank_0_while_its_heartbeat_goes_on(group, monkeypatch):
    """The inverse: with a heartbeat, rank 0 may take longer than the timeout."""
    monkeypatch.setenv("PEASY_TIMEOUT", "1")
    other = ProcessGroup(1, 3, store=group._heartbeat.store)
    threading.Timer(1.5, group.broadcast_str, ["at last"]).start()
    assert other.broadcast_str() == "at last"
    other._heartbeat.stop()


def test_timeout_without_lost_rank(group):
    group._heartbeat.world_size = 2  # rank 2, which is dead, is outside the group
    with pytest.raises(RankLost, match="did not answer in time"), group.detect_lost_ranks():
        raise RuntimeError("Timed out waiting 1000ms for recv operation to complete")


def test_timeout_must_be_a_number(monkeypatch):
    monkeypatch.setenv("PEASY_TIMEOUT", "long")
    with pytest.raises(InvalidInput, match="PEASY_TIMEOUT is long"):
        _timeout()


def test_rank_info_round_trips_through_environment():
    info = RankInfo(1, 2, 1, "127.0.0.1", 4000)
    assert RankInfo.from_env(info.to_env()) == info


def test_process_count_must_be_positive():
    with pytest.raises(InvalidInput, match="num_processes is 0"), process_group(0, []):
        pass


def test_processes_option_is_rejected_under_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidInput, match="started the processes already"), process_group(2, []):
        pass


def test_unrelated_errors_are_not_replaced(monkeypatch):
    monkeypatch.setattr("peasy.training.distributed._HEARTBEAT_TIMEOUT", 0.1)
    single = ProcessGroup(0, 1, store=Store())
    with pytest.raises(RuntimeError, match="shapes"), single.detect_lost_ranks():
        raise RuntimeError("shapes do not fit")
    single._heartbeat.stop()
