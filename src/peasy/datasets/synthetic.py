"""Synthetic corpora: unlimited texts, each a pure function of (seed, split, number)."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from random import Random

from peasy.datasets.corpus import Corpus
from peasy.datasets.sample import Probe, Sample
from peasy.errors import InvalidInput

_VALID_EVERY = 10


class SyntheticCorpus(Corpus):
    """Synthetic corpus with known endings: `num_train` training and `num_valid` validation texts; `probe` is unlimited.

    The hash of a text's content key decides its split, so no validation text occurs in training.
    """

    licence = "made by peasy (Apache-2.0)"

    def __init__(self, *, seed: int, num_train: int, num_valid: int) -> None:
        super().__init__()
        if num_train < 1 or num_valid < 1:
            raise InvalidInput("num_train and num_valid must be at least 1.")
        self.seed, self.num_train, self.num_valid = seed, num_train, num_valid

    @abstractmethod
    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Return the content key of a text, and the text."""

    def probe(self, number: int, split: str = "train") -> Probe:
        """Return the text with this number, from 0 on."""
        self._check_split(split)
        rng = Random(f"{self.name}/{self.seed}/{split}/{number}")
        while True:
            key, probe = self.draw(rng)
            if is_validation(key) == (split == "valid"):
                return probe

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the texts of a split."""
        return (probe.text for probe in self.probes(split))

    def probes(self, split: str = "valid") -> Iterator[Probe]:
        """Yield the same texts, each with its ending separate."""
        count = self.num_train if self._check_split(split) == "train" else self.num_valid
        return (self.probe(number, split) for number in range(count))


def is_validation(key: str) -> bool:
    """Return whether this content key is in the validation split (a tenth of all keys); depends on the key alone.

    >>> sum(is_validation(str(n)) for n in range(1000))
    89
    """
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % _VALID_EVERY == 0
