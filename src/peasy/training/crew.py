"""A crew: the processes of one run. Who is who, what they agree on, and who is gone when somebody is."""

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
"""The variable that says how many seconds the processes wait for one that does not answer; 100 unless it is set."""

_HERE = "127.0.0.1"
_GOODBYE = 30.0

_BEAT, _SILENCE, _LOOK = 0.5, 2.5, 0.05
_READY = "ready"
_SLOW = "The other processes live, but they did not answer in time."
T = TypeVar("T")


class Lost(PeasyError):
    """A process of the run is gone, and the others cannot go on without it."""

    code, exit_code = "lost", 6


class Crew:
    """The processes that train together, seen by one of them. The lead is number 0: it alone prints and writes.

    A crew of one agrees with itself and waits for nobody.
    """

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, backend: str = "", store: Any = None) -> None:
        self.rank, self.size, self.local, self.backend = rank, size, local, backend
        self.wish, self.stopping = False, False
        self._now, self._said = time.monotonic(), 0
        self._heart = None if store is None else _Heart(store, rank, size)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Leave; after an error nobody is waited for."""
        if self._heart is not None:
            self._heart.stop()
            if kind is None or kind is GeneratorExit:
                dist.destroy_process_group()

    @property
    def alone(self) -> bool:
        """Whether there is nobody else."""
        return self.size == 1

    @property
    def lead(self) -> bool:
        """Whether this is the one that prints and writes."""
        return self.rank == 0

    def device(self, chosen: str) -> str:
        """Where this one's model is: with graphics cards, each process on its own."""
        return f"cuda:{self.local}" if chosen == "cuda" and not self.alone else chosen

    def clock(self) -> float:
        """The lead's time at the last step, the same for all: so all agree when a run of minutes is over."""
        return self._now

    def agree(self, text: str = "") -> str:
        """What the lead says. The others wait for it as long as it lives, whatever it does meanwhile."""
        if self._heart is None:
            return text
        self._said += 1
        with self.watched():
            return self._heart.say(self._said, text) if self.lead else self._heart.hear(self._said)

    def all_heard(self) -> None:
        """The lead waits a moment until what it said last is known, for it is about to leave."""
        end = time.monotonic() + _SILENCE
        while self._heart is not None and not self._heart.heard(self._said) and time.monotonic() < end:
            time.sleep(_LOOK)

    def meet(self) -> None:
        """Wait until everybody is here."""
        if self.alone:
            return
        with self.watched():
            dist.all_reduce(torch.zeros(1, device=self._place()))

    def settle(self, loss: float) -> float:
        """After a step: the loss of all together, the lead's time, and whether somebody wishes to stop."""
        time_now = time.monotonic() if self.lead else 0.0
        told = torch.tensor([loss, time_now, float(self.wish)], dtype=torch.float64, device=self._place())
        self.add(told)
        total, self._now, wishes = told.tolist()
        self.stopping = wishes > 0
        return total

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        with self.watched():
            dist.all_reduce(tensor)
        return tensor

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes; gradients flow to one's own."""
        found = [torch.empty_like(rows) for _ in range(self.size)]
        with self.watched():
            dist.all_gather(found, rows.detach().contiguous())
        found[self.rank] = rows
        return torch.cat(found)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around everything that needs the others: if it fails because one is gone, say which one."""
        try:
            yield
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> BaseException:
        missing = self._heart.missing() if self._heart is not None else []
        if not missing:
            return Lost(_SLOW, hint=f"{PATIENCE}=1000 waits longer.") if "imed out" in str(error) else error
        if self.rank != min(set(range(self.size)) - {number for number, _ in missing}):
            return SystemExit(Lost.exit_code)  # one voice is enough
        names = ", ".join(f"{number} ({who})" for number, who in missing)
        noun = "Process" if len(missing) == 1 else "Processes"
        return Lost(
            f"{noun} {names} of {self.size} {'is' if len(missing) == 1 else 'are'} gone, so the others end too.",
            hint="The checkpoints are whole: the same command with --resume goes on.",
        )

    def _place(self) -> str:
        return f"cuda:{self.local}" if self.backend == "nccl" else "cpu"


class _Heart:
    """Tells the others twice a second that this process lives, from a thread of its own."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._still = threading.Event()
        store.set(self._key("who", rank), f"pid {os.getpid()} on {socket.gethostname()}")
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
        """Let the others know."""
        self.store.set(self._key("said", number), text)
        return text

    def hear(self, number: int) -> str:
        """What the lead says, as soon as it does; an error where its heart stands still."""
        key, beat, since = self._key("said", number), b"", time.monotonic()
        while not self.store.check([key]):
            time.sleep(_LOOK)
            if (now := self.store.get(self._key("beat", 0))) != beat:
                beat, since = now, time.monotonic()
            elif time.monotonic() - since > _patience().total_seconds():
                raise RuntimeError("The lead does not answer.")
        said = self.store.get(key).decode()
        self.store.add(self._key("heard", number), 1)
        return str(said)

    def heard(self, number: int) -> bool:
        """Whether everybody knows."""
        return int(self.store.add(self._key("heard", number), 0)) >= self.size - 1

    def missing(self) -> list[tuple[int, str]]:
        """The numbers of those whose heart stands still, with who they were."""
        try:
            before = self._beats()
            time.sleep(_SILENCE)
            still = [rank for rank, beat in self._beats().items() if beat == before[rank] and rank != self.rank]
            return [(rank, self.store.get(self._key("who", rank)).decode()) for rank in still]
        except (RuntimeError, OSError):
            return [(0, "the lead, who kept the list")]

    def _beats(self) -> dict[int, bytes]:
        return {rank: self.store.get(self._key("beat", rank)) for rank in range(self.size)}

    def stop(self) -> None:
        """Beat no more."""
        self._still.set()

    @staticmethod
    def _key(what: str, rank: int) -> str:
        return f"peasy/{what}/{rank}"


def is_crew(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is one of several that torchrun started.

    >>> is_crew({"RANK": "0", "WORLD_SIZE": "2"}), is_crew({})
    (True, False)
    """
    return "RANK" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


@dataclass(frozen=True)
class Post:
    """One process's place in a crew: its number, of how many, and where the list is by which they find each other.

    `inside` tells that all are on this machine; `kept` that torchrun keeps the list.
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
        """As torchrun tells it."""
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        inside = int(environment.get("LOCAL_WORLD_SIZE", size)) == size
        kept = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        return cls(rank, size, int(environment.get("LOCAL_RANK", "0")), host, port, inside, kept)

    def tell(self) -> dict[str, str]:
        """The same in the words of torchrun, for a process that is to stand here."""
        told = {"RANK": self.rank, "LOCAL_RANK": self.local, "WORLD_SIZE": self.size, "LOCAL_WORLD_SIZE": self.size}
        return {name: str(number) for name, number in told.items()} | {
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
        }


@contextmanager
def join(processes: int | None = None, command: Sequence[str] = ()) -> Iterator[Crew]:
    """The crew that torchrun started this process in; else this one leads `processes`, the others run `command`.

    A crew of one where nobody else is asked for.
    """
    if is_crew():
        if processes is not None:
            raise InvalidInput("torchrun has started the processes already.", hint="Leave out --processes.")
        with _enter(Post.given(os.environ), None) as crew:
            yield crew
    elif processes is None or processes == 1:
        yield Crew()
    elif processes < 1:
        raise InvalidInput(f"processes is {processes}.", hint="It takes at least 1.")
    else:
        listening = socket.create_server((_HERE, 0), backlog=128)
        post = Post(0, processes, 0, _HERE, listening.getsockname()[1])
        with _hired(post, command), _enter(post, listening) as crew:
            yield crew


@contextmanager
def _hired(lead: Post, command: Sequence[str]) -> Iterator[None]:
    """The others, started on this machine, each with its share of the cores; they end with the lead."""
    threads, each = torch.get_num_threads(), max(1, torch.get_num_threads() // lead.size)
    more = {"OMP_NUM_THREADS": str(each)}
    posts = [replace(lead, rank=rank, local=rank) for rank in range(1, lead.size)]
    started = [
        subprocess.Popen(command, env=os.environ | more | post.tell(), stdin=subprocess.DEVNULL) for post in posts
    ]
    torch.set_num_threads(each)
    try:
        yield
        for process in started:
            process.wait(_GOODBYE)
    finally:
        torch.set_num_threads(threads)
        for process in started:
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
    else:  # torchrun keeps the store, or it is on another host
        dist.init_process_group(backend, timeout=_patience())
    own = dist.TCPStore(host, post.port, is_master=False, timeout=timedelta(seconds=5))
    return Crew(post.rank, post.size, post.local, backend, own)


def _find_store(port: int) -> dist.TCPStore:
    return dist.TCPStore(_HERE, port, is_master=False, timeout=_patience())


def keep_store(port: int, listening: socket.socket | None = None) -> dist.TCPStore:
    """The list by which processes find each other, kept where only this host can read it."""
    own = listening or socket.create_server((_HERE, port), backlog=128)
    return dist.TCPStore(
        _HERE, port, is_master=True, timeout=_patience(), master_listen_fd=own.detach(), use_libuv=True
    )


def _patience() -> timedelta:
    said = os.environ.get(PATIENCE, "100")
    try:
        return timedelta(seconds=max(1.0, float(said)))
    except (ValueError, OverflowError):
        raise InvalidInput(f"{PATIENCE} is {said}.", hint="It is a number of seconds.") from None


def stay_inside() -> None:
    """All processes are on one host: they talk over loopback, which nobody outside can reach."""
    name = "lo0" if sys.platform == "darwin" else "lo"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, name)


def led(crew: Crew, first: Callable[[], T], then: Callable[[], T]) -> T:
    """The lead does `first`; when it is done, the others do `then`. Where the lead fails, they leave without a word."""
    if not crew.lead:
        if crew.agree() != _READY:
            raise SystemExit(1)
        return then()
    try:
        found = first()
    except BaseException:
        crew.agree("failed")
        crew.all_heard()
        raise
    crew.agree(_READY)
    return found
