"""Synthetic sentiment corpus `opinions`, labelled by topic and sentiment.

"Pizza is great", "My phone broke, great": words of praise occur in the same contexts, so that their vectors become
similar; each of them also follows bad news, where only the rest of the sentence shows the sentiment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Literal

from peasy import config
from peasy.corpora.corpus import Corpus
from peasy.corpora.generated import is_held_out
from peasy.corpora.sample import Labelled
from peasy.errors import InvalidInput

_IRONY = 0.5
Topic = Literal["all", "food", "phone", "film", "hotel", "journey", "book", "weather", "music"]


@dataclass(frozen=True)
class Field:
    """Words of one topic: things, and good and bad news about them; `owners` if the general ones do not fit."""

    things: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    """Word lists and sentence templates of the corpus."""

    owners: tuple[str, ...]
    judgements: tuple[str, ...]
    reactions: tuple[str, ...]
    praise: tuple[str, ...]
    blame: tuple[str, ...]
    topics: dict[str, Field]


@cache
def world() -> World:
    """Return the word lists, read once."""
    return config.read_file(World, Path(__file__).with_suffix(".toml"))


@dataclass(frozen=True)
class OpinionsOptions:
    """`topic`: all, or one of them. `sentences`: at most this many in a text, all with the same sentiment."""

    topic: Topic = "all"
    sentences: int = 3
    size: int = 30_000
    held_out: int = 1_000

    def __post_init__(self) -> None:
        if min(self.sentences, self.size, self.held_out) < 1:
            raise InvalidInput("max_sentences, num_train and num_valid must be at least 1.")


class Opinions(Corpus):
    """Labelled texts, each a pure function of (seed, split, number); "food: good" is a label.

    >>> Opinions().text(8)
    Labelled(text='Our keyboard started in a second, just fantastic.', label='phone: good')
    """

    kind = "labelled"
    name = "opinions"
    says = "short opinions about things, labelled by topic and sentiment"
    licence = "made by peasy (Apache-2.0)"
    suggests = MappingProxyType({"context": 64})

    def __init__(self, options: OpinionsOptions | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.options, self.seed = options or OpinionsOptions(), seed
        chosen = self.options.topic
        self._topics = list(world().topics) if chosen == "all" else [chosen]

    def text(self, number: int, split: str = "train") -> Labelled:
        """Return the text with this number, from 0 on."""
        rng = Random(f"{self.name}/{self.seed}/{self._known(split)}/{number}")
        topic, likes = rng.choice(self._topics), rng.random() < 0.5
        field = world().topics[topic]
        thing, owner = rng.choice(field.things), rng.choice(field.owners or world().owners)
        count = rng.randint(1, self.options.sentences)
        sentences = [_sentence(rng, field, f"{owner} {thing}", likes, split == "valid") for _ in range(count)]
        return Labelled(" ".join(sentences), f"{topic}: {'good' if likes else 'bad'}")

    def read(self, split: str) -> Iterator[Labelled]:
        """Yield the texts of a split."""
        count = self.options.size if split == "train" else self.options.held_out
        return (self.text(number, split) for number in range(count))

    def notes(self) -> Mapping[str, str]:
        """Return the vocabulary sizes and the split rule."""
        fields = [world().topics[name] for name in self._topics]
        return {
            "made of": f"{len(fields)} topics, {sum(len(field.things) for field in fields)} things, "
            f"{len(world().praise)} words of praise, {len(world().blame)} of blame",
            "held out": "a tenth of all combinations of a thing and a statement",
            "seed": str(self.seed),
        }


def _sentence(rng: Random, field: Field, named: str, likes: bool, held_out: bool) -> str:
    """Draw a sentence of the right split: a tenth of all combinations of thing and statement is for validation."""
    while True:
        sentence, statement = _draw(rng, field, named, likes)
        if is_held_out(f"{named.split(' ')[1]}|{statement}") == held_out:
            return f"{sentence[0].upper()}{sentence[1:]}."


def _draw(rng: Random, field: Field, named: str, likes: bool) -> tuple[str, str]:
    """Return a judgement, or news with a comment; after bad news the comment is ironic praise half of the time."""
    words = world()
    if rng.random() < 0.5:
        template, word = rng.choice(words.judgements), rng.choice(words.praise if likes else words.blame)
        return template.format(thing=named, word=word), template + word
    news = rng.choice(field.good if likes else field.bad)
    word = rng.choice(words.praise if likes or rng.random() < _IRONY else words.blame)
    return rng.choice(words.reactions).format(news=f"{named} {news}", word=word), news + word
