"""A crew: the processes of one run. Who is who, what they agree on, and who is gone when somebody is."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from peasy.errors import PeasyError

_PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others: the lead may be writing a large checkpoint."""

_BEAT, _SILENCE = 0.5, 2.5
_READY = "ready"
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
        self._now = time.monotonic()
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

    def agree(self, text: str) -> str:
        """What the lead says."""
        if self.alone:
            return text
        held: list[Any] = [text]
        with self.watched():
            dist.broadcast_object_list(held, src=0)
        return str(held[0])

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
            return error
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


def join() -> Crew:
    """The crew that torchrun started this process in; a crew of one where nobody did."""
    if not is_crew():
        return Crew()
    env = os.environ
    rank, size, local = int(env["RANK"]), int(env["WORLD_SIZE"]), int(env.get("LOCAL_RANK", "0"))
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(local)
    host, port, inside = env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env.get("LOCAL_WORLD_SIZE", size)) == size
    if inside:
        stay_inside()
    if inside and env.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        host = "127.0.0.1"
        store = keep_store(port) if rank == 0 else dist.TCPStore(host, port, is_master=False, timeout=_PATIENCE)
        dist.init_process_group(backend, timeout=_PATIENCE, store=store, rank=rank, world_size=size)
    else:  # torchrun keeps the store, or it is on another host
        dist.init_process_group(backend, timeout=_PATIENCE)
    own = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5))
    return Crew(rank, size, local, backend, own)


def keep_store(port: int) -> dist.TCPStore:
    """The list by which processes find each other, kept where only this host can read it."""
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    return dist.TCPStore(
        "127.0.0.1", port, is_master=True, timeout=_PATIENCE, master_listen_fd=listening.detach(), use_libuv=True
    )


def stay_inside() -> None:
    """All processes are on one host: they talk over loopback, which nobody outside can reach."""
    name = "lo0" if sys.platform == "darwin" else "lo"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, name)


def led(crew: Crew, first: Callable[[], T], then: Callable[[], T]) -> T:
    """The lead does `first`; when it is done, the others do `then`. Where the lead fails, they leave without a word."""
    if not crew.lead:
        if crew.agree("") != _READY:
            raise SystemExit(1)
        return then()
    try:
        found = first()
    except BaseException:
        crew.agree("failed")
        raise
    crew.agree(_READY)
    return found
