"""Process group of a run: rendezvous, collectives, heartbeats, lost-rank detection."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from peasy.errors import InvalidInput, PeasyError

PATIENCE = "PEASY_PATIENCE"
"""Environment variable: seconds to wait for a process that does not answer; 100 by default."""

_HERE = "127.0.0.1"
_GOODBYE = 30.0

_BEAT, _SILENCE, _LOOK = 0.5, 2.5, 0.05
_READY = "ready"
_SLOW = "The other processes are alive, but did not answer in time."
T = TypeVar("T")


class Lost(PeasyError):
    """A process of the run died or hangs, and the others cannot continue without it."""

    code, exit_code = "lost", 6


class Crew:
    """Process group as seen from one rank. Rank 0 is the main process: only it prints and writes.

    A group of size 1 does no communication.
    """

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, backend: str = "", store: Any = None) -> None:
        self.rank, self.size, self.local, self.backend = rank, size, local, backend
        self.wish, self.stopping = False, False
        self._now, self._said = time.monotonic(), 0
        self._heart = None if store is None else _Heart(store, rank, size)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave the group; after an error without waiting for the other ranks."""
        if self._heart is not None:
            self._heart.stop()
            if kind is None or kind is GeneratorExit:
                dist.destroy_process_group()

    @property
    def alone(self) -> bool:
        """True if this is the only process."""
        return self.size == 1

    @property
    def lead(self) -> bool:
        """True on rank 0, which prints and writes."""
        return self.rank == 0

    def device(self, chosen: str) -> str:
        """Return this rank's device: with several processes, each has its own GPU."""
        return f"cuda:{self.local}" if chosen == "cuda" and not self.alone else chosen

    def clock(self) -> float:
        """Return rank 0's time at the last step, so that all ranks agree when a time budget is used up."""
        return self._now

    def agree(self, text: str = "") -> str:
        """Broadcast a string from rank 0. The other ranks wait as long as rank 0's heartbeat goes on."""
        if self._heart is None:
            return text
        self._said += 1
        with self.watched():
            return self._heart.say(self._said, text) if self.lead else self._heart.hear(self._said)

    def all_heard(self) -> None:
        """Wait briefly until all ranks have received rank 0's last message; called before rank 0 exits."""
        end = time.monotonic() + _SILENCE
        while self._heart is not None and not self._heart.heard(self._said) and time.monotonic() < end:
            time.sleep(_LOOK)

    def meet(self) -> None:
        """Barrier: wait until all ranks arrive."""
        if self.alone:
            return
        with self.watched():
            dist.all_reduce(torch.zeros(1, device=self._place()))

    def settle(self, loss: float) -> float:
        """After a step: sum the loss over all ranks, take rank 0's time, and combine the stop requests."""
        now = time.monotonic() if self.lead else 0.0
        sums = torch.tensor([loss, now, float(self.wish)], dtype=torch.float64, device=self._place())
        self.add(sums)
        total, self._now, stop_requests = sums.tolist()
        self.stopping = stop_requests > 0
        return total

    def add(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place."""
        with self.watched():
            dist.all_reduce(tensor)
        return tensor

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all ranks; gradients flow only to this rank's rows."""
        gathered = [torch.empty_like(rows) for _ in range(self.size)]
        with self.watched():
            dist.all_gather(gathered, rows.detach().contiguous())
        gathered[self.rank] = rows
        return torch.cat(gathered)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Wrap communication: if it fails because a rank died, raise RankLost with the rank's name."""
        try:
            yield
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> BaseException:
        missing = self._heart.missing() if self._heart is not None else []
        if not missing:
            return Lost(_SLOW, hint=f"Set {PATIENCE}=1000 to wait longer.") if "imed out" in str(error) else error
        if self.rank != min(set(range(self.size)) - {rank for rank, _ in missing}):
            return SystemExit(Lost.exit_code)  # one rank reports it
        names = ", ".join(f"{rank} ({process})" for rank, process in missing)
        noun = "Process" if len(missing) == 1 else "Processes"
        return Lost(
            f"{noun} {names} of {self.size} {'is' if len(missing) == 1 else 'are'} gone, so training stops.",
            hint="The checkpoints are intact: run the same command with --resume to continue.",
        )

    def _place(self) -> str:
        return f"cuda:{self.local}" if self.backend == "nccl" else "cpu"


class _Heart:
    """Heartbeat thread: increments a counter in the store twice a second; also carries rank 0's messages."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._still = threading.Event()
        store.set(self._key("process", rank), f"pid {os.getpid()} on {socket.gethostname()}")
        store.set(self._key("beat", rank), "0")
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        count = 0
        while not self._still.wait(_BEAT):
            count += 1
            try:
                self.store.set(self._key("beat", self.rank), str(count))
            except (RuntimeError, OSError):
                return

    def say(self, number: int, text: str) -> str:
        """Publish a message of rank 0."""
        self.store.set(self._key("message", number), text)
        return text

    def hear(self, number: int) -> str:
        """Receive rank 0's message; raise if its heartbeat stops."""
        key, heartbeat, since = self._key("message", number), b"", time.monotonic()
        while not self.store.check([key]):
            time.sleep(_LOOK)
            if (latest := self.store.get(self._key("beat", 0))) != heartbeat:
                heartbeat, since = latest, time.monotonic()
            elif time.monotonic() - since > _patience().total_seconds():
                raise RuntimeError("Rank 0 does not answer.")
        message = self.store.get(key).decode()
        self.store.add(self._key("received", number), 1)
        return str(message)

    def heard(self, number: int) -> bool:
        """Return whether all other ranks have received the message."""
        return int(self.store.add(self._key("received", number), 0)) >= self.size - 1

    def missing(self) -> list[tuple[int, str]]:
        """Return the ranks whose heartbeat has stopped, with process id and host."""
        try:
            before = self._beats()
            time.sleep(_SILENCE)
            silent = [rank for rank, beat in self._beats().items() if beat == before[rank] and rank != self.rank]
            return [(rank, self.store.get(self._key("process", rank)).decode()) for rank in silent]
        except (RuntimeError, OSError):
            return [(0, "the main process, which held the store")]

    def _beats(self) -> dict[int, bytes]:
        return {rank: self.store.get(self._key("beat", rank)) for rank in range(self.size)}

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._still.set()

    @staticmethod
    def _key(what: str, rank: int) -> str:
        return f"peasy/{what}/{rank}"


def is_crew(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun started this process as one of several.

    >>> is_crew({"RANK": "0", "WORLD_SIZE": "2"}), is_crew({})
    (True, False)
    """
    return "RANK" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


@dataclass(frozen=True)
class Post:
    """Rank, world size and rendezvous address of one process.

    `single_host`: all processes run on this machine; `agent_store`: torchrun provides the store.
    """

    rank: int
    size: int
    local: int
    host: str
    port: int
    inside: bool = True
    kept: bool = False

    @classmethod
    def given(cls, environment: Mapping[str, str]) -> "Post":
        """Read the environment variables that torchrun sets."""
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        single_host = int(environment.get("LOCAL_WORLD_SIZE", size)) == size
        agent_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        return cls(rank, size, int(environment.get("LOCAL_RANK", "0")), host, port, single_host, agent_store)

    def tell(self) -> dict[str, str]:
        """Return the same as torchrun's environment variables, for a process to be started."""
        numbers = {"RANK": self.rank, "LOCAL_RANK": self.local, "WORLD_SIZE": self.size, "LOCAL_WORLD_SIZE": self.size}
        return {name: str(number) for name, number in numbers.items()} | {
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
        }


@contextmanager
def join(processes: int | None = None, command: Sequence[str] = ()) -> Iterator[Crew]:
    """Process group as a context: torchrun's if it started this process, else start `processes`, which run `command`.

    Without either, a group of size 1.
    """
    if is_crew():
        if processes is not None:
            raise InvalidInput("torchrun has started the processes already.", hint="Omit --processes.")
        with _enter(Post.given(os.environ), None) as crew:
            yield crew
    elif processes is None or processes == 1:
        yield Crew()
    elif processes < 1:
        raise InvalidInput(f"processes is {processes}.", hint="It must be at least 1.")
    else:
        listener = socket.create_server((_HERE, 0), backlog=128)
        info = Post(0, processes, 0, _HERE, listener.getsockname()[1])
        with _hired(info, command), _enter(info, listener) as crew:
            yield crew


@contextmanager
def _hired(lead: Post, command: Sequence[str]) -> Iterator[None]:
    """Start the other ranks on this machine, with the cores divided among them; they end with rank 0."""
    threads, threads_per_rank = torch.get_num_threads(), max(1, torch.get_num_threads() // lead.size)
    environment = {"OMP_NUM_THREADS": str(threads_per_rank)}
    infos = [replace(lead, rank=rank, local=rank) for rank in range(1, lead.size)]
    children = [
        subprocess.Popen(command, env=os.environ | environment | info.tell(), stdin=subprocess.DEVNULL)
        for info in infos
    ]
    torch.set_num_threads(threads_per_rank)
    try:
        yield
        for process in children:
            process.wait(_GOODBYE)
    finally:
        torch.set_num_threads(threads)
        for process in children:
            if process.poll() is None:
                process.kill()
            process.wait()


def _enter(post: Post, listening: socket.socket | None) -> Crew:
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(post.local)
    host = post.host
    if post.inside:
        stay_inside()
    if post.inside and not post.kept:
        host = _HERE
        store = keep_store(post.port, listening) if post.rank == 0 else _find_store(post.port)
        dist.init_process_group(backend, timeout=_patience(), store=store, rank=post.rank, world_size=post.size)
    else:  # torchrun provides the store, or it is on another host
        dist.init_process_group(backend, timeout=_patience())
    heartbeat_store = dist.TCPStore(host, post.port, is_master=False, timeout=timedelta(seconds=5))
    return Crew(post.rank, post.size, post.local, backend, heartbeat_store)


def _find_store(port: int) -> dist.TCPStore:
    return dist.TCPStore(_HERE, port, is_master=False, timeout=_patience())


def keep_store(port: int, listening: socket.socket | None = None) -> dist.TCPStore:
    """Create the rendezvous store, bound to loopback only."""
    server_socket = listening or socket.create_server((_HERE, port), backlog=128)
    return dist.TCPStore(
        _HERE, port, is_master=True, timeout=_patience(), master_listen_fd=server_socket.detach(), use_libuv=True
    )


def _patience() -> timedelta:
    seconds = os.environ.get(PATIENCE, "100")
    try:
        return timedelta(seconds=max(1.0, float(seconds)))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{PATIENCE} is {seconds}.", hint="It must be a number of seconds.") from None


def stay_inside() -> None:
    """Make gloo and NCCL use the loopback interface: all processes are on one host."""
    interface = "lo0" if sys.platform == "darwin" else "lo"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, interface)


def led(crew: Crew, first: Callable[[], T], then: Callable[[], T]) -> T:
    """Run `first` on rank 0, then `then` on the other ranks. If rank 0 fails, they exit silently."""
    if not crew.lead:
        if crew.agree() != _READY:
            raise SystemExit(1)
        return then()
    try:
        result = first()
    except BaseException:
        crew.agree("failed")
        crew.all_heard()
        raise
    crew.agree(_READY)
    return result
