"""Corpora that are made up as they are read: endless, and each text a pure function of (seed, split, number)."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from random import Random

from peasy.corpora.corpus import Corpus
from peasy.corpora.sample import Probe, Sample
from peasy.errors import InvalidInput

_TENTH = 10


class Generated(Corpus):
    """Texts with known endings. `size` are learned from and `held_out` are kept for testing; `probe` has no end.

    What a text is about (`meaning`) decides by its hash which split it may be in: nothing held out is ever trained on.
    """

    licence = "made by peasy (Apache-2.0)"

    def __init__(self, *, seed: int, size: int, held_out: int) -> None:
        super().__init__()
        if size < 1 or held_out < 1:
            raise InvalidInput("size and held_out count documents: at least 1 each.")
        self.seed, self.size, self.held_out = seed, size, held_out

    @abstractmethod
    def draw(self, rng: Random) -> tuple[str, Probe]:
        """What a text is about, and the text."""

    def probe(self, number: int, split: str = "train") -> Probe:
        """The text of that number: any number from 0 on."""
        self._known(split)
        rng = Random(f"{self.name}/{self.seed}/{split}/{number}")
        while True:
            meaning, probe = self.draw(rng)
            if is_held_out(meaning) == (split == "valid"):
                return probe

    def read(self, split: str) -> Iterator[Sample]:
        """The texts of a split."""
        return (probe.text for probe in self.probes(split))

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """The same texts, each with its ending apart."""
        count = self.size if self._known(split) == "train" else self.held_out
        return (self.probe(number, split) for number in range(count))


def is_held_out(meaning: str) -> bool:
    """Whether this is one of the tenth of all meanings that are kept for testing; the same on every day.

    >>> sum(is_held_out(str(n)) for n in range(1000))
    89
    """
    return int.from_bytes(hashlib.blake2b(meaning.encode(), digest_size=8).digest()) % _TENTH == 0
