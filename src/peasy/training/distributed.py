"""Process group of a run: starts and connects processes, collectives, heartbeats, lost-rank detection."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore

from peasy.errors import InvalidInput, PeasyError
from peasy.parameters import Record

_TIMEOUT_VARIABLE = "PEASY_TIMEOUT"
"""Environment variable: seconds to wait for a process that does not answer; 100 by default."""

_LOOPBACK = "127.0.0.1"
_EXIT_TIMEOUT = 30.0

_HEARTBEAT_INTERVAL, _HEARTBEAT_TIMEOUT, _POLL_INTERVAL = 0.5, 2.5, 0.05
_READY_MESSAGE = "ready"
T = TypeVar("T")


class RankLost(PeasyError):
    """A process of the run died or hangs, and the others cannot continue without it."""

    code, exit_code = "lost", 6


class ProcessGroup:
    """Process group as seen from one rank. Rank 0 is the main process: only it prints and writes."""

    def __init__(
        self, rank: int = 0, world_size: int = 1, local_rank: int = 0, backend: str = "", store: TCPStore | None = None
    ) -> None:
        self.rank, self.world_size, self.local_rank, self.backend = rank, world_size, local_rank, backend
        self.stop_requested, self.stopping = False, False
        self._main_time, self._num_messages = time.monotonic(), 0
        self._heartbeat = None if store is None else Heartbeat(store, rank, world_size)

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave the group; after an error without waiting for the other ranks."""
        if self._heartbeat is not None:
            if kind is None or kind is GeneratorExit:
                if self.is_main:  # it holds the store
                    self.wait_until_received()
                dist.destroy_process_group()
            self._heartbeat.stop()

    @property
    def is_main(self) -> bool:
        """True on rank 0, which prints and writes."""
        return self.rank == 0

    def device(self, requested: str) -> str:
        """Return this rank's device: each has its own GPU."""
        return f"cuda:{self.local_rank}" if requested == "cuda" else requested

    def clock(self) -> float:
        """Return rank 0's time at the last step, so that all ranks agree when a time budget is used up."""
        return self._main_time

    def broadcast_str(self, text: str = "") -> str:
        """Broadcast a string from rank 0. The other ranks wait as long as rank 0's heartbeat goes on."""
        if self._heartbeat is None:
            return text
        self._num_messages += 1
        with self.detect_lost_ranks():
            if not self.is_main:
                return self._heartbeat.receive(self._num_messages)
            self._heartbeat.publish(self._num_messages, text)
            return text

    def wait_until_received(self) -> None:
        """Wait briefly until all ranks have received rank 0's last message; called before rank 0 exits."""
        heartbeat, end = self._heartbeat, time.monotonic() + _HEARTBEAT_TIMEOUT
        while heartbeat is not None and not heartbeat.is_received(self._num_messages) and time.monotonic() < end:
            time.sleep(_POLL_INTERVAL)

    def barrier(self) -> None:
        """Barrier: wait until all ranks arrive."""
        self.all_reduce(torch.zeros(1, device=self._comm_device()))

    def reduce_step(self, loss: float) -> float:
        """After a step: sum the loss over all ranks, take rank 0's time, and combine the stop requests."""
        now = time.monotonic() if self.is_main else 0.0
        sums = torch.tensor([loss, now, float(self.stop_requested)], dtype=torch.float64, device=self._comm_device())
        self.all_reduce(sums)
        total, self._main_time, stop_requests = sums.tolist()
        self.stopping = stop_requests > 0
        return float(total)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        with self.detect_lost_ranks():
            dist.all_reduce(tensor)
        return tensor

    def all_gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all ranks; gradients flow only to this rank's rows."""
        gathered = [torch.empty_like(rows) for _ in range(self.world_size)]
        with self.detect_lost_ranks():
            dist.all_gather(gathered, rows.detach().contiguous())
        gathered[self.rank] = rows
        return torch.cat(gathered)

    @contextmanager
    def detect_lost_ranks(self) -> Iterator[None]:
        """Wrap communication: if it fails because a rank died, raise RankLost with the rank's name."""
        try:
            yield
        except RuntimeError as error:
            raise self._lost_rank_error(error) from error

    def _lost_rank_error(self, error: RuntimeError) -> BaseException:
        missing = self._heartbeat.dead_ranks() if self._heartbeat is not None else []
        if not missing and "imed out" in str(error):
            message = "The other processes are alive, but did not answer in time."
            return RankLost(message, hint=f"Set {_TIMEOUT_VARIABLE}=1000 to wait longer.")
        if not missing:
            return error
        if self.rank != min(set(range(self.world_size)) - {rank for rank, _ in missing}):
            return SystemExit(RankLost.exit_code)  # one rank reports it
        names = ", ".join(f"{rank} ({process})" for rank, process in missing)
        noun, verb = ("Process", "is") if len(missing) == 1 else ("Processes", "are")
        hint = "The checkpoints are intact: run the same command with --resume to continue."
        return RankLost(f"{noun} {names} of {self.world_size} {verb} gone, so training stops.", hint=hint)

    def _comm_device(self) -> str:
        return f"cuda:{self.local_rank}" if self.backend == "nccl" else "cpu"


class Heartbeat:
    """Heartbeat thread: increments a counter in the store twice a second; also carries rank 0's messages."""

    def __init__(self, store: TCPStore, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self._stopped = threading.Event()
        store.set(self._key("process", rank), f"pid {os.getpid()} on {socket.gethostname()}")
        store.set(self._key("heartbeat", rank), "0")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        count = 0
        while not self._stopped.wait(_HEARTBEAT_INTERVAL):
            count += 1
            try:
                self.store.set(self._key("heartbeat", self.rank), str(count))
            except (RuntimeError, OSError):
                return

    def publish(self, number: int, text: str) -> None:
        """Publish a message of rank 0."""
        self.store.set(self._key("message", number), text)

    def receive(self, number: int) -> str:
        """Receive rank 0's message; raise if its heartbeat stops."""
        key, heartbeat, since = self._key("message", number), b"", time.monotonic()
        while not self.store.check([key]):
            time.sleep(_POLL_INTERVAL)
            if (latest := self.store.get(self._key("heartbeat", 0))) != heartbeat:
                heartbeat, since = latest, time.monotonic()
            elif time.monotonic() - since > _timeout().total_seconds():
                raise RuntimeError("Rank 0 does not answer.")
        message = self.store.get(key).decode()
        self.store.add(self._key("received", number), 1)
        return str(message)

    def is_received(self, number: int) -> bool:
        """Return whether all other ranks have received the message."""
        return int(self.store.add(self._key("received", number), 0)) >= self.world_size - 1

    def dead_ranks(self) -> list[tuple[int, str]]:
        """Return the ranks whose heartbeat has stopped, with process id and host."""
        try:
            before = self._counters()
            time.sleep(_HEARTBEAT_TIMEOUT)
            silent = [rank for rank, beat in self._counters().items() if beat == before[rank] and rank != self.rank]
            return [(rank, self.store.get(self._key("process", rank)).decode()) for rank in silent]
        except (RuntimeError, OSError):
            return [(0, "the main process, which held the store")]

    def _counters(self) -> dict[int, bytes]:
        return {rank: self.store.get(self._key("heartbeat", rank)) for rank in range(self.world_size)}

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._stopped.set()

    @staticmethod
    def _key(topic: str, number: int) -> str:
        return f"peasy/{topic}/{number}"


def is_distributed(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun started this process as one of several."""
    return "RANK" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


class RankInfo(Record):
    """Rank, world size and rendezvous address of one process.

    `single_host`: all processes run on this machine; `agent_store`: torchrun provides the store.
    """

    rank: int
    world_size: int
    local_rank: int
    host: str
    port: int
    single_host: bool = True
    agent_store: bool = False

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> "RankInfo":
        """Read the environment variables that torchrun sets."""
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        single_host = int(environment.get("LOCAL_WORLD_SIZE", size)) == size
        agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        return cls(rank, size, int(environment.get("LOCAL_RANK", "0")), host, port, single_host, agent_store)

    def to_env(self) -> dict[str, str]:
        """Return the same as torchrun's environment variables, for a process to be started."""
        ranks = {"RANK": self.rank, "LOCAL_RANK": self.local_rank, "WORLD_SIZE": self.world_size}
        rendezvous = {"LOCAL_WORLD_SIZE": self.world_size, "MASTER_ADDR": self.host, "MASTER_PORT": self.port}
        return {name: str(value) for name, value in (ranks | rendezvous).items()}


@contextmanager
def process_group(num_processes: int | None = None, command: Sequence[str] = ()) -> Iterator[ProcessGroup]:
    """Process group as a context: torchrun's if it started this process, else `num_processes` that run `command`."""
    if is_distributed():
        if num_processes is not None:
            raise InvalidInput("torchrun has started the processes already.", hint="Omit --num-processes.")
        with _init_process_group(RankInfo.from_env(os.environ), None) as group:
            yield group
    elif num_processes is None or num_processes < 1:
        raise InvalidInput(f"num_processes is {num_processes}.", hint="It must be at least 1.")
    else:
        listener = socket.create_server((_LOOPBACK, 0), backlog=128)
        info = RankInfo(0, num_processes, 0, _LOOPBACK, listener.getsockname()[1])
        with _spawned(info, command), _init_process_group(info, listener) as group:
            yield group


@contextmanager
def _spawned(main: RankInfo, command: Sequence[str]) -> Iterator[None]:
    """Start the other ranks on this machine, with the cores divided among them; they end with rank 0."""
    threads, threads_per_rank = torch.get_num_threads(), max(1, torch.get_num_threads() // main.world_size)
    environment, children = os.environ | {"OMP_NUM_THREADS": str(threads_per_rank)}, []
    for rank in range(1, main.world_size):
        variables = environment | replace(main, rank=rank, local_rank=rank).to_env()
        children.append(subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL))
    torch.set_num_threads(threads_per_rank)
    try:
        yield
        for process in children:
            process.wait(_EXIT_TIMEOUT)
    finally:
        torch.set_num_threads(threads)
        for process in children:
            if process.poll() is None:
                process.kill()
            process.wait()


def _init_process_group(info: RankInfo, listener: socket.socket | None) -> ProcessGroup:
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(info.local_rank)
    host = info.host
    if info.single_host:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, "lo0" if sys.platform == "darwin" else "lo")
    if info.single_host and not info.agent_store:
        host, own = _LOOPBACK, dict[str, Any]()
        if info.rank == 0:  # the rendezvous store is bound to loopback only
            server = (listener or socket.create_server((host, info.port), backlog=128)).detach()
            own = {"master_listen_fd": server, "use_libuv": True}
        store = TCPStore(host, info.port, is_master=info.rank == 0, timeout=_timeout(), **own)
        dist.init_process_group(backend, timeout=_timeout(), store=store, rank=info.rank, world_size=info.world_size)
    else:  # torchrun provides the store, or it is on another host
        dist.init_process_group(backend, timeout=_timeout())
    heartbeat_store = TCPStore(host, info.port, is_master=False, timeout=timedelta(seconds=5))
    return ProcessGroup(info.rank, info.world_size, info.local_rank, backend, heartbeat_store)


def _timeout() -> timedelta:
    seconds = os.environ.get(_TIMEOUT_VARIABLE, "100")
    try:
        return timedelta(seconds=max(1.0, float(seconds)))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{_TIMEOUT_VARIABLE} is {seconds}.", hint="It must be a number of seconds.") from None


def main_first(group: ProcessGroup, on_main: Callable[[], T], on_others: Callable[[], T]) -> T:
    """Run `on_main` on rank 0, then `on_others` on the other ranks. If rank 0 fails, they exit silently."""
    if not group.is_main:
        if group.broadcast_str() != _READY_MESSAGE:
            raise SystemExit(1)
        return on_others()
    try:
        result = on_main()
    except BaseException:
        group.broadcast_str("failed")
        group.wait_until_received()
        raise
    group.broadcast_str(_READY_MESSAGE)
    return result
