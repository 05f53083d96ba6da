"""Synthetic long-range tasks: `copy` and `recall`, with adjustable distance."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase, digits

from peasy.corpora.generated import Generated
from peasy.corpora.sample import Probe
from peasy.errors import InvalidInput

_FILLERS = ".,;:"


@dataclass(frozen=True)
class CopyOptions:
    """Copy task: `length` letters, so that each target is `length` + 1 words after its source."""

    length: int = 12
    size: int = 20_000
    held_out: int = 1_000

    def __post_init__(self) -> None:
        if not 2 <= self.length <= 10_000:
            raise InvalidInput(f"length is {self.length}; it must be between 2 and 10,000.")


class Copy(Generated):
    """Copy task: letters, a bar, and the same letters again.

    >>> Copy(CopyOptions(length=4)).probe(0)
    Probe(prompt='w v l q |', right=' w v l q', wrong='', referent='', other='', pronoun='', category='copy')
    """

    name = "copy"
    says = "copy task: repeat a sequence of letters, to test how far back a model can attend"

    def __init__(self, options: CopyOptions | None = None, *, seed: int = 0) -> None:
        options = options or CopyOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw letters independently, so that only the copied letter predicts the next one."""
        letters = " ".join(rng.choice(ascii_lowercase) for _ in range(self.options.length))
        return letters, Probe(f"{letters} |", f" {letters}", category="copy")

    def notes(self) -> Mapping[str, str]:
        """Return length and distance."""
        return {"length": str(self.options.length), "distance": f"{self.options.length + 1} words"}


@dataclass(frozen=True)
class RecallOptions:
    """Associative recall: the value is `distance` words before the answer, among `pairs` key-value pairs."""

    distance: int = 16
    pairs: int = 4
    size: int = 20_000
    held_out: int = 1_000

    def __post_init__(self) -> None:
        if not 2 <= self.pairs <= len(ascii_lowercase):
            raise InvalidInput(f"num_pairs is {self.pairs}; it must be between 2 and {len(ascii_lowercase)}.")
        shortest = 2 * self.pairs + 1
        if not shortest <= self.distance <= 100_000:
            raise InvalidInput(
                f"distance is {self.distance}; with {self.pairs} pairs it must be between {shortest} and 100,000.",
                hint="Fewer pairs allow a shorter distance.",
            )


class Recall(Generated):
    """Associative recall: key-value pairs, noise, then one key whose value must be predicted.

    >>> Recall(RecallOptions(distance=9, pairs=2)).probe(0).text
    'w 5 n 2 ; . ; : , , ? n 2'
    """

    name = "recall"
    says = "associative recall: the value of an earlier key, to test how far back a model can attend"

    def __init__(self, options: RecallOptions | None = None, *, seed: int = 0) -> None:
        options = options or RecallOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw the pairs and the query; the queried pair may be at any position, noise fills the distance."""
        keys = rng.sample(ascii_lowercase, self.options.pairs)
        values = (
            rng.sample(digits, self.options.pairs) if self.options.pairs <= 10 else rng.choices(digits, k=len(keys))
        )
        queried = rng.randrange(len(keys))
        other = (queried + rng.randrange(1, len(keys))) % len(keys)
        listing = " ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))
        num_fillers = self.options.distance - 2 * (len(keys) - 1 - queried) - 3
        noise = "".join(f" {rng.choice(_FILLERS)}" for _ in range(num_fillers))
        prompt = f"{listing}{noise} ? {keys[queried]}"
        probe = Probe(prompt, f" {values[queried]}", f" {values[other]}", keys[queried], keys[other], category="recall")
        return prompt, probe

    def notes(self) -> Mapping[str, str]:
        """Return the distance and the number of pairs."""
        return {"distance": f"{self.options.distance} words", "pairs": str(self.options.pairs)}
