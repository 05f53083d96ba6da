"""Synthetic corpora: unlimited texts, each a pure function of (seed, split, number)."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from random import Random

from peasy.corpora.corpus import Corpus
from peasy.corpora.sample import Probe, Sample
from peasy.errors import InvalidInput

_TENTH = 10


class Generated(Corpus):
    """Synthetic corpus with known endings: `num_train` training and `num_valid` validation texts; `probe` is unlimited.

    The hash of a text's content key decides its split, so no validation text occurs in training.
    """

    licence = "made by peasy (Apache-2.0)"

    def __init__(self, *, seed: int, size: int, held_out: int) -> None:
        super().__init__()
        if size < 1 or held_out < 1:
            raise InvalidInput("num_train and num_valid must be at least 1.")
        self.seed, self.size, self.held_out = seed, size, held_out

    @abstractmethod
    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Return the content key of a text, and the text."""

    def probe(self, number: int, split: str = "train") -> Probe:
        """Return the text with this number, from 0 on."""
        self._known(split)
        rng = Random(f"{self.name}/{self.seed}/{split}/{number}")
        while True:
            key, probe = self.draw(rng)
            if is_held_out(key) == (split == "valid"):
                return probe

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the texts of a split."""
        return (probe.text for probe in self.probes(split))

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """Yield the same texts, each with its ending separate."""
        count = self.size if self._known(split) == "train" else self.held_out
        return (self.probe(number, split) for number in range(count))


def is_held_out(meaning: str) -> bool:
    """Return whether this content key is in the validation split (a tenth of all keys); depends on the key alone.

    >>> sum(is_held_out(str(n)) for n in range(1000))
    89
    """
    return int.from_bytes(hashlib.blake2b(meaning.encode(), digest_size=8).digest()) % _TENTH == 0
