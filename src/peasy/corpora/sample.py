"""What a corpus is made of: texts, pairs, labelled texts, and the questions that test what was learned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and its translation.

    `category` says what kind of sentence it is, where that is known. `alignment` holds (source word, target word)
    for the words that are known to belong together; words are counted as `peasy.text.encoding.split_words` cuts them.
    """

    source: str
    target: str
    category: str = ""
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and the class it belongs to."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Probe:
    """A text that breaks off, with the ending that is right.

    Where the question is a choice, `wrong` is the other ending: it would be right if `other` were meant. `referent` is
    the word that decides, and `pronoun` the word that stands for it.
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
        """The whole text, with the right ending."""
        return self.prompt + self.right


Sample = str | Pair | Labelled


def texts_of(sample: Sample) -> tuple[str, ...]:
    """Every text in a sample.

    >>> texts_of(Pair("a day ago", "il y a un jour"))
    ('a day ago', 'il y a un jour')
    """
    if isinstance(sample, str):
        return (sample,)
    if isinstance(sample, Pair):
        return sample.source, sample.target
    return (sample.text,)
