"""How far back must a model look? `copy` and `recall`: puzzles whose distance the user chooses."""

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
    """`length` letters are to be copied: each stands `length` + 1 words back."""

    length: int = 12
    size: int = 20_000
    held_out: int = 1_000

    def __post_init__(self) -> None:
        if not 2 <= self.length <= 10_000:
            raise InvalidInput(f"length is {self.length}; 2 to 10,000 are possible.")


class Copy(Generated):
    """Letters, a bar, and the same letters again.

    >>> Copy(CopyOptions(length=4)).probe(0)
    Probe(prompt='w v l q |', right=' w v l q', wrong='', referent='', other='', pronoun='', category='copy')
    """

    name = "copy"
    says = "letters to be repeated, to see how far back a model can look"

    def __init__(self, options: CopyOptions | None = None, *, seed: int = 0) -> None:
        options = options or CopyOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Letters are drawn one by one, so nothing but looking back tells the next."""
        letters = " ".join(rng.choice(ascii_lowercase) for _ in range(self.options.length))
        return letters, Probe(f"{letters} |", f" {letters}", category="copy")

    def notes(self) -> Mapping[str, str]:
        """The distance."""
        return {"length": str(self.options.length), "distance": f"{self.options.length + 1} words"}


@dataclass(frozen=True)
class RecallOptions:
    """The asked value stands `distance` words before the answer, among `pairs` keys with a value each."""

    distance: int = 16
    pairs: int = 4
    size: int = 20_000
    held_out: int = 1_000

    def __post_init__(self) -> None:
        if not 2 <= self.pairs <= len(ascii_lowercase):
            raise InvalidInput(f"pairs is {self.pairs}; 2 to {len(ascii_lowercase)} are possible.")
        least = 2 * self.pairs + 1
        if not least <= self.distance <= 100_000:
            raise InvalidInput(
                f"distance is {self.distance}; with {self.pairs} pairs {least} to 100,000 are possible.",
                hint="Fewer pairs allow a shorter distance.",
            )


class Recall(Generated):
    """Keys with values, then noise, then one key whose value is asked for.

    >>> Recall(RecallOptions(distance=9, pairs=2)).probe(0).text
    'w 5 n 2 ; . ; : , , ? n 2'
    """

    name = "recall"
    says = "the value of a key that was told long ago, to see how far back a model can look"

    def __init__(self, options: RecallOptions | None = None, *, seed: int = 0) -> None:
        options = options or RecallOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """The asked pair may stand anywhere among the pairs; noise keeps the distance."""
        keys = rng.sample(ascii_lowercase, self.options.pairs)
        values = (
            rng.sample(digits, self.options.pairs) if self.options.pairs <= 10 else rng.choices(digits, k=len(keys))
        )
        asked = rng.randrange(len(keys))
        other = (asked + rng.randrange(1, len(keys))) % len(keys)
        told = " ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))
        between = self.options.distance - 2 * (len(keys) - 1 - asked) - 3
        noise = "".join(f" {rng.choice(_FILLERS)}" for _ in range(between))
        prompt = f"{told}{noise} ? {keys[asked]}"
        probe = Probe(prompt, f" {values[asked]}", f" {values[other]}", keys[asked], keys[other], category="recall")
        return prompt, probe

    def notes(self) -> Mapping[str, str]:
        """The distance, and how many pairs there are to tell apart."""
        return {"distance": f"{self.options.distance} words", "pairs": str(self.options.pairs)}
