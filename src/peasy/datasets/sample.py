"""Samples of a corpus: texts, text pairs, labelled texts, and probes with known answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPair:
    """Source text and its translation.

    `category` is the type of sentence, if known. `alignment` holds (source word, target word) index pairs for the words
    that correspond; words are counted as `peasy.tokenization.encoding.split_words` splits them.
    """

    source: str
    target: str
    category: str = ""
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledText:
    """Text with a class label."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Prompt with its correct ending.

    In a two-way choice `wrong` is the other ending, which would be correct if the pronoun referred to `other`.
    `referent` is the word that decides, and `pronoun` the word that refers to it.
    """

    prompt: str
    right: str
    wrong: str = ""
    referent: str = ""
    other: str = ""
    pronoun: str = ""
    category: str = ""

    @property
    def text(self) -> str:
        """The whole text, with the correct ending."""
        return self.prompt + self.right


Sample = str | TextPair | LabelledText


def sample_texts(sample: Sample) -> tuple[str, ...]:
    """Return all texts of a sample.

    >>> sample_texts(TextPair("a day ago", "il y a un jour"))
    ('a day ago', 'il y a un jour')
    """
    if isinstance(sample, str):
        return (sample,)
    if isinstance(sample, TextPair):
        return sample.source, sample.target
    return (sample.text,)
