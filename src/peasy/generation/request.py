"""What is asked of the engine, and what it tells while it answers."""

import math
from dataclasses import dataclass, field
from typing import Literal

from peasy.errors import InvalidInput, NoRoom, PeasyError
from peasy.generation.glance import Looked, Watch
from peasy.generation.sampling import Chosen, Sampling
from peasy.nn.part import check

Reason = Literal["end", "stop", "length", "cancelled", "deadline", "slow", "error"]
"""Why an answer ended: the model's end token, a stop text, enough tokens; or the reader went away, time ran out, nobody
read on, something was wrong."""


@dataclass(frozen=True)
class Request:
    """One prompt as ids, to be written on in `n` ways; choice i draws from the sampling's seed + i.

    `source` is what a translator answers; its prompt may then be left out. `deadline`: seconds from now, waiting
    included. `watch`: which attention is told with every token.

    >>> Request((1, 2, 3), Sampling(max_tokens=4)).n
    1
    """

    prompt: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    source: tuple[int, ...] | None = None
    n: int = 1
    deadline: float | None = None
    watch: Watch | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        object.__setattr__(self, "source", None if self.source is None else tuple(self.source))
        check(self, n=1)
        if self.deadline is not None and not 0 < self.deadline < math.inf:
            raise InvalidInput(f"deadline is {self.deadline}.", hint="Give the seconds as a number above 0.")


@dataclass(frozen=True)
class Token:
    """One more token of a choice. `text` has become certain by it: half a character or half a stop text waits."""

    choice: int
    place: int
    chosen: Chosen
    text: str = ""
    looked: tuple[Looked, ...] = ()


@dataclass(frozen=True)
class Ended:
    """The last that is told of a choice: why it ended, text that had waited, how many tokens it has."""

    choice: int
    reason: Reason
    tokens: int
    text: str = ""
    error: PeasyError | None = None


Event = Token | Ended


class Overloaded(NoRoom):
    """The queue is full; after `retry_after` seconds there is likely to be room."""

    code = "overloaded"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, hint=f"Ask again in {math.ceil(retry_after)} s.")
        self.retry_after = retry_after


class Fault(PeasyError):
    """Something went wrong while this request was answered; others were not affected."""

    code = "fault"


def for_people(error: Exception | None) -> PeasyError | None:
    """The error alone: what it drags behind it would keep the memories of the failed pass alive."""
    if error is None:
        return None
    told = error if isinstance(error, PeasyError) else Fault(f"{type(error).__name__}: {error}")
    told.__traceback__ = told.__context__ = told.__cause__ = None
    return told
