"""Synthetic tasks: `copy` and `recall` over an adjustable distance, `repeats` over a random one."""

from collections.abc import Mapping
from dataclasses import field
from random import Random
from string import ascii_lowercase, digits
from types import MappingProxyType
from typing import Annotated

from annotated_types import Ge, Le

from peasy.datasets.corpus import Probe, SyntheticConfig, SyntheticCorpus
from peasy.errors import InvalidInput

_FILLERS = ".,;:"


class CopyConfig(SyntheticConfig):
    """Copy task: `length` letters, so that each target is `length` + 1 words after its source."""

    length: Annotated[int, Ge(2), Le(10_000)] = 12
    """Number of letters to copy."""


class Copy(SyntheticCorpus[CopyConfig]):
    """Copy task: letters, a bar, and the same letters again.

    >>> Copy(CopyConfig(length=4)).probe(0)
    Probe(prompt='w v l q |', right=' w v l q', wrong='', referent='', other='', pronoun='', category='copy')
    """

    name = "copy"
    description = "copy task: repeat a sequence of letters, to test how far back a model can attend"

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw letters independently, so that only the copied letter predicts the next one."""
        letters = " ".join(rng.choice(ascii_lowercase) for _ in range(self.options.length))
        return letters, Probe(f"{letters} |", f" {letters}", category="copy")

    def notes(self) -> Mapping[str, str]:
        return {"length": str(self.options.length), "distance": f"{self.options.length + 1} words"}


class RecallConfig(SyntheticConfig):
    """Associative recall: the value is `distance` words before the answer, among `num_pairs` key-value pairs."""

    distance: int = 16
    """Distance from the value to the answer, in words; from 2 * num_pairs + 1 to 100,000."""
    num_pairs: Annotated[int, Ge(2), Le(len(ascii_lowercase))] = 4
    """Number of key-value pairs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shortest = 2 * self.num_pairs + 1
        if not shortest <= self.distance <= 100_000:
            raise InvalidInput(
                f"distance is {self.distance}; with {self.num_pairs} pairs it must be between {shortest} and 100,000.",
                hint="Fewer pairs allow a shorter distance.",
            )


class Recall(SyntheticCorpus[RecallConfig]):
    """Associative recall: key-value pairs, noise, then one key whose value must be predicted.

    >>> Recall(RecallConfig(distance=9, num_pairs=2)).probe(0).text
    'w 5 n 2 ; . ; : , , ? n 2'
    """

    name = "recall"
    description = "associative recall: the value of an earlier key, to test how far back a model can attend"

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw the pairs and the query; the queried pair may be at any position, noise fills the distance."""
        keys = rng.sample(ascii_lowercase, self.options.num_pairs)
        values = rng.sample(digits, len(keys)) if len(keys) <= 10 else rng.choices(digits, k=len(keys))
        queried = rng.randrange(len(keys))
        other = (queried + rng.randrange(1, len(keys))) % len(keys)
        listing = " ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))
        num_fillers = self.options.distance - 2 * (len(keys) - 1 - queried) - 3
        noise = "".join(f" {rng.choice(_FILLERS)}" for _ in range(num_fillers))
        prompt = f"{listing}{noise} ? {keys[queried]}"
        probe = Probe(prompt, f" {values[queried]}", f" {values[other]}", keys[queried], keys[other], category="recall")
        return prompt, probe

    def notes(self) -> Mapping[str, str]:
        return {"distance": f"{self.options.distance} words", "pairs": str(self.options.num_pairs)}


class RepeatsConfig(SyntheticConfig):
    """Repeated sequences: 4 to `max_length` random letters, three times in a row."""

    max_length: Annotated[int, Ge(4), Le(10_000)] = 16
    """Largest number of letters before they are repeated."""
    num_train: Annotated[int, Ge(1)] = field(default=40_000, kw_only=True)


class Repeats(SyntheticCorpus[RepeatsConfig]):
    """Repeated random sequences of different lengths: only an earlier copy of a letter tells which one follows.

    A fixed offset does not help, as it would in `copy`: a model has to find the copy by its content.

    >>> Repeats(RepeatsConfig(max_length=5)).probe(0).text
    'w y e s g w y e s g w y e s g'
    """

    name = "repeats"
    description = "repeated random sequences of different lengths, to test copying by content"
    suggested_settings: Mapping[str, object] = MappingProxyType({
        "tokenizer": {"algorithm": "words"}, "sample_unit": "documents", "seq_len": 64, "seq_len_warmup": None,
        "batch_size": 32,
    })  # fmt: skip

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw the length, then distinct letters as long as there are any."""
        length = rng.randint(4, self.options.max_length)
        distinct = rng.sample(ascii_lowercase, min(length, len(ascii_lowercase)))
        letters = " ".join([*distinct, *rng.choices(ascii_lowercase, k=length - len(distinct))])
        return letters, Probe(letters, f" {letters} {letters}", category="repeats")

    def notes(self) -> Mapping[str, str]:
        return {"length": f"4 to {self.options.max_length} letters, three times"}
